// SPDX-License-Identifier: MIT
#include "kernels/linear/yardstick.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include "tensor/buffer.h"

namespace deepinfer {
namespace {

// The library's functions, or nulls. Loaded once; it stays.
struct Library {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmulDescCreate) describe = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) prefer = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
  cublasLtHandle_t handle = nullptr;

  Library() {
    void* const library = ::dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    if (find(create, "cublasLtCreate") && find(describe, "cublasLtMatmulDescCreate") &&
        find(set, "cublasLtMatmulDescSetAttribute") && find(layout, "cublasLtMatrixLayoutCreate") &&
        find(prefer, "cublasLtMatmulPreferenceCreate") &&
        find(set_preference, "cublasLtMatmulPreferenceSetAttribute") &&
        find(choose, "cublasLtMatmulAlgoGetHeuristic") && find(multiply, "cublasLtMatmul"))
      if (create(&handle) != CUBLAS_STATUS_SUCCESS) handle = nullptr;
  }
};

constexpr size_t kWorkspaceBytes = size_t{64} << 20;

// Column-major as the library has it: out^T [outputs, rows] = (W^T)^T x^T.
class CublasProduct : public LibraryProduct {
 public:
  CublasProduct(const Library& library, Device& device, const LibraryProductShape& s)
      : library_(library),
        stream_(static_cast<cudaStream_t>(device.stream())),
        workspace_(device.memory(), kWorkspaceBytes),
        scale_(device.memory(), 1) {
    const float one = 1;
    cudaMemcpy(scale_.data(), &one, sizeof one, cudaMemcpyHostToDevice);
    const cudaDataType_t type = s.is_fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    const cublasOperation_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
    const float* const scale = scale_.data();
    library.describe(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    library.set(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    library.set(product_, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain);
    if (s.is_fp8) {
      library.set(product_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scale, sizeof scale);
      library.set(product_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scale, sizeof scale);
    }
    const auto in = static_cast<uint64_t>(s.in), outputs = static_cast<uint64_t>(s.outputs),
               rows = static_cast<uint64_t>(s.rows);
    library.layout(&weight_, type, in, outputs, s.in);
    library.layout(&x_, type, in, rows, s.in);
    library.layout(&out_, CUDA_R_16BF, outputs, rows, s.outputs);
    cublasLtMatmulPreference_t preference = nullptr;
    library.prefer(&preference);
    library.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                           sizeof kWorkspaceBytes);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status = library.choose(library.handle, product_, weight_, x_, out_, out_, preference, 1, &best,
                                                 &found);
    is_found_ = status == CUBLAS_STATUS_SUCCESS && found > 0;
    algorithm_ = best.algo;
  }
  bool is_found() const { return is_found_; }
  void launch(const void* x, const void* weight, void* out) override {
    const float one = 1, zero = 0;
    library_.multiply(library_.handle, product_, &one, weight, weight_, x, x_, &zero, out, out_, out, out_, &algorithm_,
                      workspace_.data(), kWorkspaceBytes, stream_);
  }

 private:
  const Library& library_;
  cudaStream_t stream_;
  Buffer<uint8_t> workspace_;
  Buffer<float> scale_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t weight_ = nullptr, x_ = nullptr, out_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  bool is_found_ = false;
};

}  // namespace

std::unique_ptr<LibraryProduct> open_library_product(Device& device, const LibraryProductShape& shape) {
  static const Library library;
  if (!library.handle) return nullptr;
  auto product = std::make_unique<CublasProduct>(library, device, shape);
  if (!product->is_found()) return nullptr;
  return product;
}

}  // namespace deepinfer
