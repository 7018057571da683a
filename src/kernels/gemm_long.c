// Products of few rows and columns with a long sum: Gram matrices, covariances,
// gradients of the weights of narrow layers. Each element of an operand takes
// part in so few products that to pack it would cost as much: both are read
// where they lie. Chunks of the sum are shared out among threads and added in
// order.
#include "kernels/gemm_internal.h"

// A chunk depends on the shape alone. MIN_RATIO: of k to each side of C.
enum { MAX_SIDE = 128, MIN_RATIO = 16, CHUNK = 4096, BLOCK = 128 };
// Bytes: a packed panel at the right edge, f32 x 32 or f64 x 16 wide.
enum { MAX_PANEL = BLOCK * 32 * 4 };

typedef struct long_sum {
  const at_gemm_job *j;
  at_gemm_strided_fn multiply;
  int64_t off[3], es, ld;  // ld: columns of a row of sums, whole panels
  char *sums;              // [chunks][m][ld]
} long_sum;

// Adds values [k, k + kc) of k to the sums of one chunk, whose first value is
// `first`. The last columns, which fill no panel, are read with what follows
// them in memory, the next row; the last rows of all are packed there, so that
// nothing behind an operand is read.
static void add_block(const long_sum *t, int64_t k, int64_t kc, bool first,
                      char *sums) {
  const at_gemm_job *j = t->j;
  const at_gemm_engine *e = j->e;
  _Alignas(64) char edge[MAX_PANEL];
  const char *a = j->a + (t->off[0] + k * j->a_k.stride) * t->es;
  for (int64_t n = 0; n < j->n; n += e->nr) {
    int64_t cols = AT_MIN(e->nr, j->n - n), brs = j->b_k.stride;
    const char *b = j->b + (t->off[1] + n + k * brs) * t->es;
    if (cols < e->nr && (brs < j->n || k + kc == j->k)) {
      at_gemm_pack_b(j, 0, n, cols, k, kc, kc, 0, NULL, edge);
      b = edge, brs = e->nr;
    }
    for (int64_t i = 0; i < j->m; i += e->mr)
      t->multiply(kc, a + i * j->a_m.stride * t->es, j->a_m.stride,
                  j->a_k.stride, b, brs, sums + (i * t->ld + n) * t->es, t->ld,
                  (int)AT_MIN(e->mr, j->m - i), (int)cols, !first);
  }
}

// Chunks [begin, end) of k.
static void chunk_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const long_sum *t = arg;
  for (int64_t c = begin; c < end; c++) {
    int64_t from = c * CHUNK, to = AT_MIN(from + CHUNK, t->j->k);
    for (int64_t k = from; k < to; k += BLOCK)
      add_block(t, k, AT_MIN(BLOCK, to - k), k == from,
                t->sums + c * t->j->m * t->ld * t->es);
  }
}

// Adds the sums of all chunks to those of the first.
static void add_chunks(const long_sum *t, int64_t chunks) {
  int64_t count = t->j->m * t->ld;
  for (int64_t c = 1; c < chunks; c++)
    for (int64_t i = 0; i < count; i++) {
      if (t->es == 4)
        ((float *)(void *)t->sums)[i] +=
            ((float *)(void *)t->sums)[c * count + i];
      else
        ((double *)(void *)t->sums)[i] +=
            ((double *)(void *)t->sums)[c * count + i];
    }
}

// Plain types, no batch, a small C, dense rows of B.
static bool is_long(const at_gemm_job *j) {
  const at_gemm_engine *e = j->e;
  return j->a_type == e->pack_type && j->b_type == e->pack_type &&
         e->acc_type == e->pack_type && j->batch == 1 && j->m >= e->mr &&
         j->n >= e->nr && j->m <= MAX_SIDE && j->n <= MAX_SIDE &&
         j->k >= CHUNK && j->k / MIN_RATIO >= AT_MAX(j->m, j->n) &&
         at_off_uniform(&j->a_m, 0, j->m) && at_off_uniform(&j->a_k, 0, j->k) &&
         at_off_dense(&j->b_n, 0, j->n) && at_off_uniform(&j->b_k, 0, j->k);
}

// See gemm_internal.h.
bool at_gemm_long(const at_par *par, const at_gemm_job *j, at_status *st) {
  long_sum t = {.j = j,
                .multiply = at_gemm_strided_of(j->e->acc_type),
                .es = at_dtype_bytes((at_dtype)j->e->acc_type),
                .ld = at_k_round_up(j->n, j->e->nr)};
  if (!t.multiply || !is_long(j)) return false;
  j->batch_off(j, 0, t.off);
  int64_t chunks = at_k_ceil_div(j->k, CHUNK);
  size_t bytes = (size_t)(chunks * j->m * t.ld * t.es);
  t.sums = at_par_scratch(par, bytes);
  if (!t.sums) {
    *st = AT_FAIL(AT_RESOURCE_EXHAUSTED,
                  "gemm: no scratch memory for a long sum");
    return true;
  }
  // Edges of panels are added up too, but never stored.
  memset(t.sums, 0, bytes);
  at_par_for(par, chunks, 1, chunk_range, &t);
  add_chunks(&t, chunks);
  at_gemm_store(j, t.off[2], 0, j->m, 0, j->n, t.sums, t.ld);
  return true;
}
