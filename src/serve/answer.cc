// SPDX-License-Identifier: MIT
#include "serve/answer.h"

#include <algorithm>
#include <utility>

#include "base/entropy.h"
#include "net/sse_writer.h"
#include "serve/explain_record.h"
#include "serve/grammar_masks.h"
#include "serve/request_error_of.h"
#include "serve/sampling_of.h"

namespace deepinfer {
namespace {

// A slow client's queue beyond which its tokens stay ids.
constexpr size_t kQueuedBytesMax = 256 << 10;

const char* finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength: return "length";
    case FinishReason::kToolCalls: return "tool_calls";
    case FinishReason::kContentFilter: return "content_filter";
    default: return "stop";
  }
}

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

Answer::Answer(AnswerSurroundings& surroundings, std::shared_ptr<HttpExchange> exchange, AnswerSetup setup)
    : around_(surroundings), exchange_(std::move(exchange)), setup_(std::move(setup)) {
  const uint32_t num_choices = setup_.request.chat.inference.n;
  const uint64_t call_id_seed = entropy_u64();
  for (uint32_t i = 0; i < num_choices; ++i) {
    StreamParserOptions options;
    options.parsing = setup_.request.chat.parsing;
    options.ignore_end_of_sentence = setup_.request.chat.inference.ignore_eos;
    options.call_id_seed = call_id_seed + i;
    Choice& choice = choices_.emplace_back();
    choice.parser = std::make_unique<StreamParser>(around_.vocabulary, options);
  }
  mail_.resize(num_choices);
  reading_.resize(num_choices);
  message_.role = Role::kAssistant;
}

void Answer::Mail::clear() {
  tokens.clear();
  logprobs.clear();
  were_drafts.clear();
  finished.reset();
  record.reset();
  refused = {};
  num_cached_tokens = 0;
}

void Answer::begin() {
  begin_ns_ = last_write_ns_ = around_.clock.monotonic_ns();
  const auto self = shared_from_this();
  exchange_->on_close([self] {
    self->cancel_all();
    self->end(499, "abort");
  });
  for (uint32_t i = 0; i < choices_.size() && !is_over_; ++i) submit(i);
  if (setup_.stream && !is_over_) exchange_->run_after(around_.keep_alive_ns, [self] { self->send_keep_alive(); });
}

void Answer::submit(uint32_t choice_idx) {
  const PreparedRequest& prepared = setup_.request;
  LoopRequest request;
  request.sampling = prepared.sampling;
  request.sampling.choice = choice_idx;
  request.images = prepared.images;
  request.masks = grammar_masks(prepared);
  request.sequence.prompt = prepared.tokens;
  request.sequence.media = prepared.media;
  request.sequence.tenant_salt = setup_.tenant_salt;
  request.ttl_class = setup_.ttl_class;
  request.tenant_was_deleted = setup_.tenant_was_deleted;
  request.pins = setup_.pins;
  request.sequence.max_output_tokens = prepared.max_tokens;
  request.sequence.stop_ids = ending_ids(prepared.sampling);
  request.sequence.replay = around_.replay;
  if (choice_idx > 0) request.sequence.prompt_of = choices_[0].id;  // the prompt is computed once for all choices
  auto id = around_.loop.submit(std::move(request), [self = shared_from_this(), choice_idx](const LoopUpdate& update) {
    self->take_update(choice_idx, update);
  });
  if (!id.ok()) return fail(request_error_of(id.status()));
  choices_[choice_idx].id = *id;
}

void Answer::take_update(uint32_t choice_idx, const LoopUpdate& update) {
  {
    const std::lock_guard lock(mutex_);
    Mail& mail = mail_[choice_idx];
    mail.tokens.insert(mail.tokens.end(), update.tokens.begin(), update.tokens.end());
    for (const TokenLogprobs& token : update.logprobs.first(std::min(update.logprobs.size(), update.tokens.size()))) {
      PositionLogprobs& position = mail.logprobs.emplace_back();
      position.logprob = static_cast<double>(token.logprob);
      for (const auto& [id, logprob] : token.likeliest) position.top.push_back({id, static_cast<double>(logprob)});
    }
    if (setup_.explains_tokens)  // a step gives the drafts that stand, then one more
      for (size_t i = 0; i < update.tokens.size(); ++i) mail.were_drafts.push_back(i + 1 < update.tokens.size());
    if (update.finished) mail.finished = update.finished;
    if (update.record) mail.record = *update.record;
    if (!update.refused.ok()) mail.refused = update.refused;
    mail.num_cached_tokens = update.num_cached_tokens;
    if (is_told_) return;
    is_told_ = true;
  }
  exchange_->post([self = shared_from_this()] { self->read_mail(); });
}

void Answer::read_mail() {
  if (is_over_ || waits_for_client_) return;
  if (is_streaming_ && exchange_->queued_bytes() > kQueuedBytesMax) {
    waits_for_client_ = true;
    exchange_->on_drained([self = shared_from_this()] {
      self->waits_for_client_ = false;
      self->read_mail();
    });
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    reading_.swap(mail_);
    is_told_ = false;
  }
  for (uint32_t i = 0; i < choices_.size() && !is_over_; ++i) read(i, reading_[i]);
  for (Mail& mail : reading_) mail.clear();
  if (is_over_) return;
  if (std::ranges::all_of(choices_, &Choice::is_done)) return complete();
  if (setup_.stream) send_events();
}

