// SPDX-License-Identifier: MIT
// A progress bar on standard error, drawn only when that is a terminal. Thread: one caller.
#pragma once

#include <cstdint>
#include <string>

namespace deepinfer {

class Progress {
 public:
  Progress(std::string label, int64_t num_items);
  ~Progress();  // leaves the line clean
  void advance_to(int64_t num_done);
  void hide();  // before something else is written to the terminal; the next advance draws it again

 private:
  std::string label_;
  int64_t num_items_;
  int last_permille_ = -1;
  bool on_terminal_;
};

}  // namespace deepinfer
