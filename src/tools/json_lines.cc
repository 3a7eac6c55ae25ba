// SPDX-License-Identifier: MIT
#include "tools/json_lines.h"

#include <fmt/format.h>

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

bool read_line(std::istream& in, size_t bytes_max, std::string& line, bool& is_cut) {
  constexpr int kEnd = std::char_traits<char>::eof();
  line.clear();
  is_cut = false;
  int byte = kEnd;
  while ((byte = in.rdbuf()->sbumpc()) != kEnd && byte != '\n') {
    if (line.size() < bytes_max) line.push_back(static_cast<char>(byte));
    else is_cut = true;
    if (is_cut && interrupted()) return false;
  }
  return byte != kEnd || !line.empty();
}

void answer_json_lines(const std::function<Status(const Json& request, Json& out)>& answer) {
  std::ios::sync_with_stdio(false);
  std::string line;
  for (bool is_cut = false; !interrupted() && std::cout && read_line(std::cin, kLineBytesMax, line, is_cut);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (is_cut) std::cout << fmt::format(R"({{"error":"the line is longer than {} bytes"}})", kLineBytesMax) << '\n';
    else std::cout << answer_line(line, answer) << '\n';
    // Whoever waits for an answer before asking again gets it.
    if (std::cin.rdbuf()->in_avail() <= 0) std::cout.flush();
  }
  std::cout.flush();
}

}  // namespace deepinfer
