// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "store/bulk_crc32c.h"
#include "store/extent_io.h"
#include "store/reply_box.h"

namespace deepinfer {
namespace {

// What a row can be, once looked at.
enum class RowVerdict { kGood, kMissing, kDamaged, kLayout, kTenant, kOtherBlocks };

struct GoodRow {
  PageBuffer buffer;
  RowHeader header;
};

RowVerdict check_place(const ExtentRead& read, const ErasureCode& code, int shard, const RowHeader& h) {
  const int64_t offset = int64_t{read.record.offset_pages} * kPageBytes;
  if (h.segment != read.record.segment || static_cast<int64_t>(h.offset) != offset || h.shard != shard)
    return RowVerdict::kDamaged;  // bytes of another place
  if (h.num_data_shards != code.num_data_shards() || h.num_parity_shards != code.num_parity_shards() ||
      h.block_bytes != read.record.block_bytes || h.kind != read.record.kind)
    return RowVerdict::kLayout;
  if (read.whole) return record_of(h) == read.record ? RowVerdict::kGood : RowVerdict::kDamaged;
  if (h.scope.tenant != read.scope.tenant) return RowVerdict::kTenant;
  if (h.scope != read.scope) return RowVerdict::kLayout;
  return RowVerdict::kGood;
}

// `num_usable` falls to the number of blocks whose whole keys are those wanted.
RowVerdict check_row(const ExtentRead& read, const ErasureCode& code, int shard, const DeviceReply& reply,
                     RowHeader& header, int64_t& num_usable) {
  if (reply.num_bytes < kPageBytes) return RowVerdict::kMissing;
  auto decoded = decode_row_header(reply.buffer.bytes(0, kPageBytes));
  if (!decoded.ok()) {
    if (decoded.status().code() == StatusCode::kUnimplemented) return RowVerdict::kLayout;
    return decoded.status().code() == StatusCode::kNotFound ? RowVerdict::kMissing : RowVerdict::kDamaged;
  }
  header = std::move(decoded).value();
  if (const RowVerdict verdict = check_place(read, code, shard, header); verdict != RowVerdict::kGood) return verdict;
  const int64_t part = part_bytes_of(header.block_bytes, code.num_data_shards());
  int64_t matching = read.whole ? header.num_blocks() : 0;
  while (!read.whole && matching < read.num_blocks() && matching < header.num_blocks() &&
         header.blocks[static_cast<size_t>(matching)].key == read.keys[static_cast<size_t>(matching)])
    ++matching;
  if (matching == 0) return RowVerdict::kOtherBlocks;
  if (reply.num_bytes < kPageBytes + matching * part) return RowVerdict::kDamaged;
  for (int64_t b = 0; b < matching; ++b)
    if (bulk_crc32c(reply.buffer.bytes(kPageBytes + b * part, part)) != header.blocks[static_cast<size_t>(b)].part_crc)
      return RowVerdict::kDamaged;
  num_usable = std::min(num_usable, matching);
  return RowVerdict::kGood;
}

// One extent being read.
class Reading {
 public:
  Reading(const ExtentDevices& io, const ExtentRead& read, size_t number) : io_(io), read_(read), number_(number) {
    operations_.resize(read.group.size());
  }

  void start(const std::shared_ptr<ReplyBox>& box) {
    begin_ns_ = io_.clock.monotonic_ns();
    plan_ = io_.hedge.plan(read_.group);
    num_usable_ = read_.num_blocks();
    for (const int shard : plan_.first) ask(shard, box);
    ask_instead(box);
  }

  // One reply. May ask a spare when it brings nothing good.
  void take(ArrivedReply arrived, const std::shared_ptr<ReplyBox>& box) {
    const uint32_t bit = 1u << arrived.shard;
    outstanding_ &= ~bit;
    if (done_) return;
    const StatusCode code = arrived.reply.status.code();
    if (code == StatusCode::kCorruption) {  // the disk itself could not read it
      result_.damaged_shards |= bit;
      io_.hedge.damaged(read_.group[static_cast<size_t>(arrived.shard)]);
    } else if (code != StatusCode::kOk && code != StatusCode::kNotFound) {
      result_.silent_shards |= bit;
    } else {
      judge(std::move(arrived), bit);
    }
    ask_instead(box);
  }

  // The late spare, or the end of patience.
  void check_time(int64_t now_ns, const std::shared_ptr<ReplyBox>& box) {
    if (done_) return;
    const int64_t age_ns = now_ns - begin_ns_;
    if (age_ns >= io_.read_timeout_ns) {
      result_.silent_shards |= outstanding_;
      finish_short();
    } else if (!plan_.spares.empty() && age_ns >= last_resort_ns()) {
      while (!plan_.spares.empty()) ask_spare(box);  // whatever the budget: the read would fail
    } else if (may_hedge() && age_ns >= plan_.hedge_after_ns) {
      hedge_decided_ = true;
      if (!io_.hedge.may_hedge_late()) return;
      result_.hedged_late = true;
      ask_spare(box);
    }
  }
  int64_t next_deadline_ns() const {
    if (may_hedge()) return begin_ns_ + std::min({plan_.hedge_after_ns, last_resort_ns(), io_.read_timeout_ns});
    if (!plan_.spares.empty()) return begin_ns_ + std::min(last_resort_ns(), io_.read_timeout_ns);
    return begin_ns_ + io_.read_timeout_ns;
  }

