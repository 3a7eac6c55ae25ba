// SPDX-License-Identifier: MIT
// Requests that ask for a form, from the body to the events, at temperature 1 on golden model A, whose answers would be
// noise without masks. Valid is what a JSON reader, the schema's own rules and the markup say; with and without drafts
// the tokens are the same. scripts/test_structured_output.py judges many more with the mini model.
#include <gtest/gtest.h>

#include "chat/stream_parser.h"
#include "protocol/codec.h"
#include "serve/grammar_masks.h"
#include "serve/request_preparer.h"
#include "serve/sampling_of.h"
#include "serve/step_loop_runs.h"

namespace deepinfer {
namespace {

constexpr int64_t kContext = 2048;  // model A spells a tool's text in many tokens

RequestPreparer& preparer() {
  static const std::unique_ptr<RequestPreparer> made =
      RequestPreparer::create(golden_model(), {Backend::kCpu, machine_cpu_level()}, 1, kContext).value();
  return *made;
}

struct Reply {
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<std::pair<std::string, std::string>> calls;
  FinishReason finish{};
};

// `fields`: members of the body beside model, messages and seed.
std::string body_of(const std::string& fields, int seed) {
  return R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"json"}],"temperature":1,"max_tokens":400,)"
         R"("structured_outputs":{"close_at_max_tokens":true},"seed":)" +
         std::to_string(seed) + "," + fields + "}";
}

Refusal prepare(const std::string& body, PreparedRequest& out) {
  DecodedRequest decoded;
  REFUSE_IF(find_codec("chat")->decode(body, {}, decoded));
  return preparer().prepare(std::move(decoded.chat), out, {});
}

LoopRequest request_of(const PreparedRequest& prepared, bool drafts) {
  LoopRequest request;
  request.sampling = prepared.sampling;
  request.masks = grammar_masks(prepared);
  EXPECT_TRUE(request.masks);
  request.sequence.prompt = prepared.tokens;
  request.sequence.max_output_tokens = prepared.max_tokens;
  request.sequence.stop_ids = ending_ids(prepared.sampling);
  request.sequence.draft = drafts;
  request.sequence.use_prefix_cache = false;  // what is reused stands behind a fast replay
  return request;
}

Reply answer(LoopRun& run, const std::string& body, bool drafts) {
  PreparedRequest prepared;
  const Refusal refusal = prepare(body, prepared);
  EXPECT_FALSE(refusal) << refusal->message;
  LoopRequest request = request_of(prepared, drafts);
  const LoopOutput output = run.run(std::move(request));
  EXPECT_EQ(output.finished, SequenceEnd::kStop) << output.cause.message();
  Reply reply{output.tokens};
  StreamParserOptions options;
  options.parsing = prepared.chat.parsing;
  StreamParser parser(preparer().vocabulary(), options);
  ChatEvents events;
  EXPECT_TRUE(parser.push_tokens(std::span(output.tokens).first(output.tokens.size() - 1), {}, events).ok());
  parser.finish(BackendFinish::kStop, events);
  for (const ChatEvent& event : events.list) {
    if (event.kind == ChatEventKind::kText) reply.text += events.text_of(event);
    if (event.kind == ChatEventKind::kToolCall) reply.calls.emplace_back(std::string(events.text_of(event)), "");
    if (event.kind == ChatEventKind::kToolArguments) reply.calls.back().second += events.text_of(event);
  }
  reply.finish = events.finish.reason;
  return reply;
}

Json object_of(const std::string& text) {
  const auto json = parse_json(text);
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() && json.value().is_object() ? json.value() : Json(Json::Object{});
}

const std::string kSchema =
    R"({"type":"object","properties":{"n":{"type":"integer","minimum":3,"maximum":77},"s":{"type":"string","maxLength":5},)"
    R"("l":{"type":"array","items":{"enum":["x","yy"]},"minItems":1,"maxItems":3}},"required":["n","s","l"],)"
    R"("additionalProperties":false})";

void expect_schema(const std::string& text) {
  const Json json = object_of(text);
  const Json *n = json.find("n"), *l = json.find("l");
  ASSERT_TRUE(n && n->is_integer() && json.find("s") && l && l->is_array() && json.as_object().size() == 3) << text;
  EXPECT_GE(n->as_int(), 3);
  EXPECT_LE(n->as_int(), 77);
  EXPECT_GE(l->as_array().size(), 1u);
  EXPECT_LE(l->as_array().size(), 3u);
}

std::string tools(const char* strict) {
  return R"("tools":[{"type":"function","function":{"name":"f","strict":)" + std::string(strict) +
         R"(,"parameters":{"type":"object","properties":{"n":{"type":"integer","minimum":3,"maximum":77},"s":{"type":"string"}},)"
         R"("required":["n","s"],"additionalProperties":false}}}])";
}

StepLoopOptions wide_loop() {
  StepLoopOptions options = loop_test_options();
  options.scheduler.context_tokens_max = kContext;
  return options;
}

