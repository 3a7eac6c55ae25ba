// SPDX-License-Identifier: MIT
#include "net/http_connection.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <ctime>
#include <utility>

#include "base/check.h"

namespace deepinfer {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr size_t kKeptBytes = 4 << 10;           // capacity that an idle connection may keep
constexpr size_t kPipelinedBytesMax = 64 << 10;  // read ahead while a request is being answered
constexpr int64_t kLingerNs = 2'000'000'000;

class Exchange final : public HttpExchange {
 public:
  Exchange(std::shared_ptr<HttpConnection> connection, uint64_t number)
      : connection_(std::move(connection)), number_(number) {}
  ~Exchange() override {
    connection_->post([connection = connection_, number = number_] { connection->abandon(number); });
  }
  void post(std::function<void()> work) override { connection_->post(std::move(work)); }
  bool is_open() const override { return connection_->answers(number_); }
  void respond(HttpResponse response) override { connection_->respond(number_, std::move(response)); }
  void start_stream(HttpResponse head) override { connection_->start_stream(number_, head); }
  void write(std::string_view bytes) override { connection_->write(number_, bytes); }
  void end_stream() override { connection_->end_stream(number_); }
  size_t queued_bytes() const override { return connection_->queued_bytes(); }
  void on_drained(std::function<void()> resume) override { connection_->on_drained(number_, std::move(resume)); }
  void on_close(std::function<void()> closed) override { connection_->on_close(number_, std::move(closed)); }
  void run_after(int64_t delay_ns, std::function<void()> work) override {
    connection_->run_after(number_, delay_ns, std::move(work));
  }

 private:
  std::shared_ptr<HttpConnection> connection_;
  uint64_t number_;
};

std::string http_date(int64_t unix_ns) {
  const std::time_t seconds = static_cast<std::time_t>(unix_ns / 1'000'000'000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  return {text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc)};
}

std::string peer_name(const asio::ip::tcp::socket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  return error ? "unknown" : fmt::format("{}:{}", endpoint.address().to_string(error), endpoint.port());
}

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<HttpServerShared> shared, std::shared_ptr<HttpEventLoop> loop,
                               asio::ip::tcp::socket socket)
    : shared_(std::move(shared)),
      loop_(std::move(loop)),
      socket_(std::move(socket)),
      peer_(peer_name(socket_)),
      identity_(std::atomic_load(&shared_->identity)),
      tls_(identity_ ? std::make_unique<TlsSession>(*identity_) : nullptr),
      parser_(shared_->options.limits) {}

HttpConnection::~HttpConnection() {
  if (!closed_) --shared_->num_connections;
}

void HttpConnection::start() {
  error_code error;
  socket_.set_option(asio::ip::tcp::no_delay(true), error);
  socket_.non_blocking(true, error);
  loop_->connections.insert(shared_from_this());
  if (loop_->stopping) return close();
  set_deadline(tls_ ? shared_->options.head_timeout_ns : shared_->options.idle_timeout_ns);
  if (loop_->draining) drain();
  read();
}

void HttpConnection::set_deadline(int64_t delay_ns) {
  read_deadline_ns_ = delay_ns > 0 ? shared_->clock->monotonic_ns() + delay_ns : 0;
}

void HttpConnection::check_deadline(int64_t now_ns) {
  const bool read_late = read_deadline_ns_ > 0 && now_ns > read_deadline_ns_;
  const bool write_late = write_deadline_ns_ > 0 && now_ns > write_deadline_ns_;
  if (closed_ || (!read_late && !write_late)) return;
  ++shared_->num_timeouts;
  if (write_late || lingering_ || !parser_.has_begun()) return close();
  refuse(408, "the request did not arrive in time");
}

void HttpConnection::read() {
  if (reading_ || closed_) return;
  if (answering_ != 0 && parser_.num_pending_bytes() > kPipelinedBytesMax) return;
  reading_ = true;
  // Waits without a buffer of its own: most connections are idle most of the time.
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](const error_code& error) { self->on_readable(error); });
}

