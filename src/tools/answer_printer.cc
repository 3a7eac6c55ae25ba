// SPDX-License-Identifier: MIT
#include "tools/answer_printer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace deepinfer {

AnswerPrinter::AnswerPrinter() : on_terminal_(isatty(1) == 1) {}

void AnswerPrinter::print(AnswerReader::Part part, std::string_view piece) {
  if (piece.empty()) return;
  if (part == AnswerReader::Part::kText) end();
  if (part == AnswerReader::Part::kReasoning && !in_reasoning_) {
    fmt::print("{}", on_terminal_ ? "\033[2m" : "(");
    in_reasoning_ = true;
  }
  fmt::print("{}", piece);
  std::fflush(stdout);
}

void AnswerPrinter::end() {
  if (!in_reasoning_) return;
  fmt::print("{}\n", on_terminal_ ? "\033[0m" : ")");
  in_reasoning_ = false;
}

}  // namespace deepinfer
