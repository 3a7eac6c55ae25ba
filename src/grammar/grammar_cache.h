// SPDX-License-Identifier: MIT
// Compiled grammars of one tokenizer by what they were made from: the digest of tenant, answer and options. A tenant
// never meets another's entry, so nothing about its schemas shows in another's times. Failures are kept as well; equal
// requests that arrive together compile once. Least recently used entries go when the grammars with the masks they have
// gathered exceed the limit; running answers keep theirs. Any thread; compiling happens on the caller's.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/sha256.h"
#include "base/status.h"
#include "grammar/answer_grammar.h"

namespace deepinfer {

class GrammarCache {
 public:
  struct Stats {
    int64_t num_hits = 0, num_compiled = 0, num_failed = 0, num_evicted = 0;
    size_t num_entries = 0, num_bytes = 0;
  };

  GrammarCache(std::shared_ptr<const TokenIndex> index, AnswerTokens tokens, size_t bytes_max)
      : index_(std::move(index)), tokens_(std::move(tokens)), bytes_max_(bytes_max) {}

  // Errors: those of compile_answer(); unavailable when options.keep_going ended the compile.
  Result<std::shared_ptr<Grammar>> get(const std::string& tenant, const AnswerSpec& spec,
                                       const GrammarOptions& options);
  Stats stats() const;
  const TokenIndex& index() const { return *index_; }

 private:
  using Key = std::string;  // a digest
  struct Entry {
    std::shared_ptr<Grammar> grammar;  // null: `failure`, or a compile is under way
    Status failure;
    bool is_ready = false;
    size_t num_bytes = 0;
    std::list<Key>::iterator place;
  };
  Result<std::shared_ptr<Grammar>> outcome(const Entry& entry) const;
  void evict();  // under the lock

  const std::shared_ptr<const TokenIndex> index_;
  const AnswerTokens tokens_;
  const size_t bytes_max_;
  mutable std::mutex mutex_;  // guards what stands below
  std::condition_variable ready_;
  std::unordered_map<Key, Entry> entries_;
  std::list<Key> recent_;  // most recent first; ready entries only
  Stats stats_;
};

}  // namespace deepinfer
