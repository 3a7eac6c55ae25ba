/* SPDX-License-Identifier: MIT
 * llama.cpp's matrix-vector products, one thread: its own row kernels (ggml_vec_dot_mxfp4_q8_0, ggml_vec_dot_q8_0_q8_0)
 * over weights larger than the caches, the activation quantised to Q8_0 once a product, as its graph does for one row.
 * Prints one JSON object a line: {"peer", "dtype", "n", "k", "seconds", "bytes"}. Usage: llama_matvec N K COUNT [...] */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ggml.h"
#define GGML_COMMON_DECL_C
#include "ggml-common.h"
#include "ggml-impl.h"

/* What the row kernels look up; in the library ggml_cpu_init() fills them. */
float ggml_table_f32_f16[1 << 16];
float ggml_table_f32_e8m0_half[1 << 8];
void ggml_abort(const char* file, int line, const char* format, ...) {
  fprintf(stderr, "%s:%d: %s\n", file, line, format);
  abort();
}

void ggml_vec_dot_mxfp4_q8_0(int n, float* s, size_t bs, const void* x, size_t bx, const void* y, size_t by, int nrc);
void ggml_vec_dot_q8_0_q8_0(int n, float* s, size_t bs, const void* x, size_t bx, const void* y, size_t by, int nrc);
void quantize_row_q8_0(const float* x, void* y, int64_t k);

typedef void (*dot_fn)(int, float*, size_t, const void*, size_t, const void*, size_t, int);

static double cpu_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

static void run(const char* name, size_t block_bytes, dot_fn dot, long n, long k, long count) {
  const size_t row = block_bytes * (size_t)(k / 32), bytes = row * (size_t)n;
  unsigned char* weights = aligned_alloc(64, (bytes * (size_t)count + 63) / 64 * 64);
  for (size_t i = 0; i < bytes * (size_t)count; ++i) weights[i] = (unsigned char)(100 + i * 2654435761u % 20);
  float *x = malloc(sizeof(float) * (size_t)k), *y = malloc(sizeof(float) * (size_t)n);
  void* quantised = malloc(sizeof(block_q8_0) * (size_t)(k / 32));
  for (long i = 0; i < k; ++i) x[i] = (float)(i % 17) * 0.1f - 0.8f;
  double seconds[6];
  for (int turn = 0; turn < 6; ++turn) {
    const double begin = cpu_seconds();
    for (long m = 0; m < count; ++m) {
      quantize_row_q8_0(x, quantised, k);
      for (long o = 0; o < n; ++o)
        dot((int)k, y + o, 0, weights + (size_t)m * bytes + (size_t)o * row, 0, quantised, 0, 1);
    }
    seconds[turn] = (cpu_seconds() - begin) / (double)count;
  }
  qsort(seconds + 1, 5, sizeof(double), compare);
  printf("{\"peer\": \"llama.cpp\", \"dtype\": \"%s\", \"n\": %ld, \"k\": %ld, \"seconds\": %.9g, \"bytes\": %zu}\n", name,
         n, k, seconds[3], bytes);
  free(weights);
  free(x);
  free(y);
  free(quantised);
}

int main(int count, char** values) {
  for (int i = 0; i < 1 << 16; ++i) ggml_table_f32_f16[i] = GGML_COMPUTE_FP16_TO_FP32((ggml_fp16_t)i);
  for (int i = 0; i < 1 << 8; ++i) ggml_table_f32_e8m0_half[i] = GGML_E8M0_TO_FP32_HALF(i);
  for (int i = 1; i + 2 < count; i += 3) {
    const long n = atol(values[i]), k = atol(values[i + 1]), sets = atol(values[i + 2]);
    run("mxfp4", sizeof(block_mxfp4), ggml_vec_dot_mxfp4_q8_0, n, k, sets);
    run("q8_0", sizeof(block_q8_0), ggml_vec_dot_q8_0_q8_0, n, k, sets);
  }
  return 0;
}
