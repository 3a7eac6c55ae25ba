// SPDX-License-Identifier: MIT
// Ops on a device at the released widths, against its copy bandwidth measured in the same run. Each case is recorded
// into a graph of several launches over different weights, more of them than the caches hold, and timed by the device.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/bench.h"
#include "base/philox.h"
#include "kernels/kernel_table.h"
#include "kernels/linear/yardstick.h"

namespace deepinfer {
namespace {

constexpr int64_t kCacheBytes = int64_t{160} << 20;  // twice the second-level cache and more

class DeviceBench {
 public:
  DeviceBench(Device& device, BenchReport& report) : device_(device), report_(report), scratch_(device.memory()) {
    constexpr int64_t kPattern = int64_t{32} << 20;
    pattern_ = Buffer<uint8_t>(device.staging(), kPattern);
    Rng rng(1);
    for (int64_t i = 0; i < kPattern; i += 4) {
      const uint32_t bits = rng.next_u32() & 0x3F3F3F3Fu;  // e4m3 below 2, e2m1 of any kind, bf16 below 1
      std::memcpy(&pattern_[i], &bits, 4);
    }
  }

  // Random bytes; as scales they are too spread, so those are constant.
  Buffer<uint8_t> bytes(int64_t size) {
    Buffer<uint8_t> made(device_.memory(), size);
    for (int64_t at = 0; at < size; at += pattern_.size())
      device_.copy(made.data() + at, pattern_.data(), std::min(pattern_.size(), size - at));
    return made;
  }
  Buffer<uint8_t> scales(int64_t size) {
    Buffer<uint8_t> made(device_.memory(), size);
    device_.fill(made.data(), 120, size);
    return made;
  }
  template <typename T>
  Buffer<T> table(const std::vector<T>& values) {
    Buffer<T> staged(device_.staging(), static_cast<int64_t>(values.size()));
    std::copy(values.begin(), values.end(), staged.data());
    Buffer<T> made(device_.memory(), staged.size());
    device_.copy(made.data(), staged.data(), staged.size_bytes());
    static_cast<void>(device_.wait());
    return made;
  }

  // Seconds of one call of body(i), i = 0, 1, ... over `count` different inputs.
  template <typename Body>
  double seconds(int count, const Body& body) {
    for (int i = 0; i < count; ++i) body(i);  // working memory grows, code is loaded
    device_.begin_graph();
    for (int i = 0; i < count; ++i) body(i);
    const auto graph = device_.end_graph();
    if (!graph) return 0;
    graph->launch();
    double best = 1e30;
    for (int round = 0; round < 5; ++round) {
      device_.start_timer();
      graph->launch();
      best = std::min(best, device_.elapsed_ns() * 1e-9 / count);
    }
    return best;
  }

  void use(const KernelTable& kernels, std::string suffix) {
    kernels_ = kernels;
    suffix_ = std::move(suffix);
  }
  bool is_exact() const { return suffix_.empty(); }

  void measure_copy() {
    const Buffer<uint8_t> from = bytes(int64_t{2} << 30);
    Buffer<uint8_t> to(device_.memory(), from.size());
    double time = 1e30;  // not in a graph: there copies go to the copy engine, which is slower
    for (int round = 0; round < 5; ++round) {
      device_.start_timer();
      device_.copy(to.data(), from.data(), from.size());
      time = std::min(time, device_.elapsed_ns() * 1e-9);
    }
    copy_ = 2 * static_cast<double>(from.size()) / time;
    report_.add({.name = "copy 2 GiB", .value = copy_ * 1e-9, .unit = "GB/s"});
  }

  // Products of the vendor's library in the same run: rates that rows of products are held against.
  void measure_library() {
    struct Case {
      bool is_fp8;
      int64_t rows, out, in;
    };
    for (const Case& c : {Case{false, 8192, 8192, 8192}, Case{true, 8192, 8192, 8192}, Case{false, 4096, 32768, 1280},
                          Case{false, 4096, 5120, 8192}, Case{true, 4096, 32768, 1280}, Case{true, 4096, 5120, 8192}}) {
      const auto product = open_library_product(device_, {c.is_fp8, c.rows, c.out, c.in});
      if (!product) {
        report_.add({.name = "library product", .note = "libcublasLt.so.13 not found"});
        return;
      }
      const Buffer<uint8_t> x = bytes(2 * c.rows * c.in), w = bytes(2 * c.out * c.in);
      Buffer<bf16> y(device_.memory(), c.rows * c.out);
      const double time = seconds(8, [&](int) { product->launch(x.data(), w.data(), y.data()); });
      const double rate =
          2.0 * static_cast<double>(c.rows) * static_cast<double>(c.out) * static_cast<double>(c.in) / time;
      double& most = c.is_fp8 ? library_fp8_ : library_bf16_;
      most = std::max(most, rate);
      report_.add({.name = fmt::format("library {} {}x{} M={}", c.is_fp8 ? "fp8" : "bf16", c.out, c.in, c.rows),
                   .value = rate * 1e-12,
                   .unit = "TFLOP/s"});
    }
  }

