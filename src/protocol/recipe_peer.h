// SPDX-License-Identifier: MIT
// The peer of both codec benches: deepseek-recipe on the same data, in the same run.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "base/peer_bench.h"

namespace deepinfer {

// Tokens per second by protocol, as `script` of bench/peers prints them for `data`. Empty where it cannot be had.
inline std::map<std::string, double> run_recipe_peer(const BenchOptions& options, const std::string& script,
                                                     const std::string& tokenizer, const Json& data) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("deepinfer_{}_{}.json", script, getpid());
  if (!write_file_atomically(file.string(), to_json(data)).ok()) return {};
  const std::string arguments[] = {tokenizer, file.string()};
  const std::string output = run_peer_script(options, DEEPINFER_TESTDATA "/../bench/peers/" + script, arguments);
  std::filesystem::remove(file);
  std::map<std::string, double> rates;
  for (size_t begin = 0; begin < output.size();) {
    const size_t end = std::min(output.find('\n', begin), output.size());
    auto line = parse_json(std::string_view(output).substr(begin, end - begin));
    begin = end + 1;
    if (line.ok()) rates[line->find("protocol")->as_string()] = line->find("tokens_per_second")->as_double();
  }
  return rates;
}

// The peer's figure of a protocol's row.
inline std::optional<BenchPeer> recipe_figure(const std::map<std::string, double>& rates, const std::string& protocol,
                                              double scale) {
  const auto rate = rates.find(protocol);
  if (rate == rates.end()) return std::nullopt;
  return BenchPeer{"deepseek-recipe", rate->second * scale};
}

}  // namespace deepinfer
