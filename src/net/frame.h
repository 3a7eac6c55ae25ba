// SPDX-License-Identifier: MIT
// Frames between our own programs over TCP: a fixed header, a short head (what is asked), a body (bulk bytes).
//
//   header = magic u32 | type u16 | head bytes u16 | id u64 | body bytes u32 | crc32 of the 20 bytes before and the
//   head
//
// All little-endian. Lengths are checked before anything is read or allocated. The body carries no checksum here: what
// is in it has its own. Thread: values.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace deepinfer {

inline constexpr size_t kFrameHeaderBytes = 24;

struct FrameHeader {
  uint16_t type = 0;
  uint16_t head_bytes = 0;
  uint32_t body_bytes = 0;
  uint64_t id = 0;  // of a request; its reply carries the same
  uint32_t crc = 0;
};

struct FrameLimits {
  uint32_t head_bytes_max = 4096;
  uint32_t body_bytes_max = 64u << 20;
};

std::array<uint8_t, kFrameHeaderBytes> encode_frame_header(uint16_t type, uint64_t id, std::string_view head,
                                                           uint32_t body_bytes);
// Errors: corruption (not a frame), resource_exhausted (a length beyond the limits).
Result<FrameHeader> decode_frame_header(std::span<const uint8_t> bytes, const FrameLimits& limits);
bool frame_head_is_whole(std::span<const uint8_t> header_bytes, std::string_view head);

// Bulk bytes in memory of the user's choosing (page-aligned for a disk, say), kept alive by `owner`.
struct FrameBody {
  uint8_t* data = nullptr;
  size_t size = 0;
  std::shared_ptr<const void> owner;
};
FrameBody plain_frame_body(size_t size);

// How two ends know each other. A shared secret proves both ends to each other when they connect and protects nothing
// after that; TLS with certificates on both sides encrypts too.
struct FrameSecurity {
  std::string secret;                                   // empty = none
  std::string tls_certificate, tls_key, tls_authority;  // PEM files; empty = no TLS
  bool has_tls() const { return !tls_certificate.empty(); }
};

// HMAC-SHA-256(secret, who | first nonce | second nonce), the proof of the handshake.
std::string frame_proof(const std::string& secret, std::string_view who, std::string_view first,
                        std::string_view second);
bool same_proof(std::string_view a, std::string_view b);  // in constant time

}  // namespace deepinfer
