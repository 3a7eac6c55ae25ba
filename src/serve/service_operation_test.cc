// SPDX-License-Identifier: MIT
// The service as its operators and their tools see it: traces, records of requests, clocks that jump, what a token
// costs.
#include <gtest/gtest.h>

#include <atomic>

#include "base/allocation_count.h"
#include "serve/free_tokens.h"
#include "serve/openapi.h"
#include "serve/service_fixture.h"

namespace deepinfer {
namespace {

TEST(TraceContextTest, TracesAreContinuedOrBegun) {
  const std::string given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";  // the standard's example
  const TraceContext continued = continue_trace(given);
  EXPECT_EQ(continued.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(continued.parent_id, "00f067aa0ba902b7");
  EXPECT_TRUE(continued.is_sampled);
  EXPECT_NE(continued.span_id, continued.parent_id);
  EXPECT_EQ(continued.traceparent(), "00-4bf92f3577b34da6a3ce929d0e0e4736-" + continued.span_id + "-01");
  EXPECT_FALSE(continue_trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00").is_sampled);
  EXPECT_EQ(continue_trace("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-later").parent_id,
            "00f067aa0ba902b7");
  for (const char* wrong : {"", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-later",
                            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"}) {
    const TraceContext begun = continue_trace(wrong);
    EXPECT_TRUE(begun.parent_id.empty()) << wrong;
    EXPECT_EQ(begun.trace_id.size(), 32u);
    EXPECT_EQ(begun.span_id.size(), 16u);
  }
}

RequestRecord sample_record() {
  RequestRecord record;
  record.id = "r1";
  record.method = "POST";
  record.route = "/v1/chat/completions";
  record.trace = continue_trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  record.begin_unix_ns = 1'700'000'000'000'000'000;
  record.begin_ns = 1'000;
  return record;
}

TEST(SpanExporterTest, SpansAreOnTheWallClockAndOverflowIsCounted) {
  RequestRecord record = sample_record();
  record.status = 200;
  record.finish = "stop";
  record.end_ns = 9'000;
  record.sequence =
      SequenceRecord{.arrival_ns = 2'000, .admitted_ns = 3'000, .first_token_ns = 5'000, .finished_ns = 8'000};
  const Json body = spans_body({record}, {.model = "m", .send = nullptr});
  const Json& spans = at(body, "resourceSpans", 0, "scopeSpans", 0, "spans");
  ASSERT_EQ(spans.as_array().size(), 4u);
  EXPECT_EQ(at(spans, 0, "startTimeUnixNano"), Json("1700000000000000000"));
  EXPECT_EQ(at(spans, 0, "endTimeUnixNano"), Json("1700000000000008000"));
  EXPECT_EQ(at(spans, 2, "name"), Json("prompt"));
  EXPECT_EQ(at(spans, 2, "startTimeUnixNano"), Json("1700000000000002000"));
  EXPECT_EQ(at(spans, 2, "endTimeUnixNano"), Json("1700000000000004000"));
  EXPECT_EQ(at(spans, 2, "parentSpanId"), Json(record.trace.span_id));

  std::atomic<int> num_bodies{0};
  auto exporter = SpanExporter::start(
      {.waiting_max = 3, .batch_max = 100, .interval_ms = 60'000, .send = [&](const std::string&) -> Status {
         ++num_bodies;
         return {};
       }});
  for (int i = 0; i < 5; ++i) (*exporter)->add(record);
  EXPECT_EQ((*exporter)->num_dropped(), 2);
  exporter.value().reset();  // what waits is sent
  EXPECT_EQ(num_bodies, 1);
}

TEST(RequestHistoryTest, ItIsBoundedAndKeysSeeTheirOwn) {
  RequestHistory history(2);
  for (int i = 0; i < 4; ++i) {
    RequestRecord record = sample_record();
    record.trace.span_id = std::to_string(i);
    record.owner = i % 2 ? "bob" : "alice";
    history.begin(record);
    record.end_ns = 5'000 + i;
    record.status = 200;
    if (i < 3) history.end(record);
  }
  EXPECT_EQ(at(history.list("", true, 9'000), "requests").as_array().size(), 3u);  // one runs, two have ended
  const Json bobs = history.list("bob", false, 9'000);
  ASSERT_EQ(at(bobs, "requests").as_array().size(), 2u);
  EXPECT_EQ(at(bobs, "requests", 0, "status"), Json(0));
  EXPECT_EQ(at(bobs, "requests", 1, "status"), Json(200));
}

TEST(ServiceOperation, RequestsStandInTheHistoryAndTokensAreTold) {
  const Service& service = shared_service();
  const HttpResponse told = post(service, "/v1/chat/completions", chat_body(R"(,"stream":true,"logprobs":true)"),
                                 "x-explain: tokens\r\nx-request-id: told\r\n");
  size_t num_tokens = 0;
  for (size_t begin = 0; (begin = told.body.find(": x-tokens ", begin)) != std::string::npos; ++begin) {
    const Json rows = parse_json(told.body.substr(begin + 11, told.body.find('\n', begin) - begin - 11)).value();
    for (const Json& row : rows.as_array()) {
      ++num_tokens;
      EXPECT_TRUE(at(row, 1).is_integer() && at(row, 2).is_string() && at(row, 3).is_bool() && at(row, 4).is_number());
    }
  }
  const Json last = parse_json(*(data_of(told.body).end() - 2)).value();
  EXPECT_EQ(static_cast<int64_t>(num_tokens), at(last, "usage", "completion_tokens").as_int());
  const Json history = json_of(get(service, "/requests"));
  const auto& all = at(history, "requests").as_array();
  const auto found = std::ranges::find_if(all, [](const Json& one) { return at(one, "id") == Json("told"); });
  ASSERT_NE(found, all.end());
  EXPECT_EQ(at(*found, "status"), Json(200));
  EXPECT_LE(at(*found, "admitted_ms").as_double(), at(*found, "first_token_ms").as_double());
  EXPECT_LE(at(*found, "first_token_ms").as_double(), at(*found, "end_ms").as_double());
}

// The wall clock jumps by days while monotonic time goes on.
class JumpingClock final : public Clock {
 public:
  int64_t monotonic_ns() const override { return kClock.monotonic_ns(); }
  int64_t unix_ns() const override {
    static std::atomic<int64_t> num_calls{0};
    const int64_t days = num_calls++ % 3 - 1;
    return kClock.unix_ns() + days * 40 * 86'400'000'000'000;
  }
};

TEST(ServiceOperation, AClockThatJumpsChangesNoToken) {
  static const JumpingClock jumping;
  auto jumpy = Service::start(load_model(DEEPINFER_TESTDATA "/model_a").value(), test_options(), jumping);
  ASSERT_TRUE(jumpy.ok());
  const auto content = [](const Service& service) {
    return at(json_of(post(service, "/v1/chat/completions", chat_body(R"(,"temperature":1.0,"seed":5)"))), "choices", 0,
              "message", "content");
  };
  const Json expected = content(shared_service());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(content(**jumpy), expected);
  const Json stored = json_of(post(**jumpy, "/v1/responses", R"({"model":"m","max_output_tokens":4,"input":"a"})"));
  EXPECT_EQ(get(**jumpy, "/v1/responses/" + at(stored, "id").as_string()).status, 200);  // its time is not over
}

TEST(ServiceOperation, TheSameConversationGivesTheSamePromptIdsInAllProtocols) {
  // System text, a question, thoughts with a call, its result, a question again: in the words of each protocol.
  const char* tools = R"("parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]})";
  const std::string chat =
      std::string(R"({"model":"m","tools":[{"type":"function","function":{"name":"weather",)"
                  R"("description":"d",)") +
      tools +
      R"(}}],"messages":[{"role":"system","content":"Be brief."},)"
      R"({"role":"user","content":"Paris?"},{"role":"assistant","content":"Let me see.","reasoning_content":"I look.",)"
      R"("tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Paris\"}"}}]},)"
      R"({"role":"tool","tool_call_id":"c1","content":"sunny"},{"role":"user","content":"And Rome?"}]})";
  const std::string responses =
      std::string(R"({"model":"m","instructions":"Be brief.","tools":[{"type":"function",)"
                  R"("name":"weather","description":"d",)") +
      tools +
      R"(}],"input":[{"role":"user","content":"Paris?"},)"
      R"({"type":"reasoning","content":[{"type":"reasoning_text","text":"I look."}]},)"
      R"({"role":"assistant","content":"Let me see."},)"
      R"({"type":"function_call","call_id":"c1","name":"weather","arguments":"{\"city\":\"Paris\"}"},)"
      R"({"type":"function_call_output","call_id":"c1","output":"sunny"},{"role":"user","content":"And Rome?"}]})";
  const std::string messages =
      R"({"model":"m","max_tokens":9,"system":"Be brief.","tools":[{"name":"weather",)"
      R"("description":"d","input_schema":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}],)"
      R"("thinking":{"type":"enabled","budget_tokens":1024},"messages":[{"role":"user","content":"Paris?"},)"
      R"({"role":"assistant","content":[{"type":"thinking","thinking":"I look.","signature":"s"},)"
      R"({"type":"text","text":"Let me see."},{"type":"tool_use","id":"c1","name":"weather","input":{"city":"Paris"}}]},)"
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"sunny"}]},)"
      R"({"role":"user","content":"And Rome?"}]})";
  DecodeOptions options;
  options.models = {{"m", PromptVersion::kV41}};
  const RequestPreparer& preparer = const_cast<Inference&>(shared_service().inference()).preparer();
  const auto ids = [&](const char* protocol, const std::string& body) {
    DecodedRequest decoded;
    const Refusal refusal = find_codec(protocol)->decode(body, options, decoded);
    EXPECT_FALSE(refusal) << protocol << ": " << (refusal ? refusal->message : "");
    return preparer.encode(decoded.chat.conversation, decoded.chat.version).value();
  };
  const std::vector<TokenId> expected = ids("chat", chat);
  EXPECT_GT(expected.size(), 40u);
  EXPECT_EQ(ids("responses", responses), expected);
  EXPECT_EQ(ids("messages", messages), expected);
}

