// SPDX-License-Identifier: MIT
// A compiled grammar with its masks over one vocabulary. All matchers of a grammar share its lazily built states and
// cached masks behind one lock, so any number of threads may use it. A mask depends on the matcher's position alone.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/status.h"
#include "grammar/json_schema.h"
#include "grammar/machine.h"
#include "grammar/mask_maker.h"
#include "grammar/token_index.h"

namespace deepinfer {

struct GrammarSource {
  enum class Kind { kJsonSchema, kJson, kRegex, kEbnf, kChoice };
  Kind kind = Kind::kJson;
  std::string text;                  // schema, pattern or rules
  std::vector<std::string> choices;  // kChoice
};

struct GrammarOptions {
  PropertyOrder order = PropertyOrder::kSchema;
  bool flexible_space = true;  // the white-space policy of machine.h; false: none
  bool lenient = false;
  bool digits_only = false;      // json_schema.h
  std::vector<TokenId> end_ids;  // allowed exactly where the text may end
  size_t source_bytes_max = size_t{4} << 20;
  size_t mask_cache_bytes_max = size_t{64} << 20;
  // Asked now and then while compiling; false ends it as unavailable. No part of what the grammar is.
  std::function<bool()> keep_going;
};

// Adds a source's texts to a program. Errors: those of the front end; resource_exhausted beyond a limit.
Result<NodeId> add_grammar_source(GrammarProgram& program, const GrammarSource& source, const GrammarOptions& options);

class Grammar {
 public:
  // Errors: those of the front end; resource_exhausted beyond a limit.
  static Result<std::shared_ptr<Grammar>> compile(const GrammarSource& source, std::shared_ptr<const TokenIndex> index,
                                                  const GrammarOptions& options = {});
  // The program that `build` makes; it returns the start node.
  using Build = std::function<Result<NodeId>(GrammarProgram& program)>;
  static Result<std::shared_ptr<Grammar>> compile(const Build& build, std::shared_ptr<const TokenIndex> index,
                                                  const GrammarOptions& options);
  // For front ends that build a program themselves.
  static std::shared_ptr<Grammar> adopt(std::unique_ptr<GrammarProgram> program,
                                        std::shared_ptr<const TokenIndex> index, const GrammarOptions& options);

  StateId start() const { return machine_.start(); }
  // No text at all satisfies the grammar.
  bool is_empty() const { return machine_.start() == Machine::kDead; }
  // The state after a token's bytes (or a control token the grammar names); kDead when the token does not fit.
  StateId step(StateId state, TokenId token);
  StateId step_bytes(StateId state, std::string_view bytes);
  bool is_accepting(StateId state);
  // Sets the allowed bits of the row and clears the others. resource_exhausted when the grammar hit a limit.
  Status fill_mask(StateId state, std::span<uint32_t> row);
  // The same within a budget; false when it was used up first: the row holds nothing of use then.
  Result<bool> try_fill_mask(StateId state, std::span<uint32_t> row, WorkBudget& budget);
  // step() and fill_mask() where that takes no more than looking up; nullopt and false where something has to be worked
  // out, or another thread is at it.
  std::optional<StateId> look_up_step(StateId state, TokenId token);
  bool look_up_mask(StateId state, std::span<uint32_t> row);
  // fill_mask() for a text that must end within `room` tokens, its end included: of the tokens those after which it
  // still can, as far as a way to the end is known; those that lead nearest to the end when there are none.
  Status fill_mask_within(StateId state, int64_t room, std::span<uint32_t> row);
  Result<bool> try_fill_mask_within(StateId state, int64_t room, std::span<uint32_t> row, WorkBudget& budget);
  // What must come next, up to `bytes_max` bytes, as text and control tokens in turn; stops where the text may end,
  // or where looking on takes long.
  struct Forced {
    std::string text;
    TokenId control = -1;  // behind the text; -1 only in the last one
  };
  std::vector<Forced> forced(StateId state, size_t bytes_max);
  // The same as tokens, as the tokenizer writes each text, without the last `num_uncertain` before what is not known:
  // they could merge with it.
  std::vector<TokenId> forced_tokens(StateId state, size_t tokens_max, size_t num_uncertain);
  // The tokens that a draft run should begin with: at most kForetoldMax of them, worth proposing but not certain, since
  // the same text may be spelt in other tokens. Empty for most states. `row` is the state's mask. Kept for each state.
  static constexpr size_t kForetoldMax = 15;
  std::vector<TokenId> foretell(StateId state, std::span<const uint32_t> row);
  // The same where that takes no more than looking up; nullopt elsewhere.
  std::optional<std::vector<TokenId>> look_up_foretold(StateId state, std::span<const uint32_t> row);
  // A short text that completes the state; its length is minimal except where members may be left out in several ways.
  std::optional<std::string> shortest_completion(StateId state, size_t bytes_max);

  const TokenIndex& index() const { return *index_; }
  const GrammarOptions& options() const { return options_; }
  struct Size {
    size_t nodes, states, machine_bytes, masks, mask_bytes;
  };
  Size size();

 private:
  Grammar(std::unique_ptr<GrammarProgram> program, std::shared_ptr<const TokenIndex> index,
          const GrammarOptions& options)
      : index_(std::move(index)),
        options_(options),
        machine_(std::move(program)),
        masks_(machine_, *index_, options.mask_cache_bytes_max) {
    options_.keep_going = nullptr;  // it may hold the request
  }

  std::vector<Forced> forced_locked(StateId state, size_t bytes_max);
  std::vector<TokenId> forced_tokens_locked(StateId state, size_t tokens_max, size_t num_uncertain);
  StateId step_locked(StateId state, std::string_view bytes);
  StateId step_locked(StateId state, TokenId token);
  Result<bool> fill_locked(StateId state, std::span<uint32_t> row, WorkBudget& budget);
  void add_controls(StateId state, std::span<uint32_t> row);

  std::shared_ptr<const TokenIndex> index_;
  GrammarOptions options_;
  std::mutex mutex_;
  Machine machine_;
  MaskMaker masks_;
  std::unordered_map<StateId, std::vector<TokenId>> foretold_;
  std::vector<TokenId> controls_;  // scratch
};

}  // namespace deepinfer
