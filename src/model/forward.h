// SPDX-License-Identifier: MIT
// The forward pass of the model over the rows of one step (model.md 3): embedding, layers, logits, and the draft head.
// There is one path: prefill chunks, decode rows and verify runs differ only in where their rows stand. Every op is
// taken from the kernel table; every sum has a fixed order, so a row's results depend on its own sequence alone.
//
// A step: begin(rows), run(), then logits(); where drafts are wanted, draft(anchors) and draft_logits(i, ...) for i =
// 0, 1, ... run() writes the row's window KV, global KV, compressor tails and draft rings. All buffers are allocated by
// create(). Thread: one caller; ops use the context's pool or its device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/expert_exchange.h"
#include "engram/hasher.h"
#include "kernels/kernel_table.h"
#include "model/caches.h"
#include "model/row_batch.h"
#include "model/weights.h"

namespace deepinfer {

struct ForwardOptions {
  int64_t rows_max = 512;
  int64_t logits_rows_max = 64;
  int64_t draft_sequences_max = 16;
  int64_t score_entries_max = int64_t{1} << 22;  // index scores held at once; never changes a result
  ScoreRounding score_rounding = ScoreRounding::kReference;
  bool records_graphs = true;  // on a device: a step of a known shape is one launch; never changes a result
  bool pads_rows = true;       // on a device: to few shapes; never changes a result
  // Test only, see EngineOptions.
  bool reproduces_published_key_slot = false;
};

// Intermediate values for tests, by the names of the golden traces; layers count draft layers after the backbone's.
struct TraceTensor {
  int layer = 0;
  std::string_view name;
  DType dtype = DType::kBF16;
  const void* data = nullptr;  // contiguous, valid during the call
  std::vector<int64_t> shape;
};
using TraceSink = std::function<void(const TraceTensor&)>;

// What device code fills before a draft whose anchors only the device knows: [sequences, block] and [sequences].
struct DraftInputs {
  TokenId* tokens = nullptr;      // the anchor first; what stands behind it is filled already
  int32_t* positions = nullptr;   // P, P+1, ...
  int32_t* window_end = nullptr;  // P everywhere
  TokenId* previous = nullptr;    // the token before the position that is picked next
  int64_t block = 0;
};

// What drafting needs of one sequence: t0 stands at `position`, everything below is committed.
struct DraftSequence {
  int32_t lane = 0;
  int64_t position = 0;
  TokenId anchor = 0;
  int64_t window_begin = 0;  // context rows below do not exist (decoder replay)
};

class ExpertResidency;

// What the caller gives to the device between run() and the end of a step: picks of the rows, then of each position of
// the drafts. Launches only; `shape` is all that their sizes and addresses depend on.
struct PickHooks {
  using Logits = View<const float, dim::rows, dim::vocab>;
  std::vector<int64_t> shape;
  std::function<void(Logits)> pick_rows;
  std::function<void(const DraftInputs&)> start_drafts;
  std::function<void(int64_t i, Logits, const DraftInputs&)> pick_draft;
  std::function<void()> finish;
};

class Forward {
 public:
  // Everything referred to outlives the object; `hasher` may be null for a model without Engram.
  struct Parts {
    const ModelWeights& weights;
    const KernelTable& kernels;
    ExecutionContext context;
    ExpertExchange& exchange;
    const EngramHasher* hasher = nullptr;
    const WeightViews* device_weights = nullptr;  // where ops run on a device: the weights there
    ExpertResidency* residency = nullptr;         // on the host: routed experts are kept within its budget; null = all
  };
  // Errors: what the configuration asks and no code offers.
  static Result<std::unique_ptr<Forward>> create(const Parts& parts, const CacheLayout& layout,
                                                 const ForwardOptions& options);
  ~Forward();

  // Checks and lays out the rows. Errors: invalid_argument, resource_exhausted; nothing has been written then.
  Status begin(const RowBatch& batch, const Caches& caches);
  // Everything up to logits and draft rings. Errors: corruption, from a weight touched for the first time.
  Status run();
  // Logits of the rows asked for, in batch order.
  View<const float, dim::rows, dim::vocab> logits() const;
  // For everything given to the device so far: run() and draft() return before they are done there, logits() and
  // draft_logits() wait. Errors: internal, the first fault of the device.
  Status wait() const;

  // The parallel part of drafting: all block rows through the draft layers. Requires run() before.
  Status draft(std::span<const DraftSequence> sequences, const Caches& caches);
  // Position i of every block given the tokens before it (i = 0: the anchors): logits with the Markov term, and the raw
  // confidences. Call in ascending i, once each.
  View<const float, dim::rows, dim::vocab> draft_logits(int64_t i, std::span<const TokenId> previous,
                                                        std::span<float> confidences);
  // On a device, instead of logits(), draft() and draft_logits(): picks, drafts and their picks without waiting for
  // anything; the positions and anchors of `sequences` are not read, start_drafts fills them. Behind wait() the
  // confidences are [block, sequences], and the logits of drafts can be had for the host, [block, columns].
  Status pick_and_draft(std::span<const DraftSequence> sequences, const Caches& caches, const PickHooks& hooks);
  std::span<const float> draft_confidences() const;
  View<const float, dim::rows, dim::vocab> draft_logits_of(std::span<const int32_t> columns);
  int64_t draft_block() const;
  // Rows of logits that run() makes, padding counted, and the sequences that a draft of `num` had best have.
  int64_t num_head_rows() const;
  int64_t padded_drafts(int64_t num) const;
  int64_t memory_bytes() const;  // of the work buffers

  // The parts of run(), for tests that feed a layer its golden input. After begin(): embed(); per layer
  // inject_engram(l), run_layer(l); finish().
  Status embed();
  Status inject_engram(int layer);
  Status run_layer(int layer);
  Status finish();
  View<bf16, dim::tokens, dim::streams, dim::hidden> streams();
  View<float, dim::tokens, dim::streams> pre();
  void set_trace(TraceSink sink);

  struct State;

 private:
  explicit Forward(std::unique_ptr<State> state);
  Status run_ops();
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer
