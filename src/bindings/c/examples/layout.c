/* SPDX-License-Identifier: MIT
 * Prints what a compiled caller relies on besides the symbols: sizes, offsets and values. scripts/check_abi compares
 * the lines with abi.txt. */
#include <stddef.h>
#include <stdio.h>

#include "deepinfer_codec.h"

#define STRUCT(type) printf("struct %s %zu\n", #type, sizeof(type))
#define MEMBER(type, name) printf("member %s.%s %zu\n", #type, #name, offsetof(type, name))
#define VALUE(name) printf("value %s %lld\n", #name, (long long)(name))

static void print_structs(void) {
  STRUCT(deepinfer_error);
  MEMBER(deepinfer_error, code);
  MEMBER(deepinfer_error, message);
  STRUCT(deepinfer_view);
  MEMBER(deepinfer_view, size);
  STRUCT(deepinfer_text);
  MEMBER(deepinfer_text, size);
  STRUCT(deepinfer_id_view);
  MEMBER(deepinfer_id_view, size);
  STRUCT(deepinfer_ids);
  MEMBER(deepinfer_ids, size);
  STRUCT(deepinfer_usage);
  MEMBER(deepinfer_usage, prompt_tokens);
  MEMBER(deepinfer_usage, cached_tokens);
  MEMBER(deepinfer_usage, output_tokens);
  MEMBER(deepinfer_usage, reasoning_tokens);
  STRUCT(deepinfer_position_logprobs);
  MEMBER(deepinfer_position_logprobs, logprob);
  MEMBER(deepinfer_position_logprobs, top_ids);
  MEMBER(deepinfer_position_logprobs, top_logprobs);
  MEMBER(deepinfer_position_logprobs, num_top);
}

int main(void) {
  print_structs();
  STRUCT(deepinfer_code);
  STRUCT(deepinfer_finish);
  VALUE(DEEPINFER_CODEC_ABI);
  VALUE(DEEPINFER_TEXT_BYTES_MAX);
  VALUE(DEEPINFER_SETTINGS_BYTES_MAX);
  VALUE(DEEPINFER_IDS_MAX);
  VALUE(DEEPINFER_TOP_LOGPROBS_MAX);
  VALUE(DEEPINFER_OK);
  VALUE(DEEPINFER_INVALID_ARGUMENT);
  VALUE(DEEPINFER_NOT_FOUND);
  VALUE(DEEPINFER_CORRUPTION);
  VALUE(DEEPINFER_RESOURCE_EXHAUSTED);
  VALUE(DEEPINFER_UNAVAILABLE);
  VALUE(DEEPINFER_UNIMPLEMENTED);
  VALUE(DEEPINFER_INTERNAL);
  VALUE(DEEPINFER_REFUSED);
  VALUE(DEEPINFER_FINISH_STOP);
  VALUE(DEEPINFER_FINISH_LENGTH);
  VALUE(DEEPINFER_FINISH_CONTENT_FILTER);
  VALUE(DEEPINFER_FINISH_NONE);
  return 0;
}
