// SPDX-License-Identifier: MIT
#include "serve/api_keys.h"

#include <gtest/gtest.h>

#include "serve/options.h"

namespace deepinfer {
namespace {

// SHA-256 of "abc" and of the empty text (FIPS 180-4's example, RFC 6234).
constexpr const char* kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr const char* kEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

Result<ApiKeys> parse(const std::string& keys) { return ApiKeys::parse("{\"keys\":[" + keys + "]}"); }
std::string key(const std::string& name, const std::string& digest, const std::string& more = "") {
  return "{\"name\":\"" + name + "\",\"sha256\":\"" + digest + "\"" + more + "}";
}

TEST(ApiKeysTest, FindsTheKeyWhoseDigestItIs) {
  const auto keys = parse(key("a", kAbc, ",\"concurrency\":3,\"admin\":true"));
  ASSERT_TRUE(keys.ok()) << keys.status().message();
  const ApiKey* found = keys.value().find("abc");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->name, "a");
  EXPECT_EQ(found->concurrency, 3);
  EXPECT_TRUE(found->is_admin);
  EXPECT_FALSE(found->may_pin);
  EXPECT_EQ(keys.value().find("abd"), nullptr);
  EXPECT_EQ(keys.value().find(kAbc), nullptr);  // the digest is no key
}

TEST(ApiKeysTest, NoKeyIsNeverAKey) {
  const auto keys = parse(key("a", kEmpty));
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(keys.value().find(""), nullptr);
  EXPECT_EQ(keys.value().find(std::string(5000, 'x')), nullptr);
}

TEST(ApiKeysTest, RefusesFilesThatAreNotSound) {
  for (const std::string& keys :
       {std::string(), std::string("{}"), std::string("7"), key("", kAbc), key("a", "abc"),
        key("a", std::string(64, 'G')), key("a", kAbc) + "," + key("a", kEmpty), key("a", kAbc, ",\"concurrency\":-1"),
        key("a", kAbc, ",\"limit\":1"), key("a", kAbc, ",\"admin\":1")})
    EXPECT_FALSE(parse(keys).ok()) << keys;
  EXPECT_FALSE(ApiKeys::parse("[]").ok());
  EXPECT_NE(parse(key("a", kAbc, ",\"limit\":1")).status().message().find("keys[0]: limit"), std::string::npos);
}

TEST(CorsOrigin, IsWhatABrowserSends) {
  for (const char* good : {"https://pages.example", "http://localhost:3000", "tauri://localhost", "http://[::1]:80"})
    EXPECT_TRUE(check_origin(good).ok()) << good;
  for (const char* bad : {"", "*", "pages.example", "https://", "://a", "https://pages.example/", "https://A.example",
                          "https://*.example", "null", "https://a/b"})
    EXPECT_FALSE(check_origin(bad).ok()) << bad;
}

}  // namespace
}  // namespace deepinfer
