// SPDX-License-Identifier: MIT
#include "engram/hasher.h"

#include "base/check.h"

namespace deepinfer {

Result<EngramHasher> EngramHasher::make(const EngramConfig& config, TokenMap map) {
  if (map.num_classes != config.num_token_classes)
    return invalid_argument("Engram: the tokenizer's texts fall into " + std::to_string(map.num_classes) +
                            " classes, engram_compressed_vocab_size is " + std::to_string(config.num_token_classes) +
                            ": this tokenizer does not belong to this checkpoint");
  if (config.pad_token_id < 0 || config.pad_token_id >= map.num_ids())
    return invalid_argument("Engram: pad id " + std::to_string(config.pad_token_id) + " of " +
                            std::to_string(map.num_ids()) + " ids");
  EngramHasher hasher;
  ASSIGN_OR_RETURN(hasher.plan_, make_hash_plan(config));
  hasher.pad_class_ = map.class_of[static_cast<size_t>(config.pad_token_id)];
  hasher.map_ = std::move(map);
  return hasher;
}

int32_t EngramHasher::class_of(TokenId id) const {
  return id < map_.num_ids() ? map_.class_of[static_cast<size_t>(id)] : pad_class_;
}

void EngramHasher::rows(int table, std::span<const TokenId> newest_first, std::span<int64_t> rows) const {
  const HashLayer& layer = plan_.layers[static_cast<size_t>(table)];
  CHECK(newest_first.size() == static_cast<size_t>(look_back()) && rows.size() == layer.primes.size());
  int64_t hash = 0;  // products stay below 2^63 by the choice of multipliers, so does their xor
  bool blocked = false;
  size_t column = 0;
  for (size_t shift = 0; shift < newest_first.size(); ++shift) {
    blocked = blocked || newest_first[shift] < 0;
    const int64_t value = blocked ? pad_class_ : class_of(newest_first[shift]);
    hash ^= value * layer.multipliers[shift];
    if (shift == 0) continue;
    for (int head = 0; head < plan_.num_heads; ++head, ++column)
      rows[column] = hash % layer.primes[column] + layer.offsets[column];
  }
}

}  // namespace deepinfer
