// SPDX-License-Identifier: MIT
/* The codec of DeepInfer from C: text to token ids and back, API requests of three protocols to prompts and ids, output
 * tokens to the events and the reply of a protocol. Needs no model and no engine. C11, and C++.
 *
 * Errors      Functions that can fail return a deepinfer_code and, when `error` is not NULL, fill it. On an error every
 *             output is left empty (NULL handle, zero size). No call throws, exits or prints.
 * Ownership   A handle from *_new, *_load or *_decode is the caller's and is freed by the matching *_free (NULL is
 *             fine). deepinfer_text and deepinfer_ids that a function fills are the caller's and are freed by
 *             deepinfer_text_free and deepinfer_ids_free. A deepinfer_view or const char* that is returned is the
 *             handle's and lives until the next call that takes this handle as non-const, or until it is freed.
 *             Inputs are read during the call only. Handles keep what they need alive: a tokenizer may be freed
 *             while codecs made from it live on.
 * Threads     Tokenizers, codecs and requests never change: any number of threads may use one at once (and
 * one frees it, when no other uses it). A detokenizer and a stream belong to one thread at a time. Text        UTF-8
 * with a length; no terminating zero is read. A deepinfer_text has one after its `size` bytes, a deepinfer_view has
 * none. Data that is NULL is fine where the size is 0. Limits      Every input has one (constants below; those of
 * requests are settings); beyond it: DEEPINFER_RESOURCE_EXHAUSTED or, for requests, a refusal that names field and
 * limit. Stability   Symbols carry the version DEEPINFER_CODEC_1. Within it nothing is removed or changed; enumerators
 * and structs keep their values and layouts; functions and JSON members may be added. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DEEPINFER_CODEC_ABI 1

/* Bytes of text per call, bytes of settings, ids per call, alternatives per position. */
#define DEEPINFER_TEXT_BYTES_MAX ((size_t)1 << 29)
#define DEEPINFER_SETTINGS_BYTES_MAX ((size_t)1 << 20)
#define DEEPINFER_IDS_MAX ((size_t)1 << 27)
#define DEEPINFER_TOP_LOGPROBS_MAX ((size_t)1024)

typedef enum deepinfer_code {
  DEEPINFER_OK = 0,
  DEEPINFER_INVALID_ARGUMENT = 1,
  DEEPINFER_NOT_FOUND = 2,
  DEEPINFER_CORRUPTION = 3,
  DEEPINFER_RESOURCE_EXHAUSTED = 4,
  DEEPINFER_UNAVAILABLE = 5,
  DEEPINFER_UNIMPLEMENTED = 6,
  DEEPINFER_INTERNAL = 7,
  DEEPINFER_REFUSED = 8 /* the request was read and is refused; the request's JSON and error body say why */
} deepinfer_code;

typedef struct deepinfer_error {
  int32_t code;      /* deepinfer_code */
  char message[508]; /* what was expected, what came, where; zero-terminated, cut at a whole code point */
} deepinfer_error;

typedef struct deepinfer_view { /* borrowed */
  const char* data;
  size_t size;
} deepinfer_view;
typedef struct deepinfer_text { /* owned */
  char* data;
  size_t size;
} deepinfer_text;
typedef struct deepinfer_id_view { /* borrowed */
  const int32_t* data;
  size_t size;
} deepinfer_id_view;
typedef struct deepinfer_ids { /* owned */
  int32_t* data;
  size_t size;
} deepinfer_ids;

typedef struct deepinfer_tokenizer deepinfer_tokenizer;
typedef struct deepinfer_detokenizer deepinfer_detokenizer;
typedef struct deepinfer_codec deepinfer_codec;
typedef struct deepinfer_request deepinfer_request;
typedef struct deepinfer_stream deepinfer_stream;

