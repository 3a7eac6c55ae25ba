// SPDX-License-Identifier: MIT
#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/file.h"
#include "base/utf8.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/vocabulary.h"

namespace deepinfer {
namespace {

// Lent to one encoding call at a time, so their number is that of the threads that ever encoded at once. A thread gets
// the one it used last where it can: the memory is in its cache.
class ScratchPool {
 public:
  std::unique_ptr<BpeScratch> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto chosen = std::find_if(idle_.begin(), idle_.end(),
                                   [](const Idle& idle) { return idle.user == std::this_thread::get_id(); });
        if (chosen == idle_.end()) --chosen;
        std::unique_ptr<BpeScratch> scratch = std::move(chosen->scratch);
        idle_.erase(chosen);
        return scratch;
      }
    }
    return std::make_unique<BpeScratch>();
  }
  void give_back(std::unique_ptr<BpeScratch> scratch) {
    static constexpr size_t kKeptBytesMax = size_t{2} << 20;  // one huge piece must not hold its memory for ever
    if (scratch->num_bytes() > kKeptBytesMax) return;
    const std::lock_guard lock(mutex_);
    idle_.push_back({std::this_thread::get_id(), std::move(scratch)});
  }

 private:
  struct Idle {
    std::thread::id user;
    std::unique_ptr<BpeScratch> scratch;
  };
  std::mutex mutex_;
  std::vector<Idle> idle_;
};

constexpr size_t kParallelBytesMin = 32 << 10;  // below, waking a thread costs more than it saves
constexpr size_t kChunkBytes = 16 << 10;
constexpr size_t kBytesPerTokenGuess = 3;

constexpr int kGroupsPerThread = 6;  // enough to even out, few enough to stay large

struct Chunk {
  std::string_view text;
  TokenId control = -1;
};

// Runs of plain text (neighbouring pieces joined) cut at safe places of about kChunkBytes, control tokens between them.
// `joined` owns runs that had to be copied.
std::vector<Chunk> chunks_of(const Prompt& prompt, size_t chunk_bytes,
                             std::vector<std::unique_ptr<std::string>>& joined) {
  std::vector<Chunk> chunks;
  const std::vector<Prompt::Piece>& pieces = prompt.pieces;
  for (size_t i = 0; i < pieces.size();) {
    if (pieces[i].is_control) {
      chunks.push_back({{}, pieces[i].id});
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < pieces.size() && !pieces[end].is_control) ++end;
    std::string_view run = pieces[i].text;
    if (end - i > 1) {
      joined.push_back(std::make_unique<std::string>());
      for (; i < end; ++i) *joined.back() += pieces[i].text;
      run = *joined.back();
    }
    i = end;
    while (run.size() > chunk_bytes) {
      const size_t cut = next_safe_cut(run, chunk_bytes);
      if (cut == run.size()) break;
      chunks.push_back({run.substr(0, cut)});
      run.remove_prefix(cut);
    }
    if (!run.empty()) chunks.push_back({run});
  }
  return chunks;
}

Result<std::string> file_of(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.json.gz"}) {
    const std::string file = path + "/" + name;
    if (std::filesystem::exists(file, ignored)) return file;
  }
  return not_found(fmt::format("{}: no tokenizer.json in this folder", path));
}

}  // namespace

struct TokenizerParts {
  explicit TokenizerParts(TokenizerFile file)
      : vocabulary(file.tokens), bpe(file, vocabulary), added(std::move(file.added)) {
    for (const TokenizerFile::Added& token : added.all()) controls.emplace(token.content, token.id);
  }