  bool done() const { return done_; }
  ExtentReadResult take_result() { return std::move(result_); }

 private:
  // When everyone who is left is asked.
  int64_t last_resort_ns() const {
    constexpr int64_t kShortestNs = 20'000'000;
    return std::min(std::max(4 * plan_.hedge_after_ns, kShortestNs), io_.read_timeout_ns / 4);
  }
  bool may_hedge() const { return !hedge_decided_ && !plan_.spares.empty(); }
  int num_good() const { return static_cast<int>(rows_.size()); }

  void ask(int shard, const std::shared_ptr<ReplyBox>& box) {
    const int device = read_.group[static_cast<size_t>(shard)];
    const int64_t part = part_bytes_of(read_.record.block_bytes, io_.code.num_data_shards());
    const int64_t num_bytes = row_bytes_of(read_.num_blocks(), part);
    const int64_t begin_ns = io_.clock.monotonic_ns();
    outstanding_ |= 1u << shard;
    ++result_.num_requests;
    io_.hedge.started(device);
    const auto done = [box, number = number_, shard, device, begin_ns, &hedge = io_.hedge,
                       &clock = io_.clock](DeviceReply reply) {
      const StatusCode code = reply.status.code();
      const bool failed = code != StatusCode::kOk && code != StatusCode::kNotFound && code != StatusCode::kCorruption;
      hedge.finished(device, clock.monotonic_ns() - begin_ns, reply.queue_depth,
                     reply.cancelled ? HedgePolicy::Outcome::kCancelled
                     : failed        ? HedgePolicy::Outcome::kFailed
                                     : HedgePolicy::Outcome::kAnswered);
      box->put({number, shard, std::move(reply)});
    };
    operations_[static_cast<size_t>(shard)] = io_.devices[static_cast<size_t>(device)]->read(
        read_.record.segment, int64_t{read_.record.offset_pages} * kPageBytes, num_bytes, PageBuffer::of(num_bytes),
        done);
  }

  void ask_spare(const std::shared_ptr<ReplyBox>& box) {
    const int shard = plan_.spares.front();
    plan_.spares.erase(plan_.spares.begin());
    ask(shard, box);
  }

  // Decoding needs k rows: what failed is replaced at once, budget or not.
  void ask_instead(const std::shared_ptr<ReplyBox>& box) {
    if (done_) return;
    const int k = io_.code.num_data_shards();
    while (num_good() + std::popcount(outstanding_) < k && !plan_.spares.empty()) ask_spare(box);
    if (num_good() + std::popcount(outstanding_) < k) finish_short();
  }

  void judge(ArrivedReply arrived, uint32_t bit) {
    if (!arrived.reply.status.ok()) {
      result_.missing_shards |= bit;
      return;
    }
    GoodRow row;
    switch (check_row(read_, io_.code, arrived.shard, arrived.reply, row.header, num_usable_)) {
      case RowVerdict::kGood: break;
      case RowVerdict::kMissing: result_.missing_shards |= bit; return;
      case RowVerdict::kDamaged:
        result_.damaged_shards |= bit;
        io_.hedge.damaged(read_.group[static_cast<size_t>(arrived.shard)]);
        return;
      case RowVerdict::kLayout: return finish(StoreMiss::kLayout);
      case RowVerdict::kTenant: return finish(StoreMiss::kTenant);
      case RowVerdict::kOtherBlocks: return finish(StoreMiss::kNeverStored);  // two keys with one fingerprint
    }
    row.buffer = std::move(arrived.reply.buffer);
    rows_.emplace_back(arrived.shard, std::move(row));
    if (num_good() == io_.code.num_data_shards()) decode();
  }

