// SPDX-License-Identifier: MIT
// One client's connection: reads requests, hands them out one at a time, writes answers. Includes Boost: for net's own
// .cc files only. Thread: its event thread, except post().
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "net/http_server.h"

namespace deepinfer {

class HttpConnection;

// What all connections of a server share.
struct HttpServerShared {
  HttpServerOptions options;
  HttpHandler handler;
  const Clock* clock = nullptr;
  std::atomic<int64_t> num_connections{0}, num_accepted{0}, num_refused{0};
  std::atomic<int64_t> num_requests{0}, num_bad_requests{0}, num_timeouts{0};
  std::shared_ptr<std::atomic<int64_t>> num_body_bytes = std::make_shared<std::atomic<int64_t>>(0);  // outlives us
  std::shared_ptr<const TlsIdentity> identity;  // with the atomic functions; null: no TLS
};

// An event thread's own state.
struct HttpEventLoop {
  boost::asio::io_context io{1};
  std::atomic<bool> stopped{false};
  bool draining = false, stopping = false;
  std::unordered_set<std::shared_ptr<HttpConnection>> connections;
  // Any thread. What is posted runs in order, on the loop's thread.
  void post(std::function<void()> work);
  void run_posted();
  std::mutex mutex;
  std::vector<std::function<void()>> posted;                            // guarded by mutex
  std::vector<char> read_buffer = std::vector<char>(size_t{64} << 10);  // of the connection that reads just now
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpServerShared> shared, std::shared_ptr<HttpEventLoop> loop,
                 boost::asio::ip::tcp::socket socket);
  ~HttpConnection();

  void start();
  void drain();  // no request beyond those that have begun to arrive
  void close();  // at once
  void check_deadline(int64_t now_ns);

  // For the exchange `number`; no-ops when it is not the one being answered.
  void post(std::function<void()> work);
  bool answers(uint64_t number) const { return number == answering_ && !closed_; }
  void respond(uint64_t number, HttpResponse response);
  void start_stream(uint64_t number, const HttpResponse& head);
  void write(uint64_t number, std::string_view bytes);
  void end_stream(uint64_t number);
  void abandon(uint64_t number);  // the exchange was dropped
  size_t queued_bytes() const { return out_.size() + in_flight_.size() - num_sent_; }
  void on_drained(uint64_t number, std::function<void()> resume);
  void on_close(uint64_t number, std::function<void()> closed);
  void run_after(uint64_t number, int64_t delay_ns, std::function<void()> work);

 private:
  void read();
  void on_readable(const boost::system::error_code& error);
  void on_read(std::string_view bytes);
  bool open_sealed(std::string_view bytes, std::string& plain);
  void advance();
  bool admit_body();
  void refuse(int status, const std::string& message);
  void refuse(HttpResponse response);
  void dispatch(HttpRequest request);
  void append_head(const HttpResponse& response, int64_t content_length);
  void finish_answer();
  void flush();
  bool refill();
  void on_writable(const boost::system::error_code& error);
  void linger();
  void set_deadline(int64_t delay_ns);
  void update_read_deadline();

  std::shared_ptr<HttpServerShared> shared_;
  std::shared_ptr<HttpEventLoop> loop_;
  boost::asio::ip::tcp::socket socket_;
  std::string peer_;
  std::shared_ptr<const TlsIdentity> identity_;  // what the session was made of
  std::unique_ptr<TlsSession> tls_;
  HttpRequestParser parser_;
  BodyCharge charge_;
  bool is_admitted_ = false;  // the gate let the request under way pass
  bool reading_ = false, writing_ = false;
  bool closed_ = false, lingering_ = false, close_after_write_ = false, draining_ = false;
  bool sent_continue_ = false, sealed_end_ = false;

  uint64_t num_requests_ = 0;
  uint64_t answering_ = 0;  // number of the exchange being answered; 0 = none
  bool keep_alive_ = true, omits_body_ = false, chunked_ = false, streaming_ = false;
  std::function<void()> resume_, on_close_;
  std::list<boost::asio::steady_timer> timers_;

  std::string out_, in_flight_;
  size_t num_sent_ = 0;  // of in_flight_
  int64_t request_begin_ns_ = 0;
  int64_t read_deadline_ns_ = 0, write_deadline_ns_ = 0;  // 0 = none
};

}  // namespace deepinfer
