// SPDX-License-Identifier: MIT
#include "engine/exact_run.h"

#include <algorithm>
#include <string>

#include "base/philox.h"

namespace deepinfer {
namespace {

// A prompt on its way through the engine.
struct Run {
  ExactPrompt* prompt = nullptr;
  ExactNumbers* numbers = nullptr;
  int32_t lane = 0;
  BlockTable blocks;
  int64_t num_computed = 0;  // prompt and decode tokens

  int64_t num_prompt() const { return static_cast<int64_t>(prompt->tokens.size()); }
  int64_t num_tokens() const { return num_prompt() + static_cast<int64_t>(prompt->decode_tokens.size()); }
  bool is_done() const { return num_computed == num_tokens(); }
  TokenId token(int64_t i) const {
    return i < num_prompt() ? prompt->tokens[static_cast<size_t>(i)]
                            : prompt->decode_tokens[static_cast<size_t>(i - num_prompt())];
  }
};

TokenId argmax_of(const float* logits, int64_t vocab) {
  return static_cast<TokenId>(std::max_element(logits, logits + vocab) - logits);
}

class ExactRunner {
 public:
  ExactRunner(Engine& engine, std::vector<ExactPrompt>& prompts, const RunShape& shape)
      : engine_(engine), prompts_(prompts), shape_(shape), rng_(shape.seed), numbers_(prompts.size()) {
    for (int64_t l = engine.options().lanes_max - 1; l >= 0; --l) free_lanes_.push_back(static_cast<int32_t>(l));
    for (int64_t b = engine.options().blocks_max - 1; b >= 0; --b) free_blocks_.push_back(static_cast<BlockId>(b));
    if (shape_.batched)
      std::ranges::for_each(
          free_blocks_, [this](BlockId& block) { std::swap(block, free_blocks_[rng_.below(free_blocks_.size())]); });
  }

  Result<std::vector<ExactNumbers>> run(const std::function<bool()>& keep_going) {
    while (next_prompt_ < prompts_.size() || !running_.empty()) {
      if (keep_going && !keep_going()) return cancel();
      TRY(admit());
      TRY(step());
      retire();
    }
    return std::move(numbers_);
  }

 private:
  int64_t block_size() const { return engine_.config().draft.num_layers > 0 ? engine_.config().draft.block_size : 0; }

  Status admit() {
    const size_t running_max = shape_.batched ? static_cast<size_t>(engine_.options().lanes_max) : 1;
    while (next_prompt_ < prompts_.size() && running_.size() < running_max && !free_lanes_.empty()) {
      ExactPrompt& prompt = prompts_[next_prompt_];
      Run run{.prompt = &prompt, .numbers = &numbers_[next_prompt_]};
      TRY(check(prompt, next_prompt_));
      const int64_t num_blocks = BlockTable::blocks_for(run.num_tokens());
      if (num_blocks > engine_.options().blocks_max)
        return invalid_argument("prompt " + std::to_string(next_prompt_) + " needs " + std::to_string(num_blocks) +
                                " blocks, the engine has " + std::to_string(engine_.options().blocks_max));
      if (num_blocks > static_cast<int64_t>(free_blocks_.size())) return {};
      for (int64_t b = 0; b < num_blocks; ++b) {
        run.blocks.push_back(free_blocks_.back());
        free_blocks_.pop_back();
      }
      run.lane = free_lanes_.back();
      free_lanes_.pop_back();
      LaneStart start{.lane = run.lane, .images = std::move(prompt.images)};
      start.params.temperature = 0;
      TRY(engine_.admit(std::move(start)));
      reserve(run);
      running_.push_back(std::move(run));
      ++next_prompt_;
    }
    return {};
  }

  Status check(const ExactPrompt& prompt, size_t at) const {
    const std::string where = "prompt " + std::to_string(at);
    if (prompt.tokens.empty()) return invalid_argument(where + " has no tokens");
    if (!prompt.draft_anchors.empty() && prompt.draft_anchors.size() != prompt.decode_tokens.size())
      return invalid_argument(where + ": " + std::to_string(prompt.draft_anchors.size()) + " draft anchors for " +
                              std::to_string(prompt.decode_tokens.size()) + " decode tokens");
    return {};
  }

  void reserve(Run& run) {
    const int64_t vocab = engine_.config().vocab_size, decode = static_cast<int64_t>(run.prompt->decode_tokens.size());
    run.numbers->argmax.resize(run.prompt->tokens.size());
    if (run.prompt->keeps_all_logits) run.numbers->all_logits.resize(static_cast<size_t>(run.num_prompt() * vocab));
    run.numbers->decode_logits.resize(static_cast<size_t>(decode * vocab));
  }

  // Rows of this sequence in the next step: a piece of the prompt, or one decode row.
  int64_t chunk_of(const Run& run, int64_t room) {
    if (run.num_computed >= run.num_prompt()) return std::min<int64_t>(1, room);
    const int64_t left = run.num_prompt() - run.num_computed;
    int64_t chunk = shape_.chunk > 0 ? shape_.chunk : left;
    if (shape_.batched) chunk = 1 + static_cast<int64_t>(rng_.below(rng_.below(3) == 0 ? 64 : 8));
    return std::min({chunk, left, room});
  }

