// SPDX-License-Identifier: MIT
#include "store/extent.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"
#include "base/sha256.h"
#include "store/bulk_crc32c.h"
#include "store/byte_fields.h"

namespace deepinfer {
namespace {

constexpr uint64_t kMagic = 0x31574f5254584544;  // "DEXTROW1"
constexpr size_t kCrcAt = static_cast<size_t>(kPageBytes) - 4;

uint64_t tag_of(std::string_view label, std::string_view text) {
  Sha256 hash;
  hash.update(bytes_of(label));
  hash.update(bytes_of(text));
  const Sha256Digest digest = hash.finish();
  uint64_t tag = 0;
  std::memcpy(&tag, digest.data(), sizeof tag);
  return tag;
}

Status check_fields(const RowHeader& h, uint32_t num_blocks) {
  if (h.num_data_shards < 1 || h.num_parity_shards > 2 || h.num_shards() > 16 || h.shard >= h.num_shards())
    return corruption(fmt::format("row header: shard {} of {} + {}", h.shard, h.num_data_shards, h.num_parity_shards));
  if (static_cast<int>(h.kind) >= kNumRecordKinds || static_cast<int>(h.ttl_class) >= kNumTtlClasses || h.cipher > 1)
    return corruption("row header: an enumeration is out of range");
  if (num_blocks < 1 || num_blocks > kExtentBlocks || h.block_bytes < 1 || h.block_bytes > kBlockBytesMax)
    return corruption(fmt::format("row header: {} blocks of {} bytes", num_blocks, h.block_bytes));
  if (h.offset % kPageBytes != 0) return corruption("row header: offset is not a multiple of the page");
  return {};
}

}  // namespace

BlockKey record_key(RecordKind kind, const BlockKey& key) {
  const uint64_t salt = 0x9e3779b97f4a7c15 * static_cast<uint64_t>(kind);  // 0 for blocks
  return {key.high ^ salt, key.low ^ (salt << 7)};
}

ScopeTags scope_tags(const KeyScope& scope) {
  return {tag_of("tenant", scope.tenant_salt), tag_of("model", scope.model_revision), scope.cache_format};
}

void encode_row_header(const RowHeader& h, std::span<uint8_t> page) {
  CHECK(page.size() == static_cast<size_t>(kPageBytes) && h.num_blocks() >= 1 && h.num_blocks() <= kExtentBlocks);
  std::memset(page.data(), 0, page.size());
  FieldWriter out(page);
  out.put(kMagic);
  out.put(kStoreLayout);
  out.put(h.segment);
  out.put(h.offset);
  out.put(h.shard);
  out.put(h.num_data_shards);
  out.put(h.num_parity_shards);
  out.put(h.kind);
  out.put(h.ttl_class);
  out.put(h.cipher);
  out.put(h.block_bytes);
  out.put(h.first_block);
  out.put(h.fast_replay_mask);
  out.put(h.scope.tenant);
  out.put(h.scope.model);
  out.put(h.scope.cache_format);
  out.put_bytes(h.nonce);
  out.put(static_cast<uint32_t>(h.blocks.size()));
  for (const BlockStamp& block : h.blocks) {
    out.put(block.key.high);
    out.put(block.key.low);
    out.put(block.first_token);
    out.put(block.last_token);
    out.put(block.block_crc);
    out.put(block.part_crc);
    out.put_bytes(block.cipher_tag);
  }
  FieldWriter(page.subspan(kCrcAt)).put(bulk_crc32c(page.first(kCrcAt)));
}

Result<RowHeader> decode_row_header(std::span<const uint8_t> page) {
  if (page.size() != static_cast<size_t>(kPageBytes)) return corruption("row header: cut short");
  FieldReader in(page);
  if (in.get<uint64_t>() != kMagic) return not_found("no row header here");
  if (FieldReader(page.subspan(kCrcAt)).get<uint32_t>() != bulk_crc32c(page.first(kCrcAt)))
    return corruption("row header: checksum");
  if (const uint32_t layout = in.get<uint32_t>(); layout != kStoreLayout)
    return unimplemented(fmt::format("row header: layout {}, this program reads {}", layout, kStoreLayout));
  RowHeader h;
  h.segment = in.get<SegmentId>();
  h.offset = in.get<uint64_t>();
  h.shard = in.get<uint8_t>();
  h.num_data_shards = in.get<uint8_t>();
  h.num_parity_shards = in.get<uint8_t>();
  h.kind = in.get<RecordKind>();
  h.ttl_class = in.get<TtlClass>();
  h.cipher = in.get<uint8_t>();
  h.block_bytes = in.get<uint32_t>();
  h.first_block = in.get<uint32_t>();
  h.fast_replay_mask = in.get<uint32_t>();
  h.scope.tenant = in.get<uint64_t>();
  h.scope.model = in.get<uint64_t>();
  h.scope.cache_format = in.get<uint32_t>();
  in.get_bytes(h.nonce);
  const uint32_t num_blocks = in.get<uint32_t>();
  TRY(check_fields(h, num_blocks));
  h.blocks.resize(num_blocks);
  for (BlockStamp& block : h.blocks) {
    block.key.high = in.get<uint64_t>();
    block.key.low = in.get<uint64_t>();
    block.first_token = in.get<TokenId>();
    block.last_token = in.get<TokenId>();
    block.block_crc = in.get<uint32_t>();
    block.part_crc = in.get<uint32_t>();
    in.get_bytes(block.cipher_tag);
  }
  CHECK(in.ok());  // 32 stamps fit a page
  return h;
}

}  // namespace deepinfer
