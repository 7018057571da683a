// Preprocessing by hand-made batches: order, merging, gains, padding,
// mini-batches, dropping; wrong inputs, each with its status; threads do not
// matter.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "spinput/objects.h"
#include "spinput/spinput.h"

// CAP: elements of each of the test's arrays.
enum { CAP = 4096, STACKS = 2 };

// One stack of one or two features with room for everything.
// Arrays are inside, so that a setup is made anew for each case by assignment.
typedef struct setup {
  at_spinput_options o;
  at_spinput_feature f[2];
  at_spinput_stack k;
  at_spinput_batch b[2];
  at_spinput_out out;
  int32_t pointers[CAP], ids[CAP], samples[CAP], max_ids[64], max_unique[64],
      required[16];
  float gains[CAP];
  int32_t minibatches;
} setup;

// Two threads; made before the tests.
static at_pool *g_pool;

// Two SparseCores on one device; samples {0: 1 4 1, 1: -, 2: 3, 3: 2 4}.
static const int32_t ids0[] = {1, 4, 1, 3, 2, 4};
static const int64_t splits0[] = {0, 3, 3, 4, 6};

// The batch above for either feature, on two SparseCores, with limits of 16.
static void standard(setup *s) {
  *s = (setup){
      .o = {.local_devices = 1, .global_devices = 1, .cores_per_device = 2}};
  for (int i = 0; i < 2; i++) {
    s->f[i] = (at_spinput_feature){.name = i ? "f1" : "f0",
                                   .table = "t",
                                   .vocabulary = 6,
                                   .input = i,
                                   .row_offset = 4 * i};
    s->b[i] = (at_spinput_batch){.form = AT_SPINPUT_RAGGED,
                                 .id_bytes = 4,
                                 .samples = 4,
                                 .nnz = 6,
                                 .ids = ids0,
                                 .index = splits0};
  }
  s->k = (at_spinput_stack){.name = "stack",
                            .features = s->f,
                            .feature_count = 1,
                            .max_ids = 16,
                            .max_unique = 16};
  s->out = (at_spinput_out){.row_pointers = s->pointers,
                            .embedding_ids = s->ids,
                            .sample_ids = s->samples,
                            .gains = s->gains,
                            .max_ids = s->max_ids,
                            .max_unique = s->max_unique,
                            .required = s->required};
}

// Preprocesses s->k with as much room as it says it needs.
// INTERNAL where the test itself is too small.
static at_status run(setup *s) {
  at_spinput_sizes z;
  AT_TRY(at_spinput_sizes_of(&s->o, &s->k, &z));
  if (z.coo_per_device > CAP || z.rows_per_device > CAP)
    return AT_FAIL(AT_INTERNAL, "the test's arrays are too small");
  s->out.rows_per_device = z.rows_per_device;
  s->out.coo_per_device = z.coo_per_device;
  return at_spinput_run(g_pool, &s->o, &s->k, 1, s->b, 2, &s->out,
                        &s->minibatches);
}

// Prints what went wrong. Takes st.
static void must(at_status st) {
  if (!at_ok(st)) print_error("%s\n", at_status_message(st));
  assert_int_equal(at_code_take(st), 0);
}

// Element by element.
// Partitions begin at multiples of eight; what is between them is padding.
static void ids_are_sorted_merged_and_padded(void **state) {
  setup s;
  standard(&s);
  must(run(&s));
  assert_int_equal(s.minibatches, 1);
  // Core 0: samples 0, 1. Owner 0: id 4 -> row 2; owner 1: id 1 twice -> row 0.
  int32_t slice = (int32_t)s.out.coo_per_device / 2;
  assert_int_equal(s.pointers[0], 1);
  assert_int_equal(s.pointers[1], 9);
  for (int g = 2; g < 8; g++) assert_int_equal(s.pointers[g], 16);
  assert_int_equal(s.ids[0], 2);
  assert_int_equal(s.ids[8], 0);
  assert_true(s.gains[0] == 1 && s.gains[8] == 2);
  assert_int_equal(s.samples[8], 0);
  for (int i = 1; i < 8; i++) {
    assert_int_equal(s.ids[i], AT_SPINPUT_PAD);
    assert_int_equal(s.samples[i], AT_SPINPUT_PAD);
    assert_true(isnan(s.gains[i]));
  }
  // Core 1: samples 2, 3: owner 0 has ids 2 and 4, both of sample 1 there.
  assert_int_equal(s.pointers[8], 2);
  assert_int_equal(s.pointers[9], 9);
  assert_int_equal(s.ids[slice], 1);
  assert_int_equal(s.ids[slice + 1], 2);
  assert_int_equal(s.samples[slice], 1);
  assert_int_equal(s.ids[slice + 8], 1);
  assert_int_equal(s.samples[slice + 8], 0);
  assert_int_equal(s.max_ids[0], 2);
  assert_int_equal(s.max_ids[1], 1);
  assert_int_equal(s.required[0], 16);
}

