// SPDX-License-Identifier: MIT
#include "serve/span_exporter.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/entropy.h"
#include "base/log.h"
#include "net/http_client.h"
#include "net/url.h"
#include "net/url_fetch.h"

namespace deepinfer {
namespace {

constexpr int kInternal = 1, kServer = 2, kError = 2;  // SpanKind, StatusCode
constexpr int64_t kSendTimeoutMs = 5000;

Json attribute(const char* key, const std::string& value) {
  return Json::Object{{"key", key}, {"value", Json::Object{{"stringValue", value}}}};
}
// 64-bit integers are strings in the JSON mapping.
Json attribute(const char* key, int64_t value) {
  return Json::Object{{"key", key}, {"value", Json::Object{{"intValue", std::to_string(value)}}}};
}

Json span(const RequestRecord& r, const std::string& id, const std::string& parent, const std::string& name, int kind,
          int64_t begin_ns, int64_t end_ns) {
  const auto unix_ns = [&](int64_t ns) { return std::to_string(r.begin_unix_ns + (ns - r.begin_ns)); };
  Json::Object out{{"traceId", r.trace.trace_id}, {"spanId", id}};
  if (!parent.empty()) out.emplace_back("parentSpanId", parent);
  out.emplace_back("name", name);
  out.emplace_back("kind", kind);
  out.emplace_back("startTimeUnixNano", unix_ns(begin_ns));
  out.emplace_back("endTimeUnixNano", unix_ns(end_ns));
  return out;
}

Json request_span(const RequestRecord& r, const std::string& model) {
  Json out = span(r, r.trace.span_id, r.trace.parent_id, r.method + " " + r.route, kServer, r.begin_ns, r.end_ns);
  Json::Array attributes{attribute("http.request.method", r.method), attribute("http.route", r.route),
                         attribute("http.response.status_code", int64_t{r.status}),
                         attribute("deepinfer.request_id", r.id)};
  if (!r.owner.empty()) attributes.push_back(attribute("deepinfer.key", r.owner));
  if (!r.finish.empty()) {
    attributes.push_back(attribute("gen_ai.request.model", model));
    attributes.push_back(attribute("gen_ai.usage.input_tokens", r.num_prompt_tokens));
    attributes.push_back(attribute("gen_ai.usage.output_tokens", r.num_output_tokens));
    attributes.push_back(attribute("deepinfer.finish", r.finish));
  }
  out.set("attributes", std::move(attributes));
  if (r.status >= 500) out.set("status", Json::Object{{"code", kError}});
  return out;
}

void append_spans(const RequestRecord& r, const std::string& model, Json::Array& out) {
  out.push_back(request_span(r, model));
  if (!r.sequence || r.sequence->admitted_ns == 0) return;
  const SequenceRecord& s = *r.sequence;
  const auto child = [&](const char* name, int64_t begin_ns, int64_t end_ns) {
    if (begin_ns > 0 && end_ns >= begin_ns)
      out.push_back(span(r, entropy_hex(8), r.trace.span_id, name, kInternal, begin_ns, end_ns));
  };
  child("queue", s.arrival_ns, s.admitted_ns);
  child("prompt", s.admitted_ns, s.first_token_ns > 0 ? s.first_token_ns : s.finished_ns);
  if (s.first_token_ns > 0) child("decode", s.first_token_ns, s.finished_ns);
}

// Resolves, connects and posts anew each time: a batch a second needs no connection kept.
Status post(const Url& url, const std::string& body) {
  ASSIGN_OR_RETURN(const std::vector<std::string> addresses, resolve_host(url.host));
  if (addresses.empty()) return unavailable("no address for " + url.host);
  ASSIGN_OR_RETURN(HttpClient client, HttpClient::connect(addresses[0], url.port, kSendTimeoutMs, 1 << 20));
  client.give_up_after(kSendTimeoutMs);
  if (url.is_secure) {
    ASSIGN_OR_RETURN(const auto trust, TlsTrust::load());
    TRY(client.secure(*trust, url.host));
  }
  TRY(client.send("POST " + url.target + " HTTP/1.1\r\nHost: " + url.authority() +
                  "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
                  std::to_string(body.size()) + "\r\n\r\n" + body));
  ASSIGN_OR_RETURN(const HttpResponse response, client.receive());
  if (response.status / 100 != 2) return unavailable("the collector answered " + std::to_string(response.status));
  return {};
}

}  // namespace

Json spans_body(const std::vector<RequestRecord>& records, const SpanExporterOptions& options) {
  Json::Array spans;
  for (const RequestRecord& record : records) append_spans(record, options.model, spans);
  const Json scope = Json::Object{{"name", "deepinfer"}, {"version", options.service_version}};
  const Json resource =
      Json::Object{{"attributes", Json::Array{attribute("service.name", options.service_name),
                                              attribute("service.version", options.service_version)}}};
  return Json::Object{{"resourceSpans",
                       Json::Array{Json::Object{
                           {"resource", resource},
                           {"scopeSpans", Json::Array{Json::Object{{"scope", scope}, {"spans", std::move(spans)}}}}}}}};
}

SpanExporter::SpanExporter(SpanExporterOptions options) : options_(std::move(options)) {}

Result<std::unique_ptr<SpanExporter>> SpanExporter::start(SpanExporterOptions options) {
  if (!options.send) {
    auto url = parse_url(options.endpoint);
    if (!url.ok()) return url.status().prefixed("--otlp-endpoint " + options.endpoint);
    if (url->target == "/") url->target = "/v1/traces";
    options.send = [to = *url](const std::string& body) { return post(to, body); };
  }
  std::unique_ptr<SpanExporter> exporter(new SpanExporter(std::move(options)));
  exporter->thread_ = std::thread([e = exporter.get()] { e->run(); });
  return exporter;
}

SpanExporter::~SpanExporter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SpanExporter::add(const RequestRecord& record) {
  if (!record.trace.is_sampled) return;
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= options_.waiting_max) {
    ++num_dropped_;
    return;
  }
  waiting_.push_back(record);
  if (waiting_.size() == options_.batch_max) wake_.notify_all();
}

int64_t SpanExporter::num_dropped() const {
  const std::lock_guard lock(mutex_);
  return num_dropped_;
}

void SpanExporter::run() {
  bool was_well = true;
  for (;;) {
    std::vector<RequestRecord> batch;
    bool ends = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, std::chrono::milliseconds(options_.interval_ms),
                     [this] { return stopping_ || waiting_.size() >= options_.batch_max; });
      const size_t num_taken = std::min(waiting_.size(), options_.batch_max);
      batch.assign(std::make_move_iterator(waiting_.begin()),
                   std::make_move_iterator(waiting_.begin() + static_cast<std::ptrdiff_t>(num_taken)));
      waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(num_taken));
      ends = stopping_ && waiting_.empty();
    }
    if (!batch.empty()) {
      const Status sent = options_.send(to_json(spans_body(batch, options_)));
      if (sent.ok() != was_well)  // said once, not for every batch
        log_line(sent.ok() ? LogLevel::kInfo : LogLevel::kWarning,
                 sent.ok() ? "spans are taken again" : "spans are lost", {{"reason", sent.message()}});
      was_well = sent.ok();
      if (!sent.ok()) {
        const std::lock_guard lock(mutex_);
        num_dropped_ += static_cast<int64_t>(batch.size());
        if (stopping_) return;  // nobody to wait for
      }
    }
    if (ends) return;
  }
}

}  // namespace deepinfer