EngineOptions wide_engine() {
  EngineOptions options = loop_engine_options();
  options.context_max = kContext;
  return options;
}

class StructuredOutput : public testing::Test {
 protected:
  // Two seeds, each with and without drafts.
  void each(const std::string& fields, const std::function<void(const Reply&)>& check) {
    for (int seed = 0; seed < 2; ++seed) {
      const Reply reply = answer(run_, body_of(fields, seed), true);
      check(reply);
      EXPECT_EQ(reply.tokens, answer(run_, body_of(fields, seed), false).tokens);
    }
  }
  LoopRun run_{wide_loop(), wide_engine()};
};

const std::string kPlain = R"("thinking":{"type":"disabled"})", kThinking = R"("thinking":{"type":"enabled"})";

TEST_F(StructuredOutput, JsonSchemaWithAndWithoutThinking) {
  for (const std::string& thinking : {kPlain, kThinking})
    each(thinking + R"(,"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":)" + kSchema + "}}",
         [](const Reply& reply) { expect_schema(reply.text); });
}

TEST_F(StructuredOutput, JsonObjectRegexChoiceAndGrammar) {
  each(kPlain + R"(,"response_format":{"type":"json_object"})", [](const Reply& reply) { object_of(reply.text); });
  each(kPlain + R"x(,"guided_regex":"(ab|c){3}[0-9]")x", [](const Reply& reply) {
    EXPECT_TRUE(reply.text.size() >= 4 && std::isdigit(reply.text.back()) != 0) << reply.text;
  });
  each(kPlain + R"(,"guided_choice":["yes","no"])",
       [](const Reply& reply) { EXPECT_TRUE(reply.text == "yes" || reply.text == "no") << reply.text; });
  each(kPlain + R"x(,"guided_grammar":"root ::= \"<\" [a-c]{2} \">\"")x", [](const Reply& reply) {
    EXPECT_TRUE(reply.text.size() == 4 && reply.text[0] == '<' && reply.text[3] == '>') << reply.text;
  });
}

TEST_F(StructuredOutput, StrictToolsAreCalledByTheirSchema) {
  for (const std::string& thinking : {kPlain, kThinking})
    each(thinking + R"(,"tool_choice":"required",)" + tools("true"), [](const Reply& reply) {
      EXPECT_EQ(reply.finish, FinishReason::kToolCalls);
      ASSERT_FALSE(reply.calls.empty());
      for (const auto& [name, arguments] : reply.calls) {
        EXPECT_EQ(name, "f");
        const Json json = object_of(arguments);
        ASSERT_TRUE(json.find("n") && json.find("n")->is_integer() && json.find("s")->is_string()) << arguments;
        EXPECT_LE(json.find("n")->as_int(), 77);
      }
    });
}

TEST_F(StructuredOutput, LooseToolsStillGiveObjects) {
  each(kPlain + R"(,"tool_choice":"required","parallel_tool_calls":false,)" + tools("false"), [](const Reply& reply) {
    ASSERT_EQ(reply.calls.size(), 1u);
    object_of(reply.calls[0].second);
  });
}

// Answers of every kind, all at once in a loop.
std::vector<std::vector<TokenId>> answers_at_once(const StepLoopOptions& options, const EngineOptions& engine,
                                                  int64_t& num_steps) {
  const std::string forms[] = {
      kPlain + R"x(,"guided_regex":"(ab|c){3}[0-9]")x",
      kPlain + R"x(,"guided_grammar":"root ::= e\ne ::= e \"+\" e | \"the only number is \" [0-9]{1,3}")x",
      kPlain + R"(,"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":)" + kSchema + "}}",
      kPlain + R"(,"tool_choice":"required","parallel_tool_calls":false,)" + tools("true")};
  LoopRun run(options, engine);
  std::vector<SequenceId> ids;
  for (const std::string& form : forms) {
    PreparedRequest prepared;
    const Refusal refusal = prepare(body_of(form, 3), prepared);
    EXPECT_FALSE(refusal) << refusal->message;
    prepared.max_tokens = std::min<int64_t>(prepared.max_tokens, 120);
    ids.push_back(run.submit(request_of(prepared, true)));
  }
  run.finish();
  std::vector<std::vector<TokenId>> all;
  num_steps = 0;
  for (const SequenceId id : ids) {
    all.push_back(run.output(id).tokens);
    num_steps += run.output(id).record.num_steps;
  }
  return all;
}

