// SPDX-License-Identifier: MIT
#include "tensor/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "tensor/bfloat16.h"

namespace deepinfer {
namespace {

constexpr uint64_t kLengthBytes = 8;

std::string number(uint64_t n) { return std::to_string(n); }

// False when the product of `shape` and the element size leaves 63 bits.
bool shape_bytes(const TensorInfo& tensor, uint64_t& bytes) {
  uint64_t elements = 1;
  for (const int64_t n : tensor.shape)
    if (__builtin_mul_overflow(elements, static_cast<uint64_t>(n), &elements)) return false;
  return !__builtin_mul_overflow(elements, size_bytes(tensor.dtype), &bytes) && bytes <= INT64_MAX;
}

Status read_shape(const Json* shape, const SafetensorsLimits& limits, std::vector<int64_t>& out) {
  if (!shape || !shape->is_array()) return corruption("\"shape\" is missing or not an array");
  if (shape->as_array().size() > limits.rank_max)
    return corruption("rank " + number(shape->as_array().size()) + ", at most " + number(limits.rank_max) +
                      " expected");
  for (const Json& n : shape->as_array()) {
    if (n.kind() != Json::Kind::kInt || n.as_int() < 0) return corruption("\"shape\" holds something that is no size");
    out.push_back(n.as_int());
  }
  return {};
}

Status read_offsets(const Json* offsets, TensorInfo& out) {
  const bool sound = offsets && offsets->is_array() && offsets->as_array().size() == 2 &&
                     std::ranges::all_of(offsets->as_array(),
                                         [](const Json& n) { return n.kind() == Json::Kind::kInt && n.as_int() >= 0; });
  if (!sound) return corruption("\"data_offsets\" is not a pair of byte offsets");
  out.begin = offsets->as_array()[0].as_uint();
  out.end = offsets->as_array()[1].as_uint();
  if (out.begin > out.end)
    return corruption("data_offsets begin at " + number(out.begin) + " and end before it, at " + number(out.end));
  return {};
}

Status read_tensor(const Json::Member& member, uint64_t data_bytes, const SafetensorsLimits& limits, TensorInfo& out) {
  out.name = member.first;
  const Json* dtype = member.second.find("dtype");
  if (!dtype || !dtype->is_string()) return corruption("\"dtype\" is missing or no string");
  const std::optional<DType> known = parse_dtype(dtype->as_string());
  if (!known) return corruption("unknown dtype \"" + dtype->as_string().substr(0, 32) + "\"");
  out.dtype = *known;
  TRY(read_shape(member.second.find("shape"), limits, out.shape));
  TRY(read_offsets(member.second.find("data_offsets"), out));
  uint64_t bytes = 0;
  if (!shape_bytes(out, bytes)) return corruption("shape " + shape_to_string(out.shape) + " is beyond 2^63 bytes");
  if (bytes != out.size_bytes())
    return corruption(std::string(to_string(out.dtype)) + " " + shape_to_string(out.shape) + " takes " + number(bytes) +
                      " bytes, data_offsets span " + number(out.size_bytes()));
  if (out.end > data_bytes)
    return corruption("data ends at byte " + number(out.end) + " of the data section, the file has " +
                      number(data_bytes) + " (truncated?)");
  return {};
}

// The format wants the data packed: in order of their data, each tensor begins where the one before it ends.
Status check_packing(const std::vector<TensorInfo>& tensors, uint64_t data_bytes) {
  uint64_t end = 0;
  const std::string* previous = nullptr;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin < end)
      return corruption("tensor " + tensor.name + " begins at byte " + number(tensor.begin) + " and overlaps " +
                        *previous + ", which ends at " + number(end));
    if (tensor.begin > end)
      return corruption("bytes " + number(end) + " to " + number(tensor.begin) + ", before tensor " + tensor.name +
                        ", belong to no tensor");
    end = tensor.end;
    previous = &tensor.name;
  }
  if (end != data_bytes)
    return corruption("the tensors end at byte " + number(end) + " of the data section, the file has " +
                      number(data_bytes));
  return {};
}

Result<std::string_view> header_text(std::span<const uint8_t> bytes, uint64_t file_bytes,
                                     const SafetensorsLimits& limits) {
  if (file_bytes < kLengthBytes || bytes.size() < kLengthBytes)
    return corruption("no safetensors file: " + number(file_bytes) + " bytes, at least 8 expected");
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | bytes[static_cast<size_t>(i)];
  if (length > limits.header_bytes_max)
    return corruption("header length " + number(length) + ", at most " + number(limits.header_bytes_max) + " accepted");
  if (length > file_bytes - kLengthBytes || length > bytes.size() - kLengthBytes)
    return corruption("header length " + number(length) + ", but the file has " + number(file_bytes) +
                      " bytes (truncated?)");
  return std::string_view(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
}

Status check_metadata(const Json& metadata) {
  if (!metadata.is_object()) return corruption("header: __metadata__ is no object");
  for (const Json::Member& member : metadata.as_object())
    if (!member.second.is_string()) return corruption("header: __metadata__." + member.first + " is no string");
  return {};
}

}  // namespace

