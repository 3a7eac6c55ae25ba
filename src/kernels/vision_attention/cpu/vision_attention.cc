// SPDX-License-Identifier: MIT
// Packs K and V of every (image, head) into fp32 panels, then runs tiles of queries over them.
#include "kernels/vision_attention/vision_attention.h"

#include <algorithm>
#include <vector>

#include "kernels/vision_attention/cpu/vision_tile.h"

namespace deepinfer {

void vision_attention_avx2(const ExecutionContext& context, const VisionAttentionParams& params);
void vision_attention_avx512(const ExecutionContext& context, const VisionAttentionParams& params);

namespace {

using RunTile = void (*)(const VisionTile& tile);

constexpr int64_t kTile = kVisionTileQueries, kPanel = kVisionPanel;
static_assert(kVisionKeyBlock == kVisionTileKeys);

// One head of one image.
struct Head {
  Range tokens;
  int64_t head = 0;
  float* k_panels = nullptr;
  float* v_panels = nullptr;
};

struct TileItem {
  size_t head_idx = 0;
  int64_t first_query = 0;
};

struct Shape {
  int64_t head_dim, width;  // width: head_dim rounded up to a panel
};

void pack(const VisionAttentionParams& p, const Shape& shape, const Head& head) {
  const int64_t num_keys = head.tokens.size();
  std::fill_n(head.k_panels, round_up(num_keys, kPanel) * shape.head_dim, 0.f);
  std::fill_n(head.v_panels, num_keys * shape.width, 0.f);
  for (int64_t j = 0; j < num_keys; ++j) {
    const bf16* k = &p.k(head.tokens.begin + j, head.head, 0);
    const bf16* v = &p.v(head.tokens.begin + j, head.head, 0);
    float* k_out = head.k_panels + j / kPanel * kPanel * shape.head_dim + j % kPanel;
    for (int64_t d = 0; d < shape.head_dim; ++d) {
      k_out[d * kPanel] = to_float(k[d]);
      head.v_panels[(d / kPanel * num_keys + j) * kPanel + d % kPanel] = to_float(v[d]);
    }
  }
}

// Queries [first_query, first_query + 24) of one head; `scratch` holds the tile's operands and result.
void run_tile(const VisionAttentionParams& p, const Shape& shape, const Head& head, int64_t first_query, RunTile run,
              float* scratch) {
  float* q = scratch;
  float* out = q + kTile * shape.head_dim;
  float* weights = out + kTile * shape.width;
  const int64_t num_queries = std::min(kTile, head.tokens.end - first_query);
  std::fill_n(q, kTile * shape.head_dim, 0.f);
  for (int64_t i = 0; i < num_queries; ++i)
    for (int64_t d = 0; d < shape.head_dim; ++d)
      q[i * shape.head_dim + d] = to_float(p.q(first_query + i, head.head, d));
  run({q, head.k_panels, head.v_panels, head.tokens.size(), shape.head_dim, p.scale, weights, out});
  for (int64_t i = 0; i < num_queries; ++i)
    for (int64_t d = 0; d < shape.head_dim; ++d)
      p.out(first_query + i, head.head, d) = to_bf16(out[i * shape.width + d]);
}

void run_attention(const ExecutionContext& context, const VisionAttentionParams& p, RunTile run) {
  const Scratch::Frame frame(*context.scratch);
  const Shape shape{p.q.size[2], round_up(p.q.size[2], kPanel)};
  std::vector<Head> heads;
  std::vector<TileItem> tiles;
  for (const Range& image : p.images)
    for (int64_t h = 0; h < p.q.size[1]; ++h) {
      if (image.empty()) continue;
      heads.push_back({image, h, context.scratch->take<float>(round_up(image.size(), kPanel) * shape.head_dim),
                       context.scratch->take<float>(image.size() * shape.width)});
      for (int64_t query = image.begin; query < image.end; query += kTile) tiles.push_back({heads.size() - 1, query});
    }
  const int64_t tile_floats = kTile * (shape.head_dim + shape.width + kVisionKeyBlock);
  float* scratch = context.scratch->take<float>(tile_floats * context.num_threads());
  const double work = estimate(p).flops / 2;
  for_each_item(context, static_cast<int64_t>(heads.size()), work,
                [&](int64_t i, int) { pack(p, shape, heads[static_cast<size_t>(i)]); });
  for_each_item(context, static_cast<int64_t>(tiles.size()), work, [&](int64_t i, int worker) {
    const TileItem& item = tiles[static_cast<size_t>(i)];
    run_tile(p, shape, heads[item.head_idx], item.first_query, run, scratch + worker * tile_floats);
  });
}

}  // namespace

void vision_attention_avx2(const ExecutionContext& context, const VisionAttentionParams& params) {
  run_attention(context, params, vision_tile_avx2);
}

void vision_attention_avx512(const ExecutionContext& context, const VisionAttentionParams& params) {
  run_attention(context, params, vision_tile_avx512);
}

}  // namespace deepinfer
