// SPDX-License-Identifier: MIT
#include "protocol/response_object.h"

#include "protocol/wire_json.h"

namespace deepinfer {
namespace {

// The request's setting as it was sent, or what an unset one reads as.
void append_setting(std::string& out, const Json& echo, std::string_view key, std::string_view unset) {
  out += ",\"";
  out += key;
  out += "\":";
  if (const Json* value = echo.find(key)) {
    append_json(out, *value);
  } else {
    out += unset;
  }
}

std::string_view status_name(ResponseObject::Status status) {
  switch (status) {
    case ResponseObject::Status::kInProgress: return "in_progress";
    case ResponseObject::Status::kCompleted: return "completed";
    case ResponseObject::Status::kIncomplete: return "incomplete";
    case ResponseObject::Status::kFailed: break;
  }
  return "failed";
}

}  // namespace

ResponseObject::ResponseObject(const ResponseContext& context, const ResponseIdentity& identity)
    : recipe_compatible_(context.recipe_compatible) {
  const Json& echo = context.echo;
  head_ = "{\"id\":";
  append_json_string(head_, identity.id);
  head_ += ",\"object\":\"response\",\"created_at\":";
  append_number(head_, identity.created_s);
  append_setting(settings_, echo, "instructions", "null");
  append_setting(settings_, echo, "max_output_tokens", "null");
  settings_ += ",\"max_tool_calls\":null";
  append_member(settings_, "model", identity.model);
  settings_ += ",\"moderation\":null";
  append_setting(tail_, echo, "parallel_tool_calls", "true");
  tail_ += ",\"presence_penalty\":0.0";
  append_setting(tail_, echo, "previous_response_id", "null");
  append_setting(tail_, echo, "prompt_cache_key", "null");
  tail_ += ",\"prompt_cache_retention\":null";
  append_setting(tail_, echo, "reasoning", "{\"effort\":null,\"summary\":null}");
  append_setting(tail_, echo, "safety_identifier", "null");
  tail_ += ",\"service_tier\":\"default\",\"store\":";
  tail_ += context.stores ? "true" : "false";
  append_setting(tail_, echo, "temperature", "1.0");
  append_setting(tail_, echo, "text", "{\"format\":{\"type\":\"text\"},\"verbosity\":null}");
  append_setting(tail_, echo, "tool_choice", "\"auto\"");
  append_setting(tail_, echo, "tools", "[]");
  append_setting(tail_, echo, "top_logprobs", "0");
  append_setting(tail_, echo, "top_p", "1.0");
  tail_ += ",\"truncation\":\"disabled\"";
  append_setting(end_, echo, "user", "null");
  append_setting(end_, echo, "metadata", "{}");
}

void ResponseObject::append(std::string& out, const State& state) const {
  out += head_;
  append_member(out, "status", status_name(state.status));
  out += ",\"background\":false,\"completed_at\":";
  if (state.status == Status::kCompleted || state.status == Status::kIncomplete) {
    append_number(out, state.completed_s);
  } else {
    out += "null";
  }
  out += ",\"content_filters\":null,\"error\":";
  out += state.error.empty() ? "null" : state.error;
  out += ",\"frequency_penalty\":0.0,\"incomplete_details\":";
  if (state.incomplete_reason.empty()) {
    out += "null";
  } else {
    out += "{\"reason\":";
    append_json_string(out, state.incomplete_reason);
    out += '}';
  }
  out += settings_;
  out += ",\"output\":[";
  out += state.output;
  out += ']';
  out += tail_;
  out += ",\"usage\":";
  if (state.usage == nullptr) {
    out += "null";
  } else {
    out += "{\"input_tokens\":";
    append_number(out, state.usage->num_prompt_tokens);
    out += ",\"input_tokens_details\":{\"cached_tokens\":";
    append_number(out, state.usage->num_cached_tokens);
    out += recipe_compatible_ ? "}" : ",\"cache_write_tokens\":0}";  // the official package expects it
    append_member(out, "output_tokens", state.usage->num_output_tokens);
    out += ",\"output_tokens_details\":{\"reasoning_tokens\":";
    append_number(out, state.usage->num_reasoning_tokens);
    out += '}';
    append_member(out, "total_tokens", state.usage->num_prompt_tokens + state.usage->num_output_tokens);
    out += '}';
  }
  out += end_;
  out += '}';
}

}  // namespace deepinfer
