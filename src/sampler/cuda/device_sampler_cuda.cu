// SPDX-License-Identifier: MIT
// Picks on the device, with the bits of sampler.cc, cuts.cc and row_edits.cc: the same single precision operations in
// the same order, sums in the lanes and blocks of row_scan.cc. A row is scanned by kPickPieces blocks (its maximum, then
// its noise) and finished by one, which also sorts where there are cuts.
#include <cuda_runtime.h>

#include <limits>

#include "kernels/lanes/cuda/lane_sum.cuh"
#include "kernels/lanes/exponential.h"
#include "sampler/noise.h"
#include "sampler/pick_tables.h"

namespace deepinfer {
namespace {

constexpr int kScanThreads = 256, kFinishThreads = 512, kEditThreads = 1024;
constexpr int kSumBlock = 1024, kSumBlocksMax = 256;  // row_scan.cc
constexpr int kBinsPerUnit = 16, kNumBins = 24 * kBinsPerUnit;
constexpr int kSharedKeys = 4096;
constexpr uint64_t kNoKey = ~uint64_t{0};

__device__ float masked_logit() { return -std::numeric_limits<float>::infinity(); }

// A row to pick from, target or draft.
struct Row {
  const PickLaw* law;
  int64_t output_position;
  const int32_t* drafted;
  int num_drafted;
  const uint32_t* mask;
  int32_t edited;
};

__device__ Row row_of(const PickTables& t, int64_t r, int64_t draft) {
  if (draft < 0) {
    const PickRow& row = t.rows[r];
    return {t.laws + row.law,  row.output_position, t.ids + row.drafted_begin,
            row.num_drafted,   row.mask < 0 ? nullptr : t.masks + row.mask * t.mask_words, row.edited};
  }
  const PickDraft& row = t.drafts[r];
  return {t.laws + row.law, t.draft_output_position[r] + draft, t.chosen + r * t.chosen_max, t.num_chosen[r], nullptr,
          row.edited};
}

__device__ const float* logits_of(const PickTables& t, const Row& row, const PickLogits& logits, int64_t r) {
  return row.edited < 0 ? logits.row(r) : t.edited + row.edited * t.vocab;
}

__device__ NoiseKey noise_key(const Row& row) {
  return {row.law->seed, row.law->choice, static_cast<uint32_t>(row.output_position), NoisePurpose::kTarget};
}

__device__ float gumbel_at(const NoiseKey& key, int32_t id) {
  const PhiloxBlock bits = noise_bits(key, static_cast<uint32_t>(id) / 4);
  return gumbel_of(bits[static_cast<uint32_t>(id) % 4]);
}

// The larger value, the lower id among equals; id -1: nothing yet.
struct Best {
  float score;
  int32_t id;
  __device__ void offer(float other, int32_t other_id) {
    if (other_id < 0) return;
    if (id < 0 || other > score || (other == score && other_id < id)) score = other, id = other_id;
  }
};

// Over the block; every thread gets it.
template <int kThreads>
__device__ Best best_of_block(Best best) {
  __shared__ Best warps[kThreads / 32];
#pragma unroll
  for (int half = 16; half > 0; half /= 2)
    best.offer(__shfl_xor_sync(0xFFFFFFFFu, best.score, half), __shfl_xor_sync(0xFFFFFFFFu, best.id, half));
  __syncthreads();  // the array may still be read
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
  __syncthreads();
  for (int w = 0; w < kThreads / 32; ++w) best.offer(warps[w].score, warps[w].id);
  return best;
}

// ---- edits, in the order of row_edits.cc

__device__ void penalise(const PickLaw& law, bool is_in_prompt, int num_outputs, float& logit) {
  if (is_in_prompt || num_outputs > 0)
    logit = logit > 0 ? logit / law.repetition_penalty : logit * law.repetition_penalty;
  if (num_outputs > 0) logit -= law.frequency_penalty * static_cast<float>(num_outputs) + law.presence_penalty;
}

__device__ int count_in(const int32_t* ids, int num, int32_t id) {
  int count = 0;
  for (int i = 0; i < num; ++i) count += ids[i] == id;
  return count;
}

// Tokens of this step count as output, though the history does not hold them yet.
__device__ void apply_penalties(const PickTables& t, const Row& row, float* logits) {
  constexpr int kDraftedMax = 64;
  __shared__ int is_known[kDraftedMax];
  const PickLaw& law = *row.law;
  if (threadIdx.x < kDraftedMax) is_known[threadIdx.x] = 0;
  __syncthreads();
  for (int i = law.history_begin + static_cast<int>(threadIdx.x); i < law.history_end; i += kEditThreads) {
    const PickHistory& entry = t.history[i];
    const int more = count_in(row.drafted, row.num_drafted, entry.id);
    penalise(law, entry.is_in_prompt != 0, entry.num_outputs + more, logits[entry.id]);
    for (int d = 0; d < row.num_drafted && more > 0; ++d)
      if (row.drafted[d] == entry.id) is_known[d] = 1;
  }
  __syncthreads();
  const int d = static_cast<int>(threadIdx.x);
  if (d < row.num_drafted && !is_known[d] && count_in(row.drafted, d, row.drafted[d]) == 0)
    penalise(law, false, count_in(row.drafted, row.num_drafted, row.drafted[d]), logits[row.drafted[d]]);
  __syncthreads();
}

// The token `back` places before this row (0: right before it): of this step, then of the history. -1: there is none.
__device__ int32_t recent(const PickTables& t, const Row& row, int back) {
  if (back < row.num_drafted) return row.drafted[row.num_drafted - 1 - back];
  const int at = row.law->tail_end - 1 - (back - row.num_drafted);
  return at >= row.law->tail_begin ? t.ids[at] : -1;
}

// A thread a word; several may mask the same token.
__device__ void apply_bad_words(const PickTables& t, const Row& row, float* logits) {
  for (int w = row.law->words_begin + static_cast<int>(threadIdx.x); w < row.law->words_end; w += kEditThreads) {
    const PickWord word = t.words[w];
    const int last = word.end - 1;
    bool stands_before = true;
    for (int i = 0; stands_before && i < last - word.begin; ++i) stands_before = recent(t, row, i) == t.ids[last - 1 - i];
    if (stands_before) logits[t.ids[last]] = masked_logit();
  }
  __syncthreads();
}

// Masks the ends, or changes nothing where no other token would be left.
__device__ void apply_end_mask(const PickTables& t, const Row& row, float* logits) {
  __shared__ float kept[2 * kStopIdsMax];
  const PickLaw& law = *row.law;
  const bool is_early = row.output_position < law.min_tokens;
  if (!is_early && !law.ignores_eos) return;
  const int32_t* ids = t.ids + law.eos_begin;
  const int num = (is_early ? law.stop_end : law.stop_begin) - law.eos_begin;
  for (int i = static_cast<int>(threadIdx.x); i < num; i += kEditThreads) kept[i] = logits[ids[i]];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < num; i += kEditThreads) logits[ids[i]] = masked_logit();
  __syncthreads();
  int is_any = 0;
  for (int64_t v = threadIdx.x; v < t.vocab; v += kEditThreads) is_any |= logits[v] != masked_logit();
  if (__syncthreads_or(is_any)) return;
  for (int i = static_cast<int>(threadIdx.x); i < num; i += kEditThreads) logits[ids[i]] = kept[i];
}

__global__ void __launch_bounds__(kEditThreads) edit_kernel(PickTables t, PickLogits model, int64_t draft) {
  const int64_t r = blockIdx.x;
  const Row row = row_of(t, r, draft);
  if (row.edited < 0) return;
  const PickLaw& law = *row.law;
  const float* from = model.row(r);
  float* logits = t.edited + row.edited * t.vocab;
  for (int64_t v = threadIdx.x; v < t.vocab; v += kEditThreads) logits[v] = from[v];
  __syncthreads();
  if (law.has_penalties) apply_penalties(t, row, logits);
  for (int i = law.bias_begin + static_cast<int>(threadIdx.x); i < law.bias_end; i += kEditThreads)
    logits[t.biases[i].id] += t.biases[i].value;
  __syncthreads();
  if (row.mask)
    for (int64_t v = threadIdx.x; v < t.vocab; v += kEditThreads)
      if ((row.mask[v / 32] >> (v % 32) & 1) == 0) logits[v] = masked_logit();
  __syncthreads();
  apply_bad_words(t, row, logits);
  apply_end_mask(t, row, logits);
}

// ---- scans over pieces of a row

struct Piece {
  int64_t begin, end;  // begin is a multiple of 4
};
__device__ Piece piece_of(int64_t vocab, int piece) {
  const int64_t fours = (vocab + 3) / 4, begin = fours * piece / kPickPieces, end = fours * (piece + 1) / kPickPieces;
  return {4 * begin, 4 * end < vocab ? 4 * end : vocab};
}

__global__ void __launch_bounds__(kScanThreads) scan_kernel(PickTables t, PickLogits model, int64_t draft) {
  const int64_t r = blockIdx.y;
  const Row row = row_of(t, r, draft);
  const float* logits = logits_of(t, row, model, r);
  const float* unedited = model.row(r);
  const Piece piece = piece_of(t.vocab, static_cast<int>(blockIdx.x));
  Best best{masked_logit(), -1};
  int is_bad = 0;
  for (int64_t v = piece.begin + threadIdx.x; v < piece.end; v += kScanThreads) {
    best.offer(logits[v], static_cast<int32_t>(v));
    is_bad |= (__float_as_int(unedited[v]) & 0x7FFFFFFF) >= 0x7F800000;
  }
  is_bad = __syncthreads_or(is_bad);
  best = best_of_block<kScanThreads>(best);
  if (threadIdx.x == 0)
    t.pieces[r * kPickPieces + blockIdx.x] = {best.score, best.id, is_bad == 0, masked_logit(), -1};
}

struct RowMax {
  float max;
  int32_t first;
  bool is_finite;
};
__device__ RowMax max_of_row(const PickTables& t, int64_t r) {
  Best best{masked_logit(), -1};
  bool is_finite = true;
  for (int p = 0; p < kPickPieces; ++p) {
    const PickPiece& piece = t.pieces[r * kPickPieces + p];
    best.offer(piece.max, piece.first);
    is_finite = is_finite && piece.is_finite;
  }
  return {best.score, best.id, is_finite};
}

// No noise exceeds kGumbelMax: tokens too far below the likeliest one's score cannot win.
__global__ void __launch_bounds__(kScanThreads) noise_kernel(PickTables t, PickLogits model, int64_t draft) {
  const int64_t r = blockIdx.y;
  const Row row = row_of(t, r, draft);
  if (row.law->is_greedy || row.law->has_cuts) return;
  const RowMax found = max_of_row(t, r);
  if (!found.is_finite || found.max == masked_logit()) return;
  const float* logits = logits_of(t, row, model, r);
  const NoiseKey key = noise_key(row);
  const float temperature = row.law->temperature;
  const Piece piece = piece_of(t.vocab, static_cast<int>(blockIdx.x));
  Best best{gumbel_at(key, found.first), found.first};
  for (int64_t begin = piece.begin + 4 * threadIdx.x; begin < piece.end; begin += 4 * kScanThreads) {
    float exponent[4];
    bool can_win = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      exponent[i] = begin + i < piece.end ? (logits[begin + i] - found.max) / temperature : masked_logit();
      can_win = can_win || exponent[i] + kGumbelMax >= best.score;
    }
    if (!can_win) continue;
    const PhiloxBlock bits = noise_bits(key, static_cast<uint32_t>(begin / 4));
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (exponent[i] != masked_logit())
        best.offer(exponent[i] + gumbel_of(bits[static_cast<size_t>(i)]), static_cast<int32_t>(begin + i));
  }
  best = best_of_block<kScanThreads>(best);
  if (threadIdx.x != 0) return;
  t.pieces[r * kPickPieces + blockIdx.x].score = best.score;
  t.pieces[r * kPickPieces + blockIdx.x].winner = best.id;
}

