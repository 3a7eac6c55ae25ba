// SPDX-License-Identifier: MIT
// deepinfer grammar check|compile|sample: constrained decoding on its own, with any tokenizer and no model.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/philox.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "tools/command.h"
#include "tools/tokenizer_option.h"

namespace deepinfer {
namespace {

struct GrammarArguments {
  std::string action, tokenizer = "mini", order = "any", schema, regex, ebnf;
  double time_limit_s = 10;
  int64_t num_samples = 5, seed = 0, tokens_max = 400;
  bool lenient = false;
};

// Compact JSON in source order; doubles as common printers write them (200000.0, 1e+16).
void append_compact(std::string& out, const Json& value) {
  if (value.kind() == Json::Kind::kDouble) {
    std::string number = fmt::format("{}", value.as_double());
    if (number.find_first_of(".e") == std::string::npos) number += ".0";
    out += number;
  } else if (value.is_array()) {
    out.push_back('[');
    for (const Json& item : value.as_array()) {
      if (&item != value.as_array().data()) out.push_back(',');
      append_compact(out, item);
    }
    out.push_back(']');
  } else if (value.is_object()) {
    out.push_back('{');
    for (const auto& member : value.as_object()) {
      if (&member != value.as_object().data()) out.push_back(',');
      append_json_string(out, member.first);
      out.push_back(':');
      append_compact(out, member.second);
    }
    out.push_back('}');
  } else {
    append_json(out, value);
  }
}

std::string compact(const Json& value) {
  std::string out;
  append_compact(out, value);
  return out;
}

double microseconds(int64_t ns) { return static_cast<double>(ns / 10) / 100.0; }

GrammarOptions options_of(const GrammarArguments& arguments) {
  GrammarOptions options;
  options.order = arguments.order == "any" ? PropertyOrder::kAny : PropertyOrder::kSchema;
  options.lenient = arguments.lenient;
  return options;
}

class Checker {
 public:
  Checker(const GrammarArguments& arguments, std::shared_ptr<const TokenIndex> index)
      : arguments_(arguments), index_(std::move(index)), row_(index_->num_words(), 0) {}

  Status run_line(const std::string& line) {
    JsonLimits limits;
    limits.depth_max = 512;
    limits.wide_integers = true;
    limits.refuse_duplicate_keys = false;
    ASSIGN_OR_RETURN(const Json request, parse_json(line, limits));
    const Json* schema = request.find("schema");
    const Json* tests = request.find("tests");
    if (schema == nullptr || tests == nullptr || !tests->is_array())
      return invalid_argument("expected an object with \"schema\" and an array \"tests\"");
    Json out;
    out.set("name", request.find("name") == nullptr ? Json() : *request.find("name"));
    check(*schema, tests->as_array(), out);
    std::cout << to_json(out) << '\n' << std::flush;
    return {};
  }

 private:
  void check(const Json& schema, const Json::Array& tests, Json& out) {
    started_ns_ = clock_.monotonic_ns();
    const int64_t begin = thread_cpu_ns();
    GrammarSource source;
    source.kind = GrammarSource::Kind::kJsonSchema;
    source.text = to_json(schema);
    const auto grammar = Grammar::compile(source, index_, options_of(arguments_));
    const int64_t compiled_ns = thread_cpu_ns() - begin;  // other load must not count
    if (!grammar.ok()) {
      const bool is_refusal = grammar.status().code() == StatusCode::kUnimplemented ||
                              grammar.status().code() == StatusCode::kResourceExhausted;
      out.set("status", is_refusal ? "unsupported" : "error");
      out.set("reason", grammar.status().message());
      out.set("compile_us", microseconds(compiled_ns));
      out.set("tests", Json(Json::Array{}));
      out.set("correct", false);
      return;
    }
    Json::Array results;
    bool correct = true;
    std::string status = "ok";
    for (const Json& test : tests) {
      const Json* data = test.find("data");
      const Json* valid = test.find("valid");
      Json result;
      const auto accepted = walk(grammar.value(), compact(data == nullptr ? Json() : *data), compiled_ns, result);
      if (!accepted.ok()) {
        status = accepted.status().code() == StatusCode::kUnavailable ? "timeout" : "unsupported";
        out.set("reason", accepted.status().message());
        correct = false;
        break;
      }
      correct &= accepted.value() == (valid != nullptr && valid->is_bool() && valid->as_bool());
      results.push_back(std::move(result));
    }
    out.set("status", status);
    out.set("compile_us", microseconds(compiled_ns));
    out.set("tests", std::move(results));
    out.set("correct", correct);
  }

