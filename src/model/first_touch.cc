// SPDX-License-Identifier: MIT
#include "model/first_touch.h"

#include <algorithm>
#include <functional>

#include "model/file_pages.h"
#include "model/weight_table.h"

namespace deepinfer {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr size_t kPieceBytes = size_t{4} << 20;
constexpr int64_t kPiecesAStep = 16;  // of each thread between two calls of `progress`

bool is_wanted(const WeightRow& row, bool with_experts) {
  return row.part != WeightPart::kEngramTables && (with_experts || row.expert < 0);
}

// Tensors that follow each other in a file become one.
std::vector<Bytes> extents_of(std::vector<Bytes> tensors) {
  std::ranges::sort(tensors, std::less<>(), [](const Bytes& bytes) { return bytes.data(); });
  std::vector<Bytes> extents;
  for (const Bytes& bytes : tensors) {
    if (!extents.empty() && extents.back().data() + extents.back().size() == bytes.data())
      extents.back() = {extents.back().data(), extents.back().size() + bytes.size()};
    else extents.push_back(bytes);
  }
  return extents;
}

}  // namespace

std::vector<Bytes> first_touch_pieces(const ModelWeights& weights, bool with_experts) {
  const Checkpoint& checkpoint = weights.checkpoint();
  WeightViews nowhere;
  std::vector<Bytes> tensors, pieces;
  for (const WeightRow& row : declare_weights(checkpoint.config(), nowhere))
    if (is_wanted(row, with_experts)) tensors.push_back(checkpoint.bytes(*find_stored(checkpoint, row)));
  for (Bytes extent : extents_of(std::move(tensors)))
    for (; !extent.empty(); extent = extent.subspan(pieces.back().size()))
      pieces.push_back(extent.first(std::min(kPieceBytes, extent.size())));
  return pieces;
}

bool first_touch(std::span<const Bytes> pieces, ThreadPool& pool,
                 const std::function<bool(int64_t, int64_t)>& progress) {
  int64_t done = 0, all = 0;
  for (const Bytes& piece : pieces) all += static_cast<int64_t>(piece.size());
  const int64_t num = static_cast<int64_t>(pieces.size()), step = kPiecesAStep * pool.num_threads();
  for (int64_t begin = 0; begin < num; begin += step) {
    const auto now = pieces.subspan(static_cast<size_t>(begin), static_cast<size_t>(std::min(step, num - begin)));
    pool.parallel_for(static_cast<int64_t>(now.size()), [&](int64_t i) { read_pages(now[static_cast<size_t>(i)]); });
    for (const Bytes& piece : now) done += static_cast<int64_t>(piece.size());
    if (!progress(done, all)) return false;
  }
  return true;
}

}  // namespace deepinfer