void HttpConnection::on_readable(const error_code& waited) {
  reading_ = false;
  if (closed_) return;
  if (waited) return close();
  error_code error;
  std::vector<char>& buffer = loop_->read_buffer;
  const size_t num_bytes = socket_.read_some(asio::buffer(buffer), error);
  if (error == asio::error::would_block) return read();
  // A client that ends its side is taken to be gone: nobody reads an answer to a half-closed request.
  if (error) return close();
  on_read({buffer.data(), num_bytes});
}

void HttpConnection::on_read(std::string_view bytes) {
  if (!lingering_) {
    std::string plain;
    if (tls_) {
      if (!open_sealed(bytes, plain)) return;
      bytes = plain;
    }
    if (!parser_.has_begun()) request_begin_ns_ = shared_->clock->monotonic_ns();
    parser_.push(bytes);
    if (answering_ == 0) advance();
  }
  if (!closed_) read();
}

// False: the connection is over.
bool HttpConnection::open_sealed(std::string_view bytes, std::string& plain) {
  const bool was_established = tls_->is_established();
  const Status opened = tls_->open(bytes, plain);
  if (!opened.ok()) {
    ++shared_->num_bad_requests;
    std::string last = tls_->take_sealed();  // an alert
    if (tls_->speaks_plain_http())
      last =
          "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 38\r\nConnection: close\r\n\r\n"
          "this port speaks TLS: use https://...\n";
    error_code error;
    socket_.non_blocking(true, error);
    socket_.write_some(asio::buffer(last), error);
    close();
    return false;
  }
  if (tls_->is_ended_by_peer()) {
    close();
    return false;
  }
  if (!was_established && tls_->is_established()) update_read_deadline();
  flush();
  return !closed_;
}

void HttpConnection::update_read_deadline() {
  const HttpServerOptions& options = shared_->options;
  if (!parser_.has_begun()) return set_deadline(draining_ ? kLingerNs : options.idle_timeout_ns);
  if (!parser_.has_head()) {
    read_deadline_ns_ = request_begin_ns_ + options.head_timeout_ns;
    return;
  }
  set_deadline(options.body_stall_ns);
  read_deadline_ns_ = std::min(read_deadline_ns_, request_begin_ns_ + options.body_timeout_ns);
}

void HttpConnection::advance() {
  if (closed_ || lingering_ || close_after_write_ || answering_ != 0) return;
  if (parser_.fault()) return refuse(parser_.fault()->status, parser_.fault()->message);
  if (!admit_body()) return;
  if (parser_.is_done()) {
    HttpRequest request = parser_.take();
    request.charge = std::move(charge_);
    is_admitted_ = false;
    return dispatch(std::move(request));
  }
  if (parser_.expects_continue() && !sent_continue_) {
    sent_continue_ = true;
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  }
  update_read_deadline();
}

// Before a large body is taken: whether its sender may, and whether there is room. False: it was refused.
bool HttpConnection::admit_body() {
  if (!parser_.has_head()) return true;
  const size_t num_bytes = parser_.num_body_bytes();
  const HttpServerOptions& options = shared_->options;
  if (!is_admitted_ && options.gate && num_bytes > options.gated_body_bytes) {
    HttpRequest head = parser_.head();
    head.peer = peer_;
    if (std::optional<HttpResponse> refusal = options.gate(head)) {
      refuse(std::move(*refusal));
      return false;
    }
    is_admitted_ = true;
  }
  if (charge_.raise_to(shared_->num_body_bytes, static_cast<int64_t>(num_bytes), options.all_body_bytes_max))
    return true;
  refuse(HttpResponse{503,
                      {{"Content-Type", "text/plain; charset=utf-8"}, {"Retry-After", "1"}},
                      "the bodies of other requests take all the memory there is for bodies; try again later\n"});
  return false;
}

// The connection cannot go on: says why and ends it.
void HttpConnection::refuse(int status, const std::string& message) {
  refuse(HttpResponse{status, {{"Content-Type", "text/plain; charset=utf-8"}}, message + "\n"});
}

