/* SPDX-License-Identifier: MIT
 * An API request to its prompt and token ids. Usage: codec_example_encode TOKENIZER PROTOCOL [SETTINGS] < BODY */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deepinfer_codec.h"

static int complain(const char *what, const deepinfer_error *error) {
  fprintf(stderr, "%s: %s: %s\n", what, deepinfer_code_name(error->code), error->message);
  return 1;
}

static char *read_all(FILE *file, size_t *size) {
  size_t room = 1 << 16;
  char *data = malloc(room);
  *size = 0;
  while (data != NULL) {
    const size_t count = fread(data + *size, 1, room - *size, file);
    if (count == 0) return data;
    *size += count;
    if (*size == room) {
      char *larger = realloc(data, room *= 2);
      if (larger == NULL) free(data);
      data = larger;
    }
  }
  return NULL;
}

static int encode(const deepinfer_codec *codec, const char *protocol) {
  deepinfer_error error;
  deepinfer_request *request = NULL;
  deepinfer_text json = {NULL, 0};
  size_t size = 0;
  char *body = read_all(stdin, &size);
  if (body == NULL) return 1;
  const deepinfer_code code = deepinfer_request_decode(codec, protocol, body, size, &request, &error);
  free(body);
  if (request == NULL) return complain("request", &error);
  if (code == DEEPINFER_REFUSED) { /* what a server would answer */
    const deepinfer_view answer = deepinfer_request_error_body(request);
    fprintf(stderr, "HTTP %d\n%.*s\n", (int)deepinfer_request_http_status(request), (int)answer.size, answer.data);
  } else { /* what an engine would be given: the ids, without JSON */
    fprintf(stderr, "%zu ids\n", deepinfer_request_ids(request).size);
  }
  if (deepinfer_request_json(request, &json, &error) == DEEPINFER_OK) printf("%s\n", json.data);
  deepinfer_text_free(&json);
  deepinfer_request_free(request);
  return 0;
}

int main(int argc, char **argv) {
  deepinfer_error error;
  deepinfer_tokenizer *tokenizer = NULL;
  deepinfer_codec *codec = NULL;
  if (argc < 3) {
    fprintf(stderr, "usage: %s TOKENIZER PROTOCOL [SETTINGS] < BODY\n", argv[0]);
    return 2;
  }
  if (deepinfer_codec_abi() != DEEPINFER_CODEC_ABI) {
    fprintf(stderr, "the library is of another ABI: %d\n", (int)deepinfer_codec_abi());
    return 2;
  }
  if (deepinfer_tokenizer_load(argv[1], &tokenizer, &error) != DEEPINFER_OK) return complain(argv[1], &error);
  const char *settings = argc > 3 ? argv[3] : "";
  const deepinfer_code code = deepinfer_codec_new(tokenizer, settings, strlen(settings), &codec, &error);
  deepinfer_tokenizer_free(tokenizer); /* the codec keeps what it needs */
  if (code != DEEPINFER_OK) return complain("codec", &error);
  const int status = encode(codec, argv[2]);
  deepinfer_codec_free(codec);
  return status;
}
