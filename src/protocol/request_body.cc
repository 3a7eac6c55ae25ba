// SPDX-License-Identifier: MIT
#include "protocol/request_body.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/utf8.h"

namespace deepinfer {

Refusal read_body(std::string_view body, const Shape& shape, const DecodeOptions& options, Json& out) {
  RequestError error;
  error.stage = RequestError::Stage::kParse;
  error.exact = false;
  if (body.size() > options.limits.body_bytes_max) {
    error.http_status = 413;
    error.message = fmt::format("The request body has {} bytes, at most {} are accepted", body.size(),
                                options.limits.body_bytes_max);
    return error;
  }
  JsonLimits limits;
  limits.bytes_max = options.limits.body_bytes_max;
  limits.depth_max = options.limits.depth_max;
  limits.refuse_duplicate_keys = false;
  limits.wide_integers = true;
  Result<Json> parsed = parse_json(body, limits);
  if (!parsed.ok()) {
    error.message = "invalid JSON request: " + parsed.status().message();
    return error;
  }
  out = std::move(parsed).value();
  return shape.check(out);
}

Refusal choose_model(const Json& request, const DecodeOptions& options, ChatRequest& chat) {
  chat.model = request.find("model")->as_string();
  const auto found = options.models.find(chat.model);
  if (found == options.models.end()) {
    std::vector<std::string_view> names;
    for (const auto& [name, version] : options.models) names.push_back(name);
    return refuse(
        fmt::format("The supported API model names are {}, but you passed {}.", fmt::join(names, ", "), chat.model),
        "model");
  }
  chat.version = found->second;
  return {};
}

const Json* member(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value && !value->is_null() ? value : nullptr;
}
Json* member(Json& object, std::string_view key) { return const_cast<Json*>(member(std::as_const(object), key)); }

std::optional<float> float_member(const Json& object, std::string_view key) {
  const Json* value = member(object, key);
  return value ? std::optional<float>(static_cast<float>(value->as_double())) : std::nullopt;
}

std::optional<uint64_t> unsigned_member(const Json& object, std::string_view key) {
  const Json* value = member(object, key);
  return value ? std::optional<uint64_t>(value->as_uint()) : std::nullopt;
}

bool flag_member(const Json& object, std::string_view key) {
  const Json* value = member(object, key);
  return value && value->as_bool();
}

std::string take_text(Json& object, std::string_view key) {
  Json* value = member(object, key);
  return value ? std::move(value->as_string()) : std::string();
}

std::optional<std::string> take_optional_text(Json& object, std::string_view key) {
  Json* value = member(object, key);
  return value ? std::optional<std::string>(std::move(value->as_string())) : std::nullopt;
}

void ContentJoiner::separate() {
  if (started_) content_.text += "\n\n";
  started_ = true;
}

void ContentJoiner::add_text(std::string_view text) {
  separate();
  content_.text += text;
}

void ContentJoiner::add_image(ImageSource image) {
  separate();
  content_.image_offsets.push_back(content_.text.size());
  content_.images.push_back(std::move(image));
}

void append_content(MessageContent& content, std::string_view separator, MessageContent more) {
  content.text += separator;
  const size_t offset = content.text.size();
  content.text += more.text;
  for (const size_t at : more.image_offsets) content.image_offsets.push_back(offset + at);
  for (ImageSource& image : more.images) content.images.push_back(std::move(image));
}

namespace {

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace

void drop_billing_header(MessageContent& content) {
  std::string& text = content.text;
  if (!text.starts_with(kBillingHeader)) return;
  const size_t line_end = text.find('\n'), greeting = text.find("You are");
  size_t begin = std::min(line_end == std::string::npos ? line_end : line_end + 1, greeting);
  if (begin == std::string::npos) {
    text.clear();
    return;
  }
  // Images stand behind the header's line end; white space before the first of them goes, what follows it stays.
  const size_t first_image = content.image_offsets.empty() ? text.size() : content.image_offsets[0];
  while (begin < first_image) {
    const CodePoint point = decode_utf8(std::string_view(text).substr(begin));
    if (point.num_bytes == 0 || !is_white_space(point.value)) break;
    begin += point.num_bytes;
  }
  text.erase(0, begin);
  for (size_t& offset : content.image_offsets) offset -= begin;
}

}  // namespace deepinfer
