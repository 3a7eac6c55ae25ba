// SPDX-License-Identifier: MIT
// Properties for any bytes: tokens give the bytes back; streaming equals the whole; a text may be cut at safe cuts; the
// fast encoder equals BPE by its definition; plain text never becomes a control token; the cache changes nothing.
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "base/fuzz.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/conversation_cache.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/released_tokenizer.h"

namespace deepinfer {
namespace {

struct Definition {
  TokenizerFile file = *read_tokenizer_json(*read_file(DEEPINFER_TESTDATA "/codec/tokenizer_v41.json.gz"));
  Vocabulary vocabulary{file.tokens};
  Bpe bpe{file, vocabulary};
  BpeScratch scratch;
};

std::vector<TokenId> by_definition(std::string_view text) {
  static Definition* definition = new Definition;
  std::vector<TokenId> ids;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = piece_end(text, begin);
    CHECK(end > begin && end <= text.size());
    definition->bpe.encode_piece_by_definition(text.substr(begin, end - begin), definition->scratch, ids);
    begin = end;
  }
  return ids;
}

void check_bytes(const Tokenizer& tokenizer, std::string_view text, const std::vector<TokenId>& ids) {
  std::string bytes, streamed;
  Detokenizer detokenizer(tokenizer);
  for (const TokenId id : ids) {
    CHECK(!tokenizer.is_control(id));
    bytes += tokenizer.token_bytes(id);
    detokenizer.push(id, streamed);
    CHECK(is_valid_utf8(streamed));
    CHECK(detokenizer.num_pending_bytes() < 4);
  }
  detokenizer.finish(streamed);
  CHECK(bytes == text);
  CHECK(streamed == to_valid_utf8(text));
  CHECK(tokenizer.decode(ids) == streamed);
}

}  // namespace

int fuzz_tokenizer(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Tokenizer& tokenizer = released_tokenizer();
  const std::vector<TokenId> ids = tokenizer.encode(text);
  check_bytes(tokenizer, text, ids);
  CHECK(ids == by_definition(text));
  check_bytes(model_a_tokenizer(), text, model_a_tokenizer().encode(text));

  std::vector<TokenId> cut_ids;
  for (size_t begin = 0; begin < size;) {
    const size_t cut = next_safe_cut(text, begin + 1);
    tokenizer.encode(text.substr(begin, cut - begin), cut_ids);
    begin = cut;
  }
  CHECK(cut_ids == ids);

  Prompt prompt;
  prompt.add_text(text.substr(0, size / 2));
  prompt.add_control(128803, "<｜User｜>");
  prompt.add_text(text.substr(size / 2));
  ConversationCache cache(shared_released_tokenizer());
  const std::vector<TokenId> prompt_ids = tokenizer.encode(prompt);
  CHECK(cache.encode(prompt) == prompt_ids);
  prompt.add_text(text);
  CHECK(cache.encode(prompt) == tokenizer.encode(prompt));
  std::string with_added;
  for (const TokenId id : tokenizer.encode_with_added(text)) with_added += tokenizer.token_bytes(id);
  CHECK(with_added == text);
  return 0;
}

}  // namespace deepinfer
