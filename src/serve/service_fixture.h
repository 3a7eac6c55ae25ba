// SPDX-License-Identifier: MIT
// For the tests of the whole service: one over loopback on golden model A, and short words for what clients do.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/http_client.h"
#include "serve/service.h"

namespace deepinfer {

inline constexpr const char* kModel = "m";
inline const SystemClock kClock;

inline ServiceOptions test_options() {
  ServiceOptions options;
  options.http.port = 0;
  options.served_names = {kModel, "alias"};
  options.revision = "fp_test";
  options.limits.sequences_max = 4;
  options.limits.context_max = 1024;
  options.limits.kv_tokens = 8192;
  options.limits.checks_invariants = true;
  options.num_threads = 1;
  options.target = {Backend::kCpu, fastest_cpu_level()};
  return options;
}

inline std::unique_ptr<Service> start_service(ServiceOptions options = test_options()) {
  auto model = load_model(DEEPINFER_TESTDATA "/model_a");
  CHECK(model.ok());
  auto service = Service::start(std::move(model).value(), std::move(options), kClock);
  EXPECT_TRUE(service.ok()) << service.status().message();
  return std::move(service).value();
}

// One service for the tests that leave nothing behind.
inline Service& shared_service() {
  static Service& service = *start_service().release();
  return service;
}

inline HttpClient client_of(const Service& service) {
  return HttpClient::connect("127.0.0.1", service.port(), 60'000).value();
}

inline HttpResponse post(const Service& service, const std::string& path, const std::string& body,
                         const std::string& fields = "") {
  return client_of(service).request("POST", path, body, fields).value();
}
inline HttpResponse get(const Service& service, const std::string& path, const std::string& fields = "") {
  return client_of(service).request("GET", path, "", fields).value();
}

inline Json json_of(const HttpResponse& response) {
  auto json = parse_json(response.body);
  EXPECT_TRUE(json.ok()) << response.body;
  return json.ok() ? json.value() : Json();
}

// A place inside a JSON value: "choices", 0, "message". Null when there is none.
struct Step {
  Step(const char* k) : key(k) {}  // NOLINT: written as plain keys and numbers
  Step(int i) : idx(i) {}          // NOLINT
  const char* key = nullptr;
  int idx = 0;
};
template <typename... Steps>
const Json& at(const Json& json, Steps... steps) {
  static const Json nothing;
  const Json* here = &json;
  for (const Step& step : {Step(steps)...}) {
    if (step.key) here = here->find(step.key);
    else
      here = here->is_array() && static_cast<size_t>(step.idx) < here->as_array().size()
                 ? &here->as_array()[static_cast<size_t>(step.idx)]
                 : nullptr;
    if (!here) return nothing;
  }
  return *here;
}

// The data of an event stream, frame by frame.
inline std::vector<std::string> data_of(const std::string& stream) {
  std::vector<std::string> all;
  for (size_t begin = 0; (begin = stream.find("data: ", begin)) != std::string::npos;) {
    const size_t end = stream.find("\n\n", begin);
    all.push_back(stream.substr(begin + 6, end - begin - 6));
    begin = end;
  }
  return all;
}

inline std::string chat_body(const std::string& more = "") {
  return R"({"model":"m","max_tokens":12,"temperature":0,"thinking":{"type":"disabled"},)"
         R"("messages":[{"role":"user","content":"abc"}])" +
         more + "}";
}

inline bool wait_until_idle(const Service& service) {
  for (int i = 0; i < 1000; ++i) {
    const StepLoopSnapshot now = service.snapshot();
    if (now.num_running == 0 && now.num_waiting == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

inline std::string head_of(const std::string& path, const std::string& body, const std::string& fields = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         fields + "\r\n" + body;
}

}  // namespace deepinfer
