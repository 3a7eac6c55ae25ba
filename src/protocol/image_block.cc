// SPDX-License-Identifier: MIT
#include "protocol/image_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "protocol/data_url.h"

namespace deepinfer {

namespace {

constexpr size_t kLinkBytesMax = 8192;
constexpr const char* kFileIdUnsupported = "file_id is not supported. Pass the image as a base64 data url instead.";

bool is_link(std::string_view value) {
  constexpr std::string_view kScheme = "http";
  if (value.size() < kScheme.size()) return false;
  for (size_t i = 0; i < kScheme.size(); ++i)
    if ((value[i] | 32) != kScheme[i]) return false;
  return true;
}

std::string too_long(size_t length) {
  return fmt::format(
      "external link length {} too long, max link length {}. Consider passing file data directly with base64 data url "
      "instead.",
      length, kLinkBytesMax);
}

std::string unsupported(std::string_view what) {
  return fmt::format(
      "You have uploaded an unsupported {0}. Please make sure your {0} is valid and has one of the following formats: "
      "webp, png, jpeg, and gif.",
      what);
}

bool is_supported(const DataUrl& url) {
  static constexpr std::string_view kSubtypes[] = {"jpeg", "jpg", "png", "gif", "webp"};
  return url.type == "image" &&
         std::find(std::begin(kSubtypes), std::end(kSubtypes), url.subtype) != std::end(kSubtypes);
}

ImageSource::Detail detail_of(const Json* detail) {
  if (!detail || !detail->is_string()) return ImageSource::Detail::kHigh;
  const std::string& word = detail->as_string();
  if (word == "low") return ImageSource::Detail::kLow;
  if (word == "original") return ImageSource::Detail::kOriginal;
  return word == "auto" ? ImageSource::Detail::kAuto : ImageSource::Detail::kHigh;
}

bool is_unprintable(char32_t c) {
  static constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0, 0x1F},        {0x7F, 0x9F},     {0xAD, 0xAD},     {0x300, 0x36F},   {0x200B, 0x200F},   {0x2028, 0x202E},
      {0x2060, 0x206F}, {0xE000, 0xF8FF}, {0xFE00, 0xFE0F}, {0xFEFF, 0xFEFF}, {0xE0000, 0x10FFFF}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [&](const auto& range) { return c >= range.first && c <= range.second; });
}

// In quotation marks, what cannot be seen escaped.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    const std::string_view bytes = text.substr(0, std::max<size_t>(1, point.num_bytes));
    text.remove_prefix(bytes.size());
    if (bytes == "\"" || bytes == "\\") out.append("\\").append(bytes);
    else if (bytes == "\n") out += "\\n";
    else if (bytes == "\r") out += "\\r";
    else if (bytes == "\t") out += "\\t";
    else if (point.value == 0) out += "\\0";
    else if (is_unprintable(point.value)) out += fmt::format("\\u{{{:x}}}", static_cast<uint32_t>(point.value));
    else out.append(bytes);
  }
  return out + "\"";
}

const Json* present(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value && !value->is_null() ? value : nullptr;
}

Refusal check_link(std::string_view value, const std::string& path, const std::string& start) {
  if (!is_link(value) || value.size() <= kLinkBytesMax) return {};
  return refuse(start + too_long(value.size()), path);
}

// Link or data URL.
Refusal read_address(std::string value, const std::string& path, ImageSource& out) {
  out.path = path;
  if (is_link(value)) {
    out.kind = ImageSource::Kind::kUrl;
  } else {
    const auto url = parse_data_url(value);
    if (!url || value.find("base64,") == std::string::npos)
      return refuse(path + ": Unsupported image_url format", path);
    if (!is_supported(*url)) return refuse(path + ": " + unsupported("image"), path);
    if (!data_url_bytes(*url)) return refuse(path + ": Invalid base64 data", path);
    out.kind = ImageSource::Kind::kDataUrl;
  }
  out.value = std::move(value);
  return {};
}

}  // namespace

Refusal check_image_url(const Json& block, const std::string& path, size_t block_idx) {
  return check_link(block.find("image_url")->find("url")->as_string(), path,
                    fmt::format("{}.image_url.url[{}]: image_url.url ", path, block_idx));
}

Refusal read_image_address(std::string address, const Json* detail, const std::string& path, ImageSource& out) {
  out.detail = detail_of(detail);
  return read_address(std::move(address), path, out);
}

