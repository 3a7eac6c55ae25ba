// SPDX-License-Identifier: MIT
#include "scheduler/trace_replay.h"

#include <algorithm>

#include "base/json.h"
#include "base/philox.h"
#include "scheduler/scheduler.h"

namespace deepinfer {
namespace {

constexpr int64_t kLineTokensMax = int64_t{1} << 22;

Result<TraceRequest> parse_line(std::string_view line) {
  ASSIGN_OR_RETURN(const Json object, parse_json(line));
  TraceRequest request;
  const auto integer = [&](const char* key, int64_t& out) -> Status {
    const Json* value = object.find(key);
    if (!value || value->kind() != Json::Kind::kInt || value->as_int() < 0 || value->as_int() > kLineTokensMax * 1000)
      return invalid_argument(std::string(key) + ": expected a non-negative integer");
    out = value->as_int();
    return {};
  };
  TRY(integer("timestamp", request.arrival_ns));
  TRY(integer("input_length", request.num_prompt_tokens));
  TRY(integer("output_length", request.num_output_tokens));
  request.arrival_ns *= 1'000'000;
  const Json* ids = object.find("hash_ids");
  if (!ids || !ids->is_array()) return invalid_argument("hash_ids: expected an array");
  for (const Json& id : ids->as_array()) {
    if (id.kind() != Json::Kind::kInt) return invalid_argument("hash_ids: expected integers");
    request.block_ids.push_back(id.as_int());
  }
  if (request.num_prompt_tokens > kLineTokensMax ||
      ceil_div(request.num_prompt_tokens, kTraceBlockTokens) > static_cast<int64_t>(request.block_ids.size()))
    return invalid_argument("hash_ids: fewer blocks than input_length needs");
  return request;
}

SchedulerOptions trace_options() {
  SchedulerOptions options;
  options.num_lanes = 64;
  options.rows_max = 1 << 17;
  options.queue_max = 1 << 20;
  options.context_tokens_max = 1 << 22;
  options.step_budget_ns = 1'000'000'000;
  options.admission = "fcfs";
  options.replay = {.window = 128, .num_layers = 40, .num_encoder_layers = 21};
  options.profile = {.a = 4e6, .b = 12e3, .d = 0.01, .e = 0.005, .k = 2e4, .v = 4e4};
  return options;
}

// Every sequence that reaches the end of its prompt gives one token; nothing else is computed.
StepOutput imitate_step(const Batch& batch) {
  StepOutput output{.step = batch.step};
  for (const BatchSequence& rows : batch.sequences) {
    SequenceOutput one{.id = rows.id, .lane = rows.lane};
    if (rows.sample) one.tokens.push_back(0);
    output.sequences.push_back(std::move(one));
  }
  return output;
}

}  // namespace

Result<std::vector<TraceRequest>> parse_trace(std::string_view text) {
  std::vector<TraceRequest> trace;
  for (int64_t line_number = 1; !text.empty(); ++line_number) {
    const size_t end = std::min(text.find('\n'), text.size());
    auto request = parse_line(text.substr(0, end));
    if (!request.ok()) return request.status().prefixed("trace line " + std::to_string(line_number));
    trace.push_back(std::move(request).value());
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return trace;
}

std::vector<TokenId> trace_tokens(const TraceRequest& request) {
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<size_t>(request.num_prompt_tokens));
  for (int64_t i = 0; i < request.num_prompt_tokens; ++i) {
    const uint64_t id = static_cast<uint64_t>(request.block_ids[static_cast<size_t>(i / kTraceBlockTokens)]);
    const uint64_t mixed =
        (id * kTraceBlockTokens + static_cast<uint64_t>(i % kTraceBlockTokens)) * 0x9E3779B97F4A7C15ull;
    tokens.push_back(static_cast<TokenId>(mixed >> 40));
  }
  return tokens;
}

TraceReport replay_trace(const std::vector<TraceRequest>& trace, int64_t num_blocks, int64_t num_host_slots) {
  PrefixCache cache(num_blocks, num_host_slots);
  Scheduler scheduler(trace_options(), cache);
  TraceReport report;
  Batch batch;
  std::vector<SequenceDelta> deltas;
  int64_t now_ns = 0;
  size_t next = 0;
  while (next < trace.size() || !scheduler.is_idle()) {
    if (scheduler.is_idle()) now_ns = std::max(now_ns, trace[next].arrival_ns);
    for (; next < trace.size() && trace[next].arrival_ns <= now_ns; ++next) {
      SequenceRequest request{
          .id = static_cast<SequenceId>(next + 1), .prompt = trace_tokens(trace[next]), .max_output_tokens = 1};
      request.draft = false;
      if (!scheduler.submit(std::move(request), now_ns).ok()) continue;  // longer than the pool: it could never run
      ++report.num_requests;
      report.num_prompt_tokens += trace[next].num_prompt_tokens;
      report.num_trace_blocks += ceil_div(trace[next].num_prompt_tokens, kTraceBlockTokens);
    }
    scheduler.plan(now_ns, batch);
    for (const BlockCopy& copy : scheduler.take_copies()) cache.finish_copy(copy);
    if (batch.empty()) continue;
    StepShape shape;
    for (const BatchSequence& rows : batch.sequences) shape.chunks.push_back({rows.rows.size(), rows.position_begin});
    now_ns += scheduler.curve().predict_ns(shape);
    ++report.num_steps;
    scheduler.commit(imitate_step(batch), now_ns, deltas);
    for (const SequenceDelta& delta : deltas) {
      const auto record = scheduler.take_record(delta.id);
      report.num_hit_tokens += record->num_cached_tokens;
      report.num_hit_trace_blocks += ceil_div(record->num_cached_tokens, kTraceBlockTokens);
    }
  }
  report.virtual_ns = now_ns;
  report.cache = cache.stats();
  return report;
}

}  // namespace deepinfer
