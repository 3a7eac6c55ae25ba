// SPDX-License-Identifier: MIT
// What reading an answer needs of the loaded tokenizer: the bytes of its tokens and the control tokens that steer. A
// missing control token is an error at start-up that names it. Immutable.
#pragma once

#include <memory>

#include "base/ids.h"
#include "base/status.h"
#include "chat/control_tokens.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

struct OutputVocabulary {
  static Result<OutputVocabulary> create(std::shared_ptr<const Tokenizer> tokenizer);

  std::shared_ptr<const Tokenizer> tokenizer;
  ControlTokens controls;

  // Tokens that open another turn: begin of sentence, system, user, assistant, latest reminder.
  bool starts_turn(TokenId id) const;
};

}  // namespace deepinfer
