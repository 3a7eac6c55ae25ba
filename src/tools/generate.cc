// SPDX-License-Identifier: MIT
// deepinfer generate: one completion to stdout (design/cli.md). A prompt is a user message put through the prompt
// encoder, a Chat Completions body, raw text, or token ids as they are.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "chat/stream_parser.h"
#include "engine/generation.h"
#include "serve/loaded_model.h"
#include "tokenizer/detokenizer.h"
#include "tools/command.h"
#include "tools/engine_target.h"
#include "tools/generate_prompt.h"
#include "tools/interrupt.h"

namespace deepinfer {
namespace {

struct GenerateArguments {
  ModelOptions model;
  GeneratePrompt prompt;
  int64_t max_tokens = 0, top_k = 0, seed = 0, logprobs = -1;
  double temperature = -1, top_p = -1;
  std::string draft = "on";
  bool json = false;
};

SamplingParams sampling_params(const GenerateArguments& arguments, const PreparedPrompt& prepared,
                               const ModelConfig& config) {
  const InferenceOptions& asked = prepared.request.inference;
  SamplingParams params;
  params.temperature = arguments.temperature >= 0 ? static_cast<float>(arguments.temperature)
                       : prepared.is_request      ? asked.temperature
                                                  : 0.0f;
  params.top_p = arguments.top_p >= 0 ? static_cast<float>(arguments.top_p) : prepared.is_request ? asked.top_p : 1.0f;
  params.top_k = static_cast<int32_t>(arguments.top_k > 0 ? arguments.top_k : asked.top_k.value_or(0));
  params.seed = arguments.seed != 0 ? static_cast<uint64_t>(arguments.seed) : asked.seed.value_or(0);
  params.min_p = asked.min_p.value_or(0.0f);
  params.presence_penalty = asked.presence_penalty;
  params.frequency_penalty = asked.frequency_penalty;
  params.repetition_penalty = asked.repetition_penalty.value_or(1.0f);
  params.logit_bias.assign(asked.logit_bias.begin(), asked.logit_bias.end());
  params.min_tokens = asked.min_tokens;
  params.ignore_eos = asked.ignore_eos;
  params.stop_ids.assign(asked.stop_token_ids.begin(), asked.stop_token_ids.end());
  params.eos_ids = {config.eos_token_id};
  if (arguments.logprobs >= 0) params.top_logprobs = static_cast<int32_t>(arguments.logprobs);
  return params;
}

ReplayMode replay_mode(const ModelOptions& options) {
  if (options.replay == "off") return ReplayMode::kOff;
  return options.replay == "exact" || options.deterministic ? ReplayMode::kExact : ReplayMode::kFast;
}

// What has been read of the answer so far, printed as it comes unless the result is JSON.
class AnswerReader {
 public:
  AnswerReader(const PreparedPrompt& prepared, const LoadedModel& model, bool prints)
      : detokenizer_(*model.tokenizer), prints_(prints) {
    if (!prepared.vocabulary) return;
    StreamParserOptions options{.parsing = prepared.request.parsing};
    parser_ = std::make_unique<StreamParser>(*prepared.vocabulary, options);
  }

  bool push(TokenId id, bool ends) {
    if (!parser_) {
      if (!ends) add_text(detokenizer_.push(id));
      return !interrupted();
    }
    if (!ends) read([&](ChatEvents& events) { (void)parser_->push_tokens({&id, 1}, {}, events); });
    return !interrupted() && !parser_->is_finished();
  }

  void finish(BackendFinish reason) {
    if (!parser_) add_text(detokenizer_.finish());
    else if (!parser_->is_finished()) read([&](ChatEvents& events) { parser_->finish(reason, events); });
  }

  std::string text, reasoning, finish_reason;
  Json::Array tool_calls;

 private:
  template <typename Feed>
  void read(const Feed& feed) {
    events_.clear();
    feed(events_);
    for (const ChatEvent& event : events_.list) take(event);
  }