int64_t TensorInfo::num_elements() const {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

std::string shape_to_string(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

Result<SafetensorsHeader> parse_safetensors_header(std::span<const uint8_t> bytes, uint64_t file_bytes,
                                                   const SafetensorsLimits& limits) {
  ASSIGN_OR_RETURN(const std::string_view text, header_text(bytes, file_bytes, limits));
  if (text.empty() || text[0] != '{') return corruption("header: a JSON object is expected to begin at byte 8");
  Result<Json> json = parse_json(text, {.bytes_max = limits.header_bytes_max, .depth_max = 8});
  if (!json.ok()) return corruption("header: " + json.status().message());
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + text.size();
  const uint64_t data_bytes = file_bytes - header.data_begin;
  header.tensors.reserve(json->as_object().size());
  for (const Json::Member& member : json->as_object()) {
    if (member.first == "__metadata__") {
      TRY(check_metadata(member.second));
      continue;
    }
    TensorInfo tensor;
    TRY(read_tensor(member, data_bytes, limits, tensor).prefixed("tensor " + member.first));
    header.tensors.push_back(std::move(tensor));
  }
  std::ranges::stable_sort(header.tensors, {}, [](const TensorInfo& t) { return std::pair(t.begin, t.end); });
  TRY(check_packing(header.tensors, data_bytes));
  return header;
}

// ---- small files read whole

Result<SafetensorsFile> SafetensorsFile::read(const std::string& path) {
  ASSIGN_OR_RETURN(std::string bytes, read_file(path));
  Result<SafetensorsFile> file = parse(std::move(bytes));
  if (!file.ok()) return file.status().prefixed(path);
  return file;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::string bytes) {
  SafetensorsFile file;
  file.bytes_ = std::move(bytes);
  const std::span<const uint8_t> view(reinterpret_cast<const uint8_t*>(file.bytes_.data()), file.bytes_.size());
  ASSIGN_OR_RETURN(file.header_, parse_safetensors_header(view, view.size()));
  for (size_t i = 0; i < file.header_.tensors.size(); ++i) file.by_name_.emplace(file.header_.tensors[i].name, i);
  return file;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &header_.tensors[at->second];
}

std::span<const uint8_t> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  return {reinterpret_cast<const uint8_t*>(bytes_.data()) + header_.data_begin + tensor.begin, tensor.size_bytes()};
}

namespace {

// Elements of unaligned little-endian bytes, each converted by `convert`.
template <typename Stored, typename Out, typename Convert>
std::vector<Out> elements(std::span<const uint8_t> bytes, Convert convert) {
  static_assert(std::endian::native == std::endian::little);
  std::vector<Out> out(bytes.size() / sizeof(Stored));
  for (size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = convert(stored);
  }
  return out;
}

Status wrong_dtype(const TensorInfo& tensor, const char* expected) {
  return invalid_argument("tensor " + tensor.name + ": dtype " + std::string(to_string(tensor.dtype)) + ", expected " +
                          expected);
}

}  // namespace

Result<std::vector<float>> SafetensorsFile::floats(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  if (!tensor) return not_found("no tensor named " + std::string(name));
  switch (tensor->dtype) {
    case DType::kF32: return elements<float, float>(bytes(*tensor), [](float x) { return x; });
    case DType::kBF16: return elements<bf16, float>(bytes(*tensor), [](bf16 x) { return to_float(x); });
    default: return wrong_dtype(*tensor, "F32 or BF16");
  }
}

Result<std::vector<int64_t>> SafetensorsFile::integers(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  if (!tensor) return not_found("no tensor named " + std::string(name));
  const auto widen = [](auto x) { return static_cast<int64_t>(x); };
  switch (tensor->dtype) {
    case DType::kI64: return elements<int64_t, int64_t>(bytes(*tensor), widen);
    case DType::kI32: return elements<int32_t, int64_t>(bytes(*tensor), widen);
    case DType::kU8: return elements<uint8_t, int64_t>(bytes(*tensor), widen);
    default: return wrong_dtype(*tensor, "I64, I32 or U8");
  }
}

// ---- writing

void SafetensorsWriter::add(std::string name, DType dtype, std::vector<int64_t> shape, std::span<const uint8_t> bytes) {
  TensorInfo tensor{std::move(name), dtype, std::move(shape), data_.size(), data_.size() + bytes.size()};
  CHECK(static_cast<uint64_t>(tensor.num_elements()) * size_bytes(dtype) == bytes.size());
  CHECK(std::ranges::none_of(tensors_, [&](const TensorInfo& other) { return other.name == tensor.name; }));
  data_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  tensors_.push_back(std::move(tensor));
}

void SafetensorsWriter::add(std::string name, std::vector<int64_t> shape, std::span<const float> values) {
  add(std::move(name), DType::kF32, std::move(shape),
      {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
}

void SafetensorsWriter::add(std::string name, std::vector<int64_t> shape, std::span<const int32_t> values) {
  add(std::move(name), DType::kI32, std::move(shape),
      {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
}

std::string SafetensorsWriter::to_bytes() const {
  Json::Object members;
  for (const TensorInfo& tensor : tensors_) {
    Json::Array shape;
    for (const int64_t n : tensor.shape) shape.emplace_back(n);
    members.emplace_back(tensor.name, Json::Object{{"dtype", to_string(tensor.dtype)},
                                                   {"shape", std::move(shape)},
                                                   {"data_offsets", Json::Array{tensor.begin, tensor.end}}});
  }
  std::string header = to_json(Json(std::move(members)));
  header.append((kLengthBytes - header.size() % kLengthBytes) % kLengthBytes, ' ');
  std::string out;
  for (uint64_t length = header.size(), i = 0; i < kLengthBytes; ++i, length >>= 8)
    out.push_back(static_cast<char>(length & 0xFF));
  return out + header + data_;
}

Status SafetensorsWriter::write(const std::string& path) const { return write_file_atomically(path, to_bytes()); }

}  // namespace deepinfer
