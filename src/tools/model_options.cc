// SPDX-License-Identifier: MIT
#include "tools/model_options.h"

#include "tools/command.h"

namespace deepinfer {

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
  options.choice("--replay", values.replay, {"fast", "exact", "off"},
                 "bounded replay after a prefix hit and in the decoder (default fast)");
  options.flag("--deterministic", values.deterministic, "prefix hits use exact replay");
}

Result<LoadedModel> load_model(const ModelOptions& options) {
  const auto experts = parse_expert_memory(options.expert_memory);
  if (!experts.ok()) return experts.status().prefixed("--expert-memory");
  return load_model(options.model, experts.value());
}

}  // namespace deepinfer