// ---- what one block does for a row

// Orders as the logit does; -0 counts as +0.
__device__ uint32_t ordered(float logit) {
  const uint32_t u = __float_as_uint(logit + 0.f);
  return u >> 31 ? ~u : u | 0x80000000u;
}
// Ascending keys: logit descending, id ascending.
__device__ uint64_t key_of(float logit, int64_t id) {
  return static_cast<uint64_t>(~ordered(logit)) << 32 | static_cast<uint32_t>(id);
}
__device__ float logit_of(uint64_t key) {
  const uint32_t u = ~static_cast<uint32_t>(key >> 32);
  return __uint_as_float(u >> 31 ? u & 0x7FFFFFFFu : ~u);
}

__device__ float weight_of(float logit, float max, float temperature) {
  return exp_in_lanes((logit - max) / temperature);
}

// row_scan.cc's exp_sum: blocks of 1,024 in sixteen fp32 lanes, blocks in double. Every thread gets it.
__device__ double exp_sum(const float* logits, int64_t vocab, float max, float temperature) {
  __shared__ float sums[kSumBlocksMax];
  __shared__ double total;
  const int num = static_cast<int>((vocab + kSumBlock - 1) / kSumBlock);
  for (int b = static_cast<int>(threadIdx.x) / kLaneThreads; b < num; b += kFinishThreads / kLaneThreads) {
    const int64_t begin = int64_t{b} * kSumBlock, size = vocab - begin < kSumBlock ? vocab - begin : kSumBlock;
    const float sum =
        sum_in_lanes(size, [&](int64_t k) { return weight_of(logits[begin + k], max, temperature); });
    if (threadIdx.x % kLaneThreads == 0) sums[b] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    total = 0;
    for (int b = 0; b < num; ++b) total += static_cast<double>(sums[b]);
  }
  __syncthreads();
  const double result = total;
  __syncthreads();
  return result;
}

