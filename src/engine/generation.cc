// SPDX-License-Identifier: MIT
#include "engine/generation.h"

#include <algorithm>
#include <string>

#include "base/clock.h"
#include "scheduler/draft_guard.h"

namespace deepinfer {
namespace {

// Tokens that end the sequence wherever they stand: nothing is drafted after them, nor verified behind such a draft.
std::vector<TokenId> stop_ids(const SamplingParams& params) {
  if (params.min_tokens > 0) return {};
  std::vector<TokenId> ids = params.stop_ids;
  if (!params.ignore_eos) ids.insert(ids.end(), params.eos_ids.begin(), params.eos_ids.end());
  return ids;
}

class Generator {
 public:
  Generator(Engine& engine, GenerationRequest& request, const TokenSink& sink)
      : engine_(engine), request_(request), sink_(sink) {}

  Result<Generation> run() {
    TRY(start());
    const int64_t begin_ns = clock_.monotonic_ns();
    TRY(prefill());
    const int64_t middle_ns = clock_.monotonic_ns();
    while (!is_done_) TRY(decode());
    out_.prefill_ns = middle_ns - begin_ns;
    out_.decode_ns = clock_.monotonic_ns() - middle_ns;
    engine_.release(0);
    return std::move(out_);
  }

 private:
  Status start() {
    const int64_t num_prompt = static_cast<int64_t>(request_.prompt.size());
    if (num_prompt == 0) return invalid_argument("generate: the prompt has no tokens");
    if (request_.max_tokens < 1)
      return invalid_argument("generate: max_tokens is " + std::to_string(request_.max_tokens) +
                              ", expected at least 1");
    const int64_t longest = std::min(engine_.options().blocks_max * kBlockTokens, engine_.config().context_max);
    if (num_prompt >= longest)
      return invalid_argument("generate: the prompt has " + std::to_string(num_prompt) + " tokens, the engine holds " +
                              std::to_string(longest) + " with the answer");
    request_.max_tokens = std::min(request_.max_tokens, longest - num_prompt);
    std::vector<BlockId> blocks;
    for (int64_t b = 0; b < BlockTable::blocks_for(num_prompt + request_.max_tokens); ++b)
      blocks.push_back(static_cast<BlockId>(b));
    blocks_ = BlockTable(std::move(blocks));
    plan_ = plan_replay(engine_.replay_geometry(), request_.replay, 0, num_prompt);
    return engine_.admit({.lane = 0,
                          .params = request_.params,
                          .prompt = request_.prompt,
                          .images = std::move(request_.images),
                          .stop_ids = stop_ids(request_.params),
                          .output_tokens_max = request_.max_tokens});
  }

  Status prefill() {
    const int64_t num_prompt = static_cast<int64_t>(request_.prompt.size()), chunk = engine_.options().rows_max;
    for (int64_t begin = 0; begin < num_prompt; begin += chunk) {
      if (request_.keep_going && !request_.keep_going()) {
        out_.end = GenerationEnd::kCancelled;
        is_done_ = true;
        return {};
      }
      const int64_t end = std::min(begin + chunk, num_prompt);
      TRY(step({request_.prompt.begin() + begin, request_.prompt.begin() + end}, end == num_prompt));
    }
    return {};
  }

  // The last token with as many of its drafts as could still be used.
  Status decode() {
    const int64_t left = request_.max_tokens - static_cast<int64_t>(out_.tokens.size());
    std::vector<TokenId> rows = {out_.tokens.back()};
    const int64_t num_drafts =
        std::min<int64_t>({left - 1, static_cast<int64_t>(drafts_.size()), engine_.options().verify_rows_max - 1});
    rows.insert(rows.end(), drafts_.begin(), drafts_.begin() + num_drafts);
    ++out_.num_steps;
    out_.num_drafted += num_drafts;
    return step(std::move(rows), true, num_drafts + 1);
  }

  Status step(std::vector<TokenId> rows, bool picks, int64_t num_logits = 1) {
    Batch batch{.step = num_launched_++, .tokens = std::move(rows)};
    batch.sequences.push_back({.lane = 0,
                               .blocks = &blocks_,
                               .position_begin = num_computed_,
                               .rows = {0, batch.num_rows()},
                               .num_logits_rows = picks ? num_logits : 0,
                               .limits = plan_.limits,
                               .draft = picks && request_.drafts && guard_.next_step_drafts()});
    TRY(engine_.launch(batch));
    TRY(engine_.sample(nullptr));
    ASSIGN_OR_RETURN(StepOutput output, engine_.collect());
    out_.expert_bytes_read += output.expert_bytes_read;
    SequenceOutput& sequence = output.sequences[0];
    if (!sequence.is_finite)
      return internal_error("generate: a logit at output position " + std::to_string(out_.tokens.size()) +
                            " is NaN or infinite");
    if (!sequence.has_allowed_token)
      return internal_error("generate: no token is allowed at output position " + std::to_string(out_.tokens.size()));
    num_computed_ += batch.num_rows() - (picks ? num_logits - 1 - sequence.num_accepted : 0);
    out_.num_accepted += sequence.num_accepted;
    if (num_logits > 1) guard_.add(sequence.num_accepted);
    drafts_ = std::move(sequence.drafts);
    keep(sequence);
    return {};
  }

  void keep(SequenceOutput& sequence) {
    for (size_t i = 0; i < sequence.tokens.size() && !is_done_; ++i) {
      const TokenId token = sequence.tokens[i];
      const bool ends = ends_sequence(request_.params, token, static_cast<int64_t>(out_.tokens.size()));
      out_.tokens.push_back(token);
      if (i < sequence.logprobs.size()) out_.logprobs.push_back(std::move(sequence.logprobs[i]));
      const bool goes_on = sink_(token);
      is_done_ = ends || !goes_on || static_cast<int64_t>(out_.tokens.size()) == request_.max_tokens;
      out_.end = ends ? GenerationEnd::kStop : goes_on ? GenerationEnd::kLength : GenerationEnd::kCancelled;
    }
  }

  Engine& engine_;
  GenerationRequest& request_;
  const TokenSink& sink_;
  SystemClock clock_;
  BlockTable blocks_;
  ReplayPlan plan_;
  Generation out_;
  std::vector<TokenId> drafts_;
  DraftGuard guard_;
  int64_t num_computed_ = 0;
  uint64_t num_launched_ = 0;
  bool is_done_ = false;
};

}  // namespace

Result<Generation> generate(Engine& engine, GenerationRequest request, const TokenSink& sink) {
  return Generator(engine, request, sink).run();
}

}  // namespace deepinfer
