// SPDX-License-Identifier: MIT
// One rank at the released widths on a device: decode steps of EP64's shape and prefill, every layer with its own
// weights (wide_model.h). Decode: 60 requests of 4 or 5 rows, 264 in all, each with its drafts behind it; 7 experts a
// layer of which every row takes 6, as the rows of all 64 ranks would bring them; no network. A step is two recorded
// graphs with no wait between them. Rates count 3.2 tokens a request and step, the published mean of accepted drafts
// with the token behind them (originals.md 2.7).
//
// `--set layers=N` (default 40), `--set requests=N` (60), `--set context=N` tokens in each (4096), `--set prompt=N`
// (8192), `--set chunk=N` (4096), `--set only=decode` or `prefill`, `--set numerics=fast` for tensor cores. With
// `--set curve=1` also the curves that the originals publish: decode over the requests of a rank, prefill over the
// prompt's length.
#include <fmt/format.h>

#include "base/clock.h"
#include "engine/bench_model.h"
#include "engine/engine_state.h"
#include "engine/op_report.h"
#include "engine/wide_model.h"
#include "kernels/device_profile.h"
#include "model/memory_plan.h"

namespace deepinfer {
namespace {

constexpr double kBf16Flops = 780e12, kFp8Flops = 1306e12,
                 kBytes = 4.28e12;  // measured on one H200 (issue of the backend)
constexpr double kAcceptedTokens = 3.2;

int64_t setting(const BenchOptions& options, const char* name, int64_t fallback) {
  const auto at = options.extra.find(name);
  return at == options.extra.end() ? fallback : std::atoll(at->second.c_str());
}

struct Work {
  double flops = 0, bytes = 0;
  double seconds(double flops_per_second) const { return std::max(flops / flops_per_second, bytes / kBytes); }
};

struct Rows {
  double all = 0, decoder = 0;  // rows of the encoder's layers, and of the layers behind the last kv source
  double logits = 0, draft = 0;
};

// Two operations a parameter and row that meets it, and each weight read once; attention's products. Small ops, scores
// of the index and caches are left out: the bound is that much too low.
Work work_of(const ModelConfig& config, int num_encoder_layers, const Rows& rows, double entries) {
  Work work;
  WeightViews nowhere;
  for (const WeightRow& row : declare_weights(config, nowhere)) {
    if (row.part == WeightPart::kEngramTables || row.part == WeightPart::kVision || row.part == WeightPart::kEmbed)
      continue;
    const bool is_draft = row.part == WeightPart::kDraft;
    double met = is_draft ? rows.draft : row.layer < num_encoder_layers ? rows.all : rows.decoder;
    if (row.part == WeightPart::kHead) met = rows.logits + rows.draft;
    if (row.expert >= 0)
      met *= is_draft ? static_cast<double>(config.draft.experts_per_token) / config.draft.num_experts
                      : static_cast<double>(config.experts_per_token) / config.num_experts;
    if (!row.is_scale && row.shape.size() > 1) work.flops += 2 * met * static_cast<double>(row.num_parameters());
    if (met > 0) work.bytes += static_cast<double>(row.size_bytes());
  }
  const double layers = num_encoder_layers * rows.all + (config.num_layers - num_encoder_layers) * rows.decoder;
  work.flops += 4.0 * layers * entries * static_cast<double>(config.num_heads * config.head_dim);
  return work;
}

class Rank {
 public:
  Rank(Engine& engine, const BenchOptions& options, BenchReport& report)
      : engine_(engine), options_(options), report_(report) {
    const int64_t each = BlockTable::blocks_for(engine.options().context_max);
    uint32_t next = 0;
    for (int64_t s = 0; s < requests(); ++s) {
      std::vector<BlockId> blocks;
      for (int64_t b = 0; b < each; ++b)
        blocks.push_back(BlockId{next++ % static_cast<uint32_t>(engine.options().blocks_max)});
      blocks_.emplace_back(std::move(blocks));
    }
  }

