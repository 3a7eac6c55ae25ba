// SPDX-License-Identifier: MIT
#include "net/frame_server.h"

#include <fmt/format.h>
#include <openssl/err.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/entropy.h"
#include "net/frame_stream.h"

namespace deepinfer {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

std::string random_nonce() {
  std::string nonce;
  while (nonce.size() < kNonceBytes) {
    const uint64_t bits = entropy_u64();
    nonce.append(reinterpret_cast<const char*>(&bits), sizeof bits);
  }
  return nonce;
}

struct ServerShared {
  FrameServerOptions options;
  FrameHandler handler;
  std::unique_ptr<asio::ssl::context> tls;
  std::atomic<int64_t> num_connections{0}, num_refused{0};
};

class ServerConnection : public std::enable_shared_from_this<ServerConnection> {
 public:
  ServerConnection(std::shared_ptr<ServerShared> shared, asio::io_context& io, tcp::socket socket)
      : shared_(std::move(shared)), io_(io), stream_(std::move(socket), shared_->tls.get()), timer_(io) {
    ++shared_->num_connections;
  }
  ~ServerConnection() { --shared_->num_connections; }

  void start(std::function<void()> on_closed) {
    on_closed_ = std::move(on_closed);
    FrameStream::Error ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    timer_.expires_after(std::chrono::nanoseconds(shared_->options.handshake_timeout_ns));
    timer_.async_wait([self = shared_from_this()](FrameStream::Error error) {
      if (!error && !self->welcomed_) self->refuse();
    });
    stream_.handshake(true, [self = shared_from_this()](FrameStream::Error error) {
      if (error) return self->refuse();
      self->nonce_ = random_nonce();
      self->write({kHelloFrame, 0, self->nonce_, {}});
      self->read();
    });
  }

  void close() {
    if (closed_) return;
    closed_ = true;
    timer_.cancel();
    stream_.close();
    if (on_closed_) on_closed_();
  }

 private:
  void refuse() {
    if (!closed_) ++shared_->num_refused;
    close();
  }

  void read() {
    if (closed_ || reading_ || num_under_way_ >= shared_->options.requests_max) return;
    reading_ = true;
    stream_.read(header_bytes_.data(), header_bytes_.size(),
                 [self = shared_from_this()](FrameStream::Error error, size_t) {
                   if (error) return self->close();
                   self->on_header();
                 });
  }

  void on_header() {
    auto header = decode_frame_header(header_bytes_, shared_->options.limits);
    const bool too_early = header.ok() && !welcomed_ && header->body_bytes > 0;
    if (!header.ok() || too_early) return refuse();
    header_ = *header;
    head_.resize(header_.head_bytes);
    stream_.read(head_.data(), head_.size(), [self = shared_from_this()](FrameStream::Error error, size_t) {
      if (error) return self->close();
      self->on_head();
    });
  }

  void on_head() {
    if (!frame_head_is_whole(header_bytes_, head_)) return refuse();
    body_ = header_.body_bytes > 0 ? shared_->options.allocate(header_.body_bytes) : FrameBody{};
    if (header_.body_bytes == 0) return on_frame();
    stream_.read(body_.data, header_.body_bytes, [self = shared_from_this()](FrameStream::Error error, size_t) {
      if (error) return self->close();
      self->on_frame();
    });
  }

  void on_frame() {
    reading_ = false;
    if (!welcomed_) {
      if (!check_proof()) return refuse();
      return read();
    }
    if (header_.type < kFirstUserFrame) return refuse();
    ++num_under_way_;
    body_.size = header_.body_bytes;
    shared_->handler(
        {header_.type, std::move(head_), std::exchange(body_, {})},
        [weak = weak_from_this(), &io = io_, type = header_.type, id = header_.id](std::string head, FrameBody body) {
          asio::post(io, [weak, type, id, head = std::move(head), body = std::move(body)]() mutable {
            const auto self = weak.lock();
            if (!self || self->closed_) return;
            --self->num_under_way_;
            self->write({type, id, std::move(head), std::move(body)});
            self->read();
          });
        });
    head_.clear();
    read();
  }

  // Proof of the client over our nonce and its own; ours back.
  bool check_proof() {
    const std::string& secret = shared_->options.security.secret;
    if (header_.type != kProofFrame || head_.size() != 2 * kNonceBytes) return false;
    const std::string theirs = head_.substr(0, kNonceBytes), proof = head_.substr(kNonceBytes);
    if (!same_proof(proof, frame_proof(secret, "client", nonce_, theirs))) return false;
    welcomed_ = true;
    timer_.cancel();
    write({kWelcomeFrame, 0, frame_proof(secret, "server", theirs, nonce_), {}});
    return true;
  }

