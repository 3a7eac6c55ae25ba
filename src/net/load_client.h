// SPDX-License-Identifier: MIT
// Many connections to a server on this machine, driven by one thread: each sends its request again as soon as it is
// answered. Reads only as much of the answers as the figures need, so that most of the time is the server's. For
// benches. Thread: run() the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace deepinfer {

struct LoadOptions {
  int port = 0;
  int num_connections = 1;
  int64_t duration_ns = 1'000'000'000;                 // after it nothing new is sent and the rest is dropped
  int64_t requests_max = 0;                            // of each connection; 0 = no limit
  std::function<std::string(int connection)> request;  // the whole message, made once for each connection
  // Each event of a stream that is no comment: its number in the answer, from 0.
  std::function<void(int connection, int64_t event, int64_t now_ns)> on_event;
  // Each time the character `mark` stands in a line of data: its number in the answer, from 0. Where several tokens
  // share an event, marks tell them apart.
  char mark = '\0';
  std::function<void(int connection, int64_t number, int64_t now_ns)> on_mark;
  std::function<void(int connection, int64_t now_ns)> on_sent;
};

struct LoadFigures {
  int64_t num_answers = 0, num_events = 0, num_bytes = 0;
  int64_t num_errors = 0;  // answers that are not 200, connections that broke
  double seconds = 0;
  int64_t cpu_ns = 0;              // of the client
  std::vector<int64_t> events_of;  // by connection
};

Result<LoadFigures> run_load(const LoadOptions& options, const Clock& clock);

}  // namespace deepinfer