  void decode() {
    std::sort(rows_.begin(), rows_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const int k = io_.code.num_data_shards();
    const int64_t part = part_bytes_of(read_.record.block_bytes, k);
    uint32_t present = 0;
    std::vector<const uint8_t*> sources;
    for (const auto& [shard, row] : rows_) {
      present |= 1u << shard;
      sources.push_back(row.buffer.data() + kPageBytes);
    }
    for (const auto& [shard, row] : rows_)
      if (shard < k) scatter(shard, row.buffer.data() + kPageBytes, part);
    std::vector<int> missing;
    for (int shard = 0; shard < k; ++shard)
      if (!(present >> shard & 1)) missing.push_back(shard);
    if (!missing.empty()) rebuild(present, sources, missing, part);
    check_blocks();
  }

  void rebuild(uint32_t present, std::span<const uint8_t* const> sources, std::span<const int> missing, int64_t part) {
    const int64_t bytes = num_usable_ * part;
    PageBuffer scratch = PageBuffer::of(static_cast<int64_t>(missing.size()) * bytes);
    std::vector<uint8_t*> out;
    for (size_t i = 0; i < missing.size(); ++i) out.push_back(scratch.data() + static_cast<int64_t>(i) * bytes);
    io_.code.rebuild(present, sources, missing.front(), out, bytes);  // two stand side by side among the missing
    for (size_t i = 0; i < missing.size(); ++i) scatter(missing[i], out[i], part);
  }

  void scatter(int shard, const uint8_t* parts, int64_t part) {
    const int64_t block = read_.record.block_bytes, begin = std::min(block, shard * part);
    const size_t n = static_cast<size_t>(std::min(part, block - begin));
    for (int64_t b = 0; b < num_usable_ && n > 0; ++b)
      std::memcpy(read_.out.data() + b * block + begin, parts + b * part, n);
  }

  // The whole block against its own checksum: also finds what memory or the decoder did.
  void check_blocks() {
    const RowHeader& header = rows_.front().second.header;
    const size_t block = read_.record.block_bytes;
    for (int64_t b = 0; b < num_usable_; ++b) {
      if (bulk_crc32c(read_.out.subspan(static_cast<size_t>(b) * block, block)) ==
          header.blocks[static_cast<size_t>(b)].block_crc)
        continue;
      result_.num_blocks = b;
      return finish(StoreMiss::kChecksum);
    }
    result_.num_blocks = num_usable_;
    io_.hedge.read_took(io_.clock.monotonic_ns() - begin_ns_);
    finish(num_usable_ < read_.num_blocks() ? StoreMiss::kNeverStored : StoreMiss::kNone);
  }

  void finish_short() { finish(result_.damaged_shards ? StoreMiss::kChecksum : StoreMiss::kNodeLost); }

  void finish(StoreMiss reason) {
    done_ = true;
    result_.reason = reason;
    if (!rows_.empty()) result_.header = std::move(rows_.front().second.header);
    rows_.clear();
    for (size_t shard = 0; shard < operations_.size(); ++shard)
      if (outstanding_ >> shard & 1) io_.devices[static_cast<size_t>(read_.group[shard])]->cancel(operations_[shard]);
  }

  const ExtentDevices& io_;
  const ExtentRead& read_;
  size_t number_;
  ReadPlan plan_;
  int64_t begin_ns_ = 0, num_usable_ = 0;
  uint32_t outstanding_ = 0;
  std::vector<DeviceOperation> operations_;
  std::vector<std::pair<int, GoodRow>> rows_;
  ExtentReadResult result_;
  bool hedge_decided_ = false, done_ = false;
};

}  // namespace

bool row_is_whole(const ErasureCode& code, const ExtentRecord& record, int shard, const PageBuffer& row) {
  const auto header = decode_row_header(row.bytes(0, kPageBytes));
  if (!header.ok() || header.value().shard != shard || record_of(header.value()) != record) return false;
  const int64_t part = part_bytes_of(record.block_bytes, code.num_data_shards());
  for (int64_t b = 0; b < record.num_blocks; ++b)
    if (bulk_crc32c(row.bytes(kPageBytes + b * part, part)) != header.value().blocks[static_cast<size_t>(b)].part_crc)
      return false;
  return true;
}

std::vector<ExtentReadResult> read_extents(const ExtentDevices& io, std::span<const ExtentRead> reads) {
  const auto box = std::make_shared<ReplyBox>();
  std::vector<std::unique_ptr<Reading>> readings(reads.size());
  std::vector<ExtentReadResult> results(reads.size());
  size_t num_started = 0, num_done = 0;
  while (num_done < reads.size()) {
    while (num_started < reads.size() && num_started - num_done < static_cast<size_t>(io.extents_in_flight_max)) {
      const ExtentRead& read = reads[num_started];
      CHECK(read.num_blocks() >= 1 && read.num_blocks() <= read.record.num_blocks &&
            static_cast<int64_t>(read.out.size()) == read.num_blocks() * read.record.block_bytes);
      readings[num_started] = std::make_unique<Reading>(io, read, num_started);
      readings[num_started]->start(box);
      ++num_started;
    }
    int64_t deadline_ns = INT64_MAX;
    for (size_t i = 0; i < num_started; ++i)
      if (readings[i] && !readings[i]->done()) deadline_ns = std::min(deadline_ns, readings[i]->next_deadline_ns());
    const int64_t wait_ns = deadline_ns == INT64_MAX ? 0 : std::max<int64_t>(deadline_ns - io.clock.monotonic_ns(), 1);
    for (ArrivedReply& arrived : box->take(wait_ns)) {
      const size_t number = arrived.number;
      if (readings[number]) readings[number]->take(std::move(arrived), box);
    }
    const int64_t now_ns = io.clock.monotonic_ns();
    for (size_t i = 0; i < num_started; ++i) {
      if (!readings[i]) continue;
      readings[i]->check_time(now_ns, box);
      if (!readings[i]->done()) continue;
      results[i] = readings[i]->take_result();
      readings[i].reset();
      ++num_done;
    }
  }
  box->close();
  return results;
}

}  // namespace deepinfer
