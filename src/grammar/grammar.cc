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

constexpr size_t kSparseIdsMax = 512;

Result<NodeId> add_source(GrammarProgram& program, const GrammarSource& source, const GrammarOptions& options) {
  switch (source.kind) {
    case GrammarSource::Kind::kJson: return add_json_schema(program, Json(true), {options.order, options.lenient});
    case GrammarSource::Kind::kJsonSchema: {
      JsonLimits limits;
      limits.depth_max = 512;
      limits.wide_integers = true;
      limits.refuse_duplicate_keys = false;
      ASSIGN_OR_RETURN(const Json schema, parse_json(source.text, limits));
      return add_json_schema(program, schema, {options.order, options.lenient});
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

}  // namespace

Result<std::shared_ptr<Grammar>> Grammar::compile(const GrammarSource& source, std::shared_ptr<const TokenIndex> index,
                                                  const GrammarOptions& options) {
  if (source.text.size() > options.source_bytes_max)
    return resource_exhausted(
        fmt::format("grammar: {} bytes, the limit is {}", source.text.size(), options.source_bytes_max));
  auto program = std::make_unique<GrammarProgram>();
  ASSIGN_OR_RETURN(program->start, add_source(*program, source, options));
  program->flexible_space = options.flexible_space;
  if (program->regexes.is_full()) return resource_exhausted("grammar: larger than the limit");
  std::shared_ptr<Grammar> grammar = adopt(std::move(program), std::move(index), options);
  if (!grammar->machine_.failure().empty()) return resource_exhausted("grammar: " + grammar->machine_.failure());
  return grammar;
}

std::shared_ptr<Grammar> Grammar::adopt(std::unique_ptr<GrammarProgram> program,
                                        std::shared_ptr<const TokenIndex> index, const GrammarOptions& options) {
  program->find_nullable();
  return std::shared_ptr<Grammar>(new Grammar(std::move(program), std::move(index), options));
}

StateId Grammar::step_locked(StateId state, std::string_view bytes) {
  for (size_t i = 0; i < bytes.size() && state != Machine::kDead; ++i)
    state = machine_.step(state, static_cast<uint8_t>(bytes[i]));
  return state;
}

StateId Grammar::step(StateId state, TokenId token) {
  const std::lock_guard lock(mutex_);
  const Tokenizer& tokenizer = index_->tokenizer();
  if (tokenizer.is_control(token)) return machine_.step_token(state, token);
  const std::string_view bytes = tokenizer.token_bytes(token);
  return bytes.empty() ? Machine::kDead : step_locked(state, bytes);
}

StateId Grammar::step_bytes(StateId state, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  return step_locked(state, bytes);
}

bool Grammar::is_accepting(StateId state) {
  const std::lock_guard lock(mutex_);
  return machine_.is_accepting(state);
}

// Visits the trie nodes whose bytes lead to a live state.
template <typename Found>
void Grammar::walk(const TokenIndex::Trie& trie, StateId state, Found&& found) {
  std::array<StateId, 257> states;
  states[0] = state;
  for (size_t i = 0; i < trie.size();) {
    const TokenIndex::Node& node = trie[i];
    const StateId next = machine_.step(states[node.depth], node.byte);
    if (next == Machine::kDead) {
      i = node.next;
      continue;
    }
    states[node.depth + 1u] = next;
    if (node.token >= 0) found(node.token);
    ++i;
  }
}

void Grammar::compute_mask(StateId state, const TokenIndex::Tier& tier, std::span<uint32_t> row) {
  std::ranges::fill(row, 0u);
  const auto set = [&](TokenId id) { allow(row, id); };
  const uint32_t absorbed = machine_.num_absorbed(state, TokenIndex::plain_chars());
  const bool is_body = machine_.is_body(state);
  if (absorbed == 0 || (!is_body && absorbed < tier.plain_masks.size())) {
    walk(tier.all, state, set);
    return;
  }
  std::ranges::copy(tier.plain_masks[std::min<size_t>(absorbed, tier.plain_masks.size()) - 1], row.begin());
  if (!is_body || absorbed < tier.chars_before_quote_max || !machine_.may_close(state)) {
    walk(tier.not_plain, state, set);
    return;
  }
  const StateId after = machine_.step(state, '"');
  std::ranges::for_each(tier.quote_ends, set);
  walk(tier.after_quote, after,
       [&](TokenId list) { std::ranges::for_each(tier.quoted[static_cast<size_t>(list)], set); });
  walk(tier.other_quoted, state, set);
  // The same for every string of this language, whatever follows it.
  const StateId body = machine_.body_alone(state);
  const uint64_t key = uint64_t{body} << 2 | static_cast<uint64_t>(&tier - index_->tiers().data());
  std::vector<TokenId>& inside = inside_[key];
  if (inside.empty()) {
    inside.push_back(-1);
    walk(tier.other, body, [&](TokenId id) { inside.push_back(id); });
  }
  for (size_t i = 1; i < inside.size(); ++i) allow(row, inside[i]);
}

void Grammar::add_mask(StateId state, size_t tier, std::span<uint32_t> row) {
  const TokenIndex::Tier& tokens = index_->tiers()[tier];
  const StateId same = machine_.saturated(state, static_cast<int>(tier), tokens.token_bytes_max);
  const uint64_t key = uint64_t{same} << 1 | tier;
  const auto known = masks_.find(key);
  if (known == masks_.end()) {
    scratch_.resize(row.size());
    compute_mask(same, tokens, scratch_);
    for (size_t i = 0; i < row.size(); ++i) row[i] |= scratch_[i];
    remember(key, scratch_);
    return;
  }
  const Mask& mask = known->second;
  if (mask.is_sparse) {
    for (const uint32_t id : mask.words) allow(row, static_cast<TokenId>(id));
  } else {
    for (size_t i = 0; i < row.size(); ++i) row[i] |= mask.words[i];
  }
  recent_.splice(recent_.begin(), recent_, mask.place);
}

Status Grammar::fill_mask(StateId state, std::span<uint32_t> row) {
  const std::lock_guard lock(mutex_);
  std::ranges::fill(row, 0u);
  const std::span<uint32_t> used = row.first(index_->num_words());
  for (size_t tier = 0; tier < index_->tiers().size(); ++tier) add_mask(state, tier, used);
  std::vector<TokenId> controls;
  machine_.next_controls(state, controls);
  for (const TokenId id : controls) allow(used, id);
  if (machine_.is_accepting(state))
    for (const TokenId id : options_.end_ids) allow(used, id);
  if (!machine_.failure().empty()) return resource_exhausted("grammar: " + machine_.failure());
  return {};
}

void Grammar::remember(uint64_t key, std::span<const uint32_t> row) {
  Mask mask;
  size_t num_ids = 0;
  for (const uint32_t word : row) num_ids += static_cast<size_t>(std::popcount(word));
  mask.is_sparse = num_ids <= kSparseIdsMax;
  if (mask.is_sparse) {
    for (size_t w = 0; w < row.size(); ++w)
      for (uint32_t bits = row[w]; bits != 0; bits &= bits - 1)
        mask.words.push_back(static_cast<uint32_t>(w * 32 + static_cast<size_t>(std::countr_zero(bits))));
  } else {
    mask.words.assign(row.begin(), row.end());
  }
  recent_.push_front(key);
  mask.place = recent_.begin();
  mask_bytes_ += mask.words.size() * 4 + 96;
  masks_.emplace(key, std::move(mask));
  while (mask_bytes_ > options_.mask_cache_bytes_max && recent_.size() > 1) {
    const auto oldest = masks_.find(recent_.back());
    mask_bytes_ -= oldest->second.words.size() * 4 + 96;
    masks_.erase(oldest);
    recent_.pop_back();
  }
}

std::string Grammar::forced_bytes(StateId state, size_t bytes_max) {
  const std::lock_guard lock(mutex_);
  std::string forced;
  while (forced.size() < bytes_max && state != Machine::kDead && !machine_.is_accepting(state)) {
    std::vector<TokenId> controls;
    machine_.next_controls(state, controls);
    StateId only = Machine::kDead;
    int num_ways = controls.empty() ? 0 : 2, byte_of_way = 0;
    for (int byte = 0; byte < 256 && num_ways < 2; ++byte) {
      const StateId next = machine_.step(state, static_cast<uint8_t>(byte));
      if (next == Machine::kDead) continue;
      ++num_ways;
      only = next;
      byte_of_way = byte;
    }
    if (num_ways != 1) break;
    forced.push_back(static_cast<char>(byte_of_way));
    state = only;
  }
  return forced;
}

Grammar::Size Grammar::size() {
  const std::lock_guard lock(mutex_);
  return {machine_.program().nodes.size(), machine_.num_states(), machine_.num_bytes(), masks_.size(), mask_bytes_};
}

}  // namespace deepinfer
