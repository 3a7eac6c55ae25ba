// SPDX-License-Identifier: MIT
// What a request changes in a row of logits before temperature, in this order: repetition penalty, frequency and
// presence penalty, bias, grammar mask, bad words, end mask. A masked token is -infinity. Any thread.
#pragma once

#include <span>

#include "sampler/sampler.h"

namespace deepinfer {

// Whether edit_row() could change anything.
bool has_edits(const SampleRow& row);

// The end mask (min_tokens, ignore_eos) is left out where it would leave nothing: a grammar that only allows the end
// wins. logits: the vocabulary, finite.
void edit_row(const SampleRow& row, std::span<float> logits);

}  // namespace deepinfer