// Gathers the keys of unmasked logits whose ordered value is at least `least`, in no order. Returns how many.
__device__ int collect(const float* logits, int64_t vocab, uint32_t least, uint64_t* keys) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  for (int64_t v = threadIdx.x; v < vocab; v += kFinishThreads)
    if (logits[v] != masked_logit() && ordered(logits[v]) >= least) keys[atomicAdd(&count, 1)] = key_of(logits[v], v);
  __syncthreads();
  const int result = count;
  __syncthreads();
  return result;
}

__device__ void sort_in(uint64_t* keys, int padded) {
  for (int size = 2; size <= padded; size *= 2)
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < padded; i += kFinishThreads) {
        const int j = i ^ stride;
        if (j <= i) continue;
        const uint64_t a = keys[i], b = keys[j];
        if ((a > b) == ((i & size) == 0)) keys[i] = b, keys[j] = a;
      }
    }
  __syncthreads();
}

// Bitonic, in shared memory where they fit. Keys behind `count` are overwritten up to a power of two.
__device__ void sort_keys(uint64_t* keys, int count) {
  __shared__ uint64_t near[kSharedKeys];
  int padded = 1;
  while (padded < count) padded *= 2;
  const bool fits = padded <= kSharedKeys;
  uint64_t* sorted = fits ? near : keys;
  for (int i = static_cast<int>(threadIdx.x); i < padded; i += kFinishThreads) {
    const uint64_t key = i < count ? keys[i] : kNoKey;
    sorted[i] = key;
  }
  sort_in(sorted, padded);
  for (int i = static_cast<int>(threadIdx.x); fits && i < count; i += kFinishThreads) keys[i] = near[i];
  __syncthreads();
}

