// SPDX-License-Identifier: MIT
// The service: three protocols, plain completions, tokenizer, models, health, metrics and the console over HTTP, in
// front of one loaded model. It listens when the model is warm, not before. Thread: start, drain and stop the owner's.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/http_server.h"
#include "net/url_fetch.h"
#include "protocol/codec.h"
#include "serve/answer.h"
#include "serve/api_keys.h"
#include "serve/inference.h"
#include "serve/key_gate.h"
#include "serve/request_history.h"
#include "serve/request_ticket.h"
#include "serve/response_store.h"
#include "serve/service_metrics.h"
#include "serve/span_exporter.h"
#include "serve/work_queue.h"

namespace deepinfer {

struct ServiceOptions {
  HttpServerOptions http;
  int admin_port = -1;  // on the same host; -1 = none, 0 = any free one
  ApiKeys keys;
  std::string admin_key;                  // of the admin port, besides keys marked as admin's; "" = none
  bool allows_open = false;               // listen beyond loopback without keys
  std::vector<std::string> served_names;  // what clients call the model; the first is its name
  std::string revision;                   // names the configuration: system_fingerprint
  InferenceLimits limits;
  Target target;
  int num_threads = 0;
  int num_preparers = 2;
  ReplayMode replay = ReplayMode::kFast;
  RequestLimits request_limits;
  size_t store_bytes_max = size_t{64} << 20;
  int64_t store_ttl_ns = int64_t{3600} * 1'000'000'000;
  int64_t keep_alive_ns = 10'000'000'000;
  bool has_console = true;
  std::vector<std::string> cors_origins;  // pages of these origins may use the service; none by default
  std::string otlp_endpoint;              // where spans go; "" = nowhere
  std::string version;                    // of the program
  bool fetches_images = false;            // image URLs of http and https are read, public addresses only
  UrlFetchOptions image_fetch;
};

class Service {
 public:
  // Errors: invalid_argument (options that are not safe, saying what to do), those of the model, of the listener.
  static Result<std::unique_ptr<Service>> start(LoadedModel model, ServiceOptions options, const Clock& clock);
  static Result<std::unique_ptr<Service>> start(std::unique_ptr<Inference> inference, ServiceOptions options,
                                                const Clock& clock);
  ~Service();

  int port() const { return server_->port(); }
  int admin_port() const { return admin_ ? admin_->port() : -1; }
  const Inference& inference() const { return *inference_; }

  void drain();  // any thread: no new requests, running ones finish
  bool is_draining() const { return draining_; }
  bool is_drained() const;
  void stop();
  // Keys and certificates as they are from now on; requests under way keep theirs. Errors: of the certificate, which
  // then stays; a service that has keys never goes on without.
  Status reload(ApiKeys keys);
  Status failure() const { return inference_->loop().failure(); }  // the engine broke; the service must end
  StepLoopSnapshot snapshot() const { return inference_->loop().snapshot(); }

 private:
  struct Call;  // a request with its exchange and ticket
  using Handler = void (Service::*)(std::shared_ptr<Call> call);
  using Preparation = Refusal (Service::*)(Call& call, const std::string& body, AnswerSetup& setup);
  struct Route;
  struct AdminAction;
  static const AdminAction kAdminActions[];
  static const Route kRoutes[];
  static std::span<const Route> routes();

  explicit Service(ServiceOptions options, const Clock& clock);
  static Status check(const ServiceOptions& options);
  Status open(std::unique_ptr<Inference> inference);

  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void handle_admin(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  const Route* find_route(const std::string& method, const std::string& path, std::string& rest,
                          bool& path_known) const;
  bool authorize(Call& call, bool open);
  Refusal authorize(const HttpRequest& request, bool open, std::shared_ptr<const ApiKey>& key) const;
  std::optional<HttpResponse> gate(const HttpRequest& head) const;
  bool is_admin(const Call& call) const;
  bool is_welcome_origin(const HttpRequest& request) const;
  void preflight(Call& call) const;
  std::string allowed_methods(const std::string& path) const;
  bool is_foreign_page(const HttpRequest& request) const;
  void refuse(Call& call, const RequestError& error);
  // Runs on a preparer's thread; refuses when there is no room.
  void enqueue(std::shared_ptr<Call> call, std::function<void()> work);

  // Routes (service_routes.cc, generation_routes.cc).
  void start_drain(std::shared_ptr<Call> call);
  void forget_owner(std::shared_ptr<Call> call);
  void live(std::shared_ptr<Call> call);
  void ready(std::shared_ptr<Call> call);
  void metrics(std::shared_ptr<Call> call);
  void openapi(std::shared_ptr<Call> call);
  void recent_requests(std::shared_ptr<Call> call);
  void models(std::shared_ptr<Call> call);
  void model(std::shared_ptr<Call> call);
  void tokenize(std::shared_ptr<Call> call);
  void detokenize(std::shared_ptr<Call> call);
  void stored_response(std::shared_ptr<Call> call);
  void delete_response(std::shared_ptr<Call> call);
  void console(std::shared_ptr<Call> call);
  void count_tokens(std::shared_ptr<Call> call);
  void generate(std::shared_ptr<Call> call);
  void complete_text(std::shared_ptr<Call> call);

  Result<std::string> body_of(Call& call);
  Refusal read_json_body(Call& call, Json& out);
  Refusal prepare_chat(Call& call, const std::string& body, AnswerSetup& setup);
  Refusal prepare_text(Call& call, const std::string& body, AnswerSetup& setup);
  Refusal read_images(const Call& call, Conversation& conversation) const;
  static std::string tenant_of(const Call& call, const std::string& user);
  static RequestPreparer::Asker asker_of(const Call& call, const std::string& user);
  Refusal continue_stored(const Call& call, const DecodedRequest& decoded, ChatRequest& chat);
  Refusal check_key_context(const Call& call, const PreparedRequest& request) const;
  Refusal raw_prompt(const std::string& prompt, const std::optional<std::string>& suffix,
                     std::vector<TokenId>& out) const;
  void run(std::shared_ptr<Call> call, Preparation prepare);
  void begin_answer(const std::shared_ptr<Call>& call, AnswerSetup setup);
  void keep_response(const std::string& owner, const std::string& id, std::vector<Message> turns,
                     const AnswerOutcome& outcome);
  Json model_entry(const std::string& name) const;

  ServiceOptions options_;
  const Clock& clock_;
  DecodeOptions decode_options_;
  ServiceMetrics metrics_;
  RequestHistory history_;
  std::unique_ptr<SpanExporter> spans_;
  std::shared_ptr<const ApiKeys> keys_;  // with the atomic functions
  KeyGate gate_;
  ResponseStore store_;
  std::atomic<bool> draining_{false};
  int64_t started_s_ = 0;
  std::unique_ptr<Inference> inference_;
  std::unique_ptr<AnswerSurroundings> surroundings_;
  std::unique_ptr<WorkQueue> queue_;
  std::unique_ptr<HttpServer> server_, admin_;
};

}  // namespace deepinfer
