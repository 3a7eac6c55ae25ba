// SPDX-License-Identifier: MIT
#include "model/convert.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "model/memory_plan.h"
#include "model/weight_table.h"
#include "tensor/plane_layout.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceBytes = int64_t{16} << 20;
constexpr size_t kComparedBytes = size_t{64} << 10;  // of a tensor written before that is not turned
constexpr size_t kCopiedBytesMax = size_t{256} << 20;
constexpr const char* kIndex = "model.safetensors.index.json";
// What may lie beside the shards; config.json is copied last.
constexpr const char* kBeside[] = {"tokenizer.json",
                                   "tokenizer_config.json",
                                   "generation_config.json",
                                   "card.json",
                                   "chat_template.jinja",
                                   "special_tokens_map.json",
                                   "LICENSE",
                                   "README.md",
                                   "inference/config.json",
                                   "config.json"};

// The rows of a checkpoint by the name that their tensor has in it.
class TensorRows {
 public:
  explicit TensorRows(const Checkpoint& checkpoint) : table_(declare_weights(checkpoint.config(), views_)) {
    for (const WeightRow& row : table_)
      if (const StoredTensor* stored = find_stored(checkpoint, row)) rows_.emplace(stored->info.name, &row);
  }
  const std::vector<WeightRow>& table() const { return table_; }
  const WeightRow& of(const StoredTensor& tensor) const { return *rows_.at(tensor.info.name); }

 private:
  WeightViews views_;
  std::vector<WeightRow> table_;
  std::unordered_map<std::string_view, const WeightRow*> rows_;
};

std::string name_in(const WeightRow& row, WeightLayout layout) {
  return row.name + (row.layout && layout == WeightLayout::kPlanes ? std::string(kPlanesSuffix) : "");
}

// Group g of a tensor's 32 outputs in the other layout.
void turn(const WeightRow& row, WeightLayout from, const uint8_t* bytes, int64_t g, uint8_t* to) {
  const int64_t out = row.shape[0], columns = row.shape[1];
  if (row.is_scale) turn_group(Fp4Matrix{nullptr, bytes, out, columns * kScaleBlock, from}, g, nullptr, to);
  else if (row.dtype == DType::kI8) turn_group(Fp4Matrix{bytes, nullptr, out, columns * 2, from}, g, to, nullptr);
  else turn_group(Fp8Matrix{bytes, nullptr, out, columns, from}, g, to);
}

using Sink = std::function<Status(std::span<const uint8_t>)>;

// The bytes of a tensor in `layout`, piece by piece in their order.
Status each_piece(const Checkpoint& checkpoint, const StoredTensor& tensor, const WeightRow& row, WeightLayout layout,
                  ThreadPool& pool, const Sink& sink) {
  const std::span<const uint8_t> bytes = checkpoint.bytes(tensor);
  const WeightLayout from = stored_layout(tensor, row);
  const auto size = static_cast<int64_t>(bytes.size());
  if (!row.layout || from == layout) {
    for (int64_t begin = 0; begin < size; begin += kPieceBytes)
      TRY(sink(bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(std::min(kPieceBytes, size - begin)))));
    return {};
  }
  const int64_t num_groups = row.shape[0] / kScaleBlock, group_bytes = size / num_groups,
                at_once = std::clamp<int64_t>(kPieceBytes / group_bytes, 1, num_groups);
  Buffer<uint8_t> piece(at_once * group_bytes);
  for (int64_t begin = 0; begin < num_groups; begin += at_once) {
    const int64_t count = std::min(at_once, num_groups - begin);
    pool.parallel_for(count,
                      [&](int64_t g) { turn(row, from, bytes.data(), begin + g, piece.data() + g * group_bytes); });
    TRY(sink({piece.data(), static_cast<size_t>(count * group_bytes)}));
  }
  return {};
}

Json metadata_of(WeightLayout layout) {
  Json::Object members = {{"format", "pt"}};
  if (layout == WeightLayout::kPlanes) {
    members.emplace_back("deepinfer.layout", "planes");
    members.emplace_back("deepinfer.layout_version", "1");
  }
  return Json(std::move(members));
}

// A shard's tensors in the order of their data, under their names in `layout`: sizes and places do not change.
std::string header_of(const std::vector<const StoredTensor*>& tensors, const TensorRows& rows, WeightLayout layout) {
  Json::Object members = {{"__metadata__", metadata_of(layout)}};
  for (const StoredTensor* tensor : tensors) {
    Json::Array shape;
    for (const int64_t n : tensor->info.shape) shape.emplace_back(n);
    members.emplace_back(name_in(rows.of(*tensor), layout),
                         Json::Object{{"dtype", to_string(tensor->info.dtype)},
                                      {"shape", std::move(shape)},
                                      {"data_offsets", Json::Array{tensor->info.begin, tensor->info.end}}});
  }
  std::string text = to_json(Json(std::move(members)));
  text.append((64 - (text.size() + 8) % 64) % 64, ' ');  // tensors of any type are aligned
  std::string header;
  for (uint64_t length = text.size(), i = 0; i < 8; ++i, length >>= 8)
    header.push_back(static_cast<char>(length & 0xFF));
  return header + text;
}