  // A product against both of its bounds: bytes at the copy's speed and operations at the library's bf16 rate.
  void add_product(const std::string& name, double time, const Cost& cost) {
    const double bytes = cost.bytes_read + cost.bytes_written;
    const double bound = std::max(bytes / copy_, library_bf16_ > 0 ? cost.flops / library_bf16_ : 0);
    const bool is_bytes = bound <= bytes / copy_;
    report_.add({.name = name + suffix_,
                 .value = time * 1e6,
                 .unit = "us",
                 .ceiling = bound * 1e6,
                 .ceiling_name = is_bytes ? "bytes at the copy's speed" : "library bf16",
                 .note = fmt::format("{:.1f} GB/s, {:.2f} TFLOP/s: {:.1f} % of the bound", bytes / time * 1e-9,
                                     cost.flops / time * 1e-12, 100 * bound / time)});
  }

  void add(const std::string& name, double time, const Cost& cost) {
    const double read = (cost.bytes_read + cost.bytes_written) / time;
    report_.add({.name = name + suffix_,
                 .value = time * 1e6,
                 .unit = "us",
                 .note = fmt::format("{:.1f} GB/s = {:.1f} % of the copy, {:.2f} TFLOP/s", read * 1e-9,
                                     100 * read / copy_, cost.flops / time * 1e-12)});
  }

  void linear(const char* name, int kind, int64_t out, int64_t in, int groups, int64_t rows) {
    const int64_t code_bytes = kind == 0 ? 2 * out * in : kind == 1 ? out * in : out * in / 2;
    const int64_t scale_bytes = kind == 0 ? 0 : num_scale_blocks(in) * (kind == 1 ? num_scale_blocks(out) : out);
    const int count = static_cast<int>(std::clamp<int64_t>(kCacheBytes / code_bytes, 2, 40));
    const Buffer<uint8_t> codes = bytes(count * code_bytes), scale = scales(std::max<int64_t>(1, count * scale_bytes));
    const Buffer<uint8_t> x = bytes(2 * rows * in * groups);
    Buffer<bf16> y(device_.memory(), rows * out);
    const auto params = [&](int i) {
      const uint8_t* c = codes.data() + i * code_bytes;
      const uint8_t* s = scale.data() + i * scale_bytes;
      WeightMatrix weight = Bf16Matrix{reinterpret_cast<const bf16*>(c), out, in};
      if (kind == 1) weight = Fp8Matrix{c, s, out, in};
      if (kind == 2) weight = Fp4Matrix{c, s, out, in};
      return LinearParams{.x = {reinterpret_cast<const bf16*>(x.data()), {rows, in * groups}},
                          .weight = weight,
                          .round_activation = kind != 0,
                          .num_groups = groups,
                          .out = {y.data(), {rows, out}}};
    };
    const double time = seconds(count, [&](int i) { kernels_.linear(context(), params(i)); });
    add_product(fmt::format("{} {}x{} M={}", name, out, in, rows), time, estimate(params(0)));
  }

