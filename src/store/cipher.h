// SPDX-License-Identifier: MIT
// Blocks encrypted at rest, as an option: AES-256-GCM (NIST SP 800-38D; OpenSSL) under a key that follows from the
// store's master key and the tenant's salt, so that deleting the salt makes the data unreadable. The nonce is the
// extent's random one with the block's number in its last byte; the block's key is authenticated too. Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "store/block_key.h"

namespace deepinfer {

using CipherKey = std::array<uint8_t, 32>;
using CipherNonce = std::array<uint8_t, 12>;
using CipherTag = std::array<uint8_t, 16>;

// HMAC-SHA-256(master, salt).
CipherKey derive_key(const CipherKey& master, const std::string& tenant_salt);
// 64 hex digits in a file that nobody else may read. Errors: not_found, invalid_argument (form, or its permissions).
Result<CipherKey> read_master_key(const std::string& path);

CipherNonce block_nonce(CipherNonce extent_nonce, int64_t block);
void encrypt_block(const CipherKey& key, const CipherNonce& nonce, const BlockKey& name, std::span<uint8_t> bytes,
                   CipherTag& tag);
// False when the bytes, the tag or the name are not those that were encrypted; `bytes` mean nothing then.
bool decrypt_block(const CipherKey& key, const CipherNonce& nonce, const BlockKey& name, std::span<uint8_t> bytes,
                   const CipherTag& tag);

}  // namespace deepinfer