// A file that has its name when it is whole; without keep() nothing of it is left.
class PartialFile {
 public:
  explicit PartialFile(std::string path) : path_(std::move(path)) {
    fd_ = ::open(partial().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  }
  ~PartialFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(partial().c_str());
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  Status write(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = fd_ < 0 ? -1 : ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR && fd_ >= 0) continue;
      if (n < 0) return failed();
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return {};
  }
  Status keep() {
    if (fd_ < 0 || ::fsync(fd_) != 0) return failed();
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0 || ::rename(partial().c_str(), path_.c_str()) != 0) return failed();
    return {};
  }

 private:
  std::string partial() const { return path_ + ".partial"; }
  Status failed() const { return unavailable(path_ + ": " + std::strerror(errno)); }
  std::string path_;
  int fd_ = -1;
};

struct Conversion {
  const Checkpoint& from;
  const TensorRows& rows;
  std::string folder;
  WeightLayout layout;
  ThreadPool& pool;
  const ConvertProgress& progress;
  uint64_t bytes_done = 0;
  size_t num_whole = 0;  // shards

  std::string path(const std::string& name) const { return folder + "/" + name; }
};

Status stopped(const Conversion& c) {
  return resource_exhausted("stopped: " + std::to_string(c.num_whole) + " of " +
                            std::to_string(c.from.shard_files().size()) + " shards are whole in " + c.folder +
                            "; the same command again goes on behind them");
}

// Whether a tensor that stands in a file begins as it would be written.
bool begins_alike(const Conversion& c, const StoredTensor& tensor, const uint8_t* written) {
  const WeightRow& row = c.rows.of(tensor);
  const std::span<const uint8_t> bytes = c.from.bytes(tensor);
  const WeightLayout from = stored_layout(tensor, row);
  if (!row.layout || from == c.layout)
    return std::memcmp(written, bytes.data(), std::min(bytes.size(), kComparedBytes)) == 0;
  Buffer<uint8_t> group(static_cast<int64_t>(bytes.size()) / (row.shape[0] / kScaleBlock));
  turn(row, from, bytes.data(), 0, group.data());
  return std::memcmp(written, group.data(), static_cast<size_t>(group.size_bytes())) == 0;
}

// Whether an earlier call wrote this shard: whole, since it has its name, from the same header and, as far as the
// beginnings of its tensors tell, from the same checkpoint (another of the same model has the same header).
bool is_written(const Conversion& c, const std::string& path, const std::string& header,
                const std::vector<const StoredTensor*>& tensors, uint64_t data_bytes) {
  std::error_code error;
  if (fs::file_size(path, error) != header.size() + data_bytes || error) return false;
  const auto file = MappedFile::open(path);
  if (!file.ok() || std::memcmp(file.value().bytes().data(), header.data(), header.size()) != 0) return false;
  const uint8_t* written = file.value().bytes().data() + header.size();
  return std::ranges::all_of(tensors, [&](const StoredTensor* tensor) {
    const uint8_t* begin = std::exchange(written, written + tensor->info.size_bytes());
    return begins_alike(c, *tensor, begin);
  });
}

Status write_shard(Conversion& c, const std::string& name, const std::vector<const StoredTensor*>& tensors) {
  const std::string header = header_of(tensors, c.rows, c.layout);
  uint64_t data_bytes = 0;
  for (const StoredTensor* tensor : tensors) data_bytes += tensor->info.size_bytes();
  if (is_written(c, c.path(name), header, tensors, data_bytes)) {
    c.bytes_done += data_bytes;
    ++c.num_whole;
    return c.progress(c.bytes_done) ? Status() : stopped(c);
  }
  PartialFile file(c.path(name));
  TRY(file.write({reinterpret_cast<const uint8_t*>(header.data()), header.size()}));
  for (const StoredTensor* tensor : tensors)
    TRY(each_piece(c.from, *tensor, c.rows.of(*tensor), c.layout, c.pool, [&](std::span<const uint8_t> piece) {
      TRY(file.write(piece));
      c.bytes_done += piece.size();
      return c.progress(c.bytes_done) ? Status() : stopped(c);
    }));
  TRY(file.keep());
  ++c.num_whole;
  return {};
}

Status write_index(const Conversion& c) {
  Json::Object map, metadata = metadata_of(c.layout).as_object();
  metadata.emplace_back("total_size", c.from.payload_bytes());
  for (const StoredTensor& tensor : c.from.tensors())
    map.emplace_back(name_in(c.rows.of(tensor), c.layout), c.from.shard_files()[tensor.shard]);
  return write_file_atomically(
      c.path(kIndex), to_json(Json(Json::Object{{"metadata", std::move(metadata)}, {"weight_map", std::move(map)}})));
}