  void take(const ChatEvent& event) {
    const std::string piece(events_.text_of(event));
    switch (event.kind) {
      case ChatEventKind::kText: add_text(piece); break;
      case ChatEventKind::kReasoning: reasoning += piece; break;
      case ChatEventKind::kToolCall:
        tool_calls.push_back(
            Json::Object{{"id", std::string(events_.call_id_of(event))}, {"name", piece}, {"arguments", ""}});
        break;
      case ChatEventKind::kToolArguments: tool_calls.back().find("arguments")->as_string() += piece; break;
      case ChatEventKind::kFinish:
        finish_reason = events_.finish.reason == FinishReason::kToolCalls ? "tool_calls"
                        : events_.finish.reason == FinishReason::kLength  ? "length"
                                                                          : "stop";
        break;
      case ChatEventKind::kStart: break;
    }
  }

  void add_text(const std::string& piece) {
    text += piece;
    if (!prints_ || piece.empty()) return;
    fmt::print("{}", piece);
    std::fflush(stdout);
  }

  Detokenizer detokenizer_;
  std::unique_ptr<StreamParser> parser_;
  ChatEvents events_;
  bool prints_;
};

Json logprobs_json(const Generation& generation) {
  Json::Array all;
  for (const TokenLogprobs& token : generation.logprobs) {
    Json::Array likeliest;
    for (const auto& [id, logprob] : token.likeliest)
      likeliest.push_back(Json::Object{{"id", id}, {"logprob", static_cast<double>(logprob)}});
    all.push_back(Json::Object{{"logprob", static_cast<double>(token.logprob)}, {"top", std::move(likeliest)}});
  }
  return all;
}

void print_json(const PreparedPrompt& prepared, const Generation& generation, const AnswerReader& answer,
                double load_s) {
  Json out = Json::Object{{"prompt_tokens", static_cast<int64_t>(prepared.num_prompt_tokens)},
                          {"token_ids", Json::Array(generation.tokens.begin(), generation.tokens.end())},
                          {"text", answer.text},
                          {"reasoning_content", answer.reasoning},
                          {"tool_calls", answer.tool_calls},
                          {"finish_reason", answer.finish_reason},
                          {"draft", Json::Object{{"steps", generation.num_steps},
                                                 {"drafted", generation.num_drafted},
                                                 {"accepted", generation.num_accepted}}},
                          {"timing", Json::Object{{"load_s", load_s},
                                                  {"prefill_s", static_cast<double>(generation.prefill_ns) * 1e-9},
                                                  {"decode_s", static_cast<double>(generation.decode_ns) * 1e-9}}}};
  if (!generation.logprobs.empty()) out.set("logprobs", logprobs_json(generation));
  fmt::print("{}\n", to_json(out));
}

void print_summary(const PreparedPrompt& prepared, const Generation& generation) {
  const double prefill_s = static_cast<double>(generation.prefill_ns) * 1e-9,
               decode_s = static_cast<double>(generation.decode_ns) * 1e-9;
  const double rate = decode_s > 0 ? static_cast<double>(generation.tokens.size() - 1) / decode_s : 0;
  fmt::print("\n");
  fmt::print(stderr,
             "{} prompt tokens in {:.2f} s ({:.0f} tokens/s), {} tokens in {:.2f} s ({:.1f} tokens/s), {} of {} drafts "
             "accepted in {} steps\n",
             prepared.num_prompt_tokens, prefill_s,
             static_cast<double>(prepared.num_prompt_tokens) / std::max(prefill_s, 1e-9), generation.tokens.size(),
             decode_s, rate, generation.num_accepted, generation.num_drafted, generation.num_steps);
}

Result<std::unique_ptr<Engine>> open_engine(const GenerateArguments& arguments, const LoadedModel& model,
                                            const Target& target, int64_t num_tokens) {
  EngineOptions options;
  options.num_threads = static_cast<int>(arguments.model.num_threads);
  options.target = target;
  options.lanes_max = 1;
  options.logits_rows_max = 16;
  options.blocks_max = BlockTable::blocks_for(num_tokens);
  return Engine::open(model.weights, model.token_map, options);
}

Status run_generate(const GenerateArguments& arguments) {
  const SystemClock clock;
  const int64_t begin_ns = clock.monotonic_ns();
  ASSIGN_OR_RETURN(const Target target, engine_target(arguments.model));
  ASSIGN_OR_RETURN(const LoadedModel model, load_model(arguments.model.model));
  ASSIGN_OR_RETURN(PreparedPrompt prepared,
                   prepare_prompt(arguments.prompt, model, target, static_cast<int>(arguments.model.num_threads)));
  GenerationRequest request{.prompt = std::move(prepared.tokens), .images = std::move(prepared.images)};
  request.params = sampling_params(arguments, prepared, model.weights->config());
  request.max_tokens =
      arguments.max_tokens > 0 ? arguments.max_tokens : prepared.request.inference.max_tokens.value_or(256);
  request.drafts = arguments.draft == "on";
  request.replay = replay_mode(arguments.model);
  ASSIGN_OR_RETURN(const auto engine, open_engine(arguments, model, target,
                                                  static_cast<int64_t>(request.prompt.size()) + request.max_tokens));
  const double load_s = static_cast<double>(clock.monotonic_ns() - begin_ns) * 1e-9;
  AnswerReader answer(prepared, model, !arguments.json);
  int64_t position = 0;
  const SamplingParams params = request.params;
  const TokenSink sink = [&](TokenId id) { return answer.push(id, ends_sequence(params, id, position++)); };
  ASSIGN_OR_RETURN(const Generation generation, generate(*engine, std::move(request), sink));
  answer.finish(generation.end == GenerationEnd::kLength ? BackendFinish::kLength : BackendFinish::kStop);
  if (answer.finish_reason.empty()) answer.finish_reason = generation.end == GenerationEnd::kLength ? "length" : "stop";
  if (arguments.json) print_json(prepared, generation, answer, load_s);
  else print_summary(prepared, generation);
  return {};
}

void declare(OptionSet& options, GenerateArguments& arguments) {
  declare_model_options(options, arguments.model);
  declare_prompt_options(options, arguments.prompt);
  options.add("--max-tokens", arguments.max_tokens, "longest answer in tokens (default 256)");
  options.add("--temperature", arguments.temperature,
              "0 = always the likeliest token (default; a --chat body has its own)");
  options.add("--top-p", arguments.top_p, "keep the likeliest tokens up to this probability (default 1)");
  options.add("--top-k", arguments.top_k, "keep that many likeliest tokens; 0 = all (default)");
  options.add("--seed", arguments.seed, "key of the sampling noise (default 0)");
  options.choice("--draft", arguments.draft, {"on", "off"},
                 "propose tokens with the draft head; changes the speed, never the tokens (default on)");
  options.add("--logprobs", arguments.logprobs, "also give log probabilities and the K likeliest tokens (0 to 20)");
  options.flag("--json", arguments.json, "print one JSON object with ids, text, drafts and timing");
}

}  // namespace

Command generate_command() {
  const auto arguments = std::make_shared<GenerateArguments>();
  return {.name = "generate",
          .summary = "one completion to stdout",
          .examples =
              "  deepinfer generate --model checkpoint/ --prompt \"Why is the sky blue?\" --thinking off\n"
              "  deepinfer generate --model checkpoint/ --ids ids.json --max-tokens 64 --json\n",
          .declare = [arguments](OptionSet& options) { declare(options, *arguments); },
          .run =
              [arguments] {
                if (const Status status = check_prompt_options(arguments->prompt); !status.ok()) {
                  fmt::print(stderr, "deepinfer generate: {}\n", status.message());
                  return 2;
                }
                install_interrupt_handler();
                return exit_status(run_generate(*arguments));
              }};
}

}  // namespace deepinfer
