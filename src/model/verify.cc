// SPDX-License-Identifier: MIT
#include "model/verify.h"

#include <algorithm>

#include "model/weight_table.h"

namespace deepinfer {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{4} << 20;  // a multiple of every element size
constexpr size_t kPiecesPerCall = 64;

struct Piece {
  size_t tensor;
  uint64_t begin, end;
  std::optional<int64_t> nan;  // element within the tensor
};

void check(const Checkpoint& checkpoint, Piece& piece) {
  const StoredTensor& tensor = checkpoint.tensors()[piece.tensor];
  const auto bytes = checkpoint.bytes(tensor).subspan(piece.begin, piece.end - piece.begin);
  piece.nan = find_nan(tensor.info.dtype, bytes);
  if (piece.nan) *piece.nan += static_cast<int64_t>(piece.begin / size_bytes(tensor.info.dtype));
}

}  // namespace

std::vector<std::string> find_nan_tensors(const Checkpoint& checkpoint, ThreadPool& pool,
                                          const std::function<bool(uint64_t)>& progress) {
  std::vector<std::string> problems;
  std::vector<Piece> pieces;
  uint64_t bytes_done = 0;
  size_t last_named = SIZE_MAX;
  const auto flush = [&] {
    pool.parallel_for(static_cast<int64_t>(pieces.size()),
                      [&](int64_t i) { check(checkpoint, pieces[static_cast<size_t>(i)]); });
    for (const Piece& piece : pieces) {
      bytes_done += piece.end - piece.begin;
      if (!piece.nan || piece.tensor == last_named) continue;
      last_named = piece.tensor;
      const TensorInfo& info = checkpoint.tensors()[piece.tensor].info;
      problems.push_back("tensor " + info.name + ": element " + std::to_string(*piece.nan) + " of " +
                         std::string(to_string(info.dtype)) + " " + shape_to_string(info.shape) + " is NaN");
    }
    pieces.clear();
    return progress(bytes_done);
  };
  for (size_t t = 0; t < checkpoint.tensors().size(); ++t) {
    const uint64_t bytes = checkpoint.tensors()[t].info.size_bytes();
    for (uint64_t begin = 0; begin < bytes; begin += kPieceBytes) {
      pieces.push_back({t, begin, std::min(bytes, begin + kPieceBytes), std::nullopt});
      if (pieces.size() == kPiecesPerCall && !flush()) return problems;
    }
  }
  flush();
  return problems;
}

}  // namespace deepinfer