Status copy_beside(const Conversion& c) {
  for (const char* name : kBeside) {
    if (!c.from.files().contains(name)) continue;
    ASSIGN_OR_RETURN(const std::string text, c.from.files().text(name, kCopiedBytesMax));
    std::error_code error;
    fs::create_directories(fs::path(c.path(name)).parent_path(), error);
    TRY(write_file_atomically(c.path(name), text));
  }
  return {};
}

Status check_sound(const TensorRows& rows, const Checkpoint& checkpoint) {
  const std::vector<std::string> problems = check_inventory(rows.table(), checkpoint);
  return problems.empty() ? Status() : corruption(checkpoint.folder() + ": " + problems[0]);
}

// Bytes of the shards that are not there yet.
uint64_t missing_bytes(const Conversion& c) {
  uint64_t bytes = 0;
  std::error_code error;
  for (const StoredTensor& tensor : c.from.tensors())
    if (!fs::exists(c.path(c.from.shard_files()[tensor.shard]), error)) bytes += tensor.info.size_bytes();
  return bytes;
}

}  // namespace

Status check_room(const std::string& folder, uint64_t bytes, uint64_t free_bytes) {
  if (bytes <= free_bytes) return {};
  return resource_exhausted(
      folder + ": " + bytes_to_string(static_cast<int64_t>(bytes)) + " are still to be written and the disk has " +
      bytes_to_string(static_cast<int64_t>(free_bytes)) + " left: make room or choose a folder on another disk");
}

Status convert_checkpoint(const Checkpoint& from, const std::string& folder, WeightLayout layout, ThreadPool& pool,
                          const ConvertProgress& progress) {
  const TensorRows rows(from);
  TRY(check_sound(rows, from));
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return unavailable(folder + ": " + error.message());
  if (fs::exists(folder + "/config.json", error) || fs::exists(folder + "/inference/config.json", error))
    return invalid_argument(folder + ": holds a checkpoint already");
  std::vector<std::vector<const StoredTensor*>> shards(from.shard_files().size());
  for (const StoredTensor& tensor : from.tensors()) shards[tensor.shard].push_back(&tensor);
  Conversion conversion{from, rows, folder, layout, pool, progress};
  const fs::space_info disk = fs::space(folder, error);
  if (!error) TRY(check_room(folder, missing_bytes(conversion), disk.available));
  for (size_t s = 0; s < shards.size(); ++s) TRY(write_shard(conversion, from.shard_files()[s], shards[s]));
  TRY(write_index(conversion));
  return copy_beside(conversion);
}

Status check_layout(const Checkpoint& checkpoint, WeightLayout layout) {
  const auto name_of = [](WeightLayout l) { return std::string(l == WeightLayout::kPlanes ? "planes" : "rows"); };
  const TensorRows rows(checkpoint);
  for (const WeightRow& row : rows.table()) {
    const StoredTensor* stored = row.layout ? find_stored(checkpoint, row) : nullptr;
    if (!stored || stored_layout(*stored, row) == layout) continue;
    return invalid_argument(checkpoint.folder() + ": holds layout " + name_of(stored_layout(*stored, row)) + " (" +
                            stored->info.name + "), asked was " + name_of(layout) +
                            ": give the other --layout or write into another folder");
  }
  return {};
}

Status compare_checkpoints(const Checkpoint& a, const Checkpoint& b, ThreadPool& pool,
                           const ConvertProgress& progress) {
  const TensorRows rows_a(a), rows_b(b);
  TRY(check_sound(rows_a, a));
  TRY(check_sound(rows_b, b));
  if (rows_a.table().size() != rows_b.table().size()) return corruption(b.folder() + ": another model");
  uint64_t bytes_done = 0;
  for (const WeightRow& row : rows_a.table()) {
    const StoredTensor &tensor = *find_stored(a, row), *other = find_stored(b, row);
    if (!other || other->info.shape != tensor.info.shape)
      return corruption(b.folder() + ": no such tensor: " + row.name);
    std::span<const uint8_t> expected = b.bytes(*other);
    TRY(each_piece(a, tensor, row, stored_layout(*other, row), pool, [&](std::span<const uint8_t> piece) -> Status {
      if (std::memcmp(piece.data(), expected.data(), piece.size()) != 0)
        return corruption("tensor " + row.name + " has other values in " + b.folder() + " than in " + a.folder() +
                          ": remove the folder that was written and convert again");
      expected = expected.subspan(piece.size());
      bytes_done += piece.size();
      if (progress(bytes_done)) return {};
      return resource_exhausted("stopped while comparing: " + b.folder() +
                                " stands as it was; the same command with --verify compares again");
    }));
  }
  return {};
}

}  // namespace deepinfer
