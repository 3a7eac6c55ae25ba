// SPDX-License-Identifier: MIT
// Engram against the specification's Appendix A, the unit vectors and model A, all recorded from the published
// reference.
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <cstring>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "engram/hasher.h"
#include "engram/table.h"

namespace deepinfer {
namespace {

// ---- golden files (safetensors; the real reader stands in a layer above)

std::vector<int64_t> golden(const std::string& file, const std::string& name) {
  const std::string bytes = read_file(std::string(DEEPINFER_TESTDATA) + file).value();
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const Json header = parse_json(std::string_view(bytes).substr(8, length)).value();
  const Json& tensor = *header.find(name);
  const size_t begin = 8 + length + tensor.find("data_offsets")->as_array()[0].as_uint();
  const size_t end = 8 + length + tensor.find("data_offsets")->as_array()[1].as_uint();
  const std::map<std::string, size_t> sizes = {{"I64", 8}, {"I32", 4}, {"U8", 1}};
  const size_t size = sizes.at(tensor.find("dtype")->as_string());
  std::vector<int64_t> out;
  for (size_t at = begin; at < end; at += size) {
    int64_t value = 0;
    std::memcpy(&value, bytes.data() + at, size);
    out.push_back(size == 4 ? static_cast<int32_t>(value) : value);
  }
  return out;
}

// ---- texts of a tokenizer.json

std::map<char32_t, char> byte_of_alphabet() {
  std::map<char32_t, char> out;
  char32_t next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    out[printable ? static_cast<char32_t>(b) : next++] = static_cast<char>(b);
  }
  return out;
}

std::string bytes_of_piece(std::string_view piece) {
  static const std::map<char32_t, char> alphabet = byte_of_alphabet();
  std::string out;
  while (!piece.empty()) {
    const CodePoint c = decode_utf8(piece);
    out.push_back(alphabet.at(c.value));
    piece.remove_prefix(c.num_bytes);
  }
  return out;
}

std::vector<TokenText> texts_of(const std::string& path) {
  const Json root = parse_json(read_file(path).value()).value();
  std::map<int64_t, TokenText> by_id;
  for (const auto& [piece, id] : root.find("model")->find("vocab")->as_object()) {
    by_id[id.as_int()] = {piece.find("｜") == std::string::npos ? to_valid_utf8(bytes_of_piece(piece)) : "", piece};
  }
  for (const Json& added : root.find("added_tokens")->as_array()) {
    const std::string content = added.find("content")->as_string();
    by_id[added.find("id")->as_int()] = {content, content};
  }
  std::vector<TokenText> out;
  for (const auto& [id, text] : by_id) {
    EXPECT_EQ(id, static_cast<int64_t>(out.size()));
    out.push_back(text);
  }
  return out;
}

const TokenMap& released_map() {
  static const TokenMap map = make_token_map(texts_of(DEEPINFER_TESTDATA "/codec/tokenizer_v41.json.gz"));
  return map;
}

EngramConfig released() {
  return {.layers = {1, 14},
          .num_rows = {384006168, 384016682},
          .ngram_max = 4,
          .num_heads = 8,
          .head_dim = 256,
          .prime_start = 16000000,
          .pad_token_id = 2,
          .num_token_classes = 99092};
}
EngramConfig mini(int64_t num_token_classes) {
  return {.layers = {1, 4},
          .num_rows = {462, 630},
          .ngram_max = 4,
          .num_heads = 2,
          .head_dim = 32,
          .prime_start = 64,
          .pad_token_id = 2,
          .num_token_classes = num_token_classes};
}

// Rows of every position and table, [n, tables, rows_per_token]. A set mask marks image tokens.
std::vector<int64_t> rows_of(const EngramHasher& hasher, const std::vector<int64_t>& ids,
                             const std::vector<int64_t>& is_image = {}) {
  const size_t width = static_cast<size_t>(hasher.rows_per_token());
  std::vector<int64_t> out;
  for (size_t p = 0; p < ids.size(); ++p) {
    std::vector<TokenId> newest_first;
    for (size_t shift = 0; shift < static_cast<size_t>(hasher.look_back()); ++shift) {
      const bool dead = shift > p || (!is_image.empty() && is_image[p - shift]);
      newest_first.push_back(dead ? EngramHasher::kDead : static_cast<TokenId>(ids[p - shift]));
    }
    for (int table = 0; table < hasher.num_tables(); ++table) {
      out.resize(out.size() + width);
      hasher.rows(table, newest_first, std::span(out).last(width));
    }
  }
  return out;
}

using Numbers = std::vector<int64_t>;

// ---- constants

TEST(HashPlan, RefusesTablesThatWouldNeedUnreasonablyManyPrimes) {
  EngramConfig config = released();
  config.num_heads = 1000000;
  EXPECT_FALSE(make_hash_plan(config).ok());
  config = released();
  config.num_token_classes = 0;
  EXPECT_FALSE(make_hash_plan(config).ok());
}

TEST(HashPlan, GivesTheReleasedPrimesAndMultipliers) {  // Appendix A
  const HashPlan plan = make_hash_plan(released()).value();
  EXPECT_EQ(Numbers(plan.layers[0].primes.begin(), plan.layers[0].primes.begin() + 8),
            (Numbers{16000057, 16000079, 16000081, 16000097, 16000121, 16000129, 16000133, 16000183}));
  EXPECT_EQ(Numbers(plan.layers[1].primes.end() - 8, plan.layers[1].primes.end()),
            (Numbers{16000781, 16000799, 16000813, 16000819, 16000841, 16000877, 16000879, 16000889}));
  EXPECT_EQ(plan.layers[0].num_rows(), 384006168);
  EXPECT_EQ(plan.layers[1].num_rows(), 384016682);
  EXPECT_EQ(plan.layers[0].multipliers, (Numbers{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(plan.layers[1].multipliers, (Numbers{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
}

TEST(HashPlan, EqualsTheUnitVectors) {
  const auto compare = [](const std::string& file, const std::string& prefix, const EngramConfig& config) {
    const HashPlan plan = make_hash_plan(config).value();
    Numbers primes, offsets, multipliers;
    for (const HashLayer& layer : plan.layers) {
      primes.insert(primes.end(), layer.primes.begin(), layer.primes.end());
      offsets.insert(offsets.end(), layer.offsets.begin(), layer.offsets.end());
      multipliers.insert(multipliers.end(), layer.multipliers.begin(), layer.multipliers.end());
    }
    EXPECT_EQ(primes, golden(file, prefix + "primes"));
    EXPECT_EQ(offsets, golden(file, prefix + "offsets"));
    EXPECT_EQ(multipliers, golden(file, prefix + "multipliers"));
  };
  compare("/units/engram_hash.safetensors", "released.", released());
  compare("/units/engram_hash.safetensors", "half.", mini(256));
  compare("/model_a/golden/engram_map.safetensors", "", mini(286));
}

// numpy.random.default_rng(seed).integers(0, bound, size=4), NumPy 2.4.6.
TEST(HashPlan, DrawsAsNumpyDoes) {
  EXPECT_EQ(numpy_integers(0, uint64_t{1} << 33, 4), (Numbers{5471459231, 2317450225, 351959890, 141971308}));
  EXPECT_EQ(numpy_integers(12345678901234, 46539438283891, 4),
            (Numbers{18912583855443, 1219499122108, 28882784942934, 1509856309197}));
  EXPECT_EQ(numpy_integers(10007, (uint64_t{1} << 62) + 1, 4),
            (Numbers{3796813830707316621, 239796500919311629, 3665776621713512657, 1979716633701278750}));
}

// ---- token map

TEST(TokenMap, NormalisesStepByStep) {
  EXPECT_EQ(normalize_token_text("Straße"), "straße");  // lower case, no case folding
  EXPECT_EQ(normalize_token_text("ÉTÉ"), "ete");        // marks go
  EXPECT_EQ(normalize_token_text("ﬁ①²"), "fi12");       // compatibility forms
  EXPECT_EQ(normalize_token_text("İ"), "i");            // decomposed before lower case
  EXPECT_EQ(normalize_token_text("कि"), "क");           // spacing marks (Mc) go, too
  EXPECT_EQ(normalize_token_text(" \t\r\n a \n\n b "), "a b");
  EXPECT_EQ(normalize_token_text(" "), " ");
  EXPECT_EQ(normalize_token_text("   "), " ");     // one space after the collapse
  EXPECT_EQ(normalize_token_text("\u3000"), " ");  // compatibility space
  EXPECT_EQ(normalize_token_text("\v"), "");       // white space, but no space
  EXPECT_EQ(normalize_token_text("\u0301"), "");
  EXPECT_EQ(normalize_token_text("한"), "\u1112\u1161\u11AB");
}

TEST(TokenMap, NumbersClassesByFirstAppearance) {
  const std::vector<TokenText> texts = {{"<s>", "<s>"},  {"The", "The"},   {" the", "Ġthe"}, {"\uFFFD", "Ã"},
                                        {"\uFFFD", "Å"}, {"\u0301", "ÌĢ"}, {"\v", "ċ"},      {"THE", "THE"}};
  const TokenMap map = make_token_map(texts);
  EXPECT_EQ(map.class_of, (std::vector<int32_t>{0, 1, 1, 2, 3, 4, 5, 1}));
  EXPECT_EQ(map.num_classes, 6);
}

TEST(TokenMap, RefusesClassesOutOfOrder) {
  EXPECT_FALSE(token_map_from_classes({0, 2}).ok());
  EXPECT_FALSE(token_map_from_classes({0, -1}).ok());
  EXPECT_EQ(token_map_from_classes({0, 0, 1}).value().num_classes, 2);
}

TEST(TokenMap, OfModelAEqualsTheReference) {
  const TokenMap map = make_token_map(texts_of(DEEPINFER_TESTDATA "/model_a/tokenizer.json"));
  EXPECT_EQ(Numbers(map.class_of.begin(), map.class_of.end()),
            golden("/model_a/golden/engram_map.safetensors", "token_map"));
  EXPECT_EQ(map.num_classes, 286);
}

TEST(TokenMap, OfTheReleasedTokenizerHasThePublishedDigest) {  // model.md 1.5
  const TokenMap& map = released_map();
  ASSERT_EQ(map.num_ids(), 129280);
  EXPECT_EQ(map.num_classes, 99092);
  for (const auto& [id, wanted] : std::map<size_t, int32_t>{{100, 74},
                                                            {1000, 604},
                                                            {5000, 4191},
                                                            {10000, 8184},
                                                            {19923, 15844},
                                                            {5464, 4563},
                                                            {50000, 10486},
                                                            {100000, 76407},
                                                            {127999, 97811},
                                                            {128799, 98611},
                                                            {129264, 99076},
                                                            {129279, 99091}})
    EXPECT_EQ(map.class_of[id], wanted) << id;
  const Numbers wide(map.class_of.begin(), map.class_of.end());
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(wide.data()), wide.size() * sizeof(int64_t), digest);
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  EXPECT_EQ(hex, "26b9be2936d236a124ba318a998c417bc7032e3e92a3107fe98deee49f1dc496");
}

// ---- rows

TEST(EngramHasher, RefusesATokenizerOfAnotherCheckpoint) {
  const auto hasher = EngramHasher::make(released(), make_token_map({}));
  ASSERT_FALSE(hasher.ok());
  EXPECT_NE(hasher.status().message().find("0 classes, engram_compressed_vocab_size is 99092"), std::string::npos);
}

TEST(EngramHasher, GivesTheRowsOfAppendixA) {
  const EngramHasher hasher = EngramHasher::make(released(), released_map()).value();
  const Numbers rows = rows_of(hasher, {0, 19923, 3, 5464});
  EXPECT_EQ(Numbers(rows.begin(), rows.begin() + 3), (Numbers{5702652, 24393184, 39183301}));
  EXPECT_EQ(Numbers(rows.begin() + 24, rows.begin() + 27), (Numbers{14361964, 29977809, 32716444}));
  EXPECT_EQ(Numbers(rows.begin() + 144, rows.end()),
            (Numbers{3533721,   31708542,  35790006,  52835013,  71713739,  89023067,  97743295,  114433197,
                     132358604, 144374285, 173790636, 188396882, 207311598, 217157672, 232412675, 250014229,
                     266305810, 274586275, 302678646, 308821817, 323620189, 345871741, 360299423, 373046546,
                     11530028,  22670373,  36357291,  61675442,  66392176,  80436197,  98008545,  123967992,
                     137226746, 153815525, 161315885, 178646158, 199479305, 222102126, 234161346, 254465845,
                     259817761, 284229816, 291089984, 310116069, 321646071, 341995791, 359181168, 381189747}));
  const Numbers image = rows_of(hasher, {0, 129264, 129264, 19923}, {0, 1, 1, 0});
  EXPECT_EQ(Numbers(image.begin() + 48, image.begin() + 51), (Numbers{4299726, 29253038, 43157972}));
  EXPECT_EQ(Numbers(image.begin() + 96, image.begin() + 99), (Numbers{4299726, 29253038, 43157972}));
  EXPECT_EQ(Numbers(image.begin() + 144, image.begin() + 147), (Numbers{4951095, 17647458, 42302169}));
}

TEST(EngramHasher, EqualsTheUnitVectors) {
  const std::string file = "/units/engram_hash.safetensors";
  const EngramHasher real = EngramHasher::make(released(), released_map()).value();
  EXPECT_EQ(rows_of(real, golden(file, "released.ids_a")), golden(file, "released.rows_a"));
  const Numbers with_image = golden(file, "released.ids_img");
  Numbers is_image;
  for (const int64_t id : with_image) is_image.push_back(id == 129264);
  EXPECT_EQ(rows_of(real, with_image, is_image), golden(file, "released.rows_img"));
  std::vector<int32_t> half;
  for (int32_t id = 0; id < 512; ++id) half.push_back(id >> 1);
  const EngramHasher small = EngramHasher::make(mini(256), token_map_from_classes(half).value()).value();
  EXPECT_EQ(rows_of(small, golden(file, "half.ids")), golden(file, "half.rows"));
  Numbers is_dead = golden(file, "half.mask");  // 1 = text
  for (int64_t& dead : is_dead) dead = !dead;
  EXPECT_EQ(rows_of(small, golden(file, "half.ids"), is_dead), golden(file, "half.rows_masked"));
}

// ---- tables

TEST(EngramTable, ReadsRowsAndNamesANaNScale) {
  std::vector<uint8_t> codes(5 * 64), scales(5 * 2, 120);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  scales[3 * 2 + 1] = 0xFF;
  const MappedEngramTable table("layers.1.engram.embed", codes.data(), scales.data(), 5, 64);
  std::vector<uint8_t> got(2 * 64), got_scales(2 * 2);
  const std::vector<int64_t> rows = {4, 1}, bad = {0, 3};
  table.prefetch(rows);
  ASSERT_TRUE(table.read_rows(rows, got.data(), got_scales.data()).ok());
  EXPECT_EQ(got[0], static_cast<uint8_t>(4 * 64));
  EXPECT_EQ(got[64], 64);
  const Status status = table.read_rows(bad, got.data(), got_scales.data());
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_EQ(status.message(), "layers.1.engram.embed.scale: NaN at row 3, block 1");
}

}  // namespace
}  // namespace deepinfer
