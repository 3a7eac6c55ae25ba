// SPDX-License-Identifier: MIT
// etcd 3 through its JSON gateway: keys and values in base64, 64-bit numbers as strings.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/json.h"
#include "net/http_client.h"
#include "store/driver_shard.h"
#include "store/lease.h"

namespace deepinfer {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int64_t kTimeoutMs = 2000;

std::string base64(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) bits = bits << 8 | (i + j < text.size() ? static_cast<uint8_t>(text[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) out += i + j > text.size() ? '=' : kDigits[bits >> (18 - 6 * j) & 63];
  }
  return out;
}

Result<std::string> from_base64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return corruption("etcd: not base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((num_bits += 6) < 8) continue;
    num_bits -= 8;
    out += static_cast<char>(bits >> num_bits & 255);
  }
  return out;
}

// The key behind all keys that begin with `prefix`.
std::string end_of(std::string prefix) {
  while (!prefix.empty() && static_cast<uint8_t>(prefix.back()) == 255) prefix.pop_back();
  if (!prefix.empty()) ++prefix.back();
  return prefix;
}

Result<int64_t> number_of(const Json* field) {
  int64_t value = 0;
  if (!field || !field->is_string()) return corruption("etcd: expected a number as a string");
  const std::string& text = field->as_string();
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return corruption("etcd: not a number");
  return value;
}

// Of the answer to a range.
Result<std::vector<LeaseHolder>> holders_of(const Json& answer) {
  std::vector<LeaseHolder> found;
  const Json* const items = answer.find("kvs");
  if (!items || !items->is_array()) return found;
  for (const Json& item : items->as_array()) {
    const Json *const key = item.find("key"), *const value = item.find("value");
    if (!key || !key->is_string()) return corruption("etcd: a range without keys");
    LeaseHolder holder;
    ASSIGN_OR_RETURN(holder.name, from_base64(key->as_string()));
    if (value && value->is_string()) { ASSIGN_OR_RETURN(holder.value, from_base64(value->as_string())); }
    found.push_back(std::move(holder));
  }
  return found;
}

class EtcdLeases final : public LeaseTable {
 public:
  explicit EtcdLeases(const ShardOptions& address) : host_(address.host), port_(address.port) {}

  Result<LeaseId> acquire(const std::string& name, const std::string& value, int64_t ttl_ns) override {
    const int64_t seconds = std::max<int64_t>(1, (ttl_ns + 999'999'999) / 1'000'000'000);
    ASSIGN_OR_RETURN(const Json granted, post("/v3/lease/grant", Json::Object{{"TTL", std::to_string(seconds)}}));
    ASSIGN_OR_RETURN(const int64_t id, number_of(granted.find("ID")));
    const auto put = put_absent(name, Json::Object{{"key", base64(name)},
                                                   {"value", base64(value)},
                                                   {"lease", std::to_string(id)}});  // it goes with the lease
    if (put.ok() && !put.value()) return LeaseId{id};
    (void)release(LeaseId{id}).ok();
    if (!put.ok()) return put.status();
    return unavailable(fmt::format("{}: held by {}", name, *put.value()));
  }

  Status keep(const std::string& name, const std::string& value) override {
    return put_absent(name, Json::Object{{"key", base64(name)}, {"value", base64(value)}}).status();
  }

  Status renew(LeaseId lease) override {
    ASSIGN_OR_RETURN(const Json answer,
                     post("/v3/lease/keepalive", Json::Object{{"ID", std::to_string(static_cast<int64_t>(lease))}}));
    const Json* const result = answer.find("result");
    if (result && result->find("TTL")) return {};
    return not_found("etcd: the lease has run out");
  }

  Status release(LeaseId lease) override {
    return post("/v3/lease/revoke", Json::Object{{"ID", std::to_string(static_cast<int64_t>(lease))}}).status();
  }

  Result<std::vector<LeaseHolder>> holders(const std::string& prefix) override {
    ASSIGN_OR_RETURN(const Json answer, post("/v3/kv/range", Json::Object{{"key", base64(prefix)},
                                                                          {"rangeEnd", base64(end_of(prefix))},
                                                                          {"sortOrder", "ASCEND"},
                                                                          {"sortTarget", "KEY"}}));
    return holders_of(answer);
  }

 private:
  // Only when the key does not exist. Otherwise the value that it has.
  Result<std::optional<std::string>> put_absent(const std::string& name, const Json::Object& put) const {
    const std::string key = base64(name);
    const Json absent = Json::Object{{"target", "CREATE"}, {"key", key}, {"createRevision", "0"}};
    const Json look = Json::Object{{"requestRange", Json::Object{{"key", key}}}};
    const Json write = Json::Object{{"requestPut", put}};
    ASSIGN_OR_RETURN(const Json done, post("/v3/kv/txn", Json::Object{{"compare", Json::Array{absent}},
                                                                      {"success", Json::Array{write}},
                                                                      {"failure", Json::Array{look}}}));
    const Json* const succeeded = done.find("succeeded");
    if (succeeded && succeeded->is_bool() && succeeded->as_bool()) return std::optional<std::string>();
    const Json* const answers = done.find("responses");
    if (!answers || !answers->is_array() || answers->as_array().empty())
      return corruption("etcd: a transaction without its answer");
    const Json* const range = answers->as_array().front().find("response_range");
    if (!range) return corruption("etcd: a transaction without its answer");
    ASSIGN_OR_RETURN(const std::vector<LeaseHolder> found, holders_of(*range));
    return std::optional(found.empty() ? "somebody else" : found.front().value);
  }

  Result<Json> post(const std::string& path, const Json& body) const {
    auto client = HttpClient::connect(host_, port_, kTimeoutMs);
    if (!client.ok()) return unavailable(fmt::format("etcd {}:{}: {}", host_, port_, client.status().message()));
    auto response = client.value().request("POST", path, to_json(body), "Content-Type: application/json\r\n");
    if (!response.ok()) return unavailable(fmt::format("etcd {}:{}: {}", host_, port_, response.status().message()));
    if (response.value().status != 200)
      return unavailable(fmt::format("etcd {}:{}: status {}", host_, port_, response.value().status));
    return parse_json(response.value().body, {.bytes_max = size_t{16} << 20, .depth_max = 16});
  }

  const std::string host_;
  const int port_;
};

}  // namespace

Result<std::unique_ptr<LeaseTable>> make_etcd_leases(const std::string& address) {
  ASSIGN_OR_RETURN(const ShardOptions parsed, parse_shard_address(address));
  return std::unique_ptr<LeaseTable>(new EtcdLeases(parsed));
}

}  // namespace deepinfer
