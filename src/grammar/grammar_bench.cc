// SPDX-License-Identifier: MIT
// Bench `grammar`: the public cases under testdata/grammar, judged and timed as the published harness does: tokenize
// the instance, and before every token compute the mask, look the token up and consume it. CPU time of one thread.
#include <algorithm>
#include <string>

#include "base/bench.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/token_masks.h"
#include "grammar/matcher.h"
#include "tokenizer/released_tokenizer.h"

namespace deepinfer {
namespace {

struct Figures {
  std::vector<double> mask_us, first_us, compile_us;
  double schemas = 0, schemas_right = 0, refused = 0, wrong_accepted = 0, wrong_rejected = 0, right = 0;
  size_t cache_bytes_max = 0;
};

class GrammarBench {
 public:
  GrammarBench() : row_(index_->num_words()) {}

  void judge(const Json& schema, const Json& tests, Figures& out) {
    GrammarOptions options;
    options.order = PropertyOrder::kAny;
    const int64_t begin = thread_cpu_ns();
    auto grammar = Grammar::compile({GrammarSource::Kind::kJsonSchema, to_json(schema), {}}, index_, options);
    const double compile_us = static_cast<double>(thread_cpu_ns() - begin) / 1e3;
    ++out.schemas;
    if (!grammar.ok()) {
      out.refused += static_cast<double>(tests.as_array().size());
      return;
    }
    out.compile_us.push_back(compile_us);
    bool all_right = true;
    for (const Json& test : tests.as_array()) {
      const bool accepted = walk(*grammar, to_json(*test.find("data")), compile_us, out);
      const bool valid = test.find("valid")->as_bool();
      out.right += accepted == valid ? 1 : 0;
      out.wrong_accepted += accepted && !valid ? 1 : 0;
      out.wrong_rejected += !accepted && valid ? 1 : 0;
      all_right &= accepted == valid;
    }
    out.schemas_right += all_right ? 1 : 0;
    const Grammar::Size size = (*grammar)->size();
    out.cache_bytes_max = std::max(out.cache_bytes_max, size.mask_bytes + size.machine_bytes);
  }

 private:
  bool walk(const std::shared_ptr<Grammar>& grammar, const std::string& text, double compile_us, Figures& out) {
    Matcher matcher(grammar);
    bool is_first = true;
    for (const TokenId token : index_->tokenizer().encode(text)) {
      const int64_t begin = thread_cpu_ns();
      const bool moved = matcher.fill_mask(row_).ok() && is_allowed(row_, token) && matcher.accept(token);
      const double us = static_cast<double>(thread_cpu_ns() - begin) / 1e3;
      out.mask_us.push_back(us);
      if (is_first) out.first_us.push_back(compile_us + us);
      is_first = false;
      if (!moved) return false;
    }
    return matcher.is_accepting();
  }

  std::shared_ptr<const TokenIndex> index_ = std::make_shared<const TokenIndex>(shared_released_tokenizer());
  std::vector<uint32_t> row_;
};

double quantile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

Status run_file(const char* file, size_t stride, Figures& out) {
  JsonLimits limits;
  limits.depth_max = 512;
  limits.wide_integers = true;
  limits.refuse_duplicate_keys = false;
  ASSIGN_OR_RETURN(const std::string text, read_file(std::string(DEEPINFER_TESTDATA "/grammar/") + file));
  GrammarBench bench;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.empty() || number++ % stride != 0) continue;
    ASSIGN_OR_RETURN(const Json json, parse_json(line, limits));
    if (const Json* groups = json.find("groups")) {
      if (json.find("file")->as_string().ends_with("/format.json")) continue;  // there format only annotates
      for (const Json& group : groups->as_array()) bench.judge(*group.find("schema"), *group.find("tests"), out);
    } else {
      bench.judge(*json.find("schema"), *json.find("tests"), out);
    }
  }
  return {};
}

void report_verdicts(const std::string& name, const Figures& f, BenchReport& report) {
  report.add({name + ": right", f.right, "tests"});
  report.add({name + ": refused", f.refused, "tests"});
  report.add({name + ": wrongly accepted", f.wrong_accepted, "tests"});
  report.add({name + ": wrongly rejected", f.wrong_rejected, "tests"});
  report.add({name + ": schemas right in all", 100 * f.schemas_right / f.schemas, "%"});
}

}  // namespace

Status bench_grammar(const BenchOptions& options, BenchReport& report) {
  Figures suite, mask;
  TRY(run_file("json-schema-suite.jsonl.gz", options.quick ? 10 : 1, suite));
  report_verdicts("test suite", suite, report);
  TRY(run_file("maskbench-dev.jsonl.gz", options.quick ? 40 : 1, mask));
  report_verdicts("MaskBench", mask, report);
  double sum = 0;
  for (const double us : mask.mask_us) sum += us;
  report.add({"mask and token: mean", sum / static_cast<double>(std::max<size_t>(mask.mask_us.size(), 1)), "us"});
  for (const double share : {0.5, 0.99, 0.999, 1.0})
    report.add({"mask and token: quantile " + std::to_string(share).substr(0, 5), quantile(mask.mask_us, share), "us"});
  for (const double share : {0.5, 0.99, 1.0}) {
    report.add({"compile: quantile " + std::to_string(share).substr(0, 4), quantile(mask.compile_us, share), "us"});
    report.add({"first mask: quantile " + std::to_string(share).substr(0, 4), quantile(mask.first_us, share), "us"});
  }
  report.add({"largest grammar with its masks", static_cast<double>(mask.cache_bytes_max) / 1e6, "MB"});
  return {};
}

}  // namespace deepinfer