void Answer::read(uint32_t choice_idx, Mail& mail) {
  Choice& choice = choices_[choice_idx];
  if (mail.record) choice.record = mail.record;
  if (choice.is_done) return;
  if (!mail.refused.ok() && !mail.finished) return fail(request_error_of(mail.refused));
  if (mail.tokens.empty() && !mail.finished) return;
  events_.clear();
  if (!std::exchange(choice.has_begun, true))
    choice.parser->push_prompt({.num_prompt_tokens = setup_.request.tokens.size(),
                                .num_cached_tokens = static_cast<uint64_t>(mail.num_cached_tokens),
                                .has_fingerprint = true,
                                .fingerprint = around_.fingerprint},
                               events_);
  if (setup_.explains_tokens) tell_tokens(choice_idx, mail);
  // The token that ended the sequence is no part of the answer.
  if (mail.finished == SequenceEnd::kStop && !mail.tokens.empty()) {
    mail.tokens.pop_back();
    if (mail.logprobs.size() > mail.tokens.size()) mail.logprobs.pop_back();
  }
  const Status pushed = choice.parser->push_tokens(mail.tokens, mail.logprobs, events_);
  if (!pushed.ok()) return fail(request_error_of(pushed));
  if (choice.parser->is_finished()) {
    choice.is_done = true;
    choice.finish = finish_name(events_.finish.reason);
    if (!mail.finished) around_.loop.cancel(choice.id);
  } else if (mail.finished) {
    finish_choice(choice_idx, *mail.finished, mail.refused);
  }
  if (!is_over_) encode(choice_idx);
}

void Answer::finish_choice(uint32_t choice_idx, SequenceEnd end, const Status& refused) {
  Choice& choice = choices_[choice_idx];
  choice.is_done = true;
  switch (end) {
    case SequenceEnd::kStop: choice.parser->finish(BackendFinish::kStop, events_); break;
    case SequenceEnd::kLength: choice.parser->finish(BackendFinish::kLength, events_); break;
    case SequenceEnd::kCancelled:
      return fail(refused.ok() ? request_error(503, "The server is stopping.") : request_error_of(refused));
    case SequenceEnd::kDeadline: return fail(request_error(503, "The request's time was over."));
    case SequenceEnd::kNotFinite:
      return fail(request_error(500, "The model gave a value that is not a number; the answer cannot go on."));
    case SequenceEnd::kFailed:
      return fail(request_error(500, "The step that computed this answer was stopped; the answer cannot go on."));
    case SequenceEnd::kNothingAllowed:
      return fail(request_error(500, "The request's constraints left no token to choose from."));
  }
  choice.finish = finish_name(events_.finish.reason);
}

