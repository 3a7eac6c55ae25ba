// SPDX-License-Identifier: MIT
// deepinfer_cpp._codec: the C ABI of the codec as Python classes, one to one. The friendly side is deepinfer_cpp/*.py.
// The interpreter lock is let go where a call may take long and works on what cannot change: loading, encoding,
// decoding.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "deepinfer_codec.h"

namespace nb = nanobind;

namespace {

using Ids = std::vector<int32_t>;
using Logprobs = std::vector<std::pair<double, std::vector<std::pair<int32_t, double>>>>;

void check(deepinfer_code code, const deepinfer_error& error) {
  if (code == DEEPINFER_OK) return;
  nb::object type = nb::module_::import_("deepinfer_cpp.codec_error").attr("CodecError");
  nb::object value = type(deepinfer_code_name(code), nb::str(error.message));
  PyErr_SetObject(type.ptr(), value.ptr());
  throw nb::python_error();
}

nb::str text_of(deepinfer_view view) { return nb::str(view.data == nullptr ? "" : view.data, view.size); }
nb::bytes bytes_of(deepinfer_view view) { return nb::bytes(view.data == nullptr ? "" : view.data, view.size); }

// Takes and frees an owned text.
nb::str take(deepinfer_text& text) {
  nb::str out(text.data, text.size);
  deepinfer_text_free(&text);
  return out;
}

nb::list list_of(const int32_t* ids, size_t size) {
  nb::list out;
  for (size_t i = 0; i < size; ++i) out.append(ids[i]);
  return out;
}

// A handle with its free function; neither copied nor moved.
template <typename Handle, void (*kFree)(Handle*)>
struct Owner {
  Handle* handle = nullptr;
  Owner() = default;
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() { kFree(handle); }
};

struct Tokenizer : Owner<deepinfer_tokenizer, deepinfer_tokenizer_free> {};
struct Detokenizer : Owner<deepinfer_detokenizer, deepinfer_detokenizer_free> {};
struct Codec : Owner<deepinfer_codec, deepinfer_codec_free> {};
struct Request : Owner<deepinfer_request, deepinfer_request_free> {};
struct Stream : Owner<deepinfer_stream, deepinfer_stream_free> {};

void load_tokenizer(Tokenizer* self, const char* path) {
  new (self) Tokenizer();
  deepinfer_error error;
  deepinfer_code code;
  {
    nb::gil_scoped_release release;
    code = deepinfer_tokenizer_load(path, &self->handle, &error);
  }
  check(code, error);
}

std::unique_ptr<Tokenizer> tokenizer_from_json(nb::bytes json) {
  auto made = std::make_unique<Tokenizer>();
  deepinfer_error error;
  deepinfer_code code;
  {
    const char* data = json.c_str();
    const size_t size = json.size();
    nb::gil_scoped_release release;
    code = deepinfer_tokenizer_from_json(data, size, &made->handle, &error);
  }
  check(code, error);
  return made;
}

nb::list encode(const Tokenizer& self, std::string_view text, bool with_added) {
  deepinfer_ids ids{};
  deepinfer_error error;
  deepinfer_code code;
  {
    nb::gil_scoped_release release;
    code = deepinfer_tokenizer_encode(self.handle, text.data(), text.size(), with_added ? 1 : 0, &ids, &error);
  }
  check(code, error);
  nb::list out = list_of(ids.data, ids.size);
  deepinfer_ids_free(&ids);
  return out;
}

nb::str decode(const Tokenizer& self, const Ids& ids) {
  deepinfer_text text{};
  deepinfer_error error;
  deepinfer_code code;
  {
    nb::gil_scoped_release release;
    code = deepinfer_tokenizer_decode(self.handle, ids.data(), ids.size(), &text, &error);
  }
  check(code, error);
  return take(text);
}

void declare_tokenizer(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer")
      .def("__init__", &load_tokenizer, nb::arg("path"))
      .def_static("from_json", &tokenizer_from_json, nb::arg("json"))
      .def_prop_ro("vocab_size", [](const Tokenizer& self) { return deepinfer_tokenizer_vocab_size(self.handle); })
      .def("encode", &encode, nb::arg("text"), nb::arg("with_added") = false)
      .def("decode", &decode, nb::arg("ids"))
      .def(
          "is_control",
          [](const Tokenizer& self, int32_t id) { return deepinfer_tokenizer_is_control(self.handle, id) != 0; },
          nb::arg("token_id"))
      .def(
          "find_control",
          [](const Tokenizer& self, std::string_view spelling) {
            return deepinfer_tokenizer_find_control(self.handle, spelling.data(), spelling.size());
          },
          nb::arg("spelling"))
      .def(
          "token_bytes",
          [](const Tokenizer& self, int32_t id) { return bytes_of(deepinfer_tokenizer_token_bytes(self.handle, id)); },
          nb::arg("token_id"));
  nb::class_<Detokenizer>(m, "Detokenizer")
      .def(
          "__init__",
          [](Detokenizer* self, const Tokenizer& tokenizer) {
            new (self) Detokenizer();
            deepinfer_error error;
            check(deepinfer_detokenizer_new(tokenizer.handle, &self->handle, &error), error);
          },
          nb::arg("tokenizer"))
      .def(
          "push",
          [](Detokenizer& self, const Ids& ids) {
            deepinfer_view out{};
            deepinfer_error error;
            check(deepinfer_detokenizer_push(self.handle, ids.data(), ids.size(), &out, &error), error);
            return text_of(out);
          },
          nb::arg("ids"))
      .def("finish", [](Detokenizer& self) {
        deepinfer_view out{};
        deepinfer_error error;
        check(deepinfer_detokenizer_finish(self.handle, &out, &error), error);
        return text_of(out);
      });
}

void decode_request(Request* self, const Codec& codec, const char* protocol, nb::bytes body) {
  new (self) Request();
  deepinfer_error error;
  deepinfer_code code;
  {
    const char* data = body.c_str();
    const size_t size = body.size();
    nb::gil_scoped_release release;
    code = deepinfer_request_decode(codec.handle, protocol, data, size, &self->handle, &error);
  }
  if (code != DEEPINFER_REFUSED) check(code, error);
}

std::unique_ptr<Request> request_from_conversation(const Codec& codec, const char* protocol, const char* version,
                                                   nb::bytes conversation) {
  auto made = std::make_unique<Request>();
  deepinfer_error error;
  check(deepinfer_request_from_conversation(codec.handle, protocol, version, conversation.c_str(), conversation.size(),
                                            &made->handle, &error),
        error);
  return made;
}

void declare_request(nb::module_& m) {
  nb::class_<Codec>(m, "Codec")
      .def(
          "__init__",
          [](Codec* self, const Tokenizer& tokenizer, std::string_view settings) {
            new (self) Codec();
            deepinfer_error error;
            check(deepinfer_codec_new(tokenizer.handle, settings.data(), settings.size(), &self->handle, &error),
                  error);
          },
          nb::arg("tokenizer"), nb::arg("settings"));
  nb::class_<Request>(m, "Request")
      .def("__init__", &decode_request, nb::arg("codec"), nb::arg("protocol"), nb::arg("body"))
      .def_prop_ro("http_status", [](const Request& self) { return deepinfer_request_http_status(self.handle); })
      .def_prop_ro("error_body", [](const Request& self) { return text_of(deepinfer_request_error_body(self.handle)); })
      .def_prop_ro("ids",
                   [](const Request& self) {
                     const deepinfer_id_view ids = deepinfer_request_ids(self.handle);
                     return list_of(ids.data, ids.size);
                   })
      .def_prop_ro("prompt", [](const Request& self) { return text_of(deepinfer_request_prompt(self.handle)); })
      .def_prop_ro("model", [](const Request& self) { return text_of(deepinfer_request_model(self.handle)); })
      .def_static("from_conversation", &request_from_conversation, nb::arg("codec"), nb::arg("protocol"),
                  nb::arg("version"), nb::arg("conversation"))
      .def("conversation",
           [](const Request& self) {
             deepinfer_text text{};
             deepinfer_error error;
             check(deepinfer_request_conversation(self.handle, &text, &error), error);
             return take(text);
           })
      .def("json",
           [](const Request& self) {
             deepinfer_text text{};
             deepinfer_error error;
             check(deepinfer_request_json(self.handle, &text, &error), error);
             return take(text);
           })
      .def(
          "max_tokens",
          [](const Request& self, uint64_t prompt_tokens, uint64_t context_limit) {
            uint32_t out = 0;
            deepinfer_error error;
            check(deepinfer_request_max_tokens(self.handle, prompt_tokens, context_limit, &out, &error), error);
            return out;
          },
          nb::arg("prompt_tokens"), nb::arg("context_limit"));
}

// The events of the latest push as [(name or None, data)].
nb::list events_of(const Stream& self) {
  nb::list out;
  for (size_t i = 0; i < deepinfer_stream_num_events(self.handle); ++i) {
    const char* name = deepinfer_stream_event_name(self.handle, i);
    nb::object named = name == nullptr ? nb::none() : nb::object(nb::str(name));
    out.append(nb::make_tuple(named, text_of(deepinfer_stream_event_data(self.handle, i))));
  }
  return out;
}

nb::list push_ids(Stream& self, const Ids& ids, const Logprobs& logprobs, bool has_logprobs, uint32_t choice) {
  std::vector<deepinfer_position_logprobs> positions(logprobs.size());
  std::vector<Ids> top_ids(logprobs.size());
  std::vector<std::vector<double>> top_logprobs(logprobs.size());
  if (has_logprobs && logprobs.size() != ids.size()) {
    throw nb::value_error("logprobs: expected one entry for each id");
  }
  for (size_t i = 0; i < logprobs.size(); ++i) {
    for (const auto& [id, logprob] : logprobs[i].second) {
      top_ids[i].push_back(id);
      top_logprobs[i].push_back(logprob);
    }
    positions[i] = {logprobs[i].first, top_ids[i].data(), top_logprobs[i].data(), top_ids[i].size()};
  }
  deepinfer_error error;
  check(deepinfer_stream_push_ids(self.handle, choice, ids.data(), ids.size(),
                                  positions.empty() ? nullptr : positions.data(), &error),
        error);
  return events_of(self);
}

void declare_pushes(nb::class_<Stream>& stream) {
  stream
      .def(
          "push_prompt",
          [](Stream& self, uint64_t prompt_tokens, uint64_t cached_tokens, std::string_view fingerprint, bool has) {
            deepinfer_error error;
            check(
                deepinfer_stream_push_prompt(self.handle, prompt_tokens, cached_tokens,
                                             has ? fingerprint.data() : nullptr, has ? fingerprint.size() : 0, &error),
                error);
            return events_of(self);
          },
          nb::arg("prompt_tokens"), nb::arg("cached_tokens"), nb::arg("fingerprint"), nb::arg("has_fingerprint"))
      .def("push_ids", &push_ids, nb::arg("ids"), nb::arg("logprobs"), nb::arg("has_logprobs"), nb::arg("choice"))
      .def(
          "push_text",
          [](Stream& self, std::string_view text, uint64_t num_tokens, uint32_t choice) {
            deepinfer_error error;
            check(deepinfer_stream_push_text(self.handle, choice, text.data(), text.size(), num_tokens, &error), error);
            return events_of(self);
          },
          nb::arg("text"), nb::arg("num_tokens"), nb::arg("choice"))
      .def(
          "finish",
          [](Stream& self, int32_t finish, uint32_t choice) {
            deepinfer_error error;
            check(deepinfer_stream_finish(self.handle, choice, finish, &error), error);
            return events_of(self);
          },
          nb::arg("finish"), nb::arg("choice"))
      .def(
          "fail",
          [](Stream& self, int32_t http_status, std::string_view message) {
            deepinfer_error error;
            check(deepinfer_stream_fail(self.handle, http_status, message.data(), message.size(), &error), error);
            return events_of(self);
          },
          nb::arg("http_status"), nb::arg("message"))
      .def(
          "set_completed",
          [](Stream& self, int64_t completed) {
            deepinfer_error error;
            check(deepinfer_stream_set_completed(self.handle, completed, &error), error);
          },
          nb::arg("completed"));
}

void declare_stream(nb::module_& m) {
  auto stream = nb::class_<Stream>(m, "Stream");
  stream.def(
      "__init__",
      [](Stream* self, const Request& request, std::string_view settings) {
        new (self) Stream();
        deepinfer_error error;
        check(deepinfer_stream_new(request.handle, settings.data(), settings.size(), &self->handle, &error), error);
      },
      nb::arg("request"), nb::arg("settings"));
  declare_pushes(stream);
  stream.def_prop_ro("num_choices", [](const Stream& self) { return deepinfer_stream_num_choices(self.handle); })
      .def_prop_ro("terminator", [](const Stream& self) { return text_of(deepinfer_stream_terminator(self.handle)); })
      .def(
          "is_finished",
          [](const Stream& self, uint32_t choice) { return deepinfer_stream_is_finished(self.handle, choice) != 0; },
          nb::arg("choice"))
      .def(
          "usage",
          [](const Stream& self, uint32_t choice) {
            const deepinfer_usage usage = deepinfer_stream_usage(self.handle, choice);
            return nb::make_tuple(usage.prompt_tokens, usage.cached_tokens, usage.output_tokens,
                                  usage.reasoning_tokens);
          },
          nb::arg("choice"))
      .def("final", [](const Stream& self) {
        deepinfer_text text{};
        deepinfer_error error;
        check(deepinfer_stream_final(self.handle, &text, &error), error);
        return take(text);
      });
}

}  // namespace

NB_MODULE(_codec, m) {
  m.attr("abi") = deepinfer_codec_abi();
  m.attr("version") = deepinfer_codec_version();
  declare_tokenizer(m);
  declare_request(m);
  declare_stream(m);
}