TEST(ServiceOperation, CompletionsEchoAndGiveLogprobs) {
  const Service& service = shared_service();
  const std::string prompt = R"({"model":"m","max_tokens":4,"temperature":0,"prompt":"abc")";
  const Json plain = json_of(post(service, "/v1/completions", prompt + "}"));
  const Json echoed = json_of(post(service, "/beta/completions", prompt + R"(,"echo":true})"));
  EXPECT_EQ(at(echoed, "choices", 0, "text").as_string(), "abc" + at(plain, "choices", 0, "text").as_string());
  const auto frames = data_of(post(service, "/v1/completions", prompt + R"(,"echo":true,"stream":true})").body);
  EXPECT_EQ(at(parse_json(frames[0]).value(), "choices", 0, "text"), Json("abc"));
  const Json scored = json_of(post(service, "/v1/completions", prompt + R"(,"logprobs":2})"));
  const Json& logprobs = at(scored, "choices", 0, "logprobs");
  ASSERT_EQ(at(logprobs, "tokens").as_array().size(), 4u);
  EXPECT_EQ(at(logprobs, "token_logprobs").as_array().size(), 4u);
  EXPECT_EQ(at(logprobs, "text_offset", 0), Json(0));
  EXPECT_EQ(at(logprobs, "top_logprobs", 3).as_object().size(), 2u);
  EXPECT_EQ(post(service, "/v1/completions", prompt + R"(,"logprobs":2,"echo":true})").status, 400);
  EXPECT_EQ(post(service, "/v1/completions", prompt + R"(,"logprobs":21})").status, 400);
}

