// SPDX-License-Identifier: MIT
// One generation being answered: tokens of the step loop through the stream parsers and the protocol's encoder to the
// client, streamed or whole. Tokens wait as ids while the client is slow, so a slow reader costs at most its
// max_tokens ids and holds up nobody. A client that goes away cancels its sequences at once.
// Thread: the connection's; the loop's thread only puts tokens into the mailbox.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "chat/stream_parser.h"
#include "net/http_exchange.h"
#include "protocol/response_encoder.h"
#include "serve/prepared_request.h"
#include "serve/service_metrics.h"
#include "serve/token_source.h"

namespace deepinfer {

// What all answers share; outlives them.
struct AnswerSurroundings {
  TokenSource& loop;
  const OutputVocabulary& vocabulary;
  ServiceMetrics& metrics;
  const Clock& clock;
  std::string fingerprint;
  int64_t keep_alive_ns = 10'000'000'000;  // of silence in a stream before a comment is sent
  ReplayMode replay = ReplayMode::kFast;
};

// What is known when it is over.
struct AnswerOutcome {
  int http_status = 200;
  std::string finish;                      // of the first choice: stop, length, tool_calls; or abort, error
  Usage usage;                             // all choices together
  std::string body;                        // the whole reply, where `keeps_reply` asked for it and it is complete
  Message message;                         // the same as a turn
  std::optional<SequenceRecord> sequence;  // of the first choice
};

struct AnswerSetup {
  PreparedRequest request;
  std::unique_ptr<ResponseEncoder> encoder;
  std::string (*error_body)(const RequestError& error, bool recipe_compatible) = nullptr;
  bool stream = false;
  bool explains = false;         // sends the explain record
  bool explains_tokens = false;  // a stream tells each token's id, text and whether it was a draft
  bool keeps_reply = false;      // fills AnswerOutcome::body and message
  std::string tenant_salt;
  TtlClass ttl_class = TtlClass::kChat;  // of what a store keeps of it
  bool tenant_was_deleted = false;       // as in LoopRequest, and the next
  std::optional<bool> pins;
  HttpFields fields;                                 // of the response
  std::function<void(const AnswerOutcome&)> on_end;  // once
};

class Answer : public std::enable_shared_from_this<Answer> {
 public:
  Answer(AnswerSurroundings& surroundings, std::shared_ptr<HttpExchange> exchange, AnswerSetup setup);
  void begin();

 private:
  // What the loop has said and the connection has not yet read.
  struct Mail {
    std::vector<TokenId> tokens;
    std::vector<PositionLogprobs> logprobs;
    std::vector<bool> were_drafts;  // with explains_tokens
    std::optional<SequenceEnd> finished;
    std::optional<SequenceRecord> record;
    Status refused;
    int64_t num_cached_tokens = 0;
    void clear();  // keeps the storage
  };
  struct Choice {
    SequenceId id{};
    std::unique_ptr<StreamParser> parser;
    std::optional<SequenceRecord> record;
    std::string finish;
    bool has_begun = false;  // the parser knows its prompt
    bool is_done = false;
  };

  void submit(uint32_t choice_idx);
  void take_update(uint32_t choice_idx, const LoopUpdate& update);  // the loop's thread
  void read_mail();
  void read(uint32_t choice_idx, Mail& mail);
  void finish_choice(uint32_t choice_idx, SequenceEnd end, const Status& refused);
  void encode(uint32_t choice_idx);
  void keep_message(const ChatEvents& events);
  void send_events();
  void start_stream();
  void send_keep_alive();
  void complete();
  void fail(const RequestError& error);
  void cancel_all();
  void end(int http_status, const std::string& finish, std::string reply = "");
  std::string explanation() const;
  void tell_tokens(uint32_t choice_idx, const Mail& mail);
  void add_figures(const Choice& choice);

  AnswerSurroundings& around_;
  std::shared_ptr<HttpExchange> exchange_;
  AnswerSetup setup_;
  std::vector<Choice> choices_;
  ChatEvents events_;
  WireEvents wire_;
  std::string frames_;
  Json::Array told_tokens_;    // since the last frames
  std::vector<Mail> reading_;  // what was the mailbox until a moment ago
  Message message_;
  int64_t begin_ns_ = 0;
  int64_t last_write_ns_ = 0;
  bool is_streaming_ = false;  // the head is out
  bool is_over_ = false;
  bool waits_for_client_ = false;

  std::mutex mutex_;  // guards what stands below
  std::vector<Mail> mail_;
  bool is_told_ = false;  // read_mail() is on its way
};

}  // namespace deepinfer
