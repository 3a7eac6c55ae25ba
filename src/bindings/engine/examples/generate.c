/* SPDX-License-Identifier: MIT
 * Answers every line of standard input: a Chat Completions body each, or {"prompt": "text"}. One result a line on
 * standard output, in the order in which they end. Usage: engine_example_generate [SETTINGS] < requests.jsonl */
#include <stdio.h>
#include <string.h>

#include "deepinfer_engine.h"

static int failed(deepinfer_code code, const deepinfer_error* error) {
  if (code != DEEPINFER_OK) fprintf(stderr, "error %d: %s\n", (int)code, error->message);
  return code != DEEPINFER_OK;
}

int main(int argc, char** argv) {
  static char line[1 << 20];
  const char* settings = argc > 1 ? argv[1] : "";
  deepinfer_error error = {0, ""};
  deepinfer_engine* engine = NULL;
  if (failed(deepinfer_engine_open(settings, strlen(settings), &engine, &error), &error)) return 1;
  while (fgets(line, sizeof line, stdin) != NULL) {
    uint64_t id;
    if (failed(deepinfer_engine_submit(engine, line, strlen(line), &id, &error), &error)) break;
  }
  for (int32_t is_running = 1; is_running;) {
    if (failed(deepinfer_engine_step(engine, &is_running, &error), &error)) break;
    for (int32_t has_result = 1; has_result;) {
      deepinfer_text result;
      if (failed(deepinfer_engine_take(engine, &result, &has_result, &error), &error)) break;
      if (has_result) printf("%s\n", result.data);
      deepinfer_engine_text_free(&result);
    }
  }
  deepinfer_engine_free(engine);
  return error.code != DEEPINFER_OK;
}
