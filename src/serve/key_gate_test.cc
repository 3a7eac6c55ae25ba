// SPDX-License-Identifier: MIT
#include "serve/key_gate.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

int status_of(const Refusal& refusal) { return refusal ? refusal->http_status : 200; }

TEST(KeyGateTest, RequestsAMinuteComeBackWithTime) {
  KeyGate gate;
  const ApiKey key{.name = "a", .requests_per_minute = 2};
  EXPECT_EQ(status_of(gate.enter(key, 0)), 200);
  EXPECT_EQ(status_of(gate.enter(key, 0)), 200);
  const Refusal refused = gate.enter(key, 0);
  EXPECT_EQ(status_of(refused), 429);
  EXPECT_NE(refused->message.find("2 requests per minute"), std::string::npos);
  EXPECT_NE(refused->message.find("in 30 s"), std::string::npos);
  EXPECT_EQ(status_of(gate.enter(key, 29 * kSecond)), 429);
  EXPECT_EQ(status_of(gate.enter(key, 31 * kSecond)), 200);
  EXPECT_EQ(status_of(gate.enter(key, 31 * kSecond)), 429);
}

TEST(KeyGateTest, TokensAreChargedAtTheEnd) {
  KeyGate gate;
  const ApiKey key{.name = "a", .tokens_per_minute = 600};
  EXPECT_EQ(status_of(gate.enter(key, 0)), 200);
  gate.leave(key, 900);  // 300 beyond the minute: half a minute to pay back
  EXPECT_EQ(status_of(gate.enter(key, 29 * kSecond)), 429);
  EXPECT_EQ(status_of(gate.enter(key, 31 * kSecond)), 200);
}

TEST(KeyGateTest, RequestsAtOnceAndKeysApart) {
  KeyGate gate;
  const ApiKey a{.name = "a", .concurrency = 1}, b{.name = "b", .concurrency = 1}, free{.name = "c"};
  EXPECT_EQ(status_of(gate.enter(a, 0)), 200);
  EXPECT_EQ(status_of(gate.enter(a, 0)), 429);
  EXPECT_EQ(status_of(gate.enter(b, 0)), 200);
  gate.leave(a, 10);
  EXPECT_EQ(status_of(gate.enter(a, 0)), 200);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(status_of(gate.enter(free, 0)), 200);
}

}  // namespace
}  // namespace deepinfer
