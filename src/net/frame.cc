// SPDX-License-Identifier: MIT
#include "net/frame.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <zlib.h>

#include <cstring>
#include <vector>

#include "base/check.h"

namespace deepinfer {
namespace {

constexpr uint32_t kMagic = 0x31464944;  // "DIF1"
constexpr size_t kCrcAt = 20;

template <typename T>
void put(uint8_t* at, T value) {
  std::memcpy(at, &value, sizeof value);
}
template <typename T>
T get(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

uint32_t crc_of(const uint8_t* header, std::string_view head) {
  const uLong crc = crc32(0, header, kCrcAt);
  return static_cast<uint32_t>(crc32(crc, reinterpret_cast<const Bytef*>(head.data()), static_cast<uInt>(head.size())));
}

}  // namespace

std::array<uint8_t, kFrameHeaderBytes> encode_frame_header(uint16_t type, uint64_t id, std::string_view head,
                                                           uint32_t body_bytes) {
  CHECK(head.size() <= UINT16_MAX);
  std::array<uint8_t, kFrameHeaderBytes> bytes{};
  put(bytes.data(), kMagic);
  put(bytes.data() + 4, type);
  put(bytes.data() + 6, static_cast<uint16_t>(head.size()));
  put(bytes.data() + 8, id);
  put(bytes.data() + 16, body_bytes);
  put(bytes.data() + kCrcAt, crc_of(bytes.data(), head));
  return bytes;
}

Result<FrameHeader> decode_frame_header(std::span<const uint8_t> bytes, const FrameLimits& limits) {
  if (bytes.size() != kFrameHeaderBytes || get<uint32_t>(bytes.data()) != kMagic)
    return corruption("these bytes are no frame");
  const FrameHeader header{.type = get<uint16_t>(bytes.data() + 4),
                           .head_bytes = get<uint16_t>(bytes.data() + 6),
                           .body_bytes = get<uint32_t>(bytes.data() + 16),
                           .id = get<uint64_t>(bytes.data() + 8),
                           .crc = get<uint32_t>(bytes.data() + kCrcAt)};
  if (header.head_bytes > limits.head_bytes_max || header.body_bytes > limits.body_bytes_max)
    return resource_exhausted(fmt::format("frame of {} + {} bytes, at most {} + {} are taken", header.head_bytes,
                                          header.body_bytes, limits.head_bytes_max, limits.body_bytes_max));
  return header;
}

bool frame_head_is_whole(std::span<const uint8_t> header_bytes, std::string_view head) {
  return header_bytes.size() == kFrameHeaderBytes &&
         get<uint32_t>(header_bytes.data() + kCrcAt) == crc_of(header_bytes.data(), head);
}

FrameBody plain_frame_body(size_t size) {
  auto bytes = std::make_shared<std::vector<uint8_t>>(size);
  return {bytes->data(), size, bytes};
}

std::string frame_proof(const std::string& secret, std::string_view who, std::string_view first,
                        std::string_view second) {
  std::string text(who);
  text.append("|").append(first).append("|").append(second);
  std::string proof(32, '\0');
  unsigned length = 0;
  CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
             reinterpret_cast<const uint8_t*>(text.data()), text.size(), reinterpret_cast<uint8_t*>(proof.data()),
             &length));
  return proof;
}

bool same_proof(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace deepinfer