  std::optional<TokenId> anchor_of(const Run& run, int64_t decode_idx) const {
    if (!run.prompt->draft_anchors.empty()) return run.prompt->draft_anchors[static_cast<size_t>(decode_idx)];
    if (decode_idx + 1 < static_cast<int64_t>(run.prompt->decode_tokens.size()))
      return run.prompt->decode_tokens[static_cast<size_t>(decode_idx + 1)];
    return std::nullopt;
  }

  Status step() {
    if (running_.empty()) return internal_error("exact run: nothing to run");
    if (shape_.batched)  // any order must do
      for (size_t i = running_.size() - 1; i > 0; --i) std::swap(running_[i], running_[rng_.below(i + 1)]);
    Batch batch{.step = num_steps_++};
    const int64_t rows_max = std::min(engine_.options().rows_max, engine_.options().logits_rows_max);
    std::vector<size_t> in_step;
    for (size_t r = 0; r < running_.size(); ++r) {
      Run& run = running_[r];
      const int64_t num = chunk_of(run, rows_max - batch.num_rows());
      if (num == 0) continue;
      BatchSequence sequence{.id = SequenceId{r},
                             .lane = run.lane,
                             .blocks = &run.blocks,
                             .position_begin = run.num_computed,
                             .num_logits_rows = num};
      sequence.rows = {batch.num_rows(), batch.num_rows() + num};
      sequence.sample = false;
      if (const int64_t decode_idx = run.num_computed - run.num_prompt(); decode_idx >= 0 && block_size() > 0) {
        sequence.draft = true;
        sequence.draft_anchor = anchor_of(run, decode_idx);
        sequence.sample = !sequence.draft_anchor;
      }
      for (int64_t i = 0; i < num; ++i) batch.tokens.push_back(run.token(run.num_computed + i));
      batch.sequences.push_back(std::move(sequence));
      in_step.push_back(r);
    }
    TRY(engine_.launch(batch));
    TRY(engine_.sample(nullptr));
    ASSIGN_OR_RETURN(const StepOutput output, engine_.collect());
    int64_t drafted = 0;
    for (size_t s = 0; s < in_step.size(); ++s)
      keep(running_[in_step[s]], batch.sequences[s], output.sequences[s], drafted);
    return {};
  }

  void keep(Run& run, const BatchSequence& sequence, const SequenceOutput& output, int64_t& drafted) {
    const int64_t vocab = engine_.config().vocab_size;
    const auto logits = engine_.logits();
    for (int64_t i = 0; i < sequence.num_logits_rows; ++i) {
      const float* row = logits.row(output.logits_begin + i);
      const int64_t at = run.num_computed++;
      if (at >= run.num_prompt()) {
        std::copy_n(row, vocab, &run.numbers->decode_logits[static_cast<size_t>((at - run.num_prompt()) * vocab)]);
        continue;
      }
      run.numbers->argmax[static_cast<size_t>(at)] = argmax_of(row, vocab);
      if (run.prompt->keeps_all_logits)
        std::copy_n(row, vocab, &run.numbers->all_logits[static_cast<size_t>(at * vocab)]);
      if (at + 1 == run.num_prompt()) run.numbers->logits.assign(row, row + vocab);
    }
    if (output.drafts.empty()) return;
    run.numbers->draft_ids.insert(run.numbers->draft_ids.end(), output.drafts.begin(), output.drafts.end());
    run.numbers->draft_confidences.insert(run.numbers->draft_confidences.end(), output.confidences.begin(),
                                          output.confidences.end());
    if (run.prompt->keeps_all_logits) {
      const auto draft = engine_.draft_logits();
      const int64_t sequences = draft.size[0] / block_size();
      for (int64_t i = 0; i < block_size(); ++i) {
        const float* row = draft.row(i * sequences + drafted);
        run.numbers->draft_logits.insert(run.numbers->draft_logits.end(), row, row + vocab);
      }
    }
    ++drafted;
  }

  Status cancel() {
    for (const Run& run : running_) engine_.release(run.lane);
    return unavailable("exact run: stopped before its end");
  }

  void retire() {
    for (Run& run : running_) {
      if (!run.is_done()) continue;
      engine_.release(run.lane);
      free_lanes_.push_back(run.lane);
      for (const BlockId block : run.blocks.blocks()) free_blocks_.push_back(block);
    }
    std::erase_if(running_, [](const Run& run) { return run.is_done(); });
  }

  Engine& engine_;
  std::vector<ExactPrompt>& prompts_;
  RunShape shape_;
  Rng rng_;
  std::vector<ExactNumbers> numbers_;
  std::vector<Run> running_;
  std::vector<int32_t> free_lanes_;
  std::vector<BlockId> free_blocks_;
  size_t next_prompt_ = 0;
  uint64_t num_steps_ = 0;
};

}  // namespace

Result<std::vector<ExactNumbers>> run_exact(Engine& engine, std::vector<ExactPrompt> prompts, const RunShape& shape,
                                            const std::function<bool()>& keep_going) {
  return ExactRunner(engine, prompts, shape).run(keep_going);
}

}  // namespace deepinfer
