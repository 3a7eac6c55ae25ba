// SPDX-License-Identifier: MIT
// deepinfer serve: the HTTP service. Prints `ready http://HOST:PORT` on stdout when the model is warm;
// SIGTERM or Ctrl-C lets running requests finish, a second one ends the program.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/log_queue.h"
#include "base/sha256.h"
#include "serve/options.h"
#include "serve/service.h"
#include "serve/service_store.h"
#include "tools/command.h"
#include "tools/engine_target.h"
#include "tools/model_options.h"
#include "tools/stop_signals.h"
#include "tools/version.h"

namespace deepinfer {
namespace {

struct ServeArguments {
  ModelOptions model;
  std::string host = "127.0.0.1", api_keys, log = "human";
  std::string tls_cert, tls_key, otlp_endpoint;
  std::vector<std::string> served_names, cors_origins;
  int64_t port = 8000, admin_port = -1;
  int64_t concurrency = 16, queue = 1024, context = 0, kv_tokens = 0, host_kv_tokens = 0, tail_mib = 64,
          http_threads = 1, connections = 4096;
  int64_t body_mib = 100, bodies_mib = 1024, store_mib = 64, store_minutes = 60, drain_s = 60;
  int64_t step_timeout_s = 300, ttft_ms_max = 0;
  std::string draft = "on", pipeline = "on";
  ServiceStoreOptions store;
  std::string store_secret;
  int64_t store_gb = 0;
  bool no_auth = false, no_console = false, image_urls = false;
};

constexpr const char* kReleasedName = "DeepSeek-V4.1-Flash";
constexpr int64_t kContextMin = 128;
constexpr int64_t kProfileNsMax = 300'000'000;  // a small model is ready within a second of its start

// What clients may call the model: its folder, and the released name, which they have in their settings.
std::vector<std::string> served_names(const ServeArguments& arguments) {
  if (!arguments.served_names.empty()) return arguments.served_names;
  std::filesystem::path folder(arguments.model.model);
  if (!folder.has_filename()) folder = folder.parent_path();
  const std::string name = folder.filename().string();
  if (name.empty() || name == "." || name == ".." || name == kReleasedName) return {kReleasedName};
  return {name, kReleasedName};
}

// Changes with the program and the model: clients see it as system_fingerprint.
std::string fingerprint(const std::string& model) {
  const std::string text = version_text() + model;
  return "fp_" + to_hex(sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()})).substr(0, 16);
}

// Of the file and of the environment.
Result<ApiKeys> load_keys(const ServeArguments& arguments) {
  ApiKeys keys;
  if (!arguments.api_keys.empty()) { ASSIGN_OR_RETURN(keys, ApiKeys::load(arguments.api_keys)); }
  if (std::optional<ApiKey> key = api_key_of_environment()) keys.add(std::move(*key));
  return keys;
}

// SIGHUP. What cannot be read leaves the service as it was.
void reload(const ServeArguments& arguments, Service& service) {
  auto keys = load_keys(arguments);
  const Status status = keys.ok() ? service.reload(std::move(*keys)) : keys.status();
  if (status.ok()) log_line(LogLevel::kInfo, "keys and certificates read again");
  else log_line(LogLevel::kError, "keys and certificates stay as they were", {{"reason", status.message()}});
}

