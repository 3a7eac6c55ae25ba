// SPDX-License-Identifier: MIT
// The encoder against BPE by its definition, on random merge lists over a few letters: every tie, overlap and
// unreachable token occurs there.
#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace deepinfer {
namespace {

struct RandomModel {
  TokenizerFile file;
  std::map<std::string, TokenId> ids;

  TokenId id_of(const std::string& bytes) {
    const auto [found, is_new] = ids.emplace(bytes, static_cast<TokenId>(ids.size()));
    if (is_new) file.tokens.push_back({found->second, bytes});
    return found->second;
  }
};

// `num_letters` letters; with `ordered` every merge makes a new token of tokens made before it.
RandomModel make_model(std::mt19937& rng, int num_letters, int num_merges, bool ordered) {
  RandomModel model;
  for (int byte = 0; byte < 256; ++byte)
    model.file.byte_tokens.push_back(model.id_of(std::string(1, static_cast<char>(byte))));
  std::vector<std::string> parts;
  for (int i = 0; i < num_letters; ++i) parts.emplace_back(1, static_cast<char>('a' + i));
  std::map<std::pair<TokenId, TokenId>, bool> pairs;
  for (int tries = 0; tries < 20 * num_merges && static_cast<int>(model.file.merges.size()) < num_merges; ++tries) {
    const std::string left = parts[rng() % parts.size()], right = parts[rng() % parts.size()];
    if (left.size() + right.size() > 12) continue;
    const bool is_known = model.ids.count(left + right) > 0;
    if (ordered && is_known) continue;
    if (!pairs.emplace(std::pair(model.id_of(left), model.id_of(right)), true).second) continue;
    model.file.merges.push_back({model.id_of(left), model.id_of(right), model.id_of(left + right)});
    if (!is_known) parts.push_back(left + right);
  }
  if (!ordered) std::shuffle(model.file.merges.begin(), model.file.merges.end(), rng);
  return model;
}

std::vector<TokenId> by_definition(const RandomModel& model, const std::string& text) {
  std::map<std::pair<TokenId, TokenId>, size_t> ranks;
  for (size_t i = 0; i < model.file.merges.size(); ++i)
    ranks.emplace(std::pair(model.file.merges[i].left, model.file.merges[i].right), i);
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(model.ids.at(std::string(1, c)));
  for (;;) {
    size_t best = SIZE_MAX, at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found == ranks.end() || found->second >= best) continue;
      best = found->second;
      at = i;
    }
    if (best == SIZE_MAX) return ids;
    ids[at] = model.file.merges[best].result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

void expect_definition(bool ordered, int num_models) {
  std::mt19937 rng(ordered ? 1 : 2);
  for (int round = 0; round < num_models; ++round) {
    const int num_letters = 1 + static_cast<int>(rng() % 3);
    const RandomModel model = make_model(rng, num_letters, 1 + static_cast<int>(rng() % 30), ordered);
    const Vocabulary vocabulary(model.file.tokens);
    const Bpe bpe(model.file, vocabulary);
    ASSERT_TRUE(!ordered || bpe.is_ordered());
    BpeScratch scratch;
    for (int i = 0; i < 30; ++i) {
      std::string text;
      const size_t size = 1 + rng() % 60;
      // Some texts are one letter repeated, which has its own path.
      const bool is_run = rng() % 4 == 0;
      while (text.size() < size)
        text.push_back(is_run && !text.empty() ? text[0] : static_cast<char>('a' + rng() % num_letters));
      const std::vector<TokenId> expected = by_definition(model, text);
      std::vector<TokenId> fast, defined;
      bpe.encode_piece(text, 0, text.size(), scratch, fast);
      bpe.encode_piece_by_definition(text, scratch, defined);
      ASSERT_EQ(defined, expected) << text << " model " << round;
      ASSERT_EQ(fast, expected) << text << " model " << round;
    }
  }
}

TEST(Bpe, FollowsTheDefinitionForOrderedMerges) { expect_definition(true, 2000); }
TEST(Bpe, FollowsTheDefinitionForAnyMergeList) { expect_definition(false, 2000); }

// A short piece is remembered; what it remembers must not leak to a longer or shorter one.
TEST(Bpe, TellsRememberedPiecesFromTheirPrefixes) {
  std::mt19937 rng(3);
  const RandomModel model = make_model(rng, 2, 20, true);
  const Vocabulary vocabulary(model.file.tokens);
  const Bpe bpe(model.file, vocabulary);
  BpeScratch scratch;
  const std::string zeros(16, '\0');
  for (int round = 0; round < 2; ++round) {
    for (size_t size = 1; size <= zeros.size(); ++size) {
      std::vector<TokenId> ids;
      bpe.encode_piece(zeros, 0, size, scratch, ids);
      EXPECT_EQ(ids.size(), size);
    }
  }
}

}  // namespace
}  // namespace deepinfer
