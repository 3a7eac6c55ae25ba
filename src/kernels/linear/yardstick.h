// SPDX-License-Identifier: MIT
// Matrix products of the vendor's library, as ceilings for benches. The library (libcublasLt.so.13) is looked for at
// run time and used for nothing else.
#pragma once

#include <memory>

#include "tensor/device.h"

namespace deepinfer {

// out [rows, outputs] = x [rows, in] W^T [outputs, in], all bf16, or e4m3 operands and a bf16 result. Operands are
// given.
class LibraryProduct {
 public:
  virtual ~LibraryProduct() = default;
  virtual void launch(const void* x, const void* weight, void* out) = 0;  // on the device's stream
};

struct LibraryProductShape {
  bool is_fp8 = false;
  int64_t rows = 0, outputs = 0, in = 0;
};
// Null where the build, the library or a kernel of it for this shape is missing.
std::unique_ptr<LibraryProduct> open_library_product(Device& device, const LibraryProductShape& shape);

}  // namespace deepinfer
