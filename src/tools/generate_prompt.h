// SPDX-License-Identifier: MIT
// What `generate` is to complete: from its options to token ids and image rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/chat_request.h"
#include "chat/output_vocabulary.h"
#include "engine/lane_start.h"
#include "kernels/op.h"
#include "serve/loaded_model.h"

namespace deepinfer {

class OptionSet;

struct GeneratePrompt {
  std::string prompt, chat, ids, thinking = "off";
  std::vector<std::string> images;
  bool raw = false;
};

void declare_prompt_options(OptionSet& options, GeneratePrompt& prompt);
// Errors: invalid_argument unless exactly one of --prompt, --chat, --ids and --chat-batch is given, with options of its
// own.
Status check_prompt_options(const GeneratePrompt& prompt, bool is_batch);

struct PreparedPrompt {
  std::vector<TokenId> tokens;
  std::vector<LaneImage> images;
  size_t num_prompt_tokens = 0;
  ChatRequest request;                           // conversation, options and parsing; defaults for ids and raw text
  bool is_request = false;                       // the request came from --chat: its sampling options count
  std::unique_ptr<OutputVocabulary> vocabulary;  // of a conversation: the answer is read with the stream parser
};

Result<PreparedPrompt> prepare_prompt(const GeneratePrompt& prompt, const LoadedModel& model, const Target& target,
                                      int num_threads);

}  // namespace deepinfer