// With and without weights.
// By hand: sample 0 has ids 1, 4, 1 of weights 1, 3, 2.
static void combiners_divide(void **state) {
  static const float weights[] = {1, 3, 2, 5, 4, 3};
  static const struct {
    int combiner;
    bool weighted;
    float four, one;  // gains of ids 4 and 1 of sample 0
    // The two ids 1 are merged, so their gains add up.
  } rows[] = {{AT_SPINPUT_SUM, true, 3, 3},
              {AT_SPINPUT_MEAN, true, 3.0f / 6, 1.0f / 6 + 2.0f / 6},
              {AT_SPINPUT_SQRTN, true, 3 / 3.74165738677f, 3 / 3.74165738677f},
              {AT_SPINPUT_MEAN, false, 1.0f / 3, 1.0f / 3 + 1.0f / 3},
              {AT_SPINPUT_SQRTN, false, 1 / 1.7320508f, 2 / 1.7320508f}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    setup s;
    standard(&s);
    s.k.combiner = rows[i].combiner;
    if (rows[i].weighted) s.b[0].weights = weights;
    must(run(&s));
    assert_float_equal(s.gains[0], rows[i].four, 1e-6);
    assert_float_equal(s.gains[8], rows[i].one, 1e-6);
  }
}

// Ids of the other count 1 each.
static void weights_may_be_there_for_one_feature_only(void **state) {
  static const float weights[] = {1, 3, 2, 5, 4, 3};
  setup s;
  standard(&s);
  s.k.feature_count = 2;
  s.k.combiner = AT_SPINPUT_MEAN;
  s.b[1].weights = weights;
  must(run(&s));
  // Owner 0 of core 0: id 4 of both features: samples 0 and 2.
  assert_int_equal(s.pointers[0], 2);
  assert_int_equal(s.samples[0], 0);
  assert_int_equal(s.samples[1], 2);
  assert_float_equal(s.gains[0], 1.0f / 3, 1e-7);
  assert_float_equal(s.gains[1], .5f, 1e-7);
}

// The owner changes with the rotation, the local row with the offset.
// Both are of the table, as stacks put several of them side by side.
static void rotation_and_offset_move_rows(void **state) {
  setup s;
  standard(&s);
  s.f[0].col_shift = 1;
  s.f[0].col_offset = 8;
  must(run(&s));
  assert_int_equal(s.ids[0], 4);  // id 1 -> core 0, row 0 + 8 / 2
  assert_int_equal(s.ids[8], 6);  // id 4 -> core 1
  assert_true(s.gains[0] == 2);
}

// By ids, then by unique ids.
// What is dropped is the end of the sorted list: the largest rows.
static void drops_in_sorted_order(void **state) {
  static const int32_t ids[] = {0, 2, 4, 4, 0, 2};
  static const int64_t splits[] = {0, 4, 6, 6, 6};
  setup s;
  standard(&s);
  s.b[0].ids = ids;
  s.b[0].index = splits;
  s.k.max_ids = 3;
  s.o.allow_dropping = 1;
  must(run(&s));  // sorted: row 0 of samples 0, 1; row 1 of 0, 1; row 2 of 0
  assert_int_equal(s.pointers[0], 3);
  assert_int_equal(s.ids[2], 1);
  assert_int_equal(s.samples[2], 0);
  assert_int_equal(s.out.dropped, 3);  // row 2 stood for two ids
  assert_int_equal(s.max_ids[0], 5);
  s.k.max_ids = 16;
  s.k.max_unique = 1;
  must(run(&s));
  assert_int_equal(s.pointers[0], 2);
  assert_int_equal(s.out.dropped, 4);
}

// All owned by one of the two cores, which is then over its limits.
static int32_t many_ids[256];
static int64_t many_splits[17];

static void many(setup *s) {  // 16 samples of 16 ids, all even: one partition
  standard(s);
  for (int i = 0; i < 256; i++) many_ids[i] = 2 * ((i * 37) % 256);
  for (int i = 0; i <= 16; i++) many_splits[i] = 16 * i;
  s->b[0].ids = many_ids;
  s->b[0].index = many_splits;
  s->b[0].samples = 16;
  s->b[0].nnz = 256;
  s->f[0].vocabulary = 512;
  s->o.minibatching = 1;
  s->k.coo_per_device = 2048;
}

// What the partitions held.
// Filled by `look`, partition by partition.
typedef struct seen {
  const setup *s;
  int64_t elements;
  int32_t worst;
  bool by_sample;
} seen;

