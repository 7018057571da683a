// The meaning of the calls, for the evaluator: one device, entry by entry, in
// the order of the buffers. Slow and obvious; shares nothing with the engine.
#include <math.h>

#include "sparsecore/sparsecore.h"

typedef struct meaning {
  const at_sc_call *c;
  const at_x_sparse *x;
  const at_literal *const *in;  // operands of the call
  at_arena *a;
} meaning;

// Operand i in the order of the engine.
static const at_literal *operand(const meaning *m, uint32_t i) {
  return m->in[m->c->operands[i]];
}
static int64_t int_of(const meaning *m, uint32_t i, int64_t at) {
  return at_literal_int(operand(m, i), at);
}
static float float_of(const at_literal *l, int64_t at) {
  return (float)at_literal_float(l, at);
}

// Not set; the literal owns the arena's memory.
static at_status new_floats(const meaning *m, const at_type *t, float **data,
                            const at_literal **out) {
  AT_TRY_ALLOC(*data, at_new(m->a, float, (size_t)at_type_elements(t) + 1));
  return at_literal_make(m->a, *t, *data, false, true, out);
}

// What a row of the table is when it is looked up.
static float value_of(const meaning *m, const at_literal *table, int64_t at) {
  const at_x_sparse *x = m->x;
  float scale =
      x->num_buckets ? (x->high - x->low) / (float)(x->num_buckets - 1) : 1;
  if (x->dtype == AT_S8)
    return ((float)at_literal_int(table, at) + (float)(x->num_buckets / 2)) *
               scale +
           x->low;
  if (x->dtype == AT_U8)
    return (float)at_literal_int(table, at) * scale + x->low;
  float v = float_of(table, at);
  if (!x->num_buckets) return v;
  v = v < x->low ? x->low : v > x->high ? x->high : v;
  return rintf((v - x->low) / scale) * scale + x->low;
}

// ---- Entries
// One wish: row of the device's table, sample of its batch, gain.
typedef at_status (*entry_fn)(void *arg, int64_t row, int64_t sample,
                              float gain);

static at_status out_of_range(const char *what, int64_t v, int64_t most) {
  return AT_FAIL(AT_INVALID_ARGUMENT, "evaluator: %s %lld is not in 0 .. %lld",
                 what, (long long)v, (long long)most - 1);
}

// Calls fn for the entries of all SparseCores in the order of the buffers; the
// row counts in the table as the device holds it, core by core.
static at_status each_entry(const meaning *m, entry_fn fn, void *arg) {
  const at_x_sparse *x = m->x;
  // One device: owners are its own SparseCores.
  int64_t s = x->scs_per_device, per = AT_MAX(s, (int64_t)8);
  int64_t rows = (int64_t)x->rows / s, samples = (int64_t)x->samples / s;
  int64_t batches = x->minibatching ? int_of(m, 4, 0) : 1, at = 0;
  if (batches < 1 || batches * per * s > (int64_t)x->pointers)
    return out_of_range("number of minibatches", batches, 64);
  for (int64_t k = 0; k < s; k++)
    for (int64_t b = 0; b < batches; b++)
      for (int64_t g = 0; g < s; g++) {
        int64_t base = x->minibatching ? 0 : k * ((int64_t)x->ids / s);
        if (!x->minibatching && g == 0) at = 0;
        int64_t end = int_of(m, 0, (k * batches + b) * per + g);
        if (end < 0 || base + end > (int64_t)x->ids)
          return out_of_range("row pointer", end, (int64_t)x->ids);
        for (; at < end; at++) {
          int64_t id = int_of(m, 1, base + at),
                  sample = int_of(m, 2, base + at);
          if (id < 0 || id >= rows) return out_of_range("id", id, rows);
          if (sample < 0 || sample >= samples)
            return out_of_range("sample", sample, samples);
          AT_TRY(fn(arg, g * rows + id, k * samples + sample,
                    float_of(operand(m, 3), base + at)));
        }
        // The next partition begins at a multiple of 8.
        at = (end + 7) / 8 * 8;
      }
  return AT_OK;
}

// The same without row pointers. Padding may stand anywhere.
static at_status each_local(const meaning *m, entry_fn fn, void *arg) {
  const at_x_sparse *x = m->x;
  for (int64_t i = 0; i < (int64_t)x->ids; i++) {
    int64_t id = int_of(m, 0, i), sample = int_of(m, 1, i);
    if (id == INT32_MAX) continue;  // padding
    if (id < 0 || id >= (int64_t)x->rows)
      return out_of_range("id", id, (int64_t)x->rows);
    if (sample < 0 || sample >= (int64_t)x->samples)
      return out_of_range("sample", sample, (int64_t)x->samples);
    AT_TRY(fn(arg, id, sample, float_of(operand(m, 2), i)));
  }
  return AT_OK;
}

