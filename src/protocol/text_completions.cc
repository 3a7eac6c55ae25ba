// SPDX-License-Identifier: MIT
#include "protocol/text_completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "protocol/error_body.h"
#include "protocol/request_body.h"
#include "protocol/sampling_rule.h"
#include "protocol/shape.h"
#include "protocol/stop_rule.h"
#include "protocol/structured_output.h"
#include "protocol/wire_json.h"

namespace deepinfer {
namespace {

constexpr uint64_t kDefaultMaxTokens = 16;  // OpenAI's

Refusal read_ids(const Json::Array& list, int64_t vocab_size, std::vector<TokenId>& out) {
  for (const Json& id : list) {
    if (!id.is_integer() || id.as_uint() >= static_cast<uint64_t>(vocab_size))
      return refuse(fmt::format("prompt[{}]: expected a token id below {}", out.size(), vocab_size), "prompt");
    out.push_back(static_cast<TokenId>(id.as_uint()));
  }
  return {};
}

Refusal read_prompt(Json& prompt, int64_t vocab_size, TextCompletionRequest& out) {
  if (prompt.is_string()) {
    out.prompt = std::move(prompt.as_string());
    return {};
  }
  Json::Array& list = prompt.as_array();
  if (list.size() == 1 && list[0].is_string()) {
    out.prompt = std::move(list[0].as_string());
    return {};
  }
  if (!list.empty() && list[0].is_string()) return refuse("one prompt per request is supported", "prompt");
  return read_ids(list, vocab_size, out.tokens.emplace());
}

Refusal check_unsupported(const Json& request) {
  if (flag_member(request, "echo") && member(request, "logprobs"))
    return refuse("logprobs of an echoed prompt are not supported", "logprobs");
  if (unsigned_member(request, "best_of").value_or(1) > 1) return refuse("best_of is not supported", "best_of");
  return {};
}

void read_beyond_openai(const Json& request, InferenceOptions& inference) {
  inference.min_p = float_member(request, "min_p");
  inference.repetition_penalty = float_member(request, "repetition_penalty");
  inference.min_tokens = static_cast<uint32_t>(unsigned_member(request, "min_tokens").value_or(0));
  inference.ignore_eos = flag_member(request, "ignore_eos");
}

// Where a token begins is counted in characters.
size_t num_characters(std::string_view bytes) {
  return static_cast<size_t>(std::ranges::count_if(bytes, [](char c) { return (c & 0xC0) != 0x80; }));
}

// OpenAI's older form: parallel lists.
class TextLogprobs {
 public:
  void add(const ChatEvents& events, Range range, size_t& offset) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      const TokenLogprob& token = events.logprobs[static_cast<size_t>(i)];
      for (std::string* list : {&tokens_, &values_, &tops_, &offsets_}) separate(*list);
      append_token_text(tokens_, token.bytes);
      append_json_double(values_, token.logprob);
      append_number(offsets_, uint64_t{offset});
      tops_ += '{';
      for (int64_t k = token.top.begin; k < token.top.end; ++k) {
        const TopLogprob& top = events.top_logprobs[static_cast<size_t>(k)];
        if (k > token.top.begin) tops_ += ',';
        append_token_text(tops_, top.bytes);
        tops_ += ':';
        append_json_double(tops_, top.logprob);
      }
      tops_ += '}';
      offset += num_characters(token.bytes);
    }
  }

  void append(std::string& out) const {
    if (tokens_.empty()) {
      out += "null";
      return;
    }
    out += "{\"tokens\":[" + tokens_ + "],\"token_logprobs\":[" + values_ + "],\"top_logprobs\":[" + tops_ +
           "],\"text_offset\":[" + offsets_ + "]}";
  }

 private:
  static void separate(std::string& list) {
    if (!list.empty()) list += ',';
  }
  std::string tokens_, values_, tops_, offsets_;
};

class TextCompletionsEncoder final : public ResponseEncoder {
 public:
  TextCompletionsEncoder(const ResponseContext& context, const ResponseIdentity& identity, std::string echo)
      : context_(context), identity_(identity), echo_(std::move(echo)), choices_(identity.num_choices) {
    for (Choice& choice : choices_) choice.offset = num_characters(echo_);
  }