// By sample, each mini-batch holds a run of the samples, sorted by row.
// at_spinput_read's callback.
static at_status look(void *arg, const at_spinput_part *p) {
  seen *v = arg;
  v->elements += p->end - p->begin;
  v->worst = AT_MAX(v->worst, (int32_t)(p->end - p->begin));
  for (int64_t i = p->begin; i < p->end; i++) {
    if (v->by_sample)
      assert_int_equal(v->s->samples[i] * v->s->minibatches / 8, p->minibatch);
    if (i > p->begin && v->by_sample)
      assert_true(v->s->ids[i] > v->s->ids[i - 1]);
  }
  return AT_OK;
}

// The buffers of the one device, to be read back.
static at_spinput_coo coo_of(const setup *s) {
  return (at_spinput_coo){.row_pointers = s->pointers,
                          .embedding_ids = s->ids,
                          .sample_ids = s->samples,
                          .gains = s->gains,
                          .rows = s->out.rows_per_device,
                          .coo = s->out.coo_per_device,
                          .cores = 2,
                          .cores_per_device = 2,
                          .minibatches = s->minibatches,
                          .minibatching = s->o.minibatching,
                          .samples_per_core = 8,
                          .rows_per_core = 256};
}

// Cut either way, no partition is over the limits and none is lost.
// By buckets of ids, then by samples.
static void minibatches_hold_everything(void **state) {
  for (int split = 0; split < 2; split++) {
    setup s;
    many(&s);
    s.o.split = split;
    s.k.max_ids = s.k.max_unique = 32;
    must(run(&s));
    assert_true(s.minibatches >= 4);
    at_spinput_coo c = coo_of(&s);
    seen v = {.s = &s, .by_sample = split};
    must(at_spinput_read(&c, "t", true, look, &v));
    assert_int_equal(v.elements, 256);
    assert_true(v.worst <= 32 && v.worst > 0);
    if (split) assert_int_equal(s.minibatches, 4);
  }
}

// The vector code agrees with the plain one.
// All eight octets of buckets occur, so the hash spreads.
static void buckets_are_highwayhash(void **state) {
  uint32_t cols[37];
  uint8_t got[37];
  for (uint32_t i = 0; i < 37; i++) cols[i] = i * 2654435761u;
  at_spinput_buckets(cols, 37, got);
  int used = 0;
  for (int i = 0; i < 37; i++) {
    assert_int_equal(got[i], at_spinput_bucket((int32_t)cols[i]));
    used |= 1 << got[i] / 8;
  }
  assert_true(used == 255);
}

// Another host that asks for one cut more.
// at_spinput_options.agree: as if another host had answered.
static at_status double_bits(void *arg, uint64_t *bits) {
  ++*(int *)arg;
  *bits |= 1ull << 62;  // another host cuts at the tree's root
  return AT_OK;
}

// Asked twice, whether this host is over its limits or not.
static void hosts_agree(void **state) {
  setup s;
  many(&s);
  int calls = 0;
  s.o.agree = double_bits;
  s.o.agree_arg = &calls;
  s.k.max_ids = s.k.max_unique = 300;
  s.k.coo_per_device = 4096 / 2;
  must(run(&s));
  assert_int_equal(calls, 2);
  assert_int_equal(s.minibatches, 2);
}

// Another host cuts by vocabulary: its bits are no number of runs.
// Sizes that differ between hosts would hang them later: it is told now.
static void hosts_cut_alike(void **state) {
  setup s;
  many(&s);
  int calls = 0;
  s.o.agree = double_bits;
  s.o.agree_arg = &calls;
  s.o.split = AT_SPINPUT_BY_SAMPLE;
  s.k.max_ids = s.k.max_unique = 32;
  at_status st = run(&s);
  assert_non_null(
      strstr(at_status_message(st), "cut their batches differently"));
  assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
}

// What a host says of the others, and what it hears of them.
typedef struct talk {
  int calls;
  uint64_t said[3], hears;
} talk;

static at_status note_bits(void *arg, uint64_t *bits) {
  talk *t = arg;
  if (t->calls < 3) t->said[t->calls] = *bits;
  t->calls++;
  *bits |= t->hears;
  return AT_OK;
}

// A host that fails says so where the others agree next, and then is not asked
// again; they fail with it.
static void hosts_fail_together(void **state) {
  const uint64_t failed = 1ull << 63;
  for (int how = 0; how < 2; how++) {
    setup s;
    many(&s);
    talk t = {.hears = how ? failed : 0};
    s.o.agree = note_bits;
    s.o.agree_arg = &t;
    if (!how) s.b[0].ids = NULL;
    at_code code = at_code_take(run(&s));
    assert_int_equal(t.calls, 1);
    assert_int_equal(t.said[0] == failed, !how);
    assert_int_equal(code, how ? AT_ABORTED : AT_INVALID_ARGUMENT);
  }
}

