// SPDX-License-Identifier: MIT
// Requests as OpenTelemetry spans, sent by OTLP/HTTP with JSON bodies: one server span a request, below it queue,
// prompt and decode of a generation. Bounded: what a slow or absent collector does not take is dropped and counted;
// requests never wait for it. Thread: add() any; sending has its own.
// Source: opentelemetry-proto 1.x (trace.proto, JSON mapping), semantic conventions of HTTP and generative AI.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "serve/request_record.h"

namespace deepinfer {

struct SpanExporterOptions {
  std::string endpoint;  // "http://127.0.0.1:4318"; a path is kept, "/v1/traces" where there is none
  std::string service_name = "deepinfer", service_version, model;
  size_t waiting_max = 4096;
  size_t batch_max = 256;
  int64_t interval_ms = 1000;
  // Sends one body; default: POST to the endpoint.
  std::function<Status(const std::string& body)> send;
};

class SpanExporter {
 public:
  // Errors: invalid_argument (the endpoint).
  static Result<std::unique_ptr<SpanExporter>> start(SpanExporterOptions options);
  ~SpanExporter();  // sends what waits, then ends

  void add(const RequestRecord& record);
  int64_t num_dropped() const;

 private:
  explicit SpanExporter(SpanExporterOptions options);
  void run();

  SpanExporterOptions options_;
  mutable std::mutex mutex_;  // guards what stands below
  std::condition_variable wake_;
  std::vector<RequestRecord> waiting_;
  int64_t num_dropped_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

// The body of an export. Times are on the wall clock; a record's monotonic times are shifted onto it.
Json spans_body(const std::vector<RequestRecord>& records, const SpanExporterOptions& options);

}  // namespace deepinfer