  void encode(uint32_t choice_idx, const ChatEvents& events, WireEvents& out) override {
    Choice& choice = choices_[choice_idx];
    for (const ChatEvent& event : events.list) {
      const bool is_start = event.kind == ChatEventKind::kStart;
      if (is_start) fingerprint_ = events.prompt.fingerprint;
      const bool is_text = event.kind == ChatEventKind::kText || event.kind == ChatEventKind::kReasoning;
      if (is_start ? echo_.empty() : (!is_text && event.kind != ChatEventKind::kFinish)) continue;
      const std::string_view text = is_text ? events.text_of(event) : is_start ? echo_ : std::string_view();
      choice.text += text;
      TextLogprobs logprobs;
      if (is_text && !event.logprobs.empty()) {
        size_t offset = choice.offset;
        logprobs.add(events, event.logprobs, offset);
        choice.logprobs.add(events, event.logprobs, choice.offset);
      }
      if (event.kind == ChatEventKind::kFinish) finish(choice, events);
      out.open(nullptr);
      append_chunk(out.bytes, choice_idx, text, choice, logprobs);
      out.close();
    }
  }

  void fail(const RequestError& error, WireEvents& out) override {
    out.open(nullptr);
    out.bytes += openai_error_body(error, false);
    out.close();
  }

  void append_final(std::string& out) const override {
    append_head(out);
    out += ",\"choices\":[";
    for (uint32_t i = 0; i < choices_.size(); ++i) {
      if (i > 0) out += ',';
      append_choice(out, i, choices_[i].text, choices_[i], choices_[i].logprobs);
    }
    out += "],\"usage\":";
    append_usage(out);
    out += '}';
  }

  std::string_view terminator() const override { return "[DONE]"; }

 private:
  struct Choice {
    std::string text;
    TextLogprobs logprobs;
    size_t offset = 0;  // of the next token in the text
    const char* finish = nullptr;
    uint64_t num_output_tokens = 0;
  };

  void finish(Choice& choice, const ChatEvents& events) {
    choice.finish = events.finish.reason == FinishReason::kLength          ? "length"
                    : events.finish.reason == FinishReason::kContentFilter ? "content_filter"
                                                                           : "stop";
    choice.num_output_tokens = events.usage.num_output_tokens;
    usage_ = events.usage;
  }

  void append_head(std::string& out) const {
    out += "{\"id\":";
    append_json_string(out, identity_.id);
    out += ",\"object\":\"text_completion\",\"created\":";
    append_number(out, identity_.created_s);
    append_member(out, "model", identity_.model);
    append_member(out, "system_fingerprint", fingerprint_);
  }

  void append_choice(std::string& out, uint32_t idx, std::string_view text, const Choice& choice,
                     const TextLogprobs& logprobs) const {
    out += "{\"index\":";
    append_number(out, uint64_t{idx});
    append_member(out, "text", text);
    out += ",\"logprobs\":";
    logprobs.append(out);
    if (choice.finish) append_member(out, "finish_reason", choice.finish);
    else out += ",\"finish_reason\":null";
    out += '}';
  }

  void append_chunk(std::string& out, uint32_t idx, std::string_view text, const Choice& choice,
                    const TextLogprobs& logprobs) const {
    append_head(out);
    out += ",\"choices\":[";
    append_choice(out, idx, text, choice, logprobs);
    out += ']';
    if (choice.finish) {
      out += ",\"usage\":";
      append_usage(out);
    } else if (context_.include_usage) {
      out += ",\"usage\":null";
    }
    out += '}';
  }

  void append_usage(std::string& out) const {
    uint64_t num_output = 0;
    for (const Choice& choice : choices_) num_output += choice.num_output_tokens;
    out += fmt::format(
        "{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{},\"prompt_tokens_details\":"
        "{{\"cached_tokens\":{}}},\"prompt_cache_hit_tokens\":{},\"prompt_cache_miss_tokens\":{}}}",
        usage_.num_prompt_tokens, num_output, usage_.num_prompt_tokens + num_output, usage_.num_cached_tokens,
        usage_.num_cached_tokens, usage_.num_uncached_tokens());
  }