// ---- Wrong inputs
// A defect, and the status that it must have.
// A row of the table below: the batch that `spoil` changes must give that
// status.
typedef struct wrong {
  const char *what;
  void (*spoil)(setup *s);
  at_code code;
  const char *says;
} wrong;

// Room that defects write to; each with_* fills in what it needs.
static int32_t bad_ids[8];
static int64_t bad_index[16], wide_ids[8];
static float bad_weights[8];
static at_spinput_row bad_rows[4], bad_weight_rows[4];

// Copies that a defect may change; the same batch in each form.
// s32 ids.
static void with_ids(setup *s) {
  memcpy(bad_ids, ids0, sizeof ids0);
  s->b[0].ids = bad_ids;
}
// The same ids as s64.
static void with_wide(setup *s) {
  for (int i = 0; i < 6; i++) wide_ids[i] = ids0[i];
  s->b[0].ids = wide_ids;
  s->b[0].id_bytes = 8;
}
// RAGGED with splits of its own.
static void with_splits(setup *s) {
  memcpy(bad_index, splits0, sizeof splits0);
  s->b[0].index = bad_index;
}
// Weights of 1: as if there were none.
static void with_weights(setup *s) {
  for (int i = 0; i < 8; i++) bad_weights[i] = 1;
  s->b[0].weights = bad_weights;
}
// COO: the sample of each id.
static void with_coo(setup *s) {
  static const int64_t rows[] = {0, 0, 0, 2, 3, 3};
  memcpy(bad_index, rows, sizeof rows);
  s->b[0].form = AT_SPINPUT_COO;
  s->b[0].index = bad_index;
}
// A SparseTensor: pairs of sample and column.
static void with_sparse(setup *s) {
  static const int64_t at[] = {0, 0, 0, 1, 0, 2, 2, 0, 3, 0, 3, 1};
  memcpy(bad_index, at, sizeof at);
  s->b[0].form = AT_SPINPUT_SPARSE;
  s->b[0].width = 3;
  s->b[0].index = bad_index;
}
// ROWS: each sample by its address.
static void with_rows(setup *s) {
  for (int i = 0; i < 4; i++)
    bad_rows[i] = bad_weight_rows[i] =
        (at_spinput_row){ids0 + splits0[i], splits0[i + 1] - splits0[i]};
  s->b[0].form = AT_SPINPUT_ROWS;
  s->b[0].rows = bad_rows;
  s->b[0].weight_rows = NULL;
}

// One defect each, in a batch that is otherwise right.
#define SPOIL(name, ...) \
  static void name(setup *s) { __VA_ARGS__ }
SPOIL(negative_id, with_ids(s); bad_ids[3] = -1;)
SPOIL(id_at_vocabulary, with_ids(s); bad_ids[4] = 6;)
SPOIL(least_id, with_ids(s); bad_ids[0] = INT32_MIN;)
SPOIL(greatest_id, with_ids(s); bad_ids[0] = INT32_MAX;)
SPOIL(wide_negative, with_wide(s); wide_ids[5] = -5;)
SPOIL(wide_above_31, with_wide(s); wide_ids[1] = (1ll << 31) + 1;)
SPOIL(wide_wraps, with_wide(s); wide_ids[1] = (1ll << 32) + 1;)
SPOIL(wide_least, with_wide(s); wide_ids[1] = INT64_MIN;)
SPOIL(dense_id, with_ids(s); s->b[0].form = AT_SPINPUT_DENSE; s->b[0].width = 1;
      bad_ids[2] = 77;)
SPOIL(coo_id, with_coo(s); with_ids(s); bad_ids[3] = 99;)
SPOIL(row_id_in_rows, with_rows(s); with_ids(s); bad_rows[3].ptr = bad_ids;
      bad_ids[1] = -7;)
SPOIL(nan_weight, with_weights(s); bad_weights[4] = NAN;)
SPOIL(inf_weight, with_weights(s); bad_weights[2] = INFINITY;)
SPOIL(nan_weight_mean, with_weights(s); bad_weights[4] = NAN;
      s->k.combiner = AT_SPINPUT_MEAN;)
SPOIL(no_weight_mean, with_weights(s);
      memset(bad_weights, 0, sizeof bad_weights);
      s->k.combiner = AT_SPINPUT_MEAN;)
SPOIL(cancelling_mean, with_weights(s); bad_weights[0] = -2;
      s->k.combiner = AT_SPINPUT_MEAN;)
SPOIL(no_weight_sqrtn, with_weights(s); bad_weights[3] = 0;
      s->k.combiner = AT_SPINPUT_SQRTN;)
