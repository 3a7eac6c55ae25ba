// SPDX-License-Identifier: MIT
#include "sampler/device_sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/range.h"
#include "sampler/cuts.h"

namespace deepinfer {
namespace {

constexpr int64_t kVocabMax = int64_t{1} << 18;  // sums of 1,024 in the finishing block's memory
constexpr int64_t kIdsMax = 1 << 18;             // end-of-sequence ids, stop ids, bad words, drafted tokens of a step
constexpr int64_t kWordsMax = 1 << 16;
constexpr int64_t kHistoryMax = 1 << 18;  // distinct tokens of all sequences with penalties
constexpr int64_t kBiasesMax = 1 << 16;
constexpr int64_t kEditedBytesMax = int64_t{256} << 20;

bool has_penalties(const SamplingParams& p) {
  return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
}

int64_t edited_rows_max(const DeviceSampler::Limits& limits) {
  const int64_t fit = kEditedBytesMax / (limits.vocab_size * static_cast<int64_t>(sizeof(float)));
  return std::clamp<int64_t>(fit, 1, limits.rows_max);
}

}  // namespace

Result<std::unique_ptr<DeviceSampler>> DeviceSampler::create(Device& device, const Limits& limits) {
  if (!kDevicePicks || device.is_host() || limits.vocab_size > kVocabMax) return std::unique_ptr<DeviceSampler>();
  std::unique_ptr<DeviceSampler> sampler(new DeviceSampler(device, limits));
  TRY(device.status());
  return sampler;
}

DeviceSampler::DeviceSampler(Device& device, const Limits& limits) : device_(device), limits_(limits) {
  Memory& memory = device.memory();
  const int64_t rows = limits.rows_max, sequences = limits.sequences_max, both = std::max(rows, sequences),
                drafts = sequences * limits.draft_block;
  laws_ = Filled<PickLaw>(device, both);
  rows_ = Filled<PickRow>(device, rows);
  drafts_ = Filled<PickDraft>(device, sequences);
  ids_ = Filled<int32_t>(device, kIdsMax);
  history_ = Filled<PickHistory>(device, kHistoryMax);
  biases_ = Filled<PickBias>(device, kBiasesMax);
  words_ = Filled<PickWord>(device, kWordsMax);
  masks_ = Filled<uint32_t>(device, edited_rows_max(limits) * ceil_div<int64_t>(limits.vocab_size, 32));
  edited_ = Buffer<float>(memory, edited_rows_max(limits) * limits.vocab_size);
  pieces_ = Buffer<PickPiece>(memory, both * kPickPieces);
  keys_ = Buffer<uint64_t>(memory, std::min<int64_t>(both, kPickFinishBlocks) *
                                       static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(limits.vocab_size))));
  chosen_ = Buffer<int32_t>(memory, sequences * (limits.verify_rows_max + limits.draft_block));
  num_chosen_ = Buffer<int32_t>(memory, sequences);
  draft_output_position_ = Buffer<int64_t>(memory, sequences);
  picked_ = Buffer<PickedRow>(memory, rows);
  likely_ = Buffer<LikelyLogit>(memory, rows * kTopLogprobsMax);
  draft_ids_ = Buffer<int32_t>(memory, drafts);
  host_picked_ = Buffer<PickedRow>(device.staging(), rows);
  host_likely_ = Buffer<LikelyLogit>(device.staging(), rows * kTopLogprobsMax);
  host_draft_ids_ = Buffer<int32_t>(device.staging(), drafts);
}

bool DeviceSampler::add_ids(std::span<const TokenId> ids) {
  return std::ranges::all_of(ids, [&](TokenId id) { return ids_.add(id); });
}

bool DeviceSampler::add_bad_words(const SamplingParams& p, const TokenHistory* history, PickLaw& law) {
  law.words_begin = static_cast<int32_t>(words_.size);
  for (const std::vector<TokenId>& word : p.bad_words) {
    const int32_t begin = static_cast<int32_t>(ids_.size);
    if (!add_ids(word) || !words_.add({begin, static_cast<int32_t>(ids_.size)})) return false;
  }
  law.words_end = static_cast<int32_t>(words_.size);
  law.tail_begin = static_cast<int32_t>(ids_.size);
  if (!p.bad_words.empty() && !add_ids(history->tail())) return false;
  law.tail_end = static_cast<int32_t>(ids_.size);
  return true;
}

bool DeviceSampler::add_lists(const SamplingParams& p, const TokenHistory* history, PickLaw& law) {
  law.eos_begin = static_cast<int32_t>(ids_.size);
  if (!add_ids(p.eos_ids)) return false;
  law.stop_begin = static_cast<int32_t>(ids_.size);
  if (!add_ids(p.stop_ids)) return false;
  law.stop_end = static_cast<int32_t>(ids_.size);
  law.bias_begin = static_cast<int32_t>(biases_.size);
  for (const auto& [id, bias] : p.logit_bias)
    if (!biases_.add({id, bias})) return false;
  law.bias_end = static_cast<int32_t>(biases_.size);
  law.history_begin = static_cast<int32_t>(history_.size);
  if (law.has_penalties)
    for (const TokenHistory::Entry& entry : history->entries())
      if (entry.id >= 0 && !history_.add({entry.id, entry.num_outputs, entry.is_in_prompt})) return false;
  law.history_end = static_cast<int32_t>(history_.size);
  return add_bad_words(p, history, law);
}

