// SPDX-License-Identifier: MIT
#include "tensor/stream_marks.h"

namespace deepinfer {

std::unique_ptr<StreamMarks> StreamMarks::make(Device&) { return nullptr; }

}  // namespace deepinfer
