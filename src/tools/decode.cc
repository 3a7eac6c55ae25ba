// SPDX-License-Identifier: MIT
// deepinfer decode: recorded model output to the events and the reply of a protocol, one JSON object a line.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/json.h"
#include "chat/output_vocabulary.h"
#include "protocol/codec.h"
#include "protocol/response_replay.h"
#include "tools/command.h"
#include "tools/json_lines.h"
#include "tools/tokenizer_option.h"

namespace deepinfer {
namespace {

struct DecodeArguments {
  std::string tokenizer = "mini";
  std::string compat = "none";
};

Result<std::string> string_member(const Json& line, std::string_view key, std::string_view fallback) {
  const Json* value = line.find(key);
  if (value == nullptr && !fallback.empty()) return std::string(fallback);
  if (value == nullptr || !value->is_string()) return invalid_argument(fmt::format("{}: expected a string", key));
  return value->as_string();
}

Result<Json> parse_output(const std::string& text) {
  JsonLimits limits;
  limits.refuse_duplicate_keys = false;  // arguments of calls stand in the reply as the model wrote them
  limits.wide_integers = true;
  limits.depth_max = 200;
  return parse_json(text, limits);
}

Status decode_line(const OutputVocabulary& vocabulary, const DecodeOptions& options, const Json& line, Json& out) {
  ASSIGN_OR_RETURN(const std::string protocol, string_member(line, "protocol", ""));
  out.set("protocol", protocol);
  const Codec* codec = find_codec(protocol);
  if (codec == nullptr) {
    return invalid_argument(fmt::format("protocol: expected chat, responses or messages, got \"{}\"", protocol));
  }
  const Json* request = line.find("request");
  const Json* chunks = line.find("chunks");
  if (request == nullptr || chunks == nullptr) return invalid_argument("expected members \"request\" and \"chunks\"");
  ASSIGN_OR_RETURN(const std::string response_id, string_member(line, "response_id", "resp-1"));
  DecodedRequest decoded;
  if (Refusal refusal = codec->decode(to_json(*request), options, decoded)) {
    return invalid_argument("request: " + refusal->message);
  }
  ASSIGN_OR_RETURN(const ReplayedResponse replayed, replay_response(vocabulary, *codec, decoded, response_id, *chunks));
  ASSIGN_OR_RETURN(Json events, parse_output(replayed.events));
  ASSIGN_OR_RETURN(Json final_object, parse_output(replayed.final_object));
  out.set("chunks_read", Json(uint64_t{replayed.num_chunks_read}));
  out.set("events", std::move(events));
  out.set("final", std::move(final_object));
  return {};
}

Status decode(const DecodeArguments& arguments) {
  ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> tokenizer, open_tokenizer(arguments.tokenizer));
  ASSIGN_OR_RETURN(const OutputVocabulary vocabulary, OutputVocabulary::create(std::move(tokenizer)));
  DecodeOptions options;
  options.recipe_compatible = arguments.compat == "recipe";
  answer_json_lines([&](const Json& line, Json& out) { return decode_line(vocabulary, options, line, out); });
  return {};
}

}  // namespace

Command decode_command() {
  const auto arguments = std::make_shared<DecodeArguments>();
  return {.name = "decode",
          .summary = "recorded model output to a protocol's events and reply, one JSON object a line",
          .examples =
              "  deepinfer decode --tokenizer checkpoint/ < streams.jsonl > events.jsonl\n"
              "  zcat responses.jsonl.gz | deepinfer decode --compat recipe --tokenizer tokenizer.json\n",
          .declare =
              [arguments](OptionSet& options) {
                declare_tokenizer_option(options, arguments->tokenizer);
                options.choice("--compat", arguments->compat, {"none", "recipe"},
                               "recipe: answers exactly as deepseek-recipe 0.2.0 gives them (default none)");
              },
          .run = [arguments] { return exit_status(decode(*arguments)); }};
}

}  // namespace deepinfer
