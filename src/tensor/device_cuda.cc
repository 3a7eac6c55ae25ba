// SPDX-License-Identifier: MIT
// An NVIDIA device through the CUDA runtime, which is linked in whole and looks for the driver when it is first called:
// the same program starts on a machine without one, and says so here.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "base/check.h"
#include "tensor/device.h"

namespace deepinfer {
namespace {

constexpr int kCapability =
    DEEPINFER_CUDA_CAPABILITY;  // 90: the kernels' one architecture (code for it runs nowhere else)

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

Status fault(const char* what, cudaError_t error) {
  return internal_error(fmt::format("cuda: {}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error)));
}

// Keeps the first fault of a device; every call below goes through it.
class Faults {
 public:
  bool keep(const char* what, cudaError_t error) {
    if (error == cudaSuccess) return true;
    if (first_.ok()) first_ = fault(what, error);
    return false;
  }
  void keep(Status status) {
    if (first_.ok()) first_ = std::move(status);
  }
  const Status& first() const { return first_; }

 private:
  Status first_;
};

class DeviceMemory final : public Memory {
 public:
  explicit DeviceMemory(Faults& faults) : faults_(faults) {}
  void* allocate(int64_t bytes) override {
    void* data = nullptr;
    if (const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes)); error != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // out of memory is no fault of the context
      faults_.keep(resource_exhausted(fmt::format("cuda: no {} bytes of device memory left", bytes)));
      return nullptr;
    }
    // The clearing runs on the default stream, which ours does not wait for.
    if (faults_.keep("clear memory", cudaMemset(data, 0, static_cast<size_t>(bytes))))
      faults_.keep("clear memory", cudaStreamSynchronize(nullptr));
    return data;
  }
  void release(void* data, int64_t) override { static_cast<void>(cudaFree(data)); }

 private:
  Faults& faults_;
};

class PinnedMemory final : public Memory {
 public:
  explicit PinnedMemory(Faults& faults) : faults_(faults) {}
  void* allocate(int64_t bytes) override {
    void* data = nullptr;
    if (const cudaError_t error = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocMapped);
        error != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      faults_.keep(resource_exhausted(fmt::format("cuda: no {} bytes of page-locked host memory left", bytes)));
      return nullptr;
    }
    std::fill_n(static_cast<uint8_t*>(data), bytes, uint8_t{0});
    return data;
  }
  void release(void* data, int64_t) override { static_cast<void>(cudaFreeHost(data)); }

 private:
  Faults& faults_;
};

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(cudaGraphExec_t graph, cudaStream_t stream, Faults& faults)
      : graph_(graph), stream_(stream), faults_(faults) {}
  ~CudaGraph() override { static_cast<void>(cudaGraphExecDestroy(graph_)); }
  void launch() override { faults_.keep("launch a graph", cudaGraphLaunch(graph_, stream_)); }

