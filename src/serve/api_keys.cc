// SPDX-License-Identifier: MIT
#include "serve/api_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"

namespace deepinfer {
namespace {

constexpr size_t kFileBytesMax = 4 << 20;
constexpr size_t kPresentedBytesMax = 4096;

Result<Sha256Digest> digest_of(const std::string& hex) {
  Sha256Digest digest{};
  bool valid = hex.size() == 64;
  for (size_t i = 0; valid && i < 64; ++i) {
    const char c = hex[i];
    const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (value < 0) valid = false;
    else digest[i / 2] = static_cast<uint8_t>(digest[i / 2] * 16 + value);
  }
  if (!valid) return invalid_argument("sha256: expected 64 lower-case hex digits");
  return digest;
}

Status read_limit(const std::string& name, const Json& value, int64_t& limit) {
  if (value.kind() != Json::Kind::kInt || value.as_int() < 0)
    return invalid_argument(name + ": expected a count, 0 for no limit");
  limit = value.as_int();
  return {};
}

Status read_member(const std::string& name, const Json& value, ApiKey& key) {
  if (name == "requests_per_minute") return read_limit(name, value, key.requests_per_minute);
  if (name == "tokens_per_minute") return read_limit(name, value, key.tokens_per_minute);
  if (name == "concurrency") return read_limit(name, value, key.concurrency);
  if (name == "context_tokens") return read_limit(name, value, key.context_tokens);
  if (name == "admin" && value.is_bool()) {
    key.is_admin = value.as_bool();
    return {};
  }
  if (name == "pins" && value.is_bool()) {
    key.may_pin = value.as_bool();
    return {};
  }
  if (name == "name" && value.is_string() && !value.as_string().empty()) {
    key.name = value.as_string();
    return {};
  }
  if (name == "sha256" && value.is_string()) {
    ASSIGN_OR_RETURN(key.digest, digest_of(value.as_string()));
    return {};
  }
  return invalid_argument(name + ": not a member of a key, or not of its type");
}

Result<ApiKey> read_key(const Json& entry) {
  if (!entry.is_object()) return invalid_argument("expected an object");
  ApiKey key;
  for (const auto& [name, value] : entry.as_object()) TRY(read_member(name, value, key));
  if (key.name.empty()) return invalid_argument("name: expected a name");
  if (entry.find("sha256") == nullptr) return invalid_argument("sha256: expected the SHA-256 of the key");
  return key;
}

}  // namespace

Result<ApiKeys> ApiKeys::parse(std::string_view json) {
  ASSIGN_OR_RETURN(const Json file, parse_json(json));
  const Json* list = file.find("keys");
  if (list == nullptr || !list->is_array() || list->as_array().empty())
    return invalid_argument("expected {\"keys\": [...]} with at least one key");
  ApiKeys keys;
  for (const Json& entry : list->as_array()) {
    auto key = read_key(entry);
    if (!key.ok()) return key.status().prefixed(fmt::format("keys[{}]", keys.keys_.size()));
    for (const ApiKey& other : keys.keys_)
      if (other.name == key->name) return invalid_argument("two keys are named \"" + key->name + "\"");
    keys.keys_.push_back(std::move(key).value());
  }
  return keys;
}

Result<ApiKeys> ApiKeys::load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kFileBytesMax));
  auto keys = parse(text);
  if (!keys.ok()) return keys.status().prefixed(path);
  return keys;
}

// Of the digests: they have one length, so not even a length shows.
bool equals_in_constant_time(std::string_view presented, std::string_view expected) {
  const auto digest = [](std::string_view text) {
    return sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  const Sha256Digest left = digest(presented), right = digest(expected);
  uint8_t difference = 0;
  for (size_t i = 0; i < left.size(); ++i) difference = static_cast<uint8_t>(difference | (left[i] ^ right[i]));
  return difference == 0;
}

const ApiKey* ApiKeys::find(std::string_view presented) const {
  if (presented.empty() || presented.size() > kPresentedBytesMax) return nullptr;
  const Sha256Digest digest = sha256({reinterpret_cast<const uint8_t*>(presented.data()), presented.size()});
  const ApiKey* found = nullptr;
  for (const ApiKey& key : keys_) {
    uint8_t difference = 0;
    for (size_t i = 0; i < digest.size(); ++i)
      difference = static_cast<uint8_t>(difference | (digest[i] ^ key.digest[i]));
    if (difference == 0) found = &key;
  }
  return found;
}

}  // namespace deepinfer
