// SPDX-License-Identifier: MIT
#include "serve/explain_record.h"

namespace deepinfer {
namespace {

double milliseconds(int64_t ns) { return static_cast<double>(ns / 1000) / 1e3; }  // to the microsecond

// From `begin` to `end`; null when one of them did not happen.
Json milliseconds(int64_t begin_ns, int64_t end_ns) {
  if (begin_ns == 0 || end_ns == 0) return {};
  return milliseconds(end_ns - begin_ns);
}

double decimal(float value) { return static_cast<double>(value); }

Json sampling_values(const SamplingParams& s) {
  return Json::Object{{"temperature", decimal(s.temperature)},
                      {"top_p", decimal(s.top_p)},
                      {"top_k", s.top_k},
                      {"min_p", decimal(s.min_p)},
                      {"repetition_penalty", decimal(s.repetition_penalty)},
                      {"presence_penalty", decimal(s.presence_penalty)},
                      {"frequency_penalty", decimal(s.frequency_penalty)},
                      {"seed", s.seed},
                      {"choice", static_cast<int64_t>(s.choice)},
                      {"min_tokens", s.min_tokens},
                      {"ignore_eos", s.ignore_eos}};
}

}  // namespace

Json explain_record(const SequenceRecord& r, const SamplingParams& sampling) {
  return Json::Object{{"queue_ms", milliseconds(r.arrival_ns, r.admitted_ns)},
                      {"first_token_ms", milliseconds(r.arrival_ns, r.first_token_ns)},
                      {"total_ms", milliseconds(r.arrival_ns, r.finished_ns)},
                      {"cached_tokens", r.num_cached_tokens},
                      {"shared_tokens", r.num_shared_tokens},
                      {"replayed_tokens", r.num_replayed_tokens},
                      {"tail_tokens", r.num_tail_tokens},
                      {"resumed_tokens", r.num_resumed_tokens},
                      {"cache_miss", std::string(to_string(r.miss_reason))},
                      {"store_tokens", r.num_store_tokens},
                      {"store_ms", milliseconds(r.store_wait_ns)},
                      {"store_miss", r.store_reason.empty() ? Json() : Json(r.store_reason)},
                      {"replay", r.replay_reason},
                      {"prompt_chunks", r.num_chunks},
                      {"steps", r.num_steps},
                      {"decode_steps", r.num_steps - r.num_chunks},
                      {"drafted", r.num_drafted},
                      {"verified", r.num_verified},
                      {"accepted", r.num_accepted},
                      {"preemptions", r.num_preemptions},
                      {"kv_blocks", r.num_blocks_max},
                      {"kv_bytes", r.num_kv_bytes},
                      {"loaded_blocks", r.num_loaded_blocks},
                      {"offloaded_bytes", r.num_offloaded_bytes},
                      {"loaded_bytes", r.num_loaded_bytes},
                      {"sampling", sampling_values(sampling)}};
}

}  // namespace deepinfer
