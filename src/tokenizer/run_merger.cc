// SPDX-License-Identifier: MIT
// Why counting is right for ordered merges: a merge of rank r makes a symbol that occurs in merges above r only, so all
// pairs of rank r are merged before anything else happens, from left to right. Inside a run of k equal symbols that
// leaves k/2 results and, if k is odd, one symbol at the right end; pairs of different symbols cannot overlap. Without
// order a new pair may come before the rest of its rank, so every symbol stands alone and the place in the text breaks
// ties. Queued pairs are not withdrawn: an entry whose place no longer holds the pair of its rank is skipped.
#include "tokenizer/run_merger.h"

#include <algorithm>
#include <functional>

namespace deepinfer {

void RunMerger::merge(const MergeTable& table, std::string_view piece, std::vector<Symbol>& out) {
  if (piece.empty()) return;
  table_ = &table;
  counts_ = table.is_ordered();
  start(piece);
  while (!heap_.empty()) {
    const uint64_t first = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
    apply(static_cast<uint32_t>(first >> 32), static_cast<int32_t>(first & 0xFFFFFFFF));
  }
  // The first run keeps index 0: a merge across gives its result to the left run, or to a new one after it.
  for (int32_t at = 0; at >= 0; at = runs_[at].next) out.insert(out.end(), runs_[at].count, runs_[at].symbol);
}

void RunMerger::start(std::string_view piece) {
  runs_.clear();
  heap_.clear();
  for (const char byte : piece) {
    const Symbol symbol = static_cast<uint8_t>(byte);
    if (counts_ && !runs_.empty() && runs_.back().symbol == symbol) {
      ++runs_.back().count;
      continue;
    }
    const int32_t at = static_cast<int32_t>(runs_.size());
    runs_.push_back({symbol, 1, at - 1, at + 1});
  }
  runs_.back().next = -1;
  for (int32_t at = 0; at < static_cast<int32_t>(runs_.size()); ++at) {
    queue_inside(at);
    queue_across(at);
  }
}

void RunMerger::apply(uint32_t rank, int32_t left) {
  const Merge& merge = table_->merges()[rank];
  const Run& run = runs_[left];
  if (run.count == 0 || run.symbol != merge.left) return;
  if (merge.left == merge.right && counts_) {
    if (run.count >= 2) merge_inside(left, merge);
  } else if (run.next >= 0 && runs_[run.next].symbol == merge.right) {
    merge_across(left, merge);
  }
}

void RunMerger::merge_inside(int32_t at, const Merge& merge) {
  // The odd symbol moves to a place of its own, so its pair with what follows is queued anew.
  if (runs_[at].count % 2 != 0) queue_across(insert_after(at, runs_[at].symbol));
  runs_[at].symbol = merge.result;
  runs_[at].count /= 2;
  settle(at);
}

void RunMerger::merge_across(int32_t left, const Merge& merge) {
  const int32_t right = runs_[left].next;
  --runs_[left].count;
  if (--runs_[right].count == 0) remove(right);
  int32_t at = left;
  if (runs_[left].count == 0) {
    runs_[left].symbol = merge.result;
    runs_[left].count = 1;
  } else {
    at = insert_after(left, merge.result);
  }
  settle(at);
}

void RunMerger::settle(int32_t at) {
  if (counts_) {
    const int32_t next = runs_[at].next;
    if (next >= 0 && runs_[next].symbol == runs_[at].symbol) {
      runs_[at].count += runs_[next].count;
      remove(next);
    }
    const int32_t previous = runs_[at].previous;
    if (previous >= 0 && runs_[previous].symbol == runs_[at].symbol) {
      runs_[previous].count += runs_[at].count;
      remove(at);
      at = previous;
    }
    queue_inside(at);
  }
  if (runs_[at].previous >= 0) queue_across(runs_[at].previous);
  queue_across(at);
}

int32_t RunMerger::insert_after(int32_t at, Symbol symbol) {
  const int32_t inserted = static_cast<int32_t>(runs_.size());
  const int32_t next = runs_[at].next;
  runs_.push_back({symbol, 1, at, next});
  runs_[at].next = inserted;
  if (next >= 0) runs_[next].previous = inserted;
  return inserted;
}

void RunMerger::remove(int32_t at) {
  const Run& run = runs_[at];
  if (run.previous >= 0) runs_[run.previous].next = run.next;
  if (run.next >= 0) runs_[run.next].previous = run.previous;
  runs_[at].count = 0;
}

void RunMerger::queue_inside(int32_t at) {
  if (runs_[at].count < 2) return;
  queue(table_->find(runs_[at].symbol, runs_[at].symbol), at);
}

void RunMerger::queue_across(int32_t left) {
  const int32_t right = runs_[left].next;
  if (right >= 0) queue(table_->find(runs_[left].symbol, runs_[right].symbol), left);
}

void RunMerger::queue(uint32_t rank, int32_t at) {
  if (rank == MergeTable::kNoRank) return;
  heap_.push_back(static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(at));
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

}  // namespace deepinfer
