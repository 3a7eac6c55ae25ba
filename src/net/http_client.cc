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

namespace deepinfer {

HttpClient::HttpClient(int fd) : fd_(fd), parser_(size_t{1} << 30) {}
HttpClient::HttpClient(HttpClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), parser_(std::move(other.parser_)) {}
HttpClient::~HttpClient() { close(); }

void HttpClient::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Result<HttpClient> HttpClient::connect(const std::string& address, int port, int64_t timeout_ms) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) return invalid_argument("expected an IPv4 address");
  HttpClient client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (client.fd_ < 0) return unavailable(std::string("socket: ") + std::strerror(errno));
  const timeval limit{timeout_ms / 1000, (timeout_ms % 1000) * 1000};
  const int one = 1;
  setsockopt(client.fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(client.fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  setsockopt(client.fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (::connect(client.fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
    return unavailable(std::string("connect: ") + std::strerror(errno));
  return client;
}

Status HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return unavailable(std::string("send: ") + std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return {};
}

Result<bool> HttpClient::read_some() {
  char buffer[16 << 10];
  ssize_t received;
  do received = ::recv(fd_, buffer, sizeof buffer, 0);
  while (received < 0 && errno == EINTR);
  if (received < 0) return unavailable(std::string("receive: ") + std::strerror(errno));
  if (received == 0) {
    parser_.push_end();
    return false;
  }
  parser_.push({buffer, static_cast<size_t>(received)});
  return true;
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
