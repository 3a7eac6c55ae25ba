// SPDX-License-Identifier: MIT
// Routes that generate nothing: health, metrics, models, tokenizer, stored responses, console.
#include <fmt/format.h>

#include <ctime>

#include "base/log.h"
#include "serve/console_files.h"
#include "serve/openapi.h"
#include "serve/request_error_of.h"
#include "serve/service_call.h"
#include "serve/service_store.h"

namespace deepinfer {
namespace {

constexpr size_t kTokensMax = 1 << 20;
constexpr const char* kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string utc_time(int64_t unix_s) {
  const std::time_t seconds = static_cast<std::time_t>(unix_s);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

}  // namespace

void Service::live(std::shared_ptr<Call> call) { call->ticket->reply(*call->exchange, 200, "{\"status\":\"live\"}"); }

void Service::ready(std::shared_ptr<Call> call) {
  if (const Status broken = failure(); !broken.ok())
    return call->ticket->reply(*call->exchange, 503, "{\"status\":\"failed\"}");
  if (draining_) return call->ticket->reply(*call->exchange, 503, "{\"status\":\"draining\"}");
  call->ticket->reply(*call->exchange, 200, "{\"status\":\"ready\"}");
}

void Service::metrics(std::shared_ptr<Call> call) {
  std::string text = metrics_.text(snapshot(), server_->counts());
  if (options_.limits.store) text += store_metrics(options_.limits.store->blocks());
  call->ticket->reply(*call->exchange, 200, text, "text/plain; version=0.0.4; charset=utf-8");
}

void Service::openapi(std::shared_ptr<Call> call) {
  std::vector<ApiOperation> operations;
  for (const Route& route : routes())
    if (route.operation) operations.push_back({route.method, route.path, route.operation, route.open, route.codec});
  call->ticket->reply(*call->exchange, 200,
                      to_json(openapi_document(operations, options_.version, options_.served_names)));
}

void Service::start_drain(std::shared_ptr<Call> call) {
  drain();
  call->ticket->reply(*call->exchange, 200, "{\"draining\":true}");
}

// Writing the file of salts waits for a disk: on a preparer's thread.
void Service::forget_owner(std::shared_ptr<Call> call) {
  enqueue(call, [this, call] {
    Json request;
    bool was_there = false;
    const auto forget = [&]() -> Refusal {
      if (Refusal refusal = read_json_body(*call, request)) return refusal;
      const Json* const owner = request.find("owner");
      if (!owner || !owner->is_string()) return request_error(400, "expected the name of a key", "owner");
      if (!options_.limits.store) return request_error(404, "This service has no store.");
      const auto forgotten = options_.limits.store->forget(owner->as_string());
      if (!forgotten.ok()) return request_error_of(forgotten.status());
      was_there = forgotten.value();
      return {};
    };
    Refusal refusal = forget();
    if (!refusal && !was_there) refusal = request_error(404, "Nothing is stored of this owner.", "owner");
    call->exchange->post([this, call, refusal] {
      if (refusal) return refuse(*call, *refusal);
      call->ticket->reply(*call->exchange, 200, "{\"forgotten\":true}");
    });
  });
}

// Everybody's for the admin port and where there are no keys; a key sees its own.
void Service::recent_requests(std::shared_ptr<Call> call) {
  const bool sees_all = call->is_admin_port || !call->ticket->key();
  call->ticket->reply(*call->exchange, 200,
                      to_json(history_.list(call->ticket->owner(), sees_all, clock_.monotonic_ns())));
}

// OpenAI's members and Anthropic's in one object: the clients of both read theirs.
Json Service::model_entry(const std::string& name) const {
  return Json::Object{{"id", name},
                      {"object", "model"},
                      {"created", started_s_},
                      {"owned_by", "deepinfer"},
                      {"max_model_len", inference_->preparer().context_max()},
                      {"type", "model"},
                      {"display_name", name},
                      {"created_at", utc_time(started_s_)}};
}

void Service::models(std::shared_ptr<Call> call) {
  Json::Array entries;
  for (const std::string& name : options_.served_names) entries.push_back(model_entry(name));
  const Json list = Json::Object{{"object", "list"},
                                 {"data", std::move(entries)},
                                 {"has_more", false},
                                 {"first_id", options_.served_names.front()},
                                 {"last_id", options_.served_names.back()}};
  call->ticket->reply(*call->exchange, 200, to_json(list));
}

void Service::model(std::shared_ptr<Call> call) {
  if (!decode_options_.models.contains(call->rest))
    return refuse(*call, request_error(404, "The model '" + call->rest + "' does not exist."));
  call->ticket->reply(*call->exchange, 200, to_json(model_entry(call->rest)));
}

Refusal Service::read_json_body(Call& call, Json& out) {
  auto body = body_of(call);
  if (!body.ok()) return request_error_of(body.status());
  JsonLimits limits;
  limits.bytes_max = options_.request_limits.body_bytes_max;
  auto json = parse_json(*body, limits);
  if (!json.ok()) return request_error(400, "The body is not JSON: " + json.status().message());
  if (!json->is_object()) return request_error(400, "expected a JSON object");
  out = std::move(json).value();
  return {};
}

void Service::tokenize(std::shared_ptr<Call> call) {
  enqueue(call, [this, call] {
    Json request;
    std::vector<TokenId> tokens;
    const auto read = [&]() -> Refusal {
      if (Refusal refusal = read_json_body(*call, request)) return refusal;
      if (request.find("messages")) {
        if (!request.find("model")) request.set("model", options_.served_names[0]);
        DecodedRequest decoded;
        if (Refusal refusal = find_codec("chat")->decode(to_json(request), decode_options_, decoded)) return refusal;
        auto encoded = inference_->preparer().encode(decoded.chat.conversation, decoded.chat.version);
        if (!encoded.ok()) return request_error_of(encoded.status());
        tokens = std::move(encoded).value();
        return {};
      }
      const Json* prompt = request.find("prompt");
      if (!prompt || !prompt->is_string()) return request_error(400, "expected \"prompt\" or \"messages\"", "prompt");
      const Json* special = request.find("add_special_tokens");
      if (!special || !special->is_bool() || special->as_bool()) tokens.push_back(inference_->config().bos_token_id);
      inference_->preparer().tokenizer().encode(prompt->as_string(), tokens);
      return {};
    };
    const Refusal refusal = read();
    const Json answer = Json::Object{{"count", static_cast<int64_t>(tokens.size())},
                                     {"max_model_len", inference_->preparer().context_max()},
                                     {"tokens", Json::Array(tokens.begin(), tokens.end())}};
    call->exchange->post([this, call, refusal, body = to_json(answer)] {
      if (refusal) return refuse(*call, *refusal);
      call->ticket->reply(*call->exchange, 200, body);
    });
  });
}

void Service::detokenize(std::shared_ptr<Call> call) {
  enqueue(call, [this, call] {
    Json request;
    std::vector<TokenId> ids;
    const auto read = [&]() -> Refusal {
      if (Refusal refusal = read_json_body(*call, request)) return refusal;
      const Json* tokens = request.find("tokens");
      if (!tokens || !tokens->is_array() || tokens->as_array().size() > kTokensMax)
        return request_error(400, "expected an array of token ids", "tokens");
      for (const Json& id : tokens->as_array()) {
        if (!id.is_integer() || id.as_uint() >= static_cast<uint64_t>(inference_->preparer().tokenizer().vocab_size()))
          return request_error(400, fmt::format("tokens[{}]: expected an id of the vocabulary", ids.size()), "tokens");
        ids.push_back(static_cast<TokenId>(id.as_uint()));
      }
      return {};
    };
    const Refusal refusal = read();
    const Json answer = Json::Object{{"prompt", inference_->preparer().tokenizer().decode(ids)}};
    call->exchange->post([this, call, refusal, body = to_json(answer)] {
      if (refusal) return refuse(*call, *refusal);
      call->ticket->reply(*call->exchange, 200, body);
    });
  });
}

void Service::stored_response(std::shared_ptr<Call> call) {
  const auto body = store_.body(call->rest, call->ticket->owner(), clock_.monotonic_ns());
  if (!body) return refuse(*call, request_error(404, "Response with id '" + call->rest + "' not found."));
  call->ticket->reply(*call->exchange, 200, *body);
}

void Service::delete_response(std::shared_ptr<Call> call) {
  if (!store_.erase(call->rest, call->ticket->owner(), clock_.monotonic_ns()))
    return refuse(*call, request_error(404, "Response with id '" + call->rest + "' not found."));
  const Json deleted = Json::Object{{"id", call->rest}, {"object", "response"}, {"deleted", true}};
  call->ticket->reply(*call->exchange, 200, to_json(deleted));
}

void Service::console(std::shared_ptr<Call> call) {
  for (const ConsoleFile& file : console_files()) {
    if (!options_.has_console || file.path != call->request.path) continue;
    HttpResponse response{200, call->ticket->fields(), std::string(file.bytes)};
    response.fields.emplace_back("Content-Type", file.content_type);
    response.fields.emplace_back("Content-Security-Policy", kContentSecurityPolicy);
    response.fields.emplace_back("X-Content-Type-Options", "nosniff");
    response.fields.emplace_back("Referrer-Policy", "no-referrer");
    response.fields.emplace_back("Cache-Control", "no-cache");
    call->exchange->respond(std::move(response));
    return call->ticket->end(200);
  }
  refuse(*call, request_error(404, "There is nothing at this path."));
}

}  // namespace deepinfer
