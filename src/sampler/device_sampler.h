// SPDX-License-Identifier: MIT
// The sampler on a device: the same tokens as Sampler, bit for bit, from logits that never leave the device; only what
// was picked comes back. Drafts are picked there, too, behind the tokens that the same step picks, so nothing waits for
// the host between the two (start_drafts, pick_drafts).
//
// A step: prepare() and upload(), then pick(), start_drafts(), pick_drafts(0), pick_drafts(1) ..., bring(); behind a
// wait for the device read() and draft(). Launches return before they are done and may be recorded: what they depend on
// besides the tables is shape(). Thread: the device's caller.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "sampler/pick_tables.h"
#include "sampler/sampler.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

namespace deepinfer {

// A sequence that drafts behind its rows of this step. Borrowed for prepare().
struct DraftRow {
  const SamplingParams* params = nullptr;
  const TokenHistory* history = nullptr;  // as in SampleRow: without the tokens of this step
  int64_t first_row = 0, num_rows = 0;    // its target rows; none: the anchor is given
  std::optional<TokenId> anchor;          // drafts stand behind this token instead of the last one picked
  int64_t position_end = 0;               // of the row behind its last
  int64_t output_position = 0;            // output tokens before this step's
};

class DeviceSampler {
 public:
  struct Limits {
    int64_t vocab_size = 0, rows_max = 0, sequences_max = 0, verify_rows_max = 1, draft_block = 0;
  };
  // Null where the build has no picks on the device or the vocabulary is too large for them. Errors:
  // resource_exhausted.
  static Result<std::unique_ptr<DeviceSampler>> create(Device& device, const Limits& limits);

  // False: more is asked for than the tables have room for (bad words of many tokens, edits of many rows); nothing has
  // changed, the host's sampler does. The tables of the step before have been read.
  // With `rows_padded` and `drafts_padded` of at least as many the last of each stands there several times, so that
  // there are few shapes; what comes of those is not read.
  bool prepare(std::span<const SampleRow> rows, std::span<const DraftRow> drafts, int64_t rows_padded = 0,
               int64_t drafts_padded = 0);
  void upload();
  std::vector<int64_t> shape() const;

  void pick(PickLogits logits);
  void start_drafts(const DraftPlaces& places);
  void pick_drafts(int64_t i, PickLogits logits, const DraftPlaces& places);
  void bring();

  void read(std::span<SampledToken> out) const;
  TokenId draft(int64_t i, int64_t sequence) const;
  int64_t memory_bytes() const;

 private:
  DeviceSampler(Device& device, const Limits& limits);
  int32_t law_of(const SamplingParams& params, const TokenHistory* history);
  bool add_lists(const SamplingParams& params, const TokenHistory* history, PickLaw& law);
  bool add_row(const SampleRow& row);
  bool add_draft(const DraftRow& row);
  bool add_ids(std::span<const TokenId> ids);
  bool add_bad_words(const SamplingParams& params, const TokenHistory* history, PickLaw& law);
  int32_t place_of_edits(const PickLaw& law, bool has_mask, int64_t output_position);
  PickTables tables();
  SampledToken to_token(int64_t row) const;

  // Rows of a table that the host fills and, as far as it is filled, brings over.
  template <typename T>
  struct Filled {
    Buffer<T> host, on_device;
    int64_t size = 0;
    Filled() = default;
    Filled(Device& device, int64_t room) : host(device.staging(), room), on_device(device.memory(), room) {}
    bool add(const T& value) {
      if (size == host.size()) return false;
      host[size++] = value;
      return true;
    }
    void upload(Device& device) { device.copy(on_device.data(), host.data(), size * static_cast<int64_t>(sizeof(T))); }
  };

  // Copies of the last, without its edits: their place is the original's.
  template <typename T>
  static void repeat_last(Filled<T>& table, int64_t size) {
    T last = table.host[table.size - 1];
    last.edited = -1;
    while (table.size < size) CHECK(table.add(last));
  }

  Device& device_;
  Limits limits_;
  Filled<PickLaw> laws_;
  Filled<PickRow> rows_;
  Filled<PickDraft> drafts_;
  Filled<int32_t> ids_;
  Filled<PickHistory> history_;
  Filled<PickBias> biases_;
  Filled<PickWord> words_;
  Filled<uint32_t> masks_;
  std::vector<const SamplingParams*> law_params_;  // of laws_, in order
  size_t last_law_ = 0;
  int64_t num_edited_ = 0;
  int64_t num_rows_ = 0;  // without padding
  bool has_edits_ = false, has_draft_edits_ = false, has_logprobs_ = false;

  Buffer<float> edited_;
  Buffer<PickPiece> pieces_;
  Buffer<uint64_t> keys_;
  Buffer<int32_t> chosen_, num_chosen_;
  Buffer<int64_t> draft_output_position_;
  Buffer<PickedRow> picked_, host_picked_;
  Buffer<LikelyLogit> likely_, host_likely_;
  Buffer<int32_t> draft_ids_, host_draft_ids_;
};

}  // namespace deepinfer
