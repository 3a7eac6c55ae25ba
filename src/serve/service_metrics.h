// SPDX-License-Identifier: MIT
// Counters of the service as Prometheus text. Names are vLLM's where it has the figure, so its dashboards work; HTTP
// durations follow the OpenTelemetry convention; the rest is called deepinfer_*. Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "net/http_server.h"
#include "serve/token_source.h"

namespace deepinfer {

class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {}
  void add(double value);
  // Lines of one series; `labels` without braces, may be empty.
  void append(std::string& out, const std::string& name, const std::string& labels) const;

 private:
  std::vector<double> bounds_;  // upper, ascending
  std::vector<uint64_t> counts_;
  uint64_t num_values_ = 0;
  double sum_ = 0;
};

// What one finished generation adds.
struct GenerationFigures {
  std::string finish;  // stop, length, tool_calls, abort, error
  int64_t num_prompt_tokens = 0, num_output_tokens = 0;
  double queue_s = -1, first_token_s = -1, total_s = 0, per_token_s = -1;  // below 0: did not happen
};

class ServiceMetrics {
 public:
  explicit ServiceMetrics(std::string model_name);
  void add_generation(const GenerationFigures& figures);
  void add_request(const std::string& method, const std::string& route, int status, double seconds);
  std::string text(const StepLoopSnapshot& loop, const HttpServerCounts& http) const;

 private:
  const std::string label_;   // model_name="..."
  mutable std::mutex mutex_;  // guards what stands below
  std::map<std::string, uint64_t> finishes_;
  uint64_t num_prompt_tokens_ = 0, num_output_tokens_ = 0;
  Histogram first_token_s_, per_token_s_, total_s_, queue_s_;
  std::map<std::string, Histogram> requests_;  // by labels: routes are few, methods are checked
};

}  // namespace deepinfer
