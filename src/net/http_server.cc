// SPDX-License-Identifier: MIT
#include "net/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <thread>

#include "net/http_connection.h"

namespace deepinfer {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto kTick = std::chrono::milliseconds(250);
constexpr std::string_view kFull =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\nRetry-After: 1\r\n\r\n";

// A thread that runs one event loop.
class EventThread {
 public:
  explicit EventThread(const Clock& clock)
      : loop(std::make_shared<HttpEventLoop>()), clock_(clock), guard_(loop->io.get_executor()), tick_(loop->io) {}

  void start() {
    arm_tick();
    thread_ = std::thread([this] { loop->io.run(); });
  }

  void drain() {
    asio::post(loop->io, [this] {
      loop->draining = true;
      const auto connections = loop->connections;
      for (const auto& connection : connections) connection->drain();
    });
  }

  void stop() {
    asio::post(loop->io, [this] {
      loop->stopping = true;
      const auto connections = loop->connections;
      for (const auto& connection : connections) connection->close();
      tick_.cancel();
      stopping_ = true;
      guard_.reset();
    });
    if (thread_.joinable()) thread_.join();
    loop->stopped = true;
    loop->io.restart();  // what was posted while the thread ended holds references; running it lets them go
    loop->io.poll();
  }

  const std::shared_ptr<HttpEventLoop> loop;

 private:
  void arm_tick() {
    if (stopping_) return;
    tick_.expires_after(kTick);
    tick_.async_wait([this](const error_code& error) {
      if (error) return;
      const auto connections = loop->connections;
      const int64_t now_ns = clock_.monotonic_ns();
      for (const auto& connection : connections) connection->check_deadline(now_ns);
      arm_tick();
    });
  }

  const Clock& clock_;
  asio::executor_work_guard<asio::io_context::executor_type> guard_;
  asio::steady_timer tick_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

struct HttpServer::Parts {
  explicit Parts(const HttpServerOptions& options, HttpHandler handler, const Clock& clock)
      : shared(std::make_shared<HttpServerShared>()) {
    shared->options = options;
    shared->handler = std::move(handler);
    shared->clock = &clock;
    for (int i = 0; i < std::max(1, options.num_threads); ++i) threads.push_back(std::make_unique<EventThread>(clock));
    acceptor.emplace(threads[0]->loop->io);
    retry.emplace(threads[0]->loop->io);
  }

  Status load_tls() {
    if (!shared->options.tls) return {};
    ASSIGN_OR_RETURN(auto identity, TlsIdentity::load(*shared->options.tls));
    std::atomic_store(&shared->identity, std::move(identity));
    return {};
  }

  Status listen() {
    TRY(load_tls());
    error_code error;
    const std::string host = shared->options.host == "localhost" ? "127.0.0.1" : shared->options.host;
    const auto address = asio::ip::make_address(host, error);
    if (error) return invalid_argument("host: expected an IP address, found \"" + host + "\"");
    const tcp::endpoint endpoint(address, static_cast<uint16_t>(shared->options.port));
    acceptor->open(endpoint.protocol(), error);
    if (!error) acceptor->set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor->bind(endpoint, error);
    if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
    if (error)
      return unavailable("cannot listen on " + host + ":" + std::to_string(shared->options.port) + ": " +
                         error.message());
    port = acceptor->local_endpoint(error).port();
    return {};
  }

  void accept() {
    EventThread& target = *threads[next_thread++ % threads.size()];
    acceptor->async_accept(target.loop->io, [this, &target](const error_code& error, tcp::socket socket) {
      if (!error) take(target, std::move(socket));  // it may have come just before the listener closed
      if (!acceptor->is_open()) return;
      if (error) return wait_for_descriptors();
      accept();
    });
  }

  // Out of file descriptors, mostly: connections end by themselves, so look again soon.
  void wait_for_descriptors() {
    retry->expires_after(std::chrono::milliseconds(50));
    retry->async_wait([this](const error_code& error) {
      if (!error && acceptor->is_open()) accept();
    });
  }

  void take(EventThread& target, tcp::socket socket) {
    ++shared->num_accepted;
    if (shared->num_connections >= shared->options.connections_max) {
      ++shared->num_refused;
      error_code error;
      socket.non_blocking(true, error);
      socket.write_some(asio::buffer(kFull.data(), kFull.size()), error);
      return;
    }
    ++shared->num_connections;
    auto connection = std::make_shared<HttpConnection>(shared, target.loop, std::move(socket));
    asio::post(target.loop->io, [connection] { connection->start(); });
  }

  // Closing the listener resets whoever waits in its queue: they are taken first.
  void stop_listening() {
    asio::post(threads[0]->loop->io, [this] {
      error_code error;
      acceptor->non_blocking(true, error);
      while (!error) {
        EventThread& target = *threads[next_thread++ % threads.size()];
        tcp::socket socket(target.loop->io);
        acceptor->accept(socket, error);
        if (!error) take(target, std::move(socket));
      }
      acceptor->close(error);
      retry->cancel();
      is_listening = false;
    });
  }

  std::shared_ptr<HttpServerShared> shared;
  std::vector<std::unique_ptr<EventThread>> threads;
  std::optional<tcp::acceptor> acceptor;
  std::optional<asio::steady_timer> retry;
  size_t next_thread = 0;
  int port = 0;
  bool is_stopped = false;
  std::atomic<bool> is_listening{true};
};

HttpServer::HttpServer() = default;
HttpServer::~HttpServer() { stop(); }

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpServerOptions& options, HttpHandler handler,
                                                      const Clock& clock) {
  std::unique_ptr<HttpServer> server(new HttpServer);
  server->parts_ = std::make_shared<Parts>(options, std::move(handler), clock);
  if (const Status listening = server->parts_->listen(); !listening.ok()) {
    server->parts_->is_stopped = true;
    return listening;
  }
  server->parts_->accept();
  for (auto& thread : server->parts_->threads) thread->start();
  return server;
}

int HttpServer::port() const { return parts_->port; }

HttpServerCounts HttpServer::counts() const {
  const HttpServerShared& s = *parts_->shared;
  return {s.num_connections,  s.num_accepted, s.num_refused,    s.num_requests,
          s.num_bad_requests, s.num_timeouts, *s.num_body_bytes};
}

Status HttpServer::reload_tls() { return parts_->load_tls(); }

void HttpServer::drain() {
  parts_->stop_listening();
  for (auto& thread : parts_->threads) thread->drain();
}

bool HttpServer::is_drained() const { return !parts_->is_listening && parts_->shared->num_connections == 0; }

void HttpServer::stop() {
  if (!parts_ || parts_->is_stopped) return;
  parts_->is_stopped = true;
  parts_->stop_listening();
  for (auto& thread : parts_->threads) thread->stop();
}

}  // namespace deepinfer