Result<ServiceOptions> service_options(const ServeArguments& arguments) {
  ServiceOptions options;
  ASSIGN_OR_RETURN(options.target, engine_target(arguments.model));
  options.num_threads = static_cast<int>(arguments.model.num_threads);
  options.http.host = arguments.host;
  options.http.port = static_cast<int>(arguments.port);
  options.http.num_threads = static_cast<int>(arguments.http_threads);
  options.http.connections_max = arguments.connections;
  options.admin_port = static_cast<int>(arguments.admin_port);
  options.allows_open = arguments.no_auth;
  options.has_console = !arguments.no_console;
  options.served_names = served_names(arguments);
  options.revision = fingerprint(options.served_names[0]);
  options.limits.sequences_max = arguments.concurrency;
  options.limits.queue_max = arguments.queue;
  options.limits.context_max = arguments.context;
  options.limits.kv_tokens = arguments.kv_tokens;
  options.limits.host_kv_tokens = arguments.host_kv_tokens;
  options.limits.tail_bytes_max = arguments.tail_mib << 20;
  options.limits.drafts = arguments.draft == "on";
  options.limits.profile_ns_max = kProfileNsMax;
  options.limits.pipelined = arguments.pipeline == "on";
  options.limits.step_ns_max = arguments.step_timeout_s * 1'000'000'000;
  options.limits.ttft_ns_max = arguments.ttft_ms_max * 1'000'000;
  if (arguments.model.replay == "off") options.replay = ReplayMode::kOff;
  if (arguments.model.replay == "exact" || arguments.model.deterministic) options.replay = ReplayMode::kExact;
  options.request_limits.body_bytes_max = static_cast<size_t>(arguments.body_mib) << 20;
  options.store_bytes_max = static_cast<size_t>(arguments.store_mib) << 20;
  options.store_ttl_ns = arguments.store_minutes * 60'000'000'000;
  options.http.all_body_bytes_max = arguments.bodies_mib << 20;
  options.cors_origins = arguments.cors_origins;
  options.otlp_endpoint = arguments.otlp_endpoint;
  options.version = version_text().substr(0, version_text().find('\n'));
  options.fetches_images = arguments.image_urls;
  if (arguments.tls_cert.empty() != arguments.tls_key.empty())
    return invalid_argument("--tls-cert and --tls-key are given together");
  if (!arguments.tls_cert.empty()) options.http.tls = TlsFiles{arguments.tls_cert, arguments.tls_key};
  ASSIGN_OR_RETURN(options.keys, load_keys(arguments));
  options.admin_key = admin_key_of_environment();
  return options;
}

// Null without --store.
Result<std::unique_ptr<ServiceStore>> open_store(const ServeArguments& arguments, const Clock& clock) {
  ServiceStoreOptions options = arguments.store;
  if (!is_named(options.target)) return std::unique_ptr<ServiceStore>();
  options.capacity_bytes = arguments.store_gb * 1'000'000'000;
  ASSIGN_OR_RETURN(options.target.security.secret, read_shard_secret(arguments.store_secret));
  TRY(check_shard_tls(options.target.security));
  return ServiceStore::open(options, clock);
}

// What an option's own range does not say.
Status check_options(const ServeArguments& a) {
  if (a.context > 0 && a.context < kContextMin)
    return invalid_argument(fmt::format("--context: expected 0 or at least {}, found {}", kContextMin, a.context));
  if (a.bodies_mib < a.body_mib)
    return invalid_argument(
        fmt::format("--max-bodies-mib: expected at least --max-body-mib {}, found {}", a.body_mib, a.bodies_mib));
  for (const std::string& name : a.served_names)
    if (name.empty()) return invalid_argument("--served-name: expected a name, found ''");
  for (const std::string& origin : a.cors_origins) TRY(check_origin(origin));
  return {};
}

// Every connection is a descriptor: as many as this process may have, where the usual soft limit allows 1,024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

// Of the line to try.
std::string key_field(const ServeArguments& arguments) {
  const bool in_environment = api_key_of_environment().has_value();
  if (arguments.api_keys.empty() && !in_environment) return "";
  return std::string(" -H \"Authorization: Bearer $") + (in_environment ? "DEEPINFER_API_KEY" : "KEY") + "\"";
}

struct StartTimes {
  double load_s = 0, start_s = 0;  // to the model's files being read; to being ready
};

void announce(const ServeArguments& arguments, const Service& service, const std::string& name, StartTimes times,
              LogQueue& log_queue) {
  const bool is_secure = !arguments.tls_cert.empty();
  const std::string host = arguments.host.find(':') == std::string::npos ? arguments.host : "[" + arguments.host + "]";
  const std::string url = fmt::format("{}://{}:{}", is_secure ? "https" : "http", host, service.port());
  const Inference& inference = service.inference();
  log_line(LogLevel::kInfo, "serving",
           {{"model", name},
            {"load_s", times.load_s},
            {"start_s", times.start_s},
            {"engine_mb", static_cast<double>(inference.engine().memory_bytes()) * 1e-6},
            {"context", inference.engine().options().context_max},
            {"concurrency", inference.engine().options().lanes_max},
            {"kv_blocks", inference.engine().options().blocks_max},
            {"admin_port", service.admin_port()}});
  if (arguments.log == "human")
    log_line(LogLevel::kInfo,
             fmt::format("try: curl {}{}/v1/chat/completions{} -H 'Content-Type: application/json' -d '{{\"model\":"
                         "\"{}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}],\"stream\":true}}'",
                         is_secure ? "--cacert " + arguments.tls_cert + " " : "", url, key_field(arguments), name));
  log_queue.flush();  // whoever waits for the next line finds the log complete
  fmt::print("ready {}\n", url);
  std::fflush(stdout);
}

