#include "sparsecore/cases_test_util.h"

// "1.5" or "1.5*7", which stands for seven of them.
// value, left: the reader's state, both 0 at first. The number and how many
// more of it are to come.
static double next_number(FILE *f, double *value, long *left) {
  if (!*left) {
    assert_int_equal(fscanf(f, "%lf", value), 1);
    *left = 1;
    int c = fgetc(f);
    if (c == '*')
      assert_int_equal(fscanf(f, "%ld", left), 1);
    else
      ungetc(c, f);
  }
  --*left;
  return *value;
}

// `count` elements of type t, the caller's to free.
// BF16 is cut, not rounded: the file holds values that fit.
static void *read_array(FILE *f, at_dtype t, uint64_t count) {
  size_t size = at_dtype_bytes(t);
  uint8_t *p = malloc(count * size + 1);
  double value = 0;
  long left = 0;
  for (uint64_t i = 0; i < count; i++) {
    double v = next_number(f, &value, &left);
    float narrow = (float)v;
    // Integers of four bytes, or the low bytes of one: little endian.
    int32_t integer = t == AT_F32 || t == AT_BF16 ? 0 : (int32_t)v;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    uint16_t half = (uint16_t)(bits >> 16);
    const void *from = t == AT_F32    ? (const void *)&narrow
                       : t == AT_BF16 ? (const void *)&half
                                      : (const void *)&integer;
    memcpy(p + i * size, from, size);
  }
  assert_int_equal(left, 0);
  return p;
}

// Operands of one device, room for its results, and what they must be. The rate
// of updates is 0.25.
// b: the buffers of the step in its order (abi/sparsecore.h). A table's rows
// are those of one device.
static void read_device(FILE *f, sc_case *c, uint32_t d) {
  at_x_sparse *x = &c->x;
  void **b = c->bufs[d];
  uint32_t n = 0;
  // Elements of a table on a device, and of its samples' rows.
  uint64_t cells = x->rows * x->width, batch = x->samples * x->width;
  if (x->op != AT_SPARSE_LOCAL) b[n++] = read_array(f, AT_S32, x->pointers);
  b[n++] = read_array(f, AT_S32, x->ids);
  b[n++] = read_array(f, AT_S32, x->ids);
  b[n++] = read_array(f, AT_F32, x->ids);
  // How many minibatches the row pointers have comes as an operand.
  if (x->minibatching) {
    b[n] = malloc(4);
    *(int32_t *)b[n++] = (int32_t)x->minibatching;
  }
  if (x->op == AT_SPARSE_UPDATE) {
    b[n++] = read_array(f, AT_F32, batch);
    for (int t = 0; t < 2; t++) b[n++] = read_array(f, AT_F32, cells);
    b[n] = malloc(4);
    *(float *)b[n++] = 0.25f;
    for (int t = 0; t < 2; t++) {
      c->want[d][t] = read_array(f, AT_F32, cells);
      b[n++] = malloc(cells * 4 + 1);
    }
  } else {
    b[n++] = read_array(f, (at_dtype)x->dtype, cells);
    if (x->has_init) b[n++] = read_array(f, AT_F32, batch);
    c->want[d][0] = read_array(f, AT_F32, batch);
    b[n++] = malloc(batch * 4 + 1);
  }
  c->num_bufs = n;
}

bool read_case(FILE *f, sc_case *c) {
  char op[16], dtype[8];
  memset(c, 0, sizeof *c);
  at_x_sparse *x = &c->x;
  // One line: op, devices, SparseCores of each, rows, width, samples, ids,
  // minibatches, type, and the quantisation.
  int n = fscanf(f, " case %15s %u %u %lu %lu %lu %lu %u %7s %f %f %u %u", op,
                 &x->num_devices, &x->scs_per_device, &x->rows, &x->width,
                 &x->samples, &x->ids, &x->minibatching, dtype, &x->low,
                 &x->high, &x->num_buckets, &x->has_init);
  if (n != 13) return false;
  x->op = !strcmp(op, "lookup")  ? AT_SPARSE_LOOKUP
          : !strcmp(op, "local") ? AT_SPARSE_LOCAL
                                 : AT_SPARSE_UPDATE;
  x->dtype = !strcmp(dtype, "f32")    ? AT_F32
             : !strcmp(dtype, "bf16") ? AT_BF16
             : !strcmp(dtype, "s8")   ? AT_S8
                                      : AT_U8;
  // Row pointers have at least 8 entries for each SparseCore and minibatch.
  uint64_t per = AT_MAX(x->num_devices * x->scs_per_device, 8u);
  x->pointers = per * x->scs_per_device * AT_MAX(x->minibatching, 1u);
  x->num_tables = 1;
  if (x->op == AT_SPARSE_UPDATE) {
    x->num_tables = 2;
    x->num_hypers = 1;
    x->hyper_bytes[0] = 4;
  }
  for (uint32_t d = 0; d < x->num_devices; d++) read_device(f, c, d);
  return true;
}

void free_case(sc_case *c) {
  for (uint32_t d = 0; d < c->x.num_devices; d++) {
    for (uint32_t i = 0; i < c->num_bufs; i++) free(c->bufs[d][i]);
    for (int i = 0; i < 2; i++) free(c->want[d][i]);
  }
}

FILE *open_cases(void) {
  const char *top = getenv("AT_SOURCE_DIR");
  char path[4096];
  snprintf(path, sizeof path, "%s/src/sparsecore/testdata/engine_cases.txt",
           top ? top : ".");
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  while (fgetc(f) != '\n') continue;  // the comment
  return f;
}