SPOIL(weights_overflow, with_weights(s); bad_weights[3] = 1e30f;
      s->k.combiner = AT_SPINPUT_SQRTN;)
SPOIL(splits_backward, with_splits(s); bad_index[2] = 1;)
SPOIL(splits_past, with_splits(s); bad_index[4] = 7;)
SPOIL(splits_negative, with_splits(s); bad_index[0] = -1;)
SPOIL(splits_absent, s->b[0].index = NULL;)
SPOIL(ids_absent, s->b[0].ids = NULL;)
SPOIL(rows_absent, with_rows(s); s->b[0].rows = NULL;)
SPOIL(row_negative, with_rows(s); bad_rows[1].len = -3;)
SPOIL(row_nowhere, with_rows(s); bad_rows[2].ptr = NULL;)
SPOIL(row_weights_short, with_rows(s); s->b[0].weight_rows = bad_weight_rows;
      bad_weight_rows[3].len = 1;)
SPOIL(row_weights_nowhere, with_rows(s); s->b[0].weight_rows = bad_weight_rows;
      bad_weight_rows[3].ptr = NULL;)
SPOIL(coo_row_negative, with_coo(s); bad_index[0] = -1;)
SPOIL(coo_row_past, with_coo(s); bad_index[5] = 4;)
SPOIL(coo_rows_absent, with_coo(s); s->b[0].index = NULL;)
SPOIL(sparse_row_past, with_sparse(s); bad_index[10] = 9;)
SPOIL(sparse_column_past, with_sparse(s); bad_index[5] = 3;)
SPOIL(sparse_column_negative, with_sparse(s); bad_index[1] = -1;)
SPOIL(sparse_order, with_sparse(s); bad_index[0] = 1;)
SPOIL(sparse_twice, with_sparse(s); bad_index[3] = 0;)
SPOIL(sparse_weights, with_sparse(s); with_weights(s);)
SPOIL(no_samples, s->b[0].samples = 0;)
SPOIL(negative_samples, s->b[0].samples = -4;)
SPOIL(odd_batch, s->b[0].samples = 3;)
SPOIL(id_bytes, s->b[0].id_bytes = 2;)
SPOIL(form, s->b[0].form = 17;)
SPOIL(negative_nnz, s->b[0].nnz = -1;)
SPOIL(huge_dense, s->b[0].form = AT_SPINPUT_DENSE;
      s->b[0].width = INT64_MAX / 2;)
SPOIL(no_features, s->k.feature_count = 0;)
SPOIL(unknown_input, s->f[0].input = 2;)
SPOIL(negative_input, s->f[0].input = -1;)
SPOIL(row_offset, s->f[0].row_offset = 4;)
SPOIL(second_row_offset, s->k.feature_count = 2; s->f[1].row_offset = 2;)
SPOIL(col_offset_odd, s->f[0].col_offset = 3;)
SPOIL(col_shift, s->f[0].col_shift = 2;)
SPOIL(vocabulary_zero, s->f[0].vocabulary = 0;)
SPOIL(vocabulary_huge, s->f[0].vocabulary = 1ll << 31;)
SPOIL(stack_too_tall, s->f[0].col_offset = INT32_MAX - 1;)
SPOIL(three_cores, s->o.cores_per_device = 3;)
SPOIL(no_devices, s->o.local_devices = 0;)
SPOIL(fewer_global, s->o.local_devices = 2;)
SPOIL(limit_zero, s->k.max_ids = 0;)
SPOIL(unique_negative, s->k.max_unique = -1;)
SPOIL(limit_huge, s->k.max_ids = INT32_MAX - 7; s->o.cores_per_device = 16;)
SPOIL(buffer_wanted, s->k.coo_per_device = 1000;)
SPOIL(combiner, s->k.combiner = 9;)
SPOIL(over_ids, s->k.max_ids = 1;)
SPOIL(over_unique, s->k.max_unique = 1;)
SPOIL(over_one_bucket, s->o.minibatching = 1; with_ids(s); s->k.max_ids = 1;
      for (int i = 0; i < 6; i++) bad_ids[i] = 2;)
SPOIL(buffer_small, s->k.max_ids = 64; s->k.coo_per_device = 16;)
SPOIL(per_sample, s->o.max_ids_per_sample = 2;)

