// SPDX-License-Identifier: MIT
#include "serve/service.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "protocol/error_body.h"
#include "serve/api_keys.h"
#include "serve/request_error_of.h"
#include "serve/service_call.h"

namespace deepinfer {
namespace {

constexpr size_t kWaitingRequestsMax = 1024;
constexpr size_t kHistoryMax = 200;
constexpr int kFetchingPreparers = 8;  // they wait for other hosts most of the time

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

// "[::1]:8000" -> "::1", "localhost:1" -> "localhost".
std::string_view host_name(std::string_view authority) {
  if (authority.starts_with('[')) return authority.substr(1, authority.find(']') - 1);
  return authority.substr(0, authority.find(':'));
}

std::string_view presented_key(const HttpRequest& request) {
  const std::string_view bearer = request.field("Authorization");
  if (bearer.size() > 7 && equals_ignoring_case(bearer.substr(0, 7), "Bearer ")) return bearer.substr(7);
  return request.field("x-api-key");
}

// The forms of one path that official bases give: /beta/x, /anthropic/v1/x, and /v1/x without the /v1.
std::string canonical_path(std::string_view path) {
  for (const std::string_view prefix : {"/beta/", "/anthropic/"})
    if (path.starts_with(prefix)) path.remove_prefix(prefix.size() - 1);
  for (const std::string_view bare : {"/chat/completions", "/completions", "/responses", "/messages", "/models"})
    if (path == bare || path.starts_with(std::string(bare) + "/")) return "/v1" + std::string(path);
  return std::string(path);
}

}  // namespace

const Service::Route Service::kRoutes[] = {
    {"POST", "/v1/chat/completions", &Service::generate, "chat", false, false, "createChatCompletion"},
    {"POST", "/v1/responses", &Service::generate, "responses", false, false, "createResponse"},
    {"GET", "/v1/responses/", &Service::stored_response, "responses", false, false, "getResponse"},
    {"DELETE", "/v1/responses/", &Service::delete_response, "responses", false, false, "deleteResponse"},
    {"POST", "/v1/messages", &Service::generate, "messages", false, false, "createMessage"},
    {"POST", "/v1/messages/count_tokens", &Service::count_tokens, "messages", false, false, "countMessageTokens"},
    {"POST", "/v1/completions", &Service::complete_text, nullptr, false, false, "createCompletion"},
    {"GET", "/v1/models", &Service::models, nullptr, false, false, "listModels"},
    {"GET", "/v1/models/", &Service::model, nullptr, false, false, "getModel"},
    {"POST", "/tokenize", &Service::tokenize, nullptr, false, false, "tokenize"},
    {"POST", "/detokenize", &Service::detokenize, nullptr, false, false, "detokenize"},
    {"GET", "/requests", &Service::recent_requests, nullptr, false, true, "recentRequests"},
    {"GET", "/health/live", &Service::live, nullptr, true, true, "isLive"},
    {"GET", "/health/ready", &Service::ready, nullptr, true, true, "isReady"},
    {"GET", "/health", &Service::ready, nullptr, true, true, "health"},
    {"GET", "/metrics", &Service::metrics, nullptr, false, true, "metrics"},
    {"GET", "/openapi.json", &Service::openapi, nullptr, true, false, "openapi"},
    {"GET", "/console.js", &Service::console, nullptr, true},
    {"GET", "/console.css", &Service::console, nullptr, true},
    {"GET", "/", &Service::console, nullptr, true},
};

const Service::AdminAction Service::kAdminActions[] = {
    {"/admin/drain", &Service::start_drain},
    {"/admin/store/forget", &Service::forget_owner},
};

std::span<const Service::Route> Service::routes() { return kRoutes; }

Service::Service(ServiceOptions options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      metrics_(options_.served_names.empty() ? "" : options_.served_names[0]),
      history_(kHistoryMax),
      keys_(std::make_shared<const ApiKeys>(options_.keys)),
      store_(options_.store_bytes_max, options_.store_ttl_ns) {
  decode_options_.models.clear();
  for (const std::string& name : options_.served_names) decode_options_.models[name] = PromptVersion::kV41;
  decode_options_.limits = options_.request_limits;
  options_.http.limits.body_bytes_max = options_.request_limits.body_bytes_max;
  options_.http.gate = [this](const HttpRequest& head) { return gate(head); };
  if (options_.fetches_images) options_.num_preparers = std::max(options_.num_preparers, kFetchingPreparers);
  started_s_ = clock.unix_ns() / 1'000'000'000;
}

Status Service::check(const ServiceOptions& options) {
  if (options.served_names.empty()) return invalid_argument("expected at least one served name");
  if (is_loopback(options.http.host) || !options.keys.empty() || options.allows_open) return {};
  return invalid_argument("refusing to listen on " + options.http.host +
                          " without API keys: give --api-keys FILE, or --no-auth if everybody who can reach this "
                          "address may use the model");
}

Result<std::unique_ptr<Service>> Service::start(LoadedModel model, ServiceOptions options, const Clock& clock) {
  TRY(check(options));  // before the model takes its time
  ASSIGN_OR_RETURN(auto inference,
                   Inference::open(std::move(model), options.target, options.num_threads, options.limits, clock));
  return start(std::move(inference), std::move(options), clock);
}

Result<std::unique_ptr<Service>> Service::start(std::unique_ptr<Inference> inference, ServiceOptions options,
                                                const Clock& clock) {
  TRY(check(options));
  std::unique_ptr<Service> service(new Service(std::move(options), clock));
  TRY(service->open(std::move(inference)));
  return service;
}

Status Service::open(std::unique_ptr<Inference> inference) {
  inference_ = std::move(inference);
  if (!options_.otlp_endpoint.empty()) {
    ASSIGN_OR_RETURN(spans_, SpanExporter::start({.endpoint = options_.otlp_endpoint,
                                                  .service_version = options_.version,
                                                  .model = options_.served_names[0],
                                                  .send = nullptr}));
  }
  TRY(inference_->start());
  surroundings_.reset(new AnswerSurroundings{inference_->loop(), inference_->preparer().vocabulary(), metrics_, clock_,
                                             options_.revision, options_.keep_alive_ns, options_.replay});
  queue_ = std::make_unique<WorkQueue>(options_.num_preparers, kWaitingRequestsMax);
  ASSIGN_OR_RETURN(server_, HttpServer::start(
                                options_.http,
                                [this](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
                                  handle(std::move(request), std::move(exchange));
                                },
                                clock_));
  if (options_.admin_port < 0) return {};
  HttpServerOptions admin = options_.http;
  admin.port = options_.admin_port;
  admin.num_threads = 1;
  admin.connections_max = 64;
  admin.limits.body_bytes_max = 1 << 16;
  ASSIGN_OR_RETURN(admin_, HttpServer::start(
                               admin,
                               [this](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
                                 handle_admin(std::move(request), std::move(exchange));
                               },
                               clock_));
  return {};
}

Service::~Service() { stop(); }

void Service::drain() {
  draining_ = true;
  server_->drain();
}

bool Service::is_drained() const { return server_->is_drained(); }

void Service::stop() {
  draining_ = true;
  // Producers first: nothing may be posted to a connection whose thread has ended.
  if (queue_) queue_->stop();
  if (inference_) inference_->stop();
  if (server_) server_->stop();
  if (admin_) admin_->stop();
}

const Service::Route* Service::find_route(const std::string& method, const std::string& path, std::string& rest,
                                          bool& path_known) const {
  for (const Route& route : kRoutes) {
    const std::string_view pattern = route.path;
    const bool takes_rest = pattern.size() > 1 && pattern.ends_with('/');
    if (takes_rest ? !(path.starts_with(pattern) && path.size() > pattern.size()) : path != pattern) continue;
    path_known = true;
    if (method != route.method && !(method == "HEAD" && std::string_view(route.method) == "GET")) continue;
    rest = takes_rest ? path.substr(pattern.size()) : "";
    return &route;
  }
  return nullptr;
}

void Service::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  auto call = std::make_shared<Call>();
  bool path_known = false;
  request.path = canonical_path(request.path);
  call->route = find_route(request.method, request.path, call->rest, path_known);
  call->ticket = std::make_shared<RequestTicket>(request, call->route ? call->route->path : "other", clock_,
                                                 RequestObservers{metrics_, history_, spans_.get()});
  call->request = std::move(request);
  call->exchange = std::move(exchange);
  if (is_welcome_origin(call->request)) {
    call->ticket->add_field("Access-Control-Allow-Origin", std::string(call->request.field("Origin")));
    call->ticket->add_field("Access-Control-Expose-Headers", "x-request-id, x-explain, Retry-After");
    call->ticket->add_field("Vary", "Origin");
    if (call->request.method == "OPTIONS") return preflight(*call);
  }
  if (call->route == nullptr) {
    if (!path_known) return refuse(*call, request_error(404, "There is nothing at this path."));
    return call->ticket->reply(
        *call->exchange, 405,
        openai_error_body(request_error(405, "This path does not take the method " + call->request.method), false),
        "application/json", {{"Allow", allowed_methods(call->request.path)}});
  }
  if (!authorize(*call, call->route->open)) return;
  (this->*call->route->handler)(std::move(call));
}

std::string Service::allowed_methods(const std::string& path) const {
  std::string all, rest;
  for (const char* method : {"GET", "POST", "DELETE"}) {
    bool known = false;
    if (find_route(method, path, rest, known)) all += (all.empty() ? "" : ", ") + std::string(method);
    if (all == "GET") all = "GET, HEAD";
  }
  return all;
}

bool Service::is_welcome_origin(const HttpRequest& request) const {
  const std::string_view origin = request.field("Origin");
  return !origin.empty() && std::ranges::find(options_.cors_origins, origin) != options_.cors_origins.end();
}

// What a browser asks before a page's request: which methods and fields are taken.
void Service::preflight(Call& call) const {
  HttpResponse response{204, call.ticket->fields(), ""};
  response.fields.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE");
  response.fields.emplace_back(
      "Access-Control-Allow-Headers",
      "authorization, content-type, x-api-key, x-request-id, x-explain, x-kv-class, x-kv-pin, traceparent, "
      "anthropic-version, anthropic-beta, openai-organization, openai-project");
  response.fields.emplace_back("Access-Control-Max-Age", "600");
  call.exchange->respond(std::move(response));
  call.ticket->end(204);
}

// A page from elsewhere, open in the user's browser, must not use a service that trusts this machine: neither by
// sending requests across origins nor by a name that its DNS points here.
bool Service::is_foreign_page(const HttpRequest& request) const {
  const std::string_view host = request.field("Host"), origin = request.field("Origin");
  if (is_loopback(options_.http.host) && !is_loopback(std::string(host_name(host)))) return true;
  if (is_welcome_origin(request)) return false;
  const size_t scheme = origin.find("://");
  return !origin.empty() && (scheme == std::string_view::npos || origin.substr(scheme + 3) != host);
}

Refusal Service::authorize(const HttpRequest& request, bool open, std::shared_ptr<const ApiKey>& key) const {
  const std::shared_ptr<const ApiKeys> keys = std::atomic_load(&keys_);
  if (keys->empty()) {
    if (!is_foreign_page(request)) return {};
    return request_error(403,
                         "Without API keys this service answers only pages and programs of this machine, by an address "
                         "of this machine. For others start it with --api-keys FILE, for a page of another origin with "
                         "--cors-origin ORIGIN.");
  }
  const ApiKey* found = keys->find(presented_key(request));
  if (found) key = std::shared_ptr<const ApiKey>(keys, found);
  if (key || open) return {};
  return request_error(401, "Authentication failed: expected a valid API key.");
}

bool Service::authorize(Call& call, bool open) {
  std::shared_ptr<const ApiKey> key;
  const Refusal refusal = authorize(call.request, open, key);
  call.ticket->set_key(std::move(key));
  if (refusal) refuse(call, *refusal);
  return !refusal;
}

// Nobody who may not use the service makes it hold a large body.
std::optional<HttpResponse> Service::gate(const HttpRequest& head) const {
  std::shared_ptr<const ApiKey> key;
  const Refusal refusal = authorize(head, false, key);
  if (!refusal) return {};
  HttpResponse response{
      refusal->http_status, {{"Content-Type", "application/json"}}, openai_error_body(*refusal, false)};
  if (refusal->http_status == 401) response.fields.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

Status Service::reload(ApiKeys keys) {
  if (keys.empty() && !std::atomic_load(&keys_)->empty())
    return invalid_argument("the keys were not read: no key is left");
  std::atomic_store(&keys_, std::make_shared<const ApiKeys>(std::move(keys)));
  TRY(server_->reload_tls());
  return admin_ ? admin_->reload_tls() : Status();
}

void Service::refuse(Call& call, const RequestError& error) {
  const Codec* codec = call.route && call.route->codec ? find_codec(call.route->codec) : nullptr;
  call.ticket->reply(*call.exchange, error.http_status,
                     codec ? codec->error(error, false) : openai_error_body(error, false));
}

void Service::enqueue(std::shared_ptr<Call> call, std::function<void()> work) {
  if (draining_) return refuse(*call, request_error(503, "The server is stopping."));
  if (const Refusal limited = call->ticket->enter(gate_)) return refuse(*call, *limited);
  if (!queue_->push(std::move(work))) refuse(*call, request_error(503, "The server is busy. Please try again later."));
}

// By its own key, or by a key of the file that is marked so. Without either the port answers this machine alone.
bool Service::is_admin(const Call& call) const {
  if (!options_.admin_key.empty() && equals_in_constant_time(presented_key(call.request), options_.admin_key))
    return true;
  if (call.ticket->key()) return call.ticket->key()->is_admin;
  return options_.admin_key.empty() && std::atomic_load(&keys_)->empty() && !is_foreign_page(call.request);
}

void Service::handle_admin(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  auto call = std::make_shared<Call>();
  bool path_known = false;
  const Route* route = find_route(request.method, request.path, call->rest, path_known);
  const AdminAction* action = nullptr;
  for (const AdminAction& one : kAdminActions)
    if (request.method == "POST" && request.path == one.path) action = &one;
  call->route = route && route->is_admin ? route : nullptr;
  call->ticket = std::make_shared<RequestTicket>(request, action ? action->path : (call->route ? route->path : "other"),
                                                 clock_, RequestObservers{metrics_, history_, spans_.get()});
  call->request = std::move(request);
  call->exchange = std::move(exchange);
  call->is_admin_port = true;
  if (!call->route || !call->route->open) {
    std::shared_ptr<const ApiKey> key;
    (void)authorize(call->request, true, key);
    const bool was_presented = !presented_key(call->request).empty();
    call->ticket->set_key(std::move(key));
    if (!is_admin(*call))
      return refuse(*call, was_presented ? request_error(403, "This key may not use the admin port.")
                                         : request_error(401, "The admin port expects its key."));
  }
  if (action) return (this->*action->handler)(std::move(call));
  if (call->route == nullptr) return refuse(*call, request_error(404, "There is nothing at this path."));
  (this->*call->route->handler)(std::move(call));
}

}  // namespace deepinfer
