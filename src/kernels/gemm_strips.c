// Products of a few rows on AMX, as in the decoding of tokens: B is read once,
// strip of columns by strip, and each part of it is multiplied as soon as it is
// packed, while the next one is on its way from memory.
#include "kernels/gemm_internal.h"

enum {
  PANEL = AT_GEMM_PANEL,
  GROUP = AT_GEMM_GROUP,
  MIN_ROWS = 9,  // fewer are for gemm_thin.c
  MAX_ROWS = 64,
  MAX_STRIP = 4,   // panels of columns
  WIDE_N = 1024,   // columns from which on strips are that wide
  MAX_GROUPS = 4,  // of k that are packed at once
  MIN_SIDE = 64,   // of B
  MAX_A = 1 << 21  // elements, all batches
};

typedef struct strips {
  const at_gemm_job *j;
  uint8_t *a;  // packed: [batch][panels][groups]
  int64_t panels, groups, strip, per_batch;
} strips;

// A of one batch as bf16 rows; strides in bytes.
static at_k_matrix rows_of_a(const at_gemm_job *j, int64_t batch) {
  int64_t off[3];
  j->batch_off(j, batch, off);
  return (at_k_matrix){j->a + off[0] * 2, AT_BF16,          j->m, j->k,
                       j->a_m.stride * 2, j->a_k.stride * 2};
}

// Packs A of batches [begin, end).
static void pack_a(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const strips *s = arg;
  for (int64_t b = begin; b < end; b++) {
    at_k_matrix m = rows_of_a(s->j, b);
    at_gemm_block_pack(&m, false,
                       s->a + b * s->panels * s->groups * AT_GEMM_GROUP_BYTES);
  }
}

// One strip: `b` is what is packed now, whose lines lie `line` bytes apart.
typedef struct strip {
  const strips *s;
  at_k_matrix b;
  int64_t batch, n0, cols, c_off;
  at_gemm_put put;
  _Alignas(64) uint8_t packed[MAX_STRIP * MAX_GROUPS * AT_GEMM_GROUP_BYTES];
  _Alignas(64) float sums[MAX_ROWS / PANEL][MAX_STRIP][PANEL * PANEL];
} strip;

// Share `turn` of `turns` of the bytes of b that follow in k.
static void fetch_next(const strip *x, int64_t left, int64_t turn,
                       int64_t turns) {
  const at_k_matrix *b = &x->b;
  int64_t k = AT_MIN(left - b->k, b->k);
  // Lines are rows of k where those are dense, else columns.
  bool across = b->outer_stride == 2;
  int64_t lines = across ? k : b->outer;
  int64_t bytes = (across ? b->outer : k) * 2;
  int64_t step = across ? b->k_stride : b->outer_stride;
  const char *p = (const char *)b->p + b->k * b->k_stride;
  for (int64_t i = lines * turn / turns; i < lines * (turn + 1) / turns; i++)
    for (int64_t at = 0; at < bytes; at += 64)
      __builtin_prefetch(p + i * step + at, 0, 2);
}

// The k that is packed now, from k0 on, for all panels of rows. The last part
// hands each tile on as a `put`, which the next multiplication stores.
static void multiply_part(strip *x, int64_t k0) {
  const strips *s = x->s;
  const at_gemm_job *j = s->j;
  int64_t groups = at_gemm_groups(x->b.k), across = at_gemm_groups(x->cols);
  int64_t turns = s->panels * across, turn = 0, left = j->k - k0;
  for (int64_t i = 0; i < s->panels; i++)
    for (int64_t n = 0; n < across; n++, turn++) {
      if (left > x->b.k) fetch_next(x, left, turn, turns);
      int64_t a = (x->batch * s->panels + i) * s->groups + k0 / GROUP;
      at_gemm_block block = {.groups = groups,
                             .a = s->a + a * AT_GEMM_GROUP_BYTES,
                             .b = x->packed + n * groups * AT_GEMM_GROUP_BYTES,
                             .c = x->sums[i][n],
                             .ldc = PANEL,
                             .go_on = k0 > 0,
                             .half = j->m - i * PANEL <= 16,
                             .put = &x->put};
      j->e->blocks->multiply(&block);
      x->put.rows = 0;
      if (left > x->b.k) continue;
      at_gemm_finish_tile(
          j, x->c_off, i * PANEL, (int)AT_MIN(PANEL, j->m - i * PANEL),
          x->n0 + n * PANEL, (int)AT_MIN(PANEL, x->cols - n * PANEL),
          x->sums[i][n], &x->put);
    }
}