// The ordered value of rank k (1 = the largest) among the unmasked; 0 where there are no more than k.
__device__ uint32_t kth_ordered(const float* logits, int64_t vocab, int64_t k) {
  __shared__ int histogram[256];
  __shared__ uint32_t found;
  __shared__ int64_t left;
  __shared__ int is_few;
  uint32_t prefix = 0;
  int64_t wanted = k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (threadIdx.x < 256) histogram[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t v = threadIdx.x; v < vocab; v += kFinishThreads) {
      const uint32_t key = ordered(logits[v]);
      if (logits[v] != masked_logit() && (shift == 24 || (key ^ prefix) >> (shift + 8) == 0))
        atomicAdd(&histogram[key >> shift & 0xFF], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int64_t all = 0;
      for (int d = 0; d < 256; ++d) all += histogram[d];
      is_few = all <= wanted && shift == 24;
      int digit = 255;
      for (; digit > 0 && histogram[digit] < wanted; --digit) wanted -= histogram[digit];
      found = prefix | static_cast<uint32_t>(digit) << shift;
      left = wanted;
    }
    __syncthreads();
    prefix = found;
    wanted = left;
    const bool takes_all = is_few != 0;
    __syncthreads();
    if (takes_all) return 0;
  }
  return prefix;
}

// The sum of all weights, or, with `share` >= 0, how many stand up to and including the one that brings the running sum
// to it. In the order of the keys, in double.
__device__ double walk_weights(const uint64_t* keys, int count, float max, float temperature, double share,
                               int& num_kept) {
  __shared__ float weights[kFinishThreads];
  __shared__ double running;
  __shared__ int kept;
  if (threadIdx.x == 0) running = 0, kept = -1;
  __syncthreads();
  for (int begin = 0; begin < count; begin += kFinishThreads) {
    const int i = begin + static_cast<int>(threadIdx.x);
    if (i < count) weights[threadIdx.x] = weight_of(logit_of(keys[i]), max, temperature);
    __syncthreads();
    if (threadIdx.x == 0)
      for (int j = 0; j < kFinishThreads && begin + j < count && kept < 0; ++j) {
        running += static_cast<double>(weights[j]);
        if (share >= 0 && running >= share) kept = begin + j + 1;
      }
    __syncthreads();
    if (kept >= 0) break;
  }
  num_kept = kept >= 0 ? kept : count;
  const double result = running;
  __syncthreads();
  return result;
}

