// SPDX-License-Identifier: MIT
// What stands behind the opaque handles of deepinfer_codec.h. Each keeps what it reads alive, so that handles may be
// freed in any order. Their threads are those of the header.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/c/deepinfer_codec.h"
#include "chat/output_vocabulary.h"
#include "chat/stream_parser.h"
#include "protocol/codec.h"
#include "protocol/encode_record.h"
#include "protocol/response_encoder.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// What requests and streams share.
struct CodecState {
  OutputVocabulary vocabulary;
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
