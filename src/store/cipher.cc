// SPDX-License-Identifier: MIT
#include "store/cipher.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>

#include <memory>

#include "base/check.h"
#include "base/file.h"

namespace deepinfer {
namespace {

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

std::array<uint8_t, 16> name_bytes(const BlockKey& name) {
  std::array<uint8_t, 16> bytes{};
  for (int i = 0; i < 8; ++i) {
    bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(name.high >> (8 * i));
    bytes[static_cast<size_t>(8 + i)] = static_cast<uint8_t>(name.low >> (8 * i));
  }
  return bytes;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

CipherKey derive_key(const CipherKey& master, const std::string& tenant_salt) {
  CipherKey key{};
  unsigned length = 0;
  CHECK(HMAC(EVP_sha256(), master.data(), static_cast<int>(master.size()),
             reinterpret_cast<const uint8_t*>(tenant_salt.data()), tenant_salt.size(), key.data(), &length) &&
        length == key.size());
  return key;
}

Result<CipherKey> read_master_key(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && (info.st_mode & 077) != 0)
    return invalid_argument(path + ": others may read this key; chmod 600 it");
  ASSIGN_OR_RETURN(std::string text, read_file(path, 4096));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  CipherKey key{};
  if (text.size() != 2 * key.size())
    return invalid_argument(
        fmt::format("{}: expected 64 hex digits (openssl rand -hex 32), found {} characters", path, text.size()));
  for (size_t i = 0; i < key.size(); ++i) {
    const int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return invalid_argument(path + ": expected 64 hex digits (openssl rand -hex 32)");
    key[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return key;
}

CipherNonce block_nonce(CipherNonce extent_nonce, int64_t block) {
  extent_nonce.back() = static_cast<uint8_t>(block);  // an extent has at most 32 blocks
  return extent_nonce;
}

void encrypt_block(const CipherKey& key, const CipherNonce& nonce, const BlockKey& name, std::span<uint8_t> bytes,
                   CipherTag& tag) {
  const Context context(EVP_CIPHER_CTX_new());
  const auto header = name_bytes(name);
  int n = 0;
  CHECK(context && EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, key.data(), nonce.data()) == 1);
  CHECK(EVP_EncryptUpdate(context.get(), nullptr, &n, header.data(), static_cast<int>(header.size())) == 1);
  CHECK(EVP_EncryptUpdate(context.get(), bytes.data(), &n, bytes.data(), static_cast<int>(bytes.size())) == 1);
  CHECK(EVP_EncryptFinal_ex(context.get(), bytes.data() + n, &n) == 1);
  CHECK(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, static_cast<int>(tag.size()), tag.data()) == 1);
}

bool decrypt_block(const CipherKey& key, const CipherNonce& nonce, const BlockKey& name, std::span<uint8_t> bytes,
                   const CipherTag& tag) {
  const Context context(EVP_CIPHER_CTX_new());
  const auto header = name_bytes(name);
  CipherTag expected = tag;
  int n = 0;
  CHECK(context && EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, key.data(), nonce.data()) == 1);
  CHECK(EVP_DecryptUpdate(context.get(), nullptr, &n, header.data(), static_cast<int>(header.size())) == 1);
  CHECK(EVP_DecryptUpdate(context.get(), bytes.data(), &n, bytes.data(), static_cast<int>(bytes.size())) == 1);
  CHECK(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, static_cast<int>(expected.size()), expected.data()) ==
        1);
  return EVP_DecryptFinal_ex(context.get(), bytes.data() + n, &n) == 1;
}

}  // namespace deepinfer
