// SPDX-License-Identifier: MIT
#include "tensor/safetensors.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tensor/bfloat16.h"

namespace deepinfer {
namespace {

// A file made by hand: length, header text, `data_bytes` zero bytes.
std::string file_of(const std::string& header, size_t data_bytes) {
  std::string out;
  for (uint64_t length = header.size(), i = 0; i < 8; ++i, length >>= 8)
    out.push_back(static_cast<char>(length & 0xFF));
  return out + header + std::string(data_bytes, '\0');
}
std::string refusal(const std::string& bytes) {
  const auto file = SafetensorsFile::parse(bytes);
  return file.ok() ? "accepted" : file.status().message();
}
std::string refusal(const std::string& header, size_t data_bytes) { return refusal(file_of(header, data_bytes)); }
bool says(const std::string& message, const std::string& words) { return message.find(words) != std::string::npos; }

constexpr char kTwo[] =
    R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]}})";

TEST(Safetensors, RefusesAFileTooShortForALength) {
  EXPECT_TRUE(says(refusal(""), "0 bytes, at least 8"));
  EXPECT_TRUE(says(refusal("1234567"), "7 bytes, at least 8"));
}

TEST(Safetensors, RefusesAHeaderLengthOfTwoToTheSixtyWithoutAllocating) {
  std::string bytes = file_of(kTwo, 12);
  bytes[7] = 0x10;  // 2^60 and a bit
  EXPECT_TRUE(says(refusal(bytes), "header length 11529215046068"));
  bytes[7] = static_cast<char>(0xFF);
  EXPECT_TRUE(says(refusal(bytes), "at most 104857600"));
}

TEST(Safetensors, RefusesATruncatedHeader) {
  EXPECT_TRUE(says(refusal(file_of(kTwo, 12).substr(0, 40)), "the file has 40 bytes"));
}

TEST(Safetensors, RefusesTruncatedData) {
  EXPECT_TRUE(says(refusal(kTwo, 11), "tensor b: data ends at byte 12 of the data section, the file has 11"));
}

TEST(Safetensors, RefusesBytesThatBelongToNoTensor) {
  EXPECT_TRUE(says(refusal(kTwo, 13), "the tensors end at byte 12 of the data section, the file has 13"));
  EXPECT_TRUE(
      says(refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", 4), "bytes 0 to 2, before tensor a"));
}

TEST(Safetensors, RefusesOverlappingTensors) {
  EXPECT_TRUE(says(
      refusal(
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
          6),
      "tensor b begins at byte 2 and overlaps a, which ends at 4"));
}

TEST(Safetensors, RefusesOffsetsThatDoNotFitTheShape) {
  EXPECT_TRUE(says(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
                   "F32 [2] takes 8 bytes, data_offsets span 4"));
  EXPECT_TRUE(
      says(refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[4,2]}})", 4), "begin at 4 and end before it"));
  EXPECT_TRUE(
      says(refusal(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0), "beyond 2^63"));
  EXPECT_TRUE(says(refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,18446744073709551615]}})", 2), "no"));
  EXPECT_TRUE(
      says(refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[-1,1]}})", 2), "not a pair of byte offsets"));
}

TEST(Safetensors, RefusesWhatIsNoHeader) {
  EXPECT_TRUE(says(refusal("[]", 0), "a JSON object is expected"));
  EXPECT_TRUE(says(refusal(R"({"a":)", 0), "header: JSON"));
  EXPECT_TRUE(says(refusal(R"({"a":1})", 0), "tensor a: \"dtype\" is missing"));
  EXPECT_TRUE(says(refusal(R"({"a":{"dtype":"F4","shape":[],"data_offsets":[0,1]}})", 1), "unknown dtype \"F4\""));
  EXPECT_TRUE(says(refusal(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1), "no size"));
  EXPECT_TRUE(says(refusal(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1), "rank 9"));
  EXPECT_TRUE(says(refusal(R"({"__metadata__":{"x":1}})", 0), "__metadata__.x is no string"));
}

TEST(Safetensors, RefusesATensorNamedTwice) {
  EXPECT_TRUE(says(
      refusal(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
          2),
      "duplicate key \"a\""));
}

TEST(Safetensors, ReadsScalarsEmptyTensorsAndPaddedHeaders) {
  const auto file = SafetensorsFile::parse(file_of(
      R"({"n":{"dtype":"U8","shape":[0,3],"data_offsets":[0,0]},"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )",
      4));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file.value().floats("s").value(), std::vector<float>{0});
  EXPECT_EQ(file.value().integers("n").value().size(), 0u);
  EXPECT_FALSE(file.value().floats("n").ok());
  EXPECT_FALSE(file.value().floats("x").ok());
}

TEST(Safetensors, ReadsBackWhatItWrites) {
  SafetensorsWriter writer;
  writer.add("logits", {2, 2}, std::vector<float>{1, -2.5f, 0, 3e30f});
  writer.add("argmax", {3}, std::vector<int32_t>{7, -1, 2147483647});
  const uint16_t bits[] = {0x3F80, 0xC000};
  writer.add("rows", DType::kBF16, {1, 2}, {reinterpret_cast<const uint8_t*>(bits), 4});
  const auto file = SafetensorsFile::parse(writer.to_bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file.value().floats("logits").value(), (std::vector<float>{1, -2.5f, 0, 3e30f}));
  EXPECT_EQ(file.value().integers("argmax").value(), (std::vector<int64_t>{7, -1, 2147483647}));
  EXPECT_EQ(file.value().floats("rows").value(), (std::vector<float>{1, -2}));
  EXPECT_EQ(file.value().find("logits")->shape, (std::vector<int64_t>{2, 2}));
}

// The golden files were written by the format's usual library.
TEST(Safetensors, ReadsTheGoldenFiles) {
  const auto file = SafetensorsFile::read(DEEPINFER_TESTDATA "/units/engram_hash.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file.value().integers("released.multipliers").value()[0], 76632096046245);
  EXPECT_EQ(file.value().tensors().size(), 14u);
}

}  // namespace
}  // namespace deepinfer