  // Several: routed ones, FP4. One: the shared one, FP8, in rotation.
  void experts(int64_t num_experts, int64_t rows_each) {
    const bool is_fp8 = num_experts == 1;
    const int count = is_fp8 ? 5 : 4;
    constexpr int64_t kHidden = 5120, kInner = 2304, kScales = kHidden * kInner / 32;
    const int64_t kCodes = kHidden * kInner / (is_fp8 ? 1 : 2), copies = is_fp8 ? count : 1;
    const Buffer<uint8_t> codes = bytes(3 * copies * num_experts * kCodes),
                          scale = scales(3 * copies * num_experts * kScales);
    std::vector<ExpertMatrices> matrices;
    std::vector<int32_t> begin = {0};
    for (int64_t e = 0; e < copies * num_experts; ++e) {
      const auto matrix = [&](int64_t m, int64_t out, int64_t in) -> WeightMatrix {
        const uint8_t *c = codes.data() + (3 * e + m) * kCodes, *s = scale.data() + (3 * e + m) * kScales;
        if (is_fp8) return Fp8Matrix{c, s, out, in};
        return Fp4Matrix{c, s, out, in};
      };
      matrices.push_back({matrix(0, kInner, kHidden), matrix(1, kInner, kHidden), matrix(2, kHidden, kInner)});
      if (e < num_experts) begin.push_back(begin.back() + static_cast<int32_t>(rows_each));
    }
    const int64_t rows = num_experts * rows_each;
    const Buffer<int32_t> begin_on_device = table(begin);
    const Buffer<uint8_t> x = bytes(2 * rows * kHidden);
    Buffer<bf16> y(device_.memory(), rows * kHidden);
    ExpertsParams params{.x = {reinterpret_cast<const bf16*>(x.data()), {rows, kHidden}},
                         .experts = {matrices.data(), static_cast<size_t>(num_experts)},
                         .begin = {begin_on_device.data(), {num_experts + 1}},
                         .swiglu_limit = 10,
                         .out = {y.data(), {rows, kHidden}}};
    const double time = seconds(count, [&](int i) {
      if (is_fp8) params.experts = {matrices.data() + i, 1};
      kernels_.experts(context(), params);
    });
    params.begin = {begin.data(), {num_experts + 1}};
    add_product(is_fp8 ? fmt::format("shared expert fp8, {} rows", rows_each)
                       : fmt::format("experts fp4, {} experts, {} rows each", num_experts, rows_each),
                time, estimate(params));
  }

  // 128 window rows and 512 selected entries a token; decode: every token of another lane, else all of one.
  void attention(int64_t tokens, bool is_decode) {
    constexpr int64_t kHeads = 64, kHeadDim = 512, kWindow = 128, kSelected = 512, kEntries = 4096, kSlots = 192;
    constexpr int64_t kRing = 528, kGlobal = 288, kPerBlock = 64, kBlocks = kEntries / kPerBlock;
    const int64_t num_lanes = is_decode ? tokens : 1;
    const Buffer<uint8_t> q = bytes(2 * tokens * kHeads * kHeadDim), ring = bytes(num_lanes * kSlots * kRing),
                          plane = bytes(num_lanes * kEntries * kGlobal);
    std::vector<int32_t> lane, end, fresh, selected, blocks;
    for (int64_t t = 0; t < tokens; ++t) {
      lane.push_back(static_cast<int32_t>(t % num_lanes)), end.push_back(100000), fresh.push_back(0);
      for (int64_t e = 0; e < kSelected; ++e) selected.push_back(static_cast<int32_t>(e * (kEntries / kSelected)));
    }
    for (int64_t b = 0; b < num_lanes * kBlocks; ++b) blocks.push_back(static_cast<int32_t>(b));
    const Buffer<int32_t> lanes = table(lane), ends = table(end), fresh_rows = table(fresh), list = table(selected),
                          block_table = table(blocks);
    const Buffer<float> sink = table(std::vector<float>(kHeads, 0.f));
    Buffer<bf16> out(device_.memory(), tokens * kHeads * kHeadDim);
    SparseAttentionParams params{
        .q = {reinterpret_cast<const bf16*>(q.data()), {tokens, kHeads, kHeadDim}},
        .sink = {sink.data(), kHeads},
        .scale = 0.044f,
        .window = kWindow,
        .lane = {lanes.data(), {tokens}},
        .window_end = {ends.data(), {tokens}},
        .num_fresh = {fresh_rows.data(), {tokens}},
        .ring = {ring.data(), kSlots * kRing, kRing, kSlots},
        .selected = {list.data(), {tokens, kSelected}},
        .global = {plane.data(), kPerBlock * kGlobal, kGlobal, kPerBlock, {block_table.data(), {num_lanes, kBlocks}}},
        .out = {out.data(), {tokens, kHeads, kHeadDim}}};
    const double time = seconds(4, [&](int) { kernels_.sparse_attention(context(), params); });
    params.window_end.data = end.data(), params.selected.data = selected.data();
    add_product(fmt::format("attention, {} tokens x 640 entries, {}", tokens, is_decode ? "decode" : "prefill"), time,
                estimate(params));
  }

