// SPDX-License-Identifier: MIT
// A run is cut greedily from its start, so text that only grows at its end keeps its earlier chunks. The chunk before a
// cut also depends on what follows the line feed, which is why the cut is looked for in the whole run.
#include "tokenizer/conversation_cache.h"

#include "tokenizer/pre_tokenizer.h"

namespace deepinfer {
namespace {

constexpr size_t kChunkBytes = 2048;
constexpr size_t kRememberedBytesMin = 64;  // shorter texts encode as fast as they are looked up

}  // namespace

std::vector<TokenId> ConversationCache::encode(const Prompt& prompt) {
  ++turn_;
  num_bytes_encoded_ = 0;
  std::vector<TokenId> out;
  std::string joined;
  const std::vector<Prompt::Piece>& pieces = prompt.pieces;
  for (size_t i = 0; i < pieces.size();) {
    if (pieces[i].is_control) {
      out.push_back(pieces[i++].id);
      continue;
    }
    std::string_view run = pieces[i].text;
    if (i + 1 < pieces.size() && !pieces[i + 1].is_control) {
      joined.clear();
      for (; i < pieces.size() && !pieces[i].is_control; ++i) joined += pieces[i].text;
      run = joined;
    } else {
      ++i;
    }
    while (run.size() > kChunkBytes) {
      const size_t cut = next_safe_cut(run, kChunkBytes);
      if (cut == run.size()) break;
      encode_chunk(run.substr(0, cut), out);
      run.remove_prefix(cut);
    }
    encode_chunk(run, out);
  }
  std::erase_if(entries_, [&](const auto& entry) { return entry.second.turn != turn_; });
  return out;
}

void ConversationCache::encode_chunk(std::string_view chunk, std::vector<TokenId>& out) {
  if (chunk.size() < kRememberedBytesMin) {
    tokenizer_->encode(chunk, out);
    num_bytes_encoded_ += static_cast<int64_t>(chunk.size());
    return;
  }
  auto found = entries_.find(chunk);
  if (found == entries_.end()) {
    found = entries_.emplace(std::string(chunk), Entry{tokenizer_->encode(chunk), turn_}).first;
    num_bytes_encoded_ += static_cast<int64_t>(chunk.size());
  }
  found->second.turn = turn_;
  out.insert(out.end(), found->second.ids.begin(), found->second.ids.end());
}

int64_t ConversationCache::num_bytes_held() const {
  int64_t total = 0;
  for (const auto& [text, entry] : entries_)
    total += static_cast<int64_t>(text.size() + entry.ids.size() * sizeof(TokenId));
  return total;
}

}  // namespace deepinfer
