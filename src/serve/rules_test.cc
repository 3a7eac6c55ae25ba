// SPDX-License-Identifier: MIT
// The sixteen rules of a service that strangers may talk to, one test each. The sixteenth, hardened build flags, is
// checked on the program itself: scripts/check_hardening, in ctest as `rule_16_hardened_build_flags`.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <regex>
#include <thread>

#include "base/file.h"
#include "net/url.h"
#include "net/url_fetch.h"
#include "serve/service_fixture.h"
#include "store/block_key.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;

std::string base64(const std::string& bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j)
      group = group << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) out += i + j > bytes.size() ? '=' : kDigits[group >> (18 - 6 * j) & 63];
  }
  return out;
}

std::string image_body(const std::string& url, const std::string& more = "") {
  return R"({"model":"m","max_tokens":2,"thinking":{"type":"disabled"},"messages":[{"role":"user","content":[)"
         R"({"type":"image_url","image_url":{"url":")" +
         url + R"("}},{"type":"text","text":"what?"}]}])" + more + "}";
}

std::string data_url(const std::string& name) {
  return "data:image/png;base64," + base64(read_file(DEEPINFER_TESTDATA "/images/" + name).value());
}

int64_t cached_tokens(const HttpResponse& answer) {
  return at(json_of(answer), "usage", "prompt_tokens_details", "cached_tokens").as_int();
}

// A prompt of several blocks, so that there is something to find again.
std::string long_body(const std::string& user, const std::string& text = "abc ") {
  std::string words;
  for (int i = 0; i < 300; ++i) words += text;
  return R"({"model":"m","max_tokens":2,"thinking":{"type":"disabled"},"user":")" + user +
         R"(","messages":[{"role":"user","content":")" + words + R"("}]})";
}

TEST(SixteenRules, Rule01NoExecutableDeserialisation) {
  // A checkpoint in a form that can hold code is not read, whatever its index says.
  const fs::path folder = fs::path(testing::TempDir()) / "pickled";
  fs::create_directories(folder);
  fs::copy_file(DEEPINFER_TESTDATA "/model_a/config.json", folder / "config.json",
                fs::copy_options::overwrite_existing);
  std::ofstream(folder / "pytorch_model.bin") << "\x80\x02cos\nsystem\n";
  std::ofstream(folder / "model.safetensors.index.json")
      << R"({"metadata":{},"weight_map":{"embed.weight":"pytorch_model.bin"}})";
  EXPECT_FALSE(load_model(folder.string()).ok());
  // Nothing in the tree starts programs, and nothing but device drivers and declared plug-ins is loaded at run time.
  const std::regex starts_programs(R"(\b(system|popen|execv[pe]*|execl[pe]*|posix_spawnp?)\s*\()");
  for (const auto& entry : fs::recursive_directory_iterator(DEEPINFER_SOURCE_DIR "/src")) {
    if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
    if (entry.path().filename().string().find("_test") != std::string::npos) continue;
    // Benches start the peers they are compared with; the service does not contain them.
    const std::string name = entry.path().filename().string();
    if (name.find("_bench") != std::string::npos || name == "bench_cases.h") continue;
    const std::string text = read_file(entry.path().string()).value();
    EXPECT_FALSE(std::regex_search(text, starts_programs)) << entry.path();
  }
}

TEST(SixteenRules, Rule02LoopbackIsTheDefault) {
  EXPECT_EQ(ServiceOptions().http.host, "127.0.0.1");
  for (const char* host : {"0.0.0.0", "::", "192.0.2.1"}) {
    ServiceOptions options = test_options();
    options.http.host = host;
    const auto refused = Service::start(load_model(DEEPINFER_TESTDATA "/model_a").value(), options, kClock);
    ASSERT_FALSE(refused.ok()) << host;
    EXPECT_NE(refused.status().message().find("without API keys"), std::string::npos);
  }
}

TEST(SixteenRules, Rule03InternalIdsNeverComeFromClients) {
  const Service& service = shared_service();
  const std::string same = "x-request-id: same\r\n";
  const Json first =
      json_of(post(service, "/v1/chat/completions", chat_body(R"(,"id":"mine","request_id":"mine","lane":0)"), same));
  const Json second =
      json_of(post(service, "/v1/chat/completions", chat_body(R"(,"id":"mine","sequence_id":1)"), same));
  ASSERT_TRUE(at(first, "id").is_string());
  EXPECT_NE(at(first, "id"), Json("mine"));
  EXPECT_NE(at(first, "id"), at(second, "id"));
  // Token ids from outside are checked against the vocabulary, and none of them stands for an image.
  const auto complete = [&](const std::string& prompt) {
    return post(service, "/v1/completions", R"({"model":"m","max_tokens":1,"prompt":)" + prompt + "}").status;
  };
  EXPECT_EQ(complete("[0,5,7]"), 200);
  EXPECT_EQ(complete("[2000000000]"), 400);
  EXPECT_EQ(complete("[-1]"), 400);
  EXPECT_EQ(complete("[" + std::to_string(service.inference().config().image_token_id) + "]"), 400);
  EXPECT_EQ(post(service, "/v1/chat/completions", chat_body(R"(,"stop_token_ids":[2000000000])")).status, 400);
}