  void selection(int64_t tokens, int64_t entries) {
    constexpr int64_t kHeads = 32, kDim = 128, kRow = 68, kPerBlock = 64;
    const int64_t blocks = entries / kPerBlock;
    const Buffer<uint8_t> q = bytes(2 * tokens * kHeads * kDim), weight = bytes(2 * tokens * kHeads),
                          keys = bytes(entries * kRow);
    std::vector<int32_t> block_list;
    for (int64_t b = 0; b < blocks; ++b) block_list.push_back(static_cast<int32_t>(b));
    const std::vector<int32_t> lane(static_cast<size_t>(tokens), 0),
        visible(static_cast<size_t>(tokens), static_cast<int32_t>(entries));
    const Buffer<int32_t> lanes = table(lane), seen = table(visible), block_table = table(block_list);
    Buffer<float> scores(device_.memory(), tokens * entries);
    Buffer<int32_t> picked(device_.memory(), tokens * 512);
    IndexScoresParams params{.q = {reinterpret_cast<const bf16*>(q.data()), {tokens, kHeads, kDim}},
                             .weight = {reinterpret_cast<const bf16*>(weight.data()), {tokens, kHeads}},
                             .weight_scale = 0.0156f,
                             .rounding = ScoreRounding::kReference,
                             .keys = {keys.data(),
                                      kPerBlock * kRow,
                                      kRow,
                                      static_cast<int32_t>(kPerBlock),
                                      {block_table.data(), {1, blocks}}},
                             .lane = {lanes.data(), {tokens}},
                             .num_visible = {seen.data(), {tokens}},
                             .scores = {scores.data(), {tokens, entries}}};
    const double score_time = seconds(2, [&](int) { kernels_.index_scores(context(), params); });
    TopKParams pick{.scores = {scores.data(), {tokens, entries}},
                    .num_visible = {seen.data(), {tokens}},
                    .out = {picked.data(), {tokens, 512}}};
    const double pick_time = seconds(2, [&](int) { kernels_.top_k(context(), pick); });
    params.num_visible.data = pick.num_visible.data = visible.data();
    Cost cost = estimate(params);  // as if every token had keys of its own
    cost.bytes_read = static_cast<double>(entries * kRow + 2 * tokens * kHeads * kDim);
    add_product(fmt::format("index scores, {} tokens x {} keys", tokens, entries), score_time, cost);
    add(fmt::format("top 512, {} tokens x {} scores", tokens, entries), pick_time, estimate(pick));
  }

  void streams(int64_t tokens) {
    constexpr int64_t kStreams = 4, kHidden = 5120, kOut = 24;
    const Buffer<uint8_t> x = bytes(2 * tokens * kStreams * kHidden), weight = bytes(2 * kHidden);
    const Buffer<float> fn = table(std::vector<float>(kOut * kStreams * kHidden, 0.01f)),
                        base = table(std::vector<float>(kOut, 0.f)), scale = table(std::vector<float>(3, 1.f));
    Buffer<float> pre(device_.memory(), tokens * kStreams), post(device_.memory(), tokens * kStreams),
        comb(device_.memory(), tokens * kStreams * kStreams);
    Buffer<bf16> y(device_.memory(), tokens * kHidden);
    const bf16* values = reinterpret_cast<const bf16*>(x.data());
    const StreamMixParams mix{.x = {values, {tokens, kStreams, kHidden}},
                              .fn = {fn.data(), kOut, kStreams * kHidden},
                              .base = {base.data(), kOut},
                              .scale = {scale.data(), 3},
                              .pre = {pre.data(), {tokens, kStreams}},
                              .post = {post.data(), {tokens, kStreams}},
                              .comb = {comb.data(), {tokens, kStreams, kStreams}}};
    const NormParams norm{.x = {values, {tokens, kHidden}},
                          .weight = {reinterpret_cast<const bf16*>(weight.data()), kHidden},
                          .out = {y.data(), {tokens, kHidden}}};
    add(fmt::format("stream mix, {} tokens", tokens), seconds(4, [&](int) { kernels_.stream_mix(context(), mix); }),
        estimate(mix));
    add(fmt::format("norm, {} tokens", tokens), seconds(4, [&](int) { kernels_.norm(context(), norm); }),
        estimate(norm));
    const StreamCollapseParams collapse{.x = mix.x, .pre = mix.pre, .out = {y.data(), {tokens, kHidden}}};
    add(fmt::format("stream collapse, {} tokens", tokens),
        seconds(4, [&](int) { kernels_.stream_collapse(context(), collapse); }), estimate(collapse));
    Buffer<bf16> updated(device_.memory(), tokens * kStreams * kHidden);
    const StreamUpdateParams update{.x = mix.x,
                                    .y = {values, {tokens, kHidden}},
                                    .post = mix.post,
                                    .comb = mix.comb,
                                    .out = {updated.data(), {tokens, kStreams, kHidden}}};
    add(fmt::format("stream update, {} tokens", tokens),
        seconds(4, [&](int) { kernels_.stream_update(context(), update); }), estimate(update));
    Buffer<bf16> input(device_.memory(), tokens * kHidden);
    const StreamAdvanceParams advance{.update = update,
                                      .pre = mix.pre,
                                      .norm_weight = norm.weight,
                                      .collapsed = collapse.out,
                                      .input = {input.data(), {tokens, kHidden}}};
    add(fmt::format("stream advance, {} tokens", tokens),
        seconds(4, [&](int) { kernels_.stream_advance(context(), advance); }), estimate(advance));
  }

