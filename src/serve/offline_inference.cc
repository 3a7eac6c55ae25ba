// SPDX-License-Identifier: MIT
#include "serve/offline_inference.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/host_room.h"
#include "protocol/codec.h"
#include "serve/explain_record.h"
#include "serve/grammar_masks.h"
#include "serve/sampling_of.h"

namespace deepinfer {
namespace {

constexpr int64_t kDefaultContext = 32'768;
constexpr int64_t kQueueMax = 1 << 20;
constexpr const char* kDefaultModel = "DeepSeek-V4.1-Flash";

EngineOptions engine_options(const LoadedModel& model, const OfflineOptions& options, int64_t context_max) {
  const ModelConfig& config = model.weights->config();
  EngineOptions engine;
  engine.target = options.target;
  engine.exact_ops = options.exact_ops;
  engine.checks_memory = options.checks_memory;
  engine.expert_bytes_max = model.expert_bytes_max;
  engine.num_threads = options.num_threads;
  engine.has_thread = true;  // the next step is planned while one runs
  engine.lanes_max = options.sequences_max;
  const int64_t run_rows_max = 1 + draft_run_max(config);
  engine.rows_max = std::max(engine.rows_max, options.sequences_max * run_rows_max);
  engine.logits_rows_max = options.sequences_max * run_rows_max;
  const int64_t kv_tokens =
      options.kv_tokens > 0 ? options.kv_tokens : context_max + (options.sequences_max - 1) * (context_max / 2);
  engine.blocks_max = BlockTable::blocks_for(std::max(kv_tokens, context_max) + run_rows_max);
  engine.context_max = context_max + run_rows_max;
  return engine;
}

StepLoopOptions loop_options(const Engine& engine, const OfflineOptions& options, int64_t context_max) {
  StepLoopOptions loop;
  const ModelConfig& config = engine.config();
  loop.scheduler.num_lanes = engine.options().lanes_max;
  loop.scheduler.rows_max = engine.options().rows_max;
  loop.scheduler.queue_max = loop.inbox_max = kQueueMax;
  loop.scheduler.context_tokens_max = context_max;
  loop.scheduler.num_drafts = draft_run_max(config);
  loop.scheduler.has_draft_head = options.drafts && config.draft.num_layers > 0;
  loop.scheduler.snapshots.bytes_max = options.snapshot_bytes_max > 0
                                           ? options.snapshot_bytes_max
                                           : engine.options().blocks_max * engine.cache_layout().block_bytes / 2;
  loop.num_host_blocks = BlockTable::blocks_for(options.host_kv_tokens);
  loop.tail_bytes_max = options.tail_bytes_max;
  return loop;
}

// The members of a prompt that is no conversation; the rest of its body is read as a conversation's.
struct RawPrompt {
  std::optional<std::string> text;
  std::optional<std::vector<TokenId>> tokens;
  bool is_given() const { return text || tokens; }
};

Refusal read_raw_prompt(Json& body, int64_t vocab_size, RawPrompt& out) {
  if (const Json* text = body.find("prompt")) {
    if (!text->is_string()) return refuse("expected a text", "prompt");
    out.text = text->as_string();
  }
  if (const Json* ids = body.find("prompt_token_ids")) {
    if (!ids->is_array()) return refuse("expected a list of token ids", "prompt_token_ids");
    for (const Json& id : ids->as_array()) {
      if (id.kind() != Json::Kind::kInt || id.as_int() < 0 || id.as_int() >= vocab_size)
        return refuse("expected token ids of 0 to " + std::to_string(vocab_size - 1), "prompt_token_ids");
      if (!out.tokens) out.tokens.emplace();
      out.tokens->push_back(static_cast<TokenId>(id.as_int()));
    }
    if (!out.tokens) return refuse("expected at least one token id", "prompt_token_ids");
  }
  if (!out.is_given()) return {};
  if (out.text && out.tokens) return refuse("expected a prompt or its token ids, not both", "prompt");
  if (body.find("messages")) return refuse("expected messages or a prompt, not both", "messages");
  std::erase_if(body.as_object(), [](const Json::Member& member) {
    return member.first == "prompt" || member.first == "prompt_token_ids";
  });
  // Nothing of this conversation is shown: it carries the options through the decoder.
  body.set("messages", Json::Array{Json::Object{{"role", "user"}, {"content", "x"}}});
  body.set("thinking", Json::Object{{"type", "disabled"}});
  return {};
}

Json logprobs_json(const std::vector<TokenId>& tokens, const std::vector<TokenLogprobs>& logprobs) {
  Json::Array all;
  for (size_t i = 0; i < logprobs.size(); ++i) {
    Json::Array top;
    for (const auto& [id, logprob] : logprobs[i].likeliest)
      top.push_back(Json::Object{{"token_id", id}, {"logprob", static_cast<double>(logprob)}});
    all.push_back(Json::Object{
        {"token_id", tokens[i]}, {"logprob", static_cast<double>(logprobs[i].logprob)}, {"top", std::move(top)}});
  }
  return all;
}

}  // namespace

OfflineInference::~OfflineInference() = default;

Result<std::unique_ptr<OfflineInference>> OfflineInference::open(LoadedModel model, const OfflineOptions& options,
                                                                 const Clock& clock) {
  std::unique_ptr<OfflineInference> made(new OfflineInference(std::move(model), options));
  const ModelConfig& config = made->model_.weights->config();
  const int64_t context_max =
      std::min(config.context_max, options.context_max > 0 ? options.context_max : kDefaultContext);
  ASSIGN_OR_RETURN(made->engine_, Engine::open(made->model_.weights, made->model_.token_map,
                                               engine_options(made->model_, options, context_max)));
  ASSIGN_OR_RETURN(made->preparer_,
                   RequestPreparer::create(made->model_, options.target, options.num_threads, context_max));
  TRY(check_host_room(*made->engine_, BlockTable::blocks_for(options.host_kv_tokens)));
  StepLoopOptions loop = loop_options(*made->engine_, options, context_max);
  loop.scheduler.model_revision = state_revision(*made->engine_, made->model_.revision);
  made->loop_ = std::make_unique<StepLoop>(*made->engine_, loop, clock);
  return made;
}

Refusal OfflineInference::prepare(std::string_view text, const Json::Object& overrides, PreparedRequest& out) {
  JsonLimits limits;
  limits.bytes_max = decode_options_.limits.body_bytes_max;
  auto parsed = parse_json(text, limits);
  if (!parsed.ok()) return refuse(parsed.status().message());
  Json body = std::move(parsed).value();
  if (!body.is_object()) return refuse("expected a JSON object");
  for (const auto& [name, value] : overrides) body.set(name, value);
  if (!body.find("model")) body.set("model", kDefaultModel);
  RawPrompt raw;
  REFUSE_IF(read_raw_prompt(body, preparer_->config().vocab_size, raw));
  DecodedRequest decoded;
  REFUSE_IF(find_codec("chat")->decode(to_json(body), decode_options_, decoded));
  if (!decoded.chat.inference.seed) decoded.chat.inference.seed = options_.default_seed;
  if (!raw.is_given()) return preparer_->prepare(std::move(decoded.chat), out);
  if (!raw.tokens) {
    raw.tokens.emplace({preparer_->config().bos_token_id});
    preparer_->tokenizer().encode(*raw.text, *raw.tokens);
  }
  for (const TokenId id : *raw.tokens)
    if (id == preparer_->config().image_token_id)
      return refuse("image placeholders need an image; use messages", "prompt");
  return preparer_->prepare_tokens(std::move(decoded.chat), std::move(*raw.tokens), out);
}

uint64_t OfflineInference::submit(std::string_view body, const Json::Object& overrides) {
  auto made = std::make_unique<Item>();
  Item& item = *made;
  item.id = next_id_++;
  items_.emplace(item.id, std::move(made));
  ++progress_.num_requests;
  PreparedRequest prepared;
  if (const Refusal refusal = prepare(body, overrides, prepared)) {
    item.error = refusal->message;
    item.param = refusal->param;
    const uint64_t id = item.id;
    finish(item);
    return id;
  }
  const uint64_t id = item.id;
  start(std::move(prepared), item);
  return id;
}

void OfflineInference::start(PreparedRequest prepared, Item& item) {
  item.prompt = prepared.tokens;
  progress_.num_prompt_tokens += static_cast<int64_t>(item.prompt.size());
  item.choices.resize(prepared.chat.inference.n);
  for (uint32_t i = 0; i < item.choices.size(); ++i) {
    Choice& choice = item.choices[i];
    choice.sampling = prepared.sampling;
    choice.sampling.choice = i;
    choice.reader = std::make_unique<AnswerReader>(preparer_->tokenizer(), &preparer_->vocabulary(),
                                                   prepared.chat.parsing, AnswerReader::OnPiece());
    LoopRequest request{.sampling = choice.sampling, .images = prepared.images};
    request.masks = grammar_masks(prepared);
    request.sequence.prompt = prepared.tokens;
    request.sequence.media = prepared.media;
    request.sequence.max_output_tokens = prepared.max_tokens;
    request.sequence.draft = options_.drafts;
    request.sequence.replay = options_.replay;
    request.sequence.stop_ids = ending_ids(choice.sampling);
    if (i > 0) request.sequence.prompt_of = item.choices[0].id;
    auto id = loop_->submit(std::move(request),
                            [this, &item, i](const LoopUpdate& update) { take(update, item, item.choices[i]); });
    if (id.ok()) {
      choice.id = *id;
      continue;
    }
    item.error = id.status().message();
    choice.is_done = true;
    if (++item.num_done == item.choices.size()) return finish(item);
  }
}

void OfflineInference::cancel(uint64_t id) {
  const auto at = items_.find(id);
  if (at == items_.end()) return;
  at->second->is_cancelled = true;
  for (const Choice& choice : at->second->choices)
    if (!choice.is_done) loop_->cancel(choice.id);
}

void OfflineInference::take(const LoopUpdate& update, Item& item, Choice& choice) {
  if (choice.is_done) return;
  item.num_cached_tokens = std::max(item.num_cached_tokens, update.num_cached_tokens);
  if (!update.refused.ok()) {
    item.error = update.refused.message();
    return end(item, choice, SequenceEnd::kCancelled);
  }
  for (size_t i = 0; i < update.tokens.size() && !choice.is_complete; ++i) {
    const TokenId token = update.tokens[i];
    const bool ends = ends_sequence(choice.sampling, token, static_cast<int64_t>(choice.tokens.size()));
    choice.tokens.push_back(token);
    if (i < update.logprobs.size()) choice.logprobs.push_back(update.logprobs[i]);
    ++progress_.num_output_tokens;
    if (choice.reader->push(token, ends)) continue;
    choice.is_complete = true;  // a stop sequence or the end of the turn: nothing after it counts
    if (!update.finished) loop_->cancel(update.id);
  }
  if (!update.finished) return;
  if (update.record) choice.record = *update.record;
  if (*update.finished == SequenceEnd::kNotFinite || *update.finished == SequenceEnd::kNothingAllowed)
    item.error = update.cause.ok() ? "the model gave no usable logits" : update.cause.message();
  end(item, choice, *update.finished);
}

void OfflineInference::end(Item& item, Choice& choice, SequenceEnd reason) {
  const bool is_cut = item.is_cancelled && !choice.is_complete && reason == SequenceEnd::kCancelled;
  choice.reader->finish(reason == SequenceEnd::kLength ? BackendFinish::kLength : BackendFinish::kStop);
  if (is_cut) choice.reader->finish_reason = "abort";
  choice.is_done = true;
  if (++item.num_done == item.choices.size()) finish(item);
}

void OfflineInference::finish(Item& item) {
  results_.push_back(result_of(item));
  ++progress_.num_done;
  items_.erase(item.id);
}

Json OfflineInference::result_of(const Item& item) const {
  if (!item.error.empty()) return Json::Object{{"id", item.id}, {"error", item.error}, {"param", item.param}};
  Json::Array choices;
  for (const Choice& choice : item.choices) {
    Json one = Json::Object{{"index", static_cast<int64_t>(choice.sampling.choice)},
                            {"token_ids", Json::Array(choice.tokens.begin(), choice.tokens.end())},
                            {"text", choice.reader->text},
                            {"reasoning_content", choice.reader->reasoning},
                            {"tool_calls", choice.reader->tool_calls},
                            {"finish_reason", choice.reader->finish_reason}};
    if (choice.sampling.top_logprobs) one.set("logprobs", logprobs_json(choice.tokens, choice.logprobs));
    one.set("explain", explain_record(choice.record, choice.sampling));
    choices.push_back(std::move(one));
  }
  return Json::Object{{"id", item.id},
                      {"prompt_token_ids", Json::Array(item.prompt.begin(), item.prompt.end())},
                      {"cached_tokens", item.num_cached_tokens},
                      {"choices", std::move(choices)}};
}

Result<bool> OfflineInference::step() {
  if (items_.empty()) return false;
  TRY(loop_->run_or_wait().status());
  return !items_.empty();
}

std::optional<Json> OfflineInference::take_result() {
  if (results_.empty()) return std::nullopt;
  Json result = std::move(results_.front());
  results_.pop_front();
  return result;
}

Json OfflineInference::describe() const {
  const EngineOptions& engine = engine_->options();
  return Json::Object{
      {"vocab_size", preparer_->config().vocab_size},
      {"context", preparer_->context_max()},
      {"sequences", engine.lanes_max},
      {"kv_tokens", engine.blocks_max * kBlockTokens},
      {"threads", static_cast<int64_t>(engine.num_threads > 0 ? engine.num_threads : num_usable_cpus())},
      {"memory_bytes", engine_->memory_bytes()},
      {"takes_images", preparer_->takes_images()},
      {"kernels", engine_->describe_kernels()}};
}

}  // namespace deepinfer