// Strips [begin, end), counted through all batches. Tile registers are this
// thread's from begin to end.
static void multiply_strips(void *arg, int64_t begin, int64_t end,
                            uint32_t worker) {
  const strips *s = arg;
  const at_gemm_job *j = s->j;
  strip x;
  x.s = s;
  x.put = (at_gemm_put){.rows = 0};
  j->e->begin();
  for (int64_t t = begin; t < end; t++) {
    int64_t off[3];
    x.batch = t / s->per_batch;
    x.n0 = t % s->per_batch * s->strip * PANEL;
    x.cols = AT_MIN(s->strip * PANEL, j->n - x.n0);
    j->batch_off(j, x.batch, off);
    x.c_off = off[2];
    for (int64_t k = 0; k < j->k; k += MAX_GROUPS * GROUP) {
      int64_t at = off[1] + at_off(&j->b_n, x.n0) + at_off(&j->b_k, k);
      x.b = (at_k_matrix){j->b + at * 2,
                          AT_BF16,
                          x.cols,
                          AT_MIN(MAX_GROUPS * GROUP, j->k - k),
                          j->b_n.stride * 2,
                          j->b_k.stride * 2};
      at_gemm_block_pack(&x.b, true, x.packed);
      multiply_part(&x, k);
    }
  }
  if (x.put.rows) at_gemm_put_rows(&x.put, 0, x.put.rows);
  j->e->end();
}

// bf16 on AMX with few rows; each operand has one dense side.
static bool fits(const at_gemm_job *j) {
  if (!j->e->blocks || j->e->acc_type != AT_F32 || j->a_type != AT_BF16 ||
      j->b_type != AT_BF16)
    return false;
  if (j->m < MIN_ROWS || j->m > MAX_ROWS || j->n < MIN_SIDE ||
      j->k < MIN_SIDE || j->k > MAX_A / j->m / j->batch)
    return false;
  return at_off_uniform(&j->a_m, 0, j->m) && at_off_uniform(&j->a_k, 0, j->k) &&
         at_off_uniform(&j->b_n, 0, j->n) && at_off_uniform(&j->b_k, 0, j->k) &&
         (j->a_m.stride == 1 || j->a_k.stride == 1) &&
         (j->b_n.stride == 1 || j->b_k.stride == 1);
}

// Packs A of all batches, then shares out strips of columns.
bool at_gemm_strips(const at_par *par, const at_gemm_job *j, at_status *st) {
  if (!fits(j)) return false;
  strips s = {.j = j,
              .panels = at_k_ceil_div(j->m, PANEL),
              .groups = at_gemm_groups(j->k),
              .strip = j->n >= WIDE_N ? MAX_STRIP : 2};
  s.per_batch = at_k_ceil_div(j->n, s.strip * PANEL);
  s.a = at_par_scratch(
      par, (size_t)(j->batch * s.panels * s.groups * AT_GEMM_GROUP_BYTES));
  if (!s.a) {
    *st = AT_FAIL(AT_RESOURCE_EXHAUSTED,
                  "gemm: no scratch memory for a product of few rows");
    return true;
  }
  enum { SHARE = 1 << 19 };  // multiplications that are worth a task
  at_par_for(par, j->batch, SHARE / 8 / (j->m * j->k) + 1, pack_a, &s);
  int64_t grain = SHARE / (s.panels * PANEL * j->k * s.strip * PANEL) + 1;
  at_par_for(par, j->batch * s.per_batch, grain, multiply_strips, &s);
  return true;
}
