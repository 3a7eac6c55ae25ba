// SPDX-License-Identifier: MIT
// The forward pass on a device whose memory is not the host's, without such a device (second_heap.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/philox.h"
#include "model/device_weights.h"
#include "model/forward.h"
#include "tensor/guarded_device.h"
#include "tensor/second_heap.h"

namespace deepinfer {
namespace {

std::shared_ptr<const ModelWeights> golden_weights() {
  auto checkpoint = Checkpoint::open(std::string(DEEPINFER_TESTDATA) + "/model_a");
  CHECK(checkpoint.ok());
  auto weights = ModelWeights::bind(std::make_shared<const Checkpoint>(std::move(checkpoint).value()));
  CHECK(weights.ok());
  return std::make_shared<const ModelWeights>(std::move(weights).value());
}

// A forward pass with caches of its own, on the host or on a device.
class Runner {
 public:
  Runner(std::shared_ptr<const ModelWeights> weights, Device* device, EngramTier tier = EngramTier::kFiles)
      : weights_(std::move(weights)), device_(device), scratch_(machine().memory()) {
    const ModelConfig& config = weights_->config();
    std::vector<int32_t> classes;
    for (int64_t id = 0; id < config.vocab_size; ++id)
      classes.push_back(static_cast<int32_t>(id % config.engram.num_token_classes));
    hasher_ = EngramHasher::make(config.engram, token_map_from_classes(classes).value()).value();
    kernels_ = KernelTable::resolve({Backend::kCpu, machine_cpu_level()}).value();
    if (device_) device_weights_ = DeviceWeights::upload(*weights_, *device_, tier).value();
    allocate(make_cache_layout(config, make_layer_roles(config).value(), config.draft.block_size + 1));
    const Forward::Parts parts{*weights_,  kernels_,  {.pool = nullptr, .scratch = &scratch_, .device = device_},
                               *exchange_, &*hasher_, device_ ? &device_weights_->views() : nullptr};
    forward_ =
        Forward::create(parts, caches_.layout,
                        {.rows_max = 160, .logits_rows_max = 8, .draft_sequences_max = 2, .records_graphs = false})
            .value();
  }

  // Sequences of these rows; n-grams see the rows of the step alone.
  std::vector<float> step(const std::vector<SequenceRows>& sequences, int64_t num_rows, uint64_t seed) {
    Rng rng(seed);
    std::vector<TokenId> tokens(static_cast<size_t>(num_rows)), ngrams;
    for (TokenId& token : tokens)
      token = static_cast<TokenId>(rng.below(static_cast<uint64_t>(weights_->config().vocab_size)));
    for (const SequenceRows& sequence : sequences)
      for (int64_t row = sequence.rows.begin; row < sequence.rows.end; ++row)
        for (int64_t back = 0; back < hasher_->look_back(); ++back)
          ngrams.push_back(row - back >= sequence.rows.begin ? tokens[static_cast<size_t>(row - back)]
                                                             : EngramHasher::kDead);
    Status status = forward_->begin({.tokens = tokens, .sequences = sequences, .ngrams = ngrams}, caches_);
    EXPECT_TRUE(status.ok()) << status.message();
    status = forward_->run();
    EXPECT_TRUE(status.ok()) << status.message();
    return values(forward_->logits());
  }

  std::vector<float> draft(const std::vector<DraftSequence>& sequences) {
    const Status status = forward_->draft(sequences, caches_);
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<float> all, confidences(sequences.size());
    std::vector<TokenId> previous;
    for (const DraftSequence& sequence : sequences) previous.push_back(sequence.anchor);
    for (int64_t i = 0; i < forward_->draft_block(); ++i) {
      const auto logits = values(forward_->draft_logits(i, previous, confidences));
      all.insert(all.end(), logits.begin(), logits.end());
      all.insert(all.end(), confidences.begin(), confidences.end());
      for (TokenId& token : previous) token = (token + 7) % static_cast<TokenId>(weights_->config().vocab_size);
    }
    return all;
  }

