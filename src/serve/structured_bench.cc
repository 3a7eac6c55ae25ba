// SPDX-License-Identifier: MIT
// Bench `structured`: what drafting the tokens that a grammar nearly dictates is worth, with the model's draft head and
// without one: strict tool calls and JSON by a schema, from the mini model at temperature 1, the same requests each
// time. The answers are the same, too (step_loop_masks_test.cc, structured_output_test.cc); steps are counted, so the
// figures do not depend on the machine.
#include <fmt/format.h>

#include "base/bench.h"
#include "serve/bench_requests.h"

namespace deepinfer {
namespace {

constexpr int64_t kOutputMax = 400;

struct Kind {
  const char* name;
  const char* fields;  // of the body
};

constexpr Kind kKinds[] = {
    {"strict tool call",
     R"("messages":[{"role":"user","content":"What is the weather in Oslo on day 3?"}],"thinking":{"type":"disabled"},)"
     R"("tool_choice":"required","parallel_tool_calls":false,"tools":[{"type":"function","function":{"name":)"
     R"("get_weather_forecast","strict":true,"parameters":{"type":"object","properties":{)"
     R"("city":{"type":"string","enum":["Oslo","Rome","Paris"]},"day_of_month":{"type":"integer","minimum":1,"maximum":31},)"
     R"("temperature_unit":{"type":"string","enum":["celsius","fahrenheit"]}},"required":["city","day_of_month","temperature_unit"],)"
     R"("additionalProperties":false}}}])"},
    {"JSON by a schema",
     R"("messages":[{"role":"user","content":"Tell me about a person, in json."}],"thinking":{"type":"disabled"},)"
     R"("structured_outputs":{"json":{"type":"object","properties":{"first_name":{"type":"string","maxLength":12},)"
     R"("last_name":{"type":"string","maxLength":12},"age_in_years":{"type":"integer","minimum":0,"maximum":120},)"
     R"("favourite_colour":{"type":"string","enum":["red","green","blue"]}},)"
     R"("required":["first_name","last_name","age_in_years","favourite_colour"],"additionalProperties":false},)"
     R"("disable_any_whitespace":true})"},
};

Result<LoopBenchResult> run(LoopBench& bench, const Kind& kind, int64_t num_requests, const LoopBenchSetup& setup) {
  std::vector<LoopRequest> requests;
  for (int64_t seed = 0; seed < num_requests; ++seed) {
    const std::string body =
        fmt::format(R"({{"model":"DeepSeek-V4.1-Flash","temperature":1,"seed":{},{}}})", seed, kind.fields);
    ASSIGN_OR_RETURN(LoopRequest request, bench.request_of(body, kOutputMax));
    requests.push_back(std::move(request));
  }
  return bench.run(setup, std::move(requests));
}

}  // namespace

Status bench_structured(const BenchOptions& options, BenchReport& report) {
  ASSIGN_OR_RETURN(const auto bench, LoopBench::open(options));
  const int64_t num_requests = options.quick ? 4 : 40;
  for (const Kind& kind : kKinds)
    for (const bool pipelined : {true, false})
      for (const bool drafts : {false, true})
        for (const bool foretells : {false, true}) {
          LoopBenchSetup setup{.concurrency = 1, .drafts = drafts, .foretells = foretells, .pipelined = pipelined};
          ASSIGN_OR_RETURN(const LoopBenchResult done, run(*bench, kind, num_requests, setup));
          const auto each = [&](int64_t n) { return static_cast<double>(n) / static_cast<double>(num_requests); };
          report.add({.name = fmt::format("{}, {}, {} draft head, forced tokens {}", kind.name,
                                          pipelined ? "pipelined" : "synchronous", drafts ? "with" : "no",
                                          foretells ? "drafted" : "not drafted"),
                      .value = each(done.num_tokens) / each(done.num_decode_runs),
                      .unit = "tokens/step",
                      .note = fmt::format("{:.1f} tokens, {:.1f} steps, {:.1f} verified, {:.1f} accepted an answer; "
                                          "{:.0f} tokens/s of CPU time",
                                          each(done.num_tokens), each(done.num_decode_runs), each(done.num_verified),
                                          each(done.num_accepted), done.tokens_per_cpu_s())});
        }
  return {};
}

}  // namespace deepinfer
