// SPDX-License-Identifier: MIT
// What the HTTP side alone can do: the whole service around a source of tokens that costs nothing (free_tokens.h), with
// the client on a thread of the same process. Rows: streamed tokens a second when tokens come at once (several share an
// event) and when each is an event of its own, which is given when its client has read the one before; processor time
// of a token on the server's side (all threads but the client's) and on the client's; how long a token takes from its
// birth to the client at half that rate, where a step brings tokens to all of 64 streams and where steps bring them to
// an eighth of 256 streams in turn; unstreamed requests a second; memory of an idle connection.
// `tokens/s of 2 cores` is 2 s of processor time over what a token takes on both sides: the rate on an idle machine.
// --set streams=N, --set seconds=S, --set only=PART (at_once, in_step, latency, unstreamed or idle).
#include <arpa/inet.h>
#include <fmt/format.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/bench.h"
#include "base/log.h"
#include "net/load_client.h"
#include "serve/free_tokens.h"
#include "serve/service.h"

namespace deepinfer {
namespace {

constexpr int64_t kAnswerTokens = 512;
constexpr char kTokenText = '~';  // stands nowhere else in an event
constexpr double kGoalTokens = 120'000, kGoalLatencyUs = 1000;
const SystemClock kClock;

int64_t process_cpu_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& t) { return t.tv_sec * 1'000'000'000 + t.tv_usec * 1000; };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

struct Stand {
  std::unique_ptr<Service> service;
  FreeTokens* source = nullptr;  // the service's
};

Result<Stand> open_stand(const BenchOptions& options) {
  ASSIGN_OR_RETURN(LoadedModel model, load_model(options.model.empty() ? "mini" : options.model));
  auto source = std::make_unique<FreeTokens>(model.tokenizer->encode(std::string(1, kTokenText)).at(0), kClock);
  Stand stand;
  stand.source = source.get();
  ServiceOptions service;
  service.http.port = 0;
  service.served_names = {"m"};
  service.target = {Backend::kCpu, fastest_cpu_level()};
  ASSIGN_OR_RETURN(auto inference, Inference::around(std::move(model), std::move(source), service.target, 4096));
  ASSIGN_OR_RETURN(stand.service, Service::start(std::move(inference), std::move(service), kClock));
  return stand;
}

std::string chat_request(int client, int64_t max_tokens, bool streams) {
  const std::string body =
      fmt::format(R"({{"model":"m","max_tokens":{},"ignore_eos":true,"stream":{},"user":"{}","thinking":)"
                  R"({{"type":"disabled"}},"messages":[{{"role":"user","content":"Hello"}}]}})",
                  max_tokens, streams, client);
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
}

struct StreamFigures {
  double tokens_per_s = 0, server_us = 0, client_us = 0, events_per_token = 0;
  double two_core_tokens_per_s() const { return 2e6 / (server_us + client_us); }
};

Result<StreamFigures> run_streams(Stand& stand, int num_streams, double seconds, FreeTokensPace pace,
                                  LoadOptions load) {
  load.port = stand.service->port();
  load.num_connections = num_streams;
  load.duration_ns = static_cast<int64_t>(seconds * 1e9);
  // Of different lengths, so that not all begin anew at once.
  load.request = [](int client) { return chat_request(client, kAnswerTokens - client * 53 % 256, true); };
  stand.source->set_pace(std::move(pace));
  const int64_t given_before = stand.source->snapshot().num_output_tokens;
  const int64_t cpu_begin_ns = process_cpu_ns();
  ASSIGN_OR_RETURN(const LoadFigures figures, run_load(load, kClock));
  const double cpu_ns = static_cast<double>(process_cpu_ns() - cpu_begin_ns);
  const double num_tokens = static_cast<double>(stand.source->snapshot().num_output_tokens - given_before);
  stand.source->set_pace({});  // what is left of the answers goes out, or is cancelled with its connection
  while (stand.source->snapshot().num_running > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (figures.num_errors > 0) return internal_error(fmt::format("{} answers were errors", figures.num_errors));
  StreamFigures out;
  out.tokens_per_s = num_tokens / figures.seconds;
  out.client_us = static_cast<double>(figures.cpu_ns) / num_tokens * 1e-3;
  out.server_us = cpu_ns / num_tokens * 1e-3 - out.client_us;
  out.events_per_token = static_cast<double>(figures.num_events) / num_tokens;
  return out;
}

void add_rows(BenchReport& report, const std::string& name, const StreamFigures& f) {
  const std::string note = fmt::format("{:.2f} events a token; processor us a token: server {:.2f}, client {:.2f}",
                                       f.events_per_token, f.server_us, f.client_us);
  report.add({name, f.tokens_per_s, "tokens/s", kGoalTokens, "goal", {}, note});
  report.add({name + ", 2 idle cores",
              f.two_core_tokens_per_s(),
              "tokens/s",
              kGoalTokens,
              "goal",
              {},
              "from processor time, client and server together"});
  report.add({name + ", server", f.server_us, "us/token", 0, "", {}, "processor time of all server threads"});
}

// A token is given when its client has the one before it.
struct InStep {
  explicit InStep(int num_streams) : num_read(static_cast<size_t>(num_streams)) {}
  std::vector<std::atomic<int64_t>> num_read;  // events of the answer under way; the first one says nothing
};

Result<StreamFigures> run_in_step(Stand& stand, int num_streams, double seconds) {
  auto state = std::make_shared<InStep>(num_streams);
  FreeTokensPace pace;
  pace.may_give = [state](int client, int64_t token) {
    return token == 0 || state->num_read[static_cast<size_t>(client)].load(std::memory_order_relaxed) > token;
  };
  LoadOptions load;
  load.on_sent = [state](int client, int64_t) { state->num_read[static_cast<size_t>(client)] = 0; };
  load.on_event = [state](int client, int64_t event, int64_t) {
    state->num_read[static_cast<size_t>(client)].store(event + 1, std::memory_order_relaxed);
  };
  return run_streams(stand, num_streams, seconds, std::move(pace), std::move(load));
}

struct Births {
  explicit Births(int num_streams) : at_ns(static_cast<size_t>(num_streams)) {
    for (auto& one : at_ns) one = std::vector<std::atomic<int64_t>>(kAnswerTokens);
  }
  std::vector<std::vector<std::atomic<int64_t>>> at_ns;
  std::vector<int64_t> latencies_ns;  // the client's
};

struct LatencyCase {
  std::string name;
  int num_streams = 0, num_parts = 1;
};

struct LatencyFigures {
  StreamFigures streams;
  double p50_us = 0, p99_us = 0;
};

Result<LatencyFigures> run_latency(Stand& stand, const LatencyCase& shape, double seconds, double tokens_per_s) {
  auto state = std::make_shared<Births>(shape.num_streams);
  FreeTokensPace pace;
  pace.num_parts = shape.num_parts;
  pace.round_ns = static_cast<int64_t>(shape.num_streams / shape.num_parts / tokens_per_s * 1e9);
  pace.on_give = [state](int client, int64_t token, int64_t now_ns) {
    state->at_ns[static_cast<size_t>(client)][static_cast<size_t>(token)].store(now_ns, std::memory_order_relaxed);
  };
  LoadOptions load;
  load.mark = kTokenText;
  load.on_mark = [state](int client, int64_t token, int64_t now_ns) {
    if (token >= kAnswerTokens) return;
    state->latencies_ns.push_back(now_ns - state->at_ns[static_cast<size_t>(client)][static_cast<size_t>(token)]);
  };
  LatencyFigures out;
  ASSIGN_OR_RETURN(out.streams, run_streams(stand, shape.num_streams, seconds, std::move(pace), std::move(load)));
  std::vector<int64_t>& all = state->latencies_ns;
  if (all.empty()) return internal_error("no token arrived");
  std::ranges::sort(all);
  const auto quantile_us = [&](double q) {
    return static_cast<double>(all[static_cast<size_t>(q * static_cast<double>(all.size() - 1))]) * 1e-3;
  };
  out.p50_us = quantile_us(0.5);
  out.p99_us = quantile_us(0.99);
  return out;
}

// Of three runs the one in the middle, since a moment's load from elsewhere decides a p99.
Status add_latency(Stand& stand, const LatencyCase& shape, double seconds, double tokens_per_s, BenchReport& report) {
  std::vector<LatencyFigures> runs;
  for (int i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(runs.emplace_back(), run_latency(stand, shape, seconds / 3, tokens_per_s));
  }
  std::ranges::sort(runs, {}, &LatencyFigures::p99_us);
  const std::string note = fmt::format("offered {:.0f} tokens/s, given {:.0f}; {:.2f} events a token", tokens_per_s,
                                       runs[1].streams.tokens_per_s, runs[1].streams.events_per_token);
  report.add({"added latency p50, " + shape.name, runs[1].p50_us, "us", 0, "", {}, note});
  report.add({"added latency p99, " + shape.name,
              runs[1].p99_us,
              "us",
              kGoalLatencyUs,
              "goal (below)",
              {},
              fmt::format("three runs: {:.0f} to {:.0f}", runs[0].p99_us, runs[2].p99_us)});
  return {};
}

Status run_unstreamed(Stand& stand, double seconds, BenchReport& report) {
  LoadOptions load;
  load.port = stand.service->port();
  load.num_connections = 32;
  load.duration_ns = static_cast<int64_t>(seconds * 1e9);
  load.request = [](int client) { return chat_request(client, 1, false); };
  const int64_t cpu_begin_ns = process_cpu_ns();
  ASSIGN_OR_RETURN(const LoadFigures figures, run_load(load, kClock));
  if (figures.num_errors > 0) return internal_error("an answer was an error");
  const double num_answers = static_cast<double>(figures.num_answers);
  const double cpu_us = static_cast<double>(process_cpu_ns() - cpu_begin_ns) / num_answers * 1e-3;
  report.add({"unstreamed, 32 connections",
              num_answers / figures.seconds,
              "requests/s",
              2e6 / cpu_us,
              "2 idle cores",
              {},
              fmt::format("processor us a request: {:.1f}, client and server together", cpu_us)});
  return {};
}

// The client's side is bare sockets, which take no memory of this process.
class IdleSockets {
 public:
  explicit IdleSockets(int port) : port_(port) {}
  ~IdleSockets() {
    for (const int one : sockets_) ::close(one);
  }
  // Each has had one request answered.
  Status open(int count) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port_));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    constexpr std::string_view kRequest = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (int i = 0; i < count; ++i) {
      sockets_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      char answer[1024];
      if (sockets_.back() < 0 || ::connect(sockets_.back(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 ||
          ::send(sockets_.back(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL) < 0 ||
          ::recv(sockets_.back(), answer, sizeof answer, 0) <= 0)
        return unavailable(std::string("connection: ") + std::strerror(errno));
    }
    return {};
  }

 private:
  const int port_;
  std::vector<int> sockets_;
};

// Before anything else has run: memory that earlier requests gave back would hide what connections take.
Status run_idle(Stand& stand, int num_connections, BenchReport& report) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  IdleSockets sockets(stand.service->port());
  TRY(sockets.open(50));  // what the first ones cost once
  malloc_trim(0);
  const int64_t resident_before = resident_bytes();
  const size_t in_use_before = mallinfo2().uordblks;
  TRY(sockets.open(num_connections));
  const double kib = 1.0 / 1024 / num_connections;
  report.add({"idle connection",
              static_cast<double>(resident_bytes() - resident_before) * kib,
              "KiB",
              0,
              "",
              {},
              fmt::format("resident memory; {} connections, one request each was answered; allocated {:.2f} KiB",
                          num_connections, static_cast<double>(mallinfo2().uordblks - in_use_before) * kib)});
  return {};
}

double setting(const BenchOptions& options, const char* key, double otherwise) {
  const auto at = options.extra.find(key);
  return at == options.extra.end() ? otherwise : std::atof(at->second.c_str());
}

}  // namespace

Status bench_serve(const BenchOptions& options, BenchReport& report) {
  const int num_streams = static_cast<int>(setting(options, "streams", options.quick ? 16 : 256));
  const double seconds = setting(options, "seconds", options.quick ? 0.5 : 5);
  const auto only = options.extra.find("only");
  const auto wants = [&](std::string_view part) { return only == options.extra.end() || only->second == part; };
  set_log(LogLevel::kWarning, LogFormat::kHuman);  // a line a request is no part of what is measured
  ASSIGN_OR_RETURN(Stand stand, open_stand(options));
  if (wants("idle")) TRY(run_idle(stand, options.quick ? 200 : 2000, report));
  if (wants("at_once")) {
    ASSIGN_OR_RETURN(const StreamFigures at_once, run_streams(stand, num_streams, seconds, {}, {}));
    add_rows(report, fmt::format("{} streams, tokens at once", num_streams), at_once);
  }
  if (wants("in_step")) {
    ASSIGN_OR_RETURN(const StreamFigures in_step, run_in_step(stand, num_streams, seconds));
    add_rows(report, fmt::format("{} streams, an event a token", num_streams), in_step);
  }
  for (const LatencyCase& shape :
       {LatencyCase{"64 streams, all in one step", 64, 1}, LatencyCase{"256 streams, 32 in a step", 256, 8}})
    if (wants("latency")) TRY(add_latency(stand, shape, seconds, kGoalTokens / 2, report));
  return wants("unstreamed") ? run_unstreamed(stand, seconds, report) : Status();
}

}  // namespace deepinfer
