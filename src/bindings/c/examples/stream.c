/* SPDX-License-Identifier: MIT
 * Output tokens to the events of a Chat Completions stream, as a server would send them.
 * Usage: codec_example_stream TOKENIZER */
#include <stdio.h>
#include <string.h>

#include "deepinfer_codec.h"

static const char kBody[] =
    "{\"model\":\"DeepSeek-V4.1-Flash\",\"stream\":true,\"thinking\":{\"type\":\"disabled\"},"
    "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}";
static const char kAnswer[] = "Hello, world! \xF0\x9F\xA6\x80";

static void send(const deepinfer_stream *stream) {
  for (size_t i = 0; i < deepinfer_stream_num_events(stream); ++i) {
    const char *name = deepinfer_stream_event_name(stream, i);
    const deepinfer_view data = deepinfer_stream_event_data(stream, i);
    if (name != NULL) printf("event: %s\n", name);
    printf("data: %.*s\n\n", (int)data.size, data.data);
  }
}

static int answer(const deepinfer_tokenizer *tokenizer, deepinfer_stream *stream, deepinfer_error *error) {
  deepinfer_ids ids = {NULL, 0}; /* stands for what a model would produce */
  deepinfer_code code = deepinfer_tokenizer_encode(tokenizer, kAnswer, strlen(kAnswer), 0, &ids, error);
  if (code == DEEPINFER_OK) code = deepinfer_stream_push_prompt(stream, 12, 0, NULL, 0, error);
  send(stream);
  for (size_t i = 0; code == DEEPINFER_OK && i < ids.size; ++i) {
    code = deepinfer_stream_push_ids(stream, 0, &ids.data[i], 1, NULL, error);
    send(stream);
    if (deepinfer_stream_is_finished(stream, 0)) break;
  }
  deepinfer_ids_free(&ids);
  if (code == DEEPINFER_OK) code = deepinfer_stream_finish(stream, 0, DEEPINFER_FINISH_STOP, error);
  send(stream);
  const deepinfer_view terminator = deepinfer_stream_terminator(stream);
  if (terminator.size > 0) printf("data: %.*s\n\n", (int)terminator.size, terminator.data);
  deepinfer_text reply = {NULL, 0};
  if (code == DEEPINFER_OK) code = deepinfer_stream_final(stream, &reply, error);
  if (code == DEEPINFER_OK) printf("%s\n", reply.data);
  deepinfer_text_free(&reply);
  return code;
}

int main(int argc, char **argv) {
  deepinfer_error error;
  memset(&error, 0, sizeof error);
  deepinfer_tokenizer *tokenizer = NULL;
  deepinfer_codec *codec = NULL;
  deepinfer_request *request = NULL;
  deepinfer_stream *stream = NULL;
  if (argc != 2) return 2;
  int code = deepinfer_tokenizer_load(argv[1], &tokenizer, &error);
  if (code == DEEPINFER_OK) code = deepinfer_codec_new(tokenizer, NULL, 0, &codec, &error);
  if (code == DEEPINFER_OK) code = deepinfer_request_decode(codec, "chat", kBody, strlen(kBody), &request, &error);
  if (code == DEEPINFER_OK) code = deepinfer_stream_new(request, NULL, 0, &stream, &error);
  if (code == DEEPINFER_OK) code = answer(tokenizer, stream, &error);
  if (code != DEEPINFER_OK) fprintf(stderr, "%s: %s\n", deepinfer_code_name(code), error.message);
  deepinfer_stream_free(stream);
  deepinfer_request_free(request);
  deepinfer_codec_free(codec);
  deepinfer_tokenizer_free(tokenizer);
  return code == DEEPINFER_OK ? 0 : 1;
}
