// SPDX-License-Identifier: MIT
#include "chat/output_vocabulary.h"

#include <utility>

namespace deepinfer {

Result<OutputVocabulary> OutputVocabulary::create(std::shared_ptr<const Tokenizer> tokenizer) {
  OutputVocabulary vocabulary;
  ASSIGN_OR_RETURN(vocabulary.think_begin, tokenizer->require_control("<think>"));
  ASSIGN_OR_RETURN(vocabulary.think_end, tokenizer->require_control(kThinkEndSpelling));
  ASSIGN_OR_RETURN(vocabulary.dsml, tokenizer->require_control(kDsmlSpelling));
  ASSIGN_OR_RETURN(vocabulary.end_of_sentence,
                   tokenizer->require_control("<\uFF5Cend\u2581of\u2581sentence\uFF5C>"));
  constexpr std::array<std::string_view, 5> kTurnStarts = {
      "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>", "<\uFF5CSystem\uFF5C>", "<\uFF5CUser\uFF5C>",
      "<\uFF5CAssistant\uFF5C>", "<\uFF5Clatest_reminder\uFF5C>"};
  for (size_t i = 0; i < kTurnStarts.size(); ++i) {
    vocabulary.turn_starts[i] = tokenizer->find_control(kTurnStarts[i]).value_or(-1);
  }
  vocabulary.tokenizer = std::move(tokenizer);
  return vocabulary;
}

}  // namespace deepinfer
