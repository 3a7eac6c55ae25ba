// SPDX-License-Identifier: MIT
// Prints an answer to standard output as it comes; reasoning is dimmed on a terminal and stands in (parentheses)
// elsewhere.
#pragma once

#include <string_view>

#include "serve/answer_reader.h"

namespace deepinfer {

class AnswerPrinter {
 public:
  AnswerPrinter();
  void print(AnswerReader::Part part, std::string_view piece);
  void end();  // closes an open reasoning part

 private:
  bool on_terminal_;
  bool in_reasoning_ = false;
};

}  // namespace deepinfer