// ---- Lookups
typedef struct sums {
  const meaning *m;
  float *out;
  bool *touched;  // updates
} sums;

// An entry_fn: a row times its gain, added to the sample.
static at_status add_row(void *arg, int64_t row, int64_t sample, float gain) {
  const sums *s = arg;
  int64_t w = (int64_t)s->m->x->width;
  AT_ASSERT(row < (int64_t)s->m->x->rows && sample < (int64_t)s->m->x->samples);
  const at_literal *table = operand(s->m, at_x_sparse_table(s->m->x));
  for (int64_t i = 0; i < w; i++)
    s->out[sample * w + i] += value_of(s->m, table, row * w + i) * gain;
  return AT_OK;
}

// Starts from the initial value or 0.
static at_status lookup(const meaning *m, const at_node *n,
                        const at_literal **results) {
  sums s = {.m = m};
  AT_TRY(new_floats(m, &n->types[0], &s.out, results));
  uint32_t init = at_x_sparse_table(m->x) + 1;
  for (int64_t i = 0; i < at_type_elements(&n->types[0]); i++)
    s.out[i] = m->x->has_init ? float_of(operand(m, init), i) : 0;
  return m->x->op == AT_SPARSE_LOCAL ? each_local(m, add_row, &s)
                                     : each_entry(m, add_row, &s);
}

// ---- Updates
// An entry_fn: the sample's gradient times its gain, added to the row.
static at_status add_gradient(void *arg, int64_t row, int64_t sample,
                              float gain) {
  const sums *s = arg;
  int64_t w = (int64_t)s->m->x->width;
  AT_ASSERT(row < (int64_t)s->m->x->rows && sample < (int64_t)s->m->x->samples);
  const at_literal *g = operand(s->m, at_x_sparse_table(s->m->x) - 1);
  for (int64_t i = 0; i < w; i++)
    s->out[row * w + i] += float_of(g, sample * w + i) * gain;
  s->touched[row] = true;
  return AT_OK;
}

// A literal of type t: `count` elements of l from `first` on; a single one
// repeats.
static at_status row_of(const meaning *m, const at_type *t, const at_literal *l,
                        int64_t first, const at_literal **out) {
  size_t bytes = at_dtype_bytes(t->dtype);
  int64_t n = at_type_elements(t);
  uint8_t *data;
  AT_TRY_ALLOC(data, at_arena_alloc(m->a, (size_t)n * bytes + 1, 8));
  bool single = at_type_elements(&l->type) == 1;
  AT_ASSERT(single || first + n <= at_type_elements(&l->type));
  for (int64_t i = 0; i < n; i++) {
    int64_t at = single ? 0 : first + i;
    if (at_is_float(t->dtype))
      at_store_float(t->dtype, data + (size_t)i * bytes,
                     at_literal_float(l, at));
    else  // a hyperparameter that the optimizer takes as a flag
      at_store_int(t->dtype, data + (size_t)i * bytes,
                   at_is_float(l->type.dtype) ? at_literal_float(l, at) != 0
                                              : at_literal_int(l, at));
  }
  return at_literal_make(m->a, *t, data, false, true, out);
}

// Runs the optimizer computation on one row; results replace that row of
// `tables`.
static at_status optimise(const meaning *m, const at_literal *gradient,
                          int64_t row, float *const *tables) {
  const at_comp *c = m->c->optimizer;
  uint32_t first = at_x_sparse_table(m->x), n = m->x->num_tables;
  int64_t w = (int64_t)m->x->width;
  AT_ASSERT(c->num_results == n && c->num_params == 1 + n + m->x->num_hypers);
  const at_literal **args, **out;
  AT_TRY_ALLOC(args, at_new(m->a, const at_literal *, c->num_params + 1));
  AT_TRY_ALLOC(out, at_new(m->a, const at_literal *, c->num_results + 1));
  for (uint32_t i = 0; i < c->num_params; i++)
    AT_TRY(row_of(m, &c->params[i]->types[0],
                  i ? operand(m, first + i - 1) : gradient, row * w, &args[i]));
  at_eval_options none = {0};
  AT_TRY(at_eval(c, args, &none, m->a, out));
  for (uint32_t t = 0; t < n; t++)
    for (int64_t i = 0; i < w; i++)
      tables[t][row * w + i] = float_of(out[t], i);
  return AT_OK;
}