TEST(ServiceOperation, OtherMethodsAreToldWhichOnesAreMeant) {
  const HttpResponse wrong = get(shared_service(), "/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.field("Allow"), "POST");
}

TEST(ServiceOperation, PagesOfOtherOriginsAreLetInByNameOnly) {
  ServiceOptions options = test_options();
  options.cors_origins = {"https://pages.example"};
  const auto service = start_service(options);
  const char* welcome = "Origin: https://pages.example\r\n";
  const HttpResponse asked = client_of(*service).request("OPTIONS", "/v1/chat/completions", "", welcome).value();
  EXPECT_EQ(asked.status, 204);
  EXPECT_EQ(asked.field("Access-Control-Allow-Origin"), "https://pages.example");
  const HttpResponse answered = post(*service, "/v1/chat/completions", chat_body(), welcome);
  EXPECT_EQ(answered.status, 200);
  EXPECT_EQ(answered.field("Access-Control-Allow-Origin"), "https://pages.example");
  const HttpResponse other = post(*service, "/v1/chat/completions", chat_body(), "Origin: https://other.example\r\n");
  EXPECT_EQ(other.status, 403);
  EXPECT_EQ(other.field("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(get(*service, "/v1/models").field("Access-Control-Allow-Origin"), "");
}

TEST(ServiceOperation, LargeBodiesOfStrangersAreRefusedBeforeTheyCome) {
  ServiceOptions options = test_options();
  options.keys = ApiKeys::parse(R"({"keys":[{"name":"a","sha256":")" + std::string(64, '0') + R"("}]})").value();
  const auto service = start_service(options);
  HttpClient stranger = client_of(*service);
  ASSERT_TRUE(stranger.send("POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 90000000\r\n\r\n").ok());
  EXPECT_EQ(stranger.receive().value().status, 401);
}

struct FreeService {
  std::unique_ptr<Service> service;
  FreeTokens* tokens = nullptr;  // the service's
};

FreeService start_free_service(ServiceOptions options) {
  LoadedModel model = load_model(DEEPINFER_TESTDATA "/model_a").value();
  auto source = std::make_unique<FreeTokens>(model.tokenizer->encode("a").at(0), kClock);
  FreeService out;
  out.tokens = source.get();
  auto inference = Inference::around(std::move(model), std::move(source), options.target, 8192);
  CHECK(inference.ok());
  out.service = Service::start(std::move(inference).value(), std::move(options), kClock).value();
  return out;
}

// A stream that waits for its first token says so by comments, which every reader of events skips.
TEST(ServiceOperation, WhoWaitsIsToldThatTheConnectionLives) {
  ServiceOptions options = test_options();
  options.keep_alive_ns = 5'000'000;
  const FreeService stand = start_free_service(options);
  const std::string responses =
      R"({"model":"m","max_output_tokens":5,"input":"abc","reasoning":{"effort":"low"},"stream":true})";
  for (const auto& [path, body] :
       {std::pair<std::string, std::string>("/v1/chat/completions", chat_body(R"(,"stream":true)")),
        {"/v1/messages", chat_body(R"(,"stream":true)")},
        {"/v1/responses", responses}}) {
    std::atomic<bool> may_give = false;
    stand.tokens->set_pace({.may_give = [&](int, int64_t) { return may_give.load(); }, .on_give = nullptr});
    HttpClient client = client_of(*stand.service);
    ASSERT_TRUE(client.send(head_of(path, body)).ok());
    ASSERT_TRUE(client.receive_until(": keep-alive\n\n").ok()) << path;
    may_give = true;
    const HttpResponse answer = client.receive().value();
    EXPECT_EQ(answer.status, 200);
    EXPECT_LT(answer.body.find(": keep-alive\n\n"), answer.body.find("data: ")) << path;
    EXPECT_GE(data_of(answer.body).size(), 3u) << path;
    EXPECT_TRUE(wait_until_idle(*stand.service));
    stand.tokens->set_pace({});
  }
}

// From the source of tokens to the socket: what one streamed token allocates, on all threads together.
TEST(ServiceOperation, AStreamedTokenAllocatesLittle) {
  const FreeService stand = start_free_service(test_options());
  constexpr int kTokens = 1000;
  stand.tokens->set_pace(
      {.round_ns = 500'000, .may_give = nullptr, .on_give = nullptr});  // so that tokens come one by one
  const auto stream = [&] {
    return post(*stand.service, "/v1/chat/completions",
                chat_body(R"(,"stream":true,"ignore_eos":true,"max_tokens":)" + std::to_string(kTokens)));
  };
  (void)stream();  // warm
  const size_t before = num_allocations;
  const HttpResponse answer = stream();
  const double per_token = static_cast<double>(num_allocations - before) / kTokens;
  const double events = static_cast<double>(data_of(answer.body).size()) / kTokens;
  RecordProperty("allocations_per_token", std::to_string(per_token));
  std::printf("allocations per streamed token, this client's included: %.2f (%.2f events a token)\n", per_token,
              events);
  EXPECT_LT(per_token, 16);
}

}  // namespace
}  // namespace deepinfer
