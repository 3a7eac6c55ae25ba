// SPDX-License-Identifier: MIT
// An HTTP/1.1 server: one listener, a few event threads, each connection on one of them for life. Requests of a
// connection are answered in order, one at a time; the next is read only so far that memory stays bounded. Everything
// has a limit: header and body bytes, connections, time for a request, time without progress, idle time, queued bytes.
// Thread: any; the handler runs on the event threads. HTTP/2 is a reverse proxy's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "net/http_exchange.h"
#include "net/http_parser.h"
#include "net/tls.h"

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
  // Of all request bodies together, from their announcement until they are read; beyond it a request gets 503.
  int64_t all_body_bytes_max = int64_t{1} << 30;
  size_t gated_body_bytes = 64 << 10;  // larger bodies are shown to the gate before they are read
  HttpGate gate;
  std::optional<TlsFiles> tls;  // speaks TLS and nothing else
};

struct HttpServerCounts {
  int64_t num_connections = 0;  // open now
  int64_t num_accepted = 0, num_refused = 0;
  int64_t num_requests = 0, num_bad_requests = 0, num_timeouts = 0;
  int64_t num_body_bytes = 0;  // held by requests now
};

class HttpServer {
 public:
  // Listens at once. Errors: invalid_argument (host, TLS files), not_found (TLS files), unavailable (the address cannot
  // be bound; says why).
  static Result<std::unique_ptr<HttpServer>> start(const HttpServerOptions& options, HttpHandler handler,
                                                   const Clock& clock);
  ~HttpServer();  // stop()

  int port() const;
  HttpServerCounts counts() const;

  // Takes no new connection or request. What clients had sent by then is answered, then their connections close.
  void drain();
  bool is_drained() const;  // after drain(): no connection is left
  // Reads the TLS files again; connections made from now on see them. On an error the old ones stay.
  Status reload_tls();
  void stop();  // closes everything and ends the threads

 private:
  HttpServer();
  struct Parts;  // Boost
  std::shared_ptr<Parts> parts_;
};

}  // namespace deepinfer
