// SPDX-License-Identifier: MIT
#include "tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "base/json.h"
#include "tokenizer/byte_alphabet.h"

namespace deepinfer {
namespace {

constexpr std::string_view kSplitPatterns[] = {
    "\\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
    "\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

// What a message shows of a value from the file.
std::string shown(const Json* value) {
  static constexpr size_t kShownBytes = 80;
  if (value == nullptr) return "nothing";
  std::string text = to_json(*value);
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

Status unsupported(std::string_view path, std::string_view expected, const Json* found) {
  return invalid_argument(fmt::format("tokenizer.json: {}: expected {}, found {}", path, expected, shown(found)));
}

bool is_absent(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value == nullptr || value->is_null();
}

bool is_type(const Json* value, std::string_view type) {
  const Json* found = value == nullptr ? nullptr : value->find("type");
  return found != nullptr && found->is_string() && found->as_string() == type;
}

// True when the member is absent, null, false, zero or the empty string: the switch it names is off.
bool is_off(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  if (value == nullptr || value->is_null()) return true;
  if (value->is_bool()) return !value->as_bool();
  if (value->is_string()) return value->as_string().empty();
  return value->is_number() && value->as_double() == 0;
}

Status check_split(const Json& step, std::string_view wanted, const std::string& path) {
  const Json* pattern = step.find("pattern");
  const Json* regex = pattern == nullptr ? nullptr : pattern->find("Regex");
  const Json* behavior = step.find("behavior");
  if (!is_type(&step, "Split")) return unsupported(path, "a Split", &step);
  if (regex == nullptr || !regex->is_string() || regex->as_string() != wanted)
    return unsupported(path + ".pattern", fmt::format("the pattern {}", wanted), pattern);
  if (behavior == nullptr || !behavior->is_string() || behavior->as_string() != "Isolated")
    return unsupported(path + ".behavior", "Isolated", behavior);
  if (!is_off(step, "invert")) return unsupported(path + ".invert", "false", step.find("invert"));
  return {};
}

Status check_pre_tokenizer(const Json* value) {
  const Json* steps = value == nullptr ? nullptr : value->find("pretokenizers");
  constexpr size_t kNumSplits = std::size(kSplitPatterns);
  if (!is_type(value, "Sequence") || steps == nullptr || !steps->is_array() || steps->as_array().size() != kNumSplits + 1)
    return unsupported("pre_tokenizer", "a Sequence of three Splits and ByteLevel", value);
  for (size_t i = 0; i < kNumSplits; ++i)
    TRY(check_split(steps->as_array()[i], kSplitPatterns[i], fmt::format("pre_tokenizer.pretokenizers[{}]", i)));
  const Json& level = steps->as_array()[kNumSplits];
  const Json* use_regex = level.find("use_regex");
  if (!is_type(&level, "ByteLevel") || !is_off(level, "add_prefix_space") || use_regex == nullptr || !use_regex->is_bool() ||
      use_regex->as_bool())
    return unsupported("pre_tokenizer.pretokenizers[3]", "ByteLevel without prefix space and regex", &level);
  return {};
}

Status check_surroundings(const Json& root) {
  for (const char* key : {"truncation", "padding"})
    if (!is_absent(root, key)) return unsupported(key, "null", root.find(key));
  const Json* normalizer = root.find("normalizer");
  if (normalizer != nullptr && !normalizer->is_null()) {
    const Json* steps = normalizer->find("normalizers");
    if (!is_type(normalizer, "Sequence") || steps == nullptr || !steps->is_array() || !steps->as_array().empty())
      return unsupported("normalizer", "none", normalizer);
  }
  TRY(check_pre_tokenizer(root.find("pre_tokenizer")));
  const Json* post = root.find("post_processor");
  if (post != nullptr && !post->is_null() && !is_type(post, "ByteLevel"))
    return unsupported("post_processor", "ByteLevel or none", post);
  if (!is_type(root.find("decoder"), "ByteLevel")) return unsupported("decoder", "ByteLevel", root.find("decoder"));
  return {};
}

Status check_model(const Json* model) {
  if (model == nullptr || !model->is_object()) return unsupported("model", "an object", model);
  if (!is_absent(*model, "type") && !is_type(model, "BPE")) return unsupported("model.type", "BPE", model->find("type"));
  for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"})
    if (!is_off(*model, key)) return unsupported(fmt::format("model.{}", key), "off", model->find(key));
  const Json* vocab = model->find("vocab");
  if (vocab == nullptr || !vocab->is_object()) return unsupported("model.vocab", "an object", vocab);
  const Json* merges = model->find("merges");
  if (merges == nullptr || !merges->is_array()) return unsupported("model.merges", "an array", merges);
  return {};
}

class Reader {
 public:
  Reader(const TokenizerLimits& limits, TokenizerFile& file) : limits_(limits), file_(file) {}

  Status read_vocab(const Json::Object& vocab) {
    written_.reserve(vocab.size());
    file_.tokens.reserve(vocab.size());
    for (const auto& [written, value] : vocab) {
      if (!value.is_integer()) return unsupported(fmt::format("model.vocab[\"{}\"]", written), "an id", &value);
      TRY(add_token(value, written, fmt::format("model.vocab[\"{}\"]", written)));
      written_.emplace(written, file_.tokens.back().id);
    }
    return {};
  }

  Status read_added(const Json* added) {
    if (added == nullptr || added->is_null()) return {};
    if (!added->is_array()) return unsupported("added_tokens", "an array", added);
    for (size_t i = 0; i < added->as_array().size(); ++i)
      TRY(read_one_added(added->as_array()[i], fmt::format("added_tokens[{}]", i)));
    return {};
  }

  Status read_merges(const Json::Array& merges) {
    if (merges.size() > static_cast<size_t>(limits_.ids_max))
      return resource_exhausted(fmt::format("tokenizer.json: model.merges: more than {} entries", limits_.ids_max));
    file_.merges.reserve(merges.size());
    std::unordered_set<uint64_t> seen;
    seen.reserve(merges.size());
    std::string joined;
    for (size_t i = 0; i < merges.size(); ++i) {
      std::string_view left, right;
      if (!pair_of(merges[i], left, right))
        return unsupported(fmt::format("model.merges[{}]", i), "\"left right\"", &merges[i]);
      joined.assign(left).append(right);
      const auto a = written_.find(left), b = written_.find(right), c = written_.find(joined);
      if (a == written_.end() || b == written_.end() || c == written_.end())
        return unsupported(fmt::format("model.merges[{}]", i), "parts and result in the vocabulary", &merges[i]);
      if (!seen.insert(static_cast<uint64_t>(a->second) << 32 | static_cast<uint32_t>(b->second)).second)
        return unsupported(fmt::format("model.merges[{}]", i), "a pair not listed before", &merges[i]);
      if (!is_ordinary(a->second) || !is_ordinary(b->second) || !is_ordinary(c->second))
        return unsupported(fmt::format("model.merges[{}]", i), "byte-level parts that are no added tokens", &merges[i]);
      file_.merges.push_back({a->second, b->second, c->second});
    }
    return {};
  }

  Status find_bytes() {
    file_.byte_tokens.resize(256);
    for (unsigned byte = 0; byte < 256; ++byte) {
      const std::string bytes(1, static_cast<char>(byte));
      const auto found = written_.find(written_of_bytes(bytes));
      if (found == written_.end() || !is_ordinary(found->second))
        return invalid_argument(fmt::format("tokenizer.json: model.vocab: no token for the byte 0x{:02X}", byte));
      file_.byte_tokens[byte] = found->second;
    }
    return {};
  }

 private:
  Status add_token(const Json& id, std::string_view written, const std::string& path) {
    if (id.kind() != Json::Kind::kInt || id.as_int() < 0 || id.as_int() >= limits_.ids_max)
      return resource_exhausted(fmt::format("tokenizer.json: {}: expected an id in [0, {}), found {}", path, limits_.ids_max, shown(&id)));
    if (written.size() > limits_.token_bytes_max)
      return resource_exhausted(fmt::format("tokenizer.json: {}: longer than {} bytes", path, limits_.token_bytes_max));
    const TokenId number = static_cast<TokenId>(id.as_int());
    if (static_cast<size_t>(number) >= place_.size()) place_.resize(static_cast<size_t>(number) + 1, -1);
    if (place_[number] >= 0) return unsupported(path, "an id used once", &id);
    place_[number] = static_cast<int32_t>(file_.tokens.size());
    std::optional<std::string> bytes = bytes_of_written(written);
    alphabetic_.push_back(bytes.has_value());
    // What is not byte-level can only be reached as an added token; it decodes to itself.
    file_.tokens.push_back({number, bytes.has_value() ? *std::move(bytes) : std::string(written), false, false});
    return {};
  }

  Status read_one_added(const Json& entry, const std::string& path) {
    const Json* id = entry.find("id");
    const Json* content = entry.find("content");
    if (id == nullptr || !id->is_integer()) return unsupported(path + ".id", "an id", id);
    if (content == nullptr || !content->is_string() || content->as_string().empty())
      return unsupported(path + ".content", "a text", content);
    for (const char* key : {"single_word", "lstrip", "rstrip"})
      if (!is_off(entry, key)) return unsupported(fmt::format("{}.{}", path, key), "false", entry.find(key));
    const std::string& text = content->as_string();
    const auto twin = written_.find(text);
    if (twin == written_.end()) TRY(add_token(*id, text, path));
    else if (twin->second != id->as_double()) return unsupported(path + ".id", fmt::format("{} as in model.vocab", twin->second), id);
    const TokenId number = twin == written_.end() ? file_.tokens.back().id : twin->second;
    Vocabulary::Token& token = file_.tokens[place_[number]];
    if (token.is_control || !contents_.insert(text).second) return unsupported(path, "each added token once", &entry);
    token.is_control = true;
    token.is_special = !is_off(entry, "special");
    file_.added.push_back({number, text, token.is_special, !is_off(entry, "normalized")});
    return {};
  }

  static bool pair_of(const Json& merge, std::string_view& left, std::string_view& right) {
    if (merge.is_array()) {
      const Json::Array& parts = merge.as_array();
      if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string()) return false;
      left = parts[0].as_string();
      right = parts[1].as_string();
      return true;
    }
    if (!merge.is_string()) return false;
    const std::string_view text = merge.as_string();
    const size_t space = text.find(' ');
    if (space == std::string_view::npos) return false;
    left = text.substr(0, space);
    right = text.substr(space + 1);
    return true;
  }

  bool is_ordinary(TokenId id) const { return alphabetic_[place_[id]] && !file_.tokens[place_[id]].is_control; }

  const TokenizerLimits& limits_;
  TokenizerFile& file_;
  std::unordered_map<std::string_view, TokenId> written_;  // model vocabulary by its spelling in the file
  std::unordered_set<std::string_view> contents_;
  std::vector<int32_t> place_;  // id -> index in file_.tokens
  std::vector<bool> alphabetic_;  // by index in file_.tokens
};

}  // namespace

Result<TokenizerFile> read_tokenizer_json(std::string_view json, const TokenizerLimits& limits) {
  auto parsed = parse_json(json, {.bytes_max = limits.bytes_max});
  if (!parsed.ok()) return parsed.status().prefixed("tokenizer.json");
  const Json& root = *parsed;
  if (!root.is_object()) return unsupported("(root)", "an object", &root);
  TRY(check_surroundings(root));
  const Json* model = root.find("model");
  TRY(check_model(model));
  TokenizerFile file;
  Reader reader(limits, file);
  TRY(reader.read_vocab(model->find("vocab")->as_object()));
  TRY(reader.read_added(root.find("added_tokens")));
  TRY(reader.read_merges(model->find("merges")->as_array()));
  TRY(reader.find_bytes());
  return file;
}

}  // namespace deepinfer
