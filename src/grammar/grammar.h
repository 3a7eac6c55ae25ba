// SPDX-License-Identifier: MIT
// A compiled grammar with its masks over one vocabulary. All matchers of a grammar share its lazily built states and
// cached masks behind one lock, so any number of threads may use it. A mask depends on the matcher's position alone.
#pragma once

#include <list>
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
  std::vector<TokenId> end_ids;  // allowed exactly where the text may end
  size_t source_bytes_max = size_t{4} << 20;
  size_t mask_cache_bytes_max = size_t{64} << 20;
};

class Grammar {
 public:
  // Errors: those of the front end; resource_exhausted beyond a limit.
  static Result<std::shared_ptr<Grammar>> compile(const GrammarSource& source, std::shared_ptr<const TokenIndex> index,
                                                  const GrammarOptions& options = {});
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
  // The bytes that must come next, up to `bytes_max`; stops where the text may end.
  std::string forced_bytes(StateId state, size_t bytes_max);
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
      : index_(std::move(index)), options_(options), machine_(std::move(program)) {}

  struct Mask {
    bool is_sparse = false;
    std::vector<uint32_t> words;  // the row, or the ids
    std::list<uint64_t>::iterator place;
  };
  StateId step_locked(StateId state, std::string_view bytes);
  // Adds the tokens of one tier to the row, from the cache or by a walk.
  void add_mask(StateId state, size_t tier, std::span<uint32_t> row);
  void compute_mask(StateId state, const TokenIndex::Tier& tier, std::span<uint32_t> row);
  template <typename Found>
  void walk(const TokenIndex::Trie& trie, StateId state, Found&& found);
  void remember(uint64_t key, std::span<const uint32_t> row);

  std::shared_ptr<const TokenIndex> index_;
  GrammarOptions options_;
  std::mutex mutex_;
  Machine machine_;
  std::unordered_map<uint64_t, Mask> masks_;                   // by state and tier
  std::unordered_map<uint64_t, std::vector<TokenId>> inside_;  // by body and tier; the first entry only marks it
  std::vector<uint32_t> scratch_;
  std::list<uint64_t> recent_;  // most recent first
  size_t mask_bytes_ = 0;
};

}  // namespace deepinfer