// How far below the largest logit (in exponents) the wanted weight is certainly reached; infinity if the bins do not
// tell. Only bounds what is sorted, so the order of these sums does not matter.
__device__ float find_band(const float* logits, int64_t vocab, float max, float temperature, double wanted) {
  __shared__ double bins[kNumBins];
  __shared__ float band;
  for (int b = static_cast<int>(threadIdx.x); b < kNumBins; b += kFinishThreads) bins[b] = 0;
  __syncthreads();
  for (int64_t v = threadIdx.x; v < vocab; v += kFinishThreads) {
    const float exponent = (logits[v] - max) / temperature, bin = -exponent * kBinsPerUnit;
    if (bin < kNumBins) atomicAdd(&bins[static_cast<int>(bin)], static_cast<double>(exp_in_lanes(exponent)));
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    band = std::numeric_limits<float>::infinity();
    double running = 0;
    for (int b = 0; b < kNumBins; ++b) {
      running += bins[b];
      if (running <= wanted * (1 + 1e-5)) continue;
      band = static_cast<float>(b + 2) / kBinsPerUnit;  // one bin to spare
      break;
    }
  }
  __syncthreads();
  const float result = band;
  __syncthreads();
  return result;
}

__device__ float score_of(const Row& row, const NoiseKey& key, float logit, float max, int32_t id) {
  return (logit - max) / row.law->temperature + gumbel_at(key, id);
}