  Status decode(int64_t num_requests) {
    const int64_t num_rows = num_decode_rows(num_requests);
    TRY(admit_all(num_requests));
    std::vector<double> busy, wall;
    for (int i = 0; i < (options_.quick ? 4 : 14); ++i) {
      const double begin = clock_seconds();
      ASSIGN_OR_RETURN(const StepOutput output, decode_step(num_requests));
      if (i < 3) continue;  // run, recorded, launched for the first time
      wall.push_back(clock_seconds() - begin);
      busy.push_back(static_cast<double>(output.device_busy_ns) * 1e-9);
    }
    const ModelConfig& config = engine_.config();
    const double rows = static_cast<double>(num_rows),
                 drafts = static_cast<double>(num_requests * config.draft.block_size);
    const Work work =
        work_of(config, 0, {rows, rows, rows, drafts},
                static_cast<double>(config.window) +
                    std::min<double>(static_cast<double>(config.index_top_k), static_cast<double>(context()) / 2));
    add(fmt::format("decode, {} requests, {} rows at {} tokens, drafts", num_requests, num_rows, context()),
        median(busy), kAcceptedTokens * static_cast<double>(num_requests), work);
    report_.add({.name = fmt::format("decode, {} requests, host's share of a step", num_requests),
                 .value = 100 * (1 - median(busy) / median(wall)),
                 .unit = "%"});
    return {};
  }

  Status prefill(int64_t num_tokens) {
    double seconds = 0;
    for (int run = 0; run < 3; ++run) {  // run, recorded, launched
      double busy = 0;
      TRY(prefill_once(num_tokens,
                       [&](const StepOutput& output) { busy += static_cast<double>(output.device_busy_ns) * 1e-9; }));
      seconds = run == 0 ? busy : std::min(seconds, busy);
    }
    const ModelConfig& config = engine_.config();
    const double rows = static_cast<double>(num_tokens);
    const Work work =
        work_of(config, engine_.state().roles.num_encoder_layers, {rows, static_cast<double>(config.window), 1, 0},
                static_cast<double>(config.window + config.index_top_k));
    prefill_seconds_ = seconds / rows;
    add(fmt::format("prefill, {} tokens in chunks of {}", num_tokens, chunk()), seconds, rows, work);
    return {};
  }

  // Where the time of a decode step and of a prompt goes, op by op, of an engine whose options have `profile`.
  Status breakdown(OpProfile& profile) {
    if (!profile.device) return unavailable("breakdown: the device has no clock");
    TRY(admit_all(requests()));
    double seconds = 0;
    constexpr int kSteps = 8;
    for (int i = 0; i < 3 + kSteps; ++i) {
      if (i < 2) profile.device->clear();  // run, then recorded; the points of the recording stay
      ASSIGN_OR_RETURN(const StepOutput output, decode_step(requests()));
      if (i < 3) continue;
      profile.device->read(profile);
      seconds += static_cast<double>(output.device_busy_ns) * 1e-9;
    }
    report_breakdown(profile, kSteps, seconds, fmt::format("decode, {} requests: ", requests()));
    seconds = 0;
    for (int run = 0; run < 2; ++run) {
      profile.clear(), seconds = 0;
      profile.device->clear();
      TRY(prefill_once(prompt(), [&](const StepOutput& output) {
        seconds += static_cast<double>(output.device_busy_ns) * 1e-9;
        profile.device->read(profile);
        profile.device->clear();
      }));
    }
    report_breakdown(profile, 1, seconds, fmt::format("prefill, {} tokens: ", prompt()));
    return {};
  }

  Status curves() {
    for (const int64_t count : {1, 4, 16, 32})
      if (count < requests()) TRY(decode(count));
    for (const int64_t length : {512, 2048, 32768})
      if (length <= engine_.options().context_max - 128 && static_cast<double>(length) * prefill_seconds_ < 8)
        TRY(prefill(length));
    return {};
  }
  int64_t requests() const { return setting(options_, "requests", 60); }
  int64_t prompt() const { return setting(options_, "prompt", 8192); }