/* The library's ABI number (DEEPINFER_CODEC_ABI of its build) and its release, "0.1.0". */
int32_t deepinfer_codec_abi(void);
const char* deepinfer_codec_version(void);
/* "invalid_argument", ...; "unknown" for other numbers. */
const char* deepinfer_code_name(int32_t code);
void deepinfer_text_free(deepinfer_text* text); /* and empties it */
void deepinfer_ids_free(deepinfer_ids* ids);    /* and empties it */

/* ---- Tokenizer ---- */

/* A tokenizer.json, the same as .json.gz, or a checkpoint folder that holds one of them. */
deepinfer_code deepinfer_tokenizer_load(const char* path, deepinfer_tokenizer** out, deepinfer_error* error);
deepinfer_code deepinfer_tokenizer_from_json(const char* json, size_t size, deepinfer_tokenizer** out,
                                             deepinfer_error* error);
void deepinfer_tokenizer_free(deepinfer_tokenizer* tokenizer);
/* All ids are in [0, vocab_size). */
int64_t deepinfer_tokenizer_vocab_size(const deepinfer_tokenizer* tokenizer);
/* Whether the id is a control (added) token: plain text never encodes to one. 0 for other ids. */
int32_t deepinfer_tokenizer_is_control(const deepinfer_tokenizer* tokenizer, int32_t id);
/* The id of the control token of that spelling, -1 when there is none. */
int32_t deepinfer_tokenizer_find_control(const deepinfer_tokenizer* tokenizer, const char* spelling, size_t size);
/* The bytes of a token, not always whole UTF-8; empty for ids outside the vocabulary. Lives as the tokenizer does. */
deepinfer_view deepinfer_tokenizer_token_bytes(const deepinfer_tokenizer* tokenizer, int32_t id);
/* Plain text: "<think>" gives the ids of ordinary text. with_added != 0: added tokens are matched first; for texts
 * written by the caller only, never for what users or tools wrote. */
deepinfer_code deepinfer_tokenizer_encode(const deepinfer_tokenizer* tokenizer, const char* text, size_t size,
                                          int32_t with_added, deepinfer_ids* out, deepinfer_error* error);
/* Control tokens by their spelling, invalid UTF-8 as U+FFFD; ids outside the vocabulary are an error. */
deepinfer_code deepinfer_tokenizer_decode(const deepinfer_tokenizer* tokenizer, const int32_t* ids, size_t num_ids,
                                          deepinfer_text* out, deepinfer_error* error);

/* Ids to text as they come: whole code points, each with the id that completes it; the pieces joined equal decode of
 * all ids. Ids outside the vocabulary give nothing. finish ends the text (an incomplete code point becomes U+FFFD);
 * the object can then be used again. The view is valid until the next call. */
deepinfer_code deepinfer_detokenizer_new(const deepinfer_tokenizer* tokenizer, deepinfer_detokenizer** out,
                                         deepinfer_error* error);
void deepinfer_detokenizer_free(deepinfer_detokenizer* detokenizer);
deepinfer_code deepinfer_detokenizer_push(deepinfer_detokenizer* detokenizer, const int32_t* ids, size_t num_ids,
                                          deepinfer_view* out, deepinfer_error* error);
deepinfer_code deepinfer_detokenizer_finish(deepinfer_detokenizer* detokenizer, deepinfer_view* out,
                                            deepinfer_error* error);

/* ---- Requests ---- */

/* `settings`: a JSON object or nothing. Members, all optional:
 *   "compat"         "none" | "recipe": accepts, refuses, samples and answers as deepseek-recipe 0.2.0
 *   "options"        as a line of `deepinfer encode` has them: default_thinking_mode, reasoning_content_behavior
 *                    ("FillEmpty" | "Reject"), responses_web_search, messages_web_search ("Drop" | "Reject"),
 *                    thinking_max_tokens_upper_bound, non_thinking_max_tokens_upper_bound, model_alias {name: "v4" |
 *                    "v41"}
 *   "models"         {name: "v4" | "v41"}: the whole table of accepted names
 *   "context_limit"  tokens, for "resolved" (default 1048576)
 *   "limits"         body_bytes, depth, messages, tools, tool_schema_bytes, images, image_bytes, images_total_bytes, n
 * A member of another name is an error. Errors: not_found when the tokenizer lacks a control token. */
