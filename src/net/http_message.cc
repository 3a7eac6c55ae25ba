// SPDX-License-Identifier: MIT
#include "net/http_message.h"

#include <algorithm>

#include "base/file.h"
#include "base/utf8.h"

namespace deepinfer {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

struct Phrase {
  int status;
  std::string_view text;
};
constexpr Phrase kPhrases[] = {{100, "Continue"},
                               {200, "OK"},
                               {204, "No Content"},
                               {304, "Not Modified"},
                               {400, "Bad Request"},
                               {401, "Unauthorized"},
                               {403, "Forbidden"},
                               {404, "Not Found"},
                               {405, "Method Not Allowed"},
                               {408, "Request Timeout"},
                               {413, "Content Too Large"},
                               {414, "URI Too Long"},
                               {415, "Unsupported Media Type"},
                               {429, "Too Many Requests"},
                               {431, "Request Header Fields Too Large"},
                               {500, "Internal Server Error"},
                               {501, "Not Implemented"},
                               {503, "Service Unavailable"},
                               {505, "HTTP Version Not Supported"}};

}  // namespace

bool equals_ignoring_case(std::string_view left, std::string_view right) {
  return std::ranges::equal(left, right, [](char a, char b) { return lower(a) == lower(b); });
}

std::string_view find_field(const HttpFields& fields, std::string_view name) {
  for (const auto& [key, value] : fields)
    if (equals_ignoring_case(key, name)) return value;
  return {};
}

std::string_view reason_phrase(int status) {
  for (const Phrase& phrase : kPhrases)
    if (phrase.status == status) return phrase.text;
  return "Status";
}

Status split_target(std::string_view target, HttpRequest& request) {
  if (target.empty() || target[0] != '/') return invalid_argument("request target: expected a path that starts with /");
  const size_t question = target.find('?');
  const std::string_view path = target.substr(0, question);
  request.query = question == std::string_view::npos ? "" : std::string(target.substr(question + 1));
  request.path.clear();
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      request.path += path[i];
      continue;
    }
    const int high = i + 2 < path.size() ? hex_digit(path[i + 1]) : -1;
    const int low = i + 2 < path.size() ? hex_digit(path[i + 2]) : -1;
    if (high < 0 || low < 0) return invalid_argument("request target: expected two hex digits after %");
    if (high + low == 0) return invalid_argument("request target: %00 is not allowed");
    request.path += static_cast<char>(high * 16 + low);
    i += 2;
  }
  // Answers name the path in JSON.
  if (!is_valid_utf8(request.path)) return invalid_argument("request target: expected UTF-8");
  return {};
}

Result<std::string> decoded_body(HttpRequest&& request, size_t bytes_max) {
  const std::string_view encoding = request.field("Content-Encoding");
  if (encoding.empty() || equals_ignoring_case(encoding, "identity")) return std::move(request.body);
  if (!equals_ignoring_case(encoding, "gzip"))
    return unimplemented("Content-Encoding: expected gzip or identity, found another encoding");
  return gunzip({reinterpret_cast<const uint8_t*>(request.body.data()), request.body.size()}, bytes_max);
}

}  // namespace deepinfer
