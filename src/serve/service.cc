// SPDX-License-Identifier: MIT
#include "serve/service.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "protocol/error_body.h"
#include "serve/request_error_of.h"
#include "serve/service_call.h"

namespace deepinfer {
namespace {

constexpr size_t kWaitingRequestsMax = 1024;

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
    {"POST", "/v1/chat/completions", &Service::generate, "chat"},
    {"POST", "/v1/responses", &Service::generate, "responses"},
    {"GET", "/v1/responses/", &Service::stored_response, "responses"},
    {"DELETE", "/v1/responses/", &Service::delete_response, "responses"},
    {"POST", "/v1/messages", &Service::generate, "messages"},
    {"POST", "/v1/messages/count_tokens", &Service::count_tokens, "messages"},
    {"POST", "/v1/completions", &Service::complete_text},
    {"GET", "/v1/models", &Service::models},
    {"GET", "/v1/models/", &Service::model},
    {"POST", "/tokenize", &Service::tokenize},
    {"POST", "/detokenize", &Service::detokenize},
    {"GET", "/health/live", &Service::live, nullptr, true, true},
    {"GET", "/health/ready", &Service::ready, nullptr, true, true},
    {"GET", "/health", &Service::ready, nullptr, true, true},
    {"GET", "/metrics", &Service::metrics, nullptr, false, true},
    {"GET", "/console.js", &Service::console, nullptr, true},
    {"GET", "/console.css", &Service::console, nullptr, true},
    {"GET", "/", &Service::console, nullptr, true},
};

Service::Service(ServiceOptions options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      metrics_(options_.served_names.empty() ? "" : options_.served_names[0]),
      store_(options_.store_bytes_max, options_.store_ttl_ns) {
  decode_options_.models.clear();
  for (const std::string& name : options_.served_names) decode_options_.models[name] = PromptVersion::kV41;
  decode_options_.limits = options_.request_limits;
  options_.http.limits.body_bytes_max = options_.request_limits.body_bytes_max;
  started_s_ = clock.unix_ns() / 1'000'000'000;
}

Result<std::unique_ptr<Service>> Service::start(LoadedModel model, ServiceOptions options, const Clock& clock) {
  if (options.served_names.empty()) return invalid_argument("expected at least one served name");
  if (!is_loopback(options.http.host) && options.keys.empty() && !options.allows_open)
    return invalid_argument("refusing to listen on " + options.http.host +
                            " without API keys: give --api-keys FILE, or --no-auth if everybody who can reach this "
                            "address may use the model");
  std::unique_ptr<Service> service(new Service(std::move(options), clock));
  TRY(service->open(std::move(model)));
  return service;
}

Status Service::open(LoadedModel model) {
  ASSIGN_OR_RETURN(inference_,
                   Inference::open(std::move(model), options_.target, options_.num_threads, options_.limits, clock_));
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
  call->ticket = std::make_shared<RequestTicket>(request, call->route ? call->route->path : "other", clock_, metrics_);
  call->request = std::move(request);
  call->exchange = std::move(exchange);
  if (call->route == nullptr) {
    return refuse(*call, path_known ? request_error(405, "This path does not take the method " + call->request.method)
                                    : request_error(404, "There is nothing at this path."));
  }
  if (!authorize(*call, call->route->open)) return;
  (this->*call->route->handler)(std::move(call));
}

// A page from elsewhere, open in the user's browser, must not use a service that trusts this machine: neither by
// sending requests across origins nor by a name that its DNS points here.
bool Service::is_foreign_page(const HttpRequest& request) const {
  const std::string_view host = request.field("Host"), origin = request.field("Origin");
  if (is_loopback(options_.http.host) && !is_loopback(std::string(host_name(host)))) return true;
  const size_t scheme = origin.find("://");
  return !origin.empty() && (scheme == std::string_view::npos || origin.substr(scheme + 3) != host);
}

bool Service::authorize(Call& call, bool open) {
  if (options_.keys.empty()) {
    if (!is_foreign_page(call.request)) return true;
    refuse(call, request_error(403, "Without API keys this service answers only pages and programs of this machine."));
    return false;
  }
  const ApiKey* key = options_.keys.find(presented_key(call.request));
  call.ticket->set_key(key);
  if (key || open) return true;
  refuse(call, request_error(401, "Authentication failed: expected a valid API key."));
  return false;
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

void Service::handle_admin(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  auto call = std::make_shared<Call>();
  bool path_known = false;
  const Route* route = find_route(request.method, request.path, call->rest, path_known);
  const bool drains = request.method == "POST" && request.path == "/admin/drain";
  call->route = route && route->is_admin ? route : nullptr;
  call->ticket = std::make_shared<RequestTicket>(
      request, drains ? "/admin/drain" : (call->route ? route->path : "other"), clock_, metrics_);
  call->request = std::move(request);
  call->exchange = std::move(exchange);
  if (!authorize(*call, call->route && call->route->open)) return;
  const bool needs_admin = !options_.keys.empty() && !(call->route && call->route->open);
  if (needs_admin && !call->ticket->key()->is_admin)
    return refuse(*call, request_error(403, "This key may not use the admin port."));
  if (drains) {
    drain();
    return call->ticket->reply(*call->exchange, 200, "{\"draining\":true}");
  }
  if (call->route == nullptr) return refuse(*call, request_error(404, "There is nothing at this path."));
  (this->*call->route->handler)(std::move(call));
}

}  // namespace deepinfer
