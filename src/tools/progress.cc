// SPDX-License-Identifier: MIT
#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace deepinfer {

Progress::Progress(std::string label, int64_t num_items)
    : label_(std::move(label)), num_items_(std::max<int64_t>(num_items, 1)), on_terminal_(isatty(2) == 1) {
  advance_to(0);
}

Progress::~Progress() { hide(); }

void Progress::hide() {
  if (!on_terminal_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  last_permille_ = -1;
}

void Progress::advance_to(int64_t num_done) {
  const int permille = static_cast<int>(1000 * std::min(num_done, num_items_) / num_items_);
  if (!on_terminal_ || permille == last_permille_) return;
  last_permille_ = permille;
  constexpr int kBarColumns = 30;
  const int filled = permille * kBarColumns / 1000;
  fmt::print(stderr, "\r\033[K{} [{}{}] {:.1f}% {}/{}", label_, std::string(static_cast<size_t>(filled), '='),
             std::string(static_cast<size_t>(kBarColumns - filled), ' '), permille / 10.0, num_done, num_items_);
  std::fflush(stderr);
}

}  // namespace deepinfer
