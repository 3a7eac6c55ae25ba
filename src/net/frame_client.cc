// SPDX-License-Identifier: MIT
#include "net/frame_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <future>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/entropy.h"
#include "net/frame_stream.h"

namespace deepinfer {

namespace asio = boost::asio;
using asio::ip::tcp;

struct FrameLoop::Parts {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard = asio::make_work_guard(io);
  std::thread thread{[this] { io.run(); }};
};

FrameLoop::FrameLoop() : parts_(std::make_unique<Parts>()) {}
FrameLoop::~FrameLoop() {
  parts_->guard.reset();
  parts_->io.stop();
  parts_->thread.join();
}

struct FrameClient::Connection : std::enable_shared_from_this<FrameClient::Connection> {
  struct Pending {
    FrameCall call;
    int64_t waited_ns = 0;
    bool cancelled = false;
  };
  enum class State { kIdle, kConnecting, kReady, kPausing };
  static constexpr int64_t kTimerNs = 50'000'000;

  Connection(asio::io_context& loop, const FrameClientOptions& given)
      : io(loop), options(given), timer(loop), clockwork(loop) {}

  void add(uint64_t id, FrameCall call) {
    if (closed) return call.done({.status = unavailable("the client is closed")});
    if (static_cast<int64_t>(pending.size()) >= options.calls_max)
      return call.done({.status = unavailable(fmt::format("{}:{}: {} calls wait for an answer", options.host,
                                                          options.port, pending.size()))});
    if (state == State::kPausing) return call.done({.status = last_error});
    waiting.push_back(id);
    pending.emplace(id, Pending{.call = std::move(call)});
    if (state == State::kIdle) connect();
    if (state == State::kReady) send_waiting();
    if (!ticking) tick();
  }

  void connect() {
    state = State::kConnecting;
    const uint64_t attempt = ++generation;
    FrameStream::Error error;
    stream = std::make_shared<FrameStream>(tcp::socket(io), tls.get());
    const tcp::endpoint endpoint(asio::ip::make_address(options.host, error), static_cast<uint16_t>(options.port));
    timer.expires_after(std::chrono::nanoseconds(options.connect_timeout_ns));
    timer.async_wait([self = shared_from_this(), attempt](FrameStream::Error e) {
      if (!e && self->generation == attempt && self->state == State::kConnecting) self->fail("no answer in time");
    });
    stream->socket().async_connect(endpoint, [self = shared_from_this(), attempt, s = stream](FrameStream::Error e) {
      if (self->generation != attempt) return;
      if (e) return self->fail(e.message());
      FrameStream::Error ignored;
      s->socket().set_option(tcp::no_delay(true), ignored);
      s->handshake(false, [self, attempt, s](FrameStream::Error failed) {
        if (self->generation != attempt) return;
        if (failed) return self->fail("TLS: " + failed.message());
        self->read(attempt);
      });
    });
  }

  void fail(const std::string& why) {
    ++generation;  // callbacks of this connection are void
    timer.cancel();
    if (stream) stream->close();
    stream.reset();
    out.clear();
    waiting.clear();
    last_error = unavailable(fmt::format("{}:{}: {}", options.host, options.port, why));
    auto failed = std::exchange(pending, {});
    if (closed) state = State::kIdle;
    else pause();
    for (auto& [id, item] : failed) item.call.done({.status = last_error});
  }

  // While it lasts calls fail at once: readers go elsewhere, and a dead server is not hammered.
  void pause() {
    state = State::kPausing;
    retry_ns = std::clamp(retry_ns * 2, options.retry_ns_min, options.retry_ns_max);
    timer.expires_after(std::chrono::nanoseconds(retry_ns));
    timer.async_wait([self = shared_from_this(), attempt = generation](FrameStream::Error e) {
      if (!e && self->generation == attempt) self->state = State::kIdle;
    });
  }

  void read(uint64_t attempt) {
    stream->read(header_bytes.data(), header_bytes.size(),
                 [self = shared_from_this(), attempt, s = stream](FrameStream::Error e, size_t) {
                   if (self->generation != attempt) return;
                   if (e) return self->fail(e.message());
                   auto header = decode_frame_header(self->header_bytes, self->options.limits);
                   if (!header.ok()) return self->fail(header.status().message());
                   self->header = *header;
                   self->head.resize(header->head_bytes);
                   s->read(self->head.data(), self->head.size(), [self, attempt](FrameStream::Error failed, size_t) {
                     if (self->generation != attempt) return;
                     if (failed) return self->fail(failed.message());
                     self->on_head(attempt);
                   });
                 });
  }

  void on_head(uint64_t attempt) {
    if (!frame_head_is_whole(header_bytes, head)) return fail("a damaged frame");
    if (state == State::kConnecting) return greet(attempt);
    const auto at = pending.find(header.id);
    if (at == pending.end()) {
      body = plain_frame_body(header.body_bytes);  // its caller gave up
    } else {
      FrameBody into = std::exchange(at->second.call.into, {});
      body = into.size >= header.body_bytes ? std::move(into) : plain_frame_body(header.body_bytes);
    }
    if (header.body_bytes == 0) return on_frame(attempt);
    stream->read(body.data, header.body_bytes,
                 [self = shared_from_this(), attempt, keep = body.owner](FrameStream::Error e, size_t) {
                   if (self->generation != attempt) return;
                   if (e) return self->fail(e.message());
                   self->on_frame(attempt);
                 });
  }

