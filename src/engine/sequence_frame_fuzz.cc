// SPDX-License-Identifier: MIT
// Property: an accepted frame lies within its bytes and encodes to them again; a frame whose checksums are made right
// (else nothing behind them would be reached) is read or refused, never worse.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/crc32c.h"
#include "engine/sequence_frame.h"

namespace deepinfer {
namespace {

constexpr size_t kPartsAt = 96, kNumParts = 7, kPartBytes = 12;

uint64_t part_bytes(const std::vector<uint8_t>& frame, size_t part) {
  uint64_t bytes;
  std::memcpy(&bytes, frame.data() + kPartsAt + part * kPartBytes, sizeof(bytes));
  return bytes;
}

void put_checksum(std::vector<uint8_t>& frame, size_t at, uint32_t value) {
  std::memcpy(frame.data() + at, &value, sizeof(value));
}

void repair(std::vector<uint8_t>& frame) {
  if (frame.size() < kSequenceFrameHeadBytes) return;
  size_t at = kSequenceFrameHeadBytes;
  for (size_t part = 0; part < kNumParts; ++part) {
    const uint64_t size = std::min<uint64_t>(part_bytes(frame, part), frame.size() - at);
    put_checksum(frame, kPartsAt + part * kPartBytes + 8,
                 crc32c(std::span(frame).subspan(at, static_cast<size_t>(size))));
    at += static_cast<size_t>(size);
  }
  put_checksum(frame, kSequenceFrameHeadBytes - 4, crc32c(std::span(frame).first(kSequenceFrameHeadBytes - 4)));
}

void check(const std::vector<uint8_t>& bytes) {
  const auto frame = decode_sequence_frame(bytes);
  if (!frame.ok()) return;
  CHECK(static_cast<int64_t>(frame.value().tokens.size()) >= frame.value().moment.position);
  CHECK(static_cast<int64_t>(frame.value().blocks.size()) == frame.value().num_blocks * frame.value().block_bytes);
  CHECK(encode_sequence_frame(frame.value()) == bytes);
}

}  // namespace

int fuzz_sequence_frame(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  check(bytes);
  repair(bytes);
  check(bytes);
  return 0;
}

}  // namespace deepinfer
