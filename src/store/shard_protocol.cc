// SPDX-License-Identifier: MIT
#include "store/shard_protocol.h"

#include <algorithm>

#include "store/byte_fields.h"
#include "store/segment.h"

namespace deepinfer {
namespace {

constexpr size_t kMessageBytesMax = 512;
constexpr int64_t kOffsetMax = int64_t{1} << 40;

size_t head_bytes_of(ShardRequestType type) {
  switch (type) {
    case ShardRequestType::kRead: return 20;
    case ShardRequestType::kWrite: return 16;
    case ShardRequestType::kDrop: return 8;
    default: return 0;
  }
}

}  // namespace

std::string encode_shard_request(ShardRequestType type, const ShardRequest& request) {
  std::string head(head_bytes_of(type), '\0');
  FieldWriter out({reinterpret_cast<uint8_t*>(head.data()), head.size()});
  if (head.size() >= 8) out.put(request.segment);
  if (head.size() >= 16) out.put(request.offset);
  if (head.size() >= 20) out.put(static_cast<uint32_t>(request.num_bytes));
  return head;
}

Result<ShardRequest> decode_shard_request(uint16_t type, std::string_view head) {
  if (type < static_cast<uint16_t>(ShardRequestType::kRead) || type > static_cast<uint16_t>(ShardRequestType::kSpace))
    return invalid_argument("shard request: unknown type");
  if (head.size() != head_bytes_of(static_cast<ShardRequestType>(type)))
    return invalid_argument("shard request: its length does not fit its type");
  FieldReader in(bytes_of(head));
  ShardRequest request;
  if (head.size() >= 8) request.segment = in.get<SegmentId>();
  if (head.size() >= 16) request.offset = in.get<int64_t>();
  if (head.size() >= 20) request.num_bytes = in.get<uint32_t>();
  const bool whole_pages = request.offset % kPageBytes == 0 && request.num_bytes % kPageBytes == 0;
  if (request.offset < 0 || request.offset > kOffsetMax || request.num_bytes > kShardRequestBytesMax || !whole_pages)
    return invalid_argument("shard request: offset or length out of range or not whole pages");
  return request;
}

std::string encode_shard_answer(const ShardAnswer& answer) {
  const std::string_view message = std::string_view(answer.status.message()).substr(0, kMessageBytesMax);
  std::string head(5 + message.size(), '\0');
  FieldWriter out({reinterpret_cast<uint8_t*>(head.data()), head.size()});
  out.put(static_cast<uint8_t>(answer.status.code()));
  out.put(static_cast<uint32_t>(std::clamp<int64_t>(answer.queue_depth, 0, UINT32_MAX)));
  out.put_bytes(bytes_of(message));
  return head;
}

ShardAnswer decode_shard_answer(std::string_view head) {
  FieldReader in(bytes_of(head));
  const auto code = in.get<uint8_t>();
  ShardAnswer answer{.queue_depth = in.get<uint32_t>()};
  if (!in.ok() || code > static_cast<uint8_t>(StatusCode::kInternal) || head.size() > 5 + kMessageBytesMax) {
    answer.status = unavailable("the shard server's answer makes no sense");
  } else if (code != 0) {
    answer.status = Status(static_cast<StatusCode>(code), std::string(head.substr(5)));
  }
  return answer;
}

std::vector<uint8_t> encode_segment_files(std::span<const SegmentFile> files) {
  std::vector<uint8_t> bytes(files.size() * 16);
  FieldWriter out(bytes);
  for (const SegmentFile& file : files) {
    out.put(file.id);
    out.put(file.num_bytes);
  }
  return bytes;
}

Result<std::vector<SegmentFile>> decode_segment_files(std::span<const uint8_t> bytes) {
  if (bytes.size() % 16 != 0) return corruption("list of segments: cut short");
  std::vector<SegmentFile> files;
  for (FieldReader in(bytes); !in.rest().empty();) {
    SegmentFile file;
    file.id = in.get<SegmentId>();
    file.num_bytes = in.get<int64_t>();
    if (file.num_bytes < 0 || file.num_bytes > kOffsetMax) return corruption("list of segments: a size out of range");
    files.push_back(file);
  }
  return files;
}

}  // namespace deepinfer