// Until a signal, a drain by the admin port, or an engine that broke.
Status run_until_stopped(const ServeArguments& arguments, Service& service, StopSignals& signals) {
  while (!signals.wait(200) && !service.is_draining()) {
    if (signals.take_reload()) reload(arguments, service);
    TRY(service.failure());
  }
  service.drain();
  log_line(LogLevel::kInfo, "draining", {{"running", service.snapshot().num_running}});
  const SystemClock clock;
  const int64_t end_ns = clock.monotonic_ns() + arguments.drain_s * 1'000'000'000;
  timespec pause{0, 20'000'000};
  while (!service.is_drained() && clock.monotonic_ns() < end_ns) nanosleep(&pause, nullptr);
  if (!service.is_drained()) log_line(LogLevel::kWarning, "stopping with requests unfinished");
  service.stop();
  log_line(LogLevel::kInfo, "stopped");
  return {};
}

Status run_serve(const ServeArguments& arguments, StopSignals& signals) {
  set_log(LogLevel::kInfo, arguments.log == "json" ? LogFormat::kJson : LogFormat::kHuman);
  LogQueue log_queue;  // no request waits for its log line
  raise_descriptor_limit();
  const SystemClock clock;
  const auto seconds_since_begin = [&clock, begin_ns = clock.monotonic_ns()] {
    return static_cast<double>(clock.monotonic_ns() - begin_ns) * 1e-9;
  };
  ASSIGN_OR_RETURN(ServiceOptions options, service_options(arguments));
  const std::string name = options.served_names[0];
  ASSIGN_OR_RETURN(const std::unique_ptr<ServiceStore> store, open_store(arguments, clock));  // outlives the service
  options.limits.store = store.get();
  options.limits.program_revision = options.revision;
  ASSIGN_OR_RETURN(LoadedModel model, load_model(arguments.model));
  StartTimes times{.load_s = seconds_since_begin()};
  if (signals.signal() != 0) return {};
  ASSIGN_OR_RETURN(const std::unique_ptr<Service> service, Service::start(std::move(model), std::move(options), clock));
  times.start_s = seconds_since_begin();
  announce(arguments, *service, name, times, log_queue);
  return run_until_stopped(arguments, *service, signals);
}

void declare_access(OptionSet& options, ServeArguments& a) {
  options.add("--host", a.host, "IP address to listen on (default 127.0.0.1); others need --api-keys or --no-auth");
  options.add("--port", a.port, {0, 65535}, "TCP port; 0 = any free one (default 8000)");
  options.add("--admin-port", a.admin_port, {-1, 65535},
              "second port for metrics, health, requests and drain; -1 = none (default)");
  options.add(
      "--api-keys", a.api_keys,
      "JSON file with names, SHA-256 digests and limits of the keys that are let in; a key in the environment's "
      "DEEPINFER_API_KEY is let in too");
  options.add("--tls-cert", a.tls_cert, "certificates in PEM form; SIGHUP reads them and the keys again");
  options.add("--tls-key", a.tls_key, "the certificate's private key in PEM form");
  options.flag("--no-auth", a.no_auth, "listen beyond this machine without keys");
}

