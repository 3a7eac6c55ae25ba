// SPDX-License-Identifier: MIT
// Token ids to text, one at a time. Emits every code point with the token that completes it, never half a code point,
// and one U+FFFD for each maximal ill-formed subpart of the bytes as soon as it is certain: the joined output equals
// Tokenizer::decode of all ids. At most three bytes are held back. Thread: one owner; the tokenizer must outlive it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "tokenizer/text_delta.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // Text completed by this token; control tokens give their spelling, ids outside the vocabulary nothing.
  std::string push(TokenId id);
  void push(TokenId id, std::string& out);  // appends; no allocation beyond `out`
  // The end of the text: an incomplete code point becomes U+FFFD. The object can be used again afterwards.
  std::string finish();
  void finish(std::string& out);

  // The same by deltas: a control token first ends the text before it (as finish()), then stands in `control_id`.
  TextDelta push_delta(TokenId id);

  size_t num_pending_bytes() const { return num_pending_; }

 private:
  void push_bytes(std::string_view bytes, std::string& out);

  const Tokenizer* tokenizer_;
  char pending_[4] = {};
  size_t num_pending_ = 0;
};

}  // namespace deepinfer
