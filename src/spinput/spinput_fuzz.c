// Whatever the bytes: preprocessing gives a status, or buffers that the reader
// takes and that hold what was put in; the reader alone, on buffers of any
// bytes, never leaves them.
#include <stdio.h>
#include <stdlib.h>

#include "spinput/spinput.h"

typedef struct cursor {
  const uint8_t *p;
  size_t n;
} cursor;

// The next value below `below`, of as many bytes as that needs; 0 at the end of
// the input.
static uint32_t take(cursor *c, uint32_t below) {
  uint32_t v = 0;
  for (uint32_t reach = 1; reach < below && c->n; reach <<= 8) {
    v = v << 8 | *c->p++;
    c->n--;
    if (reach > UINT32_MAX >> 8) break;
  }
  return below ? v % below : v;
}

enum { MOST = 256, ROOM = 1 << 15 };

// Counts elements.
static at_status add(void *arg, const at_spinput_part *p) {
  *(int64_t *)arg += p->end - p->begin;
  return AT_OK;
}

// Nothing may be lost that is not counted as dropped.
static void check(const at_spinput_options *o, const at_spinput_out *out,
                  const at_spinput_batch *b, int32_t minibatches) {
  at_spinput_coo c = {.row_pointers = out->row_pointers,
                      .embedding_ids = out->embedding_ids,
                      .sample_ids = out->sample_ids,
                      .gains = out->gains,
                      .rows = out->rows_per_device,
                      .coo = out->coo_per_device,
                      .cores = o->global_devices * o->cores_per_device,
                      .cores_per_device = o->cores_per_device,
                      .minibatches = minibatches,
                      .minibatching = o->minibatching,
                      .samples_per_core = b->samples / o->cores_per_device,
                      .rows_per_core = INT32_MAX};
  int64_t elements = 0, merged = 0;
  // A gain may be NaN when weights sum to 0; ids and samples are checked below.
  if (at_code_take(at_spinput_read(&c, "t", false, add, &elements))) abort();
  for (int32_t i = 0; i < o->cores_per_device; i++) merged += out->required[i];
  if (elements > merged || elements + out->dropped > MOST) abort();
}

