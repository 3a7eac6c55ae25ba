// SPDX-License-Identifier: MIT
// Any bytes: no crash, bounded memory, and the same requests and fault however the bytes are cut.
#include "base/check.h"
#include "base/fuzz.h"
#include "net/http_parser.h"

namespace deepinfer {
namespace {

struct Outcome {
  std::vector<HttpRequest> requests;
  std::optional<HttpFault> fault;
};

Outcome parse(std::string_view bytes, size_t step) {
  HttpLimits limits;
  limits.header_bytes_max = 1024;
  limits.target_bytes_max = 256;
  limits.body_bytes_max = 4096;
  HttpRequestParser parser(limits);
  Outcome outcome;
  const auto take_all = [&] {
    while (parser.is_done()) {
      outcome.requests.push_back(parser.take());
      CHECK(outcome.requests.back().body.size() <= limits.body_bytes_max);
    }
  };
  for (size_t begin = 0; begin < bytes.size() && !parser.fault(); begin += step) {
    parser.push(bytes.substr(begin, step));
    take_all();
    CHECK(parser.fault() || parser.num_pending_bytes() <= limits.header_bytes_max);
  }
  outcome.fault = parser.fault();
  return outcome;
}

}  // namespace

int fuzz_http_parser(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Outcome whole = parse(bytes, size + 1);
  const Outcome pieces = parse(bytes, 7);
  CHECK(whole.fault.has_value() == pieces.fault.has_value());
  CHECK(whole.requests.size() == pieces.requests.size());
  for (size_t i = 0; i < whole.requests.size(); ++i) {
    const HttpRequest &a = whole.requests[i], &b = pieces.requests[i];
    CHECK(a.method == b.method && a.path == b.path && a.query == b.query && a.fields == b.fields && a.body == b.body);
  }
  return 0;
}

}  // namespace deepinfer
