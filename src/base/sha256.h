// SPDX-License-Identifier: MIT
// SHA-256 (FIPS 180-4) of bytes given in pieces. Names content: cache keys, file checks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace deepinfer {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void update(std::span<const uint8_t> bytes);
  void update_u32(uint32_t value);  // 4 bytes, little endian
  Sha256Digest finish();            // afterwards it stands at the start again

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

Sha256Digest sha256(std::span<const uint8_t> bytes);
std::string to_hex(const Sha256Digest& digest);

}  // namespace deepinfer
