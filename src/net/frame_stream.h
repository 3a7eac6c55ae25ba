// SPDX-License-Identifier: MIT
// One TCP connection, with TLS or without, that moves whole runs of bytes. Includes Boost: for net's own .cc files
// only. Thread: its event thread.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "net/frame.h"

namespace deepinfer {

class FrameStream {
 public:
  using Error = boost::system::error_code;

  FrameStream(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls) : socket_(std::move(socket)) {
    if (tls) tls_.emplace(socket_, *tls);
  }

  boost::asio::ip::tcp::socket& socket() { return socket_; }

  template <typename Handler>
  void handshake(bool as_server, Handler handler) {
    if (!tls_) return handler(Error());
    tls_->async_handshake(as_server ? boost::asio::ssl::stream_base::server : boost::asio::ssl::stream_base::client,
                          std::move(handler));
  }
  // Exactly that many bytes.
  template <typename Handler>
  void read(void* data, size_t size, Handler handler) {
    const auto buffer = boost::asio::buffer(data, size);
    if (tls_) boost::asio::async_read(*tls_, buffer, std::move(handler));
    else boost::asio::async_read(socket_, buffer, std::move(handler));
  }
  template <typename Handler>
  void write(const std::array<boost::asio::const_buffer, 3>& pieces, Handler handler) {
    if (tls_) boost::asio::async_write(*tls_, pieces, std::move(handler));
    else boost::asio::async_write(socket_, pieces, std::move(handler));
  }
  void close() {
    Error ignored;
    socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
  }

 private:
  boost::asio::ip::tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
};

// Contexts that demand a certificate of the other side. Errors: invalid_argument (a file cannot be used, and why).
Result<std::unique_ptr<boost::asio::ssl::context>> make_tls_context(const FrameSecurity& security);

// A frame on its way out, with the memory it points to.
struct OutgoingFrame {
  std::array<uint8_t, kFrameHeaderBytes> header{};
  std::string head;
  FrameBody body;

  OutgoingFrame(uint16_t type, uint64_t id, std::string text, FrameBody bytes)
      : header(encode_frame_header(type, id, text, static_cast<uint32_t>(bytes.size))),
        head(std::move(text)),
        body(std::move(bytes)) {}
  std::array<boost::asio::const_buffer, 3> pieces() const {
    return {boost::asio::buffer(header), boost::asio::buffer(head), boost::asio::buffer(body.data, body.size)};
  }
};

// Types below this belong to the handshake.
inline constexpr uint16_t kFirstUserFrame = 16;
inline constexpr uint16_t kHelloFrame = 1, kProofFrame = 2, kWelcomeFrame = 3;
inline constexpr size_t kNonceBytes = 32;

}  // namespace deepinfer
