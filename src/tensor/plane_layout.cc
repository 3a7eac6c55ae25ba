// SPDX-License-Identifier: MIT
#include "tensor/plane_layout.h"

#include <cstring>

namespace deepinfer {
namespace {

constexpr int64_t kOut = 32;

// Words [num_words] of each of 32 rows <-> word w of all rows at places place(w) of 32 words.
template <typename Place>
void turn_words(const uint8_t* from, int64_t num_words, bool to_planes, const Place& place, uint8_t* to) {
  for (int64_t o = 0; o < kOut; ++o) {
    for (int64_t w = 0; w < num_words; ++w) {
      const int64_t in_rows = (o * num_words + w) * 4, in_planes = (place(w) * kOut + o) * 4;
      std::memcpy(to + (to_planes ? in_planes : in_rows), from + (to_planes ? in_rows : in_planes), 4);
    }
  }
}

}  // namespace

// Four columns of a row are one column of each of four planes: [output][plane] <-> [plane][output].
void turn_group(const Fp8Matrix& from, int64_t group, uint8_t* codes) {
  DCHECK(can_have_planes(from.out, from.in));
  const bool to_planes = from.layout == WeightLayout::kRows;
  const uint8_t* bytes = from.row(group * kOut);
  const int64_t steps = from.in / 16;
  for (int64_t quad = 0; quad < 4; ++quad) {
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t in_rows = 16 * step + 4 * quad, in_planes = (quad * steps + step) * 4 * kOut;
      for (int64_t o = 0; o < kOut; ++o)
        for (int64_t p = 0; p < 4; ++p) {
          const int64_t row_place = o * from.in + in_rows + p, plane_place = in_planes + p * kOut + o;
          if (to_planes) codes[plane_place] = bytes[row_place];
          else codes[row_place] = bytes[plane_place];
        }
    }
  }
}

// Four bytes of a row are one column of each of eight planes.
void turn_group(const Fp4Matrix& from, int64_t group, uint8_t* codes, uint8_t* scales) {
  DCHECK(can_have_planes(from.out, from.in));
  const bool to_planes = from.layout == WeightLayout::kRows;
  const int64_t steps = from.in / 16, blocks = from.scale_columns();
  const auto place = [&](int64_t word) { return word % 2 * steps + word / 2; };
  if (codes) turn_words(from.row(group * kOut), from.in / 8, to_planes, place, codes);
  if (!scales) return;
  const uint8_t* bytes = from.row_scales(group * kOut);
  for (int64_t o = 0; o < kOut; ++o)
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t row_place = o * blocks + b, plane_place = b * kOut + o;
      scales[to_planes ? plane_place : row_place] = bytes[to_planes ? row_place : plane_place];
    }
}

}  // namespace deepinfer
