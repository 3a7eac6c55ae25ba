// SPDX-License-Identifier: MIT
#include "grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/token_masks.h"
#include "base/utf8.h"
#include "grammar/ebnf.h"
#include "grammar/regex_syntax.h"

namespace deepinfer {
namespace {

constexpr int64_t kOpenedMax = 64;  // bytes that the way to the end may grow by with one token
constexpr int64_t kMissedMax = 16;  // bytes by which it may be longer than bytes_to_end() says
constexpr size_t kBytesPerToken = 8;
constexpr size_t kUncertainDrafts = 1;
constexpr int kSpellingsMax = 256;  // of the first piece of a forced text
constexpr size_t kForetoldStatesMax = 20'000;
constexpr uint64_t kForcedWorkMax = 100'000;  // some milliseconds

// Forced text allows its own beginnings and nothing else.
bool may_be_forced(std::span<const uint32_t> row) {
  int num_allowed = 0;
  for (const uint32_t word : row) num_allowed += std::popcount(word);
  return num_allowed > 0 && num_allowed <= kSpellingsMax;
}

}  // namespace

Result<NodeId> add_grammar_source(GrammarProgram& program, const GrammarSource& source, const GrammarOptions& options) {
  if (source.text.size() > options.source_bytes_max)
    return resource_exhausted(
        fmt::format("grammar: {} bytes, the limit is {}", source.text.size(), options.source_bytes_max));
  switch (source.kind) {
    case GrammarSource::Kind::kJson:
      return add_json_schema(program, Json(true), {options.order, options.lenient, options.digits_only});
    case GrammarSource::Kind::kJsonSchema: {
      JsonLimits limits;
      limits.depth_max = 512;
      limits.wide_integers = true;
      limits.refuse_duplicate_keys = false;
      ASSIGN_OR_RETURN(const Json schema, parse_json(source.text, limits));
      return add_json_schema(program, schema, {options.order, options.lenient, options.digits_only});
    }
    case GrammarSource::Kind::kRegex: {
      ASSIGN_OR_RETURN(const RegexId regex, parse_regex(program.regexes, source.text, RegexDialect::kRe2));
      return program.add_raw(program.regexes.has_text(regex) ? regex : RegexPool::kNone);
    }
    case GrammarSource::Kind::kEbnf: return add_ebnf(program, source.text);
    case GrammarSource::Kind::kChoice: {
      std::vector<std::u32string> texts;
      for (const std::string& choice : source.choices) {
        std::u32string& text = texts.emplace_back();
        for (std::string_view rest = choice; !rest.empty();) {
          const CodePoint c = decode_utf8(rest);
          if (c.num_bytes == 0) return invalid_argument("choice: not valid UTF-8");
          text.push_back(c.value);
          rest.remove_prefix(c.num_bytes);
        }
      }
      return program.add_raw(program.regexes.any_of(std::move(texts)));
    }
  }
  return internal_error("unknown kind of grammar");
}

Result<std::shared_ptr<Grammar>> Grammar::compile(const GrammarSource& source, std::shared_ptr<const TokenIndex> index,
                                                  const GrammarOptions& options) {
  return compile([&](GrammarProgram& program) { return add_grammar_source(program, source, options); },
                 std::move(index), options);
}

Result<std::shared_ptr<Grammar>> Grammar::compile(const Build& build, std::shared_ptr<const TokenIndex> index,
                                                  const GrammarOptions& options) {
  auto program = std::make_unique<GrammarProgram>();
  program->regexes.watch(options.keep_going);
  auto start = build(*program);
  if (program->regexes.is_stopped()) return unavailable("grammar: compiling took too long or was given up");
  if (!start.ok()) return start.status();
  program->start = *start;
  program->regexes.watch(nullptr);
  program->flexible_space = options.flexible_space;
  if (program->regexes.is_full()) return resource_exhausted("grammar: larger than the limit");
  std::shared_ptr<Grammar> grammar = adopt(std::move(program), std::move(index), options);
  if (!grammar->machine_.failure().empty()) return resource_exhausted("grammar: " + grammar->machine_.failure());
  return grammar;
}

std::shared_ptr<Grammar> Grammar::adopt(std::unique_ptr<GrammarProgram> program,
                                        std::shared_ptr<const TokenIndex> index, const GrammarOptions& options) {
  if (!program->has_text()) program->start = program->add_raw(RegexPool::kNone);
  program->find_nullable();
  return std::shared_ptr<Grammar>(new Grammar(std::move(program), std::move(index), options));
}

StateId Grammar::step_locked(StateId state, std::string_view bytes) {
  for (size_t i = 0; i < bytes.size() && state != Machine::kDead; ++i)
    state = machine_.step(state, static_cast<uint8_t>(bytes[i]));
  return state;
}

StateId Grammar::step_locked(StateId state, TokenId token) {
  const Tokenizer& tokenizer = index_->tokenizer();
  if (tokenizer.is_control(token)) return machine_.step_token(state, token);
  const std::string_view bytes = tokenizer.token_bytes(token);
  return bytes.empty() ? Machine::kDead : step_locked(state, bytes);
}

StateId Grammar::step(StateId state, TokenId token) {
  const std::lock_guard lock(mutex_);
  return step_locked(state, token);
}

StateId Grammar::step_bytes(StateId state, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  return step_locked(state, bytes);
}

bool Grammar::is_accepting(StateId state) {
  const std::lock_guard lock(mutex_);
  return machine_.is_accepting(state);
}

Status Grammar::fill_mask(StateId state, std::span<uint32_t> row) {
  WorkBudget unlimited;
  return try_fill_mask(state, row, unlimited).status();
}

Result<bool> Grammar::try_fill_mask(StateId state, std::span<uint32_t> row, WorkBudget& budget) {
  const std::lock_guard lock(mutex_);
  return fill_locked(state, row, budget);
}

std::optional<StateId> Grammar::look_up_step(StateId state, TokenId token) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const std::string_view bytes = index_->tokenizer().token_bytes(token);
  if (!lock.owns_lock() || index_->tokenizer().is_control(token) || bytes.empty()) return std::nullopt;
  std::optional<StateId> at = state;
  for (size_t i = 0; i < bytes.size() && at; ++i) at = machine_.look_up_step(*at, static_cast<uint8_t>(bytes[i]));
  return at;
}

