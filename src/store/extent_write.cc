// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "store/extent_io.h"
#include "store/reply_box.h"

namespace deepinfer {
namespace {

// One write to every shard of a group.
class Writing {
 public:
  Writing(int num_shards, int min_acks) : num_waiting_(num_shards), min_acks_(min_acks) {}

  void take(const Status& status) {
    --num_waiting_;
    if (status.ok()) ++num_acks_;
    else last_error_ = status;
  }
  bool acknowledged() const { return num_acks_ >= min_acks_; }
  bool hopeless() const { return num_acks_ + num_waiting_ < min_acks_; }
  bool answered() const { return num_waiting_ == 0; }
  int num_acks() const { return num_acks_; }
  Status status() const {
    if (acknowledged()) return {};
    const std::string what =
        fmt::format("{} of {} shards have it, expected {}", num_acks_, num_acks_ + num_waiting_, min_acks_);
    if (last_error_.ok()) return unavailable(what + ": the others did not answer in time");
    return Status(last_error_.code(), what + ": " + last_error_.message());
  }

 private:
  int num_waiting_, num_acks_ = 0, min_acks_;
  Status last_error_;
};

DeviceDone into_box(const std::shared_ptr<ReplyBox>& box, size_t number, int shard) {
  return [box, number, shard](DeviceReply reply) {
    reply.buffer = {};
    box->put({number, shard, std::move(reply)});
  };
}

}  // namespace

std::vector<ExtentWriteResult> write_extents(const ExtentDevices& io, std::span<const ExtentWrite> writes) {
  const auto box = std::make_shared<ReplyBox>();
  std::vector<Writing> writings;
  std::vector<ExtentWriteResult> results(writes.size());
  for (size_t i = 0; i < writes.size(); ++i) {
    const ExtentWrite& write = writes[i];
    RowHeader header = write.header;
    std::vector<PageBuffer> rows = encode_rows(io.code, header, write.blocks, results[i].part_crcs);
    const int64_t num_bytes =
        row_bytes_of(header.num_blocks(), part_bytes_of(header.block_bytes, io.code.num_data_shards()));
    writings.emplace_back(io.code.num_shards(), write.min_acks);
    for (size_t shard = 0; shard < rows.size(); ++shard)
      io.devices[static_cast<size_t>(write.group[shard])]->write(header.segment, static_cast<int64_t>(header.offset),
                                                                 std::move(rows[shard]), num_bytes,
                                                                 into_box(box, i, static_cast<int>(shard)));
  }
  const int64_t end_ns = io.clock.monotonic_ns() + io.write_timeout_ns;
  const auto open = [](const Writing& w) { return !w.acknowledged() && !w.hopeless(); };
  while (std::any_of(writings.begin(), writings.end(), open)) {
    const int64_t left_ns = end_ns - io.clock.monotonic_ns();
    if (left_ns <= 0) break;
    for (const ArrivedReply& arrived : box->take(left_ns)) writings[arrived.number].take(arrived.reply.status);
  }
  box->close();
  for (size_t i = 0; i < writes.size(); ++i) {
    results[i].status = writings[i].status();
    results[i].num_acks = writings[i].num_acks();
  }
  return results;
}

int write_to_group(const ExtentDevices& io, const PlacementGroup& group, SegmentId segment, int64_t offset,
                   const std::function<std::vector<uint8_t>(int shard)>& bytes) {
  const auto box = std::make_shared<ReplyBox>();
  Writing writing(static_cast<int>(group.size()), static_cast<int>(group.size()));
  for (int shard = 0; shard < static_cast<int>(group.size()); ++shard) {
    const std::vector<uint8_t> own = bytes(shard);
    CHECK(!own.empty() && own.size() % static_cast<size_t>(kPageBytes) == 0);
    PageBuffer buffer = PageBuffer::of(static_cast<int64_t>(own.size()));
    std::memcpy(buffer.data(), own.data(), own.size());
    io.devices[static_cast<size_t>(group[static_cast<size_t>(shard)])]->write(
        segment, offset, std::move(buffer), static_cast<int64_t>(own.size()), into_box(box, 0, shard));
  }
  // A dead device fails at once; a silent one must not hold up a seal for long.
  const int64_t begin_ns = io.clock.monotonic_ns();
  while (!writing.answered()) {
    const int64_t patience_ns = writing.num_acks() > 0 ? io.write_timeout_ns / 5 : io.write_timeout_ns;
    const int64_t left_ns = begin_ns + patience_ns - io.clock.monotonic_ns();
    if (left_ns <= 0) break;
    for (const ArrivedReply& arrived : box->take(left_ns)) writing.take(arrived.reply.status);
  }
  box->close();
  return writing.num_acks();
}

}  // namespace deepinfer
