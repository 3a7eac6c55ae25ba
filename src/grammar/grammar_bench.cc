// SPDX-License-Identifier: MIT
// Bench `grammar`: the public cases under testdata/grammar, judged and timed as the published harness does: tokenize
// the instance, and before every token compute the mask, look the token up and consume it. CPU time of one thread. Each
// instance is walked twice: masks are made in the first walk and found in the second. The test suite is also reported
// by keyword. Options: --set stride=N takes every Nth case; --set slowest=N lists the N slowest masks with their cases
// (schemas are counted from 0 along the stride); --set only=I takes schema I alone;
// --peer runs llguidance and xgrammar on the same cases in the same run (--set python=EXE with the packages; default
// python3; xgrammar compiles for a second a case, so take a stride).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>

#include "base/bench.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/peer_bench.h"
#include "base/token_masks.h"
#include "grammar/matcher.h"
#include "tokenizer/released_tokenizer.h"

namespace deepinfer {
namespace {

constexpr const char* kTokenizerFile = DEEPINFER_TESTDATA "/codec/tokenizer_v41.json.gz";

struct Figures {
  std::vector<double> mask_us, cached_us, first_us, compile_us;
  double schemas = 0, schemas_right = 0, refused = 0, wrong_accepted = 0, wrong_rejected = 0, right = 0;
  size_t mask_bytes_max = 0, bytes_max = 0;

  void add_verdicts(const Figures& other) {
    schemas += other.schemas;
    schemas_right += other.schemas_right;
    refused += other.refused;
    wrong_accepted += other.wrong_accepted;
    wrong_rejected += other.wrong_rejected;
    right += other.right;
  }
  std::vector<std::pair<double, std::string>> slow;  // masks, with where they were met
};

constexpr double kSlowUs = 200;

double microseconds_since(int64_t begin_ns) { return static_cast<double>(thread_cpu_ns() - begin_ns) / 1e3; }

class GrammarBench {
 public:
  GrammarBench() : row_(index_->num_words()) {}

  // `peer_case` gets the case for the peer, where given.
  void judge(const Json& schema, const Json& tests, Figures& out, std::string* peer_case = nullptr) {
    GrammarOptions options;
    options.order = PropertyOrder::kAny;
    const int64_t begin = thread_cpu_ns();
    auto grammar = Grammar::compile({GrammarSource::Kind::kJsonSchema, to_json(schema), {}}, index_, options);
    const double compile_us = microseconds_since(begin);
    if (peer_case != nullptr) append_peer_case(schema, tests, *peer_case);
    ++out.schemas;
    if (!grammar.ok()) {
      out.refused += static_cast<double>(tests.as_array().size());
      return;
    }
    out.compile_us.push_back(compile_us);
    bool all_right = true;
    for (const Json& test : tests.as_array()) {
      const std::vector<TokenId> tokens = index_->tokenizer().encode(to_json(*test.find("data")));
      const size_t num_before = out.mask_us.size();
      const bool accepted = walk(*grammar, tokens, out.mask_us);
      for (size_t i = num_before; i < out.mask_us.size(); ++i)
        if (out.mask_us[i] > kSlowUs)
          out.slow.emplace_back(out.mask_us[i], fmt::format("schema {}, test {}, token {}", out.schemas - 1,
                                                            &test - tests.as_array().data(), i - num_before));
      if (out.mask_us.size() > num_before) out.first_us.push_back(compile_us + out.mask_us[num_before]);
      walk(*grammar, tokens, out.cached_us);
      const bool valid = test.find("valid")->as_bool();
      out.right += accepted == valid ? 1 : 0;
      out.wrong_accepted += accepted && !valid ? 1 : 0;
      out.wrong_rejected += !accepted && valid ? 1 : 0;
      all_right &= accepted == valid;
    }
    out.schemas_right += all_right ? 1 : 0;
    const Grammar::Size size = (*grammar)->size();
    out.mask_bytes_max = std::max(out.mask_bytes_max, size.mask_bytes);
    out.bytes_max = std::max(out.bytes_max, size.mask_bytes + size.machine_bytes);
  }

