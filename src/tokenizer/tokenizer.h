// SPDX-License-Identifier: MIT
// Text to token ids and back: byte-level BPE as a tokenizer.json in the released form describes it. Ids equal those of
// the `tokenizers` library (specification: chat.md 1.2) for every valid UTF-8 text; bytes that are not UTF-8 are
// encoded as single unclassified code points and come back unchanged from token_bytes. Refuses files that ask for
// anything else (normalizers, other split patterns, dropout, byte fallback, stripping added tokens), naming what was
// found. Immutable after loading: any number of threads may use one object.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "tokenizer/prompt.h"

namespace deepinfer {

struct TokenizerParts;

class Tokenizer {
 public:
  // A tokenizer.json, the same as .json.gz, or a checkpoint folder that holds one of them.
  // Errors: not_found, invalid_argument (not a tokenizer we can run, with the JSON path), resource_exhausted (limits).
  static Result<std::shared_ptr<const Tokenizer>> load(const std::string& path);
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view json);
  ~Tokenizer();

  // Plain text: no added token is ever matched, so `<think>` is ordinary text. Linear in time up to a logarithm.
  // Precondition of every encode: less than 1 GiB of text.
  std::vector<TokenId> encode(std::string_view plain) const;
  void encode(std::string_view plain, std::vector<TokenId>& out) const;  // appends
  // Added tokens are matched first, leftmost and longest; for raw completion prompts by people only.
  std::vector<TokenId> encode_with_added(std::string_view text) const;
  // Control pieces give their ids, runs of text between them are encoded plain. With a pool, long prompts are cut at
  // places where no piece can span and encoded in parallel; the ids are the same for any pool, or none.
  std::vector<TokenId> encode(const Prompt& prompt, ThreadPool* pool = nullptr) const;

  // The bytes of all tokens, control tokens by their spelling, ill-formed UTF-8 as U+FFFD (one for each maximal
  // subpart). Ids outside the vocabulary give nothing.
  std::string decode(std::span<const TokenId> ids) const;
  // What the token stands for; empty for ids outside the vocabulary.
  std::string_view token_bytes(TokenId id) const;

  // Number of ids: all ids are in [0, vocab_size()). Gaps in a file are ids with empty bytes.
  int64_t vocab_size() const;
  // Added tokens of every kind (BOS, `<think>`, placeholders): plain text never encodes to one.
  bool is_control(TokenId id) const;
  // The `special` flag of an added token in the file.
  bool is_special(TokenId id) const;
  // The added token of that spelling.
  std::optional<TokenId> find_control(std::string_view spelling) const;
  // The same where absence is an error: not_found that names the spelling and the tokenizer's source.
  Result<TokenId> require_control(std::string_view spelling) const;
  // The token of exactly these bytes among the ordinary (not added) ones.
  std::optional<TokenId> find_token(std::string_view bytes) const;
  // Path it was loaded from, for messages.
  const std::string& source() const;

 private:
  explicit Tokenizer(std::unique_ptr<TokenizerParts> parts);
  std::unique_ptr<TokenizerParts> parts_;
};

}  // namespace deepinfer
