// SPDX-License-Identifier: MIT
// One HTTP request from arrival to end: its id, whose it is, and what is written about it when it is over: a log line
// (never a prompt), metrics, the key's limits. Ends once; a ticket that is dropped unended was left by its client.
// Thread: handed on with the request; one at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "net/http_exchange.h"
#include "protocol/request_error.h"
#include "serve/api_keys.h"
#include "serve/key_gate.h"
#include "serve/service_metrics.h"

namespace deepinfer {

class RequestTicket {
 public:
  RequestTicket(const HttpRequest& request, std::string route, const Clock& clock, ServiceMetrics& metrics);
  ~RequestTicket();

  const std::string& id() const { return id_; }
  HttpFields fields() const;  // of every response: the request's id
  const std::string& route() const { return route_; }
  // "" without keys.
  std::string owner() const { return key_ ? key_->name : ""; }
  const ApiKey* key() const { return key_; }
  void set_key(const ApiKey* key) { key_ = key; }
  // Counts the request against its key's limits until the end.
  Refusal enter(KeyGate& gate);

  // Answers and ends.
  void reply(HttpExchange& exchange, int status, std::string body, const char* content_type = "application/json");
  void end(int status, const std::string& finish = "", int64_t num_prompt_tokens = 0, int64_t num_output_tokens = 0);

 private:
  const Clock& clock_;
  ServiceMetrics& metrics_;
  std::string id_, route_, method_, peer_, trace_id_;
  const ApiKey* key_ = nullptr;
  KeyGate* gate_ = nullptr;
  int64_t begin_ns_;
  bool is_over_ = false;
};

}  // namespace deepinfer
