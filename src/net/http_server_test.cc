// SPDX-License-Identifier: MIT
#include "net/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "net/http_client.h"

namespace deepinfer {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

// Bytes as they come; HttpClient passes over interim responses.
class BareConnection {
 public:
  explicit BareConnection(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{5, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }
  BareConnection(const BareConnection&) = delete;
  ~BareConnection() { ::close(fd_); }

  void send(std::string_view bytes) {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // What came up to `text`; all there was when the peer closes or is silent.
  std::string receive_until(std::string_view text) {
    std::string out;
    char byte = 0;
    while (!out.ends_with(text) && ::recv(fd_, &byte, 1, 0) == 1) out.push_back(byte);
    return out;
  }

 private:
  int fd_;
};

// A server whose handler is a map of small behaviours, and what happened to its exchanges.
class HttpServerTest : public testing::Test {
 protected:
  void start(HttpServerOptions options = {}) {
    auto started = HttpServer::start(
        options, [this](HttpRequest request, std::shared_ptr<HttpExchange> exchange) { handle(request, exchange); },
        clock_);
    ASSERT_TRUE(started.ok()) << started.status().message();
    server_ = std::move(started).value();
  }
  void TearDown() override {
    const std::lock_guard lock(mutex_);
    held_.clear();
  }

  HttpClient client(int64_t timeout_ms = 5000) {
    return HttpClient::connect("127.0.0.1", server_->port(), timeout_ms).value();
  }

  void handle(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
    if (request.path == "/echo") {
      exchange->respond({200, {}, request.method + " " + request.body});
    } else if (request.path == "/stream") {
      exchange->start_stream({200, {{"Content-Type", "text/event-stream"}}, ""});
      exchange->write("one,");
      exchange->run_after(5 * kMillisecond, [exchange] { exchange->write("two,"), exchange->end_stream(); });
    } else if (request.path == "/hold") {
      exchange->start_stream({200, {}, ""});
      exchange->write("held,");
      exchange->on_close([this] { note_close(); });
      const std::lock_guard lock(mutex_);
      held_.push_back(exchange);
      changed_.notify_all();
    } else if (request.path == "/block") {  // keeps its event thread
      std::unique_lock lock(mutex_);
      is_blocked_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !is_blocked_; });
      exchange->respond({200, {}, "unblocked"});
    } else if (request.path == "/flood") {
      flood(exchange);
    }  // anything else is dropped
  }

  // Writes until the queue is over 256 KiB, then waits for the client, 64 MiB in all.
  void flood(const std::shared_ptr<HttpExchange>& exchange) {
    exchange->start_stream({200, {}, ""});
    auto written = std::make_shared<size_t>(0);
    const std::string piece(16 << 10, 'x');
    auto write = std::make_shared<std::function<void()>>();
    *write = [this, exchange, written, piece, weak = std::weak_ptr(write)] {
      while (exchange->queued_bytes() < (256 << 10) && *written < (size_t{64} << 20)) {
        exchange->write(piece);
        *written += piece.size();
        queued_max_ = std::max(queued_max_.load(), exchange->queued_bytes());
      }
      if (*written >= (size_t{64} << 20)) return exchange->end_stream();
      exchange->on_drained([again = weak.lock()] { (*again)(); });
    };
    (*write)();
  }

