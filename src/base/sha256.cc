// SPDX-License-Identifier: MIT
#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace deepinfer {

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;

void Sha256::update(std::span<const uint8_t> bytes) {
  CHECK(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1);
}

void Sha256::update_u32(uint32_t value) {
  const std::array<uint8_t, 4> bytes = {static_cast<uint8_t>(value), static_cast<uint8_t>(value >> 8),
                                        static_cast<uint8_t>(value >> 16), static_cast<uint8_t>(value >> 24)};
  update(bytes);
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  CHECK(EVP_DigestFinal_ex(context_->evp, digest.data(), nullptr) == 1);
  CHECK(EVP_DigestInit_ex(context_->evp, nullptr, nullptr) == 1);  // same digest again, nothing fetched
  return digest;
}

Sha256Digest sha256(std::span<const uint8_t> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

std::string to_hex(const Sha256Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace deepinfer