// Rows come sequence by sequence, and so do drafts: the law wanted is mostly the one used last, or the next. -1: no
// room.
int32_t DeviceSampler::law_of(const SamplingParams& p, const TokenHistory* history) {
  const size_t num = law_params_.size();
  for (size_t i = 0; i < num; ++i)
    if (const size_t at = (last_law_ + i) % num; law_params_[at] == &p) return static_cast<int32_t>(last_law_ = at);
  PickLaw law{.seed = p.seed,
              .min_tokens = p.min_tokens,
              .choice = p.choice,
              .temperature = p.temperature,
              .top_p = p.top_p,
              .min_p = p.min_p,
              .repetition_penalty = p.repetition_penalty,
              .frequency_penalty = p.frequency_penalty,
              .presence_penalty = p.presence_penalty,
              .top_k = p.top_k,
              .num_top_logprobs = p.top_logprobs.value_or(-1),
              .ignores_eos = p.ignore_eos,
              .is_processed = p.logprob_source == LogprobSource::kProcessed,
              .has_penalties = has_penalties(p),
              .is_greedy = p.temperature <= kGreedyTemperature,
              .has_cuts = has_cuts(p)};
  if (!add_lists(p, history, law) || !laws_.add(law)) return -1;
  has_logprobs_ = has_logprobs_ || p.top_logprobs;
  law_params_.push_back(&p);
  return static_cast<int32_t>(last_law_ = num);
}

// -1: nothing to edit; -2: no room.
int32_t DeviceSampler::place_of_edits(const PickLaw& law, bool has_mask, int64_t output_position) {
  const bool has_edits = law.has_penalties || law.bias_end > law.bias_begin || law.words_end > law.words_begin ||
                         has_mask || law.ignores_eos || output_position < law.min_tokens;
  if (!has_edits) return -1;
  return num_edited_ < edited_rows_max(limits_) ? static_cast<int32_t>(num_edited_++) : -2;
}

bool DeviceSampler::add_row(const SampleRow& row) {
  PickRow pick{.law = law_of(*row.params, row.history), .output_position = row.output_position};
  if (pick.law < 0) return false;
  pick.edited = place_of_edits(laws_.host[pick.law], !row.mask.empty(), row.output_position);
  if (pick.edited == -2) return false;
  has_edits_ = has_edits_ || pick.edited >= 0;
  pick.drafted_begin = static_cast<int32_t>(ids_.size);
  pick.num_drafted = static_cast<int32_t>(row.drafted.size());
  if (!add_ids(row.drafted)) return false;
  if (!row.mask.empty()) {
    const int64_t words = ceil_div<int64_t>(limits_.vocab_size, 32);
    CHECK(static_cast<int64_t>(row.mask.size()) >= words);
    pick.mask = static_cast<int32_t>(masks_.size / words);
    std::copy_n(row.mask.data(), words, masks_.host.data() + masks_.size);  // one place of edits each, so there is room
    masks_.size += words;
  }
  return rows_.add(pick);
}

bool DeviceSampler::add_draft(const DraftRow& row) {
  PickDraft draft{.law = law_of(*row.params, row.history),
                  .first_row = static_cast<int32_t>(row.first_row),
                  .num_rows = static_cast<int32_t>(row.num_rows),
                  .anchor = row.anchor.value_or(-1),
                  .position_end = static_cast<int32_t>(row.position_end),
                  .output_position = row.output_position};
  if (draft.law < 0) return false;
  draft.edited = place_of_edits(laws_.host[draft.law], false, row.output_position);
  if (draft.edited == -2) return false;
  has_draft_edits_ = has_draft_edits_ || draft.edited >= 0;
  return drafts_.add(draft);
}

bool DeviceSampler::prepare(std::span<const SampleRow> rows, std::span<const DraftRow> drafts, int64_t rows_padded,
                            int64_t drafts_padded) {
  laws_.size = rows_.size = drafts_.size = ids_.size = history_.size = biases_.size = words_.size = masks_.size = 0;
  law_params_.clear();
  last_law_ = 0;
  num_edited_ = 0;
  has_edits_ = has_draft_edits_ = has_logprobs_ = false;
  const bool rows_fit = std::ranges::all_of(rows, [&](const SampleRow& row) { return add_row(row); });
  num_edited_ = 0;  // the drafts' edits come when those of the rows have been read
  if (!rows_fit || !std::ranges::all_of(drafts, [&](const DraftRow& row) { return add_draft(row); })) return false;
  num_rows_ = rows_.size;
  if (num_rows_ > 0) repeat_last(rows_, rows_padded);
  if (drafts_.size > 0) repeat_last(drafts_, drafts_padded);
  return true;
}

