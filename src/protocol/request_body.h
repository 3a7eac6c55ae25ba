// SPDX-License-Identifier: MIT
// Steps every decoder shares: bytes -> checked JSON, the model's name, typed access to checked fields, and message
// content put together from blocks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "chat/chat_request.h"
#include "protocol/decode_options.h"
#include "protocol/request_error.h"
#include "protocol/shape.h"

namespace deepinfer {

// Parses and checks the shape. Repeated keys: the last value wins.
Refusal read_body(std::string_view body, const Shape& shape, const DecodeOptions& options, Json& out);

Refusal choose_model(const Json& request, const DecodeOptions& options, ChatRequest& chat);

// Members of an object that passed its shape; absent and null are the same.
const Json* member(const Json& object, std::string_view key);
Json* member(Json& object, std::string_view key);
std::optional<float> float_member(const Json& object, std::string_view key);
std::optional<uint64_t> unsigned_member(const Json& object, std::string_view key);
bool flag_member(const Json& object, std::string_view key);  // absent: false
std::string take_text(Json& object, std::string_view key);   // absent: ""
std::optional<std::string> take_optional_text(Json& object, std::string_view key);

// Content from parts: texts and images are joined by blank lines.
class ContentJoiner {
 public:
  void add_text(std::string_view text);
  void add_image(ImageSource image);
  MessageContent take() { return std::move(content_); }
  bool empty() const { return !started_; }

 private:
  void separate();
  MessageContent content_;
  bool started_ = false;
};

// Appends `more` to `content`: `separator` stands between.
void append_content(MessageContent& content, std::string_view separator, MessageContent more);

// A client's billing line at the head of a system text is not for the model: what follows its line end, or its first
// "You are", is. Source: chat.md 3.2.
void drop_billing_header(MessageContent& content);

inline constexpr const char* kBillingHeader = "x-anthropic-billing-header";
inline constexpr const char* kUnsupportedImage = "[Unsupported Image]";

}  // namespace deepinfer
