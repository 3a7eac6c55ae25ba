// SPDX-License-Identifier: MIT
#include "engram/table.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/check.h"

namespace deepinfer {
namespace {

// Asks the kernel to read the pages of [begin, begin + size) in the background.
void will_need(const uint8_t* begin, int64_t size) {
  static const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t from = reinterpret_cast<uintptr_t>(begin) & ~(page - 1);
  const uintptr_t to = reinterpret_cast<uintptr_t>(begin) + static_cast<uintptr_t>(size);
  ::madvise(reinterpret_cast<void*>(from), to - from, MADV_WILLNEED);
}

}  // namespace

MappedEngramTable::MappedEngramTable(std::string name, const uint8_t* codes, const uint8_t* scales, int64_t num_rows,
                                     int64_t columns)
    : name_(std::move(name)),
      codes_(codes),
      scales_(scales),
      num_rows_(num_rows),
      columns_(columns),
      scale_columns_(columns / 32) {
  CHECK(columns % 32 == 0);
  if (!is_small()) return;
  will_need(codes, num_rows * columns);
  will_need(scales, num_rows * scale_columns_);
}

Status MappedEngramTable::read_rows(std::span<const int64_t> rows, uint8_t* codes, uint8_t* scales) const {
  constexpr size_t kAhead = 8;  // rows asked for while one is copied: about what a core can wait for at once
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t row = rows[i];
    CHECK(row >= 0 && row < num_rows_);
    if (i + kAhead < rows.size()) fetch_row(rows[i + kAhead]);
    std::memcpy(codes, codes_ + row * columns_, static_cast<size_t>(columns_));
    std::memcpy(scales, scales_ + row * scale_columns_, static_cast<size_t>(scale_columns_));
    if (const void* nan = std::memchr(scales, 0xFF, static_cast<size_t>(scale_columns_)))
      return corruption(name_ + ".scale: NaN at row " + std::to_string(row) + ", block " +
                        std::to_string(static_cast<const uint8_t*>(nan) - scales));
    codes += columns_;
    scales += scale_columns_;
  }
  return {};
}

// Into the processor's caches; a page that is not in memory is left alone.
void MappedEngramTable::fetch_row(int64_t row) const {
  for (int64_t i = 0; i < columns_; i += 64) __builtin_prefetch(codes_ + row * columns_ + i);
  __builtin_prefetch(scales_ + row * scale_columns_);
}

void MappedEngramTable::prefetch(std::span<const int64_t> rows) const {
  for (const int64_t row : rows) {
    CHECK(row >= 0 && row < num_rows_);
    if (is_small()) continue;
    will_need(codes_ + row * columns_, columns_);
    will_need(scales_ + row * scale_columns_, scale_columns_);
  }
}

}  // namespace deepinfer