  ResponseContext context_;
  ResponseIdentity identity_;
  std::string echo_;
  std::vector<Choice> choices_;
  std::string fingerprint_;
  Usage usage_;  // of the choice that ended last: the prompt is the same for all
};

}  // namespace

namespace {

Shape make_shape() {
  constexpr bool kRequired = true;
  constexpr uint64_t kAny = UINT64_MAX, kId = INT32_MAX;
  std::vector<Shape::Field> fields = {
      {"model", Shape::text(), kRequired},
      {"prompt", Shape::either(Shape::text(), Shape::list(Shape::either(Shape::text(), Shape::unsigned_up_to(kId)))),
       kRequired},
      {"suffix", Shape::text()},
      {"max_tokens", Shape::unsigned_up_to(kAny)},
      {"temperature", Shape::number()},
      {"top_p", Shape::number()},
      {"top_k", Shape::signed_integer()},
      {"min_p", Shape::number()},
      {"presence_penalty", Shape::number()},
      {"frequency_penalty", Shape::number()},
      {"repetition_penalty", Shape::number()},
      {"min_tokens", Shape::unsigned_up_to(UINT32_MAX)},
      {"ignore_eos", Shape::boolean()},
      {"n", Shape::unsigned_up_to(kAny)},
      {"best_of", Shape::unsigned_up_to(kAny)},
      {"logprobs", Shape::unsigned_up_to(UINT8_MAX)},
      {"echo", Shape::boolean()},
      {"seed", Shape::unsigned_up_to(kAny)},
      {"stop", Shape::either(Shape::text(), Shape::list(Shape::text()))},
      {"stream", Shape::boolean()},
      {"stream_options", Shape::record({{"include_usage", Shape::boolean()}})},
      {"user", Shape::text()}};
  for (Shape::Field& field : structured_output_fields()) fields.push_back(std::move(field));
  return Shape::record(std::move(fields));
}

}  // namespace

const Shape& text_completions_shape() {
  static const Shape shape = make_shape();
  return shape;
}

Refusal decode_text_completion(std::string_view body, const DecodeOptions& options, int64_t vocab_size,
                               TextCompletionRequest& out) {
  Json request;
  REFUSE_IF(read_body(body, text_completions_shape(), options, request));
  REFUSE_IF(choose_model(request, options, out.chat));
  REFUSE_IF(check_unsupported(request));
  REFUSE_IF(read_prompt(*request.find("prompt"), vocab_size, out));
  out.suffix = take_optional_text(request, "suffix");
  if (out.suffix && out.tokens) return refuse("suffix goes with a text prompt", "suffix");
  ChatRequest& chat = out.chat;
  chat.conversation.thinking = false;
  chat.user = take_text(request, "user");
  chat.stream = flag_member(request, "stream");
  REFUSE_IF(read_stop_sequences(request.find("stop"), chat.parsing.stop_sequences));
  SamplingWish wish;
  wish.n = unsigned_member(request, "n");
  wish.presence_penalty = float_member(request, "presence_penalty");
  wish.frequency_penalty = float_member(request, "frequency_penalty");
  wish.temperature = float_member(request, "temperature");
  wish.top_p = float_member(request, "top_p");
  wish.max_tokens = unsigned_member(request, "max_tokens").value_or(kDefaultMaxTokens);
  wish.seed = unsigned_member(request, "seed");
  wish.top_logprobs = unsigned_member(request, "logprobs");
  wish.logprobs = wish.top_logprobs.has_value();
  REFUSE_IF(settle_sampling(wish, options, "max_tokens", chat));
  REFUSE_IF(read_top_k(request, chat.inference));
  read_beyond_openai(request, chat.inference);
  REFUSE_IF(read_structured_output(request, options.limits, chat));
  chat.parsing.keep_leading_newlines = true;
  out.response.stream = chat.stream;
  out.response.thinking = false;
  out.echo = flag_member(request, "echo");
  if (const Json* stream = member(request, "stream_options"))
    out.response.include_usage = flag_member(*stream, "include_usage");
  return {};
}

std::unique_ptr<ResponseEncoder> make_text_completions_encoder(const ResponseContext& context,
                                                               const ResponseIdentity& identity, std::string echo) {
  return std::make_unique<TextCompletionsEncoder>(context, identity, std::move(echo));
}

}  // namespace deepinfer