void declare_limits(OptionSet& options, ServeArguments& a) {
  options.add("--served-name", a.served_names, "name that clients use for the model; may repeat (default: its folder)");
  options.add("--max-concurrency", a.concurrency, {1, 4096}, "sequences running at once (default 16)");
  options.add("--max-queue", a.queue, {1, 1'000'000}, "sequences waiting before requests are refused (default 1024)");
  options.add("--context", a.context, {0, 1 << 20},
              "longest prompt and answer in tokens; 0 = the model's, at most 32768 (default)");
  options.add("--kv-tokens", a.kv_tokens, {0, int64_t{1} << 32},
              "tokens of KV memory, running and cached; 0 = 4 contexts (default)");
  options.add("--host-kv-tokens", a.host_kv_tokens, {0, int64_t{1} << 34},
              "tokens of cached KV kept in host memory beyond that (default 0)");
  options.add("--tail-mib", a.tail_mib, {0, int64_t{1} << 20},
              "host memory for window states at the ends of cached blocks: a hit that ends at one replays nothing "
              "(default 64; 0 = none)");
  options.choice("--draft", a.draft, {"on", "off"},
                 "verified drafts; changes the speed, never the tokens (default on)");
  options.choice("--pipeline", a.pipeline, {"on", "off"},
                 "plan the next step while one runs; changes the speed, never the tokens (default on)");
  options.add("--max-ttft-ms", a.ttft_ms_max, {0, 86'400'000},
              "refuse a request at once when its first token would probably take longer; 0 = never (default)");
  options.add("--step-timeout", a.step_timeout_s, {0, 86'400},
              "seconds after which a step is stopped and its requests end; 0 = no limit (default 300)");
  options.add("--http-threads", a.http_threads, {1, 64}, "event threads (default 1)");
  options.add("--max-connections", a.connections, {1, 1'000'000}, "open connections (default 4096)");
  options.add("--max-body-mib", a.body_mib, {1, 1024},
              "largest request body in MiB, also after inflating (default 100)");
  options.add("--max-bodies-mib", a.bodies_mib, {1, 1 << 20},
              "all request bodies together in MiB; beyond it 503 (default 1024)");
}

void declare_store(OptionSet& options, ServeArguments& a) {
  options.add("--store", a.store.target.paths,
              "DIR where prefixes are kept over restarts, or twelve and more with commas (coded 10 + 2)");
  options.add("--store-shards", a.store.target.shards, "the same on shard servers: HOST:PORT,... (see store serve)");
  options.add("--store-rados", a.store.target.rados, "the same on a Ceph cluster: CONF:POOLPREFIX");
  options.add("--store-etcd", a.store.target.etcd,
              "the same on the shard servers that registered themselves at etcd: HOST:PORT[/STORE]");
  options.add("--store-tls-cert", a.store.target.security.tls_certificate, "PEM file: certificate for shard servers");
  options.add("--store-tls-key", a.store.target.security.tls_key, "PEM file: its key");
  options.add("--store-tls-ca", a.store.target.security.tls_authority, "PEM file: who signs the shard servers'");
  options.add("--store-secret", a.store_secret, "file with the secret that shard servers and this service share");
  options.add("--store-tenants", a.store.tenants_file,
              "file with the secret salts of the keys' owners (default: tenants.json in the first --store)");
  options.add("--store-encryption-key", a.store.encryption_key, "file with 64 hex digits: encrypt what is stored");
  options.add("--store-gb", a.store_gb, {0, 1 << 30}, "GB kept in the store; 0 = as much as its disks hold (default)");
  options.add("--store-mib", a.store_mib, {0, 1 << 16}, "memory for stored responses in MiB (default 64)");
  options.add("--store-minutes", a.store_minutes, {0, 1 << 20},
              "how long a response is stored, in minutes (default 60)");
}

void declare(OptionSet& options, ServeArguments& a) {
  declare_model_options(options, a.model);
  declare_access(options, a);
  declare_limits(options, a);
  options.flag("--image-urls", a.image_urls, "read images by http(s) address, from public addresses only");
  options.add("--cors-origin", a.cors_origins,
              "pages of this origin (https://...) may use the service; may repeat (default none)");
  options.add("--otlp-endpoint", a.otlp_endpoint, "collector that takes spans by OTLP/HTTP, http://127.0.0.1:4318");
  declare_store(options, a);
  options.add("--drain-seconds", a.drain_s, {0, 86'400},
              "how long running requests may go on after SIGTERM (default 60)");
  options.choice("--log", a.log, {"human", "json"}, "form of the log lines on stderr (default human)");
  options.flag("--no-console", a.no_console, "do not serve the web console");
}

}  // namespace

Command serve_command() {
  const auto arguments = std::make_shared<ServeArguments>();
  return {.name = "serve",
          .summary = "the HTTP service with all three protocols and the web console",
          .examples =
              "  deepinfer serve --model checkpoint/ --port 8000\n"
              "  deepinfer serve --model checkpoint/ --host 0.0.0.0 --api-keys keys.json --admin-port 9000\n",
          .declare = [arguments](OptionSet& options) { declare(options, *arguments); },
          .run =
              [arguments] {
                if (const Status status = check_options(*arguments); !status.ok()) {
                  fmt::print(stderr, "deepinfer serve: {}\n", status.message());
                  return 2;
                }
                StopSignals signals;
                const Status status = run_serve(*arguments, signals);
                if (status.ok() && signals.signal() == SIGINT) return 130;
                return exit_status(status);
              }};
}

}  // namespace deepinfer