  // Rows of one step: many answers of one grammar, each somewhere in an instance, four positions each.
  double rows_per_second(int64_t num_rows) {
    const auto grammar = Grammar::compile({GrammarSource::Kind::kJson, "", {}}, index_, {}).value();
    const std::vector<TokenId> tokens = index_->tokenizer().encode(
        R"({"name":"A. Person","age":41,"tags":["red","green"],"address":{"street":"Long Road 7","city":"Oslo"},"ok":true})");
    constexpr int64_t kDrafts = 3;
    TokenMasks masks(kDrafts + 1, index_->vocab_size());
    std::vector<Matcher> matchers;
    for (int64_t i = 0; i < num_rows / (kDrafts + 1); ++i) {
      Matcher matcher(grammar);
      for (size_t k = 0; k < static_cast<size_t>(i) % (tokens.size() - kDrafts); ++k) CHECK(matcher.accept(tokens[k]));
      matchers.push_back(std::move(matcher));
    }
    const auto step = [&] {
      for (Matcher& matcher : matchers) {
        const auto drafts = std::span(tokens).subspan(matcher.num_tokens(), kDrafts);
        CHECK(matcher.fill_masks(drafts, masks, 0).ok());
      }
    };
    step();
    const int64_t begin = thread_cpu_ns();
    constexpr int kSteps = 20;
    for (int i = 0; i < kSteps; ++i) step();
    return kSteps * static_cast<double>(num_rows) / (static_cast<double>(thread_cpu_ns() - begin) * 1e-9);
  }

  double compile_us(const std::string& schema) {
    const int64_t begin = thread_cpu_ns();
    CHECK(Grammar::compile({GrammarSource::Kind::kJsonSchema, schema, {}}, index_, {}).ok());
    return microseconds_since(begin);
  }

 private:
  bool walk(const std::shared_ptr<Grammar>& grammar, const std::vector<TokenId>& tokens, std::vector<double>& us) {
    Matcher matcher(grammar);
    for (const TokenId token : tokens) {
      const int64_t begin = thread_cpu_ns();
      const bool moved = matcher.fill_mask(row_).ok() && is_allowed(row_, token) && matcher.accept(token);
      us.push_back(microseconds_since(begin));
      if (!moved) return false;
    }
    return matcher.is_accepting();
  }

  void append_peer_case(const Json& schema, const Json& tests, std::string& out) {
    Json::Array list;
    for (const Json& test : tests.as_array()) {
      const std::vector<TokenId> tokens = index_->tokenizer().encode(to_json(*test.find("data")));
      list.push_back(
          Json::Object{{"tokens", Json::Array(tokens.begin(), tokens.end())}, {"valid", *test.find("valid")}});
    }
    out += to_json(Json(Json::Object{{"schema", schema}, {"tests", std::move(list)}})) + "\n";
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

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// Calls `use(line)` for every `stride`-th line.
template <typename Use>
Status for_each_case(const char* file, size_t stride, Use&& use) {
  JsonLimits limits;
  limits.depth_max = 512;
  limits.wide_integers = true;
  limits.refuse_duplicate_keys = false;
  ASSIGN_OR_RETURN(const std::string text, read_file(std::string(DEEPINFER_TESTDATA "/grammar/") + file));
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.empty() || number++ % stride != 0) continue;
    ASSIGN_OR_RETURN(const Json json, parse_json(line, limits));
    use(json);
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

// One row a file of the suite, which is named for its keyword: the share judged rightly; the note says the rest.
Status run_suite(GrammarBench& bench, size_t stride, BenchReport& report) {
  Figures all;
  std::map<std::string, Figures> by_keyword;
  TRY(for_each_case("json-schema-suite.jsonl.gz", stride, [&](const Json& json) {
    const std::string& file = json.find("file")->as_string();
    if (file.ends_with("/format.json")) return;  // there format only annotates
    std::string keyword = file.substr(file.find('/') + 1);
    keyword = keyword.substr(0, keyword.rfind('.'));
    for (const Json& group : json.find("groups")->as_array())
      bench.judge(*group.find("schema"), *group.find("tests"), by_keyword[keyword]);
  }));
  for (const auto& [keyword, f] : by_keyword) {
    all.add_verdicts(f);
    const double num_tests = f.right + f.refused + f.wrong_accepted + f.wrong_rejected;
    report.add({.name = "test suite, " + keyword,
                .value = 100 * f.right / std::max(num_tests, 1.0),
                .unit = "%",
                .note = fmt::format("{} right, {} refused, {} wrong of {}", f.right, f.refused,
                                    f.wrong_accepted + f.wrong_rejected, num_tests)});
  }
  report_verdicts("test suite", all, report);
  return {};
}

constexpr const char* kPeers[] = {"llguidance", "xgrammar"};
using PeerFigures = std::map<std::string, double>;

// "name value" lines of the peer; empty when it cannot be run.
PeerFigures run_peer(const BenchOptions& options, const std::string& peer, const std::string& cases) {
  PeerFigures figures;
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("deepinfer_grammar_{}.jsonl", getpid())).string();
  if (!write_file_atomically(path, cases).ok()) return figures;
  const std::string arguments[] = {path, kTokenizerFile, peer};
  std::istringstream output(run_peer_script(options, DEEPINFER_TESTDATA "/../bench/peers/grammar_peer.py", arguments));
  double value = 0;
  for (std::string name; output >> name >> value;) figures[name] = value;
  unlink(path.c_str());
  return figures;
}

// Rows beside the figures of the peers that ran.
class PeerRows {
 public:
  PeerRows(const BenchOptions& options, const std::string& cases, BenchReport& report) : report_(report) {
    for (const char* peer : kPeers)
      if (options.peer) peers_[peer] = run_peer(options, peer, cases);
    for (const auto& [peer, figures] : peers_)
      if (figures.empty()) report_.add({.name = std::string("peer ") + peer, .value = 0, .unit = "did not run"});
  }

