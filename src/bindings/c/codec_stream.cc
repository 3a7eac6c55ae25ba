// SPDX-License-Identifier: MIT
// deepinfer_codec.h: answers.
#include <fmt/format.h>

#include <functional>

#include "base/utf8.h"
#include "bindings/c/c_boundary.h"
#include "bindings/c/codec_handles.h"
#include "bindings/c/codec_settings.h"

using namespace deepinfer;

namespace {

// Forgets the events of the push before; the choice must exist.
Status begin_push(deepinfer_stream* stream, uint32_t choice) {
  if (stream == nullptr) return invalid_argument("stream is NULL");
  stream->events.clear();
  stream->wire.clear();
  if (choice < stream->parsers.size()) return {};
  return invalid_argument(fmt::format("choice: expected below {}, got {}", stream->parsers.size(), choice));
}

void end_push(deepinfer_stream& stream, uint32_t choice) {
  if (!stream.has_failed) stream.encoder->encode(choice, stream.events, stream.wire);
}

Status read_logprobs(const deepinfer_position_logprobs* positions, size_t num_ids, std::vector<PositionLogprobs>& out) {
  out.clear();
  for (size_t i = 0; positions != nullptr && i < num_ids; ++i) {
    const deepinfer_position_logprobs& from = positions[i];
    if (from.num_top > DEEPINFER_TOP_LOGPROBS_MAX) {
      return resource_exhausted(fmt::format("logprobs[{}]: {} alternatives, at most {} are accepted", i, from.num_top,
                                            DEEPINFER_TOP_LOGPROBS_MAX));
    }
    if (from.num_top > 0 && (from.top_ids == nullptr || from.top_logprobs == nullptr)) {
      return invalid_argument(fmt::format("logprobs[{}]: NULL with {} alternatives", i, from.num_top));
    }
    PositionLogprobs& to = out.emplace_back();
    to.logprob = from.logprob;
    for (size_t k = 0; k < from.num_top; ++k) to.top.push_back({from.top_ids[k], from.top_logprobs[k]});
  }
  return {};
}

std::unique_ptr<deepinfer_stream> make_stream(std::shared_ptr<const RequestState> request, StreamSettings settings) {
  auto stream = std::make_unique<deepinfer_stream>();
  const DecodedRequest& decoded = request->encoded.decoded;
  ResponseIdentity identity;
  identity.id = settings.response_id;
  identity.model = settings.model;
  identity.created_s = settings.created_s;
  identity.signature = settings.signature;
  identity.num_choices = decoded.chat.inference.n;
  stream->encoder = request->protocol->encode(decoded.response, identity);
  StreamParserOptions options;
  options.parsing = settings.parsing;
  options.recipe_compatible = decoded.response.recipe_compatible;
  options.ignore_end_of_sentence = decoded.chat.inference.ignore_eos;
  const uint64_t seed =
      settings.has_call_id_seed ? settings.call_id_seed : std::hash<std::string>()(settings.response_id);
  for (uint32_t i = 0; i < identity.num_choices; ++i) {
    options.call_id_seed = seed + i;
    stream->parsers.emplace_back(request->codec->vocabulary, options);
  }
  stream->request = std::move(request);
  return stream;
}

}  // namespace

deepinfer_code deepinfer_stream_new(const deepinfer_request* request, const char* settings, size_t size,
                                    deepinfer_stream** out, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = nullptr;
    if (request == nullptr) return invalid_argument("request is NULL");
    const EncodedRequest& encoded = request->state->encoded;
    if (encoded.refusal) return invalid_argument("the request is refused: " + encoded.refusal->message);
    const ChatRequest& chat = encoded.decoded.chat;
    ASSIGN_OR_RETURN(StreamSettings read, read_stream_settings(settings, size, chat.model, chat.parsing));
    *out = make_stream(request->state, std::move(read)).release();
    return {};
  });
}

void deepinfer_stream_free(deepinfer_stream* stream) { delete stream; }

deepinfer_code deepinfer_stream_push_prompt(deepinfer_stream* stream, uint64_t prompt_tokens, uint64_t cached_tokens,
                                            const char* fingerprint, size_t size, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    TRY(begin_push(stream, 0));
    ASSIGN_OR_RETURN(const std::string_view text,
                     text_argument("fingerprint", fingerprint, size, DEEPINFER_SETTINGS_BYTES_MAX));
    for (uint32_t choice = 0; choice < stream->parsers.size(); ++choice) {
      PromptReport report{prompt_tokens, cached_tokens, fingerprint != nullptr, to_valid_utf8(text)};
      stream->events.clear();
      stream->parsers[choice].push_prompt(std::move(report), stream->events);
      end_push(*stream, choice);
    }
    return {};
  });
}