 private:
  int64_t context() const { return setting(options_, "context", 4096); }
  int64_t chunk() const { return setting(options_, "chunk", 4096); }
  TokenId token(int64_t i) const { return static_cast<TokenId>((i * 7919 + 13) % engine_.config().vocab_size); }
  static int64_t num_decode_rows(int64_t num_requests) { return std::max<int64_t>((num_requests * 44 + 5) / 10, 1); }
  static double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values.empty() ? 0 : values[values.size() / 2];
  }

  Status admit(int64_t lane) {
    LaneStart start{.lane = static_cast<int32_t>(lane)};
    start.params.temperature = 0.6f;
    start.params.seed = static_cast<uint64_t>(lane);
    return engine_.admit(std::move(start));
  }

  Status admit_all(int64_t num_requests) {
    for (int64_t s = 0; s < num_requests; ++s) TRY(admit(s));
    return fill_caches();
  }

  Result<StepOutput> run(const Batch& batch) {
    TRY(engine_.launch(batch));
    TRY(engine_.sample(nullptr));
    return engine_.collect();
  }

  // 4.4 rows of each request.
  Result<StepOutput> decode_step(int64_t num_requests) {
    const int64_t num_rows = num_decode_rows(num_requests);
    Batch batch{.step = step_++};
    for (int64_t s = 0; s < num_requests; ++s) {
      const int64_t begin = batch.num_rows(), end = num_rows * (s + 1) / num_requests;
      for (int64_t i = begin; i < end; ++i) batch.tokens.push_back(token(i));
      batch.sequences.push_back({.lane = static_cast<int32_t>(s),
                                 .blocks = &blocks_[static_cast<size_t>(s)],
                                 .position_begin = context(),
                                 .rows = {begin, end},
                                 .num_logits_rows = end - begin,
                                 .history = {token(s), token(s + 1), token(s + 2)},
                                 .draft = true});
    }
    return run(batch);
  }

  // after(output) behind every chunk.
  Status prefill_once(int64_t num_tokens, const std::function<void(const StepOutput&)>& after) {
    const ReplayPlan plan = plan_replay(engine_.replay_geometry(), ReplayMode::kFast, 0, num_tokens);
    TRY(admit(0));
    for (int64_t begin = 0; begin < num_tokens; begin += chunk()) {
      const int64_t end = std::min(num_tokens, begin + chunk());
      Batch batch{.step = step_++};
      for (int64_t i = begin; i < end; ++i) batch.tokens.push_back(token(i));
      batch.sequences.push_back({.lane = 0,
                                 .blocks = &blocks_[0],
                                 .position_begin = begin,
                                 .rows = {0, end - begin},
                                 .num_logits_rows = end == num_tokens,
                                 .limits = plan.limits});
      ASSIGN_OR_RETURN(const StepOutput output, run(batch));
      after(output);
    }
    return {};
  }

  // Sums over `steps` become one step's.
  void report_breakdown(OpProfile& profile, int steps, double seconds, const std::string& label) {
    for (auto& [name, time] : profile.ops) {
      time.calls /= steps, time.seconds /= steps, time.cost.flops /= steps;
      time.cost.bytes_read /= steps, time.cost.bytes_written /= steps;
    }
    report_ops(profile, seconds / steps, kBytes, kBf16Flops, label, report_);
  }

  // Zeros would draw less power than keys do, and run faster.
  Status fill_caches() {
    Engine::State& state = engine_.state();
    const int64_t size = int64_t{1} << 20;
    Buffer<uint8_t> pattern(state.machine().staging(), size);
    Rng rng(3);
    for (uint8_t& byte : pattern) byte = static_cast<uint8_t>(rng.next_u32()) & 0x77;  // no NaN as e4m3, e2m1, e8m0
    for (Buffer<uint8_t>* cache : {&state.rings, &state.blocks})
      for (int64_t at = 0; at < cache->size(); at += size)
        state.machine().copy(cache->data() + at, pattern.data(), std::min(size, cache->size() - at));
    return state.machine().wait();
  }

