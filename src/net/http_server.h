// SPDX-License-Identifier: MIT
// An HTTP/1.1 server: one listener, a few event threads, each connection on one of them for life. Requests of a
// connection are answered in order, one at a time; the next is read only so far that memory stays bounded. Everything
// has a limit: header and body bytes, connections, time for a request, time without progress, idle time, queued bytes.
// Thread: any; the handler runs on the event threads. HTTP/2 and TLS termination are a reverse proxy's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "net/http_exchange.h"
#include "net/http_parser.h"

namespace deepinfer {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an IP address; "localhost" is 127.0.0.1
  int port = 0;                    // 0 = any free one
  int num_threads = 1;
  HttpLimits limits;
  int64_t connections_max = 4096;
  int64_t head_timeout_ns = 15'000'000'000;    // from a request's first byte to the end of its fields
  int64_t body_stall_ns = 30'000'000'000;      // without a byte of the body
  int64_t body_timeout_ns = 600'000'000'000;   // from a request's first byte to its last
  int64_t idle_timeout_ns = 120'000'000'000;   // between requests
  int64_t write_stall_ns = 60'000'000'000;     // the client takes nothing
  size_t queued_bytes_max = size_t{64} << 20;  // hard bound of one connection's queue
};

struct HttpServerCounts {
  int64_t num_connections = 0;  // open now
  int64_t num_accepted = 0, num_refused = 0;
  int64_t num_requests = 0, num_bad_requests = 0, num_timeouts = 0;
};

class HttpServer {
 public:
  // Listens at once. Errors: invalid_argument (host), unavailable (the address cannot be bound; says why).
  static Result<std::unique_ptr<HttpServer>> start(const HttpServerOptions& options, HttpHandler handler,
                                                   const Clock& clock);
  ~HttpServer();  // stop()

  int port() const;
  HttpServerCounts counts() const;

  // Takes no new connection or request; answers under way are finished, then their connections close.
  void drain();
  bool is_drained() const;  // after drain(): no connection is left
  void stop();              // closes everything and ends the threads

 private:
  HttpServer();
  struct Parts;  // Boost
  std::shared_ptr<Parts> parts_;
};

}  // namespace deepinfer
