// SPDX-License-Identifier: MIT
// The Engram part of a model's configuration: which layers have a table and how n-grams are hashed into it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace deepinfer {

struct EngramConfig {
  std::vector<int> layers;  // backbone layers with a table, in file order (the primes depend on it); empty = no Engram
  std::vector<int64_t> num_rows;  // rows of each layer's table, in the order of `layers`
  int ngram_max = 0;              // n-grams of 2..ngram_max tokens
  int num_heads = 0;              // hash heads per n
  int head_dim = 0;               // columns of a table row
  int64_t prime_start = 0;        // the primes are searched upwards from here (`engram_vocab_size`)
  TokenId pad_token_id = 0;       // its class stands where the context is blocked
  int64_t num_token_classes = 0;  // size of the compressed vocabulary (`engram_compressed_vocab_size`)

  bool empty() const { return layers.empty(); }
  int rows_per_token() const { return (ngram_max - 1) * num_heads; }  // 24 in the released model
  int row_columns() const { return rows_per_token() * head_dim; }     // 6144: the rows of a token, concatenated
  bool operator==(const EngramConfig&) const = default;
};

}  // namespace deepinfer
