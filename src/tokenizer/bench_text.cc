// SPDX-License-Identifier: MIT
#include "tokenizer/bench_text.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/utf8.h"

namespace deepinfer {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  size_t below(size_t bound) { return next() % bound; }
  bool chance(int percent) { return below(100) < static_cast<size_t>(percent); }
  // Zipf with exponent 1 over [0, size): the logarithm of the rank is uniform.
  size_t zipf(size_t size) {
    const double u = next() * 0x1p-31;
    return std::min(size - 1, static_cast<size_t>(std::exp(u * std::log(static_cast<double>(size) + 1)) - 1));
  }

 private:
  uint64_t state_;
};

bool is_lower(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

bool is_han(std::string_view text) {
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    if (point.num_bytes == 0 || point.value < 0x4E00 || point.value > 0x9FA5) return false;
    text.remove_prefix(point.num_bytes);
  }
  return true;
}

template <typename Filter>
std::vector<std::string_view> tokens_where(const Tokenizer& tokenizer, const Filter& filter) {
  std::vector<std::string_view> found;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (!tokenizer.is_control(id) && !bytes.empty() && filter(bytes)) found.push_back(bytes);
  }
  return found;
}

}  // namespace

std::string bench_english(const Tokenizer& tokenizer, size_t num_bytes) {
  const auto words =
      tokens_where(tokenizer, [](std::string_view t) { return t.size() > 2 && t[0] == ' ' && is_lower(t.substr(1)); });
  const auto stems = tokens_where(tokenizer, [](std::string_view t) { return t.size() > 2 && is_lower(t); });
  Random random(1);
  std::string text;
  while (text.size() < num_bytes) {
    const size_t num_words = 5 + random.below(20);
    for (size_t i = 0; i < num_words; ++i) {
      std::string word(words[random.zipf(words.size())]);
      if (random.chance(12)) word += stems[random.zipf(stems.size())];
      if (i == 0) word[1] = static_cast<char>(word[1] - 'a' + 'A');
      text += word;
      if (random.chance(6)) text += ',';
      if (random.chance(2)) text += ' ' + std::to_string(random.below(3000));
    }
    text += random.chance(15) ? ".\n\n" : ".";
  }
  return text;
}

std::string bench_chinese(const Tokenizer& tokenizer, size_t num_bytes) {
  const auto words = tokens_where(tokenizer, is_han);
  Random random(2);
  std::string text;
  while (text.size() < num_bytes) {
    const size_t num_words = 2 + random.below(9);
    for (size_t i = 0; i < num_words; ++i) text += words[random.zipf(words.size())];
    if (random.chance(5)) text += std::to_string(random.below(3000));
    text += random.chance(70) ? "，" : random.chance(85) ? "。" : "。\n";
  }
  return text;
}

std::string bench_code(const std::string& folder, size_t num_bytes) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, ignored)) {
    const std::string extension = entry.path().extension().string();
    const bool is_table = entry.path().filename().string().find("table") != std::string::npos;
    if ((extension == ".cc" || extension == ".h") && !is_table) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const std::string& file : files)
    if (auto contents = read_file(file); contents.ok() && text.size() < num_bytes) text += *contents;
  if (text.empty()) text = "int main() { return 0; }\n";
  return text;
}

std::vector<std::pair<std::string, std::string>> bench_worst_cases() {
  Random random(3);
  std::string letters, points, lines, emoji;
  while (letters.size() < 60000) letters.push_back(static_cast<char>('a' + random.below(26)));
  while (points.size() < 500000) append_utf8(points, static_cast<char32_t>(0xA0 + random.below(0xD800 - 0xA0)));
  while (lines.size() < 200000)
    lines += random.chance(50) ? "\n" : std::string(1 + random.below(9), random.chance(50) ? ' ' : '\t');
  while (emoji.size() < 200000) emoji += "👨‍👩‍👧‍👦🏳️‍🌈👍🏽";
  std::string han;
  while (han.size() < 500000) append_utf8(han, static_cast<char32_t>(0x4E00 + random.below(0x9FA6 - 0x4E00)));
  std::string pairs;
  while (pairs.size() < 500000) pairs += "ab";
  return {{"200,000 spaces", std::string(200000, ' ')},
          {"60,000 random letters", std::move(letters)},
          {"1 MB of one letter", std::string(1000000, 'a')},
          {"500 kB of two letters", std::move(pairs)},
          {"emoji with joiners", std::move(emoji)},
          {"500 kB of one Han character",
           [] {
             std::string t;
             while (t.size() < 500000) t += "的";
             return t;
           }()},
          {"random Han characters", std::move(han)},
          {"random code points", std::move(points)},
          {"mixed white space", std::move(lines)}};
}

}  // namespace deepinfer
