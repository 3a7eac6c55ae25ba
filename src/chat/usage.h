// SPDX-License-Identifier: MIT
// How one answer ended and how many tokens it took. Counted by the stream parser, written out by each protocol.
#pragma once

#include <cstdint>
#include <string>

namespace deepinfer {

// Why the engine stopped producing tokens.
enum class BackendFinish { kStop, kLength, kContentFilter };

// Why the answer ended, as the client is told. kEndOfStream: the tokens ended and no reason was given.
enum class FinishReason { kStop, kLength, kContentFilter, kToolCalls, kStopSequence, kEndOfStream };

struct Usage {
  uint64_t num_prompt_tokens = 0;
  uint64_t num_cached_tokens = 0;     // of the prompt: reused from a stored prefix
  uint64_t num_output_tokens = 0;     // everything generated, dropped markup included
  uint64_t num_reasoning_tokens = 0;  // of the output: the reasoning

  uint64_t num_uncached_tokens() const {
    return num_prompt_tokens > num_cached_tokens ? num_prompt_tokens - num_cached_tokens : 0;
  }
};

struct Finish {
  FinishReason reason = FinishReason::kEndOfStream;
  std::string stop_sequence;  // the one that matched, for kStopSequence
};

// What is known about the prompt before the first token.
struct PromptReport {
  uint64_t num_prompt_tokens = 0;
  uint64_t num_cached_tokens = 0;
  bool has_fingerprint = false;
  std::string fingerprint;  // names the serving configuration; passed through
};

}  // namespace deepinfer