deepinfer_code deepinfer_stream_push_ids(deepinfer_stream* stream, uint32_t choice, const int32_t* ids, size_t num_ids,
                                         const deepinfer_position_logprobs* logprobs, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    TRY(begin_push(stream, choice));
    ASSIGN_OR_RETURN(const std::span<const int32_t> list, ids_argument(ids, num_ids));
    TRY(read_logprobs(logprobs, num_ids, stream->logprobs));
    TRY(stream->parsers[choice].push_tokens(list, stream->logprobs, stream->events));
    end_push(*stream, choice);
    return {};
  });
}

deepinfer_code deepinfer_stream_push_text(deepinfer_stream* stream, uint32_t choice, const char* text, size_t size,
                                          uint64_t num_tokens, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    TRY(begin_push(stream, choice));
    ASSIGN_OR_RETURN(const std::string_view bytes, text_argument("text", text, size));
    stream->parsers[choice].push_text(bytes, num_tokens, stream->events);
    end_push(*stream, choice);
    return {};
  });
}

deepinfer_code deepinfer_stream_finish(deepinfer_stream* stream, uint32_t choice, int32_t finish,
                                       deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    TRY(begin_push(stream, choice));
    StreamParser& parser = stream->parsers[choice];
    switch (finish) {
      case DEEPINFER_FINISH_STOP: parser.finish(BackendFinish::kStop, stream->events); break;
      case DEEPINFER_FINISH_LENGTH: parser.finish(BackendFinish::kLength, stream->events); break;
      case DEEPINFER_FINISH_CONTENT_FILTER: parser.finish(BackendFinish::kContentFilter, stream->events); break;
      case DEEPINFER_FINISH_NONE: parser.finish_without_reason(stream->events); break;
      default: return invalid_argument(fmt::format("finish: expected 0 to 3, got {}", finish));
    }
    end_push(*stream, choice);
    return {};
  });
}

deepinfer_code deepinfer_stream_set_completed(deepinfer_stream* stream, int64_t completed, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (stream == nullptr) return invalid_argument("stream is NULL");
    if (completed < 0) return invalid_argument(fmt::format("completed: expected Unix seconds, got {}", completed));
    stream->encoder->set_completed_s(completed);
    return {};
  });
}

deepinfer_code deepinfer_stream_fail(deepinfer_stream* stream, int32_t http_status, const char* message, size_t size,
                                     deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    TRY(begin_push(stream, 0));
    if (stream->has_failed) return {};
    if (http_status < 400 || http_status > 599) {
      return invalid_argument(fmt::format("http_status: expected 400 to 599, got {}", http_status));
    }
    ASSIGN_OR_RETURN(const std::string_view text,
                     text_argument("message", message, size, DEEPINFER_SETTINGS_BYTES_MAX));
    RequestError failure;
    failure.http_status = http_status;
    failure.message = to_valid_utf8(text);
    stream->encoder->fail(failure, stream->wire);
    stream->has_failed = true;
    return {};
  });
}

size_t deepinfer_stream_num_events(const deepinfer_stream* stream) {
  return stream == nullptr ? 0 : stream->wire.list.size();
}

const char* deepinfer_stream_event_name(const deepinfer_stream* stream, size_t event_idx) {
  return event_idx < deepinfer_stream_num_events(stream) ? stream->wire.list[event_idx].name : nullptr;
}

deepinfer_view deepinfer_stream_event_data(const deepinfer_stream* stream, size_t event_idx) {
  if (event_idx >= deepinfer_stream_num_events(stream)) return view_of({});
  return view_of(stream->wire.data_of(stream->wire.list[event_idx]));
}

deepinfer_view deepinfer_stream_terminator(const deepinfer_stream* stream) {
  return stream == nullptr ? view_of({}) : view_of(stream->encoder->terminator());
}

uint32_t deepinfer_stream_num_choices(const deepinfer_stream* stream) {
  return stream == nullptr ? 0 : static_cast<uint32_t>(stream->parsers.size());
}

int32_t deepinfer_stream_is_finished(const deepinfer_stream* stream, uint32_t choice) {
  if (choice >= deepinfer_stream_num_choices(stream)) return 1;
  return stream->has_failed || stream->parsers[choice].is_finished() ? 1 : 0;
}

deepinfer_usage deepinfer_stream_usage(const deepinfer_stream* stream, uint32_t choice) {
  if (choice >= deepinfer_stream_num_choices(stream)) return {};
  const Usage& usage = stream->parsers[choice].usage();
  return {usage.num_prompt_tokens, usage.num_cached_tokens, usage.num_output_tokens, usage.num_reasoning_tokens};
}

deepinfer_code deepinfer_stream_final(const deepinfer_stream* stream, deepinfer_text* out, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = {};
    if (stream == nullptr) return invalid_argument("stream is NULL");
    std::string reply;
    stream->encoder->append_final(reply);
    return copy_to(reply, *out);
  });
}