  void write(OutgoingFrame frame) {
    out_.push_back(std::move(frame));
    if (out_.size() == 1) write_next();
  }
  void write_next() {
    stream_.write(out_.front().pieces(), [self = shared_from_this()](FrameStream::Error error, size_t) {
      if (error) return self->close();
      self->out_.pop_front();
      if (!self->out_.empty()) self->write_next();
    });
  }

  std::shared_ptr<ServerShared> shared_;
  asio::io_context& io_;
  FrameStream stream_;
  asio::steady_timer timer_;
  std::function<void()> on_closed_;
  std::string nonce_;
  std::array<uint8_t, kFrameHeaderBytes> header_bytes_{};
  FrameHeader header_;
  std::string head_;
  FrameBody body_;
  std::deque<OutgoingFrame> out_;
  int64_t num_under_way_ = 0;
  bool welcomed_ = false, closed_ = false, reading_ = false;
};

struct EventThread {
  asio::io_context io{1};
  std::unordered_set<std::shared_ptr<ServerConnection>> connections;
  std::thread thread;
};

}  // namespace

Result<std::unique_ptr<asio::ssl::context>> make_tls_context(const FrameSecurity& security) {
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls);
  FrameStream::Error error;
  const auto failed = [&](const std::string& file) {
    return invalid_argument(fmt::format("{}: {}", file, error.message()));
  };
  context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                           asio::ssl::context::no_tlsv1_1 | asio::ssl::context::no_sslv3,
                       error);
  if (context->use_certificate_chain_file(security.tls_certificate, error); error)
    return failed(security.tls_certificate);
  if (context->use_private_key_file(security.tls_key, asio::ssl::context::pem, error); error)
    return failed(security.tls_key);
  if (context->load_verify_file(security.tls_authority, error); error) return failed(security.tls_authority);
  context->set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert, error);
  return context;
}

struct FrameServer::Parts {
  std::shared_ptr<ServerShared> shared;
  std::vector<std::unique_ptr<EventThread>> threads;
  std::unique_ptr<tcp::acceptor> acceptor;
  size_t next = 0;

  void accept() {
    EventThread& loop = *threads[next++ % threads.size()];
    acceptor->async_accept(loop.io, [this, &loop](FrameStream::Error error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (!error && shared->num_connections < shared->options.connections_max)
        asio::post(loop.io, [this, &loop, s = std::make_shared<tcp::socket>(std::move(socket))] {
          const auto connection = std::make_shared<ServerConnection>(shared, loop.io, std::move(*s));
          loop.connections.insert(connection);
          connection->start([&loop, weak = std::weak_ptr(connection)] { loop.connections.erase(weak.lock()); });
        });
      accept();
    });
  }
};

FrameServer::FrameServer() : parts_(std::make_shared<Parts>()) {}

Result<std::unique_ptr<FrameServer>> FrameServer::start(const FrameServerOptions& options, FrameHandler handler) {
  std::unique_ptr<FrameServer> server(new FrameServer);
  Parts& parts = *server->parts_;
  parts.shared = std::make_shared<ServerShared>();
  parts.shared->options = options;
  parts.shared->handler = std::move(handler);
  if (options.security.has_tls()) { ASSIGN_OR_RETURN(parts.shared->tls, make_tls_context(options.security)); }
  for (int i = 0; i < options.num_threads; ++i) parts.threads.push_back(std::make_unique<EventThread>());
  FrameStream::Error error;
  const auto address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
  if (error) return invalid_argument(fmt::format("--host {}: expected an IP address", options.host));
  parts.acceptor = std::make_unique<tcp::acceptor>(parts.threads.front()->io);
  const tcp::endpoint endpoint(address, static_cast<uint16_t>(options.port));
  parts.acceptor->open(endpoint.protocol(), error);
  if (!error) parts.acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) parts.acceptor->bind(endpoint, error);
  if (!error) parts.acceptor->listen(tcp::acceptor::max_listen_connections, error);
  if (error) return unavailable(fmt::format("{}:{}: {}", options.host, options.port, error.message()));
  parts.accept();
  for (const auto& loop : parts.threads)
    loop->thread = std::thread([&io = loop->io] {
      const auto guard = asio::make_work_guard(io);
      io.run();
    });
  return server;
}

void FrameServer::stop() {
  for (const auto& loop : parts_->threads) loop->io.stop();
  for (const auto& loop : parts_->threads)
    if (loop->thread.joinable()) loop->thread.join();
}

FrameServer::~FrameServer() {
  stop();
  parts_->acceptor.reset();
  for (const auto& loop : parts_->threads) loop->connections.clear();
}

int FrameServer::port() const { return parts_->acceptor->local_endpoint().port(); }
int64_t FrameServer::num_connections() const { return parts_->shared->num_connections; }
int64_t FrameServer::num_refused() const { return parts_->shared->num_refused; }

}  // namespace deepinfer
