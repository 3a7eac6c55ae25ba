// SPDX-License-Identifier: MIT
/* The engine of DeepInfer from C: a model in the caller's process that answers many requests at once. Requests and
 * results are JSON; steps run on the calling thread. C11, and C++. Types, errors and ownership are those of
 * deepinfer_codec.h; the two libraries do not need each other.
 *
 *   open -> submit any number -> step until nothing runs, take what has ended -> free
 *
 * Threads     A handle belongs to one thread at a time; the engine's own threads work inside a call.
 * Texts       A deepinfer_text that a function fills is freed by deepinfer_engine_text_free.
 * Limits      Bodies: DEEPINFER_TEXT_BYTES_MAX bytes and the limits of the protocol; settings:
 *             DEEPINFER_SETTINGS_BYTES_MAX. A request beyond a limit has a result that names it.
 * Stability   Symbols carry the version DEEPINFER_ENGINE_1. Within it nothing is removed or changed; functions and JSON
 *             members may be added. */
#pragma once

#include "deepinfer_codec.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DEEPINFER_ENGINE_ABI 1

typedef struct deepinfer_engine deepinfer_engine;

typedef struct deepinfer_engine_figures { /* of everything submitted so far */
  uint64_t requests;
  uint64_t done;
  uint64_t prompt_tokens;
  uint64_t output_tokens;
} deepinfer_engine_figures;

/* The library's ABI number (DEEPINFER_ENGINE_ABI of its build) and its release, "0.1.0". */
int32_t deepinfer_engine_abi(void);
const char* deepinfer_engine_version(void);
void deepinfer_engine_text_free(deepinfer_text* text); /* and empties it */

/* `settings`: a JSON object or nothing. Members, all optional:
 *   "model"           checkpoint folder, or "mini", the small model inside the library (default)
 *   "threads"         compute threads (default: one per usable CPU)
 *   "sequences"       running at once (default 8)
 *   "context"         tokens of a prompt with its answer (default: the model's, at most 32768)
 *   "kv_tokens"       tokens of KV kept for running and cached sequences
 *   "host_kv_tokens"  tokens of KV kept in host memory beyond that (default 0)
 *   "drafts"          propose tokens with the draft head (default true); changes the speed, never the tokens
 *   "replay"          "fast" | "exact" | "off": how a prefix hit is continued (default "fast")
 *   "seed"            of requests that bring none (default 0)
 *   "expert_memory"   "all" | "free" | GB as text ("24"): memory for routed experts; the others are read from the
 *                     model's files when a token needs them (default "all": a model that does not fit is refused)
 * A member of another name is an error. */
deepinfer_code deepinfer_engine_open(const char* settings, size_t size, deepinfer_engine** out, deepinfer_error* error);
void deepinfer_engine_free(deepinfer_engine* engine);
/* {"vocab_size", "context", "sequences", "kv_tokens", "threads", "memory_bytes", "takes_images", "kernels"} */
deepinfer_code deepinfer_engine_describe(const deepinfer_engine* engine, deepinfer_text* out, deepinfer_error* error);

/* A Chat Completions body ("model" may be left out), or the same members with "prompt" (plain text) or
 * "prompt_token_ids" in place of "messages". A body that cannot run is no error of this call: its result says why. */
deepinfer_code deepinfer_engine_submit(deepinfer_engine* engine, const char* body, size_t size, uint64_t* id,
                                       deepinfer_error* error);
/* Ends a request with what there is of it; ids that are not running are ignored. */
deepinfer_code deepinfer_engine_cancel(deepinfer_engine* engine, uint64_t id, deepinfer_error* error);
/* One step. *is_running: whether a request is left. After an error the engine is of no more use. */
deepinfer_code deepinfer_engine_step(deepinfer_engine* engine, int32_t* is_running, deepinfer_error* error);
/* The next result, in the order in which requests end; *has_result is 0 (and `out` empty) when there is none.
 * {"id", "prompt_token_ids", "cached_tokens", "choices": [{"index", "token_ids", "text", "reasoning_content",
 * "tool_calls", "finish_reason": "stop" | "length" | "tool_calls" | "abort", "logprobs": [{"token_id", "logprob",
 * "top":
 * [{"token_id", "logprob"}]}], "explain"}]}, or {"id", "error", "param"}. */
deepinfer_code deepinfer_engine_take(deepinfer_engine* engine, deepinfer_text* out, int32_t* has_result,
                                     deepinfer_error* error);
deepinfer_engine_figures deepinfer_engine_progress(const deepinfer_engine* engine);

#ifdef __cplusplus
}
#endif
