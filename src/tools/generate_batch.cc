// SPDX-License-Identifier: MIT
// generate --chat-batch: one Chat Completions body a line in, one result a line out, all of them sharing steps.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "serve/offline_inference.h"
#include "tools/engine_target.h"
#include "tools/generate_options.h"
#include "tools/interrupt.h"
#include "tools/progress.h"

namespace deepinfer {
namespace {

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// What the command line says wins over what a line says.
Json::Object overrides_of(const GenerateOptions& options) {
  Json::Object out;
  if (options.max_tokens > 0) out.emplace_back("max_tokens", options.max_tokens);
  if (options.temperature >= 0) out.emplace_back("temperature", options.temperature);
  if (options.top_p >= 0) out.emplace_back("top_p", options.top_p);
  if (options.top_k > 0) out.emplace_back("top_k", options.top_k);
  if (options.seed >= 0) out.emplace_back("seed", options.seed);
  if (options.logprobs >= 0) {
    out.emplace_back("logprobs", true);
    out.emplace_back("top_logprobs", options.logprobs);
  }
  return out;
}

Json choice_line(const Json& choice, bool explains) {
  Json out;
  for (const char* name : {"token_ids", "text", "reasoning_content", "tool_calls", "finish_reason", "logprobs"})
    if (const Json* value = choice.find(name)) out.set(name, *value);
  const Json& explain = *choice.find("explain");
  out.set("draft", draft_json(explain.find("decode_steps")->as_int(), explain.find("verified")->as_int(),
                              explain.find("accepted")->as_int()));
  out.set("timing", Json::Object{{"queue_ms", *explain.find("queue_ms")},
                                 {"first_token_ms", *explain.find("first_token_ms")},
                                 {"total_ms", *explain.find("total_ms")}});
  if (explains) out.set("explain", explain);
  return out;
}

// One choice stands in the line itself, several in a list.
Json line_of(const Json& result, bool explains) {
  if (const Json* error = result.find("error")) {
    Json out = Json::Object{{"error", *error}};
    if (!result.find("param")->as_string().empty()) out.set("param", *result.find("param"));
    return out;
  }
  const Json::Array& choices = result.find("choices")->as_array();
  Json out = Json::Object{{"prompt_tokens", static_cast<int64_t>(result.find("prompt_token_ids")->as_array().size())}};
  if (choices.size() == 1) {
    const Json line = choice_line(choices[0], explains);
    for (const auto& [name, value] : line.as_object()) out.set(name, value);
  } else {
    Json::Array all;
    for (const Json& choice : choices) all.push_back(choice_line(choice, explains));
    out.set("choices", std::move(all));
  }
  out.set("cached_tokens", *result.find("cached_tokens"));
  return out;
}

// Results end in any order and are printed in that of the lines.
class OrderedPrinter {
 public:
  explicit OrderedPrinter(bool explains) : explains_(explains) {}
  void add(const Json& result) {
    lines_[result.find("id")->as_int()] = to_json(line_of(result, explains_));
    for (auto next = lines_.find(next_id_); next != lines_.end(); next = lines_.find(++next_id_)) {
      fmt::print("{}\n", next->second);
      lines_.erase(next);
    }
  }

 private:
  bool explains_;
  int64_t next_id_ = 1;
  std::map<int64_t, std::string> lines_;
};

}  // namespace

Status run_generate_batch(const GenerateOptions& options) {
  const SystemClock clock;
  OfflineOptions offline;
  ASSIGN_OR_RETURN(offline.target, engine_target(options.model));
  ASSIGN_OR_RETURN(LoadedModel model, load_model(options.model));
  ASSIGN_OR_RETURN(const std::string text, read_file(options.chat_batch));
  const std::vector<std::string_view> lines = split_lines(text);
  offline.num_threads = static_cast<int>(options.model.num_threads);
  offline.sequences_max = options.lanes;
  offline.drafts = options.draft == "on";
  offline.exact_ops = exact_ops(options);
  offline.checks_memory = options.checks_memory;
  offline.replay = replay_mode(options.model);
  ASSIGN_OR_RETURN(const auto inference, OfflineInference::open(std::move(model), offline, clock));
  Json::Object overrides = overrides_of(options);
  ASSIGN_OR_RETURN(const Json asked, constraint_member(options.constraint));
  if (!asked.is_null()) overrides.emplace_back("structured_outputs", asked);
  for (const std::string_view line : lines) inference->submit(line, overrides);
  Progress progress("generate", static_cast<int64_t>(lines.size()));
  OrderedPrinter printer(options.explain);
  for (bool runs = true; runs && !interrupted();) {
    ASSIGN_OR_RETURN(runs, inference->step());
    while (const auto result = inference->take_result()) {
      progress.hide();  // a line on the same terminal would stand behind it
      printer.add(*result);
    }
    if (std::fflush(stdout) != 0) return {};  // nobody reads on; the command line says so
    progress.advance_to(inference->progress().num_done);
  }
  return {};
}

}  // namespace deepinfer
