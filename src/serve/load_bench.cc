// SPDX-License-Identifier: MIT
// The service with a real model (default: mini) under 1, 16 and 64 streams: time to the first token, time per token,
// tokens a second; beside them the same prompts at the same concurrency through the step loop alone, without HTTP, text
// or JSON. Both kinds of run take turns, and what the service adds is told as processor time too, since that does not
// depend on what else this machine does. First rows: from the model's files to ready, and the first request against the
// second. --set tokens=N (of an answer), --set requests=N (a stream), --set streams=N (only that many).
// Without drafts, unless --set drafts=1: how many stand decides more than the service does, and a pause of drafting in
// one run and not in the other would be all that is seen.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/bench.h"
#include "base/log.h"
#include "net/http_client.h"
#include "net/load_client.h"
#include "serve/service.h"

namespace deepinfer {
namespace {

const SystemClock kClock;

int64_t process_cpu_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& t) { return t.tv_sec * 1'000'000'000 + t.tv_usec * 1000; };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

struct LoadShape {
  int num_streams = 1;
  int64_t num_tokens = 64, num_requests = 4;  // of an answer; of a stream
};

int64_t setting(const BenchOptions& options, const char* key, int64_t otherwise) {
  const auto at = options.extra.find(key);
  return at == options.extra.end() ? otherwise : std::atoll(at->second.c_str());
}

InferenceLimits limits_for(const BenchOptions& options, int num_streams) {
  InferenceLimits limits;
  limits.drafts = setting(options, "drafts", 0) != 0;
  limits.sequences_max = num_streams;
  limits.context_max = 1024;
  limits.kv_tokens = 1024 * (num_streams + 8);
  limits.profile_ns_max = 300'000'000;  // as `deepinfer serve` has it
  return limits;
}

// Prompts of one length that share no block.
std::string body_for(int stream, const LoadShape& shape) {
  return fmt::format(
      R"({{"model":"m","max_tokens":{},"ignore_eos":true,"stream":true,"temperature":0,"thinking":)"
      R"({{"type":"disabled"}},"user":"{}","messages":[{{"role":"user","content":"{:04} What is 12 + 7?"}}]}})",
      shape.num_tokens, stream, stream);
}

struct Figures {
  double tokens_per_s = 0, cpu_us_per_token = 0;
  double first_p50_ms = 0, first_p99_ms = 0, token_p50_ms = 0, token_p99_ms = 0;
};

double quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

Result<std::unique_ptr<Service>> open_service(const BenchOptions& options, int num_streams) {
  ASSIGN_OR_RETURN(LoadedModel model, load_model(options.model.empty() ? "mini" : options.model));
  ServiceOptions service;
  service.http.port = 0;
  service.served_names = {"m"};
  service.target = {Backend::kCpu, fastest_cpu_level()};
  service.num_threads = options.num_threads;
  service.limits = limits_for(options, num_streams);
  return Service::start(std::move(model), std::move(service), kClock);
}

// When answers were asked for, when their first and their last event came.
class AnswerTimes {
 public:
  explicit AnswerTimes(const LoadShape& shape) : shape_(shape), marks_(static_cast<size_t>(shape.num_streams)) {}
  void on_sent(int stream, int64_t now_ns) {
    end_answer(stream);
    marks_[static_cast<size_t>(stream)].sent_ns = now_ns;
  }
  // Event 0 is the start, which comes with the first token.
  void on_event(int stream, int64_t event, int64_t now_ns) {
    Marks& mark = marks_[static_cast<size_t>(stream)];
    if (event == 1) mark.first_ns = now_ns;
    mark.last_ns = now_ns;
  }
  void end() {
    for (int i = 0; i < shape_.num_streams; ++i) end_answer(i);
  }
  std::vector<double> first_ms, token_ms;  // of every answer; the mean over its tokens behind the first

 private:
  struct Marks {
    int64_t sent_ns = 0, first_ns = 0, last_ns = 0;
  };
  void end_answer(int stream) {
    const Marks mark = std::exchange(marks_[static_cast<size_t>(stream)], {});
    if (mark.first_ns == 0) return;
    first_ms.push_back(static_cast<double>(mark.first_ns - mark.sent_ns) * 1e-6);
    token_ms.push_back(static_cast<double>(mark.last_ns - mark.first_ns) * 1e-6 /
                       static_cast<double>(shape_.num_tokens - 1));
  }
  LoadShape shape_;
  std::vector<Marks> marks_;
};

Result<Figures> run_service(const Service& service, const LoadShape& shape) {
  AnswerTimes times(shape);
  LoadOptions load;
  load.port = service.port();
  load.num_connections = shape.num_streams;
  load.requests_max = shape.num_requests;
  load.duration_ns = 600'000'000'000;
  load.request = [&](int stream) {
    const std::string body = body_for(stream, shape);
    return fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                       body.size(), body);
  };
  load.on_sent = [&](int stream, int64_t now_ns) { times.on_sent(stream, now_ns); };
  load.on_event = [&](int stream, int64_t event, int64_t now_ns) { times.on_event(stream, event, now_ns); };
  const int64_t cpu_begin_ns = process_cpu_ns();
  ASSIGN_OR_RETURN(const LoadFigures loaded, run_load(load, kClock));
  if (loaded.num_errors > 0) return internal_error("an answer was an error");
  times.end();
  const double num_tokens = static_cast<double>(shape.num_streams * shape.num_requests * shape.num_tokens);
  Figures out;
  out.tokens_per_s = num_tokens / loaded.seconds;
  out.cpu_us_per_token = static_cast<double>(process_cpu_ns() - cpu_begin_ns - loaded.cpu_ns) / num_tokens * 1e-3;
  out.first_p50_ms = quantile(times.first_ms, 0.5);
  out.first_p99_ms = quantile(times.first_ms, 0.99);
  out.token_p50_ms = quantile(times.token_ms, 0.5);
  out.token_p99_ms = quantile(times.token_ms, 0.99);
  return out;
}

// The same requests straight into the step loop: a stream's next one when its last is over.
class Offline {
 public:
  Offline(Inference& inference, const LoadShape& shape) : inference_(inference), shape_(shape) {}

