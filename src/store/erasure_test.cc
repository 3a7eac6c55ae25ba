// SPDX-License-Identifier: MIT
#include "store/erasure.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "base/crc32c.h"
#include "base/philox.h"
#include "store/bulk_crc32c.h"

namespace deepinfer {
namespace {

using Shards = std::vector<std::vector<uint8_t>>;

Shards encoded(const ErasureCode& code, size_t bytes, uint64_t seed) {
  Shards shards(static_cast<size_t>(code.num_shards()), std::vector<uint8_t>(bytes));
  Rng rng(seed);
  std::vector<const uint8_t*> data;
  std::vector<uint8_t*> parity;
  for (int i = 0; i < code.num_shards(); ++i) {
    auto& shard = shards[static_cast<size_t>(i)];
    if (i < code.num_data_shards()) {
      for (uint8_t& byte : shard) byte = static_cast<uint8_t>(rng.next_u32());
      data.push_back(shard.data());
    } else {
      parity.push_back(shard.data());
    }
  }
  code.encode(data, parity, static_cast<int64_t>(bytes));
  return shards;
}

void expect_rebuilds(const ErasureCode& code, const Shards& shards, uint32_t present) {
  std::vector<const uint8_t*> sources;
  for (size_t i = 0; i < shards.size(); ++i)
    if (present >> i & 1) sources.push_back(shards[i].data());
  for (size_t i = 0; i < shards.size(); ++i) {
    if (present >> i & 1) continue;
    std::vector<uint8_t> out(shards[i].size());
    uint8_t* const one[] = {out.data()};
    code.rebuild(present, sources, static_cast<int>(i), one, static_cast<int64_t>(out.size()));
    EXPECT_EQ(out, shards[i]) << "present " << std::hex << present << " shard " << i;
    size_t next = i + 1;
    while (next < shards.size() && present >> next & 1) ++next;
    if (next == shards.size()) continue;
    std::vector<uint8_t> after(out.size());
    uint8_t* const both[] = {out.data(), after.data()};
    code.rebuild(present, sources, static_cast<int>(i), both, static_cast<int64_t>(out.size()));
    EXPECT_EQ(out, shards[i]) << "present " << std::hex << present << " shard " << i;
    EXPECT_EQ(after, shards[next]) << "present " << std::hex << present << " shard " << next;
  }
}

}  // namespace

TEST(BulkCrc32c, MatchesThePublishedCheckValueAndTheOneOfBase) {  // RFC 3720 B.4 and the "check" of the Rocksoft model
  EXPECT_EQ(bulk_crc32c({reinterpret_cast<const uint8_t*>("123456789"), 9}), 0xE3069283u);
  for (size_t n = 0; n < 300; ++n) {
    const std::vector<uint8_t> bytes(n, static_cast<uint8_t>(n * 7 + 1));
    EXPECT_EQ(bulk_crc32c(bytes), crc32c(bytes));
  }
  const std::vector<uint8_t> zeros(32, 0), ones(32, 0xff);
  EXPECT_EQ(bulk_crc32c(zeros), 0x8A9136AAu);
  EXPECT_EQ(bulk_crc32c(ones), 0x62A8AB43u);
}

TEST(ErasureCode, AnyTwoLostShardsOfTwelveComeBack) {
  const ErasureCode code(10, 2);
  const Shards shards = encoded(code, 1000, 1);
  int num_patterns = 0;
  for (int a = 0; a < 12; ++a)
    for (int b = a + 1; b < 12; ++b, ++num_patterns) expect_rebuilds(code, shards, 0xfffu & ~(1u << a) & ~(1u << b));
  EXPECT_EQ(num_patterns, 66);
}

// The definition, by hand: parity row i is the sum over j of data_j / (i xor j) in GF(2^8) with polynomial 0x11d.
TEST(ErasureCode, ParityIsTheCauchyProductOverTheField) {
  const auto multiply = [](int a, int b) {
    int product = 0;
    for (; b; b >>= 1, a = (a << 1) ^ (a & 0x80 ? 0x11d : 0))
      if (b & 1) product ^= a;
    return product;
  };
  const auto invert = [&](int a) {
    for (int b = 1; b < 256; ++b)
      if (multiply(a, b) == 1) return b;
    return 0;
  };
  const ErasureCode code(10, 2);
  const Shards shards = encoded(code, 64, 2);
  for (int i = 10; i < 12; ++i)
    for (size_t at = 0; at < 64; ++at) {
      int sum = 0;
      for (int j = 0; j < 10; ++j) sum ^= multiply(shards[static_cast<size_t>(j)][at], invert(i ^ j));
      EXPECT_EQ(shards[static_cast<size_t>(i)][at], sum) << i << " at " << at;
    }
}

// Every product of two bytes, at every length up to two vectors and an odd rest, by both ways.
TEST(FieldRows, InstructionsAndTablesAgree) {
  std::vector<uint8_t> in(256), by_either(256), by_tables(256);
  for (size_t i = 0; i < 256; ++i) in[i] = static_cast<uint8_t>(i);
  const uint8_t* const from[] = {in.data()};
  for (int coefficient = 0; coefficient < 256; ++coefficient) {
    const uint8_t c = static_cast<uint8_t>(coefficient);
    const FieldRows rows(1, {&c, 1});
    uint8_t* const a[] = {by_either.data()};
    uint8_t* const b[] = {by_tables.data()};
    rows.multiply(0, from, a, 256);
    rows.multiply_by_tables(0, from, b, 256);
    EXPECT_EQ(by_either, by_tables) << coefficient;
  }
  const std::vector<uint8_t> coefficients = {3, 200, 7, 91};
  const FieldRows rows(2, coefficients);
  const uint8_t* const two[] = {in.data(), in.data() + 50};
  for (int64_t n = 0; n <= 150; ++n) {
    std::vector<std::vector<uint8_t>> out(4, std::vector<uint8_t>(static_cast<size_t>(n) + 1, 0xee));  // one behind
    uint8_t* const a[] = {out[0].data(), out[1].data()};
    uint8_t* const b[] = {out[2].data(), out[3].data()};
    rows.multiply(0, two, a, n);
    rows.multiply_by_tables(0, two, b, n);
    EXPECT_EQ(out[0], out[2]) << n;
    EXPECT_EQ(out[1], out[3]) << n;
    EXPECT_EQ(out[0].back(), 0xee);
  }
}

TEST(ErasureCode, OtherShapesRebuildToo) {
  for (const auto& [k, m] : {std::pair{2, 1}, {4, 2}, {5, 1}, {14, 2}}) {
    const ErasureCode code(k, m);
    const Shards shards = encoded(code, 77, 3);
    const uint32_t all = (1u << (k + m)) - 1;
    for (uint32_t present = 0; present <= all; ++present)
      if (std::popcount(present) == k) expect_rebuilds(code, shards, present);
  }
}

}  // namespace deepinfer