// cuts.cc: top-k, then top-p over what it left, then min-p; the best of what stands.
__device__ int32_t pick_within_cuts(const PickTables& t, const Row& row, const float* logits, float max) {
  const PickLaw& law = *row.law;
  const NoiseKey key = noise_key(row);
  const auto passes = [&](float logit) {
    return law.min_p <= 0 || !(weight_of(logit, max, law.temperature) < law.min_p);
  };
  Best best{masked_logit(), -1};
  if (law.top_k <= 0 && law.top_p >= 1) {
    for (int64_t v = threadIdx.x; v < t.vocab; v += kFinishThreads)
      if (logits[v] != masked_logit() && passes(logits[v]))
        best.offer(score_of(row, key, logits[v], max, static_cast<int32_t>(v)), static_cast<int32_t>(v));
    return best_of_block<kFinishThreads>(best).id;
  }
  uint64_t* keys = t.keys + blockIdx.x * t.keys_per_row;
  int count = 0;
  if (law.top_k > 0) {
    count = collect(logits, t.vocab, kth_ordered(logits, t.vocab, law.top_k), keys);
    sort_keys(keys, count);
    count = count < law.top_k ? count : law.top_k;
    if (law.top_p < 1) {
      const double total = walk_weights(keys, count, max, law.temperature, -1, count);
      walk_weights(keys, count, max, law.temperature, static_cast<double>(law.top_p) * total, count);
    }
  } else {
    const double wanted = static_cast<double>(law.top_p) * exp_sum(logits, t.vocab, max, law.temperature);
    const float least = max - law.temperature * find_band(logits, t.vocab, max, law.temperature, wanted);
    count = collect(logits, t.vocab, ordered(least), keys);
    sort_keys(keys, count);
    walk_weights(keys, count, max, law.temperature, wanted, count);
  }
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kFinishThreads) {
    const float logit = logit_of(keys[i]);
    const int32_t id = static_cast<int32_t>(keys[i]);
    if (passes(logit)) best.offer(score_of(row, key, logit, max, id), id);
  }
  return best_of_block<kFinishThreads>(best).id;
}

__device__ float max_of_block_row(const float* logits, int64_t vocab) {
  Best best{masked_logit(), -1};
  for (int64_t v = threadIdx.x; v < vocab; v += kFinishThreads) best.offer(logits[v], static_cast<int32_t>(v));
  return best_of_block<kFinishThreads>(best).score;
}

// The law of the logprobs, and its likeliest tokens one after another.
__device__ void write_logprobs(const PickTables& t, const Row& row, int64_t r, const float* edited, const float* model,
                               float edited_max, PickedRow& out) {
  const PickLaw& law = *row.law;
  const float* logits = law.is_processed ? edited : model;
  out.max = law.is_processed ? edited_max : max_of_block_row(model, t.vocab);
  out.temperature = law.is_processed && !law.is_greedy ? law.temperature : 1.f;
  out.exp_sum = exp_sum(logits, t.vocab, out.max, out.temperature);
  out.logit = logits[out.id];
  uint64_t last = 0;  // no key is 0: it would be a NaN's
  for (out.num_top = 0; out.num_top < law.num_top_logprobs; ++out.num_top) {
    uint64_t next = kNoKey;
    for (int64_t v = threadIdx.x; v < t.vocab; v += kFinishThreads) {
      if (logits[v] == masked_logit()) continue;
      const uint64_t key = key_of(logits[v], v);
      if (key > last && key < next) next = key;
    }
    __shared__ unsigned long long least;
    if (threadIdx.x == 0) least = kNoKey;
    __syncthreads();
    atomicMin(&least, static_cast<unsigned long long>(next));
    __syncthreads();
    last = least;
    __syncthreads();
    if (last == kNoKey) return;
    if (threadIdx.x == 0)
      t.likely[r * kTopLogprobsMax + out.num_top] = {static_cast<int32_t>(last), logits[static_cast<uint32_t>(last)]};
  }
}

__device__ int32_t noisy_winner(const PickTables& t, int64_t r) {
  Best best{masked_logit(), -1};
  for (int p = 0; p < kPickPieces; ++p)
    best.offer(t.pieces[r * kPickPieces + p].score, t.pieces[r * kPickPieces + p].winner);
  return best.id;
}

