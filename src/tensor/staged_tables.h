// SPDX-License-Identifier: MIT
// Tables that the host fills for a step and ops read. All tables of a set lie in one piece of staging memory and, in
// the same order, in one piece of device memory: one copy brings them over. On the host device the two are one. Reserve
// all tables first, then allocate(). Thread: the device's caller.
#pragma once

#include <cstdint>

#include "base/range.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

namespace deepinfer {

class StagedTables {
 public:
  explicit StagedTables(Device& device) : device_(&device) {}

  int64_t reserve(int64_t bytes) {
    CHECK(host_.size() == 0);
    const int64_t offset = reserved_bytes_;
    reserved_bytes_ += round_up<int64_t>(bytes, 64);
    return offset;
  }
  void allocate() {
    host_ = Buffer<uint8_t>(device_->staging(), reserved_bytes_);
    if (!device_->is_host()) on_device_ = Buffer<uint8_t>(device_->memory(), reserved_bytes_);
  }
  // What the host has written is what later ops see. Writing again before the stream has passed is a race: wait first.
  void upload() {
    if (!device_->is_host()) device_->copy(on_device_.data(), host_.data(), reserved_bytes_);
  }
  uint8_t* host() { return host_.data(); }
  const uint8_t* host() const { return host_.data(); }
  const uint8_t* on_device() const { return device_->is_host() ? host_.data() : on_device_.data(); }
  int64_t size_bytes() const { return reserved_bytes_; }

 private:
  Device* device_;
  int64_t reserved_bytes_ = 0;
  Buffer<uint8_t> host_, on_device_;
};

// One table of a set: elements are the host's, on_device() is what ops are given.
template <typename T>
class Staged {
 public:
  Staged() = default;
  Staged(StagedTables& tables, int64_t size)
      : tables_(&tables), offset_(tables.reserve(size * static_cast<int64_t>(sizeof(T)))), size_(size) {}
  T* data() { return tables_ ? reinterpret_cast<T*>(tables_->host() + offset_) : nullptr; }
  const T* data() const { return tables_ ? reinterpret_cast<const T*>(tables_->host() + offset_) : nullptr; }
  const T* on_device() const { return tables_ ? reinterpret_cast<const T*>(tables_->on_device() + offset_) : nullptr; }
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
  int64_t offset_ = 0, size_ = 0;
};

}  // namespace deepinfer