 private:
  cudaGraphExec_t graph_;
  cudaStream_t stream_;
  Faults& faults_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaOptions& options) : options_(options), memory_(faults_), pinned_(faults_) {}
  ~CudaDevice() override {
    static_cast<void>(cudaStreamSynchronize(stream_));
    for (cudaEvent_t event : {mark_, timer_begin_, timer_end_})
      if (event) static_cast<void>(cudaEventDestroy(event));
    if (stream_) static_cast<void>(cudaStreamDestroy(stream_));
  }
  Status open() {
    const auto call = [&](const char* what, cudaError_t error) { return faults_.keep(what, error); };
    if (call("choose the device", cudaSetDevice(options_.ordinal)))
      if (call("make a stream", cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)))
        if (call("make an event", cudaEventCreateWithFlags(&mark_, cudaEventDisableTiming)))
          if (call("make an event", cudaEventCreate(&timer_begin_)))
            call("make an event", cudaEventCreate(&timer_end_));
    return status();
  }

  bool is_host() const override { return false; }
  void make_current() override { faults_.keep("choose the device", cudaSetDevice(options_.ordinal)); }
  std::string describe() const override {
    cudaDeviceProp device{};
    static_cast<void>(cudaGetDeviceProperties(&device, options_.ordinal));
    return fmt::format("{}, compute capability {}.{}, {} multiprocessors, {:.1f} GB", device.name, device.major,
                       device.minor, device.multiProcessorCount, static_cast<double>(device.totalGlobalMem) / 1e9);
  }
  Memory& memory() override { return options_.keeps_memory_on_host ? static_cast<Memory&>(pinned_) : memory_; }
  Memory& staging() override { return pinned_; }
  int64_t free_bytes() const override {
    size_t free = 0, total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<int64_t>(free) : -1;
  }
  void* stream() const override { return stream_; }
  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0 && to != from)
      faults_.keep("copy", cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_));
  }
  void fill(void* data, uint8_t value, int64_t bytes) override {
    if (bytes > 0) faults_.keep("fill", cudaMemsetAsync(data, value, static_cast<size_t>(bytes), stream_));
  }
  void launched(const char* op) override {
    faults_.keep(op, cudaPeekAtLastError());
    if (options_.waits_after_each_op) faults_.keep(op, cudaStreamSynchronize(stream_));
  }
  Status wait() override {
    faults_.keep("wait for the device", cudaStreamSynchronize(stream_));
    return status();
  }
  Status status() const override { return faults_.first(); }
  void mark() override { faults_.keep("mark the stream", cudaEventRecord(mark_, stream_)); }
  Status wait_for_mark() override {
    faults_.keep("wait for a mark", cudaEventSynchronize(mark_));
    return status();
  }
  void begin_graph() override {
    faults_.keep("record a graph", cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  }
  std::unique_ptr<DeviceGraph> end_graph() override {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    if (!faults_.keep("end a graph", cudaStreamEndCapture(stream_, &graph))) return nullptr;
    const bool is_made = faults_.keep("make a graph", cudaGraphInstantiate(&executable, graph, 0));
    static_cast<void>(cudaGraphDestroy(graph));
    return is_made ? std::make_unique<CudaGraph>(executable, stream_, faults_) : nullptr;
  }
  void start_timer() override { faults_.keep("start the timer", cudaEventRecord(timer_begin_, stream_)); }
  double elapsed_ns() override {
    float milliseconds = 0;
    faults_.keep("stop the timer", cudaEventRecord(timer_end_, stream_));
    faults_.keep("wait for the timer", cudaEventSynchronize(timer_end_));
    faults_.keep("read the timer", cudaEventElapsedTime(&milliseconds, timer_begin_, timer_end_));
    return 1e6 * static_cast<double>(milliseconds);
  }

 private:
  CudaOptions options_;
  Faults faults_;
  DeviceMemory memory_;
  PinnedMemory pinned_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t mark_ = nullptr, timer_begin_ = nullptr, timer_end_ = nullptr;
};

// What stands between this program and a device it could use.
Status check_device(int ordinal) {
  int driver = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return unavailable("cuda: no NVIDIA driver on this machine (libcuda.so.1 was not found)");
  if (driver < 1000 * (CUDART_VERSION / 1000))
    return unavailable(fmt::format("cuda: the driver offers CUDA {}, this program needs {}; update the driver",
                                   version_text(driver), version_text(CUDART_VERSION)));
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess)
    return unavailable(fmt::format("cuda: no device can be used: {}", cudaGetErrorString(error)));
  if (ordinal < 0 || ordinal >= count)
    return unavailable(fmt::format("cuda: there is no device {}, this machine has {}", ordinal, count));
  int major = 0, minor = 0;
  static_cast<void>(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal));
  static_cast<void>(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal));
  if (10 * major + minor != kCapability)
    return unavailable(fmt::format("cuda: device {} has compute capability {}.{}, this program was compiled for {}.{}",
                                   ordinal, major, minor, kCapability / 10, kCapability % 10));
  return {};
}

}  // namespace

Result<std::unique_ptr<Device>> open_cuda_device(const CudaOptions& options) {
  TRY(check_device(options.ordinal));
  auto device = std::make_unique<CudaDevice>(options);
  TRY(device->open());
  return std::unique_ptr<Device>(std::move(device));
}

std::string describe_cuda() {
  std::string text = fmt::format("compiled for compute capability {}.{} with CUDA {}", kCapability / 10,
                                 kCapability % 10, version_text(CUDART_VERSION));
  const auto device = open_cuda_device();
  if (!device.ok()) return text + "; " + device.status().message();
  int driver = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  return text + fmt::format("; driver for CUDA {}; device 0: {}", version_text(driver), device.value()->describe());
}

}  // namespace deepinfer
