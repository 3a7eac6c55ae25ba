// SPDX-License-Identifier: MIT
#include "sampler/row_edits.h"

#include <algorithm>
#include <limits>

#include "sampler/row_scan.h"

namespace deepinfer {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

void penalise(const SamplingParams& p, const TokenHistory::Entry& entry, int32_t num_outputs, float& logit) {
  if (entry.is_in_prompt || num_outputs > 0)
    logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
  if (num_outputs > 0) logit -= p.frequency_penalty * static_cast<float>(num_outputs) + p.presence_penalty;
}

bool has_penalties(const SamplingParams& p) {
  return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
}
bool masks_ends(const SampleRow& row) { return row.output_position < row.params->min_tokens || row.params->ignore_eos; }

// Drafted tokens count as output, though the history does not hold them yet.
void apply_penalties(const SampleRow& row, std::span<float> logits) {
  const SamplingParams& p = *row.params;
  if (!has_penalties(p)) return;
  const auto num_drafted = [&](TokenId id) { return static_cast<int32_t>(std::ranges::count(row.drafted, id)); };
  for (const TokenHistory::Entry& entry : row.history->entries())
    if (entry.id >= 0)
      penalise(p, entry, entry.num_outputs + num_drafted(entry.id), logits[static_cast<size_t>(entry.id)]);
  for (size_t i = 0; i < row.drafted.size(); ++i) {
    const TokenId id = row.drafted[i];
    const bool is_first = std::ranges::find(row.drafted.first(i), id) == row.drafted.first(i).end();
    const TokenHistory::Entry entry = row.history->find(id);
    if (is_first && !entry.is_in_prompt && entry.num_outputs == 0)
      penalise(p, entry, num_drafted(id), logits[static_cast<size_t>(id)]);
  }
}

void apply_mask(std::span<const uint32_t> mask, std::span<float> logits) {
  CHECK(mask.size() * 32 >= logits.size());
  for (size_t word = 0; word * 32 < logits.size(); ++word) {
    if (mask[word] == ~uint32_t{0}) continue;
    const std::span<float> run = logits.subspan(word * 32, std::min<size_t>(32, logits.size() - word * 32));
    for (size_t bit = 0; bit < run.size(); ++bit)
      if ((mask[word] >> bit & 1) == 0) run[bit] = kMasked;
  }
}

// The tokens right before this row, newest last: the history's, then the drafted ones.
TokenId recent(const SampleRow& row, size_t back) {
  const size_t num_drafted = row.drafted.size();
  if (back < num_drafted) return row.drafted[num_drafted - 1 - back];
  const std::span<const TokenId> tail = row.history->tail();
  return back - num_drafted < tail.size() ? tail[tail.size() - 1 - (back - num_drafted)] : -1;
}

bool stands_before(const SampleRow& row, std::span<const TokenId> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (recent(row, i) != tokens[tokens.size() - 1 - i]) return false;
  return true;
}

void apply_bad_words(const SampleRow& row, std::span<float> logits) {
  for (const std::vector<TokenId>& word : row.params->bad_words)
    if (stands_before(row, std::span(word).first(word.size() - 1))) logits[static_cast<size_t>(word.back())] = kMasked;
}

// Masks the ends, or changes nothing where no other token would be left.
void apply_end_mask(const SampleRow& row, std::span<float> logits) {
  const SamplingParams& p = *row.params;
  const bool is_early = row.output_position < p.min_tokens;
  if (!masks_ends(row)) return;
  std::array<float, 2 * kStopIdsMax> kept;
  size_t num_kept = 0;
  const auto mask = [&](std::span<const TokenId> ids) {
    for (const TokenId id : ids) {
      kept[num_kept++] = logits[static_cast<size_t>(id)];
      logits[static_cast<size_t>(id)] = kMasked;
    }
  };
  const auto unmask = [&](std::span<const TokenId> ids) {  // backwards, so that an id named twice gets its first value
    for (size_t i = ids.size(); i > 0; --i) logits[static_cast<size_t>(ids[i - 1])] = kept[--num_kept];
  };
  const std::span<const TokenId> stop_ids =
      is_early ? std::span<const TokenId>(p.stop_ids) : std::span<const TokenId>();
  mask(p.eos_ids);
  mask(stop_ids);
  if (max_of(logits) != kMasked) return;
  unmask(stop_ids);
  unmask(p.eos_ids);
}

}  // namespace

bool has_edits(const SampleRow& row) {
  const SamplingParams& p = *row.params;
  return has_penalties(p) || !p.logit_bias.empty() || !row.mask.empty() || !p.bad_words.empty() || masks_ends(row);
}

void edit_row(const SampleRow& row, std::span<float> logits) {
  const SamplingParams& p = *row.params;
  apply_penalties(row, logits);
  for (const auto& [id, bias] : p.logit_bias) logits[static_cast<size_t>(id)] += bias;
  if (!row.mask.empty()) apply_mask(row.mask, logits);
  if (!p.bad_words.empty()) apply_bad_words(row, logits);
  apply_end_mask(row, logits);
}

}  // namespace deepinfer
