// SPDX-License-Identifier: MIT
// The request side on one core: a tool conversation of about 100,000 tokens as the JSON a client sends, to token ids,
// for each protocol. The share of the tokenizer alone is the ceiling. `--peer` runs bench/peers/request_peers.py on the
// same bodies in the same run; --set python=PATH names its interpreter, --set tokenizer=PATH another tokenizer.
#include <fmt/format.h>

#include <map>

#include "base/bench.h"
#include "base/json.h"
#include "base/philox.h"
#include "chat/prompt_encoder.h"
#include "protocol/codec.h"
#include "protocol/recipe_peer.h"

namespace deepinfer {
namespace {

constexpr std::string_view kWords[] = {"the",    "model", "reads",   "file",   "and",    "then",   "checks", "whether",
                                       "each",   "test",  "still",   "passes", "before", "it",     "goes",   "on",
                                       "so",     "that",  "nothing", "is",     "lost,",  "return", "value;", "result",
                                       "config", "我们",  "需要",    "检查",   "结果",   "cache"};
constexpr std::string_view kCode[] = {"    for (size_t i = 0; i < values.size(); ++i) {\n",
                                      "        total += weights[i] * values[i];\n",
                                      "    }\n",
                                      "def test_parser(self):\n",
                                      "        self.assertEqual(parse('{\"a\": 1}'), {'a': 1})\n",
                                      "    return result\n",
                                      "# 检查结果是否正确\n",
                                      "INFO 2026-09-10 12:00:01 worker=3 tokens=1024 ms=17.25\n"};

std::string words(Rng& rng, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += kWords[rng.below(std::size(kWords))];
    if (i % 6 == 5)
      out += fmt::format(" x{:05x}", rng.next_u32() >> 12);  // as names and numbers in real text: never seen before
    out += i % 17 == 16 ? ".\n" : " ";
  }
  return out;
}

std::string code(Rng& rng, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    const std::string_view line = kCode[rng.below(std::size(kCode))];
    out += line.substr(0, line.size() - 1);
    out += fmt::format("  // {:x}\n", rng.next_u32());
  }
  return out;
}

const char* kSchema =
    R"({"type":"object","properties":{"path":{"type":"string"},"first_line":{"type":"integer"}},"required":["path"]})";

Json text_message(const char* role, std::string text) {
  return Json::Object{{"role", role}, {"content", std::move(text)}};
}

// One turn: a question, reasoning, a call, its result, an answer; in the words of each protocol.
void append_turn(const std::string& protocol, const std::string& id, Rng& rng, Json& list) {
  const std::string question = words(rng, 30), thought = words(rng, 60), said = words(rng, 40), result = code(rng, 14);
  const Json input(Json::Object{{"path", "src/" + id + ".cc"}, {"note", words(rng, 20)}, {"first_line", 12}});
  if (protocol == "responses") {
    list.push_back(text_message("user", question));
    list.push_back(Json::Object{{"type", "reasoning"},
                                {"content", Json::Array{Json::Object{{"type", "reasoning_text"}, {"text", thought}}}}});
    list.push_back(
        Json::Object{{"type", "function_call"}, {"call_id", id}, {"name", "read_file"}, {"arguments", to_json(input)}});
    list.push_back(Json::Object{{"type", "function_call_output"}, {"call_id", id}, {"output", result}});
    list.push_back(text_message("assistant", said));
  } else if (protocol == "messages") {
    list.push_back(text_message("user", question));
    list.push_back(Json::Object{
        {"role", "assistant"},
        {"content",
         Json::Array{Json::Object{{"type", "thinking"}, {"thinking", thought}, {"signature", "s"}},
                     Json::Object{{"type", "tool_use"}, {"id", id}, {"name", "read_file"}, {"input", input}}}}});
    list.push_back(Json::Object{
        {"role", "user"},
        {"content", Json::Array{Json::Object{{"type", "tool_result"}, {"tool_use_id", id}, {"content", result}}}}});
    list.push_back(text_message("assistant", said));
  } else {
    list.push_back(text_message("user", question));
    Json call(Json::Object{{"id", id},
                           {"type", "function"},
                           {"function", Json::Object{{"name", "read_file"}, {"arguments", to_json(input)}}}});
    list.push_back(Json::Object{{"role", "assistant"},
                                {"content", ""},
                                {"reasoning_content", thought},
                                {"tool_calls", Json::Array{std::move(call)}}});
    list.push_back(Json::Object{{"role", "tool"}, {"tool_call_id", id}, {"content", result}});
    list.push_back(text_message("assistant", said));
  }
}

