// SPDX-License-Identifier: MIT
// Blocks into rows. Rows into blocks is extent_read.cc.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "store/bulk_crc32c.h"
#include "store/extent_io.h"

namespace deepinfer {
namespace {

// Part `part` of a block; the last ones are zero-padded, or all zeros where the block ends before them.
void copy_part(std::span<const uint8_t> block, int64_t part, std::span<uint8_t> out) {
  const size_t begin = std::min(block.size(), static_cast<size_t>(part) * out.size());
  const size_t n = std::min(out.size(), block.size() - begin);
  if (n > 0) std::memcpy(out.data(), block.data() + begin, n);
  if (n < out.size()) std::memset(out.data() + n, 0, out.size() - n);
}

}  // namespace

std::vector<PageBuffer> encode_rows(const ErasureCode& code, RowHeader& header, std::span<const uint8_t> blocks,
                                    std::vector<std::vector<uint32_t>>& part_crcs) {
  const int k = code.num_data_shards();
  const int64_t n = header.num_blocks(), block_bytes = header.block_bytes;
  const int64_t part = part_bytes_of(block_bytes, k), row = row_bytes_of(n, part);
  CHECK(static_cast<int64_t>(blocks.size()) == n * block_bytes);
  std::vector<PageBuffer> rows;
  std::vector<const uint8_t*> data;
  std::vector<uint8_t*> parity;
  for (int j = 0; j < code.num_shards(); ++j) {
    rows.push_back(PageBuffer::of(row));
    uint8_t* const parts = rows.back().data() + kPageBytes;
    std::memset(parts + n * part, 0, static_cast<size_t>(row - kPageBytes - n * part));
    if (j >= k) {
      parity.push_back(parts);
      continue;
    }
    data.push_back(parts);
    for (int64_t b = 0; b < n; ++b)
      copy_part(blocks.subspan(static_cast<size_t>(b * block_bytes), static_cast<size_t>(block_bytes)), j,
                {parts + b * part, static_cast<size_t>(part)});
  }
  code.encode(data, parity, n * part);
  for (int64_t b = 0; b < n; ++b)
    header.blocks[static_cast<size_t>(b)].block_crc =
        bulk_crc32c(blocks.subspan(static_cast<size_t>(b * block_bytes), static_cast<size_t>(block_bytes)));
  part_crcs.assign(static_cast<size_t>(code.num_shards()), {});
  for (int j = 0; j < code.num_shards(); ++j) {
    header.shard = static_cast<uint8_t>(j);
    PageBuffer& buffer = rows[static_cast<size_t>(j)];
    for (int64_t b = 0; b < n; ++b) {
      const uint32_t crc = bulk_crc32c(buffer.bytes(kPageBytes + b * part, part));
      header.blocks[static_cast<size_t>(b)].part_crc = crc;
      part_crcs[static_cast<size_t>(j)].push_back(crc);
    }
    encode_row_header(header, buffer.bytes(0, kPageBytes));
  }
  return rows;
}

}  // namespace deepinfer
