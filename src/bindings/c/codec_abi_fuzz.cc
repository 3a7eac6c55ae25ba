// SPDX-License-Identifier: MIT
// The C ABI under arbitrary calls: a request from the bytes, or a good one, then pushes that the bytes choose.
// Properties: every event and the final object are JSON objects, a refusal has a body and no ids.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "bindings/c/deepinfer_codec.h"

namespace deepinfer {
namespace {

constexpr const char* kProtocols[] = {"chat", "responses", "messages"};
constexpr std::string_view kBodies[] = {
    R"({"model":"DeepSeek-V4.1-Flash","n":2,"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}]})",
    R"({"model":"DeepSeek-V4.1-Flash","input":"a","tools":[{"type":"custom","name":"f"}]})",
    R"({"model":"DeepSeek-V4.1-Flash","max_tokens":9,"messages":[{"role":"user","content":"a"}],"stop_sequences":["END"]})"};

const deepinfer_codec* codec() {
  static const deepinfer_codec* made = [] {
    deepinfer_tokenizer* tokenizer = nullptr;
    deepinfer_codec* out = nullptr;
    CHECK(deepinfer_tokenizer_load(DEEPINFER_TESTDATA "/codec/tokenizer_v41.json.gz", &tokenizer, nullptr) == 0);
    CHECK(deepinfer_codec_new(tokenizer, nullptr, 0, &out, nullptr) == DEEPINFER_OK);
    deepinfer_tokenizer_free(tokenizer);
    return out;
  }();
  return made;
}

void check_object(std::string_view text) {
  const auto value = parse_json(text, {.depth_max = 1000, .refuse_duplicate_keys = false, .wide_integers = true});
  CHECK(value.ok() && value.value().is_object());
}

void push(deepinfer_stream* stream, uint8_t operation, std::string_view bytes) {
  const uint32_t choice = operation >> 3 & 1;
  int32_t ids[64];
  size_t num_ids = 0;
  for (size_t i = 0; i + 1 < bytes.size() && num_ids < 64; i += 2)
    ids[num_ids++] = static_cast<uint8_t>(bytes[i]) * 1024 + static_cast<uint8_t>(bytes[i + 1]) * 4 - 40;
  switch (operation & 7) {
    case 0: deepinfer_stream_push_prompt(stream, bytes.size(), 1, bytes.data(), bytes.size(), nullptr); break;
    case 1:
    case 2: deepinfer_stream_push_ids(stream, choice, ids, num_ids, nullptr, nullptr); break;
    case 3: {
      deepinfer_position_logprobs logprobs[64];
      for (auto& position : logprobs) position = {-0.5, ids, &position.logprob, num_ids > 0 ? 1u : 0u};
      deepinfer_stream_push_ids(stream, choice, ids, num_ids, logprobs, nullptr);
      break;
    }
    case 4:
    case 5: deepinfer_stream_push_text(stream, choice, bytes.data(), bytes.size(), 1, nullptr); break;
    case 6: deepinfer_stream_finish(stream, choice, static_cast<int32_t>(bytes.size() % 5), nullptr); break;
    default: deepinfer_stream_fail(stream, 500, bytes.data(), bytes.size(), nullptr); break;
  }
  for (size_t i = 0; i < deepinfer_stream_num_events(stream); ++i) {
    const deepinfer_view data = deepinfer_stream_event_data(stream, i);
    check_object({data.data, data.size});
  }
}

void run_stream(const deepinfer_request* request, std::string_view data) {
  deepinfer_stream* stream = nullptr;
  CHECK(deepinfer_stream_new(request, nullptr, 0, &stream, nullptr) == DEEPINFER_OK);
  while (data.size() >= 2) {
    const auto operation = static_cast<uint8_t>(data[0]);
    const size_t size = std::min<size_t>(static_cast<uint8_t>(data[1]), data.size() - 2);
    push(stream, operation, data.substr(2, size));
    data.remove_prefix(2 + size);
  }
  deepinfer_text reply{};
  CHECK(deepinfer_stream_final(stream, &reply, nullptr) == DEEPINFER_OK);
  check_object({reply.data, reply.size});
  deepinfer_text_free(&reply);
  deepinfer_stream_free(stream);
}

// A conversation that is accepted comes out as it went in.
void run_conversation(const char* protocol, std::string_view data) {
  deepinfer_request* request = nullptr;
  const char* version = data.size() % 2 == 0 ? "v41" : "v4";
  if (deepinfer_request_from_conversation(codec(), protocol, version, data.data(), data.size(), &request, nullptr) !=
      DEEPINFER_OK)
    return;
  deepinfer_text first{}, second{};
  CHECK(deepinfer_request_conversation(request, &first, nullptr) == DEEPINFER_OK);
  deepinfer_request* again = nullptr;
  const deepinfer_code code =
      deepinfer_request_from_conversation(codec(), protocol, version, first.data, first.size, &again, nullptr);
  CHECK(code == DEEPINFER_OK);
  CHECK(deepinfer_request_conversation(again, &second, nullptr) == DEEPINFER_OK);
  CHECK(std::string_view(first.data) == std::string_view(second.data));
  CHECK(deepinfer_request_ids(request).size == deepinfer_request_ids(again).size);
  run_stream(again, data.substr(data.size() / 2));
  deepinfer_text_free(&first);
  deepinfer_text_free(&second);
  deepinfer_request_free(again);
  deepinfer_request_free(request);
}

}  // namespace

int fuzz_codec_abi(const uint8_t* bytes, size_t size) {
  if (size == 0) return 0;
  std::string_view data(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const size_t kind = bytes[0] % 3;
  const bool from_bytes = (bytes[0] & 0x80) != 0;
  if ((bytes[0] & 0xC0) == 0x40) {
    run_conversation(kProtocols[kind], data);
    return 0;
  }
  const std::string_view body = from_bytes ? data : kBodies[kind];
  deepinfer_request* request = nullptr;
  const deepinfer_code code =
      deepinfer_request_decode(codec(), kProtocols[kind], body.data(), body.size(), &request, nullptr);
  if (code == DEEPINFER_OK) {
    run_stream(request, data);
  } else if (code == DEEPINFER_REFUSED) {
    const deepinfer_view error_body = deepinfer_request_error_body(request);
    check_object({error_body.data, error_body.size});
    CHECK(deepinfer_request_ids(request).size == 0);
  }
  deepinfer_request_free(request);
  return 0;
}

}  // namespace deepinfer
