// SPDX-License-Identifier: MIT
// deepinfer_codec.h: the library, tokenizer and detokenizer.
#include <fmt/format.h>

#include <cstdlib>

#include "bindings/c/c_boundary.h"
#include "bindings/c/codec_handles.h"

using namespace deepinfer;

namespace {

constexpr std::string_view kNoHandle = "a handle is NULL";

Status null_handle() { return invalid_argument(std::string(kNoHandle)); }

Status adopt(Result<std::shared_ptr<const Tokenizer>> loaded, deepinfer_tokenizer** out) {
  TRY(loaded.status());
  *out = new deepinfer_tokenizer{std::move(loaded).value()};
  return {};
}

}  // namespace

int32_t deepinfer_codec_abi(void) { return DEEPINFER_CODEC_ABI; }
const char* deepinfer_codec_version(void) { return DEEPINFER_CODEC_VERSION; }

const char* deepinfer_code_name(int32_t code) {
  static constexpr const char* kNames[] = {
      "ok",          "invalid_argument", "not_found", "corruption", "resource_exhausted",
      "unavailable", "unimplemented",    "internal",  "refused"};
  return code >= 0 && static_cast<size_t>(code) < std::size(kNames) ? kNames[code] : "unknown";
}

void deepinfer_text_free(deepinfer_text* text) {
  if (text == nullptr) return;
  std::free(text->data);
  *text = {};
}

void deepinfer_ids_free(deepinfer_ids* ids) {
  if (ids == nullptr) return;
  std::free(ids->data);
  *ids = {};
}

deepinfer_code deepinfer_tokenizer_load(const char* path, deepinfer_tokenizer** out, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (path == nullptr || out == nullptr) return invalid_argument("path or out is NULL");
    *out = nullptr;
    return adopt(Tokenizer::load(path), out);
  });
}

deepinfer_code deepinfer_tokenizer_from_json(const char* json, size_t size, deepinfer_tokenizer** out,
                                             deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = nullptr;
    ASSIGN_OR_RETURN(const std::string_view text, text_argument("json", json, size));
    return adopt(Tokenizer::from_json(text), out);
  });
}

void deepinfer_tokenizer_free(deepinfer_tokenizer* tokenizer) { delete tokenizer; }

int64_t deepinfer_tokenizer_vocab_size(const deepinfer_tokenizer* tokenizer) {
  return tokenizer == nullptr ? 0 : tokenizer->tokenizer->vocab_size();
}

int32_t deepinfer_tokenizer_is_control(const deepinfer_tokenizer* tokenizer, int32_t id) {
  return tokenizer != nullptr && tokenizer->tokenizer->is_control(id) ? 1 : 0;
}

int32_t deepinfer_tokenizer_find_control(const deepinfer_tokenizer* tokenizer, const char* spelling, size_t size) {
  const auto text = text_argument("spelling", spelling, size);
  if (tokenizer == nullptr || !text.ok()) return -1;
  return tokenizer->tokenizer->find_control(text.value()).value_or(-1);
}

deepinfer_view deepinfer_tokenizer_token_bytes(const deepinfer_tokenizer* tokenizer, int32_t id) {
  return tokenizer == nullptr ? view_of({}) : view_of(tokenizer->tokenizer->token_bytes(id));
}

deepinfer_code deepinfer_tokenizer_encode(const deepinfer_tokenizer* tokenizer, const char* text, size_t size,
                                          int32_t with_added, deepinfer_ids* out, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = {};
    if (tokenizer == nullptr) return null_handle();
    ASSIGN_OR_RETURN(const std::string_view bytes, text_argument("text", text, size));
    return copy_to(
        with_added != 0 ? tokenizer->tokenizer->encode_with_added(bytes) : tokenizer->tokenizer->encode(bytes), *out);
  });
}

deepinfer_code deepinfer_tokenizer_decode(const deepinfer_tokenizer* tokenizer, const int32_t* ids, size_t num_ids,
                                          deepinfer_text* out, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = {};
    if (tokenizer == nullptr) return null_handle();
    ASSIGN_OR_RETURN(const std::span<const int32_t> list, ids_argument(ids, num_ids));
    const int64_t vocab_size = tokenizer->tokenizer->vocab_size();
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i] < 0 || list[i] >= vocab_size) {
        return invalid_argument(fmt::format("ids[{}]: expected an id in [0, {}), found {}", i, vocab_size, list[i]));
      }
    }
    return copy_to(tokenizer->tokenizer->decode(list), *out);
  });
}

deepinfer_code deepinfer_detokenizer_new(const deepinfer_tokenizer* tokenizer, deepinfer_detokenizer** out,
                                         deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = nullptr;
    if (tokenizer == nullptr) return null_handle();
    *out = new deepinfer_detokenizer{tokenizer->tokenizer, Detokenizer(*tokenizer->tokenizer), {}};
    return {};
  });
}

void deepinfer_detokenizer_free(deepinfer_detokenizer* detokenizer) { delete detokenizer; }

deepinfer_code deepinfer_detokenizer_push(deepinfer_detokenizer* detokenizer, const int32_t* ids, size_t num_ids,
                                          deepinfer_view* out, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = {};
    if (detokenizer == nullptr) return null_handle();
    ASSIGN_OR_RETURN(const std::span<const int32_t> list, ids_argument(ids, num_ids));
    detokenizer->text.clear();
    for (const TokenId id : list) detokenizer->detokenizer.push(id, detokenizer->text);
    *out = view_of(detokenizer->text);
    return {};
  });
}

deepinfer_code deepinfer_detokenizer_finish(deepinfer_detokenizer* detokenizer, deepinfer_view* out,
                                            deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = {};
    if (detokenizer == nullptr) return null_handle();
    detokenizer->text.clear();
    detokenizer->detokenizer.finish(detokenizer->text);
    *out = view_of(detokenizer->text);
    return {};
  });
}
