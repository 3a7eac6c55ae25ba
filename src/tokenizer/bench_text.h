// SPDX-License-Identifier: MIT
// Texts for the tokenizer bench, made from seeds so that every run and every peer sees the same bytes. English and
// Chinese are drawn word by word from the vocabulary with Zipf's law (tokens are numbered by falling frequency), with
// rare words put together from several tokens; code is the sources of this tree.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace deepinfer {

std::string bench_english(const Tokenizer& tokenizer, size_t num_bytes);
std::string bench_chinese(const Tokenizer& tokenizer, size_t num_bytes);
std::string bench_code(const std::string& folder, size_t num_bytes);
// (name, text): what makes tokenizers slow.
std::vector<std::pair<std::string, std::string>> bench_worst_cases();

}  // namespace deepinfer
