// SPDX-License-Identifier: MIT
// Any bytes as requests, answers and lists of a shard server: no crash; what is accepted encodes back to itself.
#include <algorithm>

#include "base/check.h"
#include "base/fuzz.h"
#include "store/shard_protocol.h"

namespace deepinfer {

int fuzz_shard_protocol(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (uint16_t type = 15; type < 22; ++type) {
    const auto request = decode_shard_request(type, text);
    if (request.ok()) CHECK(encode_shard_request(static_cast<ShardRequestType>(type), request.value()) == text);
  }
  const ShardAnswer answer = decode_shard_answer(text);
  if (!answer.status.ok() && answer.status.code() != StatusCode::kUnavailable)
    CHECK(encode_shard_answer(answer) == text);
  const auto files = decode_segment_files({data, size});
  if (files.ok()) {
    const auto again = encode_segment_files(files.value());
    CHECK(std::equal(again.begin(), again.end(), data, data + size));
  }
  return 0;
}

}  // namespace deepinfer
