// SPDX-License-Identifier: MIT
#include "model/cache_layout.h"

#include <algorithm>
#include <bit>

namespace deepinfer {
namespace {

constexpr int64_t kForetoldRun = 7;  // 8 rows with the anchor: kernels for few rows read weights once for so many

}  // namespace

int64_t CacheLayout::lane_bytes() const {
  int64_t bytes = num_layers * ring_bytes();
  for (const Source& source : sources)
    if (source.ratio > 1) bytes += tail_slots * 2 * head_dim * static_cast<int64_t>(sizeof(float));
  return bytes;
}

int64_t draft_run_max(const ModelConfig& config) { return std::max<int64_t>(config.draft.block_size, kForetoldRun); }

CacheLayout make_cache_layout(const ModelConfig& config, const LayerRoles& roles, int64_t verify_rows_max) {
  CacheLayout layout;
  layout.window = config.window;
  layout.head_dim = config.head_dim;
  layout.num_layers = roles.num_layers();
  layout.window_row_bytes = config.head_dim + config.head_dim / 32;
  layout.global_row_bytes = config.head_dim / 2 + config.head_dim / 16;
  layout.index_row_bytes = config.index_head_dim / 2 + config.index_head_dim / 32;
  layout.ring_slots = round_up<int64_t>(config.window + verify_rows_max + 1, 64);
  layout.tail_slots = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(roles.ratio_max + verify_rows_max + 1)));
  for (const int ratio : roles.source_ratios) {
    CacheLayout::Source source{.ratio = ratio, .rows_per_block = kBlockPositions / ratio};
    source.global_offset = layout.block_bytes;
    source.index_offset = source.global_offset + source.rows_per_block * layout.global_row_bytes;
    layout.block_bytes = source.index_offset + source.rows_per_block * layout.index_row_bytes;
    layout.sources.push_back(source);
  }
  return layout;
}

}  // namespace deepinfer
