// SPDX-License-Identifier: MIT
#include "bindings/c/codec_settings.h"

#include <fmt/format.h>

#include <array>

#include "bindings/c/c_boundary.h"
#include "protocol/encode_record.h"

namespace deepinfer {
namespace {

constexpr uint64_t kDepthMax = 1'000;
constexpr uint64_t kChoicesMax = 128;

Status wrong(std::string_view name, const Json& value) {
  return invalid_argument(fmt::format("settings.{}: unexpected value {}", name, to_json(value)));
}

Status read_models(const Json& table, std::map<std::string, PromptVersion>& out) {
  if (!table.is_object()) return wrong("models", table);
  out.clear();
  for (const auto& [name, version] : table.as_object()) {
    if (!version.is_string() || (version.as_string() != "v4" && version.as_string() != "v41")) {
      return wrong("models." + name, version);
    }
    out[name] = version.as_string() == "v4" ? PromptVersion::kV4 : PromptVersion::kV41;
  }
  return {};
}

Status read_limits(const Json& limits, RequestLimits& out) {
  if (!limits.is_object()) return wrong("limits", limits);
  const std::array<std::pair<std::string_view, size_t*>, 8> sizes = {
      {{"body_bytes", &out.body_bytes_max},
       {"depth", &out.depth_max},
       {"messages", &out.messages_max},
       {"tools", &out.tools_max},
       {"tool_schema_bytes", &out.tool_schema_bytes_max},
       {"images", &out.images_max},
       {"image_bytes", &out.image_bytes_max},
       {"images_total_bytes", &out.images_total_bytes_max}}};
  for (const auto& [name, value] : limits.as_object()) {
    size_t* target = nullptr;
    for (const auto& [known, size] : sizes) {
      if (name == known) target = size;
    }
    if (target == nullptr && name != "n")
      return invalid_argument(fmt::format("settings.limits.{}: no such limit", name));
    ASSIGN_OR_RETURN(const uint64_t count, count_setting(limits, name, 0));
    if (target != nullptr) *target = count;
    else if (count < 1 || count > kChoicesMax) return wrong("limits.n", value);
    else out.n_max = static_cast<uint32_t>(count);
  }
  if (out.depth_max > kDepthMax) return wrong("limits.depth", Json(uint64_t{out.depth_max}));
  if (out.body_bytes_max > DEEPINFER_TEXT_BYTES_MAX)
    return wrong("limits.body_bytes", Json(uint64_t{out.body_bytes_max}));
  return {};
}

Status read_thinking_stage(const Json& value, ParsingOptions& out) {
  static constexpr std::string_view kNames[] = {"ReasoningStart", "ReasoningContinuation", "ContentContinuation"};
  if (value.is_null()) {
    out.thinking_stage.reset();
    return {};
  }
  for (size_t i = 0; value.is_string() && i < std::size(kNames); ++i) {
    if (value.as_string() != kNames[i]) continue;
    out.thinking_stage = static_cast<ThinkingStage>(i);
    return {};
  }
  return wrong("parsing.thinking_initial_stage", value);
}

Status read_stop_sequences(const Json& value, ParsingOptions& out) {
  if (!value.is_array()) return wrong("parsing.stop_sequences", value);
  out.stop_sequences.clear();
  for (const Json& stop : value.as_array()) {
    if (!stop.is_string() || stop.as_string().empty()) return wrong("parsing.stop_sequences", stop);
    out.stop_sequences.push_back(stop.as_string());
  }
  return {};
}

Status read_parsing(const Json& members, ParsingOptions& out) {
  if (!members.is_object()) return wrong("parsing", members);
  for (const auto& [name, value] : members.as_object()) {
    bool* flag = name == "parse_tool_calls"        ? &out.parse_tool_calls
                 : name == "starts_in_tool_calls"  ? &out.starts_in_tool_calls
                 : name == "parse_json_output"     ? &out.parse_json_output
                 : name == "keep_leading_newlines" ? &out.keep_leading_newlines
                                                   : nullptr;
    if (flag != nullptr && !value.is_bool()) return wrong("parsing." + name, value);
    if (flag != nullptr) *flag = value.as_bool();
    else if (name == "thinking_initial_stage") TRY(read_thinking_stage(value, out));
    else if (name == "stop_sequences") TRY(read_stop_sequences(value, out));
    else return invalid_argument(fmt::format("settings.parsing.{}: no such setting", name));
  }
  return {};
}

}  // namespace

Result<CodecSettings> read_codec_settings(const char* data, size_t size) {
  static constexpr std::string_view kNames[] = {"compat", "options", "models", "context_limit", "limits"};
  ASSIGN_OR_RETURN(const Json settings, settings_argument(data, size, kNames));
  CodecSettings out;
  ASSIGN_OR_RETURN(const std::string compat, text_setting(settings, "compat", "none"));
  if (compat != "none" && compat != "recipe") return wrong("compat", Json(compat));
  out.options.recipe_compatible = compat == "recipe";
  if (const Json* models = settings.find("models")) TRY(read_models(*models, out.options.models));
  if (const Json* options = settings.find("options")) TRY(apply_decode_options(*options, out.options));
  if (const Json* limits = settings.find("limits")) TRY(read_limits(*limits, out.options.limits));
  ASSIGN_OR_RETURN(out.context_limit, count_setting(settings, "context_limit", kDefaultContextTokens));
  return out;
}

Result<StreamSettings> read_stream_settings(const char* data, size_t size, std::string_view model,
                                            const ParsingOptions& parsing) {
  static constexpr std::string_view kNames[] = {"response_id", "model",        "created",
                                                "signature",   "call_id_seed", "parsing"};
  ASSIGN_OR_RETURN(const Json settings, settings_argument(data, size, kNames));
  StreamSettings out;
  out.parsing = parsing;
  ASSIGN_OR_RETURN(out.response_id, text_setting(settings, "response_id", "resp-1"));
  ASSIGN_OR_RETURN(out.model, text_setting(settings, "model", model));
  ASSIGN_OR_RETURN(out.signature, text_setting(settings, "signature", ""));
  ASSIGN_OR_RETURN(const uint64_t created_s, count_setting(settings, "created", 0));
  if (created_s > INT64_MAX) return wrong("created", Json(created_s));
  out.created_s = static_cast<int64_t>(created_s);
  out.has_call_id_seed = settings.find("call_id_seed") != nullptr;
  ASSIGN_OR_RETURN(out.call_id_seed, count_setting(settings, "call_id_seed", 0));
  if (const Json* members = settings.find("parsing")) TRY(read_parsing(*members, out.parsing));
  return out;
}

}  // namespace deepinfer
