// SPDX-License-Identifier: MIT
// Tables that the host fills for a step and ops read. All tables of a set lie in one piece of staging memory and, in
// the same order, in one piece of device memory: one copy brings them over. On the host device the two are one. Reserve
// all tables first, then allocate(). On a device lay_out() moves the tables together, so that a step of few rows brings
// few bytes; addresses then follow from its number of rows. Thread: the device's caller.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/range.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

namespace deepinfer {

class StagedTables {
 public:
  explicit StagedTables(Device& device) : device_(&device) {}

  // The number of a table of `bytes`, or, with bytes_per_row, of that much for every row of lay_out().
  size_t reserve(int64_t bytes, int64_t bytes_per_row = 0) {
    CHECK(host_.size() == 0);
    tables_.push_back({bytes, bytes_per_row, reserved_bytes_});
    reserved_bytes_ += round_up<int64_t>(bytes, kAlignment);
    return tables_.size() - 1;
  }
  void allocate() {
    used_bytes_ = reserved_bytes_;
    host_ = Buffer<uint8_t>(device_->staging(), reserved_bytes_);
    if (!device_->is_host()) on_device_ = Buffer<uint8_t>(device_->memory(), reserved_bytes_);
  }
  // For a step of so many rows; what stood in the tables is lost. The last upload has passed.
  void lay_out(int64_t rows) {
    if (device_->is_host()) return;
    used_bytes_ = 0;
    for (Table& table : tables_) {
      table.offset = used_bytes_;
      const int64_t bytes = table.bytes_per_row > 0 ? std::min(table.bytes, rows * table.bytes_per_row) : table.bytes;
      used_bytes_ += round_up<int64_t>(bytes, kAlignment);
    }
  }
  // What the host has written is what later ops see. Writing again before the stream has passed is a race: wait first.
  void upload() {
    if (!device_->is_host()) device_->copy(on_device_.data(), host_.data(), used_bytes_);
  }
  uint8_t* host(size_t table) { return host_.data() + tables_[table].offset; }
  const uint8_t* host(size_t table) const { return host_.data() + tables_[table].offset; }
  const uint8_t* on_device(size_t table) const {
    return (device_->is_host() ? host_.data() : on_device_.data()) + tables_[table].offset;
  }
  int64_t size_bytes() const { return reserved_bytes_; }

 private:
  static constexpr int64_t kAlignment = 64;
  struct Table {
    int64_t bytes = 0, bytes_per_row = 0, offset = 0;
  };

  Device* device_;
  std::vector<Table> tables_;
  int64_t reserved_bytes_ = 0, used_bytes_ = 0;
  Buffer<uint8_t> host_, on_device_;
};

// So many elements of a table for every row of lay_out().
struct PerRow {
  int64_t rows_max = 0, elements = 1;
};

// One table of a set: elements are the host's, on_device() is what ops are given.
template <typename T>
class Staged {
 public:
  Staged() = default;
  Staged(StagedTables& tables, int64_t size)
      : tables_(&tables), table_(tables.reserve(size * static_cast<int64_t>(sizeof(T)))), size_(size) {}
  Staged(StagedTables& tables, PerRow per_row)
      : tables_(&tables),
        table_(tables.reserve(per_row.rows_max * per_row.elements * static_cast<int64_t>(sizeof(T)),
                              per_row.elements * static_cast<int64_t>(sizeof(T)))),
        size_(per_row.rows_max * per_row.elements) {}
  T* data() { return tables_ ? reinterpret_cast<T*>(tables_->host(table_)) : nullptr; }
  const T* data() const { return tables_ ? reinterpret_cast<const T*>(tables_->host(table_)) : nullptr; }
  const T* on_device() const { return tables_ ? reinterpret_cast<const T*>(tables_->on_device(table_)) : nullptr; }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) {
    DCHECK(i >= 0 && i < size_);
    return data()[i];
  }
  const T& operator[](int64_t i) const {
    DCHECK(i >= 0 && i < size_);
    return data()[i];
  }

 private:
  StagedTables* tables_ = nullptr;
  size_t table_ = 0;
  int64_t size_ = 0;
};

}  // namespace deepinfer
