// SPDX-License-Identifier: MIT
#include "store/extent.h"

#include <fmt/format.h>

#include <cstring>
#include <tuple>

#include "base/check.h"
#include "base/sha256.h"
#include "store/record_page.h"

namespace deepinfer {
namespace {

constexpr uint64_t kMagic = 0x31574f5254584544;  // "DEXTROW1"

uint64_t tag_of(std::string_view label, std::string_view text) {
  Sha256 hash;
  hash.update(bytes_of(label));
  hash.update(bytes_of(text));
  const Sha256Digest digest = hash.finish();
  uint64_t tag = 0;
  std::memcpy(&tag, digest.data(), sizeof tag);
  return tag;
}

// What stands in the page, in this order, for both directions.
auto fields_of(auto& h) {
  return std::tie(h.segment, h.offset, h.shard, h.num_data_shards, h.num_parity_shards, h.kind, h.ttl_class, h.cipher,
                  h.block_bytes, h.first_block, h.fast_replay_mask, h.scope.tenant, h.scope.model, h.scope.cache_format,
                  h.nonce);
}
auto stamp_fields_of(auto& block) {
  return std::tie(block.key.high, block.key.low, block.first_token, block.last_token, block.block_crc, block.part_crc,
                  block.cipher_tag);
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
  // A zero byte parts the users of one tenant, who are forgotten together.
  const std::string_view tenant = std::string_view(scope.tenant_salt).substr(0, scope.tenant_salt.find('\0'));
  return {tag_of("tenant", tenant), tag_of("model", scope.model_revision), scope.cache_format};
}

void encode_row_header(const RowHeader& h, std::span<uint8_t> page) {
  CHECK(h.num_blocks() >= 1 && h.num_blocks() <= kExtentBlocks);
  FieldWriter out = begin_page(page, kMagic);
  out.put_all(fields_of(h));
  out.put(static_cast<uint32_t>(h.blocks.size()));
  for (const BlockStamp& block : h.blocks) out.put_all(stamp_fields_of(block));
  finish_page(page);
}

Result<RowHeader> decode_row_header(std::span<const uint8_t> page) {
  ASSIGN_OR_RETURN(FieldReader in, open_page(page, kMagic, "row header"));
  RowHeader h;
  in.get_all(fields_of(h));
  const uint32_t num_blocks = in.get<uint32_t>();
  TRY(check_fields(h, num_blocks));
  h.blocks.resize(num_blocks);
  for (BlockStamp& block : h.blocks) in.get_all(stamp_fields_of(block));
  CHECK(in.ok());  // 32 stamps fit a page
  return h;
}

}  // namespace deepinfer
