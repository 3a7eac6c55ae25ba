// SPDX-License-Identifier: MIT
// How a bench runs the peers it is compared with. In a header, so that benches alone start programs: neither the
// service nor the libraries contain this.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <span>
#include <string>

#include "base/bench.h"

namespace deepinfer {

// What a peer's Python script prints to stdout; --set python=PATH names the interpreter. A line on stderr where it ends
// with an error; what it printed before counts.
inline std::string run_peer_script(const BenchOptions& options, const std::string& script,
                                   std::span<const std::string> arguments) {
  const auto python = options.extra.find("python");
  std::string command = fmt::format("'{}' '{}'", python == options.extra.end() ? "python3" : python->second, script);
  for (const std::string& argument : arguments) command += fmt::format(" '{}'", argument);
  std::string output;
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (!pipe) return output;
  char buffer[4096];
  size_t n = 0;
  while ((n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0) output.append(buffer, n);
  if (pclose(pipe) != 0) fmt::print(stderr, "the peer did not run: {}\n", command);
  return output;
}

}  // namespace deepinfer