bool Grammar::look_up_mask(StateId state, std::span<uint32_t> row) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !machine_.failure().empty()) return false;
  std::ranges::fill(row, 0u);
  if (!masks_.look_up(state, row.first(index_->num_words()))) return false;
  add_controls(state, row);
  return true;
}

void Grammar::add_controls(StateId state, std::span<uint32_t> row) {
  controls_.clear();
  machine_.next_controls(state, controls_);
  for (const TokenId id : controls_) allow(row, id);
  if (machine_.is_accepting(state))
    for (const TokenId id : options_.end_ids) allow(row, id);
}

Result<bool> Grammar::fill_locked(StateId state, std::span<uint32_t> row, WorkBudget& budget) {
  std::ranges::fill(row, 0u);
  const bool is_whole = masks_.add(state, row.first(index_->num_words()), budget);
  add_controls(state, row);
  if (!machine_.failure().empty()) return resource_exhausted("grammar: " + machine_.failure());
  return is_whole;
}

Status Grammar::fill_mask_within(StateId state, int64_t room, std::span<uint32_t> row) {
  WorkBudget unlimited;
  return try_fill_mask_within(state, room, row, unlimited).status();
}

Result<bool> Grammar::try_fill_mask_within(StateId state, int64_t room, std::span<uint32_t> row, WorkBudget& budget) {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(const bool is_whole, fill_locked(state, row, budget));
  if (!is_whole) return false;
  // A token is at least a byte, so bytes are room enough; a token may open more than it writes.
  const auto bytes = [&](StateId s) { return static_cast<int64_t>(machine_.bytes_to_end(s)); };
  if (bytes(state) + kOpenedMax + kMissedMax < room) return true;
  std::vector<std::pair<TokenId, int64_t>> ways;
  int64_t least = INT64_MAX;
  for (TokenId id = 0; id < static_cast<TokenId>(index_->vocab_size()); ++id) {
    if (!is_allowed(row, id)) continue;
    const uint64_t before = machine_.work();
    const bool is_end = std::ranges::find(options_.end_ids, id) != options_.end_ids.end();
    ways.emplace_back(id, is_end ? -1 : bytes(step_locked(state, id)));
    least = std::min(least, ways.back().second);
    budget.spend(machine_.work() - before);
    if (budget.is_spent()) return false;
  }
  const int64_t most = std::max(least, room - 2 - kMissedMax);  // this token and the end take one each
  for (const auto& [id, needed] : ways)
    if (needed > most) forbid(row, id);
  return true;
}

