// SPDX-License-Identifier: MIT
// Routes that run the model: from a body on a preparer's thread to an Answer on the connection's.
#include <fmt/format.h>

#include <utility>

#include "base/entropy.h"
#include "protocol/error_body.h"
#include "protocol/text_completions.h"
#include "serve/image_sources.h"
#include "serve/request_error_of.h"
#include "serve/service_call.h"
#include "serve/service_store.h"

namespace deepinfer {
namespace {

const char* id_prefix(Protocol protocol) {
  switch (protocol) {
    case Protocol::kResponses: return "resp_";
    case Protocol::kMessages: return "msg_";
    default: return "chatcmpl-";
  }
}

bool has_instructions(const ResponseContext& response) {
  const Json* instructions = response.echo.find("instructions");
  return instructions && instructions->is_string() && !instructions->as_string().empty();
}

// Agents come back within hours, chats within days (serving.md 9.9). A client says which it is; of one that does not,
// tools to call tell an agent.
Refusal choose_ttl_class(const HttpRequest& request, const ChatRequest& chat, TtlClass& ttl_class) {
  const std::string_view asked = request.field("x-kv-class");
  if (!asked.empty() && asked != "agent" && asked != "chat")
    return request_error(400, fmt::format("x-kv-class: expected agent or chat, found \"{}\"", asked));
  ttl_class =
      asked == "agent" || (asked.empty() && !chat.conversation.tools.empty()) ? TtlClass::kAgent : TtlClass::kChat;
  return {};
}

// System prompts that must not run out: for keys that may, and where there are none.
Refusal choose_pins(const HttpRequest& request, const ApiKey* key, std::optional<bool>& pins) {
  const std::string_view asked = request.field("x-kv-pin");
  if (asked.empty()) return {};
  if (asked != "on" && asked != "off")
    return request_error(400, fmt::format("x-kv-pin: expected on or off, found \"{}\"", asked));
  if (key && !key->may_pin && !key->is_admin) return request_error(403, "This key may not pin prompts.");
  pins = asked == "on";
  return {};
}

}  // namespace

Result<std::string> Service::body_of(Call& call) {
  auto body = decoded_body(std::move(call.request), options_.request_limits.body_bytes_max);
  call.request.charge.release();
  return body;
}

Refusal Service::check_key_context(const Call& call, const PreparedRequest& request) const {
  const ApiKey* key = call.ticket->key();
  const int64_t num_tokens = static_cast<int64_t>(request.tokens.size());
  if (!key || key->context_tokens == 0 || num_tokens <= key->context_tokens) return {};
  return request_error(400,
                       fmt::format("The prompt has {} tokens; this key allows {}.", num_tokens, key->context_tokens));
}

Refusal Service::read_images(const Call& call, Conversation& conversation) const {
  if (!options_.fetches_images) return {};
  return fetch_images(conversation, options_.image_fetch, options_.request_limits,
                      {{"traceparent", call.ticket->trace().traceparent()}});
}

// Puts the turns of the response that this one continues before its own; instructions do not carry over.
Refusal Service::continue_stored(const Call& call, const DecodedRequest& decoded, ChatRequest& chat) {
  if (!chat.previous_response_id) return {};
  auto earlier = store_.messages(*chat.previous_response_id, call.ticket->owner(), clock_.monotonic_ns());
  if (!earlier)
    return request_error(400, "Previous response with id '" + *chat.previous_response_id + "' not found.",
                         "previous_response_id");
  for (Message& message : *earlier) {
    if (message.role != Role::kAssistant) continue;
    if (!chat.conversation.thinking) message.reasoning.reset();
    else if (!message.reasoning) message.reasoning = "";
  }
  std::vector<Message>& messages = chat.conversation.messages;
  const auto at = messages.begin() + (has_instructions(decoded.response) && !messages.empty() ? 1 : 0);
  messages.insert(at, std::make_move_iterator(earlier->begin()), std::make_move_iterator(earlier->end()));
  return {};
}

std::string Service::tenant_of(const Call& call, const std::string& user) { return call.ticket->owner() + '\0' + user; }

RequestPreparer::Asker Service::asker_of(const Call& call, const std::string& user) {
  return {tenant_of(call, user), [gone = call.is_gone] { return !*gone; }};
}

Refusal Service::prepare_chat(Call& call, const std::string& body, AnswerSetup& setup) {
  const Codec* codec = find_codec(call.route->codec);
  DecodedRequest decoded;
  if (Refusal refusal = codec->decode(body, decode_options_, decoded)) return refusal;
  REFUSE_IF(read_images(call, decoded.chat.conversation));
  if (Refusal refusal = continue_stored(call, decoded, decoded.chat)) return refusal;
  // The object says what will be: with no room for any response none is stored.
  bool& stores = decoded.response.stores;
  stores = stores && options_.store_bytes_max > 0 && options_.store_ttl_ns > 0;
  ResponseIdentity identity{.id = id_prefix(codec->protocol) + entropy_hex(12),
                            .model = decoded.chat.model,
                            .created_s = clock_.unix_ns() / 1'000'000'000,
                            .num_choices = decoded.chat.inference.n};
  std::vector<Message> turns;
  if (stores) {
    turns = decoded.chat.conversation.messages;
    if (has_instructions(decoded.response) && !turns.empty()) turns.erase(turns.begin());
  }
  const RequestPreparer::Asker asker = asker_of(call, decoded.chat.user);
  if (Refusal refusal = inference_->preparer().prepare(std::move(decoded.chat), setup.request, asker)) return refusal;
  setup.encoder = codec->encode(decoded.response, identity);
  setup.stream = setup.request.chat.stream;
  setup.keeps_reply = stores;
  if (stores)
    setup.on_end = [this, id = identity.id, turns = std::move(turns), owner = call.ticket->owner()](
                       const AnswerOutcome& outcome) { keep_response(owner, id, turns, outcome); };
  return {};
}

void Service::keep_response(const std::string& owner, const std::string& id, std::vector<Message> turns,
                            const AnswerOutcome& outcome) {
  if (outcome.http_status != 200) return;
  turns.push_back(outcome.message);
  store_.put({id, owner, outcome.body, std::move(turns)}, clock_.monotonic_ns());
}

Refusal Service::prepare_text(Call& call, const std::string& body, AnswerSetup& setup) {
  TextCompletionRequest text;
  RequestPreparer& preparer = inference_->preparer();
  if (Refusal refusal = decode_text_completion(body, decode_options_, inference_->config().vocab_size, text))
    return refusal;
  const ResponseIdentity identity{.id = "cmpl-" + entropy_hex(12),
                                  .model = text.chat.model,
                                  .created_s = clock_.unix_ns() / 1'000'000'000,
                                  .num_choices = text.chat.inference.n};
  std::vector<TokenId> tokens;
  if (text.tokens) tokens = *text.tokens;
  else if (Refusal refusal = raw_prompt(text.prompt, text.suffix, tokens)) return refusal;
  if (tokens.empty()) return request_error(400, "expected a prompt with at least one token", "prompt");
  for (const TokenId id : tokens)
    if (id == inference_->config().image_token_id)
      return request_error(400, "image placeholders need an image; use /v1/chat/completions", "prompt");
  std::string echo;
  if (text.echo) echo = text.tokens ? inference_->preparer().tokenizer().decode(tokens) : text.prompt;
  setup.encoder = make_text_completions_encoder(text.response, identity, std::move(echo));
  setup.stream = text.chat.stream;
  const RequestPreparer::Asker asker = asker_of(call, text.chat.user);
  return preparer.prepare_tokens(std::move(text.chat), std::move(tokens), setup.request, asker);
}

// Text stays text: no spelling in it becomes a control token. With a suffix the model fills the hole between.
Refusal Service::raw_prompt(const std::string& prompt, const std::optional<std::string>& suffix,
                            std::vector<TokenId>& out) const {
  const Tokenizer& tokenizer = inference_->preparer().tokenizer();
  out.push_back(inference_->config().bos_token_id);
  if (!suffix) {
    tokenizer.encode(prompt, out);
    return {};
  }
  const auto begin = tokenizer.find_control("<｜fim▁begin｜>"), hole = tokenizer.find_control("<｜fim▁hole｜>"),
             end = tokenizer.find_control("<｜fim▁end｜>");
  if (!begin || !hole || !end)
    return request_error(400, "This model's tokenizer has no fill-in-the-middle tokens.", "suffix");
  out.push_back(*begin);
  tokenizer.encode(prompt, out);
  out.push_back(*hole);
  tokenizer.encode(*suffix, out);
  out.push_back(*end);
  return {};
}

void Service::run(std::shared_ptr<Call> call, Preparation prepare) {
  const std::string explains(call->request.field("x-explain"));
  call->exchange->on_close([gone = call->is_gone] { *gone = true; });
  enqueue(call, [this, call, prepare, explains] {
    auto setup = std::make_shared<AnswerSetup>();
    Refusal refusal;
    auto body = body_of(*call);
    if (body.ok()) refusal = (this->*prepare)(*call, *body, *setup);
    else
      refusal =
          body.status().code() == StatusCode::kResourceExhausted
              ? request_error(413, "The body is larger than this server takes.")
              : request_error(body.status().code() == StatusCode::kUnimplemented ? 415 : 400, body.status().message());
    if (!refusal) refusal = check_key_context(*call, setup->request);
    if (!refusal) refusal = choose_ttl_class(call->request, setup->request.chat, setup->ttl_class);
    if (!refusal) refusal = choose_pins(call->request, call->ticket->key(), setup->pins);
    setup->explains = !explains.empty();
    setup->explains_tokens = explains == "tokens";
    call->exchange->post([this, call, setup, refusal] {
      if (refusal) return refuse(*call, *refusal);
      if (call->exchange->is_open()) begin_answer(call, std::move(*setup));
    });
  });
}

void Service::begin_answer(const std::shared_ptr<Call>& call, AnswerSetup setup) {
  const Codec* codec = call->route->codec ? find_codec(call->route->codec) : nullptr;
  setup.error_body = codec ? codec->error : &openai_error_body;
  setup.fields = call->ticket->fields();
  call->ticket->begin_generation();
  const std::string& user = setup.request.chat.user;
  ServiceStore* const store = options_.limits.store;
  TenantSalt tenant{.salt = tenant_of(*call, user)};
  if (store) tenant = store->salt_of(call->ticket->owner(), user);
  setup.tenant_salt = std::move(tenant.salt);
  setup.tenant_was_deleted = tenant.was_deleted;
  auto stored = std::move(setup.on_end);
  setup.on_end = [ticket = call->ticket, stored = std::move(stored)](const AnswerOutcome& outcome) {
    if (stored) stored(outcome);
    ticket->end(outcome.http_status, {.finish = outcome.finish,
                                      .num_prompt_tokens = static_cast<int64_t>(outcome.usage.num_prompt_tokens),
                                      .num_cached_tokens = static_cast<int64_t>(outcome.usage.num_cached_tokens),
                                      .num_output_tokens = static_cast<int64_t>(outcome.usage.num_output_tokens),
                                      .sequence = outcome.sequence});
  };
  std::make_shared<Answer>(*surroundings_, call->exchange, std::move(setup))->begin();
}

void Service::generate(std::shared_ptr<Call> call) { run(std::move(call), &Service::prepare_chat); }
void Service::complete_text(std::shared_ptr<Call> call) { run(std::move(call), &Service::prepare_text); }

void Service::count_tokens(std::shared_ptr<Call> call) {
  enqueue(call, [this, call] {
    uint64_t num_tokens = 0;
    Refusal refusal;
    auto body = body_of(*call);
    DecodedRequest decoded;
    if (!body.ok()) refusal = request_error_of(body.status());
    if (!refusal) refusal = find_codec("messages")->decode(*body, decode_options_, decoded);
    if (!refusal) refusal = read_images(*call, decoded.chat.conversation);
    if (!refusal)
      refusal = inference_->preparer().count_tokens(decoded.chat.conversation, decoded.chat.version, num_tokens);
    call->exchange->post([this, call, refusal, num_tokens] {
      if (refusal) return refuse(*call, *refusal);
      call->ticket->reply(*call->exchange, 200, fmt::format("{{\"input_tokens\":{}}}", num_tokens));
    });
  });
}

}  // namespace deepinfer
