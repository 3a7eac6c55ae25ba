// SPDX-License-Identifier: MIT
#include "tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <unordered_set>

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/json_cursor.h"

namespace deepinfer {
namespace {

constexpr std::string_view kSplitPatterns[] = {
    "\\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\r\n]*|"
    "\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

// What a message shows of a value from the file.
constexpr size_t kShownBytes = 80;
std::string shown(const Json* value) {
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
  if (!is_type(value, "Sequence") || steps == nullptr || !steps->is_array() ||
      steps->as_array().size() != kNumSplits + 1)
    return unsupported("pre_tokenizer", "a Sequence of three Splits and ByteLevel", value);
  for (size_t i = 0; i < kNumSplits; ++i)
    TRY(check_split(steps->as_array()[i], kSplitPatterns[i], fmt::format("pre_tokenizer.pretokenizers[{}]", i)));
  const Json& level = steps->as_array()[kNumSplits];
  const Json* use_regex = level.find("use_regex");
  if (!is_type(&level, "ByteLevel") || !is_off(level, "add_prefix_space") || use_regex == nullptr ||
      !use_regex->is_bool() || use_regex->as_bool())
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
  if (!is_absent(*model, "type") && !is_type(model, "BPE"))
    return unsupported("model.type", "BPE", model->find("type"));
  for (const char* key :
       {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"})
    if (!is_off(*model, key)) return unsupported(fmt::format("model.{}", key), "off", model->find(key));
  return {};
}

// Texts one after the other in one block.
class Spellings {
 public:
  void add(std::string_view text) {
    memory_ += text;
    ends_.push_back(memory_.size());
  }
  // The view is valid until the next add().
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(memory_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string memory_;
  std::vector<size_t> ends_;
};

// Ids by spelling: a flat table, since half a million look-ups are most of the work of loading.
class WrittenIndex {
 public:
  WrittenIndex() : slots_(1) {}
  void resize(size_t num_keys) { slots_.assign(std::bit_ceil(2 * num_keys + 1), {}); }
  bool insert(std::string_view key, TokenId id) {
    Slot& slot = slots_[slot_of(key)];
    if (slot.id >= 0) return false;
    slot = {key, id};
    return true;
  }
  TokenId find(std::string_view key) const { return slots_[slot_of(key)].id; }  // -1: absent

 private:
  struct Slot {
    std::string_view key;
    TokenId id = -1;
  };
  size_t slot_of(std::string_view key) const {
    size_t slot = std::hash<std::string_view>()(key) & (slots_.size() - 1);
    while (slots_[slot].id >= 0 && slots_[slot].key != key) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }
  std::vector<Slot> slots_;
};

class Reader {
 public:
  Reader(const TokenizerLimits& limits, TokenizerFile& file) : limits_(limits), file_(file) {}

  Status read_vocab(std::string_view vocab) {
    JsonCursor cursor(vocab);
    if (!cursor.enter('{')) return damaged("model.vocab", "an object", cursor);
    while (cursor.next('}')) {
      const std::string_view written = cursor.key();
      const int64_t id = cursor.integer();
      if (!cursor.ok()) return damaged("model.vocab", "texts and ids", cursor);
      if (Status status = add_token(id, written); !status.ok())
        return status.prefixed(fmt::format("tokenizer.json: model.vocab[\"{}\"]", written));
      vocab_ids_.push_back(file_.tokens.back().id);
      spellings_.add(written);
    }
    if (!cursor.at_end()) return damaged("model.vocab", "an object", cursor);
    written_.resize(vocab_ids_.size());
    for (size_t i = 0; i < vocab_ids_.size(); ++i)
      if (!written_.insert(spellings_[i], vocab_ids_[i]))
        return invalid_argument(fmt::format("tokenizer.json: model.vocab[\"{}\"]: listed twice", spellings_[i]));
    return {};
  }

  Status read_added(const Json* added) {
    if (added == nullptr || added->is_null()) return {};
    if (!added->is_array()) return unsupported("added_tokens", "an array", added);
    for (size_t i = 0; i < added->as_array().size(); ++i)
      TRY(read_one_added(added->as_array()[i], fmt::format("added_tokens[{}]", i)));
    return {};
  }

  Status read_merges(std::string_view merges) {
    JsonCursor cursor(merges);
    if (!cursor.enter('[')) return damaged("model.merges", "an array", cursor);
    std::string left, right;
    while (cursor.next(']')) {
      if (!read_pair(cursor, left, right)) return damaged(merge_path(), "\"left right\"", cursor);
      const TokenId a = written_.find(left), b = written_.find(right), c = written_.find(left.append(right));
      if (a < 0 || b < 0 || c < 0) return bad_merge("parts and result in the vocabulary", left);
      if (!is_ordinary(a) || !is_ordinary(b) || !is_ordinary(c))
        return bad_merge("byte-level parts that are no added tokens", left);
      file_.merges.push_back({a, b, c});
      if (static_cast<int64_t>(file_.merges.size()) > limits_.ids_max)
        return resource_exhausted(fmt::format("tokenizer.json: model.merges: more than {} entries", limits_.ids_max));
    }
    if (!cursor.at_end()) return damaged("model.merges", "an array", cursor);
    return check_distinct();
  }

  Status find_bytes() {
    file_.byte_tokens.resize(256);
    for (unsigned byte = 0; byte < 256; ++byte) {
      const std::string bytes(1, static_cast<char>(byte));
      const TokenId found = written_.find(written_of_bytes(bytes));
      if (found < 0 || !is_ordinary(found))
        return invalid_argument(fmt::format("tokenizer.json: model.vocab: no token for the byte 0x{:02X}", byte));
      file_.byte_tokens[byte] = found;
    }
    return {};
  }

 private:
  // The message lacks the path, which is spelled for an error only.
  Status add_token(int64_t id, std::string_view written) {
    if (id < 0 || id >= limits_.ids_max)
      return resource_exhausted(fmt::format("expected an id in [0, {}), found {}", limits_.ids_max, id));
    if (written.size() > limits_.token_bytes_max)
      return resource_exhausted(fmt::format("longer than {} bytes", limits_.token_bytes_max));
    const TokenId number = static_cast<TokenId>(id);
    if (static_cast<size_t>(number) >= place_.size()) place_.resize(static_cast<size_t>(number) + 1, -1);
    if (place_[number] >= 0) return invalid_argument(fmt::format("expected an id used once, found {}", number));
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
    if (id == nullptr || id->kind() != Json::Kind::kInt) return unsupported(path + ".id", "an id", id);
    if (content == nullptr || !content->is_string() || content->as_string().empty())
      return unsupported(path + ".content", "a text", content);
    for (const char* key : {"single_word", "lstrip", "rstrip"})
      if (!is_off(entry, key)) return unsupported(fmt::format("{}.{}", path, key), "false", entry.find(key));
    const std::string& text = content->as_string();
    TokenId number = written_.find(text);
    if (number < 0) {
      if (Status status = add_token(id->as_int(), text); !status.ok())
        return status.prefixed(fmt::format("tokenizer.json: {}", path));
      number = file_.tokens.back().id;
    } else if (number != id->as_int()) {
      return unsupported(path + ".id", fmt::format("{} as in model.vocab", number), id);
    }
    Vocabulary::Token& token = file_.tokens[place_[number]];
    if (token.is_control || !contents_.insert(text).second) return unsupported(path, "each added token once", &entry);
    token.is_control = true;
    token.is_special = !is_off(entry, "special");
    file_.added.push_back({number, text, token.is_special, !is_off(entry, "normalized")});
    return {};
  }

  Status check_distinct() const {
    const auto key = [](const TokenizerFile::Merge& merge) {
      return static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right);
    };
    std::vector<uint64_t> pairs;
    pairs.reserve(file_.merges.size());
    for (const TokenizerFile::Merge& merge : file_.merges) pairs.push_back(key(merge));
    std::sort(pairs.begin(), pairs.end());
    const auto twin = std::adjacent_find(pairs.begin(), pairs.end());
    if (twin == pairs.end()) return {};
    size_t last = file_.merges.size() - 1;
    while (key(file_.merges[last]) != *twin) --last;
    return invalid_argument(fmt::format("tokenizer.json: model.merges[{}]: expected a pair not listed before", last));
  }

  std::string merge_path() const { return fmt::format("model.merges[{}]", file_.merges.size()); }
  Status bad_merge(std::string_view expected, std::string_view joined) const {
    return invalid_argument(fmt::format("tokenizer.json: {}: expected {}, found the result \"{}\"", merge_path(),
                                        expected, joined.substr(0, kShownBytes)));
  }
  static Status damaged(std::string_view path, std::string_view expected, const JsonCursor& cursor) {
    return invalid_argument(
        fmt::format("tokenizer.json: {}: expected {}, {} bytes into it", path, expected, cursor.offset()));
  }

  // "left right", or as newer files write it ["left", "right"].
  static bool read_pair(JsonCursor& cursor, std::string& left, std::string& right) {
    if (cursor.peek() == '[') {
      if (!cursor.enter('[') || !cursor.next(']')) return false;
      left.assign(cursor.string());
      if (!cursor.next(']')) return false;
      right.assign(cursor.string());
      return cursor.ok() && !cursor.next(']') && cursor.ok();
    }
    const std::string_view text = cursor.string();
    const size_t space = text.find(' ');
    if (!cursor.ok() || space == std::string_view::npos) return false;
    left.assign(text.substr(0, space));
    right.assign(text.substr(space + 1));
    return true;
  }

  bool is_ordinary(TokenId id) const { return alphabetic_[place_[id]] && !file_.tokens[place_[id]].is_control; }

  const TokenizerLimits& limits_;
  TokenizerFile& file_;
  std::vector<TokenId> vocab_ids_;
  Spellings spellings_;   // of vocab_ids_
  WrittenIndex written_;  // model vocabulary by its spelling in the file
  std::unordered_set<std::string_view> contents_;
  std::vector<int32_t> place_;    // id -> index in file_.tokens
  std::vector<bool> alphabetic_;  // by index in file_.tokens
};

// The file without its two tables, which stay slices of the text.
struct Outline {
  Json root;
  std::string_view vocab, merges;
};

Status parse_member(Json& object, std::string_view key, std::string_view text) {
  if (object.find(key) != nullptr)
    return invalid_argument(fmt::format("tokenizer.json: \"{}\": listed twice", key.substr(0, kShownBytes)));
  auto value = parse_json(text, {.bytes_max = SIZE_MAX});
  if (!value.ok()) return value.status().prefixed(fmt::format("tokenizer.json: {}", key.substr(0, kShownBytes)));
  object.set(key, *std::move(value));
  return {};
}

Status outline_model(JsonCursor& cursor, Outline& outline) {
  Json model = Json::Object{};
  if (!cursor.enter('{')) return invalid_argument("tokenizer.json: model: expected an object");
  while (cursor.next('}')) {
    const std::string key(cursor.key());
    const std::string_view value = cursor.skip_value();
    std::string_view* table = key == "vocab" ? &outline.vocab : key == "merges" ? &outline.merges : nullptr;
    if (!cursor.ok()) break;
    if (table != nullptr && !table->empty())
      return invalid_argument(fmt::format("tokenizer.json: model.{}: listed twice", key));
    if (table != nullptr) *table = value;
    else TRY(parse_member(model, key, value));
  }
  outline.root.set("model", std::move(model));
  return {};
}

Result<Outline> outline_of(std::string_view json) {
  static constexpr size_t kMembersMax = 64;
  Outline outline;
  outline.root = Json::Object{};
  JsonCursor cursor(json);
  if (!cursor.enter('{')) return invalid_argument("tokenizer.json: expected an object");
  while (cursor.next('}')) {
    const std::string key(cursor.key());
    if (key == "model" && outline.root.find(key) == nullptr && cursor.ok()) TRY(outline_model(cursor, outline));
    else if (const std::string_view value = cursor.skip_value(); cursor.ok())
      TRY(parse_member(outline.root, key, value));
    if (outline.root.as_object().size() > kMembersMax)
      return resource_exhausted("tokenizer.json: more than 64 members");
  }
  if (!cursor.at_end()) return invalid_argument(fmt::format("tokenizer.json: not JSON at byte {}", cursor.offset()));
  return outline;
}

}  // namespace

Result<TokenizerFile> read_tokenizer_json(std::string_view json, const TokenizerLimits& limits) {
  if (json.size() > limits.bytes_max)
    return resource_exhausted(fmt::format("tokenizer.json: {} bytes, more than {}", json.size(), limits.bytes_max));
  if (!is_valid_utf8(json)) return invalid_argument("tokenizer.json: not UTF-8");
  ASSIGN_OR_RETURN(const Outline outline, outline_of(json));
  TRY(check_surroundings(outline.root));
  TRY(check_model(outline.root.find("model")));
  TokenizerFile file;
  Reader reader(limits, file);
  TRY(reader.read_vocab(outline.vocab));
  TRY(reader.read_added(outline.root.find("added_tokens")));
  TRY(reader.read_merges(outline.merges));
  TRY(reader.find_bytes());
  return file;
}

}  // namespace deepinfer
