// SPDX-License-Identifier: MIT
// Requests out of a byte stream, in order: bytes are pushed as they come, whole requests are taken. What is left behind
// a request begins the next one (pipelining). What comes out does not depend on how the bytes were cut. Parsing is
// Boost.Beast's; on top of it everything that lets two servers read a message differently is refused: Content-Length
// beside Transfer-Encoding, any other transfer coding than chunked, several Host fields, folded lines.
// Thread: one owner. Source: RFC 9112.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "net/http_message.h"

namespace deepinfer {

struct HttpLimits {
  size_t header_bytes_max = 32 << 10;  // request line, fields, trailers
  size_t target_bytes_max = 8 << 10;
  size_t body_bytes_max = size_t{100} << 20;  // as sent
};

// Why a request cannot be read. The connection ends with it: where the next request begins is not known.
struct HttpFault {
  int status = 400;
  std::string message;
};

class HttpRequestParser {
 public:
  explicit HttpRequestParser(const HttpLimits& limits);
  ~HttpRequestParser();

  void push(std::string_view bytes);

  // A whole request is there.
  bool is_done() const;
  const std::optional<HttpFault>& fault() const;
  // Takes the request and goes on with what was pushed behind it. Precondition: is_done().
  HttpRequest take();

  bool has_begun() const;            // a byte of the current request is there
  bool has_head() const;             // its fields are read
  HttpRequest head() const;          // the request without its body. Precondition: has_head()
  size_t num_body_bytes() const;     // announced, or read so far where that is more
  bool expects_continue() const;     // has_head() and the client waits for 100 before it sends the body
  size_t num_pending_bytes() const;  // pushed, not yet part of a request

 private:
  struct Parts;  // Boost
  std::unique_ptr<Parts> parts_;
};

// The same for the answers a client reads.
class HttpResponseParser {
 public:
  explicit HttpResponseParser(size_t body_bytes_max);
  HttpResponseParser(HttpResponseParser&&) noexcept;
  ~HttpResponseParser();
  void push(std::string_view bytes);
  void push_end();  // the connection was closed
  bool has_head() const;
  bool is_done() const;
  bool failed() const;
  const std::string& body() const;  // what has come so far
  HttpResponse take();              // starts the next one

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace deepinfer