  void note_close() {
    const std::lock_guard lock(mutex_);
    ++num_closed_;
    changed_.notify_all();
  }
  template <typename Condition>
  bool wait_until(const Condition& condition) {
    std::unique_lock lock(mutex_);
    for (int i = 0; i < 500; ++i)  // the server's counts change without a word
      if (changed_.wait_for(lock, std::chrono::milliseconds(10), condition)) return true;
    return false;
  }
  bool wait_drained() {
    for (int i = 0; i < 500 && !server_->is_drained(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return server_->is_drained();
  }

  SystemClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<HttpExchange>> held_;
  int num_closed_ = 0;
  bool is_blocked_ = false;
  std::atomic<size_t> queued_max_{0};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersSeveralRequestsOnOneConnection) {
  start();
  HttpClient c = client();
  for (int i = 0; i < 3; ++i) {
    const auto response = c.request("POST", "/echo", "hello");
    ASSERT_TRUE(response.ok());
    EXPECT_EQ(response.value().status, 200);
    EXPECT_EQ(response.value().body, "POST hello");
    EXPECT_FALSE(response.value().field("Date").empty());
  }
  EXPECT_EQ(server_->counts().num_accepted, 1);
  EXPECT_EQ(server_->counts().num_requests, 3);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  HttpClient c = client();
  std::string bytes;
  for (int i = 0; i < 50; ++i) {
    if (i % 5 == 0) bytes += "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n";
    else bytes += "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n" + std::to_string(10 + i);
  }
  ASSERT_TRUE(c.send(bytes).ok());
  for (int i = 0; i < 50; ++i) {
    const auto response = c.receive();
    ASSERT_TRUE(response.ok()) << i << response.status().message();
    EXPECT_EQ(response.value().body, i % 5 == 0 ? "one,two," : "POST " + std::to_string(10 + i));
  }
}

TEST_F(HttpServerTest, StreamsToHttp10ByClosing) {
  start();
  HttpClient c = client();
  ASSERT_TRUE(c.send("GET /stream HTTP/1.0\r\n\r\n").ok());
  const auto response = c.receive();
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response.value().body, "one,two,");
  EXPECT_TRUE(response.value().field("Transfer-Encoding").empty());
}

TEST_F(HttpServerTest, SaysContinueToThoseWhoAsk) {
  start();
  BareConnection c(server_->port());
  c.send("POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(c.receive_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n") << "before a byte of the body came";
  c.send("body");
  EXPECT_TRUE(c.receive_until("POST body").starts_with("HTTP/1.1 200 OK\r\n"));
}

TEST_F(HttpServerTest, MalformedRequestsAreRefusedAndTheConnectionEnds) {
  start();
  HttpClient c = client();
  ASSERT_TRUE(c.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcNONSENSE\r\n\r\n").ok());
  EXPECT_EQ(c.receive().value().status, 200);
  EXPECT_EQ(c.receive().value().status, 400);
  EXPECT_TRUE(c.is_closed_by_peer());
}

TEST_F(HttpServerTest, DroppedExchangesAnswer500) {
  start();
  HttpClient c = client();
  EXPECT_EQ(c.request("GET", "/unknown").value().status, 500);
  EXPECT_EQ(c.request("GET", "/echo").value().status, 200);
}

TEST_F(HttpServerTest, ADisconnectIsToldAtOnce) {
  start();
  for (int i = 0; i < 20; ++i) {
    HttpClient c = client();
    ASSERT_TRUE(c.send("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n").ok());
    ASSERT_TRUE(c.receive_until("held,").ok());
    c.close();
    ASSERT_TRUE(wait_until([&] { return num_closed_ == i + 1; }));
  }
  server_->drain();
  const std::lock_guard lock(mutex_);
  for (const auto& exchange : held_) EXPECT_FALSE(exchange->is_open());
}

TEST_F(HttpServerTest, ASlowReaderIsBoundedAndSlowsNobodyElse) {
  start();
  HttpClient slow = client();
  ASSERT_TRUE(slow.send("GET /flood HTTP/1.1\r\nHost: h\r\n\r\n").ok());
  HttpClient other = client();
  for (int i = 0; i < 100; ++i) ASSERT_EQ(other.request("GET", "/echo").value().status, 200);
  EXPECT_LE(queued_max_, size_t{300} << 10);
  EXPECT_EQ(slow.receive().value().body.size(), size_t{64} << 20);
}

TEST_F(HttpServerTest, SlowRequestsAndSilentReadersTimeOut) {
  HttpServerOptions options;
  options.head_timeout_ns = 100 * kMillisecond;
  options.body_stall_ns = 100 * kMillisecond;
  options.idle_timeout_ns = 100 * kMillisecond;
  options.write_stall_ns = 300 * kMillisecond;
  start(options);
  HttpClient head = client(), body = client(), idle = client(), silent = client();
  ASSERT_TRUE(head.send("GET /echo HTT").ok());
  ASSERT_TRUE(body.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc").ok());
  ASSERT_TRUE(silent.send("GET /flood HTTP/1.1\r\nHost: h\r\n\r\n").ok());
  EXPECT_EQ(head.receive().value().status, 408);
  EXPECT_EQ(body.receive().value().status, 408);
  EXPECT_TRUE(idle.is_closed_by_peer());
  for (int i = 0; i < 300 && server_->counts().num_timeouts < 4; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(server_->counts().num_timeouts, 4);
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreRefused) {
  HttpServerOptions options;
  options.connections_max = 2;
  start(options);
  HttpClient a = client(), b = client();
  ASSERT_TRUE(a.request("GET", "/echo").ok());
  ASSERT_TRUE(b.request("GET", "/echo").ok());
  HttpClient c = client();
  EXPECT_EQ(c.receive().value().status, 503);
  a.close();
  for (int i = 0; i < 300 && server_->counts().num_connections > 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(client().request("GET", "/echo").value().status, 200);
}

TEST_F(HttpServerTest, DrainFinishesWhatRunsAndTakesNothingNew) {
  HttpServerOptions options;
  options.num_threads = 2;
  start(options);
  HttpClient idle = client(), running = client();
  ASSERT_TRUE(idle.request("GET", "/echo").ok());
  ASSERT_TRUE(running.send("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n").ok());
  ASSERT_TRUE(running.receive_until("held,").ok());
  server_->drain();
  EXPECT_TRUE(idle.is_closed_by_peer());
  EXPECT_FALSE(server_->is_drained());
  {
    const std::lock_guard lock(mutex_);
    const auto exchange = held_.at(0);
    exchange->post([exchange] { exchange->write("end"), exchange->end_stream(); });
  }
  EXPECT_EQ(running.receive().value().body, "held,end");
  running.close();
  EXPECT_TRUE(wait_drained());
  EXPECT_FALSE(HttpClient::connect("127.0.0.1", server_->port(), 500).ok());
}

TEST_F(HttpServerTest, DrainAnswersWhatHadBegunToArrive) {
  start();
  HttpClient half = client();
  ASSERT_TRUE(half.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe").ok());
  ASSERT_TRUE(wait_until([&] { return server_->counts().num_body_bytes == 5; }));
  server_->drain();
  EXPECT_FALSE(server_->is_drained());
  ASSERT_TRUE(half.send("llo").ok());
  const auto response = half.receive();
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response.value().body, "POST hello");
  EXPECT_EQ(response.value().field("Connection"), "close");
  half.close();
  EXPECT_TRUE(wait_drained());
}

// Clients that wait in the listener's queue, and one whose request lies unread, while the only event thread is busy.
TEST_F(HttpServerTest, DrainResetsNobodyWhoHadSentARequest) {
  start();
  HttpClient known = client(), busy = client();
  ASSERT_TRUE(known.request("GET", "/echo").ok());
  ASSERT_TRUE(busy.send("GET /block HTTP/1.1\r\nHost: h\r\n\r\n").ok());
  ASSERT_TRUE(wait_until([&] { return is_blocked_; }));
  std::vector<HttpClient> waiting;
  for (int i = 0; i < 5; ++i) waiting.push_back(client());
  for (HttpClient& c : waiting) ASSERT_TRUE(c.send("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n").ok());
  ASSERT_TRUE(known.send("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n").ok());
  server_->drain();
  EXPECT_FALSE(server_->is_drained());
  {
    const std::lock_guard lock(mutex_);
    is_blocked_ = false;
    changed_.notify_all();
  }
  EXPECT_EQ(busy.receive().value().body, "unblocked");
  EXPECT_EQ(known.receive().value().status, 200);
  for (HttpClient& c : waiting) EXPECT_EQ(c.receive().value().status, 200);
  waiting.clear();
  known.close();
  busy.close();
  EXPECT_TRUE(wait_drained());
}

TEST_F(HttpServerTest, AddressesThatCannotBeBoundAreErrors) {
  HttpServerOptions options;
  options.host = "not an address";
  const HttpHandler handler = [](HttpRequest, const std::shared_ptr<HttpExchange>&) {};
  EXPECT_EQ(HttpServer::start(options, handler, clock_).status().code(), StatusCode::kInvalidArgument);
  start();
  options.host = "127.0.0.1";
  options.port = server_->port();
  EXPECT_EQ(HttpServer::start(options, handler, clock_).status().code(), StatusCode::kUnavailable);
}

TEST_F(HttpServerTest, AllBodiesTogetherAreBounded) {
  HttpServerOptions options;
  options.all_body_bytes_max = 100'000;
  start(options);
  HttpClient holder = client(), other = client();
  ASSERT_TRUE(holder.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 90000\r\n\r\nabc").ok());
  ASSERT_TRUE(wait_until([&] { return server_->counts().num_body_bytes == 90'000; }));
  const HttpResponse refused = other.request("POST", "/echo", std::string(20'000, 'x')).value();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.field("Retry-After"), "1");
  EXPECT_EQ(client().request("POST", "/echo", std::string(9'000, 'x')).value().status, 200);
  // Chunks announce nothing: they count as they come.
  HttpClient chunked = client();
  ASSERT_TRUE(chunked.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n").ok());
  ASSERT_TRUE(chunked.send("8000\r\n" + std::string(0x8000, 'x') + "\r\n").ok());
  EXPECT_EQ(chunked.receive().value().status, 503);
  holder.close();
  ASSERT_TRUE(wait_until([&] { return server_->counts().num_body_bytes == 0; }));
  EXPECT_EQ(client().request("POST", "/echo", std::string(90'000, 'x')).value().status, 200);
}

TEST_F(HttpServerTest, TheGateRefusesLargeBodiesBeforeTheyCome) {
  HttpServerOptions options;
  options.gated_body_bytes = 1000;
  options.gate = [](const HttpRequest& head) -> std::optional<HttpResponse> {
    if (head.field("x-pass") == "yes") return {};
    return HttpResponse{401, {}, "no\n"};
  };
  start(options);
  HttpClient stranger = client();
  ASSERT_TRUE(stranger.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 50000000\r\n\r\n").ok());
  EXPECT_EQ(stranger.receive().value().status, 401);
  EXPECT_TRUE(stranger.is_closed_by_peer());
  EXPECT_EQ(client().request("POST", "/echo", std::string(900, 'x')).value().status, 200);
  EXPECT_EQ(client().request("POST", "/echo", std::string(9000, 'x'), "x-pass: yes\r\n").value().status, 200);
}

}  // namespace
}  // namespace deepinfer
