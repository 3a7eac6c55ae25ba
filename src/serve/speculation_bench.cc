// SPDX-License-Identifier: MIT
// What drafting is worth to one stream: chat prompts of testdata/mini answered greedily by the embedded model on one
// thread, drafts on and off in turns. Decode time is the thread's CPU time from the first token on, so that other work
// on the machine does not count; the ceiling of the ratio is tokens per step. `--set prompts=FILE` names other bodies,
// `--set level=avx2` forces a level.
#include <fmt/format.h>

#include "base/bench.h"
#include "base/clock.h"
#include "base/file.h"
#include "engine/generation.h"
#include "protocol/codec.h"
#include "serve/request_preparer.h"
#include "serve/sampling_of.h"

namespace deepinfer {
namespace {

constexpr int64_t kLongReply = 20;  // tokens
constexpr int kRounds = 3;          // the quickest counts
constexpr int64_t kContext = 4096;

struct BenchPrompt {
  std::vector<TokenId> tokens;
  SamplingParams params;
};

struct Decoding {
  int64_t num_tokens = 0, num_steps = 0, num_drafted = 0, num_accepted = 0, cpu_ns = 0;

  void add(const Decoding& other) {
    num_tokens += other.num_tokens;
    num_steps += other.num_steps;
    num_drafted += other.num_drafted;
    num_accepted += other.num_accepted;
    cpu_ns += other.cpu_ns;
  }
  double rate() const {
    return 1e9 * static_cast<double>(num_tokens) / static_cast<double>(std::max<int64_t>(cpu_ns, 1));
  }
};

Result<std::vector<BenchPrompt>> read_prompts(const std::string& path, RequestPreparer& preparer) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  std::vector<BenchPrompt> prompts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    DecodedRequest decoded;
    PreparedRequest prepared;
    if (const Refusal refusal =
            find_codec("chat")->decode(std::string_view(text).substr(begin, end - begin), DecodeOptions(), decoded))
      return invalid_argument(path + ": " + refusal->message);
    if (const Refusal refusal = preparer.prepare(std::move(decoded.chat), prepared))
      return invalid_argument(path + ": " + refusal->message);
    prepared.sampling.temperature = 0;
    prompts.push_back({std::move(prepared.tokens), prepared.sampling});
    begin = end + 1;
  }
  return prompts;
}

// The first token belongs to the prompt's step, as does the first draft; the last draft is made in vain.
Result<Decoding> decode(Engine& engine, const BenchPrompt& prompt, bool drafts) {
  Decoding out;
  int64_t begin_ns = 0;
  const TokenSink sink = [&](TokenId) {
    if (begin_ns == 0) begin_ns = thread_cpu_ns();
    return true;
  };
  GenerationRequest request{.prompt = prompt.tokens, .params = prompt.params, .drafts = drafts};
  ASSIGN_OR_RETURN(const Generation generation, generate(engine, std::move(request), sink));
  out.cpu_ns = thread_cpu_ns() - begin_ns;
  out.num_tokens = static_cast<int64_t>(generation.tokens.size()) - 1;
  out.num_steps = generation.num_steps;
  out.num_drafted = generation.num_drafted;
  out.num_accepted = generation.num_accepted;
  return out;
}

void report_pair(BenchReport& report, const std::string& name, const Decoding& on, const Decoding& off) {
  const auto per_step = [&](int64_t number) { return static_cast<double>(number) / static_cast<double>(on.num_steps); };
  report.add({.name = name + ", drafts off", .value = off.rate(), .unit = "tokens/s"});
  report.add({.name = name + ", drafts on",
              .value = on.rate(),
              .unit = "tokens/s",
              .note = fmt::format("{:.2f} drafted, {:.2f} accepted a step, {:.2f} ms a step against {:.2f} ms",
                                  per_step(on.num_drafted), per_step(on.num_accepted),
                                  static_cast<double>(on.cpu_ns) * 1e-6 / static_cast<double>(on.num_steps),
                                  static_cast<double>(off.cpu_ns) * 1e-6 / static_cast<double>(off.num_steps))});
  report.add({.name = name + ", ratio",
              .value = on.rate() / off.rate(),
              .unit = "x",
              .ceiling = per_step(on.num_tokens),
              .ceiling_name = "tokens a step"});
}

}  // namespace

Status bench_speculation(const BenchOptions& options, BenchReport& report) {
  ASSIGN_OR_RETURN(const LoadedModel model, load_model(options.model.empty() ? "mini" : options.model));
  const auto level = options.extra.find("level");
  const Target target{Backend::kCpu, level == options.extra.end()
                                         ? fastest_cpu_level()
                                         : parse_cpu_level(level->second).value_or(fastest_cpu_level())};
  if (target.level > machine_cpu_level()) return unimplemented("--set level=: beyond what this machine offers");
  ASSIGN_OR_RETURN(const auto preparer, RequestPreparer::create(model, target, 1, kContext));
  const auto given = options.extra.find("prompts");
  ASSIGN_OR_RETURN(
      std::vector<BenchPrompt> prompts,
      read_prompts(given == options.extra.end() ? DEEPINFER_TESTDATA "/mini/chat_prompts.jsonl" : given->second,
                   *preparer));
  if (options.quick) prompts.resize(std::min<size_t>(prompts.size(), 10));
  EngineOptions engine_options;
  engine_options.num_threads = 1;
  engine_options.target = target;
  engine_options.lanes_max = 1;
  engine_options.logits_rows_max = 16;
  engine_options.blocks_max = BlockTable::blocks_for(kContext);
  ASSIGN_OR_RETURN(const auto engine, Engine::open(model.weights, model.token_map, engine_options));
  Decoding all[2], long_replies[2];
  for (const BenchPrompt& prompt : prompts) {
    Decoding best[2];
    for (int round = 0; round < kRounds; ++round)
      for (const bool drafts : {false, true}) {
        ASSIGN_OR_RETURN(const Decoding run, decode(*engine, prompt, drafts));
        if (round == 0 || run.cpu_ns < best[drafts].cpu_ns) best[drafts] = run;
      }
    for (const bool drafts : {false, true}) {
      all[drafts].add(best[drafts]);
      if (best[drafts].num_tokens >= kLongReply) long_replies[drafts].add(best[drafts]);
    }
  }
  report_pair(report, fmt::format("{} chat replies", prompts.size()), all[1], all[0]);
  if (long_replies[1].num_steps > 0)
    report_pair(report, fmt::format("replies of {} tokens and more", kLongReply), long_replies[1], long_replies[0]);
  return {};
}

}  // namespace deepinfer