deepinfer_code deepinfer_codec_new(const deepinfer_tokenizer* tokenizer, const char* settings, size_t size,
                                   deepinfer_codec** out, deepinfer_error* error);
void deepinfer_codec_free(deepinfer_codec* codec);

/* Reads the body of a request. `protocol`: "chat", "responses" or "messages". On DEEPINFER_REFUSED there is a request
 * too, which holds the refusal: its ids and prompt are empty and it makes no stream. */
deepinfer_code deepinfer_request_decode(const deepinfer_codec* codec, const char* protocol, const char* body,
                                        size_t size, deepinfer_request** out, deepinfer_error* error);
void deepinfer_request_free(deepinfer_request* request);
/* The HTTP status of the answer: 200, or that of the refusal; and the refusal's body in the protocol's form (empty when
 * the request is accepted). */
int32_t deepinfer_request_http_status(const deepinfer_request* request);
deepinfer_view deepinfer_request_error_body(const deepinfer_request* request);
deepinfer_id_view deepinfer_request_ids(const deepinfer_request* request);
deepinfer_view deepinfer_request_prompt(const deepinfer_request* request);
deepinfer_view deepinfer_request_model(const deepinfer_request* request); /* the name the client used */
/* Prompt, ids and settings as `deepinfer encode` gives them under "result"; {"error": {...}} when refused. */
deepinfer_code deepinfer_request_json(const deepinfer_request* request, deepinfer_text* out, deepinfer_error* error);
/* The conversation behind a request, and a request made of a conversation, without the checks of a protocol: what a
 * caller builds is what the prompt shows. JSON: {"messages": [{"role": "system" | "user" | "assistant" | "tool" |
 * "latest_reminder", "content", "images": [{"offset": bytes into content, "kind": "data_url" | "url" | "bytes",
 * "detail", "path", "value"}], "reasoning", "tool_calls": [{"id", "name", "arguments"}], "tool_call_id", "prefix",
 * "tools", "task", "without_end"}], "thinking", "effort": "low" | "high" | "xhigh" | "max", "effort_percent", "tools":
 * [{"name", "description", "parameters", "strict", "defer_loading"}], "tool_choice": "auto" | "none" | "required",
 * "response_format": {"kind": "text" | "json_object" | "json_schema" | "regex", "schema", "regex"}}. All members are
 * optional; the bytes of an image are left out. Limits: body_bytes, depth, messages, tools, images. `version`: "v4" or
 * "v41". `protocol` is that of its streams. */
deepinfer_code deepinfer_request_conversation(const deepinfer_request* request, deepinfer_text* out,
                                              deepinfer_error* error);
deepinfer_code deepinfer_request_from_conversation(const deepinfer_codec* codec, const char* protocol,
                                                   const char* version, const char* conversation, size_t size,
                                                   deepinfer_request** out, deepinfer_error* error);
/* The tokens an answer may have. `prompt_tokens` counts every image at its token count. Errors: invalid_argument, with
 * what the client is to read, when prompt and requested tokens exceed the context. */
deepinfer_code deepinfer_request_max_tokens(const deepinfer_request* request, uint64_t prompt_tokens,
                                            uint64_t context_limit, uint32_t* out, deepinfer_error* error);

/* ---- Answers ---- */

typedef enum deepinfer_finish {
  DEEPINFER_FINISH_STOP = 0,
  DEEPINFER_FINISH_LENGTH = 1,
  DEEPINFER_FINISH_CONTENT_FILTER = 2,
  DEEPINFER_FINISH_NONE = 3 /* the output ended and no reason is known */
} deepinfer_finish;

