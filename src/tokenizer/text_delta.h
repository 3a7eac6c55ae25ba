// SPDX-License-Identifier: MIT
// The piece of text that one or more output tokens completed: whole code points only. A control token arrives as its id
// with no text, so that a reader of deltas recognises markup by id and never by spelling.
#pragma once

#include <string>

#include "base/ids.h"

namespace deepinfer {

struct TextDelta {
  std::string text;         // valid UTF-8; empty while a code point is incomplete, and for a control token
  TokenId control_id = -1;  // the control token that follows `text`, or -1
  int num_tokens = 0;       // tokens consumed since the delta before, control token included
};

}  // namespace deepinfer
