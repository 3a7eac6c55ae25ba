// SPDX-License-Identifier: MIT
#include "serve/service_metrics.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace deepinfer {
namespace {

constexpr double kSeconds[] = {0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300};
constexpr double kTokenSeconds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.5, 1};

std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\n') out += "\\n";
    else if (c == '"' || c == '\\') (out += '\\') += c;
    else out += c;
  }
  return out;
}

class Page {
 public:
  explicit Page(std::string label) : label_(std::move(label)) {}
  void head(const char* name, const char* type, const char* help) {
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <typename Value>
  void one(const char* name, const char* type, const char* help, Value value) {
    head(name, type, help);
    text += fmt::format("{}{{{}}} {}\n", name, label_, value);
  }
  void histogram(const char* name, const char* help, const Histogram& values) {
    head(name, "histogram", help);
    values.append(text, name, label_);
  }
  std::string text;

 private:
  std::string label_;
};

void append_loop(Page& page, const StepLoopSnapshot& loop) {
  page.one("vllm:num_requests_running", "gauge", "Sequences in execution.", loop.num_running);
  page.one("vllm:num_requests_waiting", "gauge", "Sequences waiting.", loop.num_waiting);
  const double used = loop.num_blocks > 0 ? 1 - static_cast<double>(loop.num_free_blocks + loop.num_cached_blocks) /
                                                    static_cast<double>(loop.num_blocks)
                                          : 0;
  page.one("vllm:kv_cache_usage_perc", "gauge", "Share of KV blocks in use by running sequences, 0 to 1.",
           std::max(0.0, used));
  page.one("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up.", loop.cache.num_prompt_tokens);
  page.one("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found.", loop.cache.num_hit_tokens);
  page.one("vllm:spec_decode_num_draft_tokens_total", "counter", "Drafts verified.", loop.num_verified_drafts);
  page.one("vllm:spec_decode_num_accepted_tokens_total", "counter", "Drafts accepted.", loop.num_accepted_drafts);
  page.one("deepinfer_steps_total", "counter", "Engine steps.", loop.num_steps);
  page.one("deepinfer_prompt_rows_total", "counter", "Rows of prompts computed.", loop.num_prompt_rows);
  page.one("deepinfer_decode_rows_total", "counter", "Rows of decoding computed, drafts included.",
           loop.num_decode_rows);
  page.one("deepinfer_output_tokens_total", "counter", "Tokens made, of running requests too.", loop.num_output_tokens);
  page.one("deepinfer_experts_read_total", "counter", "Routed experts read from the model's files for a step.",
           loop.num_experts_read);
  page.one("deepinfer_expert_bytes_read_total", "counter", "Their bytes.", loop.expert_bytes_read);
  page.one("deepinfer_engine_busy_seconds_total", "counter", "Time of the engine's thread in steps.",
           static_cast<double>(loop.busy_ns) * 1e-9);
  page.one("deepinfer_engine_idle_seconds_total", "counter", "Time of the engine's thread between steps.",
           static_cast<double>(loop.idle_ns) * 1e-9);
  page.one("deepinfer_wasted_rows_total", "counter", "Rows computed for sequences that had ended, or in vain.",
           loop.num_wasted_rows);
  page.one("deepinfer_late_masks_total", "counter", "Masks of grammars that were not there when a step picked.",
           loop.num_late_masks);
  page.one("deepinfer_draft_pauses_total", "counter", "Times drafting was switched off because hardly a draft stood.",
           loop.num_draft_pauses);
  page.one("deepinfer_draft_rests_total", "counter",
           "Times drafting was switched off because drafts cost more time than they saved.", loop.num_draft_rests);
  page.one("deepinfer_step_curve_trusted", "gauge", "Whether steps are planned by the cost curve, 0 or 1.",
           static_cast<int64_t>(loop.trusts_curve));
  page.one("deepinfer_last_step_seconds", "gauge", "Duration of the last step.",
           static_cast<double>(loop.last_step_ns) * 1e-9);
  page.one("deepinfer_last_step_predicted_seconds", "gauge", "What the cost curve predicted for it.",
           static_cast<double>(loop.last_predicted_ns) * 1e-9);
}

void append_cache(Page& page, const StepLoopSnapshot& loop) {
  page.one("deepinfer_kv_blocks", "gauge", "KV blocks of the pool.", loop.num_blocks);
  page.one("deepinfer_kv_blocks_free", "gauge", "KV blocks that hold nothing.", loop.num_free_blocks);
  page.one("deepinfer_kv_blocks_cached", "gauge", "KV blocks kept for reuse.", loop.num_cached_blocks);
  page.head("deepinfer_prefix_cache_misses_total", "counter", "Lookups by the reason their match ended.");
  for (int i = 0; i < kNumMissReasons; ++i)
    page.text += fmt::format("deepinfer_prefix_cache_misses_total{{reason=\"{}\"}} {}\n",
                             to_string(static_cast<MissReason>(i)), loop.cache.misses[static_cast<size_t>(i)]);
}

void append_http(Page& page, const HttpServerCounts& http) {
  page.one("deepinfer_http_connections", "gauge", "Open connections.", http.num_connections);
  page.one("deepinfer_http_connections_accepted_total", "counter", "Connections accepted.", http.num_accepted);
  page.one("deepinfer_http_connections_refused_total", "counter", "Connections over the limit.", http.num_refused);
  page.one("deepinfer_http_bad_requests_total", "counter", "Requests that were not HTTP.", http.num_bad_requests);
  page.one("deepinfer_http_timeouts_total", "counter", "Connections that were too slow.", http.num_timeouts);
}

}  // namespace

