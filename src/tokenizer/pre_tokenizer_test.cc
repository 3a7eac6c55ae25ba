// SPDX-License-Identifier: MIT
// Pieces worked out by hand from the patterns (specification: chat.md 1.2).
#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace deepinfer {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces_of(std::string_view text) {
  Pieces pieces;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = piece_end(text, begin);
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

TEST(PreTokenizer, GroupsNumbersByThreeCodePoints) {
  EXPECT_EQ(pieces_of("1234567"), (Pieces{"123", "456", "7"}));
  EXPECT_EQ(pieces_of("٣𝟘Ⅷ②"), (Pieces{"٣𝟘Ⅷ", "②"}));
  EXPECT_EQ(pieces_of("x12y"), (Pieces{"x", "12", "y"}));
}

TEST(PreTokenizer, StopsLookAheadAtNumbersAndHan) {
  EXPECT_EQ(pieces_of("a  1"), (Pieces{"a", "  ", "1"}));
  EXPECT_EQ(pieces_of("a  b"), (Pieces{"a", " ", " b"}));
  EXPECT_EQ(pieces_of("a  中b"), (Pieces{"a", "  ", "中", "b"}));
  EXPECT_EQ(pieces_of("a \t"), (Pieces{"a", " \t"}));
}

TEST(PreTokenizer, SplitsHanTextByCategory) {
  EXPECT_EQ(pieces_of("テ・ス゛゜か"), (Pieces{"テ", "・", "ス", "゛゜", "か"}));
  EXPECT_EQ(pieces_of("\u3040\u3040か\u3040"), (Pieces{"\u3040", "\u3040か", "\u3040"}));
  EXPECT_EQ(pieces_of("か\u3099な"), (Pieces{"か\u3099な"}));
  EXPECT_EQ(pieces_of("漢\u9FA6字"), (Pieces{"漢", "\u9FA6", "字"}));  // U+9FA6 lies outside the range
}

TEST(PreTokenizer, TakesOneAsciiPunctuationIntoAnAsciiWord) {
  EXPECT_EQ(pieces_of("<think>"), (Pieces{"<think", ">"}));
  EXPECT_EQ(pieces_of("don't"), (Pieces{"don", "'t"}));
  EXPECT_EQ(pieces_of("..x"), (Pieces{"..", "x"}));
  EXPECT_EQ(pieces_of(" .x"), (Pieces{" .", "x"}));
  EXPECT_EQ(pieces_of("｜DSML"), (Pieces{"｜", "DSML"}));
  EXPECT_EQ(pieces_of(".xé"), (Pieces{".x", "é"}));
}

TEST(PreTokenizer, KeepsLineBreaksWithThePunctuationBeforeThem) {
  EXPECT_EQ(pieces_of(">;\n\r\n x"), (Pieces{">;\n\r\n", " x"}));
  EXPECT_EQ(pieces_of(".\n\n<"), (Pieces{".\n\n", "<"}));
}

TEST(PreTokenizer, EndsWhiteSpaceAtItsLastLineBreak) {
  EXPECT_EQ(pieces_of(" \t\n  \n  x"), (Pieces{" \t\n  \n", " ", " x"}));
  EXPECT_EQ(pieces_of("\u0085\u00A0x"), (Pieces{"\u0085", "\u00A0x"}));
  EXPECT_EQ(pieces_of("\t,"), (Pieces{"\t", ","}));
  EXPECT_EQ(pieces_of("  ,"), (Pieces{" ", " ,"}));
}

TEST(PreTokenizer, GathersWhatNothingMatches) {
  EXPECT_EQ(pieces_of("\u200D\u200D\u200Dab"), (Pieces{"\u200D\u200D", "\u200Dab"}));
  EXPECT_EQ(pieces_of("\u200D\uE000."), (Pieces{"\u200D\uE000", "."}));
  EXPECT_EQ(pieces_of("\x01x\uFEFF"), (Pieces{"\x01x", "\uFEFF"}));
  EXPECT_EQ(pieces_of("\xFF\xFFx\xE4\xB8"), (Pieces{"\xFF", "\xFFx", "\xE4\xB8"}));
}

// Wherever a text is cut safely, the pieces of the parts are the pieces of the whole; also without line feeds.
TEST(PreTokenizer, CutsSafelyWherePiecesBegin) {
  static constexpr const char* kParts[] = {"a",  " ",  "  ", "\n", "\r",     "1",      "22",   "中",      "文",
                                           "カ", "・", ".",  "é",  "\u0301", "\u200D", "\xFF", "\xE4\xB8"};
  std::mt19937 rng(5);
  for (int round = 0; round < 3000; ++round) {
    const bool with_lines = round % 2 == 0;
    std::string text;
    for (int i = 0; i < 40; ++i) {
      const std::string part = kParts[rng() % std::size(kParts)];
      if (with_lines || part != "\n") text += part;
    }
    if (round % 8 == 1) text += std::string(5000, 'x');
    const size_t cut = next_safe_cut(text, 1 + rng() % text.size());
    Pieces joined = pieces_of(std::string_view(text).substr(0, cut));
    for (std::string& piece : pieces_of(std::string_view(text).substr(cut))) joined.push_back(std::move(piece));
    ASSERT_EQ(joined, pieces_of(text)) << text << " cut at " << cut;
  }
}

TEST(PreTokenizer, FindsCutsInTextWithoutLineFeeds) {
  std::string text;
  while (text.size() < 20000) text += "这是一句话，";
  EXPECT_LT(next_safe_cut(text, 7), 40u);
  EXPECT_EQ(next_safe_cut(std::string(20000, 'x'), 7), 20000u);
}

}  // namespace
}  // namespace deepinfer