void HttpConnection::refuse(HttpResponse response) {
  ++shared_->num_bad_requests;
  charge_.release();
  keep_alive_ = false;
  omits_body_ = false;
  append_head(response, static_cast<int64_t>(response.body.size()));
  out_ += response.body;
  close_after_write_ = true;
  set_deadline(kLingerNs);
  flush();
}

void HttpConnection::dispatch(HttpRequest request) {
  answering_ = ++num_requests_;
  sent_continue_ = false;
  ++shared_->num_requests;
  keep_alive_ = request.keep_alive && !draining_;
  omits_body_ = request.method == "HEAD";
  chunked_ = !request.is_http_1_0;
  streaming_ = false;
  read_deadline_ns_ = 0;
  request.peer = peer_;
  shared_->handler(std::move(request), std::make_shared<Exchange>(shared_from_this(), answering_));
}

void HttpConnection::append_head(const HttpResponse& response, int64_t content_length) {
  out_ += fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", response.status, reason_phrase(response.status),
                      http_date(shared_->clock->unix_ns()));
  for (const auto& [name, value] : response.fields) {
    DCHECK(value.find_first_of("\r\n") == std::string::npos);
    out_ += name + ": " + value + "\r\n";
  }
  if (content_length >= 0) out_ += fmt::format("Content-Length: {}\r\n", content_length);
  else if (chunked_) out_ += "Transfer-Encoding: chunked\r\n";
  out_ += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
}

void HttpConnection::respond(uint64_t number, HttpResponse response) {
  if (!answers(number) || streaming_) return;
  if (draining_) keep_alive_ = false;
  append_head(response, static_cast<int64_t>(response.body.size()));
  if (!omits_body_) out_ += response.body;
  finish_answer();
}

void HttpConnection::start_stream(uint64_t number, const HttpResponse& head) {
  if (!answers(number) || streaming_) return;
  streaming_ = true;
  if (!chunked_ || draining_) keep_alive_ = false;
  append_head(head, -1);
  flush();
}

void HttpConnection::write(uint64_t number, std::string_view bytes) {
  if (!answers(number) || !streaming_ || omits_body_ || bytes.empty()) return;
  if (queued_bytes() + bytes.size() > shared_->options.queued_bytes_max) return close();
  if (chunked_) out_ += fmt::format("{:x}\r\n", bytes.size());
  out_ += bytes;
  if (chunked_) out_ += "\r\n";
  flush();
}

void HttpConnection::end_stream(uint64_t number) {
  if (!answers(number) || !streaming_) return;
  if (chunked_ && !omits_body_) out_ += "0\r\n\r\n";
  finish_answer();
}

void HttpConnection::abandon(uint64_t number) {
  if (!answers(number)) return;
  if (streaming_) return close();  // the client sees that the answer is cut off
  respond(number, {500, {{"Content-Type", "text/plain; charset=utf-8"}}, "the request was not answered\n"});
}

void HttpConnection::finish_answer() {
  answering_ = 0;
  resume_ = nullptr;
  on_close_ = nullptr;
  timers_.clear();
  if (!keep_alive_ || draining_) close_after_write_ = true;
  request_begin_ns_ = shared_->clock->monotonic_ns();
  update_read_deadline();
  flush();
  // Not from inside the answer's call: a pipelined request would nest in it.
  if (!close_after_write_) post([self = shared_from_this()] { self->advance(), self->read(); });
}

// Sends what the socket takes at once; waits only for what it does not take.
void HttpConnection::flush() {
  if (writing_ || closed_) return;
  for (;;) {
    if (num_sent_ == in_flight_.size()) {
      if (!refill()) return;
      continue;
    }
    error_code error;
    num_sent_ += socket_.write_some(asio::buffer(in_flight_.data() + num_sent_, in_flight_.size() - num_sent_), error);
    if (!error) {
      write_deadline_ns_ = 0;
      continue;
    }
    if (error != asio::error::would_block) return close();
    break;
  }
  writing_ = true;
  if (write_deadline_ns_ == 0) write_deadline_ns_ = shared_->clock->monotonic_ns() + shared_->options.write_stall_ns;
  socket_.async_wait(asio::ip::tcp::socket::wait_write,
                     [self = shared_from_this()](const error_code& waited) { self->on_writable(waited); });
}

