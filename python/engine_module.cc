// SPDX-License-Identifier: MIT
// deepinfer_cpp._engine: the C ABI of the engine as one Python class. The friendly side is deepinfer_cpp/llm.py.
// The interpreter lock is let go while a model is loaded and while a step runs.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "deepinfer_engine.h"

namespace nb = nanobind;

namespace {

const char* code_name(deepinfer_code code) {
  switch (code) {
    case DEEPINFER_INVALID_ARGUMENT: return "invalid_argument";
    case DEEPINFER_NOT_FOUND: return "not_found";
    case DEEPINFER_CORRUPTION: return "corruption";
    case DEEPINFER_RESOURCE_EXHAUSTED: return "resource_exhausted";
    case DEEPINFER_UNAVAILABLE: return "unavailable";
    case DEEPINFER_UNIMPLEMENTED: return "unimplemented";
    default: return "internal";
  }
}

void check(deepinfer_code code, const deepinfer_error& error) {
  if (code == DEEPINFER_OK) return;
  nb::object type = nb::module_::import_("deepinfer_cpp.engine_error").attr("EngineError");
  nb::object value = type(code_name(code), nb::str(error.message));
  PyErr_SetObject(type.ptr(), value.ptr());
  throw nb::python_error();
}

class Engine {
 public:
  explicit Engine(std::string_view settings) {
    deepinfer_error error;
    deepinfer_code code;
    {
      nb::gil_scoped_release release;
      code = deepinfer_engine_open(settings.data(), settings.size(), &engine_, &error);
    }
    check(code, error);
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() { close(); }

  void close() {
    nb::gil_scoped_release release;
    deepinfer_engine_free(engine_);
    engine_ = nullptr;
  }

  uint64_t submit(std::string_view body) {
    deepinfer_error error;
    uint64_t id;
    check(deepinfer_engine_submit(engine_, body.data(), body.size(), &id, &error), error);
    return id;
  }

  void cancel(uint64_t id) {
    deepinfer_error error;
    check(deepinfer_engine_cancel(engine_, id, &error), error);
  }

  bool step() {
    deepinfer_error error;
    int32_t is_running;
    deepinfer_code code;
    {
      nb::gil_scoped_release release;
      code = deepinfer_engine_step(engine_, &is_running, &error);
    }
    check(code, error);
    return is_running != 0;
  }

  std::optional<std::string> take() {
    deepinfer_error error;
    deepinfer_text text;
    int32_t has_result;
    check(deepinfer_engine_take(engine_, &text, &has_result, &error), error);
    if (has_result == 0) return std::nullopt;
    std::string result(text.data, text.size);
    deepinfer_engine_text_free(&text);
    return result;
  }

  std::string describe() const {
    deepinfer_error error;
    deepinfer_text text;
    check(deepinfer_engine_describe(engine_, &text, &error), error);
    std::string result(text.data, text.size);
    deepinfer_engine_text_free(&text);
    return result;
  }

  std::tuple<uint64_t, uint64_t, uint64_t, uint64_t> progress() const {
    const deepinfer_engine_figures f = deepinfer_engine_progress(engine_);
    return {f.requests, f.done, f.prompt_tokens, f.output_tokens};
  }

 private:
  deepinfer_engine* engine_ = nullptr;
};

}  // namespace

NB_MODULE(_engine, m) {
  m.attr("abi") = deepinfer_engine_abi();
  m.attr("version") = deepinfer_engine_version();
  nb::class_<Engine>(m, "Engine")
      .def(nb::init<std::string_view>(), nb::arg("settings"))
      .def("close", &Engine::close)
      .def("submit", &Engine::submit, nb::arg("body"))
      .def("cancel", &Engine::cancel, nb::arg("id"))
      .def("step", &Engine::step)
      .def("take", &Engine::take)
      .def("describe", &Engine::describe)
      .def("progress", &Engine::progress);
}
