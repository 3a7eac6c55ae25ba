// SPDX-License-Identifier: MIT
// Expected values: FIPS 180-4 examples.
#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string_view>

namespace deepinfer {
namespace {

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(to_hex(sha256(bytes_of("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256, DoesNotDependOnHowTheBytesAreCut) {
  Sha256 hash;
  hash.update(bytes_of("a"));
  hash.update(bytes_of(""));
  hash.update_u32(0x64636362);  // "bccd"
  EXPECT_EQ(hash.finish(), sha256(bytes_of("abccd")));
}

}  // namespace
}  // namespace deepinfer