  Result<bool> walk(const std::shared_ptr<Grammar>& grammar, const std::string& text, int64_t compiled_ns,
                    Json& result) {
    Matcher matcher(grammar);
    int64_t max_ns = 0, sum_ns = 0, first_ns = 0, num_masks = 0;
    bool accepted = true;
    for (const TokenId token : index_->tokenizer().encode(text)) {
      const int64_t begin = thread_cpu_ns();
      TRY(matcher.fill_mask(row_));
      const bool allowed = is_allowed(row_, token);
      const bool moved = allowed && matcher.accept(token);
      const int64_t spent = thread_cpu_ns() - begin;
      if (num_masks++ == 0) first_ns = spent;
      max_ns = std::max(max_ns, spent);
      sum_ns += spent;
      accepted = allowed && moved;
      if (!accepted) break;
      if (static_cast<double>(clock_.monotonic_ns() - started_ns_) > arguments_.time_limit_s * 1e9)
        return unavailable(fmt::format("time limit of {} s", arguments_.time_limit_s));
    }
    accepted = accepted && matcher.is_accepting();
    result.set("accepted", accepted);
    result.set("mask_us_max", microseconds(max_ns));
    result.set("mask_us_mean", microseconds(num_masks == 0 ? 0 : sum_ns / num_masks));
    result.set("ttfm_us", microseconds(compiled_ns + first_ns));
    result.set("masks", num_masks);
    return accepted;
  }