void Answer::encode(uint32_t choice_idx) {
  if (choices_[choice_idx].is_done) setup_.encoder->set_completed_s(around_.clock.unix_ns() / 1'000'000'000);
  if (setup_.keeps_reply && choice_idx == 0) keep_message(events_);
  setup_.encoder->encode(choice_idx, events_, wire_);
  if (!setup_.stream) wire_.clear();
}

void Answer::keep_message(const ChatEvents& events) {
  for (const ChatEvent& event : events.list) {
    const std::string_view text = events.text_of(event);
    switch (event.kind) {
      case ChatEventKind::kReasoning:
        if (!message_.reasoning) message_.reasoning.emplace();
        message_.reasoning->append(text);
        break;
      case ChatEventKind::kText: message_.content.text.append(text); break;
      case ChatEventKind::kToolCall:
        if (!message_.tool_calls) message_.tool_calls.emplace();
        message_.tool_calls->push_back({std::string(events.call_id_of(event)), std::string(text), ""});
        break;
      case ChatEventKind::kToolArguments: message_.tool_calls->back().arguments.append(text); break;
      default: break;
    }
  }
}

void Answer::start_stream() {
  if (std::exchange(is_streaming_, true)) return;
  HttpResponse head{200, setup_.fields, ""};
  head.fields.emplace_back("Content-Type", "text/event-stream; charset=utf-8");
  head.fields.emplace_back("Cache-Control", "no-store");
  head.fields.emplace_back("X-Accel-Buffering", "no");
  exchange_->start_stream(std::move(head));
}

// [choice, id, text, whether it was a draft, logprob or null] of each.
void Answer::tell_tokens(uint32_t choice_idx, const Mail& mail) {
  for (size_t i = 0; i < mail.tokens.size(); ++i)
    told_tokens_.push_back(Json::Array{static_cast<int64_t>(choice_idx), static_cast<int64_t>(mail.tokens[i]),
                                       around_.vocabulary.tokenizer->decode({&mail.tokens[i], 1}),
                                       static_cast<bool>(mail.were_drafts[i]),
                                       i < mail.logprobs.size() ? Json(mail.logprobs[i].logprob) : Json()});
}

void Answer::send_events() {
  if (wire_.list.empty()) return;
  frames_.clear();
  if (!told_tokens_.empty()) append_sse_comment(frames_, "x-tokens " + to_json(std::exchange(told_tokens_, {})));
  for (const WireEvent& event : wire_.list)
    append_sse_event(frames_, event.name ? event.name : "", wire_.data_of(event));
  wire_.clear();
  start_stream();
  last_write_ns_ = around_.clock.monotonic_ns();
  exchange_->write(frames_);
}

void Answer::send_keep_alive() {
  if (is_over_) return;
  const int64_t now_ns = around_.clock.monotonic_ns();
  if (now_ns - last_write_ns_ >= around_.keep_alive_ns / 2 && exchange_->queued_bytes() == 0) {
    start_stream();
    frames_.clear();
    append_sse_comment(frames_, "keep-alive");
    exchange_->write(frames_);
  }
  exchange_->run_after(around_.keep_alive_ns, [self = shared_from_this()] { self->send_keep_alive(); });
}

std::string Answer::explanation() const {
  Json::Array records;
  for (const Choice& choice : choices_) {
    SamplingParams sampling = setup_.request.sampling;
    sampling.choice = static_cast<uint32_t>(records.size());
    records.push_back(choice.record ? explain_record(*choice.record, sampling) : Json());
  }
  Json all = Json::Object{{"max_tokens", static_cast<int64_t>(setup_.request.max_tokens)},
                          {"constraint", setup_.request.grammar ? "grammar" : "none"},
                          {"choices", std::move(records)}};
  return to_json(all);
}

void Answer::complete() {
  std::string body;
  if (!setup_.stream || setup_.keeps_reply) setup_.encoder->append_final(body);
  if (setup_.stream) {
    send_events();
    frames_.clear();
    if (setup_.explains) append_sse_comment(frames_, "x-explain " + explanation());
    if (const std::string_view last = setup_.encoder->terminator(); !last.empty()) append_sse_event(frames_, "", last);
    start_stream();
    exchange_->write(frames_);
    exchange_->end_stream();
  } else {
    HttpResponse response{200, setup_.fields, body};
    response.fields.emplace_back("Content-Type", "application/json");
    if (setup_.explains) response.fields.emplace_back("x-explain", explanation());
    exchange_->respond(std::move(response));
  }
  end(200, choices_[0].finish, std::move(body));
}

void Answer::fail(const RequestError& error) {
  cancel_all();
  if (is_streaming_) {
    setup_.encoder->fail(error, wire_);
    send_events();
    exchange_->end_stream();
  } else {
    HttpResponse response{error.http_status, setup_.fields, setup_.error_body(error, false)};
    response.fields.emplace_back("Content-Type", "application/json");
    if (error.http_status == 503) response.fields.emplace_back("Retry-After", "1");
    exchange_->respond(std::move(response));
  }
  end(error.http_status, "error");
}

void Answer::cancel_all() {
  for (const Choice& choice : choices_)
    if (!choice.is_done && index(choice.id) != 0) around_.loop.cancel(choice.id);
}

void Answer::add_figures(const Choice& choice) {
  GenerationFigures figures;
  figures.finish = choice.finish;
  figures.num_prompt_tokens = static_cast<int64_t>(setup_.request.tokens.size());
  figures.num_output_tokens = static_cast<int64_t>(choice.parser->usage().num_output_tokens);
  figures.total_s = seconds(around_.clock.monotonic_ns() - begin_ns_);
  if (choice.record) {
    const SequenceRecord& r = *choice.record;
    if (r.admitted_ns > 0) figures.queue_s = seconds(r.admitted_ns - r.arrival_ns);
    if (r.first_token_ns > 0) figures.first_token_s = seconds(r.first_token_ns - r.arrival_ns);
    if (r.first_token_ns > 0 && figures.num_output_tokens > 1)
      figures.per_token_s =
          seconds(r.finished_ns - r.first_token_ns) / static_cast<double>(figures.num_output_tokens - 1);
  }
  around_.metrics.add_generation(figures);
}

void Answer::end(int http_status, const std::string& finish, std::string reply) {
  if (std::exchange(is_over_, true)) return;
  AnswerOutcome outcome;
  outcome.http_status = http_status;
  outcome.finish = finish;
  for (Choice& choice : choices_) {
    if (choice.finish.empty() || http_status != 200) choice.finish = finish;
    add_figures(choice);
    outcome.usage.num_prompt_tokens = setup_.request.tokens.size();
    outcome.usage.num_cached_tokens = choice.parser->usage().num_cached_tokens;
    outcome.usage.num_output_tokens += choice.parser->usage().num_output_tokens;
  }
  outcome.sequence = choices_[0].record;
  if (http_status == 200 && setup_.keeps_reply) {
    outcome.body = std::move(reply);
    outcome.message = std::move(message_);
  }
  if (auto on_end = std::exchange(setup_.on_end, nullptr)) on_end(outcome);
}

}  // namespace deepinfer
