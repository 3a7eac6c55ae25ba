// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>

#include "tensor/stream_marks.h"

namespace deepinfer {
namespace {

// An event that could not be made or recorded costs a measurement, not a step.
class CudaStreamMarks final : public StreamMarks {
 public:
  explicit CudaStreamMarks(cudaStream_t stream) : stream_(stream) {}
  ~CudaStreamMarks() override {
    for (cudaEvent_t event : events_) static_cast<void>(cudaEventDestroy(event));
  }
  void put() override {
    if (num_put_ == events_.size()) {
      cudaEvent_t event = nullptr;
      static_cast<void>(cudaEventCreate(&event));
      events_.push_back(event);
    }
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    static_cast<void>(cudaStreamIsCapturing(stream_, &capture));
    // A plain record inside a capture would only order streams.
    const unsigned flags = capture == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
    static_cast<void>(cudaEventRecordWithFlags(events_[num_put_++], stream_, flags));
  }
  void clear() override { num_put_ = 0; }
  std::vector<double> gaps_ns() const override {
    std::vector<double> gaps;
    for (size_t i = 1; i < num_put_; ++i) {
      float milliseconds = 0;
      if (cudaEventElapsedTime(&milliseconds, events_[i - 1], events_[i]) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        milliseconds = 0;
      }
      gaps.push_back(1e6 * static_cast<double>(milliseconds));
    }
    return gaps;
  }

 private:
  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;
  size_t num_put_ = 0;
};

}  // namespace

std::unique_ptr<StreamMarks> StreamMarks::make(Device& device) {
  if (device.is_host()) return nullptr;
  return std::make_unique<CudaStreamMarks>(static_cast<cudaStream_t>(device.stream()));
}

}  // namespace deepinfer
