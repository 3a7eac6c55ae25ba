// SPDX-License-Identifier: MIT
// What stands behind the opaque handles of deepinfer_codec.h. Each keeps what it reads alive, so that handles may be
// freed in any order. Their threads are those of the header.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/c/deepinfer_codec.h"
#include "bindings/c/deepinfer_grammar.h"
#include "chat/output_vocabulary.h"
#include "chat/stream_parser.h"
#include "grammar/answer_grammar.h"
#include "grammar/matcher.h"
#include "protocol/codec.h"
#include "protocol/encode_record.h"
#include "protocol/response_encoder.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// A tokenizer's tables for masks, made for the first grammar. Any thread.
class GrammarTables {
 public:
  std::shared_ptr<const TokenIndex> index(const std::shared_ptr<const Tokenizer>& tokenizer);

 private:
  std::once_flag once_;
  std::shared_ptr<const TokenIndex> index_;
};

// What requests and streams share.
struct CodecState {
  OutputVocabulary vocabulary;
  std::shared_ptr<GrammarTables> tables;
  RecordEncoder encoder;
  DecodeOptions options;
  uint64_t context_limit;
};

struct RequestState {
  std::shared_ptr<const CodecState> codec;
  const Codec* protocol;
  EncodedRequest encoded;
  std::string error_body;  // of a refusal
};

}  // namespace deepinfer

struct deepinfer_tokenizer {
  std::shared_ptr<const deepinfer::Tokenizer> tokenizer;
  std::shared_ptr<deepinfer::GrammarTables> tables = std::make_shared<deepinfer::GrammarTables>();
};

struct deepinfer_grammar {
  std::shared_ptr<deepinfer::Grammar> grammar;
};

struct deepinfer_matcher {
  deepinfer::Matcher matcher;
};

struct deepinfer_detokenizer {
  std::shared_ptr<const deepinfer::Tokenizer> tokenizer;
  deepinfer::Detokenizer detokenizer;
  std::string text;
};

struct deepinfer_codec {
  std::shared_ptr<const deepinfer::CodecState> state;
};

struct deepinfer_request {
  std::shared_ptr<const deepinfer::RequestState> state;
};

struct deepinfer_stream {
  std::shared_ptr<const deepinfer::RequestState> request;
  std::unique_ptr<deepinfer::ResponseEncoder> encoder;
  std::vector<deepinfer::StreamParser> parsers;  // one a choice
  deepinfer::ChatEvents events;
  deepinfer::WireEvents wire;
  std::vector<deepinfer::PositionLogprobs> logprobs;
  bool has_failed = false;
};
