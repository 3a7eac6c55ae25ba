// SPDX-License-Identifier: MIT
#include "chat/control_tokens.h"

#include <fmt/format.h>

namespace deepinfer {

namespace {

// In the order of Control.
constexpr std::string_view kSpellings[kNumControls] = {"<｜begin▁of▁sentence｜>",
                                                       "<｜end▁of▁sentence｜>",
                                                       "<｜System｜>",
                                                       "<｜User｜>",
                                                       "<｜Assistant｜>",
                                                       "<｜latest_reminder｜>",
                                                       "<think>",
                                                       "</think>",
                                                       "｜DSML｜",
                                                       "<｜image｜>",
                                                       "<｜ref｜>",
                                                       "<｜/ref｜>",
                                                       "<｜box｜>",
                                                       "<｜/box｜>",
                                                       "<｜point｜>",
                                                       "<｜/point｜>",
                                                       "<｜polygon｜>",
                                                       "<｜/polygon｜>",
                                                       "<｜action｜>",
                                                       "<｜query｜>",
                                                       "<｜authority｜>",
                                                       "<｜domain｜>",
                                                       "<｜title｜>",
                                                       "<｜read_url｜>"};
// The checkpoint's own file spells the image placeholder in another way.
constexpr std::string_view kImageInCheckpoint = "<｜deepseek_image｜>";

constexpr Control kRequired[] = {Control::kBos,        Control::kEos,      Control::kUser, Control::kAssistant,
                                 Control::kThinkStart, Control::kThinkEnd, Control::kDsml};

}  // namespace

std::string_view default_spelling(Control control) { return kSpellings[static_cast<size_t>(control)]; }

Result<ControlTokens> ControlTokens::find(const Tokenizer& tokenizer, PromptVersion version) {
  ControlTokens tokens;
  for (size_t i = 0; i < kNumControls; ++i) {
    tokens.entries_[i].spelling = kSpellings[i];
    tokens.entries_[i].id = tokenizer.find_control(kSpellings[i]).value_or(-1);
  }
  // A file that knows the checkpoint's spelling uses it for the placeholder, whatever else is called "image" there.
  if (const auto id = tokenizer.find_control(kImageInCheckpoint))
    tokens.entries_[static_cast<size_t>(Control::kImage)] = {*id, std::string(kImageInCheckpoint)};
  const auto missing = [&](Control control) {
    return not_found(fmt::format("{}: no control token {}, which every prompt needs", tokenizer.source(),
                                 kSpellings[static_cast<size_t>(control)]));
  };
  for (const Control control : kRequired)
    if (tokens.id(control) < 0) return missing(control);
  if (version == PromptVersion::kV41 && tokens.id(Control::kSystem) < 0) return missing(Control::kSystem);
  return tokens;
}

bool ControlTokens::is_grounding(TokenId id) const {
  for (size_t i = static_cast<size_t>(Control::kRef); i <= static_cast<size_t>(Control::kPolygonEnd); ++i)
    if (entries_[i].id >= 0 && entries_[i].id == id) return true;
  return false;
}

}  // namespace deepinfer
