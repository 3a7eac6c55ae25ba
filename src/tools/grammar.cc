// SPDX-License-Identifier: MIT
// deepinfer grammar check|compile|sample: constrained decoding on its own, with any tokenizer and no model.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
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
#include "tools/interrupt.h"
#include "tools/json_lines.h"
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
  options.digits_only = arguments.action == "sample";  // check reads what others wrote
  options.order = arguments.order == "any" ? PropertyOrder::kAny : PropertyOrder::kSchema;
  options.lenient = arguments.lenient;
  return options;
}

class Checker {
 public:
  Checker(const GrammarArguments& arguments, std::shared_ptr<const TokenIndex> index)
      : arguments_(arguments), index_(std::move(index)), row_(index_->num_words(), 0) {}

  Status run_line(const Json& request, Json& out) {
    const Json* schema = request.find("schema");
    const Json* tests = request.find("tests");
    if (schema == nullptr || tests == nullptr || !tests->is_array())
      return invalid_argument("expected an object with \"schema\" and an array \"tests\"");
    check(*schema, tests->as_array(), out);
    return {};
  }

 private:
  void check(const Json& schema, const Json::Array& tests, Json& out) {
    started_ns_ = clock_.monotonic_ns();
    const int64_t begin = thread_cpu_ns();
    GrammarSource source;
    source.kind = GrammarSource::Kind::kJsonSchema;
    source.text = to_json(schema);
    GrammarOptions options = options_of(arguments_);
    const int64_t end_ns = started_ns_ + static_cast<int64_t>(arguments_.time_limit_s * 1e9);
    options.keep_going = [&] { return clock_.monotonic_ns() < end_ns && !interrupted(); };
    const auto grammar = Grammar::compile(source, index_, options);
    const int64_t compiled_ns = thread_cpu_ns() - begin;  // other load must not count
    if (!grammar.ok()) {
      const bool is_refusal = grammar.status().code() == StatusCode::kUnimplemented ||
                              grammar.status().code() == StatusCode::kResourceExhausted;
      const bool is_timeout = grammar.status().code() == StatusCode::kUnavailable;
      out.set("status", is_timeout ? "timeout" : is_refusal ? "unsupported" : "error");
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

int num_sources(const GrammarArguments& arguments) {
  return !arguments.schema.empty() + !arguments.regex.empty() + !arguments.ebnf.empty();
}

// Precondition: num_sources() == 1.
Result<GrammarSource> source_of(const GrammarArguments& arguments) {
  GrammarSource source;
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

// A random one of the allowed tokens; -1 when there is none.
TokenId random_token(std::span<const uint32_t> row, Rng& rng) {
  uint64_t num_allowed = 0;
  for (const uint32_t word : row) num_allowed += static_cast<uint64_t>(std::popcount(word));
  if (num_allowed == 0) return -1;
  uint64_t left = rng.below(num_allowed);
  for (size_t w = 0;; ++w) {
    const auto here = static_cast<uint64_t>(std::popcount(row[w]));
    if (left >= here) {
      left -= here;
      continue;
    }
    uint32_t bits = row[w];
    for (; left > 0; --left) bits &= bits - 1;
    return static_cast<TokenId>(w * 32 + static_cast<size_t>(std::countr_zero(bits)));
  }
}

struct Sample {
  std::string text;
  int64_t num_tokens = 0;
};

// A random walk over allowed tokens that is led to its end before `tokens_max`.
Result<Sample> random_text(const std::shared_ptr<Grammar>& grammar, const GrammarArguments& arguments, Rng& rng) {
  Matcher matcher(grammar);
  std::vector<uint32_t> row(grammar->index().num_words());
  Sample sample;
  for (;; ++sample.num_tokens) {
    if (matcher.is_accepting() && rng.below(4) == 0) return sample;
    const int64_t room = arguments.tokens_max - sample.num_tokens;
    if (room < -4096) return resource_exhausted("no way to an end was found after: " + sample.text);
    TRY(grammar->fill_mask_within(matcher.state(), room, row));
    const TokenId token = random_token(row, rng);
    if (token < 0) {
      if (matcher.is_accepting()) return sample;
      return internal_error("no token is allowed after: " + sample.text);
    }
    if (!matcher.accept(token)) return internal_error("an allowed token does not fit after: " + sample.text);
    sample.text += grammar->index().tokenizer().token_bytes(token);
  }
}

Status sample_one(const GrammarArguments& arguments, const std::shared_ptr<const TokenIndex>& index) {
  ASSIGN_OR_RETURN(const GrammarSource source, source_of(arguments));
  ASSIGN_OR_RETURN(const std::shared_ptr<Grammar> grammar, Grammar::compile(source, index, options_of(arguments)));
  if (grammar->is_empty()) return invalid_argument("no text satisfies this grammar");
  for (int64_t i = 0; i < arguments.num_samples && !interrupted(); ++i) {
    Rng rng(static_cast<uint64_t>(arguments.seed), static_cast<uint64_t>(i));
    ASSIGN_OR_RETURN(const Sample sample, random_text(grammar, arguments, rng));
    std::cout << sample.text << '\n';
  }
  return {};
}

Result<GrammarSource> source_of_line(const Json& line) {
  GrammarSource source;
  if (const Json* schema = line.find("schema")) {
    source.kind = GrammarSource::Kind::kJsonSchema;
    source.text = to_json(*schema);
    return source;
  }
  const Json* regex = line.find("regex");
  const Json* ebnf = line.find("ebnf");
  const Json* text = regex ? regex : ebnf;
  if (text == nullptr || !text->is_string())
    return invalid_argument("expected an object with \"schema\", \"regex\" or \"ebnf\"");
  source.kind = regex ? GrammarSource::Kind::kRegex : GrammarSource::Kind::kEbnf;
  source.text = text->as_string();
  return source;
}

Status sample_line(const GrammarArguments& arguments, const std::shared_ptr<const TokenIndex>& index, const Json& line,
                   int64_t number, Json& out) {
  ASSIGN_OR_RETURN(const GrammarSource source, source_of_line(line));
  ASSIGN_OR_RETURN(const std::shared_ptr<Grammar> grammar, Grammar::compile(source, index, options_of(arguments)));
  Json::Array texts;
  int64_t num_tokens = 0;
  Rng rng(static_cast<uint64_t>(arguments.seed), static_cast<uint64_t>(number));
  for (int64_t i = 0; i < arguments.num_samples && !grammar->is_empty(); ++i) {
    ASSIGN_OR_RETURN(Sample sample, random_text(grammar, arguments, rng));
    num_tokens += sample.num_tokens;
    texts.push_back(std::move(sample.text));
  }
  out.set("texts", Json(std::move(texts)));
  out.set("tokens", num_tokens);
  return {};
}

// One line in, one object out; a bad line's has "error", and the others go on.
template <typename Work>
Status for_each_line(Work&& work) {
  JsonLimits limits;
  limits.depth_max = 512;
  limits.wide_integers = true;
  limits.refuse_duplicate_keys = false;
  limits.bytes_max = size_t{64} << 20;
  std::string line;
  bool is_cut = false;
  for (int64_t number = 1; !interrupted() && read_line(std::cin, limits.bytes_max + 1, line, is_cut); ++number) {
    if (line.empty()) continue;
    Json out;
    const auto parsed = parse_json(line, limits);  // one that was cut is too long for it
    if (parsed.ok()) out.set("name", parsed.value().find("name") ? *parsed.value().find("name") : Json());
    const Status status = parsed.ok() ? work(parsed.value(), number, out) : parsed.status();
    if (!status.ok()) out.set("error", fmt::format("line {}: {}", number, status.message()));
    std::cout << to_json(out) << '\n' << std::flush;
  }
  return {};
}

Status run(const GrammarArguments& arguments) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, open_tokenizer(arguments.tokenizer));
  const auto index = std::make_shared<const TokenIndex>(tokenizer);
  if (arguments.action == "compile") return compile(arguments, index);
  if (arguments.action == "sample" && num_sources(arguments) == 1) return sample_one(arguments, index);
  if (arguments.action == "sample")
    return for_each_line(
        [&](const Json& line, int64_t number, Json& out) { return sample_line(arguments, index, line, number, out); });
  Checker checker(arguments, index);
  return for_each_line([&](const Json& line, int64_t, Json& out) { return checker.run_line(line, out); });
}

// What is wrong with how it was called; empty when nothing is.
std::string misuse(const GrammarArguments& arguments) {
  const int given = num_sources(arguments);
  if (arguments.action == "check")
    return given == 0 ? "" : "check reads its schemas from standard input, not from --schema, --regex or --ebnf";
  if (given > 1) return "expected one of --schema FILE, --regex R, --ebnf FILE, found several";
  if (arguments.action == "sample") return "";
  if (arguments.action != "compile")
    return fmt::format("expected check, compile or sample, found \"{}\"", arguments.action);
  return given == 1 ? "" : "compile needs one of --schema FILE, --regex R, --ebnf FILE";
}

}  // namespace

Command grammar_command() {
  auto arguments = std::make_shared<GrammarArguments>();
  Command command;
  command.name = "grammar";
  command.summary = "compile a schema, regex or EBNF; check instances; print random texts (of JSON lines, too)";
  command.examples =
      "  deepinfer grammar check --tokenizer tokenizer.json < cases.jsonl\n"
      "  deepinfer grammar sample --ebnf rules.gbnf\n";
  command.declare = [arguments](OptionSet& options) {
    options.positional("action", arguments->action, "check, compile or sample");
    declare_tokenizer_option(options, arguments->tokenizer);
    options.add("--time-limit", arguments->time_limit_s, {0.001, 1e6}, "seconds for one case of check (default 10)");
    options.choice("--property-order", arguments->order, {"any", "schema"},
                   "order of an object's members (default any)");
    options.add("--schema", arguments->schema, "file with a JSON Schema");
    options.add("--regex", arguments->regex, "regular expression");
    options.add("--ebnf", arguments->ebnf, "file with rules");
    options.add("--samples", arguments->num_samples, {1, 1'000'000},
                "texts printed by sample, for each line (default 5)");
    options.add("--seed", arguments->seed, {0, INT64_MAX}, "of sample (default 0)");
    options.add("--max-tokens", arguments->tokens_max, {1, 1 << 20},
                "after which a sample has been led to its end (default 400)");
    options.flag("--lenient", arguments->lenient, "accept what cannot be decided exactly");
  };
  command.run = [arguments] {
    if (const std::string wrong = misuse(*arguments); !wrong.empty()) {
      fmt::print(stderr, "deepinfer grammar: {}\n", wrong);
      return 2;
    }
    install_interrupt_handler();
    return exit_status(run(*arguments));
  };
  return command;
}

}  // namespace deepinfer
