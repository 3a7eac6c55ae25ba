// SPDX-License-Identifier: MIT
// One HTTP request from arrival to end: its id, whose it is, and what is written about it when it is over: a log line
// (never a prompt), metrics, the key's limits. Ends once; a ticket that is dropped unended was left by its client.
// Thread: handed on with the request; one at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "net/http_exchange.h"
#include "protocol/request_error.h"
#include "serve/api_keys.h"
#include "serve/key_gate.h"
#include "serve/request_history.h"
#include "serve/request_record.h"
#include "serve/service_metrics.h"
#include "serve/span_exporter.h"

namespace deepinfer {

// Who is told when a request is over.
struct RequestObservers {
  ServiceMetrics& metrics;
  RequestHistory& history;
  SpanExporter* spans = nullptr;
};

// What a generation adds to its record.
struct GenerationEnd {
  std::string finish;
  int64_t num_prompt_tokens = 0, num_cached_tokens = 0, num_output_tokens = 0;
  std::optional<SequenceRecord> sequence;
};

class RequestTicket {
 public:
  RequestTicket(const HttpRequest& request, std::string route, const Clock& clock, RequestObservers observers);
  ~RequestTicket();

  const std::string& id() const { return record_.id; }
  HttpFields fields() const;  // of every response: the request's id and its trace
  void add_field(std::string name, std::string value) { more_fields_.emplace_back(std::move(name), std::move(value)); }
  const TraceContext& trace() const { return record_.trace; }
  // "" without keys.
  std::string owner() const { return key_ ? key_->name : ""; }
  const ApiKey* key() const { return key_.get(); }
  void set_key(std::shared_ptr<const ApiKey> key);
  // Counts the request against its key's limits until the end.
  Refusal enter(KeyGate& gate);

  // Answers and ends.
  void reply(HttpExchange& exchange, int status, std::string body, const char* content_type = "application/json",
             const HttpFields& more = {});
  void begin_generation();  // it stands in the history from here on
  void end(int status, GenerationEnd generation = {});

 private:
  const Clock& clock_;
  RequestObservers observers_;
  RequestRecord record_;
  HttpFields more_fields_;
  std::shared_ptr<const ApiKey> key_;
  KeyGate* gate_ = nullptr;
  bool is_over_ = false;
};

}  // namespace deepinfer