std::string make_body(const std::string& protocol, int num_turns) {
  Rng rng(1);
  Json list = Json::Array{};
  for (int i = 0; i < num_turns; ++i) append_turn(protocol, fmt::format("call_{:03}", i), rng, list);
  const Json schema = parse_json(kSchema).value();
  Json tool;
  if (protocol == "chat")
    tool = Json::Object{
        {"type", "function"},
        {"function", Json::Object{{"name", "read_file"}, {"description", "Reads a file"}, {"parameters", schema}}}};
  else if (protocol == "responses")
    tool = Json::Object{
        {"type", "function"}, {"name", "read_file"}, {"description", "Reads a file"}, {"parameters", schema}};
  else tool = Json::Object{{"name", "read_file"}, {"description", "Reads a file"}, {"input_schema", schema}};
  return to_json(Json(Json::Object{{"model", "DeepSeek-V4.1-Flash"},
                                   {protocol == "responses" ? "input" : "messages", std::move(list)},
                                   {"tools", Json::Array{std::move(tool)}}}));
}

Result<std::vector<TokenId>> encode_body(const Codec& codec, const std::string& body, const Tokenizer& tokenizer,
                                         const ControlTokens& controls) {
  DecodedRequest request;
  if (const Refusal refusal = codec.decode(body, {}, request)) return internal_error(refusal->message);
  ASSIGN_OR_RETURN(const EncodedConversation encoded,
                   encode_prompt(request.chat.conversation, {request.chat.version}, controls));
  return tokenizer.encode(encoded.prompt);
}

std::map<std::string, double> run_peer(const BenchOptions& options, const std::string& tokenizer,
                                       const std::map<std::string, std::string>& bodies) {
  Json data = Json::Object{};
  for (const auto& [protocol, body] : bodies) data.set(protocol, body);
  return run_recipe_peer(options, "request_peers.py", tokenizer, data);
}

}  // namespace

Status bench_codec(const BenchOptions& options, BenchReport& report) {
  const auto path = options.extra.find("tokenizer");
  const std::string tokenizer_path =
      path == options.extra.end() ? DEEPINFER_TESTDATA "/codec/tokenizer_v41.json.gz" : path->second;
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::load(tokenizer_path));
  ASSIGN_OR_RETURN(const ControlTokens controls, ControlTokens::find(*tokenizer, PromptVersion::kV41));
  std::map<std::string, std::string> bodies;
  for (const Codec& codec : codecs()) bodies[codec.name] = make_body(codec.name, options.quick ? 20 : 140);
  const auto peers = options.peer ? run_peer(options, tokenizer_path, bodies) : std::map<std::string, double>{};
  for (const Codec& codec : codecs()) {
    const std::string& body = bodies[codec.name];
    ASSIGN_OR_RETURN(const std::vector<TokenId> ids, encode_body(codec, body, *tokenizer, controls));
    DecodedRequest request;
    if (const Refusal refusal = codec.decode(body, {}, request)) return internal_error(refusal->message);
    ASSIGN_OR_RETURN(const EncodedConversation encoded,
                     encode_prompt(request.chat.conversation, {request.chat.version}, controls));
    const double tokenizer_seconds =
        median_seconds(9, [&] { CHECK(tokenizer->encode(encoded.prompt).size() == ids.size()); });
    const double seconds = median_seconds(9, [&] { CHECK(encode_body(codec, body, *tokenizer, controls).ok()); });
    const double num_tokens = static_cast<double>(ids.size());
    report.add({.name = fmt::format("{} body to ids", codec.name),
                .value = num_tokens / seconds,
                .unit = "tokens/s",
                .ceiling = num_tokens / tokenizer_seconds,
                .ceiling_name = "tokenizer alone",
                .peer = recipe_figure(peers, codec.name, 1),
                .note = fmt::format("{} tokens, {} bytes", ids.size(), body.size())});
  }
  return {};
}

}  // namespace deepinfer
