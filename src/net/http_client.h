// SPDX-License-Identifier: MIT
// A blocking HTTP/1.1 client over one connection, with or without TLS: for tests and tools, for images by address and
// for spans. It sends what it is given, well formed or not. Thread: one owner.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "net/http_parser.h"
#include "net/tls.h"

namespace deepinfer {

class HttpClient {
 public:
  // `address`: an IP address. The time-out is that of each wait for the peer.
  static Result<HttpClient> connect(const std::string& address, int port, int64_t timeout_ms = 10'000,
                                    size_t body_bytes_max = size_t{1} << 30);
  // Speaks TLS from here on. Errors: invalid_argument (the certificate), corruption, unavailable.
  Status secure(const TlsTrust& trust, const std::string& host_name);
  // All that is done from now on together; beyond it every call fails.
  void give_up_after(int64_t milliseconds);
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
  HttpClient(int fd, size_t body_bytes_max);
  Result<bool> read_some();                                 // false: closed
  Result<size_t> read_raw(char* buffer, size_t num_bytes);  // 0: closed
  Status send_raw(std::string_view bytes);
  Status wait_no_longer_than_left();
  int fd_;
  std::optional<int64_t> end_ns_;
  std::unique_ptr<TlsSession> tls_;
  HttpResponseParser parser_;
};

}  // namespace deepinfer