  void encode(std::string_view text, std::vector<TokenId>& out) const {
    std::unique_ptr<BpeScratch> own = scratch.take();
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = piece_end(text, begin);
      bpe.encode_piece(text, begin, end, *own, out);
      begin = end;
    }
    scratch.give_back(std::move(own));
  }

  void encode_chunk(const Chunk& chunk, std::vector<TokenId>& out) const {
    if (chunk.control >= 0) out.push_back(chunk.control);
    else encode(chunk.text, out);
  }

  // Groups of chunks of about equal bytes, a vector each: many small vectors would contend for the allocator, and the
  // ids are copied to their places by all threads too.
  std::vector<TokenId> encode_parallel(std::span<const Chunk> chunks, ThreadPool& pool) const {
    size_t num_bytes = 0;
    for (const Chunk& chunk : chunks) num_bytes += chunk.text.size() + 1;
    const size_t group_bytes = num_bytes / static_cast<size_t>(kGroupsPerThread * pool.num_threads()) + 1;
    std::vector<std::span<const Chunk>> groups;
    for (size_t begin = 0, end = 0; begin < chunks.size(); begin = end) {
      size_t bytes = 0;
      while (end < chunks.size() && bytes < group_bytes) bytes += chunks[end++].text.size() + 1;
      groups.push_back(chunks.subspan(begin, end - begin));
    }
    std::vector<std::vector<TokenId>> ids(groups.size());
    pool.parallel_for(static_cast<int64_t>(groups.size()), [&](int64_t i) {
      ids[i].reserve(group_bytes / kBytesPerTokenGuess);
      for (const Chunk& chunk : groups[i]) encode_chunk(chunk, ids[i]);
    });
    std::vector<size_t> begins;
    size_t num_ids = 0;
    for (const auto& part : ids) {
      begins.push_back(num_ids);
      num_ids += part.size();
    }
    std::vector<TokenId> out(num_ids);
    pool.parallel_for(static_cast<int64_t>(ids.size()),
                      [&](int64_t i) { std::copy(ids[i].begin(), ids[i].end(), out.begin() + begins[i]); });
    return out;
  }

  Vocabulary vocabulary;
  Bpe bpe;
  AddedTokens added;
  std::unordered_map<std::string_view, TokenId> controls;  // views the contents in `added`
  std::string source = "tokenizer.json";
  mutable ScratchPool scratch;
};

Tokenizer::Tokenizer(std::unique_ptr<TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string file, file_of(path));
  ASSIGN_OR_RETURN(const std::string json, read_file(file, TokenizerLimits().bytes_max));
  auto read = read_tokenizer_json(json);
  if (!read.ok()) return read.status().prefixed(file);
  auto parts = std::make_unique<TokenizerParts>(std::move(*read));
  parts->source = file;
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view json) {
  ASSIGN_OR_RETURN(TokenizerFile file, read_tokenizer_json(json));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::make_unique<TokenizerParts>(std::move(file))));
}

std::vector<TokenId> Tokenizer::encode(std::string_view plain) const {
  std::vector<TokenId> out;
  encode(plain, out);
  return out;
}

void Tokenizer::encode(std::string_view plain, std::vector<TokenId>& out) const { parts_->encode(plain, out); }

std::vector<TokenId> Tokenizer::encode_with_added(std::string_view text) const {
  std::vector<TokenId> out;
  for (const AddedTokens::Span& span : parts_->added.split(text)) {
    if (span.id >= 0) out.push_back(span.id);
    else parts_->encode(span.text, out);
  }
  return out;
}

std::vector<TokenId> Tokenizer::encode(const Prompt& prompt, ThreadPool* pool) const {
  size_t num_bytes = 0;
  for (const Prompt::Piece& piece : prompt.pieces) num_bytes += piece.is_control ? 0 : piece.text.size();
  const bool is_parallel = pool != nullptr && pool->num_threads() > 1 && num_bytes >= kParallelBytesMin;
  std::vector<std::unique_ptr<std::string>> joined;
  const std::vector<Chunk> chunks = chunks_of(prompt, is_parallel ? kChunkBytes : SIZE_MAX, joined);
  std::vector<TokenId> out;
  if (!is_parallel) {
    out.reserve(num_bytes / kBytesPerTokenGuess + chunks.size());
    for (const Chunk& chunk : chunks) parts_->encode_chunk(chunk, out);
    return out;
  }
  return parts_->encode_parallel(chunks, *pool);
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string bytes;
  for (const TokenId id : ids) bytes += token_bytes(id);
  return is_valid_utf8(bytes) ? bytes : to_valid_utf8(bytes);
}

std::string_view Tokenizer::token_bytes(TokenId id) const { return parts_->vocabulary.bytes(id); }
int64_t Tokenizer::vocab_size() const { return parts_->vocabulary.size(); }
bool Tokenizer::is_control(TokenId id) const { return parts_->vocabulary.is_control(id); }
bool Tokenizer::is_special(TokenId id) const { return parts_->vocabulary.is_special(id); }
std::optional<TokenId> Tokenizer::find_token(std::string_view bytes) const { return parts_->vocabulary.find(bytes); }
const std::string& Tokenizer::source() const { return parts_->source; }

std::optional<TokenId> Tokenizer::find_control(std::string_view spelling) const {
  const auto found = parts_->controls.find(spelling);
  if (found == parts_->controls.end()) return std::nullopt;
  return found->second;
}

Result<TokenId> Tokenizer::require_control(std::string_view spelling) const {
  if (const std::optional<TokenId> id = find_control(spelling)) return *id;
  return not_found(
      fmt::format("{}: no control token {}: expected an added token of that spelling", parts_->source, spelling));
}

}  // namespace deepinfer