void Histogram::add(double value) {
  const auto at = std::ranges::lower_bound(bounds_, value);
  ++counts_[static_cast<size_t>(at - bounds_.begin())];
  ++num_values_;
  sum_ += value;
}

void Histogram::append(std::string& out, const std::string& name, const std::string& labels) const {
  const std::string comma = labels.empty() ? "" : ",";
  uint64_t below = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    out += fmt::format("{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, comma, bounds_[i], below);
  }
  out += fmt::format("{}_bucket{{{}{}le=\"+Inf\"}} {}\n", name, labels, comma, num_values_);
  out += fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum_, name, labels, num_values_);
}

ServiceMetrics::ServiceMetrics(std::string model_name)
    : label_("model_name=\"" + escaped(model_name) + "\""),
      first_token_s_(kSeconds),
      per_token_s_(kTokenSeconds),
      total_s_(kSeconds),
      queue_s_(kSeconds) {}

void ServiceMetrics::add_generation(const GenerationFigures& figures) {
  const std::lock_guard lock(mutex_);
  ++finishes_[figures.finish];
  num_prompt_tokens_ += static_cast<uint64_t>(figures.num_prompt_tokens);
  num_output_tokens_ += static_cast<uint64_t>(figures.num_output_tokens);
  if (figures.first_token_s >= 0) first_token_s_.add(figures.first_token_s);
  if (figures.per_token_s >= 0) per_token_s_.add(figures.per_token_s);
  if (figures.queue_s >= 0) queue_s_.add(figures.queue_s);
  total_s_.add(figures.total_s);
}

void ServiceMetrics::add_request(const std::string& method, const std::string& route, int status, double seconds) {
  const std::string labels =
      fmt::format("http_request_method=\"{}\",http_route=\"{}\",http_response_status_code=\"{}\"", escaped(method),
                  escaped(route), status);
  const std::lock_guard lock(mutex_);
  requests_.try_emplace(labels, kSeconds).first->second.add(seconds);
}

std::string ServiceMetrics::text(const StepLoopSnapshot& loop, const HttpServerCounts& http) const {
  Page page(label_);
  append_loop(page, loop);
  append_cache(page, loop);
  append_http(page, http);
  page.one("deepinfer_log_lines_lost_total", "counter", "Log lines that could not be written.", num_lost_log_lines());
  const std::lock_guard lock(mutex_);
  page.one("vllm:prompt_tokens_total", "counter", "Prompt tokens of finished requests.", num_prompt_tokens_);
  page.one("vllm:generation_tokens_total", "counter", "Output tokens of finished requests.", num_output_tokens_);
  page.head("vllm:request_success_total", "counter", "Finished sequences by reason.");
  for (const auto& [finish, count] : finishes_)
    page.text += fmt::format("vllm:request_success_total{{{},finished_reason=\"{}\"}} {}\n", label_, finish, count);
  page.histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", first_token_s_);
  page.histogram("vllm:inter_token_latency_seconds", "Mean time per output token after the first.", per_token_s_);
  page.histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token.", total_s_);
  page.histogram("vllm:request_queue_time_seconds", "From arrival to admission.", queue_s_);
  page.head("http_server_request_duration_seconds", "histogram", "HTTP requests, until their answer was complete.");
  for (const auto& [labels, values] : requests_)
    values.append(page.text, "http_server_request_duration_seconds", labels);
  return page.text;
}

}  // namespace deepinfer
