// SPDX-License-Identifier: MIT
// BPE by its definition: the merge of lowest rank first, leftmost first among equals, with a heap over the neighbours.
// n log n for any text and any merge list. Where the merges are ordered (MergeTable::is_ordered) equal neighbours are
// kept as one run with a count, so n equal bytes take a number of steps that grows with log n only.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/merge_table.h"

namespace deepinfer {

class RunMerger {
 public:
  // Appends the symbols of `piece`. Precondition: piece.size() < 2^30.
  void merge(const MergeTable& table, std::string_view piece, std::vector<Symbol>& out);

  size_t num_bytes() const { return runs_.capacity() * sizeof(Run) + heap_.capacity() * sizeof(uint64_t); }

 private:
  struct Run {
    Symbol symbol;
    uint32_t count;          // 0 = removed
    int32_t previous, next;  // -1 = none
  };

  void start(std::string_view piece);
  void apply(uint32_t rank, int32_t left);
  void merge_inside(int32_t run, const Merge& merge);
  void merge_across(int32_t left, const Merge& merge);
  // The new run `at` meets its neighbours: equal ones are joined where counting is allowed, then its pairs are queued.
  void settle(int32_t at);
  int32_t insert_after(int32_t at, Symbol symbol);
  void remove(int32_t at);
  void queue_inside(int32_t at);
  void queue_across(int32_t left);
  void queue(uint32_t rank, int32_t at);

  const MergeTable* table_ = nullptr;
  bool counts_ = false;
  std::vector<Run> runs_;
  std::vector<uint64_t> heap_;  // rank, then place
};

}  // namespace deepinfer