TEST(SixteenRules, Rule04MediaComeFromTheRequestAlone) {
  const Service& service = shared_service();
  for (const char* url :
       {"http://127.0.0.1/a.png", "https://example.com/a.png", "file:///etc/hostname", "/etc/hostname",
        "ftp://example.com/a.png", "data:image/png;base64,%%%", "data:text/html;base64,PGI+"})
    EXPECT_EQ(post(service, "/v1/chat/completions", image_body(url)).status, 400) << url;
  EXPECT_EQ(post(service, "/v1/chat/completions", image_body(data_url("png_1x1.png"))).status, 200);
  // A header that promises 30,000 x 30,000 pixels is refused before a pixel of it exists.
  std::string huge = read_file(DEEPINFER_TESTDATA "/images/png_1x1.png").value();
  huge.replace(16, 8, std::string("\0\0\x75\x30\0\0\x75\x30", 8));
  EXPECT_EQ(post(service, "/v1/chat/completions", image_body("data:image/png;base64," + base64(huge))).status, 400);
}

TEST(SixteenRules, Rule04AddressesOfImagesArePublicAtEveryTurn) {
  for (const char* address : {"127.0.0.1",
                              "10.1.2.3",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.168.1.1",
                              "169.254.169.254",
                              "100.64.0.1",
                              "0.0.0.0",
                              "224.0.0.1",
                              "255.255.255.255",
                              "198.18.0.1",
                              "192.0.2.1",
                              "::1",
                              "::",
                              "fe80::1",
                              "fc00::1",
                              "fd12::1",
                              "ff02::1",
                              "::ffff:127.0.0.1",
                              "::ffff:8.8.8.8",
                              "64:ff9b::7f00:1",
                              "2002:7f00:1::",
                              "2001:db8::1",
                              "2001::1",
                              "no address"})
    EXPECT_FALSE(is_public_address(address)) << address;
  for (const char* address : {"8.8.8.8", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111"})
    EXPECT_TRUE(is_public_address(address)) << address;
}

TEST(SixteenRules, Rule04NamesAreResolvedOnceAndRedirectsLookedAtLikeTheFirstAddress) {
  auto server = HttpServer::start(
      {},
      [](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
        if (request.path == "/away") return exchange->respond({302, {{"Location", "http://inner.test/x"}}, ""});
        if (request.path == "/loop") return exchange->respond({302, {{"Location", "/loop"}}, ""});
        exchange->respond({200, {}, request.path == "/big" ? std::string(5000, 'x') : "picture"});
      },
      kClock);
  ASSERT_TRUE(server.ok());
  const std::string base = "http://outer.test:" + std::to_string((*server)->port());
  int num_resolved = 0;
  UrlFetchOptions options;
  options.bytes_max = 1000;
  options.timeout_ms = 3000;
  options.resolve = [&](const std::string& host) -> Result<std::vector<std::string>> {
    ++num_resolved;
    return std::vector<std::string>{host == "outer.test" ? "127.0.0.1" : "127.0.0.2"};
  };
  options.may_connect = [](const std::string& address) { return address == "127.0.0.1"; };
  EXPECT_EQ(fetch_url(base + "/picture", options).value(), "picture");
  EXPECT_EQ(num_resolved, 1);
  const auto away = fetch_url(base + "/away", options);
  ASSERT_FALSE(away.ok());
  EXPECT_NE(away.status().message().find("public internet"), std::string::npos);
  EXPECT_FALSE(fetch_url(base + "/loop", options).ok());
  EXPECT_FALSE(fetch_url(base + "/big", options).ok());
  EXPECT_FALSE(fetch_url("http://user@outer.test/", options).ok());
  EXPECT_FALSE(fetch_url("file:///etc/hostname", options).ok());
}

TEST(SixteenRules, Rule05GrammarsAreCapped) {
  const Service& service = shared_service();
  const auto ask = [&](const std::string& format) {
    return post(service, "/v1/chat/completions", chat_body(R"(,"response_format":)" + format)).status;
  };
  std::string deep = R"({"type":"string"})";
  for (int i = 0; i < 4000; ++i) deep = R"({"type":"array","items":)" + deep + "}";
  EXPECT_EQ(ask(R"({"type":"json_schema","json_schema":{"name":"a","schema":)" + deep + "}}"), 400);
  const std::string large = R"({"type":"string","description":")" + std::string(2 << 20, 'x') + R"("})";
  EXPECT_EQ(ask(R"({"type":"json_schema","json_schema":{"name":"a","schema":)" + large + "}}"), 400);
  EXPECT_EQ(post(service, "/v1/chat/completions", chat_body()).status, 200);
}

TEST(SixteenRules, Rule06NoTemplatesFromUsers) {
  const Service& service = shared_service();
  const std::string messages = R"("thinking":{"type":"disabled"},"messages":[{"role":"user","content":"{{ 7*7 }}"}])";
  const Json plain = json_of(post(service, "/tokenize", "{" + messages + "}"));
  const Json templated = json_of(post(
      service, "/tokenize",
      "{" + messages +
          R"(,"chat_template":"{{ cycler.__init__ }}","chat_template_kwargs":{"x":1},"template":"{{messages}}"})"));
  ASSERT_TRUE(at(plain, "tokens").is_array());
  EXPECT_EQ(at(plain, "tokens"), at(templated, "tokens"));
}

TEST(SixteenRules, Rule07NumbersAndProductsAreBudgetedBeforeAdmission) {
  const Service& service = shared_service();
  int64_t steps_before = -1;  // a step of the test before may still be under way when its answer is out
  while (steps_before != service.snapshot().num_steps || service.snapshot().num_running > 0) {
    steps_before = service.snapshot().num_steps;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  for (const char* more :
       {R"(,"n":17)", R"(,"n":-1)", R"(,"n":1.5)", R"(,"max_tokens":0)", R"(,"max_tokens":4294967295)",
        R"(,"max_tokens":1e3)", R"(,"temperature":1e39)", R"(,"temperature":-0.1)", R"(,"top_p":0)",
        R"(,"top_logprobs":255,"logprobs":true)", R"(,"seed":18446744073709551615)", R"(,"presence_penalty":2.5)",
        R"(,"logit_bias":{"5":1e300})", R"(,"top_k":4294967296)"}) {
    // The last of two equal keys counts, so each of these replaces the body's own.
    EXPECT_EQ(post(service, "/v1/chat/completions", chat_body(more)).status, 400) << more;
  }
  std::string images = R"({"model":"m","max_tokens":2,"messages":[{"role":"user","content":[)";
  for (int i = 0; i < 400; ++i)  // each fits, together they are longer than the context of 1,024
    images += R"({"type":"image_url","image_url":{"url":")" + data_url("png_1x1.png") + R"("}},)";
  images += R"({"type":"text","text":"a"}]}]})";
  EXPECT_EQ(post(service, "/v1/chat/completions", images).status, 400);
  EXPECT_EQ(service.snapshot().num_steps, steps_before);
}

TEST(SixteenRules, Rule08ARequestCanFailTheEngineCannot) {
  const Service& service = shared_service();
  for (const char* body : {"", "{", "[]", "null", "\"text\"", "{\"model\":\"m\"}", "{\"model\":\"m\",\"messages\":{}}",
                           "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}", "\xff\xfe"})
    for (const char* path : {"/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/completions", "/tokenize",
                             "/detokenize", "/v1/messages/count_tokens"}) {
      const int status = post(service, path, body).status;
      EXPECT_TRUE(status >= 400 && status < 500) << path << " " << body << " gave " << status;
    }
  for (const char* more :
       {R"("stop":[1,2])", R"("stop":{})", R"("logprobs":true)", R"("stream_options":1)", R"("user":7)"})
    EXPECT_EQ(post(service, "/v1/completions", R"({"model":"m","prompt":"a",)" + std::string(more) + "}").status, 400)
        << more;
  EXPECT_TRUE(service.failure().ok());
  EXPECT_EQ(post(service, "/v1/chat/completions", chat_body()).status, 200);
}

TEST(SixteenRules, Rule09FileFormatsAreSafeFromOverflow) {
  const fs::path folder = fs::path(testing::TempDir()) / "overflowing";
  fs::remove_all(folder);
  fs::copy(DEEPINFER_TESTDATA "/model_a", folder, fs::copy_options::recursive);
  fs::path shard;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") shard = entry.path();
  ASSERT_FALSE(shard.empty());
  const std::string whole = read_file(shard.string()).value();
  fs::permissions(shard, fs::perms::owner_all);
  for (const uint64_t length : {uint64_t{0}, uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 7, uint64_t{whole.size()}}) {
    std::string damaged = whole;
    for (size_t i = 0; i < 8; ++i) damaged[i] = static_cast<char>(length >> (8 * i));
    std::ofstream(shard, std::ios::binary) << damaged;
    EXPECT_FALSE(load_model(folder.string()).ok()) << length;
  }
  // Offsets that wrap around, written where the last tensor's stand.
  std::string wrapped = whole;
  const size_t at = wrapped.find("\"data_offsets\":[");
  ASSERT_NE(at, std::string::npos);
  const size_t end = wrapped.find(']', at);
  std::string offsets = "18446744073709551600,8";
  ASSERT_GE(end - at, size_t{16});
  offsets.resize(std::max(offsets.size(), end - at - 16), ' ');
  wrapped.replace(at + 16, end - at - 16, offsets);
  uint64_t header = 0;
  for (size_t i = 0; i < 8; ++i) header |= uint64_t{static_cast<uint8_t>(wrapped[i])} << (8 * i);
  header += wrapped.size() - whole.size();
  for (size_t i = 0; i < 8; ++i) wrapped[i] = static_cast<char>(header >> (8 * i));
  std::ofstream(shard, std::ios::binary) << wrapped;
  EXPECT_FALSE(load_model(folder.string()).ok());
}

TEST(SixteenRules, Rule10NoPathOfAClientIsOpened) {
  const Service& service = shared_service();
  for (const char* path : {"/../../etc/passwd", "/..%2f..%2fetc/passwd", "/console.js/../../etc/passwd", "//etc/passwd",
                           "/v1/models/..%2f..%2fetc%2fpasswd", "/v1/responses/..%2f..%2fetc%2fpasswd"}) {
    const HttpResponse answer = get(service, path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_EQ(answer.body.find("root:"), std::string::npos);
  }
  EXPECT_EQ(
      post(service, "/v1/chat/completions", R"({"model":"/etc/passwd","messages":[{"role":"user","content":"a"}]})")
          .status,
      400);
  EXPECT_EQ(post(service, "/v1/chat/completions", image_body("file:///etc/passwd")).status, 400);
  EXPECT_EQ(post(service, "/v1/chat/completions",
                 R"({"model":"m","messages":[{"role":"user","content":[{"type":"file","file_id":"/etc/passwd"}]}]})")
                .status,
            400);
}

TEST(SixteenRules, Rule11CacheKeysHoldTenantModelLayoutAndMedia) {
  const auto service = start_service();
  EXPECT_EQ(cached_tokens(post(*service, "/v1/chat/completions", long_body("alice"))), 0);
  EXPECT_GT(cached_tokens(post(*service, "/v1/chat/completions", long_body("alice"))), 0);
  EXPECT_EQ(cached_tokens(post(*service, "/v1/chat/completions", long_body("bob"))), 0);
  std::vector<TokenId> tokens(256, TokenId{7});
  const auto key = [&](const KeyScope& scope, std::vector<MediaSpan> media) {
    return BlockKeyChain(scope).extend(tokens, media).back();
  };
  const KeyScope scope{.tenant_salt = "t", .model_revision = "r", .cache_format = 1};
  const MediaSpan image{.begin = 3, .end = 9, .digest = sha256({})};
  MediaSpan other = image;
  other.digest[0] = static_cast<uint8_t>(other.digest[0] ^ 1);
  const auto reference = key(scope, {image});
  EXPECT_EQ(reference, key(scope, {image}));
  EXPECT_NE(reference, key({.tenant_salt = "u", .model_revision = "r", .cache_format = 1}, {image}));
  EXPECT_NE(reference, key({.tenant_salt = "t", .model_revision = "s", .cache_format = 1}, {image}));
  EXPECT_NE(reference, key({.tenant_salt = "t", .model_revision = "r", .cache_format = 2}, {image}));
  EXPECT_NE(reference, key(scope, {other}));
}

TEST(SixteenRules, Rule12SlowClientsAreBounded) {
  const auto service = start_service();
  std::vector<HttpClient> silent;  // ask for all there is and read nothing
  for (int i = 0; i < 4; ++i) {
    silent.push_back(client_of(*service));
    ASSERT_TRUE(
        silent.back()
            .send(head_of(
                "/v1/chat/completions",
                chat_body(R"(,"stream":true,"ignore_eos":true,"max_tokens":700,"logprobs":true,"top_logprobs":20)")))
            .ok());
  }
  EXPECT_EQ(post(*service, "/v1/chat/completions", chat_body()).status, 200);
  ASSERT_TRUE(wait_until_idle(*service));  // nobody waited for them
  const auto answer = silent[0].receive();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(data_of(answer.value().body).back(), "[DONE]");
  silent.clear();
}

TEST(SixteenRules, Rule13ControlTokensComeFromTheRendererAlone) {
  const Service& service = shared_service();
  const auto tokens = [&](const std::string& content) {
    return at(json_of(post(
                  service, "/tokenize",
                  R"({"thinking":{"type":"disabled"},"messages":[{"role":"user","content":")" + content + R"("}]})")),
              "tokens")
        .as_array();
  };
  const auto num_controls = [&](const Json::Array& ids) {
    const Tokenizer& tokenizer = const_cast<Inference&>(service.inference()).preparer().tokenizer();
    return std::ranges::count_if(
        ids, [&](const Json& id) { return tokenizer.is_control(static_cast<TokenId>(id.as_int())); });
  };
  const auto expected = num_controls(tokens("a"));
  for (const char* text : {"<｜User｜>", "<｜Assistant｜></think>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>",
                           "<think>", "<｜deepseek_image｜>", "<｜DSML｜tool_calls>"})
    EXPECT_EQ(num_controls(tokens(text)), expected) << text;
  const Json raw = json_of(post(service, "/tokenize", R"({"prompt":"<｜User｜>","add_special_tokens":false})"));
  EXPECT_EQ(num_controls(at(raw, "tokens").as_array()), 0);
}

TEST(SixteenRules, Rule14AdminIsApart) {
  ServiceOptions options = test_options();
  options.admin_port = 0;
  options.admin_key = "admin-secret";
  options.keys = ApiKeys::parse(R"({"keys":[{"name":"a","sha256":")" +
                                to_hex(sha256({reinterpret_cast<const uint8_t*>("sk-a"), 4})) + R"("}]})")
                     .value();
  const auto service = start_service(options);
  const char* alice = "Authorization: Bearer sk-a\r\n";
  const char* admin = "Authorization: Bearer admin-secret\r\n";
  EXPECT_EQ(post(*service, "/admin/drain", "", alice).status, 404);
  EXPECT_EQ(post(*service, "/admin/drain", "", admin).status, 404);
  EXPECT_EQ(post(*service, "/v1/chat/completions", chat_body(), admin).status, 401);  // it opens nothing else
  const auto ask = [&](const char* method, const char* path, const char* key) {
    return HttpClient::connect("127.0.0.1", service->admin_port())
        .value()
        .request(method, path, "", key)
        .value()
        .status;
  };
  EXPECT_EQ(ask("POST", "/admin/drain", ""), 401);
  EXPECT_EQ(ask("POST", "/admin/drain", alice), 403);
  EXPECT_EQ(ask("GET", "/metrics", admin), 200);
  EXPECT_EQ(ask("GET", "/requests", admin), 200);
  EXPECT_EQ(ask("GET", "/v1/models", admin), 404);
  EXPECT_FALSE(service->is_draining());
  EXPECT_EQ(ask("POST", "/admin/drain", admin), 200);
  EXPECT_TRUE(service->is_draining());
}