  Result<Figures> run() {
    std::vector<PreparedRequest> prepared(static_cast<size_t>(shape_.num_streams));
    DecodeOptions decode;
    decode.models = {{"m", PromptVersion::kV41}};
    for (int i = 0; i < shape_.num_streams; ++i) {
      DecodedRequest request;
      if (const Refusal refusal = find_codec("chat")->decode(body_for(i, shape_), decode, request))
        return internal_error(refusal->message);
      if (const Refusal refusal =
              inference_.preparer().prepare(std::move(request.chat), prepared[static_cast<size_t>(i)]))
        return internal_error(refusal->message);
    }
    const int64_t begin_ns = kClock.monotonic_ns(), cpu_begin_ns = process_cpu_ns();
    num_left_ = shape_.num_streams;
    for (int i = 0; i < shape_.num_streams; ++i) submit(i, shape_.num_requests, prepared[static_cast<size_t>(i)]);
    std::unique_lock lock(mutex_);
    over_.wait(lock, [this] { return num_left_ == 0; });
    if (!failed_.ok()) return failed_;
    const double num_tokens = static_cast<double>(shape_.num_streams * shape_.num_requests * shape_.num_tokens);
    Figures out;
    out.tokens_per_s = num_tokens / (static_cast<double>(kClock.monotonic_ns() - begin_ns) * 1e-9);
    out.cpu_us_per_token = static_cast<double>(process_cpu_ns() - cpu_begin_ns) / num_tokens * 1e-3;
    return out;
  }

 private:
  void submit(int stream, int64_t num_requests, const PreparedRequest& prepared) {
    LoopRequest request;
    request.sampling = prepared.sampling;
    request.sequence.prompt = prepared.tokens;
    request.sequence.max_output_tokens = prepared.max_tokens;
    request.sequence.tenant_salt = std::to_string(stream);
    const auto id = inference_.loop().submit(std::move(request), [=, this, &prepared](const LoopUpdate& update) {
      if (!update.refused.ok()) return end(update.refused);
      if (!update.finished) return;
      if (num_requests > 1) submit(stream, num_requests - 1, prepared);
      else end({});
    });
    if (!id.ok()) end(id.status());
  }
  void end(const Status& status) {
    const std::lock_guard lock(mutex_);
    if (!status.ok()) failed_ = status;
    if (--num_left_ == 0) over_.notify_all();
  }

