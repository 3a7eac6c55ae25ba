// SPDX-License-Identifier: MIT
#include "serve/request_history.h"

#include <algorithm>
#include <vector>

namespace deepinfer {
namespace {

Json milliseconds(int64_t begin_ns, int64_t end_ns) {
  if (end_ns == 0) return {};
  return static_cast<double>(end_ns - begin_ns) * 1e-6;
}

Json entry(const RequestRecord& r, int64_t now_ns) {
  const SequenceRecord none;
  const SequenceRecord& s = r.sequence ? *r.sequence : none;
  return Json::Object{{"id", r.id},
                      {"route", r.route},
                      {"status", r.status},
                      {"finish", r.finish},
                      {"begin_unix_ms", static_cast<double>(r.begin_unix_ns) * 1e-6},
                      {"admitted_ms", milliseconds(r.begin_ns, s.admitted_ns)},
                      {"first_token_ms", milliseconds(r.begin_ns, s.first_token_ns)},
                      {"end_ms", milliseconds(r.begin_ns, r.end_ns ? r.end_ns : now_ns)},
                      {"prompt_tokens", r.num_prompt_tokens},
                      {"cached_tokens", r.num_cached_tokens},
                      {"output_tokens", r.num_output_tokens},
                      {"drafts_verified", s.num_verified},
                      {"drafts_accepted", s.num_accepted},
                      {"cache_miss", std::string(to_string(s.miss_reason))}};
}

}  // namespace

void RequestHistory::begin(const RequestRecord& record) {
  const std::lock_guard lock(mutex_);
  running_.emplace(record.trace.span_id, record);
}

void RequestHistory::end(const RequestRecord& record) {
  const std::lock_guard lock(mutex_);
  if (running_.erase(record.trace.span_id) == 0) return;  // no generation
  ended_.push_front(record);
  if (ended_.size() > ended_max_) ended_.pop_back();
}

Json RequestHistory::list(const std::string& owner, bool sees_all, int64_t now_ns) const {
  const std::lock_guard lock(mutex_);
  std::vector<const RequestRecord*> running;
  for (const auto& [id, record] : running_) running.push_back(&record);
  std::ranges::sort(running, std::ranges::greater(), &RequestRecord::begin_ns);
  if (running.size() > ended_max_) running.resize(ended_max_);
  Json::Array all;
  for (const RequestRecord* record : running)
    if (sees_all || record->owner == owner) all.push_back(entry(*record, now_ns));
  for (const RequestRecord& record : ended_)
    if (sees_all || record.owner == owner) all.push_back(entry(record, now_ns));
  return Json::Object{{"requests", std::move(all)}};
}

}  // namespace deepinfer
