// SPDX-License-Identifier: MIT
// The engine's C ABI over OfflineInference.
#include <array>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/clock.h"
#include "bindings/c/c_boundary.h"
#include "bindings/engine/deepinfer_engine.h"
#include "serve/offline_inference.h"

struct deepinfer_engine {
  deepinfer::SystemClock clock;
  std::unique_ptr<deepinfer::OfflineInference> inference;
};

namespace deepinfer {
namespace {

constexpr std::array<std::string_view, 10> kSettings = {"model",     "threads",        "sequences", "context",
                                                        "kv_tokens", "host_kv_tokens", "drafts",    "replay",
                                                        "seed",      "expert_memory"};

Result<int64_t> bounded(const Json& settings, std::string_view name, int64_t fallback, int64_t low, int64_t high) {
  ASSIGN_OR_RETURN(const uint64_t value, count_setting(settings, name, static_cast<uint64_t>(fallback)));
  if (value < static_cast<uint64_t>(low) || value > static_cast<uint64_t>(high))
    return invalid_argument("settings: " + std::string(name) + " is " + std::to_string(value) + ", expected " +
                            std::to_string(low) + " to " + std::to_string(high));
  return static_cast<int64_t>(value);
}

Result<ReplayMode> replay_setting(const Json& settings) {
  ASSIGN_OR_RETURN(const std::string replay, text_setting(settings, "replay", "fast"));
  if (replay == "fast") return ReplayMode::kFast;
  if (replay == "exact") return ReplayMode::kExact;
  if (replay == "off") return ReplayMode::kOff;
  return invalid_argument("settings: replay is \"" + replay + "\", expected fast, exact or off");
}

Result<OfflineOptions> read_options(const Json& settings) {
  constexpr int64_t kTokensMax = int64_t{1} << 30;
  OfflineOptions options;
  ASSIGN_OR_RETURN(const int64_t threads, bounded(settings, "threads", 0, 0, 1024));
  options.num_threads = static_cast<int>(threads);
  ASSIGN_OR_RETURN(options.sequences_max, bounded(settings, "sequences", options.sequences_max, 1, 4096));
  ASSIGN_OR_RETURN(options.context_max, bounded(settings, "context", 0, 0, kTokensMax));
  ASSIGN_OR_RETURN(options.kv_tokens, bounded(settings, "kv_tokens", 0, 0, kTokensMax));
  ASSIGN_OR_RETURN(options.host_kv_tokens, bounded(settings, "host_kv_tokens", 0, 0, kTokensMax));
  ASSIGN_OR_RETURN(const int64_t seed, bounded(settings, "seed", 0, 0, INT64_MAX));
  options.default_seed = static_cast<uint64_t>(seed);
  ASSIGN_OR_RETURN(options.replay, replay_setting(settings));
  if (const Json* drafts = settings.find("drafts")) {
    if (!drafts->is_bool()) return invalid_argument("settings: drafts: expected true or false");
    options.drafts = drafts->as_bool();
  }
  return options;
}

Status open_engine(const char* data, size_t size, deepinfer_engine& engine) {
  ASSIGN_OR_RETURN(const Json settings, settings_argument(data, size, kSettings));
  ASSIGN_OR_RETURN(const OfflineOptions options, read_options(settings));
  ASSIGN_OR_RETURN(const std::string model, text_setting(settings, "model", "mini"));
  ASSIGN_OR_RETURN(const std::string memory, text_setting(settings, "expert_memory", "all"));
  ASSIGN_OR_RETURN(const ExpertMemory experts, parse_expert_memory(memory));
  ASSIGN_OR_RETURN(LoadedModel loaded, load_model(model, experts));
  ASSIGN_OR_RETURN(engine.inference, OfflineInference::open(std::move(loaded), options, engine.clock));
  return {};
}

Status missing(const char* what) { return invalid_argument(std::string(what) + " is NULL"); }

}  // namespace
}  // namespace deepinfer

using deepinfer::guarded;
using deepinfer::missing;
using deepinfer::Status;

int32_t deepinfer_engine_abi(void) { return DEEPINFER_ENGINE_ABI; }
const char* deepinfer_engine_version(void) { return DEEPINFER_ENGINE_VERSION; }

void deepinfer_engine_text_free(deepinfer_text* text) {
  if (text == nullptr) return;
  std::free(text->data);
  *text = {};
}

deepinfer_code deepinfer_engine_open(const char* settings, size_t size, deepinfer_engine** out,
                                     deepinfer_error* error) {
  if (out != nullptr) *out = nullptr;
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return missing("out");
    auto engine = std::make_unique<deepinfer_engine>();
    TRY(deepinfer::open_engine(settings, size, *engine));
    *out = engine.release();
    return {};
  });
}

void deepinfer_engine_free(deepinfer_engine* engine) { delete engine; }

deepinfer_code deepinfer_engine_describe(const deepinfer_engine* engine, deepinfer_text* out, deepinfer_error* error) {
  if (out != nullptr) *out = {};
  return guarded(error, [&]() -> Status {
    if (engine == nullptr || out == nullptr) return missing(engine == nullptr ? "engine" : "out");
    return deepinfer::copy_to(to_json(engine->inference->describe()), *out);
  });
}

deepinfer_code deepinfer_engine_submit(deepinfer_engine* engine, const char* body, size_t size, uint64_t* id,
                                       deepinfer_error* error) {
  if (id != nullptr) *id = 0;
  return guarded(error, [&]() -> Status {
    if (engine == nullptr || id == nullptr) return missing(engine == nullptr ? "engine" : "id");
    ASSIGN_OR_RETURN(const std::string_view text, deepinfer::text_argument("body", body, size));
    *id = engine->inference->submit(text);
    return {};
  });
}

deepinfer_code deepinfer_engine_cancel(deepinfer_engine* engine, uint64_t id, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return missing("engine");
    engine->inference->cancel(id);
    return {};
  });
}

deepinfer_code deepinfer_engine_step(deepinfer_engine* engine, int32_t* is_running, deepinfer_error* error) {
  if (is_running != nullptr) *is_running = 0;
  return guarded(error, [&]() -> Status {
    if (engine == nullptr || is_running == nullptr) return missing(engine == nullptr ? "engine" : "is_running");
    ASSIGN_OR_RETURN(const bool runs, engine->inference->step());
    *is_running = runs ? 1 : 0;
    return {};
  });
}

deepinfer_code deepinfer_engine_take(deepinfer_engine* engine, deepinfer_text* out, int32_t* has_result,
                                     deepinfer_error* error) {
  if (out != nullptr) *out = {};
  if (has_result != nullptr) *has_result = 0;
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return missing("engine");
    if (out == nullptr || has_result == nullptr) return missing(out == nullptr ? "out" : "has_result");
    const auto result = engine->inference->take_result();
    if (!result) return {};
    TRY(deepinfer::copy_to(to_json(*result), *out));
    *has_result = 1;
    return {};
  });
}

deepinfer_engine_figures deepinfer_engine_progress(const deepinfer_engine* engine) {
  if (engine == nullptr) return {};
  const deepinfer::OfflineProgress& p = engine->inference->progress();
  return {static_cast<uint64_t>(p.num_requests), static_cast<uint64_t>(p.num_done),
          static_cast<uint64_t>(p.num_prompt_tokens), static_cast<uint64_t>(p.num_output_tokens)};
}