  Inference& inference_;
  LoadShape shape_;
  std::mutex mutex_;
  std::condition_variable over_;
  int num_left_ = 0;
  Status failed_;
};

Status run_shape(const BenchOptions& options, const LoadShape& shape, BenchReport& report) {
  ASSIGN_OR_RETURN(const auto service, open_service(options, shape.num_streams));
  Inference& inference = const_cast<Inference&>(service->inference());
  Offline offline(inference, shape);
  std::vector<double> rates, offline_rates, cpu, offline_cpu;
  Figures figures;
  TRY(run_service(*service, {shape.num_streams, shape.num_tokens, 1}).status());
  for (int i = 0; i < 7; ++i) {  // by turns
    ASSIGN_OR_RETURN(const Figures alone, offline.run());
    ASSIGN_OR_RETURN(figures, run_service(*service, shape));
    offline_rates.push_back(alone.tokens_per_s);
    offline_cpu.push_back(alone.cpu_us_per_token);
    rates.push_back(figures.tokens_per_s);
    cpu.push_back(figures.cpu_us_per_token);
  }
  const double rate = quantile(rates, 0.5), bound = quantile(offline_rates, 0.5);
  const double added = quantile(cpu, 0.5) - quantile(offline_cpu, 0.5);
  const std::string name = fmt::format("{} streams", shape.num_streams);
  report.add({name,
              rate,
              "tokens/s",
              bound,
              "step loop alone",
              {},
              fmt::format("processor us a token: {:.0f}, step loop alone {:.0f}: the service adds {:.1f} %",
                          quantile(cpu, 0.5), quantile(offline_cpu, 0.5), 100 * added / quantile(offline_cpu, 0.5))});
  report.add({name + ", first token p50",
              figures.first_p50_ms,
              "ms",
              0,
              "",
              {},
              fmt::format("p99 {:.1f} ms", figures.first_p99_ms)});
  report.add({name + ", per token p50",
              figures.token_p50_ms,
              "ms",
              0,
              "",
              {},
              fmt::format("p99 {:.2f} ms", figures.token_p99_ms)});
  return {};
}

Status run_start(const BenchOptions& options, BenchReport& report) {
  const int64_t begin_ns = kClock.monotonic_ns(), cpu_begin_ns = process_cpu_ns();
  ASSIGN_OR_RETURN(const auto service, open_service(options, 16));
  report.add({"model's files to ready",
              static_cast<double>(kClock.monotonic_ns() - begin_ns) * 1e-9,
              "s",
              1,
              "goal (below)",
              {},
              fmt::format("processor time {:.2f} s", static_cast<double>(process_cpu_ns() - cpu_begin_ns) * 1e-9)});
  std::vector<double> cpu_ms;
  ASSIGN_OR_RETURN(HttpClient client, HttpClient::connect("127.0.0.1", service->port(), 60'000));
  for (int i = 0; i < 2; ++i) {
    const int64_t request_begin_ns = process_cpu_ns();
    TRY(client.request("POST", "/v1/chat/completions", body_for(i, {.num_tokens = 16})).status());
    cpu_ms.push_back(static_cast<double>(process_cpu_ns() - request_begin_ns) * 1e-6);
  }
  report.add({"first request over second",
              cpu_ms[0] / cpu_ms[1],
              "x",
              1.5,
              "goal (below)",
              {},
              fmt::format("processor time {:.1f} ms, then {:.1f} ms", cpu_ms[0], cpu_ms[1])});
  return {};
}

}  // namespace

Status bench_load(const BenchOptions& options, BenchReport& report) {
  set_log(LogLevel::kWarning, LogFormat::kHuman);  // a line a request is no part of what is compared
  TRY(run_start(options, report));
  LoadShape shape;
  shape.num_tokens = std::max<int64_t>(setting(options, "tokens", options.quick ? 8 : 64), 3);
  shape.num_requests = std::max<int64_t>(setting(options, "requests", options.quick ? 1 : 4), 1);
  const int64_t only = setting(options, "streams", 0);
  for (const int num_streams : {1, 16, 64}) {
    shape.num_streams = only > 0 ? static_cast<int>(only) : num_streams;
    TRY(run_shape(options, shape, report));
    if (only > 0 || (options.quick && num_streams == 16)) break;
  }
  return {};
}

}  // namespace deepinfer
