// SPDX-License-Identifier: MIT
// One request being answered. Either respond(), or start_stream(), write() any number of times, end_stream(). All calls
// are made on the connection's thread, except post(), which brings work there. When the client is gone every call is a
// no-op and the on_close callback has run (or is about to). An exchange that is dropped unanswered answers 500.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "net/http_message.h"

namespace deepinfer {

class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual void post(std::function<void()> work) = 0;  // any thread; never runs inline

  virtual bool is_open() const = 0;  // the client is there and the answer is not complete
  virtual void respond(HttpResponse response) = 0;
  virtual void start_stream(HttpResponse head) = 0;  // its body is not looked at
  virtual void write(std::string_view bytes) = 0;
  virtual void end_stream() = 0;

  // Bytes written and not yet taken by the socket. A writer that looks at this and waits for on_drained is slowed by
  // its own client alone; one that goes on past the hard bound of the server loses the connection.
  virtual size_t queued_bytes() const = 0;
  virtual void on_drained(std::function<void()> resume) = 0;  // once, when the queue is empty
  // Once, when the client goes away before the answer is complete; at once when it is gone already.
  virtual void on_close(std::function<void()> closed) = 0;
  virtual void run_after(int64_t delay_ns, std::function<void()> work) = 0;  // not when the connection has ended
};

// Called on the connection's thread; must not block.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpExchange> exchange)>;
// Looks at a request whose large body has not come yet; an answer refuses it and ends the connection. On the
// connection's thread; must not block.
using HttpGate = std::function<std::optional<HttpResponse>(const HttpRequest& head)>;

}  // namespace deepinfer
