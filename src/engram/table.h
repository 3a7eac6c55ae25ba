// SPDX-License-Identifier: MIT
// One Engram table as its readers see it: rows by number, wherever they lie. A row is `columns` e4m3 codes and
// columns/32 e8m0 scales (264 bytes in the released model). Any thread may read.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace deepinfer {

class EngramTable {
 public:
  virtual ~EngramTable() = default;
  virtual int64_t num_rows() const = 0;
  virtual int64_t columns() const = 0;

  // Copies rows.size() rows: codes [n, columns], scales [n, columns/32]. Preconditions: every row is in [0,
  // num_rows()), the outputs have room. Errors: corruption naming the table, row and block of a NaN scale; unavailable
  // when a tier fails.
  virtual Status read_rows(std::span<const int64_t> rows, uint8_t* codes, uint8_t* scales) const = 0;

  // Says that these rows will be read soon. May do nothing.
  virtual void prefetch(std::span<const int64_t> rows) const = 0;
};

// The table where the checkpoint holds it, in the file map: a first read of a row costs two page faults at most.
class MappedEngramTable final : public EngramTable {
 public:
  // Borrowed: codes [num_rows, columns], scales [num_rows, columns/32]. `name` is for messages
  // ("layers.1.engram.embed").
  MappedEngramTable(std::string name, const uint8_t* codes, const uint8_t* scales, int64_t num_rows, int64_t columns);
  int64_t num_rows() const override { return num_rows_; }
  int64_t columns() const override { return columns_; }
  Status read_rows(std::span<const int64_t> rows, uint8_t* codes, uint8_t* scales) const override;
  void prefetch(std::span<const int64_t> rows) const override;

 private:
  void fetch_row(int64_t row) const;
  bool is_small() const { return num_rows_ * (columns_ + scale_columns_) <= kSmallBytes; }
  // Asked for whole when opened: a call to the system for every row would cost more than such a table is worth.
  static constexpr int64_t kSmallBytes = int64_t{64} << 20;
  std::string name_;
  const uint8_t* codes_;
  const uint8_t* scales_;
  int64_t num_rows_, columns_, scale_columns_;
};

}  // namespace deepinfer
