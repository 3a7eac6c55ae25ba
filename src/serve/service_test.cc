// SPDX-License-Identifier: MIT
// The whole service over loopback on golden model A: what clients of the three protocols see, and what they may not do.
// The words the model says are not looked at: its own tests do that.
#include "serve/service_fixture.h"

namespace deepinfer {
namespace {

TEST(ServiceTest, ChatAnswersWholeAndStreamedTheSame) {
  const Service& service = shared_service();
  const Json whole = json_of(post(service, "/v1/chat/completions", chat_body()));
  EXPECT_EQ(at(whole, "object"), Json("chat.completion"));
  ASSERT_TRUE(at(whole, "choices", 0, "message", "content").is_string());
  EXPECT_EQ(at(whole, "model"), Json(kModel));
  EXPECT_EQ(at(whole, "system_fingerprint"), Json("fp_test"));

  const HttpResponse streamed = post(service, "/v1/chat/completions", chat_body(R"(,"stream":true)"));
  EXPECT_EQ(streamed.field("Content-Type"), "text/event-stream; charset=utf-8");
  const auto frames = data_of(streamed.body);
  ASSERT_GE(frames.size(), 3u);
  EXPECT_EQ(frames.back(), "[DONE]");
  std::string text;
  Json last;
  for (size_t i = 0; i + 1 < frames.size(); ++i) {
    last = parse_json(frames[i]).value();
    if (const Json& piece = at(last, "choices", 0, "delta", "content"); piece.is_string()) text += piece.as_string();
  }
  EXPECT_EQ(text, at(whole, "choices", 0, "message", "content").as_string());
  EXPECT_EQ(at(last, "choices", 0, "finish_reason"), at(whole, "choices", 0, "finish_reason"));
  EXPECT_EQ(at(last, "usage", "completion_tokens"), at(whole, "usage", "completion_tokens"));
}

TEST(ServiceTest, EveryPathFormLeadsToItsProtocol) {
  const Service& service = shared_service();
  for (const char* path :
       {"/v1/chat/completions", "/chat/completions", "/beta/chat/completions", "/beta/v1/chat/completions"})
    EXPECT_EQ(post(service, path, chat_body()).status, 200) << path;
  const std::string message = R"({"model":"m","max_tokens":4,"messages":[{"role":"user","content":"abc"}]})";
  for (const char* path : {"/v1/messages", "/anthropic/v1/messages"})
    EXPECT_EQ(at(json_of(post(service, path, message)), "type"), Json("message")) << path;
  EXPECT_EQ(post(service, "/responses", R"({"model":"m","max_output_tokens":4,"input":"abc"})").status, 200);
  EXPECT_EQ(post(service, "/beta/completions", R"({"model":"m","max_tokens":4,"prompt":"abc"})").status, 200);
  EXPECT_EQ(get(service, "/models").status, 200);
  EXPECT_EQ(get(service, "/v1/models/alias").status, 200);
  EXPECT_EQ(get(service, "/v1/models/other").status, 404);
  EXPECT_EQ(get(service, "/v1/chat/completions").status, 405);
  EXPECT_EQ(get(service, "/nothing").status, 404);
}

TEST(ServiceTest, SeveralChoicesDifferAndAreCountedTogether) {
  const Json answer = json_of(post(shared_service(), "/v1/chat/completions",
                                   R"({"model":"m","max_tokens":16,"temperature":1.5,"n":3,"seed":7,"logprobs":true,
      "top_logprobs":2,"thinking":{"type":"disabled"},"messages":[{"role":"user","content":"abc"}]})"));
  ASSERT_EQ(at(answer, "choices").as_array().size(), 3u);
  EXPECT_FALSE(at(answer, "choices", 0, "message", "content") == at(answer, "choices", 1, "message", "content") &&
               at(answer, "choices", 1, "message", "content") == at(answer, "choices", 2, "message", "content"));
  const Json& logprobs = at(answer, "choices", 1, "logprobs", "content");
  ASSERT_TRUE(logprobs.is_array());
  EXPECT_EQ(at(logprobs, 0, "top_logprobs").as_array().size(), 2u);
}

TEST(ServiceTest, TheSameConversationGivesTheSamePromptInAllProtocols) {
  const Service& service = shared_service();
  const auto chat = json_of(post(service, "/v1/chat/completions", chat_body()));
  const auto responses = json_of(post(
      service, "/v1/responses", R"({"model":"m","max_output_tokens":4,"reasoning":{"effort":"none"},"input":"abc"})"));
  const auto messages = json_of(post(
      service, "/v1/messages",
      R"({"model":"m","max_tokens":4,"thinking":{"type":"disabled"},"messages":[{"role":"user","content":"abc"}]})"));
  const auto counted = json_of(post(
      service, "/v1/messages/count_tokens",
      R"({"model":"m","max_tokens":4,"thinking":{"type":"disabled"},"messages":[{"role":"user","content":"abc"}]})"));
  const auto tokenized = json_of(
      post(service, "/tokenize", R"({"thinking":{"type":"disabled"},"messages":[{"role":"user","content":"abc"}]})"));
  const int64_t expected = at(chat, "usage", "prompt_tokens").as_int();
  EXPECT_EQ(at(responses, "usage", "input_tokens").as_int(), expected);
  EXPECT_EQ(at(messages, "usage", "input_tokens").as_int() + at(messages, "usage", "cache_read_input_tokens").as_int(),
            expected);
  EXPECT_EQ(at(counted, "input_tokens").as_int(), expected);
  EXPECT_EQ(at(tokenized, "count").as_int(), expected);
}

TEST(ServiceTest, StreamsEndAsTheirProtocolSays) {
  const Service& service = shared_service();
  const std::string messages =
      post(service, "/v1/messages",
           R"({"model":"m","max_tokens":6,"stream":true,"messages":[{"role":"user","content":"abc"}]})")
          .body;
  EXPECT_EQ(messages.find("event: message_start\n"), 0u);
  EXPECT_TRUE(messages.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")) << messages;
  const std::string responses =
      post(service, "/v1/responses", R"({"model":"m","max_output_tokens":6,"stream":true,"input":"abc"})").body;
  EXPECT_EQ(responses.find("event: response.created\n"), 0u);
  EXPECT_NE(responses.rfind("event: response."), std::string::npos);
  EXPECT_EQ(responses.find("[DONE]"), std::string::npos);
  const auto completion =
      data_of(post(service, "/v1/completions", R"({"model":"m","max_tokens":6,"stream":true,"prompt":"abc"})").body);
  EXPECT_EQ(completion.back(), "[DONE]");
  EXPECT_EQ(at(parse_json(completion[0]).value(), "object"), Json("text_completion"));
}

TEST(ServiceTest, RefusalsHaveTheShapeOfTheirProtocol) {
  const Service& service = shared_service();
  HttpResponse wrong = post(service, "/v1/chat/completions", R"({"model":"gpt","messages":[]})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(at(json_of(wrong), "error", "type"), Json("invalid_request_error"));
  wrong = post(service, "/v1/messages", "not json");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(at(json_of(wrong), "type"), Json("error"));
  wrong = post(service, "/v1/chat/completions", chat_body(R"(,"max_tokens":5000)"));
  EXPECT_EQ(wrong.status, 400);
  wrong = post(service, "/v1/completions", R"({"model":"m","prompt":"a","suffix":"b"})");
  EXPECT_EQ(wrong.status, 400);  // golden model A has no tokens for holes
  wrong = post(service, "/v1/completions", R"({"model":"m","prompt":[1,2,999999]})");
  EXPECT_EQ(wrong.status, 400);
  wrong = post(service, "/v1/chat/completions",
               R"({"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":)"
               R"({"url":"http://169.254.169.254/latest"}}]}]})");
  EXPECT_EQ(wrong.status, 400);  // no address from a request is opened
}

TEST(ServiceTest, PlainTextNeverBecomesAControlToken) {
  const Service& service = shared_service();
  const auto tokens =
      json_of(post(service, "/tokenize", R"({"prompt":"<｜end▁of▁sentence｜><think>","add_special_tokens":false})"));
  for (const Json& id : at(tokens, "tokens").as_array())
    EXPECT_FALSE(shared_service().inference().config().eos_token_id == id.as_int());
  const auto text = json_of(post(service, "/detokenize", to_json(Json::Object{{"tokens", at(tokens, "tokens")}})));
  EXPECT_EQ(at(text, "prompt"), Json("<｜end▁of▁sentence｜><think>"));
}

TEST(ServiceTest, ResponsesAreStoredContinuedAndDeleted) {
  const Service& service = shared_service();
  const Json first = json_of(post(
      service, "/v1/responses",
      R"({"model":"m","max_output_tokens":6,"reasoning":{"effort":"none"},"instructions":"be brief","input":"abc"})"));
  const std::string id = at(first, "id").as_string();
  EXPECT_EQ(json_of(get(service, "/v1/responses/" + id)), first);
  const Json second = json_of(post(service, "/v1/responses",
                                   R"({"model":"m","max_output_tokens":6,"reasoning":{"effort":"none"},"input":"def",)"
                                   R"("previous_response_id":")" +
                                       id + "\"}"));
  EXPECT_EQ(at(second, "previous_response_id"), Json(id));
  // The turns of the first, its answer and the new one.
  EXPECT_GT(at(second, "usage", "input_tokens").as_int(), at(first, "usage", "output_tokens").as_int() + 8);
  HttpClient client = client_of(service);
  EXPECT_EQ(client.request("DELETE", "/v1/responses/" + id).value().status, 200);
  EXPECT_EQ(client.request("GET", "/v1/responses/" + id).value().status, 404);
  EXPECT_EQ(
      post(service, "/v1/responses", R"({"model":"m","input":"def","previous_response_id":")" + id + "\"}").status,
      400);
  const Json unstored =
      json_of(post(service, "/v1/responses", R"({"model":"m","max_output_tokens":4,"store":false,"input":"abc"})"));
  EXPECT_EQ(get(service, "/v1/responses/" + at(unstored, "id").as_string()).status, 404);
}

TEST(ServiceTest, DisconnectsCancelAtOnceAndLeaveNothingBehind) {
  const auto service = start_service();
  const std::string long_body =
      R"({"model":"m","max_tokens":900,"ignore_eos":true,"stream":true,"thinking":{"type":"disabled"},)"
      R"("messages":[{"role":"user","content":"abc"}]})";
  for (int i = 0; i < 12; ++i) {
    HttpClient client = client_of(*service);
    ASSERT_TRUE(client
                    .send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                          std::to_string(long_body.size()) + "\r\n\r\n" + long_body)
                    .ok());
    if (i % 3 > 0) { ASSERT_TRUE(client.receive_until("\"delta\"").ok()); }
  }
  // Far fewer steps than 12 answers of 900 tokens would take.
  ASSERT_TRUE(wait_until_idle(*service));
  EXPECT_LT(service->snapshot().num_output_tokens, 12 * 600);
  EXPECT_EQ(post(*service, "/v1/chat/completions", chat_body()).status, 200);
  ASSERT_TRUE(wait_until_idle(*service));
  const StepLoopSnapshot now = service->snapshot();
  EXPECT_EQ(now.num_free_blocks + now.num_cached_blocks, now.num_blocks);
}

TEST(ServiceTest, KeysAreAskedForAndKeptToTheirLimits) {
  ServiceOptions options = test_options();
  const auto digest = [](std::string_view key) {
    return to_hex(sha256({reinterpret_cast<const uint8_t*>(key.data()), key.size()}));
  };
  options.keys = ApiKeys::parse(R"({"keys":[{"name":"alice","sha256":")" + digest("sk-alice") +
                                R"(","requests_per_minute":2},{"name":"root","admin":true,"sha256":")" +
                                digest("sk-root") + R"("}]})")
                     .value();
  options.admin_port = 0;
  const auto service = start_service(options);
  EXPECT_EQ(get(*service, "/v1/models").status, 401);
  EXPECT_EQ(get(*service, "/v1/models", "Authorization: Bearer sk-alicf\r\n").status, 401);
  EXPECT_EQ(get(*service, "/v1/models", "Authorization: Bearer sk-alice\r\n").status, 200);
  EXPECT_EQ(get(*service, "/v1/models", "x-api-key: sk-alice\r\n").status, 200);
  EXPECT_EQ(get(*service, "/health/live").status, 200);
  EXPECT_EQ(get(*service, "/metrics").status, 401);
  const char* alice = "Authorization: Bearer sk-alice\r\n";
  EXPECT_EQ(post(*service, "/v1/chat/completions", chat_body(), alice).status, 200);
  const Json owned =
      json_of(post(*service, "/v1/responses", R"({"model":"m","max_output_tokens":4,"input":"a"})", alice));
  EXPECT_EQ(post(*service, "/v1/chat/completions", chat_body(), alice).status, 429);
  // Another key does not see alice's response.
  const char* root = "Authorization: Bearer sk-root\r\n";
  EXPECT_EQ(get(*service, "/v1/responses/" + at(owned, "id").as_string(), root).status, 404);
  EXPECT_EQ(get(*service, "/v1/responses/" + at(owned, "id").as_string(), alice).status, 200);
  // The admin port has its own key.
  HttpClient admin = HttpClient::connect("127.0.0.1", service->admin_port()).value();
  EXPECT_EQ(admin.request("GET", "/metrics", "", alice).value().status, 403);
  EXPECT_EQ(admin.request("GET", "/metrics", "", root).value().status, 200);
  EXPECT_EQ(admin.request("POST", "/v1/chat/completions", chat_body(), root).value().status, 404);
  EXPECT_EQ(admin.request("POST", "/admin/drain", "", root).value().status, 200);
  EXPECT_TRUE(service->is_draining());
}

