// SPDX-License-Identifier: MIT
// One sequence through a step loop of its own, with the record of what happened: `generate` asks here, so that its
// figures are those of the loop that serves. Thread: the engine's.
#pragma once

#include <memory>

#include "engine/generation.h"
#include "scheduler/sequence.h"
#include "serve/mask_source.h"

namespace deepinfer {

struct RecordedGeneration {
  Generation generation;
  SequenceRecord record;
};

// As generate() of engine/generation.h; the engine has nothing else to do. The same tokens come out, or with `masks`
// those that they allow. Errors: invalid_argument (an empty prompt, no token asked for, more than the engine holds),
// the loop's and the sink's.
Result<RecordedGeneration> generate_recorded(Engine& engine, GenerationRequest request, const TokenSink& sink,
                                             std::unique_ptr<MaskSource> masks = nullptr);

}  // namespace deepinfer
