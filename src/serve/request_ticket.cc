// SPDX-License-Identifier: MIT
#include "serve/request_ticket.h"

#include <algorithm>
#include <utility>

#include "base/entropy.h"
#include "base/log.h"

namespace deepinfer {
namespace {

constexpr size_t kIdBytesMax = 128;
constexpr const char* kMethods[] = {"GET", "HEAD", "POST", "DELETE", "PUT", "OPTIONS", "PATCH"};

// An id from outside is echoed only when it cannot be anything but an id.
bool is_plain_id(std::string_view text) {
  return !text.empty() && text.size() <= kIdBytesMax && std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
           c == '.';
  });
}

// The trace id of a W3C traceparent; empty when there is none of that form.
std::string trace_id_of(std::string_view traceparent) {
  if (traceparent.size() != 55 || traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-') return "";
  const std::string_view id = traceparent.substr(3, 32);
  const bool is_hex = std::ranges::all_of(id, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  return is_hex ? std::string(id) : "";
}

}  // namespace

RequestTicket::RequestTicket(const HttpRequest& request, std::string route, const Clock& clock, ServiceMetrics& metrics)
    : clock_(clock),
      metrics_(metrics),
      route_(std::move(route)),
      peer_(request.peer),
      trace_id_(trace_id_of(request.field("traceparent"))),
      begin_ns_(clock.monotonic_ns()) {
  const std::string_view given = request.field("x-request-id");
  id_ = is_plain_id(given) ? std::string(given) : "req_" + entropy_hex(12);
  const auto known = std::ranges::find(kMethods, request.method);
  method_ = known == std::end(kMethods) ? "_OTHER" : *known;
}

RequestTicket::~RequestTicket() { end(499, "abort"); }

HttpFields RequestTicket::fields() const { return {{"x-request-id", id_}, {"request-id", id_}}; }

Refusal RequestTicket::enter(KeyGate& gate) {
  if (key_ == nullptr) return {};
  REFUSE_IF(gate.enter(*key_, clock_.monotonic_ns()));
  gate_ = &gate;
  return {};
}

void RequestTicket::reply(HttpExchange& exchange, int status, std::string body, const char* content_type) {
  HttpResponse response{status, fields(), std::move(body)};
  response.fields.emplace_back("Content-Type", content_type);
  if (status == 401) response.fields.emplace_back("WWW-Authenticate", "Bearer");
  if (status == 429 || status == 503) response.fields.emplace_back("Retry-After", "1");
  exchange.respond(std::move(response));
  end(status);
}

void RequestTicket::end(int status, const std::string& finish, int64_t num_prompt_tokens, int64_t num_output_tokens) {
  if (std::exchange(is_over_, true)) return;
  if (gate_) gate_->leave(*key_, num_prompt_tokens + num_output_tokens);
  const double seconds = static_cast<double>(clock_.monotonic_ns() - begin_ns_) * 1e-9;
  metrics_.add_request(method_, route_, status, seconds);
  Json::Object fields{{"id", id_}, {"method", method_}, {"route", route_}, {"status", status}, {"ms", seconds * 1e3}};
  if (key_) fields.emplace_back("key", key_->name);
  if (!trace_id_.empty()) fields.emplace_back("trace_id", trace_id_);
  if (!finish.empty()) fields.emplace_back("finish", finish);
  if (num_prompt_tokens > 0) fields.emplace_back("prompt_tokens", num_prompt_tokens);
  if (num_output_tokens > 0) fields.emplace_back("output_tokens", num_output_tokens);
  log_line(LogLevel::kInfo, "request", fields);
}

}  // namespace deepinfer
