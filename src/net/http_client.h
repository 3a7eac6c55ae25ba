// SPDX-License-Identifier: MIT
// A blocking HTTP/1.1 client over one connection, for tests and tools that talk to a server on this machine. It sends
// what it is given, well formed or not. Thread: one owner.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "net/http_parser.h"

namespace deepinfer {

class HttpClient {
 public:
  static Result<HttpClient> connect(const std::string& address, int port, int64_t timeout_ms = 10'000);
  HttpClient(HttpClient&& other) noexcept;
  ~HttpClient();

  Status send(std::string_view bytes);
  // The next whole response. Errors: unavailable (closed or silent), corruption.
  Result<HttpResponse> receive();
  // Waits until `text` stands in the body of the response under way. Errors as receive().
  Status receive_until(std::string_view text);
  // One request and its response; `fields` as "Name: value\r\n" lines.
  Result<HttpResponse> request(std::string_view method, std::string_view target, std::string_view body = "",
                               std::string_view fields = "");
  void close();
  bool is_closed_by_peer();  // waits for it up to the time-out

 private:
  HttpClient(int fd);
  Result<bool> read_some();  // false: closed
  int fd_;
  HttpResponseParser parser_;
};

}  // namespace deepinfer