Refusal take_file(Json& block, const std::string& path, std::string& address) {
  const bool has_id = present(block, "file_id"), has_data = present(block, "file_data");
  if (!has_id && !has_data) return refuse(path + ": file must have a file_id or file_data", path);
  if (has_id && has_data) return refuse(path + ": file cannot have both file_id and file_data", path);
  if (has_id && present(block, "filename"))
    return refuse(path + ": file cannot have filename when file_id is present", path);
  if (has_id) return refuse(path + ": " + kFileIdUnsupported, path);
  std::string& data = block.find("file_data")->as_string();
  const auto url = parse_data_url(data);
  if (!url) return refuse(path + ": file_data is not a valid base64 data url", path);
  if (!is_supported(*url)) return refuse(path + ": " + unsupported("file"), path);
  if (!data_url_bytes(*url)) return refuse(path + ": file_data is not a valid base64 data url", path);
  address = std::move(data);
  return {};
}

Refusal check_input_image(const Json& block, const std::string& block_path) {
  const Json* address = present(block, "image_url");
  if (address && address->as_string().empty()) address = nullptr;
  const bool has_id = present(block, "file_id");
  if (!address && !has_id) return refuse(block_path + ": input_image must have image_url or file_id", block_path);
  if (address && has_id) return refuse(block_path + ": input_image cannot have both image_url and file_id", block_path);
  if (has_id) return refuse(block_path + ": " + kFileIdUnsupported, block_path);
  return check_link(address->as_string(), block_path, block_path + ": image_url ");
}

Refusal read_input_image(Json& block, const std::string& path, ImageSource& out) {
  out.detail = detail_of(block.find("detail"));
  return read_address(std::move(block.find("image_url")->as_string()), path, out);
}

Refusal read_image(Json& block, const std::string& path, const std::string& block_path, ImageSource& out) {
  Json& source = *block.find("source");
  const std::string& type = source.find("type")->as_string();
  out.path = path;
  if (type == "file") return refuse(block_path + ": " + kFileIdUnsupported, block_path);
  if (type == "url") {
    std::string& url = source.find("url")->as_string();
    if (!is_link(url)) return refuse(fmt::format("{}: invalid url: {}", block_path, quoted(url)), block_path);
    if (url.size() > kLinkBytesMax) return refuse(block_path + ": " + too_long(url.size()), block_path);
    out.kind = ImageSource::Kind::kUrl;
    out.value = std::move(url);
    return {};
  }
  std::string& data = source.find("data")->as_string();
  if (data.ends_with('=')) {  // any padding is taken for the right one
    data.erase(data.find_last_not_of('=') + 1);
    data.append((4 - data.size() % 4) % 4, '=');
  }
  if (!is_strict_base64(data)) return refuse(block_path + ": base64 decode error", block_path);
  const std::string& media = source.find("media_type")->as_string();
  out.kind = ImageSource::Kind::kDataUrl;
  out.value = fmt::format("data:{};base64,", media == "image/jpg" ? "image/jpeg" : media) + data;
  return {};
}

Refusal check_image_limits(const std::vector<Message>& messages, const RequestLimits& limits) {
  constexpr size_t kMegabyte = size_t{1} << 20;
  size_t num_images = 0, num_bytes = 0;
  for (const Message& message : messages)
    for (const ImageSource& image : message.content.images) {
      if (++num_images > limits.images_max)
        return refuse(
            fmt::format("{}: Too many images: max {} images per request, got more", image.path, limits.images_max),
            image.path);
      if (image.kind == ImageSource::Kind::kUrl) continue;
      // Base64 in a data URL: three quarters of the characters, exact enough for a limit and free of a second decoding.
      const size_t size = image.kind == ImageSource::Kind::kBytes ? image.value.size() : image.value.size() / 4 * 3;
      if (size > limits.image_bytes_max)
        return refuse(
            fmt::format("{}: image file size exceeds limit {} MB", image.path, limits.image_bytes_max / kMegabyte),
            image.path);
      if ((num_bytes += size) > limits.images_total_bytes_max)
        return refuse(fmt::format("{}: Total image size exceeds the limit: max {} MB per request, got more", image.path,
                                  limits.images_total_bytes_max / kMegabyte),
                      image.path);
    }
  return {};
}

}  // namespace deepinfer
