// SPDX-License-Identifier: MIT
// Linked into test programs of CUDA builds: operator new gives page-locked memory that a device can read and write, so
// that a test case written for the host runs on the device as it stands. Without a device it is plain malloc.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

namespace {

constexpr size_t kHeapBytes = size_t{1} << 30, kLeastBytes = 64;
constexpr int kNumClasses = 31;  // powers of two

class PinnedHeap {
 public:
  void* allocate(size_t bytes) {
    const std::lock_guard lock(mutex_);
    open();
    const int size_class = std::bit_width(std::max(bytes, kLeastBytes) - 1);
    if (base_ && size_class < kNumClasses) {
      if (Free* piece = free_[size_class]) {
        free_[size_class] = piece->next;
        return piece;
      }
      const size_t size = size_t{1} << size_class;
      if (used_ + size <= kHeapBytes) {
        void* piece = base_ + used_;
        used_ += size;
        sizes_[static_cast<size_t>(static_cast<uint8_t*>(piece) - base_) / kLeastBytes] =
            static_cast<uint8_t>(size_class);
        return piece;
      }
    }
    return std::aligned_alloc(kLeastBytes,
                              (std::max(bytes, kLeastBytes) + kLeastBytes - 1) / kLeastBytes * kLeastBytes);
  }
  void release(void* data) {
    if (!data) return;
    const auto address = reinterpret_cast<uintptr_t>(data), base = reinterpret_cast<uintptr_t>(base_);
    if (!base_ || address < base || address >= base + kHeapBytes) return std::free(data);
    const std::lock_guard lock(mutex_);
    Free* piece = static_cast<Free*>(data);
    const int size_class = sizes_[(address - base) / kLeastBytes];
    piece->next = free_[size_class];
    free_[size_class] = piece;
  }

 private:
  struct Free {
    Free* next;
  };
  void open() {
    if (is_opened_) return;
    is_opened_ = true;  // before the call: the runtime may allocate, too
    int count = 0;
    void* memory = nullptr;
    mutex_.unlock();
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0)
      if (cudaHostAlloc(&memory, kHeapBytes, cudaHostAllocMapped) != cudaSuccess) memory = nullptr;
    mutex_.lock();
    sizes_ = memory ? static_cast<uint8_t*>(std::calloc(kHeapBytes / kLeastBytes, 1)) : nullptr;
    base_ = sizes_ ? static_cast<uint8_t*>(memory) : nullptr;
  }

  std::mutex mutex_;
  bool is_opened_ = false;
  uint8_t* base_ = nullptr;
  uint8_t* sizes_ = nullptr;  // the class of the piece that begins at each multiple of kLeastBytes
  size_t used_ = 0;
  Free* free_[kNumClasses] = {};
};

PinnedHeap& heap() {
  alignas(PinnedHeap) static uint8_t place[sizeof(PinnedHeap)];
  static PinnedHeap* made = new (place) PinnedHeap;  // never destroyed: objects may be released after main
  return *made;
}

}  // namespace

void* operator new(size_t bytes) { return heap().allocate(bytes); }
void* operator new[](size_t bytes) { return heap().allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t) { return heap().allocate(bytes); }
void* operator new[](size_t bytes, std::align_val_t) { return heap().allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t, const std::nothrow_t&) noexcept { return heap().allocate(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return heap().allocate(bytes); }
void operator delete(void* data) noexcept { heap().release(data); }
void operator delete[](void* data) noexcept { heap().release(data); }
void operator delete(void* data, size_t) noexcept { heap().release(data); }
void operator delete[](void* data, size_t) noexcept { heap().release(data); }
void operator delete(void* data, std::align_val_t) noexcept { heap().release(data); }
void operator delete[](void* data, std::align_val_t) noexcept { heap().release(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { heap().release(data); }
