// SPDX-License-Identifier: MIT
#include "protocol/stop_rule.h"

#include <fmt/format.h>

namespace deepinfer {

namespace {

constexpr size_t kSequencesMax = 16;

Refusal add(std::string text, const std::string& path, std::vector<std::string>& out) {
  if (text.empty())
    return refuse(
        fmt::format(
            "Invalid '{}': empty string. Expected a string with minimum length 1, but got an empty string instead.",
            path),
        path);
  out.push_back(std::move(text));
  return {};
}

}  // namespace

Refusal read_stop_sequences(Json* stop, std::vector<std::string>& out) {
  if (!stop || stop->is_null()) return {};
  if (stop->is_string()) return add(std::move(stop->as_string()), "stop", out);
  Json::Array& list = stop->as_array();
  if (list.size() > kSequencesMax) return refuse(fmt::format("Stop string array too long: {}", list.size()), "stop");
  for (size_t i = 0; i < list.size(); ++i)
    REFUSE_IF(add(std::move(list[i].as_string()), fmt::format("stop[{}]", i), out));
  return {};
}

}  // namespace deepinfer
