// SPDX-License-Identifier: MIT
#include "tools/model_options.h"

#include "model/first_touch.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/progress.h"

namespace deepinfer {

namespace {

Status preload(const LoadedModel& model, int num_threads) {
  const auto pieces = first_touch_pieces(*model.weights, model.expert_bytes_max == 0);
  ThreadPool pool(num_threads);
  int64_t all = 0;
  for (const auto& piece : pieces) all += static_cast<int64_t>(piece.size());
  Progress bar("reading weights, MB", all / 1'000'000);
  const bool is_read = first_touch(pieces, pool, [&](int64_t done, int64_t) {
    bar.advance_to(done / 1'000'000);
    return !interrupted();
  });
  return is_read ? Status() : resource_exhausted("stopped while the weights were read");
}

}  // namespace

void declare_model_options(OptionSet& options, ModelOptions& values) {
  options.add("--model", values.model, "checkpoint folder in the released layout; mini = the embedded model (default)");
  options.choice("--backend", values.backend, {"auto", "cpu", "cuda", "ascend"}, "device (default auto)");
  options.choice(
      "--numerics", values.numerics, {"exact", "fast"},
      "exact: the reference's bits on every device; fast: a GPU's tensor cores, sums in another order (default exact)");
  options.choice("--cpu", values.cpu, {"auto", "ref", "avx2", "avx512", "vnni", "bf16", "amx"},
                 "CPU kernel level (default auto: the best this machine has)");
  options.add("--threads", values.num_threads, kAllowedThreads, "compute threads; 0 = one per usable CPU (default)");
  options.add("--expert-memory", values.expert_memory,
              "GB of memory for routed experts, the others are read from the files when a token needs them; free: what "
              "the machine has left; all: refuse a model that does not fit (default)");
  options.flag("--preload", values.preload,
               "read the weights from the files with all threads before anything runs, instead of when a step first "
               "needs them");
  options.choice("--replay", values.replay, {"fast", "exact", "off"},
                 "bounded replay after a prefix hit and in the decoder (default fast)");
  options.flag("--deterministic", values.deterministic, "prefix hits use exact replay");
}

Result<LoadedModel> load_model(const ModelOptions& options) {
  const auto experts = parse_expert_memory(options.expert_memory);
  if (!experts.ok()) return experts.status().prefixed("--expert-memory");
  ASSIGN_OR_RETURN(LoadedModel model, load_model(options.model, experts.value()));
  if (options.preload && options.backend != "cuda") TRY(preload(model, static_cast<int>(options.num_threads)));
  return model;
}

}  // namespace deepinfer