static const wrong wrongs[] = {
    {"id below 0", negative_id, AT_INVALID_ARGUMENT,
     "table 't', feature 'f0', sample 2: id -1 is outside 0..5"},
    {"id at the vocabulary", id_at_vocabulary, AT_INVALID_ARGUMENT,
     "table 't', feature 'f0', sample 3: id 6 is outside 0..5"},
    {"least s32", least_id, AT_INVALID_ARGUMENT, "sample 0: id -2147483648"},
    {"greatest s32", greatest_id, AT_INVALID_ARGUMENT,
     "sample 0: id 2147483647"},
    {"s64 below 0", wide_negative, AT_INVALID_ARGUMENT, "sample 3: id -5"},
    {"s64 above 2^31", wide_above_31, AT_INVALID_ARGUMENT,
     "sample 0: id 2147483649"},
    {"s64 that wraps to a good id", wide_wraps, AT_INVALID_ARGUMENT,
     "id 4294967297"},
    {"least s64", wide_least, AT_INVALID_ARGUMENT, "id -9223372036854775808"},
    {"dense id", dense_id, AT_INVALID_ARGUMENT, "sample 2: id 77"},
    {"raw COO id", coo_id, AT_INVALID_ARGUMENT, "sample 2: id 99"},
    {"id in rows", row_id_in_rows, AT_INVALID_ARGUMENT, "sample 3: id -7"},
    {"NaN weight", nan_weight, AT_INVALID_ARGUMENT,
     "sample 3: the weight of id 2 is nan"},
    {"infinite weight", inf_weight, AT_INVALID_ARGUMENT,
     "sample 0: the weight of id 1 is inf"},
    {"NaN weight, mean", nan_weight_mean, AT_INVALID_ARGUMENT, "is nan"},
    {"weights of 0, mean", no_weight_mean, AT_INVALID_ARGUMENT,
     "sample 0: combiner mean divides by what its 3 weights come to, 0"},
    {"weights cancel, mean", cancelling_mean, AT_INVALID_ARGUMENT,
     "sample 0: combiner mean"},
    {"weight of 0, sqrtn", no_weight_sqrtn, AT_INVALID_ARGUMENT,
     "sample 2: combiner sqrtn divides by what its 1 weights come to, 0"},
    {"weights overflow, sqrtn", weights_overflow, AT_INVALID_ARGUMENT,
     "weights come to, inf"},
    {"splits run backward", splits_backward, AT_INVALID_ARGUMENT,
     "sample 1: row splits run backward, 3 to 1"},
    {"splits past the ids", splits_past, AT_INVALID_ARGUMENT, "past the 6 ids"},
    {"splits below 0", splits_negative, AT_INVALID_ARGUMENT, "from -1"},
    {"no splits", splits_absent, AT_INVALID_ARGUMENT, "no row splits"},
    {"no ids", ids_absent, AT_INVALID_ARGUMENT, "'f0': no ids"},
    {"no rows", rows_absent, AT_INVALID_ARGUMENT, "no rows"},
    {"row of negative length", row_negative, AT_INVALID_ARGUMENT,
     "sample 1: -3 ids"},
    {"row at no address", row_nowhere, AT_INVALID_ARGUMENT,
     "sample 2: 1 ids at"},
    {"fewer weights than ids", row_weights_short, AT_INVALID_ARGUMENT,
     "sample 3: 2 ids but 1 weights"},
    {"weights at no address", row_weights_nowhere, AT_INVALID_ARGUMENT,
     "sample 3: 2 weights at no address"},
    {"COO row below 0", coo_row_negative, AT_INVALID_ARGUMENT,
     "element 0 is of sample -1"},
    {"COO row past the batch", coo_row_past, AT_INVALID_ARGUMENT,
     "element 5 is of sample 4"},
    {"no COO rows", coo_rows_absent, AT_INVALID_ARGUMENT, "no row ids"},
    {"sparse row past the batch", sparse_row_past, AT_INVALID_ARGUMENT,
     "of sample 9"},
    {"sparse column past", sparse_column_past, AT_INVALID_ARGUMENT,
     "sample 0: column 3 of 3"},
    {"sparse column below 0", sparse_column_negative, AT_INVALID_ARGUMENT,
     "column -1"},
    {"sparse rows out of order", sparse_order, AT_INVALID_ARGUMENT,
     "row-major order at element 1"},
    {"sparse index twice", sparse_twice, AT_INVALID_ARGUMENT,
     "row-major order at element 1"},
    {"weights of a sparse tensor", sparse_weights, AT_INVALID_ARGUMENT,
     "no weights"},
    {"empty batch", no_samples, AT_INVALID_ARGUMENT, "a batch of 0 samples"},
    {"negative batch", negative_samples, AT_INVALID_ARGUMENT,
     "a batch of -4 samples"},
    {"batch not divisible", odd_batch, AT_INVALID_ARGUMENT,
     "batch size (3) must be divisible by num_sc_per_device (2)"},
    {"ids of two bytes", id_bytes, AT_INVALID_ARGUMENT, "ids of 2 bytes"},
    {"unknown form", form, AT_INVALID_ARGUMENT, "form 17"},
    {"negative count", negative_nnz, AT_INVALID_ARGUMENT, "impossible sizes"},
    {"huge dense batch", huge_dense, AT_INVALID_ARGUMENT, "impossible sizes"},
    {"stack without features", no_features, AT_INVALID_ARGUMENT,
     "table 'stack' has no feature"},
    {"batch that is not there", unknown_input, AT_INVALID_ARGUMENT,
     "batch 2 of 2"},
    {"batch below 0", negative_input, AT_INVALID_ARGUMENT, "batch -1 of 2"},
    {"row offset of the first feature", row_offset, AT_INVALID_ARGUMENT,
     "row offset 4"},
    {"row offset of the second", second_row_offset, AT_INVALID_ARGUMENT,
     "feature 'f1': row offset 2, but the features before it in stack 'stack' "
     "have 4 samples"},
    {"column offset", col_offset_odd, AT_INVALID_ARGUMENT,
     "stack metadata do not fit"},
    {"rotation", col_shift, AT_INVALID_ARGUMENT, "shift 2"},
    {"no vocabulary", vocabulary_zero, AT_INVALID_ARGUMENT, "vocabulary 0"},
    {"vocabulary over 31 bits", vocabulary_huge, AT_INVALID_ARGUMENT,
     "ids have 31 bits"},
    {"stack over 31 bits", stack_too_tall, AT_INVALID_ARGUMENT,
     "ids have 31 bits"},
    {"three SparseCores", three_cores, AT_INVALID_ARGUMENT,
     "Total number of SparseCores (3) must be a power of 2."},
    {"no devices", no_devices, AT_INVALID_ARGUMENT, "0 local devices"},
    {"more local than global devices", fewer_global, AT_INVALID_ARGUMENT,
     "2 local devices, 1 global"},
    {"limit of 0", limit_zero, AT_INVALID_ARGUMENT, "max_ids_per_partition 0"},
    {"negative limit", unique_negative, AT_INVALID_ARGUMENT,
     "max_unique_ids_per_partition -1"},
    {"limits that no buffer holds", limit_huge, AT_INVALID_ARGUMENT,
     "out of the valid range (0, INT_MAX)"},
    {"more buffer than the limits need", buffer_wanted, AT_INVALID_ARGUMENT,
     "Suggested Coo Buffer Size is larger than the theoretical max for table "
     "stack: 1008 vs 64"},
    {"unknown combiner", combiner, AT_INVALID_ARGUMENT, "combiner 9"},
    {"ids over the limit", over_ids, AT_RESOURCE_EXHAUSTED,
     "Observed max ids per partition: 2 for table: stack is greater than the "
     "set max ids per partition: 1."},
    {"unique ids over the limit", over_unique, AT_RESOURCE_EXHAUSTED,
     "the first id over the limit is 4 of table 't', feature 'f0', sample 3"},
    {"one id over the limit, mini-batching", over_one_bucket,
     AT_RESOURCE_EXHAUSTED,
     "in one mini-batch; the first id over the limit is 2"},
    {"small buffer", buffer_small, AT_RESOURCE_EXHAUSTED,
     "The static buffer is too small for the current batch"},
    {"ids of one sample", per_sample, AT_RESOURCE_EXHAUSTED,
     "sample 0 has 3 ids up to table 't', feature 'f0'; "
     "max_ids_per_chip_per_sample is 2"},
};