  // One row for each peer that knows the figure; one without a peer where none does.
  void add(const std::string& name, double value, const char* unit, const char* of_peer = "") {
    BenchRow row{.name = name, .value = value, .unit = unit};
    bool is_compared = false;
    for (const auto& [peer, figures] : peers_) {
      const auto known = figures.find(of_peer);
      if (known == figures.end()) continue;
      row.peer = BenchPeer{peer, known->second};
      report_.add(row);
      is_compared = true;
    }
    if (!is_compared) report_.add(row);
  }

 private:
  BenchReport& report_;
  std::map<std::string, PeerFigures> peers_;
};

size_t number_of(const BenchOptions& options, const char* name, size_t otherwise) {
  const auto given = options.extra.find(name);
  return given == options.extra.end() ? otherwise : std::strtoul(given->second.c_str(), nullptr, 10);
}

void list_slowest(const BenchOptions& options, std::vector<std::pair<double, std::string>>& slow) {
  std::ranges::sort(slow, std::greater<>());
  slow.resize(std::min(slow.size(), number_of(options, "slowest", 0)));
  for (const auto& [us, where] : slow) fmt::print("{:9.0f} us  {}\n", us, where);
}

void report_times(Figures& f, PeerRows& rows) {
  rows.add("mask and token: mean", mean(f.mask_us), "us", "mean");
  for (const auto& [share, name] :
       {std::pair<double, const char*>{0.5, "p50"}, {0.99, "p99"}, {0.999, ""}, {1.0, "max"}})
    rows.add(fmt::format("mask and token: quantile {}", share), quantile(f.mask_us, share), "us", name);
  rows.add("masks cached: mean", mean(f.cached_us), "us", "mean");
  for (const double share : {0.99, 1.0})
    rows.add(fmt::format("masks cached: quantile {}", share), quantile(f.cached_us, share), "us");
  for (const auto& [share, name] : {std::pair<double, const char*>{0.5, "first_p50"}, {0.99, "first_p99"}, {1.0, ""}}) {
    rows.add(fmt::format("compile: quantile {}", share), quantile(f.compile_us, share), "us");
    rows.add(fmt::format("first mask: quantile {}", share), quantile(f.first_us, share), "us", name);
  }
}

}  // namespace

Status bench_grammar(const BenchOptions& options, BenchReport& report) {
  GrammarBench bench;
  const size_t stride = std::max<size_t>(1, number_of(options, "stride", options.quick ? 40 : 1));
  const size_t only = number_of(options, "only", SIZE_MAX);
  if (only == SIZE_MAX) TRY(run_suite(bench, options.quick ? 10 : 1, report));
  Figures f;
  std::string peer_cases;
  size_t number = 0;
  TRY(for_each_case("maskbench-dev.jsonl.gz", stride, [&](const Json& json) {
    if (only != SIZE_MAX && number++ != only) return;
    bench.judge(*json.find("schema"), *json.find("tests"), f, options.peer ? &peer_cases : nullptr);
  }));
  report_verdicts("MaskBench", f, report);
  list_slowest(options, f.slow);
  PeerRows rows(options, peer_cases, report);
  if (options.peer) {
    rows.add("MaskBench: wrongly accepted, beside peers", f.wrong_accepted, "tests", "accepted_wrongly");
    rows.add("MaskBench: wrongly rejected, beside peers", f.wrong_rejected, "tests", "rejected_wrongly");
    rows.add("MaskBench: schemas given up after a minute", 0, "schemas", "given_up");
  }
  rows.add("MaskBench: schemas right", 100 * f.schemas_right / f.schemas, "%", "right");
  report_times(f, rows);
  rows.add(
      "compile a string of up to 100000 characters",
      bench.compile_us(R"({"type":"object","properties":{"a":{"type":"string","minLength":9,"maxLength":100000}}})"),
      "us");
  rows.add("rows of a step of 264", bench.rows_per_second(264), "rows/s");
  rows.add("largest mask cache of one grammar", static_cast<double>(f.mask_bytes_max) / 1e6, "MB");
  rows.add("largest grammar with its masks", static_cast<double>(f.bytes_max) / 1e6, "MB");
  return {};
}

}  // namespace deepinfer
