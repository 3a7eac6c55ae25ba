// SPDX-License-Identifier: MIT
// The answer side on one core, thread CPU time: 200 tool turns, one token a step, parsed and written out as stream
// events, for each protocol. `--peer` runs bench/peers/response_peers.py on the same ids in the same run; --set
// python=PATH names its interpreter, --set tokenizer=PATH another tokenizer.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>

#include "base/bench.h"
#include "base/json.h"
#include "base/philox.h"
#include "chat/stream_parser.h"
#include "protocol/recipe_peer.h"
#include "protocol/response_encoder.h"

namespace deepinfer {
namespace {

using Turn = std::vector<TokenId>;

constexpr std::string_view kWords[] = {"the",    "model",   "reads",   "a",    "file",  "and",    "then",
                                       "checks", "whether", "each",    "test", "still", "passes", "before",
                                       "it",     "goes",    "on",      "我们", "需要",  "检查",   "结果",
                                       "so",     "that",    "nothing", "is",   "lost.", "\n"};

void append_words(std::string& out, Rng& rng, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    out += kWords[rng.below(std::size(kWords))];
    out += ' ';
  }
}

// Reasoning, a sentence, and two calls, as an agent's turn.
std::string make_turn(Rng& rng) {
  std::string out;
  append_words(out, rng, 120);
  out += "</think>\n\n";
  append_words(out, rng, 40);
  out += "\n\n<｜DSML｜ calls>\n";
  for (const char* name : {"read_file", "run_tests"}) {
    out += fmt::format("<｜DSML｜ invoke name=\"{}\">\n<｜DSML｜ parameter name=\"path\" string=\"true\">", name);
    append_words(out, rng, 60);
    out +=
        "</｜DSML｜ parameter>\n<｜DSML｜ parameter name=\"limits\" string=\"false\">{\"lines\": [1, 200], \"deep\": "
        "true}</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n";
  }
  return out + "</｜DSML｜ calls>";
}

Json request_of(std::string_view protocol) {
  const char* body = nullptr;
  if (protocol == "chat") {
    body = R"({"model":"DeepSeek-V4.1-Flash","stream":true,"messages":[{"role":"user","content":"go"}],
      "tools":[{"type":"function","function":{"name":"read_file"}},{"type":"function","function":{"name":"run_tests"}}]})";
  } else if (protocol == "responses") {
    body = R"({"model":"DeepSeek-V4.1-Flash","stream":true,"input":"go",
      "tools":[{"type":"function","name":"read_file"},{"type":"function","name":"run_tests"}]})";
  } else {
    body = R"({"model":"DeepSeek-V4.1-Flash","stream":true,"max_tokens":100,"messages":[{"role":"user","content":"go"}],
      "tools":[{"name":"read_file","input_schema":{"type":"object"}},{"name":"run_tests","input_schema":{"type":"object"}}]})";
  }
  return parse_json(body).value();
}

size_t run_turns(const OutputVocabulary& vocabulary, const Codec& codec, const DecodedRequest& request,
                 const std::vector<Turn>& turns) {
  ResponseIdentity identity;
  identity.id = "resp-1";
  identity.model = request.chat.model;
  ChatEvents events;
  WireEvents wire;
  size_t num_bytes = 0;
  for (const Turn& turn : turns) {
    StreamParserOptions options;
    options.parsing = request.chat.parsing;
    StreamParser parser(vocabulary, options);
    const auto encoder = codec.encode(request.response, identity);
    const auto write = [&] {
      wire.clear();
      encoder->encode(0, events, wire);
      num_bytes += wire.bytes.size();
      events.clear();
    };
    for (const TokenId id : turn) {
      CHECK(parser.push_tokens({&id, 1}, {}, events).ok());
      write();
    }
    parser.finish(BackendFinish::kStop, events);
    write();
  }
  return num_bytes;
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Thread CPU time, the best of five after a warm-up, as the peer is measured.
double best_seconds(const std::function<void()>& body) {
  body();
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double begin = thread_seconds();
    body();
    best = std::min(best, thread_seconds() - begin);
  }
  return best;
}

std::map<std::string, double> run_peer(const BenchOptions& options, const std::string& tokenizer,
                                       const std::vector<Turn>& turns) {
  Json data = Json::Object{};
  Json requests = Json::Object{}, lists = Json::Array{};
  for (const Codec& codec : codecs()) requests.set(codec.name, request_of(codec.name));
  for (const Turn& turn : turns) lists.push_back(Json::Array(turn.begin(), turn.end()));
  data.set("requests", std::move(requests));
  data.set("turns", std::move(lists));
  return run_recipe_peer(options, "response_peers.py", tokenizer, data);
}

}  // namespace

Status bench_response(const BenchOptions& options, BenchReport& report) {
  const auto path = options.extra.find("tokenizer");
  const std::string tokenizer_path =
      path == options.extra.end() ? DEEPINFER_TESTDATA "/codec/tokenizer_v41.json.gz" : path->second;
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::load(tokenizer_path));
  ASSIGN_OR_RETURN(const OutputVocabulary vocabulary, OutputVocabulary::create(tokenizer));
  Rng rng(1);
  std::vector<Turn> turns;
  size_t num_tokens = 0;
  for (int i = 0; i < (options.quick ? 20 : 200); ++i) {
    turns.push_back(tokenizer->encode_with_added(make_turn(rng)));
    num_tokens += turns.back().size();
  }
  const auto peers = options.peer ? run_peer(options, tokenizer_path, turns) : std::map<std::string, double>{};
  for (const Codec& codec : codecs()) {
    DecodedRequest request;
    if (Refusal refusal = codec.decode(to_json(request_of(codec.name)), {}, request))
      return internal_error(refusal->message);
    size_t num_bytes = 0;
    const double seconds = best_seconds([&] { num_bytes = run_turns(vocabulary, codec, request, turns); });
    report.add(
        {.name = fmt::format("{} one token a step", codec.name),
         .value = static_cast<double>(num_tokens) / seconds / 1e6,
         .unit = "Mtokens/s",
         .peer = recipe_figure(peers, codec.name, 1e-6),
         .note = fmt::format("{} tokens, {:.0f} MB of events", num_tokens, static_cast<double>(num_bytes) / 1e6)});
  }
  return {};
}

}  // namespace deepinfer