// A stack of one feature, any form of a batch.
static void preprocess(at_pool *pool, cursor c) {
  at_spinput_options o = {.local_devices = 1,
                          .global_devices = 1 << take(&c, 3),
                          .cores_per_device = 1 << take(&c, 3),
                          .allow_dropping = (int32_t)take(&c, 2),
                          .minibatching = (int32_t)take(&c, 2),
                          .split = (int32_t)take(&c, 2),
                          .max_ids_per_sample = (int32_t)take(&c, 20)};
  int64_t samples = take(&c, 17), width = take(&c, 9);
  at_spinput_feature f = {.name = "f",
                          .table = "t",
                          .vocabulary = 1 + take(&c, 300),
                          .col_shift = (int32_t)take(&c, 4),
                          .col_offset = (int32_t)take(&c, 3) * 16};
  at_spinput_stack k = {.name = "s",
                        .features = &f,
                        .feature_count = 1,
                        .combiner = (int32_t)take(&c, 3),
                        .max_ids = 1 + (int32_t)take(&c, 40),
                        .max_unique = 1 + (int32_t)take(&c, 40),
                        .coo_per_device = (int32_t)take(&c, 3) * 64};
  int32_t ids[MOST];
  int64_t wide[MOST], index[2 * MOST];
  float weights[MOST];
  at_spinput_row rows[MOST];
  int64_t nnz = AT_MIN(samples * width, MOST);
  at_spinput_batch b = {.form = (int32_t)take(&c, 6),
                        .id_bytes = take(&c, 2) ? 4 : 8,
                        .samples = samples,
                        .width = width,
                        .nnz = nnz,
                        .index = index,
                        .rows = rows};
  if (take(&c, 2)) b.weights = weights;
  uint32_t odd = take(&c, 2);  // ids and indices that are wrong
  for (int i = 0; i < MOST; i++) {
    wide[i] = ids[i] =
        (int32_t)take(&c, (uint32_t)f.vocabulary) - (odd && !take(&c, 64));
    weights[i] = (float)take(&c, 8) / 4;
    index[2 * i] = i < nnz && width ? i / width : 0;
    index[2 * i + 1] = width ? i % width : 0;
    rows[i] = (at_spinput_row){
        b.id_bytes == 4 ? (void *)(ids + i) : (void *)(wide + i),
        take(&c, (uint32_t)AT_MIN(9, MOST - i) + 1)};
  }
  if (b.form == AT_SPINPUT_RAGGED || b.form == AT_SPINPUT_COO)
    for (int i = 0; i < MOST; i++)
      index[i] = b.form == AT_SPINPUT_COO
                     ? (int64_t)take(&c, (uint32_t)samples + 1) - odd
                     : AT_MIN(i * width + take(&c, 2), nnz);
  if (b.form == AT_SPINPUT_DENSE) b.samples = AT_MIN(samples, MOST / 9);
  int64_t total = 0;
  for (int64_t i = 0; i < samples && b.form == AT_SPINPUT_ROWS; i++)
    total += rows[i].len;
  if (total > MOST) return;
  b.ids = b.id_bytes == 4 ? (void *)ids : (void *)wide;
  at_spinput_sizes z;
  if (at_code_take(at_spinput_sizes_of(&o, &k, &z)) ||
      z.coo_per_device > ROOM || z.rows_per_device > ROOM)
    return;
  // Exactly as large as said, so that a sanitizer sees a step too far.
  at_spinput_out out = {.rows_per_device = z.rows_per_device,
                        .coo_per_device = z.coo_per_device,
                        .row_pointers = malloc((size_t)z.rows_per_device * 4),
                        .embedding_ids = malloc((size_t)z.coo_per_device * 4),
                        .sample_ids = malloc((size_t)z.coo_per_device * 4),
                        .gains = malloc((size_t)z.coo_per_device * 4),
                        .required = malloc((size_t)o.cores_per_device * 4)};
  int32_t minibatches;
  if (!at_code_take(at_spinput_run(pool, &o, &k, 1, &b, 1, &out, &minibatches)))
    check(&o, &out, &b, minibatches);
  free(out.row_pointers);
  free(out.embedding_ids);
  free(out.sample_ids);
  free(out.gains);
  free(out.required);
}

// Buffers of any contents, just as long as they say.
static void read_back(cursor c) {
  at_spinput_coo b = {.cores = (int32_t)take(&c, 20),
                      .cores_per_device = (int32_t)take(&c, 9),
                      .minibatches = (int32_t)take(&c, 70),
                      .minibatching = take(&c, 2),
                      .samples_per_core = take(&c, 20),
                      .rows_per_core = take(&c, 300)};
  b.rows = take(&c, 2000);
  b.coo = (int64_t)take(&c, 500) - 1;
  size_t rows = (size_t)b.rows, coo = (size_t)AT_MAX(b.coo, 0);
  int32_t *pointers = malloc(rows * 4 + 1), *ids = malloc(coo * 4 + 1),
          *samples = malloc(coo * 4 + 1);
  float *gains = malloc(coo * 4 + 1);
  int32_t at = 0;
  for (size_t i = 0; i < rows; i++)
    pointers[i] = at = at + (int32_t)take(&c, 9) - !take(&c, 40);
  for (size_t i = 0; i < coo; i++) {
    ids[i] = (int32_t)take(&c, 300) - 1;
    samples[i] = (int32_t)take(&c, 20);
    gains[i] = (float)take(&c, 4);
  }
  b.row_pointers = pointers;
  b.embedding_ids = ids;
  b.sample_ids = samples;
  b.gains = gains;
  int64_t elements = 0;
  if (!at_code_take(at_spinput_read(&b, "t", true, add, &elements)) &&
      (elements < 0 || elements > b.coo))
    abort();
  free(pointers);
  free(ids);
  free(samples);
  free(gains);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static at_pool *pool;
  if (!pool && at_code_take(at_pool_create(1, &pool))) return 0;
  if (!size) return 0;
  cursor c = {data + 1, size - 1};
  if (data[0] & 1)
    read_back(c);
  else
    preprocess(pool, c);
  return 0;
}
