// SPDX-License-Identifier: MIT
#include "engram/token_map.h"

#include <utf8proc.h>

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "base/utf8.h"

namespace deepinfer {
namespace {

constexpr char32_t kLoneSpace = 0xE000;  // stands for a text of exactly one space while others are stripped

bool is_mark(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

// Unicode's White_Space property.
bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// NFKC followed by NFD is NFKD: composition is undone again.
std::u32string decompose(std::string_view text) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT | UTF8PROC_STABLE);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto length = static_cast<utf8proc_ssize_t>(text.size());
  const utf8proc_ssize_t needed = utf8proc_decompose(bytes, length, nullptr, 0, kOptions);
  CHECK(needed >= 0);  // valid UTF-8 of a token's length always decomposes
  std::vector<utf8proc_int32_t> points(static_cast<size_t>(needed));
  CHECK(utf8proc_decompose(bytes, length, points.data(), needed, kOptions) == needed);
  return {points.begin(), points.end()};
}

std::u32string collapse_spaces(const std::u32string& text) {
  std::u32string out;
  bool in_run = false;
  for (const char32_t c : text) {
    const bool is_space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!is_space) out.push_back(c);
    else if (!in_run) out.push_back(' ');
    in_run = is_space;
  }
  return out;
}

std::u32string strip(std::u32string text) {
  const auto first = std::find_if_not(text.begin(), text.end(), is_white_space);
  const auto last = std::find_if_not(text.rbegin(), std::make_reverse_iterator(first), is_white_space).base();
  return {first, last};
}

}  // namespace

std::string normalize_token_text(std::string_view text) {
  std::u32string points = decompose(text);
  std::erase_if(points, is_mark);
  for (char32_t& c : points) c = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  points = collapse_spaces(points);
  if (points == U" ") points = kLoneSpace;
  points = strip(std::move(points));
  std::string out;
  for (const char32_t c : points) append_utf8(out, c == kLoneSpace ? U' ' : c);
  return out;
}

TokenMap make_token_map(std::span<const TokenText> texts) {
  TokenMap map;
  map.class_of.reserve(texts.size());
  std::unordered_map<std::string, int32_t> seen;
  for (const TokenText& token : texts) {
    std::string key;
    if (token.text.find("\uFFFD") != std::string::npos) key = token.piece;
    else if (key = normalize_token_text(token.text); key.empty()) key = token.text;
    map.class_of.push_back(seen.emplace(std::move(key), static_cast<int32_t>(seen.size())).first->second);
  }
  map.num_classes = static_cast<int64_t>(seen.size());
  return map;
}

Result<TokenMap> token_map_from_classes(std::vector<int32_t> class_of) {
  int64_t num_classes = 0;
  for (size_t id = 0; id < class_of.size(); ++id) {
    if (class_of[id] < 0 || class_of[id] > num_classes)
      return invalid_argument("Engram token map: id " + std::to_string(id) + " has class " +
                              std::to_string(class_of[id]) + ", expected 0 to " + std::to_string(num_classes));
    num_classes = std::max<int64_t>(num_classes, class_of[id] + 1);
  }
  return TokenMap{std::move(class_of), num_classes};
}

}  // namespace deepinfer
