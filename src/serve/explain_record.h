// SPDX-License-Identifier: MIT
// What happened to a sequence and with which values it ran, for the people who ask with the x-explain header.
#pragma once

#include "base/json.h"
#include "sampler/sampling_params.h"
#include "scheduler/sequence.h"

namespace deepinfer {

Json explain_record(const SequenceRecord& record, const SamplingParams& sampling);

}  // namespace deepinfer
