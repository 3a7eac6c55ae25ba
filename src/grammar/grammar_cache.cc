// SPDX-License-Identifier: MIT
#include "grammar/grammar_cache.h"

#include <fmt/format.h>

namespace deepinfer {
namespace {

constexpr size_t kEntryBytes = 256;  // of an entry without its grammar

std::string key_of(const std::string& tenant, const AnswerSpec& spec, const GrammarOptions& options) {
  const std::string text =
      fmt::format("{}:{}{}{}{}{}:{}:{}", tenant.size(), tenant, static_cast<int>(options.order), options.flexible_space,
                  options.lenient, options.source_bytes_max, options.mask_cache_bytes_max, spec.key());
  const Sha256Digest digest = sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

Result<std::shared_ptr<Grammar>> GrammarCache::outcome(const Entry& entry) const {
  if (entry.grammar) return entry.grammar;
  return entry.failure;
}

Result<std::shared_ptr<Grammar>> GrammarCache::get(const std::string& tenant, const AnswerSpec& spec,
                                                   const GrammarOptions& options) {
  const Key key = key_of(tenant, spec, options);
  {
    std::unique_lock lock(mutex_);
    // A compile under way that ends without a result (its request went away) is taken over by one that waits.
    for (auto at = entries_.find(key); at != entries_.end(); at = entries_.find(key)) {
      if (at->second.is_ready) {
        ++stats_.num_hits;
        recent_.splice(recent_.begin(), recent_, at->second.place);
        return outcome(at->second);
      }
      ready_.wait(lock);
    }
    entries_.emplace(key, Entry{});
  }
  auto compiled = compile_answer(spec, tokens_, index_, options);
  const std::lock_guard lock(mutex_);
  ready_.notify_all();
  if (!compiled.ok() && compiled.status().code() == StatusCode::kUnavailable) {
    entries_.erase(key);
    return compiled;
  }
  Entry& entry = entries_.at(key);
  entry.is_ready = true;
  if (compiled.ok()) entry.grammar = *compiled;
  else entry.failure = compiled.status();
  ++(compiled.ok() ? stats_.num_compiled : stats_.num_failed);
  recent_.push_front(key);
  entry.place = recent_.begin();
  evict();
  return compiled;
}

void GrammarCache::evict() {
  size_t num_bytes = 0;
  for (const Key& key : recent_) {
    Entry& entry = entries_.at(key);
    entry.num_bytes = kEntryBytes + entry.failure.message().size();
    if (entry.grammar) {
      const Grammar::Size size = entry.grammar->size();
      entry.num_bytes += size.machine_bytes + size.mask_bytes;
    }
    num_bytes += entry.num_bytes;
  }
  while (num_bytes > bytes_max_ && recent_.size() > 1) {
    num_bytes -= entries_.at(recent_.back()).num_bytes;
    entries_.erase(recent_.back());
    recent_.pop_back();
    ++stats_.num_evicted;
  }
  stats_.num_bytes = num_bytes;
  stats_.num_entries = recent_.size();
}

GrammarCache::Stats GrammarCache::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace deepinfer