// Rows that no entry names stay as they are, slots too.
static at_status update(const meaning *m, const at_node *n,
                        const at_literal **results) {
  uint32_t first = at_x_sparse_table(m->x);
  int64_t cells = (int64_t)(m->x->rows * m->x->width);
  sums s = {.m = m};
  const at_literal *gradient;
  float *tables[AT_SPARSE_MAX_TABLES];
  AT_TRY(new_floats(m, &n->types[0], &s.out, &gradient));
  AT_TRY_ALLOC(s.touched, at_new(m->a, bool, m->x->rows + 1));
  for (int64_t i = 0; i < cells; i++) s.out[i] = 0;
  for (uint64_t r = 0; r < m->x->rows; r++) s.touched[r] = false;
  AT_TRY(each_entry(m, add_gradient, &s));
  for (uint32_t t = 0; t < m->x->num_tables; t++) {
    AT_TRY(new_floats(m, &n->types[t], &tables[t], &results[t]));
    for (int64_t i = 0; i < cells; i++)
      tables[t][i] = float_of(operand(m, first + t), i);
  }
  for (uint64_t r = 0; r < m->x->rows; r++)
    if (s.touched[r]) AT_TRY(optimise(m, gradient, (int64_t)r, tables));
  return AT_OK;
}

// ---- Rows of ids
// An entry at a time; the id of padding tells that there is none.
static at_status csr(const at_node *n, const at_literal *const *in, at_arena *a,
                     const at_literal **results) {
  at_k_csr_params p;
  AT_TRY(at_sc_csr_read(n, &p));
  bool gather = at_sc_kind_of(n) == AT_SC_GATHER;
  const at_literal *pointers = in[gather ? 1 : 0];
  const at_type *t = &n->types[0];
  size_t row = gather ? (size_t)p.row_bytes : sizeof(int32_t);
  uint8_t *to;
  int64_t next = 0, entry = 0;  // of the result; of the buffer
  AT_TRY_ALLOC(to, at_arena_alloc(a, (size_t)p.entries * row + 1, 16));
  for (int64_t i = 0; i < p.entries; i++)
    if (gather)
      memset(to + (size_t)i * row, 0, row);
    else
      memcpy(to + (size_t)i * row, &p.pad_value, row);
  for (int64_t r = 0; r < p.rows; r++) {
    int64_t end = at_literal_int(pointers, r);
    if (end < entry || end > p.entries || end - entry > p.max_per_row)
      return out_of_range("row pointer", end, p.entries + 1);
    AT_ASSERT(next <= entry);  // rows move up over the padding
    for (; entry < end; entry++, next++) {
      int32_t place = (int32_t)next;
      if (!gather) {
        memcpy(to + (size_t)entry * row, &place, row);
        continue;
      }
      int64_t id = at_literal_int(in[2], entry);
      if (id < 0 || id >= p.table_rows)
        return out_of_range("id", id, p.table_rows);
      memcpy(to + (size_t)next * row,
             (const uint8_t *)in[0]->data + (size_t)id * row, row);
    }
    // Rows of ids are padded to max_pad_per_row.
    while (entry % p.alignment) entry++;
  }
  return at_literal_make(a, *t, to, false, true, results);
}

// Row pointers that leave the number of SparseCores open mean that of the
// device.
at_status at_sc_eval_custom(void *user, const at_node *n,
                            const at_literal *const *operands, at_arena *a,
                            const at_literal **results) {
  at_sc_kind k = at_sc_kind_of(n);
  if (k == AT_SC_GATHER || k == AT_SC_IOTA) return csr(n, operands, a, results);
  if (!at_sc_is_engine(k))
    return at_eval_linalg_custom(NULL, n, operands, a, results);
  at_sc_call *c;
  AT_TRY_ALLOC(c, at_new(a, at_sc_call, 1));
  AT_TRY(at_sc_call_read(n, 1, *(const uint32_t *)user, c));
  if (!c->x.scs_per_device) c->x.scs_per_device = *(const uint32_t *)user;
  meaning m = {c, &c->x, operands, a};
  return c->x.op == AT_SPARSE_UPDATE ? update(&m, n, results)
                                     : lookup(&m, n, results);
}
