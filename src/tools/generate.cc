// SPDX-License-Identifier: MIT
// deepinfer generate: one completion to stdout. A prompt is a user message put through the prompt
// encoder, a Chat Completions body, raw text, or token ids as they are.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "model/memory_plan.h"
#include "serve/answer_reader.h"
#include "serve/explain_record.h"
#include "serve/grammar_masks.h"
#include "serve/loaded_model.h"
#include "serve/loop_generation.h"
#include "serve/sampling_of.h"
#include "tools/answer_printer.h"
#include "tools/command.h"
#include "tools/engine_target.h"
#include "tools/generate_options.h"
#include "tools/interrupt.h"

namespace deepinfer {
namespace {

// Without a request the likeliest token is taken; a --chat body says for itself.
SamplingParams sampling_params(const GenerateOptions& arguments, const PreparedPrompt& prepared,
                               const ModelConfig& config) {
  SamplingParams params = sampling_of(prepared.request.inference, config, 0);
  if (!prepared.is_request) params.temperature = 0;
  override_sampling(arguments, params);
  return params;
}

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

void print_json(const PreparedPrompt& prepared, const Generation& generation, const AnswerReader& answer, double load_s,
                const Json& explain) {
  Json out = Json::Object{{"prompt_tokens", static_cast<int64_t>(prepared.num_prompt_tokens)},
                          {"token_ids", Json::Array(generation.tokens.begin(), generation.tokens.end())},
                          {"text", answer.text},
                          {"reasoning_content", answer.reasoning},
                          {"tool_calls", answer.tool_calls},
                          {"finish_reason", answer.finish_reason},
                          {"draft", draft_json(generation.num_steps, generation.num_drafted, generation.num_accepted)},
                          {"expert_bytes_read", generation.expert_bytes_read},
                          {"timing", Json::Object{{"load_s", load_s},
                                                  {"prefill_s", static_cast<double>(generation.prefill_ns) * 1e-9},
                                                  {"decode_s", static_cast<double>(generation.decode_ns) * 1e-9}}}};
  if (!generation.logprobs.empty()) out.set("logprobs", logprobs_json(generation));
  if (!explain.is_null()) out.set("explain", explain);
  fmt::print("{}\n", to_json(out));
}

void print_summary(const PreparedPrompt& prepared, const Generation& generation, const AnswerReader& answer) {
  for (const Json& call : answer.tool_calls)
    fmt::print("\n{}({})", call.find("name")->as_string(), call.find("arguments")->as_string());
  fmt::print("\n");
  std::fflush(stdout);
  const double prefill_s = static_cast<double>(generation.prefill_ns) * 1e-9,
               decode_s = static_cast<double>(generation.decode_ns) * 1e-9;
  const double rate = decode_s > 0 ? static_cast<double>(generation.tokens.size() - 1) / decode_s : 0;
  fmt::print(
      stderr,
      "{} prompt tokens in {:.2f} s ({:.0f} tokens/s), {} tokens in {:.2f} s ({:.1f} tokens/s), {} steps with {:.2f} "
      "drafted and {:.2f} accepted each\n",
      prepared.num_prompt_tokens, prefill_s,
      static_cast<double>(prepared.num_prompt_tokens) / std::max(prefill_s, 1e-9), generation.tokens.size(), decode_s,
      rate, generation.num_steps, per_step(generation.num_drafted, generation.num_steps),
      per_step(generation.num_accepted, generation.num_steps));
  if (generation.expert_bytes_read > 0)
    fmt::print(stderr, "experts read from the model's files: {}, {} a token\n",
               bytes_to_string(generation.expert_bytes_read),
               bytes_to_string(generation.expert_bytes_read /
                               static_cast<int64_t>(prepared.num_prompt_tokens + generation.tokens.size())));
}

// One line per thing that happened, on standard error, where the summary stands.
void print_explanation(const Json& explain) {
  for (const auto& [name, value] : explain.as_object()) fmt::print(stderr, "  {:<18} {}\n", name, to_json(value));
}

Result<std::unique_ptr<Engine>> open_engine(const GenerateOptions& arguments, const LoadedModel& model,
                                            const Target& target, int64_t num_tokens) {
  EngineOptions options;
  options.num_threads = static_cast<int>(arguments.model.num_threads);
  options.target = target;
  options.exact_ops = exact_ops(arguments);
  options.checks_memory = arguments.checks_memory;
  options.expert_bytes_max = model.expert_bytes_max;
  options.lanes_max = 1;
  options.logits_rows_max = 16;
  options.blocks_max = BlockTable::blocks_for(num_tokens + draft_run_max(model.weights->config()));
  return Engine::open(model.weights, model.token_map, options);
}

Status run_generate(const GenerateOptions& arguments) {
  const SystemClock clock;
  const int64_t begin_ns = clock.monotonic_ns();
  ASSIGN_OR_RETURN(const Target target, engine_target(arguments.model));
  ASSIGN_OR_RETURN(const LoadedModel model, load_model(arguments.model));
  ASSIGN_OR_RETURN(PreparedPrompt prepared,
                   prepare_prompt(arguments.prompt, model, target, static_cast<int>(arguments.model.num_threads)));
  GenerationRequest request{.prompt = std::move(prepared.tokens), .images = std::move(prepared.images)};
  request.params = sampling_params(arguments, prepared, model.weights->config());
  add_bad_words(prepared.request.inference.bad_words, *model.tokenizer, request.params);
  request.max_tokens =
      arguments.max_tokens > 0 ? arguments.max_tokens : prepared.request.inference.max_tokens.value_or(256);
  request.drafts = arguments.draft == "on";
  request.replay = replay_mode(arguments.model);
  request.keep_going = [] { return !interrupted(); };
  TRY(apply_constraint(arguments.constraint, prepared.request));
  ASSIGN_OR_RETURN(const std::shared_ptr<Grammar> grammar, compile_constraint(prepared.request, model.tokenizer));
  std::unique_ptr<MaskSource> masks;
  if (grammar)
    masks = std::make_unique<GrammarMasks>(grammar,
                                           prepared.request.inference.closes_at_max_tokens ? request.max_tokens : 0);
  ASSIGN_OR_RETURN(const auto engine, open_engine(arguments, model, target,
                                                  static_cast<int64_t>(request.prompt.size()) + request.max_tokens));
  const double load_s = static_cast<double>(clock.monotonic_ns() - begin_ns) * 1e-9;
  AnswerPrinter printer;
  const AnswerReader::OnPiece print_piece = [&](AnswerReader::Part part, std::string_view piece) {
    printer.print(part, piece);
  };
  AnswerReader answer(*model.tokenizer, prepared.vocabulary.get(), prepared.request.parsing,
                      arguments.json ? AnswerReader::OnPiece() : print_piece);
  int64_t position = 0;
  const SamplingParams params = request.params;
  const TokenSink sink = [&](TokenId id) {
    return answer.push(id, ends_sequence(params, id, position++)) && !interrupted();
  };
  ASSIGN_OR_RETURN(const RecordedGeneration recorded,
                   generate_recorded(*engine, std::move(request), sink, std::move(masks)));
  const Generation& generation = recorded.generation;
  printer.end();
  if (generation.tokens.empty()) return {};  // interrupted before the first token
  answer.finish(generation.end == GenerationEnd::kLength ? BackendFinish::kLength : BackendFinish::kStop);
  const Json explain = arguments.explain ? explain_record(recorded.record, params) : Json();
  if (arguments.json) print_json(prepared, generation, answer, load_s, explain);
  else print_summary(prepared, generation, answer);
  if (arguments.explain && !arguments.json) print_explanation(explain);
  return {};
}

void declare(OptionSet& options, GenerateOptions& arguments) {
  options.add("--chat-batch", arguments.chat_batch,
              "JSON lines of Chat Completions bodies ('-' = standard input); one result a line");
  options.add("--lanes", arguments.lanes, {1, 256}, "sequences running at once with --chat-batch (default 8)");
  declare_model_options(options, arguments.model);
  declare_prompt_options(options, arguments.prompt);
  declare_constraint_options(options, arguments.constraint);
  options.add("--max-tokens", arguments.max_tokens, {1, 1 << 24}, "longest answer in tokens (default 256)");
  options.add("--temperature", arguments.temperature, {0, 100},
              "0 = always the likeliest token (default; a --chat body has its own)");
  options.add("--top-p", arguments.top_p, {0, 1}, "keep the likeliest tokens up to this probability (default 1)");
  options.add("--top-k", arguments.top_k, {0, INT32_MAX}, "keep that many likeliest tokens; 0 = all (default)");
  options.add("--seed", arguments.seed, {0, INT64_MAX},
              "key of the sampling noise (default 0; a --chat body has its own)");
  options.choice("--draft", arguments.draft, {"on", "off"},
                 "propose tokens with the draft head; changes the speed, never the tokens (default on)");
  options.add("--logprobs", arguments.logprobs, {0, 20},
              "also give log probabilities and the K likeliest tokens (0 to 20)");
  options.add("--exact-ops", arguments.exact_ops,
              "with --backend cuda --numerics fast: ops that take exact rows all the same, as linear,experts; to find "
              "out which of them "
              "changes an answer");
  options.flag("--check-memory", arguments.checks_memory,
               "with --backend cuda: guard zones around every buffer, looked at in every step; for debugging, slow");
  options.flag("--explain", arguments.explain,
               "also say what happened: queue, prefix hit, chunks, replay, steps, drafts, preemptions, bytes");
  options.flag("--json", arguments.json, "print one JSON object with ids, text, drafts and timing");
}

}  // namespace

double per_step(int64_t number, int64_t num_steps) {
  return num_steps > 0 ? static_cast<double>(number) / static_cast<double>(num_steps) : 0;
}

Json draft_json(int64_t num_steps, int64_t num_drafted, int64_t num_accepted) {
  return Json::Object{{"steps", num_steps},
                      {"drafted", num_drafted},
                      {"accepted", num_accepted},
                      {"drafted_per_step", per_step(num_drafted, num_steps)},
                      {"accepted_per_step", per_step(num_accepted, num_steps)}};
}

Status check_debug_options(const GenerateOptions& options) {
  const bool is_on_device = options.model.backend == "cuda";
  const std::string list = "," + options.exact_ops + ",";
  if (!options.exact_ops.empty() && list.find(",,") != std::string::npos)
    return invalid_argument("--exact-ops '" + options.exact_ops +
                            "': an empty name; expected names of ops with one comma between them, as linear,experts");
  if (!options.exact_ops.empty() && (!is_on_device || options.model.numerics != "fast"))
    return invalid_argument(
        "--exact-ops is for --backend cuda --numerics fast: every op takes exact rows elsewhere; leave it out");
  if (options.checks_memory && !is_on_device)
    return invalid_argument("--check-memory is for --backend cuda: leave it out, or use the asan build on the CPU");
  return {};
}

std::vector<std::string> exact_ops(const GenerateOptions& options) {
  std::vector<std::string> ops;
  for (size_t begin = 0; begin < options.exact_ops.size();) {
    const size_t end = std::min(options.exact_ops.find(',', begin), options.exact_ops.size());
    ops.push_back(options.exact_ops.substr(begin, end - begin));
    begin = end + 1;
  }
  return ops;
}

ReplayMode replay_mode(const ModelOptions& options) {
  if (options.replay == "off") return ReplayMode::kOff;
  return options.replay == "exact" || options.deterministic ? ReplayMode::kExact : ReplayMode::kFast;
}

void override_sampling(const GenerateOptions& options, SamplingParams& params) {
  if (options.temperature >= 0) params.temperature = static_cast<float>(options.temperature);
  if (options.top_p >= 0) params.top_p = static_cast<float>(options.top_p);
  if (options.top_k > 0) params.top_k = static_cast<int32_t>(options.top_k);
  if (options.seed >= 0) params.seed = static_cast<uint64_t>(options.seed);
  if (options.logprobs >= 0) params.top_logprobs = static_cast<int32_t>(options.logprobs);
}

Command generate_command() {
  const auto arguments = std::make_shared<GenerateOptions>();
  return {.name = "generate",
          .summary = "one completion to stdout",
          .examples =
              "  deepinfer generate --model checkpoint/ --prompt \"Why is the sky blue?\" --thinking off\n"
              "  deepinfer generate --model checkpoint/ --ids ids.json --max-tokens 64 --json\n",
          .declare = [arguments](OptionSet& options) { declare(options, *arguments); },
          .run =
              [arguments] {
                install_interrupt_handler();
                const bool is_batch = !arguments->chat_batch.empty();
                if (const Status status = check_prompt_options(arguments->prompt, is_batch); !status.ok()) {
                  fmt::print(stderr, "deepinfer generate: {}\n", status.message());
                  return 2;
                }
                if (const Status status = check_debug_options(*arguments); !status.ok()) {
                  fmt::print(stderr, "deepinfer generate: {}\n", status.message());
                  return 2;
                }
                if (is_batch) return exit_status(run_generate_batch(*arguments));
                return exit_status(run_generate(*arguments));
              }};
}

}  // namespace deepinfer