void DeviceSampler::upload() {
  laws_.upload(device_);
  rows_.upload(device_);
  drafts_.upload(device_);
  ids_.upload(device_);
  history_.upload(device_);
  biases_.upload(device_);
  words_.upload(device_);
  masks_.upload(device_);
}

std::vector<int64_t> DeviceSampler::shape() const {
  return {rows_.size, drafts_.size, has_edits_, has_draft_edits_, has_logprobs_};
}

PickTables DeviceSampler::tables() {
  return {.laws = laws_.on_device.data(),
          .rows = rows_.on_device.data(),
          .drafts = drafts_.on_device.data(),
          .ids = ids_.on_device.data(),
          .history = history_.on_device.data(),
          .biases = biases_.on_device.data(),
          .words = words_.on_device.data(),
          .masks = masks_.on_device.data(),
          .mask_words = ceil_div<int64_t>(limits_.vocab_size, 32),
          .vocab = limits_.vocab_size,
          .edited = edited_.data(),
          .pieces = pieces_.data(),
          .keys = keys_.data(),
          .keys_per_row = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(limits_.vocab_size))),
          .picked = picked_.data(),
          .likely = likely_.data(),
          .chosen = chosen_.data(),
          .num_chosen = num_chosen_.data(),
          .chosen_max = limits_.verify_rows_max + limits_.draft_block,
          .draft_output_position = draft_output_position_.data(),
          .draft_ids = draft_ids_.data()};
}

void DeviceSampler::pick(PickLogits logits) {
  if (rows_.size == 0) return;
  CHECK(logits.size[0] == rows_.size && logits.size[1] == limits_.vocab_size);
  if (has_edits_) kDevicePicks->edit(device_.stream(), tables(), logits, -1);
  kDevicePicks->pick(device_.stream(), tables(), logits, -1, nullptr);
  device_.launched("pick");
}

void DeviceSampler::start_drafts(const DraftPlaces& places) {
  if (drafts_.size == 0) return;
  kDevicePicks->start_drafts(device_.stream(), tables(), places, drafts_.size);
  device_.launched("start_drafts");
}

void DeviceSampler::pick_drafts(int64_t i, PickLogits logits, const DraftPlaces& places) {
  CHECK(logits.size[0] == drafts_.size && i < limits_.draft_block);
  if (has_draft_edits_) kDevicePicks->edit(device_.stream(), tables(), logits, i);
  kDevicePicks->pick(device_.stream(), tables(), logits, i, places.previous);
  device_.launched("pick_drafts");
}

void DeviceSampler::bring() {
  const auto bring = [&](auto& host, const auto& from, int64_t num) {
    device_.copy(host.data(), from.data(), num * static_cast<int64_t>(sizeof *from.data()));
  };
  bring(host_picked_, picked_, rows_.size);
  if (has_logprobs_) bring(host_likely_, likely_, rows_.size * kTopLogprobsMax);
  bring(host_draft_ids_, draft_ids_, drafts_.size * limits_.draft_block);
}

// The last step of sampler.cc's write_logprobs, in the host's logarithm.
SampledToken DeviceSampler::to_token(int64_t row) const {
  const PickedRow& picked = host_picked_[row];
  SampledToken out{.id = picked.id, .error = static_cast<SampleError>(picked.error)};
  if (out.error != SampleError::kNone || laws_.host[rows_.host[row].law].num_top_logprobs < 0) return out;
  const double log_sum = std::log(picked.exp_sum);
  const auto logprob = [&](float logit) {
    return static_cast<float>(double{(logit - picked.max) / picked.temperature} - log_sum);
  };
  out.logprob = logprob(picked.logit);
  out.num_top_logprobs = picked.num_top;
  for (int32_t i = 0; i < picked.num_top; ++i) {
    const LikelyLogit& likely = host_likely_[row * kTopLogprobsMax + i];
    out.top_logprobs[static_cast<size_t>(i)] = {likely.id, logprob(likely.logit)};
  }
  return out;
}

void DeviceSampler::read(std::span<SampledToken> out) const {
  CHECK(static_cast<int64_t>(out.size()) == num_rows_);
  for (int64_t row = 0; row < num_rows_; ++row) out[static_cast<size_t>(row)] = to_token(row);
}

TokenId DeviceSampler::draft(int64_t i, int64_t sequence) const {
  DCHECK(sequence < drafts_.size && i < limits_.draft_block);
  return host_draft_ids_[i * drafts_.size + sequence];
}

int64_t DeviceSampler::memory_bytes() const {
  return edited_.size_bytes() + pieces_.size_bytes() + keys_.size_bytes() + masks_.on_device.size_bytes() +
         history_.on_device.size_bytes() + rows_.on_device.size_bytes() + laws_.on_device.size_bytes();
}

}  // namespace deepinfer
