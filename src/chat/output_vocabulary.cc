// SPDX-License-Identifier: MIT
#include "chat/output_vocabulary.h"

#include <utility>

namespace deepinfer {

Result<OutputVocabulary> OutputVocabulary::create(std::shared_ptr<const Tokenizer> tokenizer) {
  OutputVocabulary vocabulary;
  // The fewest that any answer needs; V4.1 adds the system marker, which only prompts hold.
  ASSIGN_OR_RETURN(vocabulary.controls, ControlTokens::find(*tokenizer, PromptVersion::kV4));
  vocabulary.tokenizer = std::move(tokenizer);
  return vocabulary;
}

bool OutputVocabulary::starts_turn(TokenId id) const {
  for (const Control control :
       {Control::kBos, Control::kSystem, Control::kUser, Control::kAssistant, Control::kLatestReminder}) {
    if (id == controls.id(control)) return true;
  }
  return false;
}

}  // namespace deepinfer