  void add(const std::string& name, double seconds, double tokens, const Work& work) {
    const double bf16 = work.seconds(kBf16Flops), fp8 = work.seconds(kFp8Flops);
    report_.add({.name = name,
                 .value = tokens / seconds,
                 .unit = "tokens/s",
                 .ceiling = tokens / bf16,
                 .ceiling_name = "bf16 route",
                 .note = fmt::format("{:.2f} ms of the device; bound max({:.2f} TFLOP / 780 TFLOP/s, {:.2f} GB / 4.28 "
                                     "TB/s) = {:.2f} ms; FP8 route {:.2f} ms, {:.0f} tokens/s",
                                     seconds * 1e3, work.flops * 1e-12, work.bytes * 1e-9, bf16 * 1e3, fp8 * 1e3,
                                     tokens / fp8)});
  }

  Engine& engine_;
  const BenchOptions& options_;
  BenchReport& report_;
  std::vector<BlockTable> blocks_;
  uint64_t step_ = 0;
  double prefill_seconds_ = 0;  // a token's, as measured last
};

Status break_down(const std::shared_ptr<const ModelWeights>& weights, EngineOptions engine_options,
                  const BenchOptions& options, BenchReport& report) {
  OpProfile profile;
  engine_options.profile = &profile;
  ASSIGN_OR_RETURN(TokenMap token_map, stand_in_classes(weights->config()));
  ASSIGN_OR_RETURN(const auto engine, Engine::open(weights, std::move(token_map), engine_options));
  return Rank(*engine, options, report).breakdown(profile);
}

}  // namespace

Status bench_rank(const BenchOptions& options, BenchReport& report) {
  if (bench_target(options).backend != Backend::kCuda) {
    report.add({.name = "skipped", .note = "only with --set backend=cuda"});
    return {};
  }
  const int layers = static_cast<int>(setting(options, "layers", options.quick ? 6 : 40));
  if (layers < 3 || layers > 40) return invalid_argument("--set layers=: expected 3..40");
  const double begin = clock_seconds();
  ASSIGN_OR_RETURN(const auto weights, WideCheckpoint::make({.num_layers = layers}, num_usable_cpus()));
  ASSIGN_OR_RETURN(TokenMap token_map, stand_in_classes(weights->config()));
  const int64_t requests = setting(options, "requests", 60), chunk = setting(options, "chunk", 4096);
  int64_t longest = std::max(setting(options, "context", 4096), setting(options, "prompt", 8192)) + 256;
  if (setting(options, "curve", 0) != 0) longest = std::max<int64_t>(longest, 32768 + 256);
  EngineOptions engine_options{.num_threads = num_usable_cpus(), .target = bench_target(options)};
  engine_options.rows_max = std::max<int64_t>(chunk, 5 * requests);
  engine_options.logits_rows_max = 5 * requests;
  engine_options.lanes_max = requests;
  engine_options.context_max = longest;
  engine_options.blocks_max = std::clamp<int64_t>(requests * BlockTable::blocks_for(longest), 2048, 16384);
  ASSIGN_OR_RETURN(const auto engine, Engine::open(weights, std::move(token_map), engine_options));
  report.add({.name = fmt::format("{} layers opened", layers),
              .value = clock_seconds() - begin,
              .unit = "s",
              .note = bytes_to_string(DeviceWeights::size_bytes(*weights, EngramTier::kDevice)) + " of weights"});
  Rank rank(*engine, options, report);
  const auto only = options.extra.find("only");
  if (only == options.extra.end() || only->second == "decode") TRY(rank.decode(rank.requests()));
  if (only == options.extra.end() || only->second == "prefill") TRY(rank.prefill(rank.prompt()));
  if (setting(options, "curve", 0) != 0) TRY(rank.curves());
  return setting(options, "breakdown", 0) != 0 ? break_down(weights, engine_options, options, report) : Status();
}

}  // namespace deepinfer