// Takes what waits to be sent. False: there is nothing; what was to follow then has been done.
bool HttpConnection::refill() {
  in_flight_.clear();
  num_sent_ = 0;
  if (tls_) {
    if (!out_.empty() && !tls_->seal(out_).ok()) return close(), false;
    out_.clear();
    in_flight_ = tls_->take_sealed();
  } else {
    in_flight_.swap(out_);
  }
  if (!in_flight_.empty()) return true;
  write_deadline_ns_ = 0;
  if (close_after_write_ && tls_ && !std::exchange(sealed_end_, true)) {
    tls_->end();
    in_flight_ = tls_->take_sealed();
    if (!in_flight_.empty()) return true;
  }
  if (close_after_write_) return linger(), false;
  if (in_flight_.capacity() > kKeptBytes && answering_ == 0) in_flight_ = std::string();
  if (out_.capacity() > kKeptBytes && answering_ == 0) out_ = std::string();
  if (resume_) std::exchange(resume_, nullptr)();
  return false;
}

void HttpConnection::on_writable(const error_code& error) {
  writing_ = false;
  if (closed_) return;
  if (error) return close();
  write_deadline_ns_ = 0;
  flush();
}

// Closing with unread bytes would send a reset that can overtake the answer: end our side, read the client's rest.
void HttpConnection::linger() {
  if (lingering_) return;
  lingering_ = true;
  error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  if (error) return close();
  set_deadline(kLingerNs);
  read();
}

// What has come is answered, a new connection may still say what it came for, and one that rests between requests ends.
void HttpConnection::drain() {
  draining_ = true;
  if (closed_ || answering_ != 0 || close_after_write_ || lingering_ || parser_.has_begun()) return;
  error_code error;
  if (socket_.available(error) > 0 && !error) return;  // closing over unread bytes would reset the connection
  if (num_requests_ > 0) return close();
  set_deadline(kLingerNs);
}

void HttpConnection::close() {
  if (closed_) return;
  closed_ = true;
  --shared_->num_connections;
  const bool was_answering = answering_ != 0;
  answering_ = 0;
  error_code error;
  socket_.close(error);
  timers_.clear();
  resume_ = nullptr;
  auto on_close = std::exchange(on_close_, nullptr);
  if (was_answering && on_close) on_close();
  loop_->connections.erase(shared_from_this());
}

void HttpConnection::post(std::function<void()> work) {
  if (!loop_->stopped) loop_->post(std::move(work));
}

// A step of the engine brings work to many connections at once: it wakes their thread once.
void HttpEventLoop::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex);
    posted.push_back(std::move(work));
    if (posted.size() > 1) return;  // it is on its way already
  }
  asio::post(io, [this] { run_posted(); });
}

void HttpEventLoop::run_posted() {
  std::vector<std::function<void()>> works;
  {
    const std::lock_guard lock(mutex);
    works.swap(posted);
  }
  for (std::function<void()>& work : works) work();
}

void HttpConnection::on_drained(uint64_t number, std::function<void()> resume) {
  if (!answers(number)) return;
  resume_ = std::move(resume);
  if (queued_bytes() == 0) post([self = shared_from_this()] { self->flush(); });
}

void HttpConnection::on_close(uint64_t number, std::function<void()> closed) {
  if (answers(number)) on_close_ = std::move(closed);
  else post(std::move(closed));
}

void HttpConnection::run_after(uint64_t number, int64_t delay_ns, std::function<void()> work) {
  if (!answers(number)) return;
  const auto timer = timers_.emplace(timers_.end(), loop_->io);
  timer->expires_after(std::chrono::nanoseconds(delay_ns));
  timer->async_wait([self = shared_from_this(), number, timer, work = std::move(work)](const error_code& error) {
    if (error || !self->answers(number)) return;  // `timer` is gone
    self->timers_.erase(timer);
    work();
  });
}

}  // namespace deepinfer
