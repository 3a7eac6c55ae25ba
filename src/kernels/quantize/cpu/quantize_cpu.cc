// SPDX-License-Identifier: MIT
#include <cstring>

#include "kernels/quantize/cpu/quantize_kernels.h"
#include "kernels/quantize/quantize.h"
#include "kernels/quantize/rounding.h"

namespace deepinfer {
namespace {

const uint16_t* words(const bf16* p) { return reinterpret_cast<const uint16_t*>(p); }

void pack(const QuantizeKernels& kernels, RowFormat format, const uint16_t* x, int64_t size, uint8_t* out) {
  const int64_t group = row_group(format);
  if (format == RowFormat::kBf16) {
    std::memcpy(out, x, static_cast<size_t>(size) * sizeof(bf16));
    return;
  }
  for (int64_t i = 0; i < size; i += group) {
    const float amax = kernels.largest_magnitude(x + i, group);
    if (format == RowFormat::kFp8Block32) {
      const uint8_t scale = out[size + i / 32] = fp8_block_scale(amax);
      kernels.encode_e4m3(x + i, e8m0_to_float(scale), out + i);
    } else if (format == RowFormat::kFp4Group16) {
      const uint8_t scale = out[size / 2 + i / 16] = fp4_group16_scale(amax);
      kernels.encode_e2m1(x + i, e4m3_to_float(scale), 16, out + i / 2);
    } else {
      const uint8_t scale = out[size / 2 + i / 32] = fp4_group32_scale(amax);
      kernels.encode_e2m1(x + i, e8m0_to_float(scale), 32, out + i / 2);
    }
  }
}

void unpack(const QuantizeKernels& kernels, RowFormat format, const uint8_t* packed, int64_t size, uint16_t* out) {
  if (format == RowFormat::kBf16) {
    std::memcpy(out, packed, static_cast<size_t>(size) * sizeof(bf16));
    return;
  }
  const uint8_t* scales = packed + (format == RowFormat::kFp8Block32 ? size : size / 2);
  int64_t i = 0;
  for (; i + 32 <= size; i += 32) {
    if (format == RowFormat::kFp8Block32) kernels.decode_e4m3(packed + i, e8m0_to_float(scales[i / 32]), out + i);
    else if (format == RowFormat::kFp4Group32)
      kernels.decode_e2m1(packed + i / 2, e8m0_to_float(scales[i / 32]), e8m0_to_float(scales[i / 32]), out + i);
    else kernels.decode_e2m1(packed + i / 2, e4m3_to_float(scales[i / 16]), e4m3_to_float(scales[i / 16 + 1]), out + i);
  }
  if (i == size) return;
  uint8_t last[16] = {};  // an odd number of groups of 16
  uint16_t values[32];
  std::memcpy(last, packed + i / 2, 8);
  kernels.decode_e2m1(last, e4m3_to_float(scales[i / 16]), 0.f, values);
  std::memcpy(out + i, values, 16 * sizeof(uint16_t));
}

void pack_rows(const ExecutionContext& context, const PackRowsParams& p, const QuantizeKernels& kernels) {
  for_each_item(context, p.x.size[0], 4 * static_cast<double>(p.x.num_elements()), [&](int64_t r, int) {
    const int64_t offset = p.offset_bytes.data ? p.offset_bytes(r) : r * p.stride_bytes;
    if (offset != kSkipRow) pack(kernels, p.format, words(p.x.row(r)), p.x.size[1], p.base + offset);
  });
}

void unpack_rows(const ExecutionContext& context, const UnpackRowsParams& p, const QuantizeKernels& kernels) {
  for_each_item(context, p.out.size[0], static_cast<double>(p.out.num_elements()), [&](int64_t r, int) {
    unpack(kernels, p.format, p.packed.row(r), p.out.size[1], reinterpret_cast<uint16_t*>(p.out.row(r)));
  });
}

void round_rows(const ExecutionContext& context, const RoundRowsParams& p, const QuantizeKernels& kernels) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t bytes = row_bytes(p.format, p.x.size[1]);
  uint8_t* packed = context.scratch->take<uint8_t>(context.num_threads() * bytes);
  for_each_item(context, p.x.size[0], 4 * static_cast<double>(p.x.num_elements()), [&](int64_t r, int worker) {
    pack(kernels, p.format, words(p.x.row(r)), p.x.size[1], packed + worker * bytes);
    unpack(kernels, p.format, packed + worker * bytes, p.x.size[1], reinterpret_cast<uint16_t*>(p.out.row(r)));
  });
}

}  // namespace

void pack_rows_avx2(const ExecutionContext& c, const PackRowsParams& p) { pack_rows(c, p, quantize_kernels_avx2()); }
void pack_rows_avx512(const ExecutionContext& c, const PackRowsParams& p) {
  pack_rows(c, p, quantize_kernels_avx512());
}
void unpack_rows_avx2(const ExecutionContext& c, const UnpackRowsParams& p) {
  unpack_rows(c, p, quantize_kernels_avx2());
}
void unpack_rows_avx512(const ExecutionContext& c, const UnpackRowsParams& p) {
  unpack_rows(c, p, quantize_kernels_avx512());
}
void round_rows_avx2(const ExecutionContext& c, const RoundRowsParams& p) { round_rows(c, p, quantize_kernels_avx2()); }
void round_rows_avx512(const ExecutionContext& c, const RoundRowsParams& p) {
  round_rows(c, p, quantize_kernels_avx512());
}

}  // namespace deepinfer