  void greet(uint64_t attempt) {
    const std::string& secret = options.security.secret;
    if (header.type == kHelloFrame && head.size() == kNonceBytes && header.body_bytes == 0) {
      their_nonce = head;
      own_nonce.clear();
      while (own_nonce.size() < kNonceBytes) {
        const uint64_t bits = entropy_u64();
        own_nonce.append(reinterpret_cast<const char*>(&bits), sizeof bits);
      }
      write({kProofFrame, 0, own_nonce + frame_proof(secret, "client", their_nonce, own_nonce), {}});
      return read(attempt);
    }
    if (header.type != kWelcomeFrame || header.body_bytes != 0 ||
        !same_proof(head, frame_proof(secret, "server", own_nonce, their_nonce)))
      return fail("the server does not know the shared secret");
    timer.cancel();
    state = State::kReady;
    retry_ns = 0;
    send_waiting();
    read(attempt);
  }

  void on_frame(uint64_t attempt) {
    const auto at = pending.find(header.id);
    if (at != pending.end()) {
      Pending item = std::move(at->second);
      pending.erase(at);
      item.call.done({.head = std::move(head),
                      .body = item.cancelled ? FrameBody{} : std::exchange(body, {}),
                      .body_bytes = item.cancelled ? 0 : header.body_bytes});
    }
    body = {};
    if (generation == attempt) read(attempt);
  }

  void send_waiting() {
    for (; !waiting.empty(); waiting.pop_front()) {
      const auto at = pending.find(waiting.front());
      if (at == pending.end()) continue;
      FrameCall& call = at->second.call;
      write({call.type, at->first, std::move(call.head), std::exchange(call.body, {})});
    }
  }
  void write(OutgoingFrame frame) {
    out.push_back(std::make_shared<OutgoingFrame>(std::move(frame)));
    if (out.size() == 1) write_next();
  }
  void write_next() {
    stream->write(out.front()->pieces(), [self = shared_from_this(), attempt = generation, s = stream,
                                          frame = out.front()](FrameStream::Error e, size_t) {
      if (self->generation != attempt) return;
      if (e) return self->fail(e.message());
      self->out.pop_front();
      if (!self->out.empty()) self->write_next();
    });
  }

  void cancel(uint64_t id) {
    const auto at = pending.find(id);
    if (at == pending.end()) return;
    at->second.cancelled = true;
    at->second.call.into = {};
  }

  // Calls that nobody answered in time.
  void tick() {
    ticking = true;
    clockwork.expires_after(std::chrono::nanoseconds(kTimerNs));
    clockwork.async_wait([self = shared_from_this()](FrameStream::Error e) {
      self->ticking = false;
      if (e || self->closed) return;
      std::vector<Pending> late;
      for (auto at = self->pending.begin(); at != self->pending.end();) {
        at->second.waited_ns += kTimerNs;
        if (at->second.waited_ns < at->second.call.timeout_ns) {
          ++at;
          continue;
        }
        late.push_back(std::move(at->second));
        at = self->pending.erase(at);
      }
      for (Pending& item : late)
        item.call.done({.status = unavailable(fmt::format("{}:{}: no answer in {} ms", self->options.host,
                                                          self->options.port, item.call.timeout_ns / 1'000'000))});
      if (!self->pending.empty() && !self->ticking) self->tick();
    });
  }

  asio::io_context& io;
  const FrameClientOptions options;
  std::unique_ptr<asio::ssl::context> tls;
  std::atomic<uint64_t> next_id{1};
  // What follows belongs to the event thread.
  asio::steady_timer timer, clockwork;
  std::shared_ptr<FrameStream> stream;
  State state = State::kIdle;
  bool closed = false, ticking = false;
  uint64_t generation = 0;
  int64_t retry_ns = 0;
  Status last_error = unavailable("not connected");
  std::deque<uint64_t> waiting;
  std::unordered_map<uint64_t, Pending> pending;
  std::deque<std::shared_ptr<OutgoingFrame>> out;
  std::array<uint8_t, kFrameHeaderBytes> header_bytes{};
  FrameHeader header;
  std::string head, own_nonce, their_nonce;
  FrameBody body;
};

FrameClient::FrameClient() = default;

Result<std::unique_ptr<FrameClient>> FrameClient::make(FrameLoop& loop, const FrameClientOptions& options) {
  FrameStream::Error error;
  FrameClientOptions own = options;
  if (own.host == "localhost") own.host = "127.0.0.1";
  (void)asio::ip::make_address(own.host, error);
  if (error) return invalid_argument(fmt::format("{}: expected an IP address", options.host));
  std::unique_ptr<FrameClient> client(new FrameClient);
  client->connection_ = std::make_shared<Connection>(loop.parts().io, own);
  if (options.security.has_tls()) { ASSIGN_OR_RETURN(client->connection_->tls, make_tls_context(options.security)); }
  return client;
}

FrameClient::~FrameClient() {
  if (!connection_) return;
  const auto ended = std::make_shared<std::promise<void>>();  // the loop may still be leaving it when we go on
  asio::post(connection_->io, [c = connection_, ended] {
    c->closed = true;
    c->clockwork.cancel();
    c->fail("the client is closed");
    ended->set_value();
  });
  ended->get_future().wait();
}

uint64_t FrameClient::send(FrameCall call) {
  const uint64_t id = connection_->next_id++;
  asio::post(connection_->io, [c = connection_, id, call = std::move(call)]() mutable { c->add(id, std::move(call)); });
  return id;
}

void FrameClient::cancel(uint64_t call) {
  asio::post(connection_->io, [c = connection_, call] { c->cancel(call); });
}

}  // namespace deepinfer
