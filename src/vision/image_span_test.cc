// SPDX-License-Identifier: MIT
#include "vision/image_span.h"

#include <gtest/gtest.h>

#include <string>

namespace deepinfer {
namespace {

std::string letters(const ImageSpan& span) {
  std::string text;
  for (int64_t i = 0; i < span.num_tokens(); ++i) text += "SINE"[static_cast<int>(span.kind(i))];
  return text;
}

TEST(ImageSpan, OrdersTheDelimiters) {
  EXPECT_EQ(letters({1, 1}), "SINE");
  EXPECT_EQ(letters({1, 3}), "SIIINE");
  EXPECT_EQ(letters({3, 1}), "SINININE");
  EXPECT_EQ(letters({2, 2}), "SIINIINE");
}

TEST(ImageSpan, NumbersTheImageRowsInReadingOrder) {
  const ImageSpan span{3, 4};
  int64_t next = 0;
  for (int64_t i = 0; i < span.num_tokens(); ++i)
    if (span.kind(i) == ImageTokenKind::kImage) { EXPECT_EQ(span.image_row(i), next++); }
  EXPECT_EQ(next, 12);
}

}  // namespace
}  // namespace deepinfer
