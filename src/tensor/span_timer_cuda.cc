// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>

#include "tensor/span_timer.h"

namespace deepinfer {
namespace {

// An event that could not be made or recorded costs a measurement, not a step.
class CudaSpanTimer final : public SpanTimer {
 public:
  explicit CudaSpanTimer(cudaStream_t stream) : stream_(stream) {
    for (Events& events : spans_)
      for (cudaEvent_t* event : {&events.begin, &events.end}) static_cast<void>(cudaEventCreate(event));
  }
  ~CudaSpanTimer() override {
    for (const Events& events : spans_)
      for (cudaEvent_t event : {events.begin, events.end}) static_cast<void>(cudaEventDestroy(event));
  }
  void begin() override { static_cast<void>(cudaEventRecord(spans_[++num_spans_ % 2].begin, stream_)); }
  void end() override { static_cast<void>(cudaEventRecord(spans_[num_spans_ % 2].end, stream_)); }
  DeviceSpan last() override {
    const Events &now = spans_[num_spans_ % 2], &before = spans_[(num_spans_ + 1) % 2];
    return {elapsed_ns(now.begin, now.end), num_spans_ > 1 ? elapsed_ns(before.end, now.begin) : 0};
  }

 private:
  struct Events {
    cudaEvent_t begin = nullptr, end = nullptr;
  };
  static double elapsed_ns(cudaEvent_t begin, cudaEvent_t end) {
    float milliseconds = 0;
    if (cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess) return 1e6 * static_cast<double>(milliseconds);
    static_cast<void>(cudaGetLastError());
    return 0;
  }

  cudaStream_t stream_;
  Events spans_[2];
  int64_t num_spans_ = 0;
};

}  // namespace

std::unique_ptr<SpanTimer> SpanTimer::make(Device& device) {
  if (device.is_host()) return nullptr;
  return std::make_unique<CudaSpanTimer>(static_cast<cudaStream_t>(device.stream()));
}

}  // namespace deepinfer
