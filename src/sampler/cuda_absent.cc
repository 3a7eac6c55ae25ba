// SPDX-License-Identifier: MIT
// Stands in where the build has no device that could pick: cuda/device_sampler_cuda.cu has the rows.
#include "sampler/pick_tables.h"

namespace deepinfer {

extern const DevicePicks* const kDevicePicks = nullptr;

}  // namespace deepinfer