std::vector<Grammar::Forced> Grammar::forced(StateId state, size_t bytes_max) {
  const std::lock_guard lock(mutex_);
  return forced_locked(state, bytes_max);
}

std::vector<Grammar::Forced> Grammar::forced_locked(StateId state, size_t bytes_max) {
  std::vector<Forced> all(1);
  const uint64_t work_end = machine_.work() + kForcedWorkMax;
  for (size_t num_bytes = 0; num_bytes < bytes_max && state != Machine::kDead && !machine_.is_accepting(state);) {
    if (machine_.work() > work_end) break;
    controls_.clear();
    machine_.next_controls(state, controls_);
    std::ranges::sort(controls_);
    controls_.erase(std::unique(controls_.begin(), controls_.end()), controls_.end());
    const std::array<uint64_t, 4> live = machine_.live_bytes(state);
    StateId only = Machine::kDead;
    size_t byte_of_way = 0, num_ways = controls_.size();
    for (size_t byte = 0; byte < 256 && num_ways < 2; ++byte) {
      if ((live[byte >> 6] >> (byte & 63) & 1) == 0) continue;
      const StateId next = machine_.step(state, static_cast<uint8_t>(byte));
      if (next == Machine::kDead) continue;
      ++num_ways;
      only = next;
      byte_of_way = byte;
    }
    if (num_ways != 1) break;
    ++num_bytes;
    if (controls_.empty()) {
      all.back().text.push_back(static_cast<char>(byte_of_way));
      state = only;
    } else {
      all.back().control = controls_[0];
      state = machine_.step_token(state, controls_[0]);
      all.emplace_back();
    }
  }
  return all;
}

std::vector<TokenId> Grammar::forced_tokens(StateId state, size_t tokens_max, size_t num_uncertain) {
  const std::lock_guard lock(mutex_);
  return forced_tokens_locked(state, tokens_max, num_uncertain);
}

std::vector<TokenId> Grammar::forced_tokens_locked(StateId state, size_t tokens_max, size_t num_uncertain) {
  std::vector<TokenId> tokens;
  for (const Forced& piece : forced_locked(state, tokens_max * kBytesPerToken)) {
    std::vector<TokenId> ids = index_->tokenizer().encode(piece.text);
    // A control token ends the text before it; what stands at the end could merge with what follows.
    if (piece.control < 0) ids.resize(ids.size() - std::min(ids.size(), num_uncertain));
    else ids.push_back(piece.control);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }
  tokens.resize(std::min(tokens.size(), tokens_max));
  return tokens;
}

std::vector<TokenId> Grammar::foretell(StateId state, std::span<const uint32_t> row) {
  if (!may_be_forced(row)) return {};
  const std::lock_guard lock(mutex_);
  if (foretold_.size() > kForetoldStatesMax) foretold_.clear();
  const auto [at, is_new] = foretold_.try_emplace(state);
  if (is_new) at->second = forced_tokens_locked(state, kForetoldMax, kUncertainDrafts);
  return at->second;
}

std::optional<std::vector<TokenId>> Grammar::look_up_foretold(StateId state, std::span<const uint32_t> row) {
  if (!may_be_forced(row)) return std::vector<TokenId>();
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return std::nullopt;
  const auto known = foretold_.find(state);
  return known == foretold_.end() ? std::optional<std::vector<TokenId>>() : known->second;
}

Grammar::Size Grammar::size() {
  const std::lock_guard lock(mutex_);
  return {machine_.program().nodes.size(), machine_.num_states(), machine_.num_bytes(), masks_.num_masks(),
          masks_.num_bytes()};
}

}  // namespace deepinfer