// Code and words.
static void wrong_inputs_have_a_status(void **state) {
  assert_true(AT_LEN(wrongs) >= 50);
  for (size_t i = 0; i < AT_LEN(wrongs); i++) {
    setup s;
    standard(&s);
    wrongs[i].spoil(&s);
    at_status st = run(&s);
    if (at_status_code(st) != wrongs[i].code ||
        !strstr(at_status_message(st), wrongs[i].says))
      print_error("%s: %s\n", wrongs[i].what, at_status_message(st));
    assert_non_null(strstr(at_status_message(st), wrongs[i].says));
    assert_int_equal(at_code_take(st), wrongs[i].code);
  }
}

// One value changed in buffers that the reader took.
static void wrong_buffers_have_a_status(void **state) {
  static const struct {
    int kind, at, value;
    at_code code;
    const char *says;
  } rows[] = {
      {0, 1, 0, AT_INVALID_ARGUMENT, "partition 1 runs backward"},
      {0, 1, 4000, AT_INVALID_ARGUMENT, "partition 1 is past the buffer"},
      {0, 8, -1, AT_INVALID_ARGUMENT, "SparseCore 1, mini-batch 0: the row"},
      {1, 0, 256, AT_OUT_OF_RANGE, "row 256 of the 256"},
      {1, 0, -1, AT_OUT_OF_RANGE, "row -1"},
      {2, 0, 8, AT_OUT_OF_RANGE, "sample 8 of 8"},
      {2, 8, -2, AT_OUT_OF_RANGE, "sample -2"},
      {3, 8, 0, AT_INVALID_ARGUMENT, "SparseCore 0, sample 0, row 0: the gain"},
      {4, 0, 3, AT_INVALID_ARGUMENT, "impossible"},
      {5, 0, 15, AT_INVALID_ARGUMENT,
       "row_ptrs should be aligned to HBM granularity!"},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    setup s;
    standard(&s);
    must(run(&s));
    at_spinput_coo c = coo_of(&s);
    must(at_spinput_read(&c, "t", true, NULL, NULL));
    switch (rows[i].kind) {
      case 0:
        s.pointers[rows[i].at] = rows[i].value;
        break;
      case 1:
        s.ids[rows[i].at] = rows[i].value;
        break;
      case 2:
        s.samples[rows[i].at] = rows[i].value;
        break;
      case 3:
        s.gains[rows[i].at] = NAN;
        break;
      case 4:
        c.cores = rows[i].value;
        break;
      default:
        c.rows = rows[i].value;
    }
    at_status st = at_spinput_read(&c, "t", true, NULL, NULL);
    if (!strstr(at_status_message(st), rows[i].says))
      print_error("%zu: %s\n", i, at_status_message(st));
    assert_non_null(strstr(at_status_message(st), rows[i].says));
    assert_int_equal(at_code_take(st), rows[i].code);
  }
}

