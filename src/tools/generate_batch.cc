// SPDX-License-Identifier: MIT
// generate --chat-batch: one Chat Completions body a line in, one result a line out, all of them sharing steps.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "protocol/codec.h"
#include "serve/request_preparer.h"
#include "serve/sampling_of.h"
#include "serve/step_loop.h"
#include "tools/answer_reader.h"
#include "tools/engine_target.h"
#include "tools/generate_options.h"
#include "tools/interrupt.h"
#include "tools/progress.h"

namespace deepinfer {
namespace {

struct BatchItem {
  std::string id;
  std::string error;
  SamplingParams sampling;
  int64_t num_prompt_tokens = 0;
  std::vector<TokenId> tokens;
  std::unique_ptr<AnswerReader> answer;
  SequenceRecord record;
  bool is_done = false;
};

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

class BatchRun {
 public:
  BatchRun(const GenerateOptions& options, RequestPreparer& preparer, StepLoop& loop)
      : options_(options), preparer_(preparer), loop_(loop) {}

  void submit(std::string_view line, BatchItem& item) {
    DecodedRequest decoded;
    if (const Refusal refusal = find_codec("chat")->decode(line, decode_options_, decoded)) {
      refuse(item, refusal->message);
      return;
    }
    PreparedRequest prepared;
    if (const Refusal refusal = preparer_.prepare(std::move(decoded.chat), prepared)) {
      refuse(item, refusal->message);
      return;
    }
    prepared.sampling.seed = prepared.chat.inference.seed.value_or(0);  // a line gives what --chat gives for it
    override_sampling(options_, prepared.sampling);
    item.sampling = prepared.sampling;
    item.num_prompt_tokens = static_cast<int64_t>(prepared.tokens.size());
    item.answer = std::make_unique<AnswerReader>(preparer_.tokenizer(), &preparer_.vocabulary(), prepared.chat.parsing,
                                                 AnswerReader::OnPiece());
    LoopRequest request{.sampling = prepared.sampling, .images = std::move(prepared.images)};
    request.sequence.prompt = std::move(prepared.tokens);
    request.sequence.media = std::move(prepared.media);
    const int64_t room = preparer_.context_max() - item.num_prompt_tokens;
    request.sequence.max_output_tokens =
        std::min<int64_t>(options_.max_tokens > 0 ? options_.max_tokens : prepared.max_tokens, room);
    request.sequence.draft = options_.draft == "on";
    request.sequence.replay = replay_mode(options_.model);
    request.sequence.stop_ids = ending_ids(item.sampling);
    const auto id = loop_.submit(std::move(request), [this, &item](const LoopUpdate& update) { take(update, item); });
    if (!id.ok()) refuse(item, id.status().message());
  }

  int64_t num_done() const { return num_done_; }

 private:
  void refuse(BatchItem& item, const std::string& message) {
    item.error = message;
    item.is_done = true;
    ++num_done_;
  }

  void take(const LoopUpdate& update, BatchItem& item) {
    if (item.is_done) return;
    if (!update.refused.ok()) return refuse(item, update.refused.message());
    for (const TokenId token : update.tokens) {
      const bool ends = ends_sequence(item.sampling, token, static_cast<int64_t>(item.tokens.size()));
      item.tokens.push_back(token);
      if (item.answer->push(token, ends)) continue;
      loop_.cancel(update.id);  // a stop sequence or the end of the turn: nothing after it counts
      break;
    }
    if (!update.finished) return;
    if (!update.cause.ok()) item.error = update.cause.message();
    item.answer->finish(*update.finished == SequenceEnd::kLength ? BackendFinish::kLength : BackendFinish::kStop);
    if (update.record) item.record = *update.record;
    item.is_done = true;
    ++num_done_;
  }

