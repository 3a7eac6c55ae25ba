// SPDX-License-Identifier: MIT
#include "tools/json_lines.h"

#include <iostream>
#include <string>

#include "tools/interrupt.h"

namespace deepinfer {
namespace {

std::string answer_line(const std::string& line, const std::function<Status(const Json&, Json&)>& answer) {
  JsonLimits limits;
  limits.refuse_duplicate_keys = false;
  limits.wide_integers = true;
  limits.depth_max = 200;  // a request's own limit holds within the line
  Json out = Json::Object{};
  const auto request = parse_json(line, limits);
  Status status = request.status();
  if (request.ok()) {
    if (const Json* id = request.value().find("id")) out.set("id", *id);
    status = answer(request.value(), out);
  }
  if (!status.ok()) out.set("error", status.message());
  return to_json(out);
}

}  // namespace

void answer_json_lines(const std::function<Status(const Json& request, Json& out)>& answer) {
  std::ios::sync_with_stdio(false);
  for (std::string line; !interrupted() && std::cout && std::getline(std::cin, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::cout << answer_line(line, answer) << '\n';
    // Whoever waits for an answer before asking again gets it.
    if (std::cin.rdbuf()->in_avail() <= 0) std::cout.flush();
  }
  std::cout.flush();
}

}  // namespace deepinfer