__device__ void finish_row(const PickTables& t, const PickLogits& model, int64_t r, int64_t num_rows, int64_t draft,
                           int32_t* previous) {
  const Row row = row_of(t, r, draft);
  const RowMax found = max_of_row(t, r);
  const float* logits = logits_of(t, row, model, r);
  PickedRow out;
  out.error = !found.is_finite ? 1 : found.max == masked_logit() ? 2 : 0;
  if (out.error == 0) {
    out.id = row.law->is_greedy  ? found.first
             : row.law->has_cuts ? pick_within_cuts(t, row, logits, found.max)
                                 : noisy_winner(t, r);
    if (draft < 0 && row.law->num_top_logprobs >= 0) write_logprobs(t, row, r, logits, model.row(r), found.max, out);
  }
  __syncthreads();  // the row's chosen tokens have been read
  if (threadIdx.x != 0) return;
  if (draft < 0) {
    t.picked[r] = out;
    return;
  }
  const int32_t id = out.error == 0 ? out.id : 0;
  t.draft_ids[draft * num_rows + r] = id;
  previous[r] = id;
  t.chosen[r * t.chosen_max + t.num_chosen[r]] = id;
  ++t.num_chosen[r];
}

__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(PickTables t, PickLogits model, int64_t draft, int32_t* previous) {
  for (int64_t r = blockIdx.x; r < model.size[0]; r += gridDim.x) {
    finish_row(t, model, r, model.size[0], draft, previous);
    __syncthreads();
  }
}

// engine_sampling.cc's settle() and plan_drafts(), but for the end of a sequence: the host drops what stands behind it.
__global__ void start_drafts_kernel(PickTables t, DraftPlaces places, int64_t num_sequences) {
  const int64_t s = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (s >= num_sequences) return;
  const PickDraft& draft = t.drafts[s];
  int32_t* chosen = t.chosen + s * t.chosen_max;
  int num = 0, num_rejected = 0;
  int32_t anchor = draft.anchor;
  if (draft.num_rows > 0) {
    const PickRow& last = t.rows[draft.first_row + draft.num_rows - 1];
    const int32_t* drafted = t.ids + last.drafted_begin;
    num_rejected = last.num_drafted;
    int32_t token = 0;
    for (int i = 0; i < draft.num_rows; ++i) {
      const PickedRow& picked = t.picked[draft.first_row + i];
      if (picked.error != 0) break;
      token = chosen[num++] = picked.id;
      if (i == last.num_drafted || drafted[i] != token) break;
      --num_rejected;
    }
    if (anchor < 0) anchor = token;
  }
  t.num_chosen[s] = num;
  t.draft_output_position[s] = draft.output_position + num;
  places.previous[s] = anchor;
  const int32_t position = draft.position_end - num_rejected;
  for (int64_t i = 0; i < places.block; ++i) {
    places.positions[s * places.block + i] = position + static_cast<int32_t>(i);
    places.window_end[s * places.block + i] = position;
  }
  places.tokens[s * places.block] = anchor;
}

void edit(void* stream, const PickTables& tables, const PickLogits& logits, int64_t draft) {
  edit_kernel<<<static_cast<unsigned>(logits.size[0]), kEditThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      tables, logits, draft);
}

void pick(void* stream, const PickTables& tables, const PickLogits& logits, int64_t draft, int32_t* previous) {
  const auto s = static_cast<cudaStream_t>(stream);
  const unsigned rows = static_cast<unsigned>(logits.size[0]);
  const dim3 pieces(kPickPieces, rows);
  scan_kernel<<<pieces, kScanThreads, 0, s>>>(tables, logits, draft);
  noise_kernel<<<pieces, kScanThreads, 0, s>>>(tables, logits, draft);
  const unsigned blocks = rows < kPickFinishBlocks ? rows : kPickFinishBlocks;
  finish_kernel<<<blocks, kFinishThreads, 0, s>>>(tables, logits, draft, previous);
}

void start_drafts(void* stream, const PickTables& tables, const DraftPlaces& places, int64_t num_sequences) {
  constexpr unsigned kThreads = 64;
  const unsigned blocks = static_cast<unsigned>((num_sequences + kThreads - 1) / kThreads);
  start_drafts_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tables, places, num_sequences);
}

constexpr DevicePicks kPicks{edit, pick, start_drafts};

}  // namespace

extern const DevicePicks* const kDevicePicks = &kPicks;

}  // namespace deepinfer