typedef struct deepinfer_usage {
  uint64_t prompt_tokens;
  uint64_t cached_tokens; /* of the prompt */
  uint64_t output_tokens;
  uint64_t reasoning_tokens; /* of the output */
} deepinfer_usage;

typedef struct deepinfer_position_logprobs {
  double logprob; /* of the id that was chosen */
  const int32_t* top_ids;
  const double* top_logprobs;
  size_t num_top;
} deepinfer_position_logprobs;

/* One answer. `settings`: a JSON object or nothing: "response_id" (default "resp-1"), "model" (default: the request's),
 * "created" (Unix seconds, default 0), "signature" (Messages), "call_id_seed" (default: from response_id), "parsing"
 * (members of the request's "parsing" that are to differ). A stream has as many choices as the request's n. */
deepinfer_code deepinfer_stream_new(const deepinfer_request* request, const char* settings, size_t size,
                                    deepinfer_stream** out, deepinfer_error* error);
void deepinfer_stream_free(deepinfer_stream* stream);

/* Each push replaces the events of the push before. Input after the end of a choice is ignored. After an error the
 * stream stands as before the call, but for a wrong number of log probabilities, which ends it without an event. */
/* What is known of the prompt; once, before any output. A NULL fingerprint is none. */
deepinfer_code deepinfer_stream_push_prompt(deepinfer_stream* stream, uint64_t prompt_tokens, uint64_t cached_tokens,
                                            const char* fingerprint, size_t size, deepinfer_error* error);
/* `logprobs` is NULL or has one entry for each id. Ids outside the vocabulary give nothing. */
deepinfer_code deepinfer_stream_push_ids(deepinfer_stream* stream, uint32_t choice, const int32_t* ids, size_t num_ids,
                                         const deepinfer_position_logprobs* logprobs, deepinfer_error* error);
/* Output of a backend that gives text; invalid UTF-8 becomes U+FFFD. */
deepinfer_code deepinfer_stream_push_text(deepinfer_stream* stream, uint32_t choice, const char* text, size_t size,
                                          uint64_t num_tokens, deepinfer_error* error);
deepinfer_code deepinfer_stream_finish(deepinfer_stream* stream, uint32_t choice, int32_t finish,
                                       deepinfer_error* error);
/* When the answer was complete, in Unix seconds (Responses): set before the finish. Default: the time of creation. */
deepinfer_code deepinfer_stream_set_completed(deepinfer_stream* stream, int64_t completed, deepinfer_error* error);
/* The answer failed after it began: the protocol's error event, after which nothing may follow. */
deepinfer_code deepinfer_stream_fail(deepinfer_stream* stream, int32_t http_status, const char* message, size_t size,
                                     deepinfer_error* error);

/* Events of the latest push: one JSON object each, and the SSE event name, NULL where the protocol has none. NULL and
 * an empty view beyond the last. */
size_t deepinfer_stream_num_events(const deepinfer_stream* stream);
const char* deepinfer_stream_event_name(const deepinfer_stream* stream, size_t event_idx);
deepinfer_view deepinfer_stream_event_data(const deepinfer_stream* stream, size_t event_idx);
/* Data of the frame after the last event ("[DONE]"); empty where the protocol has none. */
deepinfer_view deepinfer_stream_terminator(const deepinfer_stream* stream);

uint32_t deepinfer_stream_num_choices(const deepinfer_stream* stream);
/* 1: this choice has ended, the backend can stop. 1 for choices that do not exist. */
int32_t deepinfer_stream_is_finished(const deepinfer_stream* stream, uint32_t choice);
deepinfer_usage deepinfer_stream_usage(const deepinfer_stream* stream, uint32_t choice);
/* The reply that is not streamed: the accumulation of all events so far. */
deepinfer_code deepinfer_stream_final(const deepinfer_stream* stream, deepinfer_text* out, deepinfer_error* error);

#ifdef __cplusplus
}
#endif