TEST(ServiceTest, OneSequenceAtATimeIsEnough) {
  ServiceOptions options = test_options();
  options.limits.sequences_max = 1;
  const auto service = start_service(options);
  EXPECT_EQ(post(*service, "/v1/chat/completions", chat_body()).status, 200);
}

TEST(ServiceTest, AddressesBeyondThisMachineNeedKeysOrAWord) {
  ServiceOptions options = test_options();
  options.http.host = "0.0.0.0";
  auto model = load_model(DEEPINFER_TESTDATA "/model_a");
  const auto refused = Service::start(std::move(model).value(), options, kClock);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("--api-keys"), std::string::npos);
}

TEST(ServiceTest, PagesFromElsewhereAreRefusedWithoutKeys) {
  const Service& service = shared_service();
  HttpClient client = client_of(service);
  ASSERT_TRUE(client.send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n").ok());
  EXPECT_EQ(client.receive().value().status, 403);
  const auto refused = post(service, "/v1/chat/completions", chat_body(), "Origin: https://evil.example\r\n");
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(refused.body.find("--cors-origin"), std::string::npos) << refused.body;
  EXPECT_EQ(post(service, "/v1/chat/completions", chat_body(), "Origin: http://localhost\r\n").status, 200);
}

TEST(ServiceTest, IdsAreEchoedAndRecordsExplained) {
  const Service& service = shared_service();
  EXPECT_EQ(get(service, "/health", "x-request-id: my-id.1\r\n").field("x-request-id"), "my-id.1");
  EXPECT_NE(get(service, "/health", "x-request-id: <b>\r\n").field("x-request-id"), "<b>");
  const HttpResponse explained = post(service, "/v1/chat/completions", chat_body(), "x-explain: 1\r\n");
  const Json record = parse_json(explained.field("x-explain")).value();
  EXPECT_EQ(at(record, "choices", 0, "sampling", "temperature").as_double(), 0);
  EXPECT_GE(at(record, "choices", 0, "steps").as_int(), 1);
}

TEST(ServiceTest, MetricsCountWhatHappened) {
  const Service& service = shared_service();
  ASSERT_EQ(post(service, "/v1/chat/completions", chat_body()).status, 200);
  const std::string text = get(service, "/metrics").body;
  for (const char* name :
       {"vllm:generation_tokens_total{", "vllm:time_to_first_token_seconds_bucket{", "vllm:num_requests_running{",
        "http_server_request_duration_seconds_count{", "deepinfer_prefix_cache_misses_total{reason="})
    EXPECT_NE(text.find(name), std::string::npos) << name;
  EXPECT_NE(text.find("http_route=\"/v1/chat/completions\",http_response_status_code=\"200\""), std::string::npos);
}

TEST(ServiceTest, DrainFinishesWhatRuns) {
  const auto service = start_service();
  HttpClient client = client_of(*service);
  const std::string body = chat_body(R"(,"stream":true,"ignore_eos":true,"max_tokens":200)");
  ASSERT_TRUE(client
                  .send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                        std::to_string(body.size()) + "\r\n\r\n" + body)
                  .ok());
  ASSERT_TRUE(client.receive_until("\"delta\"").ok());
  service->drain();
  const auto response = client.receive();
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(data_of(response.value().body).back(), "[DONE]");
  for (int i = 0; i < 500 && !service->is_drained(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(service->is_drained());
}

TEST(ServiceTest, StoppingTellsThoseWhoWait) {
  auto service = start_service();
  HttpClient client = client_of(*service);
  const std::string body = chat_body(R"(,"stream":true,"ignore_eos":true,"max_tokens":900)");
  ASSERT_TRUE(client
                  .send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                        std::to_string(body.size()) + "\r\n\r\n" + body)
                  .ok());
  ASSERT_TRUE(client.receive_until("\"delta\"").ok());
  service.reset();
  (void)client.receive();  // an error event or the end of the connection; no hang
}

}  // namespace
}  // namespace deepinfer
