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

}  // namespace

RequestTicket::RequestTicket(const HttpRequest& request, std::string route, const Clock& clock,
                             RequestObservers observers)
    : clock_(clock), observers_(observers) {
  const std::string_view given = request.field("x-request-id");
  record_.id = is_plain_id(given) ? std::string(given) : "req_" + entropy_hex(12);
  const auto known = std::ranges::find(kMethods, request.method);
  record_.method = known == std::end(kMethods) ? "_OTHER" : *known;
  record_.route = std::move(route);
  record_.trace = continue_trace(request.field("traceparent"));
  record_.begin_ns = clock.monotonic_ns();
  record_.begin_unix_ns = clock.unix_ns();
}

RequestTicket::~RequestTicket() { end(499, {.finish = "abort", .sequence = {}}); }

HttpFields RequestTicket::fields() const {
  HttpFields all{
      {"x-request-id", record_.id}, {"request-id", record_.id}, {"traceresponse", record_.trace.traceparent()}};
  all.insert(all.end(), more_fields_.begin(), more_fields_.end());
  return all;
}

void RequestTicket::set_key(std::shared_ptr<const ApiKey> key) {
  key_ = std::move(key);
  record_.owner = owner();
}

void RequestTicket::begin_generation() { observers_.history.begin(record_); }

Refusal RequestTicket::enter(KeyGate& gate) {
  if (key_ == nullptr) return {};
  REFUSE_IF(gate.enter(*key_, clock_.monotonic_ns()));
  gate_ = &gate;
  return {};
}

void RequestTicket::reply(HttpExchange& exchange, int status, std::string body, const char* content_type,
                          const HttpFields& more) {
  HttpResponse response{status, fields(), std::move(body)};
  response.fields.emplace_back("Content-Type", content_type);
  response.fields.insert(response.fields.end(), more.begin(), more.end());
  if (status == 401) response.fields.emplace_back("WWW-Authenticate", "Bearer");
  if (status == 429 || status == 503) response.fields.emplace_back("Retry-After", "1");
  exchange.respond(std::move(response));
  end(status);
}

void RequestTicket::end(int status, GenerationEnd generation) {
  if (std::exchange(is_over_, true)) return;
  if (gate_) gate_->leave(*key_, generation.num_prompt_tokens + generation.num_output_tokens);
  record_.status = status;
  record_.finish = std::move(generation.finish);
  record_.end_ns = clock_.monotonic_ns();
  record_.num_prompt_tokens = generation.num_prompt_tokens;
  record_.num_cached_tokens = generation.num_cached_tokens;
  record_.num_output_tokens = generation.num_output_tokens;
  record_.sequence = std::move(generation.sequence);
  const double seconds = static_cast<double>(record_.end_ns - record_.begin_ns) * 1e-9;
  observers_.metrics.add_request(record_.method, record_.route, status, seconds);
  observers_.history.end(record_);
  if (observers_.spans) observers_.spans->add(record_);
  Json::Object fields{{"id", record_.id},
                      {"method", record_.method},
                      {"route", record_.route},
                      {"status", status},
                      {"ms", seconds * 1e3}};
  if (key_) fields.emplace_back("key", key_->name);
  if (!record_.trace.parent_id.empty() || observers_.spans) fields.emplace_back("trace_id", record_.trace.trace_id);
  if (!record_.finish.empty()) fields.emplace_back("finish", record_.finish);
  if (record_.num_prompt_tokens > 0) fields.emplace_back("prompt_tokens", record_.num_prompt_tokens);
  if (record_.num_output_tokens > 0) fields.emplace_back("output_tokens", record_.num_output_tokens);
  log_line(LogLevel::kInfo, "request", fields);
}

}  // namespace deepinfer