  const GenerateOptions& options_;
  RequestPreparer& preparer_;
  StepLoop& loop_;
  DecodeOptions decode_options_;
  int64_t num_done_ = 0;
};

Json result_of(const BatchItem& item) {
  if (!item.error.empty()) return Json::Object{{"error", item.error}};
  const SequenceRecord& r = item.record;
  return Json::Object{
      {"prompt_tokens", item.num_prompt_tokens},
      {"token_ids", Json::Array(item.tokens.begin(), item.tokens.end())},
      {"text", item.answer->text},
      {"reasoning_content", item.answer->reasoning},
      {"tool_calls", item.answer->tool_calls},
      {"finish_reason", item.answer->finish_reason},
      {"draft",
       Json::Object{{"steps", r.num_steps - r.num_chunks}, {"drafted", r.num_verified}, {"accepted", r.num_accepted}}},
      {"cached_tokens", r.num_cached_tokens},
      {"timing", Json::Object{{"queue_s", static_cast<double>(r.admitted_ns - r.arrival_ns) * 1e-9},
                              {"prefill_s", static_cast<double>(r.first_token_ns - r.admitted_ns) * 1e-9},
                              {"decode_s", static_cast<double>(r.finished_ns - r.first_token_ns) * 1e-9}}}};
}

StepLoopOptions loop_options(const Engine& engine, const ModelConfig& config) {
  StepLoopOptions options;
  options.scheduler.num_lanes = engine.options().lanes_max;
  options.scheduler.rows_max = engine.options().rows_max;
  options.scheduler.queue_max = 1 << 20;
  options.scheduler.context_tokens_max = config.context_max;
  options.scheduler.num_drafts = config.draft.num_layers > 0 ? config.draft.block_size : 0;
  options.inbox_max = 1 << 20;
  return options;
}

}  // namespace

Status run_generate_batch(const GenerateOptions& options) {
  const SystemClock clock;
  ASSIGN_OR_RETURN(const Target target, engine_target(options.model));
  ASSIGN_OR_RETURN(const LoadedModel model, load_model(options.model.model));
  const ModelConfig& config = model.weights->config();
  ASSIGN_OR_RETURN(const std::string text, read_file(options.chat_batch));
  const std::vector<std::string_view> lines = split_lines(text);
  EngineOptions engine_options;
  engine_options.num_threads = static_cast<int>(options.model.num_threads);
  engine_options.has_thread = true;
  engine_options.target = target;
  engine_options.lanes_max = std::min<int64_t>(options.lanes, static_cast<int64_t>(std::max<size_t>(lines.size(), 1)));
  engine_options.rows_max =
      std::max(engine_options.rows_max, engine_options.lanes_max * (1 + config.draft.block_size));  // all may decode
  engine_options.logits_rows_max = engine_options.lanes_max * 16;
  engine_options.blocks_max = BlockTable::blocks_for(config.context_max) + 16 * engine_options.lanes_max;
  ASSIGN_OR_RETURN(const auto engine, Engine::open(model.weights, model.token_map, engine_options));
  ASSIGN_OR_RETURN(
      const auto preparer,
      RequestPreparer::create(model, target, static_cast<int>(options.model.num_threads), config.context_max));
  StepLoop loop(*engine, loop_options(*engine, config), clock);
  BatchRun run(options, *preparer, loop);
  std::vector<BatchItem> items(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) run.submit(lines[i], items[i]);
  Progress progress("generate", static_cast<int64_t>(lines.size()));
  size_t num_printed = 0;
  while (num_printed < items.size() && !interrupted()) {
    ASSIGN_OR_RETURN(const bool ran, loop.run_step());
    for (; num_printed < items.size() && items[num_printed].is_done; ++num_printed)
      fmt::print("{}\n", to_json(result_of(items[num_printed])));
    if (std::fflush(stdout) != 0) return {};  // nobody reads on; the command line says so
    progress.advance_to(run.num_done());
    if (!ran && run.num_done() < static_cast<int64_t>(items.size()))
      continue;  // a cancelled one ends with the next call
  }
  return {};
}

}  // namespace deepinfer
