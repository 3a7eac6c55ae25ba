// SPDX-License-Identifier: MIT
// What every function of the C ABI does at its edges: nothing thrown gets out, an error is written into the caller's
// struct, results are copied into memory that the caller frees. Any thread.
#pragma once

#include <new>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "bindings/c/deepinfer_codec.h"

namespace deepinfer {

deepinfer_code code_of(const Status& status);
// Writes code and message, when the caller wants them. Returns the code.
deepinfer_code report(deepinfer_error* error, deepinfer_code code, std::string_view message);
deepinfer_code report(deepinfer_error* error, const Status& status);

// Runs `body` (it returns a Status). The library throws nothing itself; memory that cannot be had does.
template <typename Body>
deepinfer_code guarded(deepinfer_error* error, const Body& body) {
  try {
    return report(error, body());
  } catch (const std::bad_alloc&) {
    return report(error, DEEPINFER_RESOURCE_EXHAUSTED, "not enough memory");
  } catch (...) { return report(error, DEEPINFER_INTERNAL, "unexpected exception"); }
}

// Bytes of the caller. Errors: invalid_argument for NULL with a size, resource_exhausted beyond `bytes_max`; `what`
// names the argument.
Result<std::string_view> text_argument(const char* what, const char* data, size_t size,
                                       size_t bytes_max = DEEPINFER_TEXT_BYTES_MAX);
Result<std::span<const int32_t>> ids_argument(const int32_t* ids, size_t num_ids);
// Settings: a JSON object whose members all stand in `names`; nothing is an empty object.
Result<Json> settings_argument(const char* data, size_t size, std::span<const std::string_view> names);
// A member of settings as text (valid UTF-8 by then) or as a count; the fallback where it is absent.
Result<std::string> text_setting(const Json& settings, std::string_view name, std::string_view fallback);
Result<uint64_t> count_setting(const Json& settings, std::string_view name, uint64_t fallback);

// Errors: resource_exhausted.
Status copy_to(std::string_view bytes, deepinfer_text& out);
Status copy_to(std::span<const int32_t> ids, deepinfer_ids& out);

inline deepinfer_view view_of(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace deepinfer