  const GrammarArguments& arguments_;
  std::shared_ptr<const TokenIndex> index_;
  std::vector<uint32_t> row_;
  SystemClock clock_;
  int64_t started_ns_ = 0;
};

Result<GrammarSource> source_of(const GrammarArguments& arguments) {
  GrammarSource source;
  const int given = !arguments.schema.empty() + !arguments.regex.empty() + !arguments.ebnf.empty();
  if (given != 1) return invalid_argument("expected exactly one of --schema FILE, --regex R, --ebnf FILE");
  if (!arguments.regex.empty()) {
    source.kind = GrammarSource::Kind::kRegex;
    source.text = arguments.regex;
    return source;
  }
  source.kind = arguments.ebnf.empty() ? GrammarSource::Kind::kJsonSchema : GrammarSource::Kind::kEbnf;
  ASSIGN_OR_RETURN(source.text, read_file(arguments.ebnf.empty() ? arguments.schema : arguments.ebnf));
  return source;
}

Status compile(const GrammarArguments& arguments, const std::shared_ptr<const TokenIndex>& index) {
  ASSIGN_OR_RETURN(const GrammarSource source, source_of(arguments));
  const SystemClock clock;
  const int64_t begin = clock.monotonic_ns();
  ASSIGN_OR_RETURN(const std::shared_ptr<Grammar> grammar, Grammar::compile(source, index, options_of(arguments)));
  const int64_t compiled = clock.monotonic_ns();
  std::vector<uint32_t> row(index->num_words());
  TRY(Matcher(grammar).fill_mask(row));
  const int64_t masked = clock.monotonic_ns();
  const Grammar::Size size = grammar->size();
  std::cout << fmt::format("compile_us {:.1f}\nfirst_mask_us {:.1f}\nnodes {}\nstates {}\nbytes {}\n",
                           microseconds(compiled - begin), microseconds(masked - compiled), size.nodes, size.states,
                           size.machine_bytes + size.mask_bytes);
  if (grammar->is_empty()) std::cout << "no text satisfies this grammar\n";
  return {};
}

// A random walk over allowed tokens; after `tokens_max` the shortest completion ends it.
Result<std::string> random_text(const std::shared_ptr<Grammar>& grammar, const GrammarArguments& arguments,
                                int64_t sample) {
  Matcher matcher(grammar);
  std::vector<uint32_t> row(grammar->index().num_words());
  Rng rng(static_cast<uint64_t>(arguments.seed), static_cast<uint64_t>(sample));
  std::string text;
  for (int64_t i = 0; i < arguments.tokens_max; ++i) {
    if (matcher.is_accepting() && rng.below(4) == 0) return text;
    TRY(matcher.fill_mask(row));
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < grammar->index().vocab_size(); ++id)
      if (is_allowed(row, id)) allowed.push_back(id);
    if (allowed.empty()) {
      if (matcher.is_accepting()) return text;
      return internal_error("no token is allowed after: " + text);
    }
    const TokenId token = allowed[rng.below(allowed.size())];
    CHECK(matcher.accept(token));
    text += grammar->index().tokenizer().token_bytes(token);
  }
  const auto rest = matcher.shortest_completion();
  if (!rest) return resource_exhausted("no short completion after: " + text);
  return text + *rest;
}

Status sample(const GrammarArguments& arguments, const std::shared_ptr<const TokenIndex>& index) {
  ASSIGN_OR_RETURN(const GrammarSource source, source_of(arguments));
  ASSIGN_OR_RETURN(const std::shared_ptr<Grammar> grammar, Grammar::compile(source, index, options_of(arguments)));
  if (grammar->is_empty()) return invalid_argument("no text satisfies this grammar");
  for (int64_t i = 0; i < arguments.num_samples; ++i) {
    ASSIGN_OR_RETURN(const std::string text, random_text(grammar, arguments, i));
    std::cout << text << '\n';
  }
  return {};
}

Status run(const GrammarArguments& arguments) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, open_tokenizer(arguments.tokenizer));
  const auto index = std::make_shared<const TokenIndex>(tokenizer);
  if (arguments.action == "compile") return compile(arguments, index);
  if (arguments.action == "sample") return sample(arguments, index);
  if (arguments.action != "check")
    return invalid_argument(fmt::format("expected check, compile or sample, found \"{}\"", arguments.action));
  Checker checker(arguments, index);
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.empty()) continue;
    if (const Status status = checker.run_line(line); !status.ok())
      return status.prefixed(fmt::format("line {}", number));
  }
  return {};
}

}  // namespace

Command grammar_command() {
  auto arguments = std::make_shared<GrammarArguments>();
  Command command;
  command.name = "grammar";
  command.summary = "compile a schema, regex or EBNF; check instances; print random texts";
  command.examples =
      "deepinfer grammar check --tokenizer tokenizer.json < cases.jsonl\n"
      "deepinfer grammar sample --ebnf rules.gbnf";
  command.declare = [arguments](OptionSet& options) {
    options.positional("action", arguments->action, "check, compile or sample");
    declare_tokenizer_option(options, arguments->tokenizer);
    options.add("--time-limit", arguments->time_limit_s, "seconds for one case of check (default 10)");
    options.choice("--property-order", arguments->order, {"any", "schema"},
                   "order of an object's members (default any)");
    options.add("--schema", arguments->schema, "file with a JSON Schema");
    options.add("--regex", arguments->regex, "regular expression");
    options.add("--ebnf", arguments->ebnf, "file with rules");
    options.add("--samples", arguments->num_samples, "texts printed by sample (default 5)");
    options.add("--seed", arguments->seed, "of sample (default 0)");
    options.add("--max-tokens", arguments->tokens_max, "of one sample before it is closed (default 400)");
    options.flag("--lenient", arguments->lenient, "accept what cannot be decided exactly");
  };
  command.run = [arguments] { return exit_status(run(*arguments)); };
  return command;
}

}  // namespace deepinfer
