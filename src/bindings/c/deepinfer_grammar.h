// SPDX-License-Identifier: MIT
/* Grammars of answers from C: which token ids may come next. Part of the codec's library; errors, ownership and limits
 * as in deepinfer_codec.h, symbol version DEEPINFER_CODEC_2. */
#pragma once

#include "deepinfer_codec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct deepinfer_grammar deepinfer_grammar;
typedef struct deepinfer_matcher deepinfer_matcher;

/* What an answer must be, for backends that take masks of allowed tokens. A grammar may be used by any number of
 * threads; a matcher belongs to one at a time. `settings`: a JSON object with one of "json_schema" (the schema),
 * "regex", "ebnf" (GBNF, rule "root") and "choice" (a list of texts); and optionally "any_order" (members in any order,
 * default false: as in the schema), "white_space" (between the parts of JSON, default true), "lenient" (accept what
 * cannot be decided exactly, default false), "after_thinking" (the answer follows reasoning that the prompt has opened,
 * default false). Errors: unimplemented names the keyword and its path; resource_exhausted the limit. */
deepinfer_code deepinfer_grammar_new(const deepinfer_tokenizer* tokenizer, const char* settings, size_t size,
                                     deepinfer_grammar** out, deepinfer_error* error);
/* What a request asks of its answer: format, strict tools, tool choice, reasoning first. NULL when it asks nothing. */
deepinfer_code deepinfer_grammar_for_request(const deepinfer_request* request, deepinfer_grammar** out,
                                             deepinfer_error* error);
void deepinfer_grammar_free(deepinfer_grammar* grammar);
/* 32-bit words of a row of bits: bit id % 32 of word id / 32 is set when the id may come next. */
size_t deepinfer_grammar_num_words(const deepinfer_grammar* grammar);

/* The way of one answer through a grammar, which it keeps alive. */
deepinfer_code deepinfer_matcher_new(const deepinfer_grammar* grammar, deepinfer_matcher** out, deepinfer_error* error);
deepinfer_code deepinfer_matcher_fork(const deepinfer_matcher* matcher, deepinfer_matcher** out,
                                      deepinfer_error* error);
void deepinfer_matcher_free(deepinfer_matcher* matcher);
/* Goes on with the ids up to the first that is not allowed; how many were taken. The end of sentence ends the answer.
 */
deepinfer_code deepinfer_matcher_accept(deepinfer_matcher* matcher, const int32_t* ids, size_t num_ids,
                                        size_t* num_accepted, deepinfer_error* error);
deepinfer_code deepinfer_matcher_rollback(deepinfer_matcher* matcher, size_t num_ids, deepinfer_error* error);
/* Row i of `words` gets what may follow the accepted ids and the first i drafts, up to the first draft that is not
 * allowed; num_rows counts them. `words` has room for num_drafts + 1 rows. */
deepinfer_code deepinfer_matcher_fill_masks(const deepinfer_matcher* matcher, const int32_t* drafts, size_t num_drafts,
                                            uint32_t* words, size_t num_words, size_t* num_rows,
                                            deepinfer_error* error);
int32_t deepinfer_matcher_may_end(const deepinfer_matcher* matcher);
int32_t deepinfer_matcher_has_ended(const deepinfer_matcher* matcher);
/* Ids that certainly come next. */
deepinfer_code deepinfer_matcher_forced_ids(const deepinfer_matcher* matcher, deepinfer_ids* out,
                                            deepinfer_error* error);

#ifdef __cplusplus
}
#endif