// The same bytes with one thread and with three.
static void threads_do_not_matter(void **state) {
  setup a, b;
  at_pool *one, *keep = g_pool;
  many(&a);
  a.k.max_ids = a.k.max_unique = 20;
  b = a;
  b.k.features = b.f;
  b.out.row_pointers = b.pointers;
  b.out.embedding_ids = b.ids;
  b.out.sample_ids = b.samples;
  b.out.gains = b.gains;
  must(run(&a));
  must(at_pool_create(1, &one));
  g_pool = one;
  must(run(&b));
  g_pool = keep;
  at_pool_destroy(one);
  assert_memory_equal(a.pointers, b.pointers, sizeof a.pointers);
  assert_memory_equal(a.ids, b.ids, sizeof a.ids);
  assert_memory_equal(a.gains, b.gains, sizeof a.gains);
}

// Equal counts are ordered by id; a rotation moves ids to another core.
static void skew_finds_the_hot_ids(void **state) {
  setup s;
  standard(&s);
  int64_t histogram[2];
  at_spinput_hot hot[3];
  int32_t found;
  must(at_spinput_skew(&s.o, &s.f[0], &s.b[0], histogram, hot, 3, &found));
  assert_int_equal(histogram[0], 3);
  assert_int_equal(histogram[1], 3);
  assert_int_equal(found, 3);
  assert_int_equal(hot[0].id, 1);
  assert_int_equal(hot[0].count, 2);
  assert_int_equal(hot[1].id, 4);
  assert_int_equal(hot[2].id, 2);
  s.f[0].col_shift = 1;
  s.b[0].nnz = 3;
  s.b[0].samples = 1;
  must(at_spinput_skew(&s.o, &s.f[0], &s.b[0], histogram, hot, 1, &found));
  assert_int_equal(histogram[0], 2);  // id 1 has moved
  assert_int_equal(at_code_take(at_spinput_skew(&s.o, &s.f[0], &s.b[0],
                                                histogram, hot, -1, &found)),
                   AT_INVALID_ARGUMENT);
  negative_id(&s);
  bad_ids[0] = -1;
  assert_int_equal(at_code_take(at_spinput_skew(&s.o, &s.f[0], &s.b[0],
                                                histogram, hot, 1, &found)),
                   AT_INVALID_ARGUMENT);
}

static int start(void **state) {
  return at_code_take(at_pool_create(3, &g_pool));
}
static int stop(void **state) {
  at_pool_destroy(g_pool);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ids_are_sorted_merged_and_padded),
      cmocka_unit_test(combiners_divide),
      cmocka_unit_test(weights_may_be_there_for_one_feature_only),
      cmocka_unit_test(rotation_and_offset_move_rows),
      cmocka_unit_test(drops_in_sorted_order),
      cmocka_unit_test(minibatches_hold_everything),
      cmocka_unit_test(buckets_are_highwayhash),
      cmocka_unit_test(hosts_agree),
      cmocka_unit_test(hosts_fail_together),
      cmocka_unit_test(hosts_cut_alike),
      cmocka_unit_test(wrong_inputs_have_a_status),
      cmocka_unit_test(wrong_buffers_have_a_status),
      cmocka_unit_test(threads_do_not_matter),
      cmocka_unit_test(skew_finds_the_hot_ids),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