TEST_F(StructuredOutput, NoThreadAndNoDraftChangesAToken) {
  std::vector<std::vector<TokenId>> expected;
  int64_t num_steps = 0, num_steps_alone = 0;
  for (const int num_compute_threads : {1, 2})
    for (const int num_mask_threads : {1, 2, 3}) {
      StepLoopOptions options = wide_loop();
      options.num_mask_threads = num_mask_threads;
      EngineOptions engine = wide_engine();
      engine.num_threads = num_compute_threads;
      engine.has_thread = num_mask_threads > 1;
      const auto all = answers_at_once(options, engine, num_steps);
      if (expected.empty()) expected = all;
      EXPECT_EQ(all, expected) << num_compute_threads << " compute threads, " << num_mask_threads << " for masks";
    }
  for (const bool has_head : {true, false}) {
    StepLoopOptions options = wide_loop();
    options.scheduler.has_draft_head = has_head;
    options.scheduler.verifies_all = true;  // whatever the clock says of rows and steps
    options.scheduler.num_drafts = draft_run_max(golden_model().weights->config());
    EXPECT_EQ(answers_at_once(options, wide_engine(), num_steps), expected);
    options.drafts_foretold = false;
    EXPECT_EQ(answers_at_once(options, wide_engine(), num_steps_alone), expected);
    EXPECT_LT(num_steps, num_steps_alone) << "what the grammar dictates takes fewer steps";
  }
}

// Hundreds of ways, each of which counts from every character on that it takes for its own, and at the end of each
// count begins another: a state is a text's own and has ever more parts.
std::string pattern_that_takes_long() {
  std::string ways;
  for (int i = 0; i < 400; ++i)
    ways += (i > 0 ? "|" : "") + std::string("(.*[") + static_cast<char>('a' + i % 13) + "-" +
            static_cast<char>('n' + i % 11) + "].{" + std::to_string(20 + i) + "}){2}";
  return ways;
}

// Counted in units of work, whatever the clock says: ten times as many as a worker takes at first do not make one mask.
void expect_long(const std::string& pattern) {
  const auto index = std::make_shared<const TokenIndex>(golden_model().tokenizer);
  const auto grammar = Grammar::compile({GrammarSource::Kind::kRegex, pattern, {}}, index, {}).value();
  TokenMasks masks(1, static_cast<int64_t>(index->vocab_size()));
  WorkBudget budget{200'000};
  EXPECT_FALSE(grammar->try_fill_mask(grammar->start(), masks.row(0), budget).value());
}

// A step waits for no mask.
TEST_F(StructuredOutput, RulesThatTakeLongHoldUpNobodyElse) {
  const std::string pattern = pattern_that_takes_long();
  expect_long(pattern);
  StepLoopOptions options = wide_loop();
  options.mask_wait_ns = 0;
  const auto num_steps_of_plain = [&](bool with_slow) {
    LoopRun run(options, wide_engine());
    SequenceId slow{};
    if (with_slow) {
      PreparedRequest prepared;
      EXPECT_FALSE(prepare(body_of(kPlain + R"(,"guided_regex":")" + pattern + "\"", 0), prepared));
      slow = run.submit(request_of(prepared, true));
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(run.loop->run_step().ok());  // its prompt is over, its mask is not there
    }
    LoopRequest request = loop_request(5, 40, 60);
    request.sequence.draft = false;
    const int64_t begin = run.loop->snapshot().num_steps;
    const SequenceId plain = run.submit(std::move(request));
    while (!run.output(plain).finished) EXPECT_TRUE(run.loop->run_step().ok());
    EXPECT_EQ(run.output(plain).tokens.size(), 60u);
    if (with_slow) {
      EXPECT_GT(run.loop->snapshot().num_late_masks, 0);
      run.loop->cancel(slow);
    }
    run.finish();
    return run.loop->snapshot().num_steps - begin;
  };
  const int64_t alone = num_steps_of_plain(false);
  EXPECT_LE(num_steps_of_plain(true), alone + 4) << "a token in every step";
}

TEST(StructuredOutputRefusals, NameTheFieldTheKeywordAndThePath) {
  const auto expect = [](const std::string& fields, const std::string& param, std::vector<std::string> parts) {
    PreparedRequest prepared;
    const Refusal refusal = prepare(body_of(kPlain + "," + fields, 0), prepared);
    ASSERT_TRUE(refusal) << fields;
    EXPECT_EQ(refusal->http_status, 400);
    EXPECT_EQ(refusal->param, param);
    for (const std::string& part : parts) EXPECT_NE(refusal->message.find(part), std::string::npos) << refusal->message;
  };
  expect(R"("guided_json":{"properties":{"a":{"type":"array","uniqueItems":true}}})", "guided_json",
         {"uniqueItems", "#/properties/a"});
  expect(R"x("guided_regex":"a(?=b)")x", "guided_regex", {"guided_regex"});
  expect(R"("guided_regex":"a","guided_choice":["b"])", "guided_choice", {"only one"});
  expect(R"("guided_regex":"a","ignore_eos":true)", "ignore_eos", {"ignore_eos"});
  expect(R"("guided_json":false)", "guided_json", {"no answer satisfies"});
  expect(R"("guided_whitespace_pattern":" ")", "guided_whitespace_pattern", {"not supported"});
}

}  // namespace
}  // namespace deepinfer
