// SPDX-License-Identifier: MIT
// Every op of the forward pass, resolved once when a model is loaded; a step only calls.
#pragma once

#include "kernels/compressor/compressor.h"
#include "kernels/embedding/embedding.h"
#include "kernels/engram_gate/engram_gate.h"
#include "kernels/experts/experts.h"
#include "kernels/gather_rows/gather_rows.h"
#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/indexer/indexer.h"
#include "kernels/linear/linear.h"
#include "kernels/norm/norm.h"
#include "kernels/pack_keys/pack_keys.h"
#include "kernels/quantize/quantize.h"
#include "kernels/rope/rope.h"
#include "kernels/router/router.h"
#include "kernels/scatter_rows/scatter_rows.h"
#include "kernels/sparse_attention/sparse_attention.h"
#include "kernels/top_k/top_k.h"

namespace deepinfer {

// X(member, Params, table function)
#define DEEPINFER_KERNELS(X)                                        \
  X(embedding, EmbeddingParams, embedding_rows)                     \
  X(engram_rows, EngramRowsParams, engram_rows_rows)                \
  X(engram_gate, EngramGateParams, engram_gate_rows)                \
  X(stream_mix, StreamMixParams, stream_mix_rows)                   \
  X(stream_collapse, StreamCollapseParams, stream_collapse_rows)    \
  X(stream_update, StreamUpdateParams, stream_update_rows)          \
  X(stream_advance, StreamAdvanceParams, stream_advance_rows)       \
  X(norm, NormParams, norm_rows)                                    \
  X(linear, LinearParams, linear_rows)                              \
  X(rope_angles, RopeAnglesParams, rope_angles_rows)                \
  X(rope, RopeParams, rope_rows)                                    \
  X(pack_keys, PackKeysParams, pack_keys_rows)                      \
  X(pack_rows, PackRowsParams, pack_rows_rows)                      \
  X(unpack_rows, UnpackRowsParams, unpack_rows_rows)                \
  X(round_rows, RoundRowsParams, round_rows_rows)                   \
  X(scatter_rows, ScatterRowsParams, scatter_rows_rows)             \
  X(gather_rows, GatherRowsParams, gather_rows_rows)                \
  X(compressor_pool, CompressorPoolParams, compressor_pool_rows)    \
  X(compressor_tail, CompressorTailParams, compressor_tail_rows)    \
  X(index_scores, IndexScoresParams, index_scores_rows)             \
  X(top_k, TopKParams, top_k_rows)                                  \
  X(candidate_blocks, CandidateBlocksParams, candidate_blocks_rows) \
  X(sparse_attention, SparseAttentionParams, sparse_attention_rows) \
  X(router, RouterParams, router_rows)                              \
  X(expert_plan, ExpertPlanParams, expert_plan_rows)                \
  X(experts, ExpertsParams, experts_rows)                           \
  X(expert_combine, ExpertCombineParams, expert_combine_rows)

struct KernelTable {
#define DEEPINFER_KERNEL_MEMBER(member, params, rows) Kernel<params> member;
  DEEPINFER_KERNELS(DEEPINFER_KERNEL_MEMBER)
#undef DEEPINFER_KERNEL_MEMBER

  // Errors: unimplemented, from the first op without a fitting row.
  static Result<KernelTable> resolve(const Target& target);
  // The rows of `from` for these ops, by the names of the list above. Errors: invalid_argument, naming one that is
  // none.
  Status take(const KernelTable& from, std::span<const std::string> ops);
  // "op: row" lines for doctor and --explain.
  std::string describe() const;
};

}  // namespace deepinfer
