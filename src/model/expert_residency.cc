// SPDX-License-Identifier: MIT
#include "model/expert_residency.h"

#include "model/file_pages.h"

namespace deepinfer {
namespace {

template <typename Matrix>
void add_pieces(const Matrix& matrix, ExpertResidency::Pieces& pieces) {
  pieces.emplace_back(matrix.codes, static_cast<size_t>(matrix.out * matrix.row_bytes()));
  pieces.emplace_back(matrix.scales, static_cast<size_t>(matrix.out * matrix.scale_columns()));
}

std::vector<ExpertResidency::Pieces> pieces_of(const LayerWeights& layer) {
  std::vector<ExpertResidency::Pieces> experts;
  for (const ExpertWeights& expert : layer.moe.experts) {
    ExpertResidency::Pieces pieces;
    for (const Fp4Matrix* matrix : {&expert.w1, &expert.w3, &expert.w2}) add_pieces(*matrix, pieces);
    experts.push_back(std::move(pieces));
  }
  return experts;
}

}  // namespace

ExpertResidency ExpertResidency::of(const WeightViews& weights, int64_t budget_bytes) {
  ExpertResidency residency(budget_bytes);
  for (const LayerWeights& layer : weights.layers) residency.add_layer(pieces_of(layer));
  for (const LayerWeights& layer : weights.draft.layers) residency.add_layer(pieces_of(layer));
  return residency;
}

std::vector<ExpertResidency::Expert> ExpertResidency::make_layer(std::vector<Pieces> experts) {
  std::vector<Expert> layer(experts.size());
  for (size_t e = 0; e < experts.size(); ++e) {
    layer[e].pieces = std::move(experts[e]);
    for (const std::span<const uint8_t>& piece : layer[e].pieces) layer[e].bytes += static_cast<int64_t>(piece.size());
  }
  return layer;
}

void ExpertResidency::forget_oldest() {
  const Place place = used_.front();
  Expert& expert = layers_[static_cast<size_t>(place.layer)][static_cast<size_t>(place.expert)];
  for (const std::span<const uint8_t>& piece : expert.pieces) give_back_pages(piece);
  expert.is_resident = false;
  traffic_.bytes_resident -= expert.bytes;
  used_.pop_front();
}

void ExpertResidency::require(int layer, std::span<const int32_t> experts, ThreadPool* pool) {
  ++now_;
  std::vector<std::span<const uint8_t>> missing;
  for (const int32_t e : experts) {
    Expert& expert = layers_[static_cast<size_t>(layer)][static_cast<size_t>(e)];
    expert.last_use = now_;
    if (expert.is_resident) {
      ++traffic_.hits;
      used_.splice(used_.end(), used_, expert.place);
      continue;
    }
    ++traffic_.misses;
    traffic_.bytes_read += expert.bytes;
    traffic_.bytes_resident += expert.bytes;
    expert.is_resident = true;
    expert.place = used_.insert(used_.end(), Place{layer, e});
    missing.insert(missing.end(), expert.pieces.begin(), expert.pieces.end());
  }
  // Room first, so that the new ones need not push out pages of others. What this call asked for stays.
  while (traffic_.bytes_resident > budget_bytes_ && !used_.empty()) {
    const Place oldest = used_.front();
    if (layers_[static_cast<size_t>(oldest.layer)][static_cast<size_t>(oldest.expert)].last_use == now_) break;
    forget_oldest();
  }
  const auto read = [&](int64_t i) { read_pages(missing[static_cast<size_t>(i)]); };
  if (pool) pool->parallel_for(static_cast<int64_t>(missing.size()), read);
  else
    for (size_t i = 0; i < missing.size(); ++i) read(static_cast<int64_t>(i));
}

}  // namespace deepinfer