  // Each position takes the likeliest token of the one before: by the host between the positions, or by hooks that run
  // where the device's work does.
  std::vector<float> draft_greedily(const std::vector<DraftSequence>& sequences) {
    EXPECT_TRUE(forward_->draft(sequences, caches_).ok());
    std::vector<float> all, confidences(sequences.size());
    std::vector<TokenId> previous;
    for (const DraftSequence& sequence : sequences) previous.push_back(sequence.anchor);
    for (int64_t i = 0; i < forward_->draft_block(); ++i) {
      const auto logits = forward_->draft_logits(i, previous, confidences);
      for (size_t s = 0; s < sequences.size(); ++s) previous[s] = likeliest(logits, static_cast<int64_t>(s));
      all.insert(all.end(), logits.data, logits.data + logits.num_elements());
      all.insert(all.end(), confidences.begin(), confidences.end());
    }
    return all;
  }
  std::vector<float> draft_by_hooks(const std::vector<DraftSequence>& sequences) {
    std::vector<std::vector<float>> logits;
    const auto start = [&](const DraftInputs& inputs) {
      for (size_t s = 0; s < sequences.size(); ++s) {
        const int64_t first = static_cast<int64_t>(s) * inputs.block;
        inputs.tokens[first] = inputs.previous[s] = sequences[s].anchor;
        for (int64_t i = 0; i < inputs.block; ++i) {
          inputs.positions[first + i] = static_cast<int32_t>(sequences[s].position + i);
          inputs.window_end[first + i] = static_cast<int32_t>(sequences[s].position);
        }
      }
    };
    const auto pick = [&](int64_t, PickHooks::Logits row_logits, const DraftInputs& inputs) {
      logits.push_back(values(row_logits));
      for (size_t s = 0; s < sequences.size(); ++s) inputs.previous[s] = likeliest(row_logits, static_cast<int64_t>(s));
    };
    std::vector<DraftSequence> unknown = sequences;  // anchors and positions only the device knows
    for (DraftSequence& sequence : unknown) sequence.anchor = 0, sequence.position = 0;
    const PickHooks hooks{{}, [](PickHooks::Logits) {}, start, pick, [] {}};
    EXPECT_TRUE(forward_->pick_and_draft(unknown, caches_, hooks).ok());
    std::vector<float> all;
    const auto confidences = forward_->draft_confidences();
    for (size_t i = 0; i < logits.size(); ++i) {
      all.insert(all.end(), logits[i].begin(), logits[i].end());
      const auto own = confidences.subspan(i * sequences.size(), sequences.size());
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }

 private:
  static TokenId likeliest(View<const float, dim::rows, dim::vocab> logits, int64_t row) {
    return static_cast<TokenId>(std::max_element(logits.row(row), logits.row(row) + logits.size[1]) - logits.row(row));
  }
  Device& machine() { return device_ ? *device_ : host_device(); }
  static std::vector<float> values(View<const float, dim::rows, dim::vocab> view) {
    return {view.data, view.data + view.num_elements()};
  }
  void allocate(const CacheLayout& layout) {
    constexpr int64_t kLanes = 2, kBlocks = 4, kBlocksPerLane = 2;
    Memory& memory = machine().memory();
    rings_ = Buffer<uint8_t>(memory, layout.num_layers * kLanes * layout.ring_bytes());
    blocks_ = Buffer<uint8_t>(memory, kBlocks * layout.block_bytes);
    tails_ = Buffer<float>(
        memory, static_cast<int64_t>(layout.sources.size()) * kLanes * layout.tail_slots * 2 * layout.head_dim);
    table_ = Buffer<int32_t>(machine().staging(), kLanes * kBlocksPerLane);
    device_table_ = Buffer<int32_t>(memory, table_.size());
    caches_ = {.layout = layout,
               .num_lanes = kLanes,
               .num_blocks = kBlocks,
               .blocks_per_lane = kBlocksPerLane,
               .rings = rings_.data(),
               .blocks = blocks_.data(),
               .tails = tails_.data(),
               .block_table = table_.data(),
               .device_block_table = device_ ? device_table_.data() : table_.data()};
  }

  std::shared_ptr<const ModelWeights> weights_;
  Device* device_;
  Scratch scratch_;
  std::optional<EngramHasher> hasher_;
  KernelTable kernels_;
  std::unique_ptr<DeviceWeights> device_weights_;
  std::unique_ptr<ExpertExchange> exchange_ = make_local_expert_exchange();
  Buffer<uint8_t> rings_, blocks_;
  Buffer<float> tails_;
  Buffer<int32_t> table_, device_table_;
  Caches caches_;
  std::unique_ptr<Forward> forward_;
};

}  // namespace

// A prefill step whose first sequence lets rows go behind the last kv source, decode rows, then drafts.
TEST(ForwardOnADevice, GivesTheBitsOfTheHost) {
  const auto weights = golden_weights();
  for (const EngramTier tier : {EngramTier::kFiles, EngramTier::kPinned, EngramTier::kDevice}) {
    SCOPED_TRACE(to_string(tier));
    SecondHeap device;
    Runner host(weights, nullptr), split(weights, &device, tier);
    const std::vector<BlockId> first = {BlockId{3}, BlockId{1}}, second = {BlockId{2}};
    const std::vector<SequenceRows> prefill = {{.lane = 1,
                                                .rows = {0, 90},
                                                .position_begin = 0,
                                                .blocks = first,
                                                .num_logits_rows = 3,
                                                .decoder_begin = 40,
                                                .decoder_window_begin = 40},
                                               {.lane = 0, .rows = {90, 123}, .blocks = second, .num_logits_rows = 1}};
    EXPECT_EQ(split.step(prefill, 123, 1), host.step(prefill, 123, 1));
    const std::vector<SequenceRows> decode = {
        {.lane = 0, .rows = {0, 1}, .position_begin = 33, .blocks = second, .num_logits_rows = 1},
        {.lane = 1,
         .rows = {1, 4},
         .position_begin = 90,
         .blocks = first,
         .num_logits_rows = 3,
         .decoder_window_begin = 40}};
    for (uint64_t seed = 2; seed < 4; ++seed) EXPECT_EQ(split.step(decode, 4, seed), host.step(decode, 4, seed));
    const std::vector<DraftSequence> drafts = {{.lane = 0, .position = 34, .anchor = 5},
                                               {.lane = 1, .position = 93, .anchor = 9, .window_begin = 40}};
    EXPECT_EQ(split.draft(drafts), host.draft(drafts));
    EXPECT_EQ(split.draft_by_hooks(drafts), host.draft_greedily(drafts));
  }
}

// Every op writes within its buffers: prompts, decode rows, drafts.
TEST(ForwardOnADevice, NoOpWritesBeyondABuffer) {
  const auto weights = golden_weights();
  const auto device = guard_memory(std::make_unique<SecondHeap>(), {.checks_each_op = true});
  {
    Runner host(weights, nullptr), guarded(weights, device.get());
    const std::vector<BlockId> blocks = {BlockId{3}, BlockId{1}};
    const std::vector<SequenceRows> prefill = {
        {.lane = 1, .rows = {0, 160}, .position_begin = 0, .blocks = blocks, .num_logits_rows = 3}};
    EXPECT_EQ(guarded.step(prefill, 160, 1), host.step(prefill, 160, 1));
    const std::vector<SequenceRows> decode = {
        {.lane = 1, .rows = {0, 3}, .position_begin = 160, .blocks = blocks, .num_logits_rows = 3}};
    EXPECT_EQ(guarded.step(decode, 3, 2), host.step(decode, 3, 2));
    const std::vector<DraftSequence> drafts = {{.lane = 1, .position = 163, .anchor = 5}};
    EXPECT_EQ(guarded.draft(drafts), host.draft(drafts));
    EXPECT_TRUE(device->wait().ok()) << device->wait().message();
  }
  EXPECT_TRUE(device->status().ok()) << device->status().message();
}

}  // namespace deepinfer