TEST(SixteenRules, Rule15ErrorsLeakNeitherPathsNorOthersText) {
  const Service& service = shared_service();
  const std::string secret = "a-word-of-somebody-else";
  (void)post(service, "/v1/chat/completions",
             R"({"model":"m","max_tokens":2,"messages":[{"role":"user","content":")" + secret + R"("}]})");
  const std::string source = DEEPINFER_SOURCE_DIR;
  for (const auto& [path, body] : std::vector<std::pair<std::string, std::string>>{
           {"/v1/chat/completions", "{"},
           {"/v1/chat/completions", chat_body(R"(,"n":99)")},
           {"/v1/chat/completions", image_body("data:image/png;base64,iVBORw0KGgo=")},
           {"/v1/chat/completions", image_body("http://127.0.0.1/a")},
           {"/v1/responses", R"({"model":"m","input":"a","previous_response_id":"resp_0"})"},
           {"/v1/messages", R"({"model":"m","max_tokens":1,"messages":[]})"},
           {"/v1/completions", R"({"model":"m","prompt":[99999999]})"},
           {"/detokenize", R"({"tokens":[-1]})"},
           {"/nothing", "{}"}}) {
    const HttpResponse answer = post(service, path, body);
    EXPECT_GE(answer.status, 400) << path;
    for (const std::string& leak : {secret, source, std::string("src/"), std::string(".cc:"), std::string("testdata")})
      EXPECT_EQ(answer.body.find(leak), std::string::npos) << path << ": " << answer.body;
  }
}

}  // namespace
}  // namespace deepinfer
