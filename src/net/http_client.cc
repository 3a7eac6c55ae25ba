// SPDX-License-Identifier: MIT
#include "net/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"

namespace deepinfer {

HttpClient::HttpClient(int fd, size_t body_bytes_max) : fd_(fd), parser_(body_bytes_max) {}
HttpClient::HttpClient(HttpClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      end_ns_(other.end_ns_),
      tls_(std::move(other.tls_)),
      parser_(std::move(other.parser_)) {}
HttpClient::~HttpClient() { close(); }

void HttpClient::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Result<HttpClient> HttpClient::connect(const std::string& address, int port, int64_t timeout_ms,
                                       size_t body_bytes_max) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  v4.sin_port = v6.sin6_port = htons(static_cast<uint16_t>(port));
  const bool is_v4 = inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1;
  if (!is_v4 && inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) != 1)
    return invalid_argument("expected an IP address, found \"" + address + "\"");
  HttpClient client(::socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), body_bytes_max);
  if (client.fd_ < 0) return unavailable(std::string("socket: ") + std::strerror(errno));
  const timeval limit{timeout_ms / 1000, (timeout_ms % 1000) * 1000};
  const int one = 1;
  setsockopt(client.fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(client.fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  setsockopt(client.fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  const auto* to = is_v4 ? reinterpret_cast<const sockaddr*>(&v4) : reinterpret_cast<const sockaddr*>(&v6);
  if (::connect(client.fd_, to, is_v4 ? sizeof v4 : sizeof v6) != 0)
    return unavailable(std::string("connect: ") + std::strerror(errno));
  return client;
}

Status HttpClient::secure(const TlsTrust& trust, const std::string& host_name) {
  tls_ = std::make_unique<TlsSession>(trust, host_name);
  while (!tls_->is_established()) {
    TRY(send_raw(tls_->take_sealed()));
    ASSIGN_OR_RETURN(const bool open, read_some());
    if (!open) return unavailable("the connection was closed while it was being secured");
  }
  return send_raw(tls_->take_sealed());
}

void HttpClient::give_up_after(int64_t milliseconds) {
  end_ns_ = SystemClock().monotonic_ns() + milliseconds * 1'000'000;
}

Status HttpClient::wait_no_longer_than_left() {
  if (!end_ns_) return {};
  const int64_t left = (*end_ns_ - SystemClock().monotonic_ns()) / 1000;  // microseconds
  if (left <= 0) return unavailable("it took too long");
  const timeval limit{left / 1'000'000, left % 1'000'000};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  return {};
}

Status HttpClient::send_raw(std::string_view bytes) {
  while (!bytes.empty()) {
    TRY(wait_no_longer_than_left());
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return unavailable(std::string("send: ") + std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return {};
}

Status HttpClient::send(std::string_view bytes) {
  if (!tls_) return send_raw(bytes);
  TRY(tls_->seal(bytes));
  return send_raw(tls_->take_sealed());
}

Result<size_t> HttpClient::read_raw(char* buffer, size_t num_bytes) {
  TRY(wait_no_longer_than_left());
  ssize_t received;
  do received = ::recv(fd_, buffer, num_bytes, 0);
  while (received < 0 && errno == EINTR);
  if (received < 0) return unavailable(std::string("receive: ") + std::strerror(errno));
  return static_cast<size_t>(received);
}

Result<bool> HttpClient::read_some() {
  char buffer[16 << 10];
  ASSIGN_OR_RETURN(const size_t received, read_raw(buffer, sizeof buffer));
  std::string_view bytes(buffer, received);
  std::string plain;
  if (tls_ && received > 0) {
    TRY(tls_->open(bytes, plain));
    bytes = plain;
    TRY(send_raw(tls_->take_sealed()));
  }
  parser_.push(bytes);
  if (received > 0 && !(tls_ && tls_->is_ended_by_peer())) return true;
  parser_.push_end();
  return false;
}

Result<HttpResponse> HttpClient::receive() {
  for (;;) {
    while (!parser_.is_done() && !parser_.failed()) {
      ASSIGN_OR_RETURN(const bool open, read_some());
      if (!open && !parser_.is_done()) return unavailable("the connection was closed before the response was complete");
    }
    if (parser_.failed()) return corruption("the response is not HTTP/1.1");
    HttpResponse response = parser_.take();
    if (response.status >= 200) return response;  // 1xx announce the real one
  }
}

Status HttpClient::receive_until(std::string_view text) {
  while (parser_.body().find(text) == std::string::npos) {
    if (parser_.is_done() || parser_.failed())
      return corruption("the response ended without \"" + std::string(text) + "\"");
    ASSIGN_OR_RETURN(const bool open, read_some());
    if (!open) return unavailable("the connection was closed");
  }
  return {};
}

Result<HttpResponse> HttpClient::request(std::string_view method, std::string_view target, std::string_view body,
                                         std::string_view fields) {
  std::string bytes;
  bytes.append(method).append(" ").append(target).append(" HTTP/1.1\r\nHost: localhost\r\n").append(fields);
  if (!body.empty() || method == "POST") bytes.append("Content-Length: " + std::to_string(body.size()) + "\r\n");
  bytes.append("\r\n").append(body);
  TRY(send(bytes));
  return receive();
}

bool HttpClient::is_closed_by_peer() {
  for (;;) {
    auto open = read_some();
    if (!open.ok()) return open.status().message().find("reset") != std::string::npos;
    if (!*open) return true;
  }
}

}  // namespace deepinfer