 private:
  ExecutionContext context() { return {.scratch = &scratch_, .device = &device_}; }

  Device& device_;
  KernelTable kernels_;
  std::string suffix_;
  BenchReport& report_;
  Scratch scratch_;
  Buffer<uint8_t> pattern_;
  double copy_ = 0, library_bf16_ = 0, library_fp8_ = 0;
};

// Exact rows are bound by fp32 arithmetic from a few rows on, so their long cases would only cost time.
void products(DeviceBench& bench, bool quick) {
  for (const int64_t rows : {1, 4, 16, 64, 288, 512, 4096}) {
    if (bench.is_exact() && rows == 288) continue;
    if ((quick && rows > 1) || (bench.is_exact() && rows > 512)) break;
    bench.linear("wq_a fp8", 1, 1280, 5120, 1, rows);
    bench.linear("wkv fp8", 1, 512, 5120, 1, rows);
    bench.linear("wq_b fp8", 1, 32768, 1280, 1, rows);
    bench.linear("wo_a fp8, 8 groups", 1, 8192, 4096, 8, rows);
    bench.linear("wo_b fp8", 1, 5120, 8192, 1, rows);
    if (rows <= 64) bench.linear("head bf16", 0, 129280, 5120, 1, rows);
    if (!bench.is_exact() && rows >= 64) bench.linear("gate bf16", 0, 7, 5120, 1, rows);
    if (!bench.is_exact()) bench.experts(1, rows);
  }
  for (const int64_t rows : {1, 4, 16, 40, 60, 247, 256, 4096}) {
    if (bench.is_exact() && (rows > 256 || rows == 16 || rows == 60 || rows == 247)) continue;
    bench.experts(quick ? 2 : 7, rows);
  }
}

void attention_side(DeviceBench& bench) {
  for (const int64_t tokens : {1, 8, 64, 264, 512}) bench.attention(tokens, true);
  if (!bench.is_exact()) bench.attention(4096, false);
  for (const int64_t entries : {65536, 262144, 1048576}) bench.selection(1, entries);
  bench.selection(64, 65536);
  for (const int64_t tokens : {1, 64, 264, 512, 4096}) bench.streams(tokens);
}

}  // namespace

Status bench_device(const BenchOptions& options, BenchReport& report) {
  auto device = open_cuda_device();
  if (!device.ok()) {
    report.add({.name = "skipped", .note = device.status().message()});
    return {};
  }
  ASSIGN_OR_RETURN(const KernelTable exact, KernelTable::resolve({Backend::kCuda}));
  ASSIGN_OR_RETURN(const KernelTable tensor, KernelTable::resolve({.backend = Backend::kCuda, .is_exact = false}));
  DeviceBench bench(*device.value(), report);
  bench.measure_copy();
  bench.measure_library();
  for (const KernelTable* kernels : {&exact, &tensor}) {
    if (kernels == &exact && options.extra.contains("products")) continue;
    bench.use(*kernels, kernels == &exact ? "" : ", tensor cores");
    if (!options.extra.contains("attention")) products(bench, options.quick);
  }
  if (options.extra.contains("products")) return device.value()->wait();  // --set products=1: these alone
  for (const KernelTable* kernels : {&exact, &tensor}) {                  // --set attention=1: these alone
    bench.use(*kernels, kernels == &exact ? "" : ", tensor cores");
    attention_side(bench);
  }
  return device.value()->wait();
}

}  // namespace deepinfer
