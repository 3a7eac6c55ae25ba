// SPDX-License-Identifier: MIT
#include "protocol/response_replay.h"

#include <optional>
#include <utility>
#include <vector>

#include "chat/stream_parser.h"

namespace deepinfer {
namespace {

constexpr size_t kMaxChoices = 128;

Status unexpected(size_t chunk_idx, const std::string& what) {
  return invalid_argument("chunks[" + std::to_string(chunk_idx) + "]: " + what);
}

uint64_t number_or(const Json& object, std::string_view key, uint64_t fallback) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_integer() ? value->as_uint() : fallback;
}

class Replay {
 public:
  Replay(const OutputVocabulary& vocabulary, const Codec& codec, const DecodedRequest& request,
         const std::string& response_id) {
    ResponseIdentity identity;
    identity.id = response_id;
    identity.model = request.chat.model;
    identity.num_choices = request.chat.inference.n;
    encoder_ = codec.encode(request.response, identity);
    StreamParserOptions options;
    options.parsing = request.chat.parsing;
    options.recipe_compatible = request.response.recipe_compatible;
    options.ignore_end_of_sentence = request.chat.inference.ignore_eos;
    for (uint32_t i = 0; i < identity.num_choices; ++i) {
      options.call_id_seed = std::hash<std::string>()(response_id) + i;
      parsers_.emplace_back(vocabulary, options);
    }
    out_.events = "[";
  }

  Result<ReplayedResponse> run(const Json::Array& chunks) {
    for (size_t i = 0; i < chunks.size() && !is_finished(); ++i) {
      ++out_.num_chunks_read;
      TRY(push(i, chunks[i]));
    }
    for (size_t i = 0; i < parsers_.size(); ++i) {
      events_.clear();
      parsers_[i].finish_without_reason(events_);
      write(static_cast<uint32_t>(i));
    }
    out_.events += ']';
    encoder_->append_final(out_.final_object);
    return std::move(out_);
  }

 private:
  bool is_finished() const {
    for (const StreamParser& parser : parsers_) {
      if (!parser.is_finished()) return false;
    }
    return true;
  }

  Status push(size_t chunk_idx, const Json& chunk) {
    const uint64_t choice = number_or(chunk, "choice", 0);
    if (choice >= parsers_.size()) {
      return unexpected(chunk_idx,
                        "choice is " + std::to_string(choice) + ", expected below " + std::to_string(parsers_.size()));
    }
    StreamParser& parser = parsers_[choice];
    events_.clear();
    if (const Json* ready = chunk.find("ready")) {
      push_ready(*ready, parser);
    } else if (const Json* ids = chunk.find("ids")) {
      TRY(push_ids(chunk_idx, *ids, chunk.find("logprobs"), parser));
    } else if (const Json* text = chunk.find("text")) {
      if (!text->is_string()) return unexpected(chunk_idx, "text is no string");
      parser.push_text(text->as_string(), number_or(chunk, "tokens", 0), events_);
    } else if (const Json* finish = chunk.find("finish")) {
      TRY(push_finish(chunk_idx, *finish, parser));
    } else {
      return unexpected(chunk_idx, "expected one of ready, ids, text, finish");
    }
    write(static_cast<uint32_t>(choice));
    return {};
  }

  void push_ready(const Json& ready, StreamParser& parser) {
    PromptReport report;
    report.num_prompt_tokens = number_or(ready, "prompt_tokens", 0);
    report.num_cached_tokens = number_or(ready, "cache_hit", 0);
    const Json* fingerprint = ready.find("fingerprint");
    if (fingerprint != nullptr && fingerprint->is_string()) {
      report.has_fingerprint = true;
      report.fingerprint = fingerprint->as_string();
    }
    parser.push_prompt(std::move(report), events_);
  }

  Status push_ids(size_t chunk_idx, const Json& ids, const Json* logprobs, StreamParser& parser) {
    if (!ids.is_array()) return unexpected(chunk_idx, "ids is no array");
    ids_.clear();
    for (const Json& id : ids.as_array()) {
      if (id.kind() != Json::Kind::kInt || id.as_int() < 0 || id.as_int() > INT32_MAX) {
        return unexpected(chunk_idx, "ids holds what is no token id");
      }
      ids_.push_back(static_cast<TokenId>(id.as_int()));
    }
    logprobs_.clear();
    if (logprobs != nullptr && !logprobs->is_null()) {
      TRY(read_logprobs(chunk_idx, *logprobs));
      if (logprobs_.empty() && !ids_.empty()) return unexpected(chunk_idx, "logprobs is empty, ids is not");
    }
    return parser.push_tokens(ids_, logprobs_, events_);
  }

  Status read_logprobs(size_t chunk_idx, const Json& logprobs) {
    const auto form = [&] {
      return unexpected(chunk_idx, "logprobs: expected [[logprob, [[id, logprob], ...]], ...]");
    };
    const auto is_pair = [](const Json& value) { return value.is_array() && value.as_array().size() == 2; };
    if (!logprobs.is_array()) return form();
    for (const Json& entry : logprobs.as_array()) {
      if (!is_pair(entry) || !entry.as_array()[0].is_number() || !entry.as_array()[1].is_array()) return form();
      PositionLogprobs position;
      position.logprob = entry.as_array()[0].as_double();
      for (const Json& top : entry.as_array()[1].as_array()) {
        if (!is_pair(top) || top.as_array()[0].kind() != Json::Kind::kInt || !top.as_array()[1].is_number()) {
          return form();
        }
        position.top.push_back({static_cast<TokenId>(top.as_array()[0].as_int()), top.as_array()[1].as_double()});
      }
      logprobs_.push_back(std::move(position));
    }
    return {};
  }

  Status push_finish(size_t chunk_idx, const Json& finish, StreamParser& parser) {
    const std::string reason = finish.is_string() ? finish.as_string() : "";
    if (reason == "stop") {
      parser.finish(BackendFinish::kStop, events_);
    } else if (reason == "length") {
      parser.finish(BackendFinish::kLength, events_);
    } else if (reason == "content_filter") {
      parser.finish(BackendFinish::kContentFilter, events_);
    } else {
      return unexpected(chunk_idx, "finish: expected stop, length or content_filter, got \"" + reason + "\"");
    }
    return {};
  }

  void write(uint32_t choice_idx) {
    wire_.clear();
    encoder_->encode(choice_idx, events_, wire_);
    for (const WireEvent& event : wire_.list) {
      if (out_.events.size() > 1) out_.events += ',';
      if (event.name == nullptr) {
        out_.events += wire_.data_of(event);
        continue;
      }
      out_.events += "{\"event\":\"";
      out_.events += event.name;
      out_.events += "\",\"data\":";
      out_.events += wire_.data_of(event);
      out_.events += '}';
    }
  }

  std::unique_ptr<ResponseEncoder> encoder_;
  std::vector<StreamParser> parsers_;
  std::vector<TokenId> ids_;
  std::vector<PositionLogprobs> logprobs_;
  ChatEvents events_;
  WireEvents wire_;
  ReplayedResponse out_;
};

}  // namespace

Result<ReplayedResponse> replay_response(const OutputVocabulary& vocabulary, const Codec& codec,
                                         const DecodedRequest& request, const std::string& response_id,
                                         const Json& chunks) {
  if (!chunks.is_array()) return invalid_argument("chunks: expected an array");
  const uint32_t num_choices = request.chat.inference.n;
  if (num_choices < 1 || num_choices > kMaxChoices) return invalid_argument("n: expected 1 to 128");
  return Replay(vocabulary, codec, request, response_id).run(chunks.as_array());
}

}  // namespace deepinfer
