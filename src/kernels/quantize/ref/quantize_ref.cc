// SPDX-License-Identifier: MIT
#include <cstring>

#include "kernels/quantize/quantize.h"
#include "kernels/quantize/rounding.h"

namespace deepinfer {
namespace {

float largest_magnitude(const bf16* x, int64_t size) {
  float amax = 0;
  for (int64_t i = 0; i < size; ++i) {
    const float a = std::fabs(to_float(x[i]));
    if (a > amax) amax = a;
  }
  return amax;
}

void pack_fp8(const bf16* x, int64_t size, uint8_t* out) {
  for (int64_t begin = 0; begin < size; begin += 32) {
    const uint8_t scale = fp8_block_scale(largest_magnitude(x + begin, 32));
    for (int64_t i = begin; i < begin + 32; ++i) out[i] = float_to_e4m3(to_float(x[i]) / e8m0_to_float(scale));
    out[size + begin / 32] = scale;
  }
}

template <uint8_t (*kScale)(float), float (*kScaleValue)(uint8_t), int kGroup>
void pack_fp4(const bf16* x, int64_t size, uint8_t* out) {
  for (int64_t begin = 0; begin < size; begin += kGroup) {
    const uint8_t scale = kScale(largest_magnitude(x + begin, kGroup));
    const float divisor = kScaleValue(scale);
    for (int64_t i = begin; i < begin + kGroup; i += 2)
      out[i / 2] = static_cast<uint8_t>(float_to_e2m1(to_float(x[i]) / divisor) |
                                        float_to_e2m1(to_float(x[i + 1]) / divisor) << 4);
    out[size / 2 + begin / kGroup] = scale;
  }
}

void pack(RowFormat format, const bf16* x, int64_t size, uint8_t* out) {
  switch (format) {
    case RowFormat::kFp8Block32: return pack_fp8(x, size, out);
    case RowFormat::kFp4Group16: return pack_fp4<fp4_group16_scale, e4m3_to_float, 16>(x, size, out);
    case RowFormat::kFp4Group32: return pack_fp4<fp4_group32_scale, e8m0_to_float, 32>(x, size, out);
    case RowFormat::kBf16: std::memcpy(out, x, static_cast<size_t>(size) * sizeof(bf16)); return;
  }
}

void unpack(RowFormat format, const uint8_t* packed, int64_t size, bf16* out) {
  const int64_t group = row_group(format);
  if (format == RowFormat::kBf16) {
    std::memcpy(out, packed, static_cast<size_t>(size) * sizeof(bf16));
    return;
  }
  for (int64_t i = 0; i < size; ++i) {
    if (format == RowFormat::kFp8Block32) {
      out[i] = to_bf16(e4m3_to_float(packed[i]) * e8m0_to_float(packed[size + i / group]));
    } else {
      const uint8_t scale = packed[size / 2 + i / group];
      const float code = e2m1_to_float(static_cast<uint8_t>(packed[i / 2] >> (i % 2 * 4)));
      out[i] = to_bf16(code * (format == RowFormat::kFp4Group16 ? e4m3_to_float(scale) : e8m0_to_float(scale)));
    }
  }
}

}  // namespace

void pack_rows_ref(const ExecutionContext&, const PackRowsParams& p) {
  for (int64_t r = 0; r < p.x.size[0]; ++r) {
    const int64_t offset = p.offset_bytes.data ? p.offset_bytes(r) : r * p.stride_bytes;
    if (offset != kSkipRow) pack(p.format, p.x.row(r), p.x.size[1], p.base + offset);
  }
}

void unpack_rows_ref(const ExecutionContext&, const UnpackRowsParams& p) {
  for (int64_t r = 0; r < p.out.size[0]; ++r) unpack(p.format, p.packed.row(r), p.out.size[1], p.out.row(r));
}

void round_rows_ref(const ExecutionContext& context, const RoundRowsParams& p) {
  const Scratch::Frame frame(*context.scratch);
  uint8_t* packed = context.scratch->take<uint8_t>(row_bytes(p.format, p.x.size[1]));
  for (int64_t r = 0; r < p.x.size[0]; ++r) {
    pack(p.format, p.x.row(r), p.x.size[1], packed);
    unpack(p.format, packed, p.x.size[1], p.out.row(r));
  }
}

}  // namespace deepinfer
