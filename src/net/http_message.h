// SPDX-License-Identifier: MIT
// HTTP/1.1 messages as values. Names of fields are compared without case; everything else is kept as sent.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace deepinfer {

using HttpFields = std::vector<std::pair<std::string, std::string>>;

// The value of the first field of that name; empty when there is none.
std::string_view find_field(const HttpFields& fields, std::string_view name);
bool equals_ignoring_case(std::string_view left, std::string_view right);

// Bytes that a body counts against what all bodies of a server may take together; given back when it is released.
class BodyCharge {
 public:
  BodyCharge() = default;
  BodyCharge(const BodyCharge&) {}  // a copy charges nothing
  BodyCharge& operator=(const BodyCharge& other) {
    if (this != &other) release();
    return *this;
  }
  BodyCharge(BodyCharge&& other) noexcept { *this = std::move(other); }
  BodyCharge& operator=(BodyCharge&& other) noexcept {
    release();
    total_ = std::exchange(other.total_, nullptr);
    num_bytes_ = std::exchange(other.num_bytes_, 0);
    return *this;
  }
  ~BodyCharge() { release(); }
  // False: there is no room for that many; what was charged stays.
  bool raise_to(const std::shared_ptr<std::atomic<int64_t>>& total, int64_t num_bytes, int64_t total_max) {
    if (num_bytes <= num_bytes_) return true;
    const int64_t more = num_bytes - num_bytes_;
    if (total->fetch_add(more) + more > total_max) {
      *total -= more;
      return false;
    }
    total_ = total;
    num_bytes_ = num_bytes;
    return true;
  }
  void release() {
    if (total_) *total_ -= std::exchange(num_bytes_, 0);
    total_ = nullptr;
  }

 private:
  std::shared_ptr<std::atomic<int64_t>> total_;
  int64_t num_bytes_ = 0;
};

struct HttpRequest {
  std::string method;
  std::string path;   // of the target, percent-encoding resolved; always starts with '/'
  std::string query;  // behind the '?', as sent
  HttpFields fields;
  std::string body;  // chunks joined; still in its Content-Encoding
  bool keep_alive = true;
  bool is_http_1_0 = false;
  std::string peer;   // "127.0.0.1:5123"
  BodyCharge charge;  // of the body; goes with it

  std::string_view field(std::string_view name) const { return find_field(fields, name); }
};

struct HttpResponse {
  int status = 200;
  HttpFields fields;  // Content-Length, Transfer-Encoding, Connection and Date are the server's
  std::string body;

  std::string_view field(std::string_view name) const { return find_field(fields, name); }
};

std::string_view reason_phrase(int status);

// "/a%20b?x=1" -> path and query. Errors: invalid_argument for a target that is no path, a broken escape, a NUL, or a
// path that is not UTF-8.
Status split_target(std::string_view target, HttpRequest& request);

// The body with its Content-Encoding (identity or gzip) undone. Errors: unimplemented for another encoding,
// resource_exhausted beyond `bytes_max`, corruption.
Result<std::string> decoded_body(HttpRequest&& request, size_t bytes_max);

}  // namespace deepinfer
