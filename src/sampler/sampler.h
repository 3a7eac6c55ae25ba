// SPDX-License-Identifier: MIT
// Logits to tokens. Order of a row (serving.md 6.3): penalties, bias, masks, temperature, top-k, top-p, min-p, then
// argmax((logit - max) / T + Gumbel noise), ties to the lowest id; temperature 0 is the plain argmax. A row's result
// depends on its own logits and SampleRow alone: not on other rows, their order or the number of threads. A NaN or
// infinity in a row, or a mask that leaves nothing, is reported for that row; other rows are unaffected. Thread: one
// caller at a time per Sampler.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "sampler/sampling_params.h"
#include "sampler/token_history.h"
#include "tensor/view.h"

namespace deepinfer {

enum class SampleError : uint8_t { kNone, kNotFinite, kNothingAllowed };
const char* to_string(SampleError error);

// What one row of logits is picked with. Everything is borrowed for the call.
struct SampleRow {
  const SamplingParams* params = nullptr;
  const TokenHistory* history = nullptr;  // may be null unless needs_history(*params)
  std::span<const TokenId> drafted;       // draft tokens assumed between the history and this row
  int64_t output_position = 0;     // output tokens of this choice before the one picked here, drafted ones counted
  std::span<const uint32_t> mask;  // a row of TokenMasks; empty = everything allowed
};

struct LikelyToken {
  TokenId id = 0;
  float logprob = 0;
  bool operator==(const LikelyToken&) const = default;
};

struct SampledToken {
  TokenId id = 0;
  SampleError error = SampleError::kNone;  // if set, id and logprobs mean nothing
  float logprob = 0;                       // of id; only if params.top_logprobs
  int32_t num_top_logprobs = 0;
  std::array<LikelyToken, kTopLogprobsMax> top_logprobs{};  // by logprob, then id
};

class Sampler {
 public:
  explicit Sampler(int64_t vocab_size);
  ~Sampler();

  // Row i of logits with rows[i] into out[i]; logits may be wider than the vocabulary (padding is not read). No
  // allocation once the workspaces of the pool's threads exist. Used for target rows and, with draft logits, for draft
  // rows alike.
  void sample(View<const float, dim::rows, dim::vocab> logits, std::span<const SampleRow> rows, ThreadPool& pool,
              std::span<SampledToken> out);

  int64_t vocab_size() const { return vocab_size_; }

 private:
  struct Workspace;
  int64_t vocab_size_;
  std::vector<std::unique_ptr<Workspace>> workspaces_;  // one per thread of the pool
};

// Acceptance by shared noise: targets[j] is the token picked from verify row j (so targets has at least one more entry
// than drafts). Returns how many drafts stand; the sequence then gains the drafts that stand and targets[that number].
int64_t count_accepted(std::span<const TokenId> drafts, std::span<const TokenId> targets);

// The model's own logprobs of `id` and the `num_top` likeliest tokens of one row, as for prompt logprobs.
SampledToken model_logprobs(std::span<const float> logits, TokenId id, int32_t num_top);

}  // namespace deepinfer
