// Products of many rows with a few columns: heads of networks, routers,
// projections of graph nodes. To pack A would cost as much as the product, so
// rows are read where they lie; B is packed once and stays in a cache. Few rows
// with dense columns of B are the same product, transposed.
#include "kernels/gemm_internal.h"

enum { MIN_ROWS = 64, MAX_PANELS = 2, MAX_K = 4096, K_BLOCK = 1024 };
// The same product, transposed: rows, from which on it beats dot products.
enum { MIN_TURNED = 9 };
// k from which eight columns do as well as dot products, whole vectors of k.
enum { DOTS_COLUMNS = 8, DOTS_K = 64 };
// Bytes: a tile of sums, f32 x 32 or f64 x 16 wide.
enum { MAX_TILE = 12 * 32 * 4 };
// Multiplications of a range that is worth a thread.
enum { GRAIN = 1 << 18 };

typedef struct slim {
  const at_gemm_job *j;
  at_gemm_strided_fn multiply;
  const char *b;  // packed: [panels][k][nr]
  int64_t panels;
  int64_t off_a, off_c, es;
  bool direct;  // C takes the sums as they are
} slim;

// Rows [i, i + rows) by the columns of panel p, block of k by block.
static void multiply_tile(const slim *t, int64_t i, int64_t rows, int64_t p) {
  const at_gemm_job *j = t->j;
  const at_gemm_engine *e = j->e;
  _Alignas(64) char sums[MAX_TILE];
  const char *a = j->a + (t->off_a + at_off(&j->a_m, i)) * t->es;
  const char *b = t->b + p * j->k * e->nr * t->es;
  int64_t n0 = p * e->nr, cols = AT_MIN(e->nr, j->n - n0), ld = e->nr;
  char *out = sums;
  if (t->direct) {
    out = j->c + (t->off_c + at_off(&j->c_m, i) + at_off(&j->c_n, n0)) * t->es;
    ld = j->c_m.stride;
  }
  for (int64_t k = 0; k < j->k; k += K_BLOCK)
    t->multiply(AT_MIN(K_BLOCK, j->k - k), a + k * j->a_k.stride * t->es,
                j->a_m.stride, j->a_k.stride, b + k * e->nr * t->es, e->nr, out,
                ld, (int)rows, (int)cols, k > 0);
  if (!t->direct) at_gemm_store(j, t->off_c, i, rows, n0, cols, sums, e->nr);
}

// Tiles [begin, end) of mr rows. A is read in place, by each panel in turn: for
// all but the first it is in a near cache.
static void tile_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const slim *t = arg;
  int64_t mr = t->j->e->mr, m = t->j->m;
  for (int64_t x = begin; x < end; x++)
    for (int64_t p = 0; p < t->panels; p++)
      multiply_tile(t, x * mr, AT_MIN(mr, m - x * mr), p);
}

// Plain types, no batch, columns within a few microtiles, dense rows of A. Few
// columns with a long k are left to dot products.
static bool is_slim(const at_gemm_job *j) {
  const at_gemm_engine *e = j->e;
  bool plain = j->a_type == e->pack_type && j->b_type == e->pack_type &&
               e->acc_type == e->pack_type;
  bool dots = j->n <= DOTS_COLUMNS && j->k >= DOTS_K;
  return plain && !dots && j->batch == 1 && j->m >= MIN_ROWS && j->n >= 2 &&
         j->n <= MAX_PANELS * e->nr && j->k <= MAX_K &&
         at_off_dense(&j->a_k, 0, j->k) && at_off_uniform(&j->a_m, 0, j->m);
}

// Packs all of B, panels of k x nr, then shares out tiles of rows. False: no
// slim product.
static bool run(const at_par *par, const at_gemm_job *j, at_status *st) {
  const at_gemm_engine *e = j->e;
  slim t = {.j = j, .multiply = at_gemm_strided_of(e->acc_type)};
  if (!is_slim(j) || !t.multiply) return false;
  int64_t off[3];
  j->batch_off(j, 0, off);
  t.off_a = off[0], t.off_c = off[2];
  t.es = at_dtype_bytes((at_dtype)e->pack_type);
  t.panels = at_k_ceil_div(j->n, e->nr);
  t.direct = j->c_type == e->acc_type && !j->bias &&
             at_off_dense(&j->c_n, 0, j->n) && at_off_uniform(&j->c_m, 0, j->m);
  char *b = at_par_scratch(par, (size_t)(t.panels * j->k * e->nr * t.es));
  if (!b) {
    *st = AT_FAIL(AT_RESOURCE_EXHAUSTED,
                  "gemm: no scratch memory for a slim product");
    return true;
  }
  at_gemm_pack_b(j, 0, 0, j->n, 0, j->k, j->k, j->k * e->nr, NULL, b);
  t.b = b;
  int64_t grain = GRAIN / (e->mr * j->k * t.panels * e->nr) + 1;
  at_par_for(par, at_k_ceil_div(j->m, e->mr), grain, tile_range, &t);
  return true;
}

// The product as it is, or transposed.
bool at_gemm_slim(const at_par *par, const at_gemm_job *j, at_status *st) {
  if (run(par, j, st)) return true;
  if (j->m < MIN_TURNED || j->n <= MAX_PANELS * j->e->nr) return false;
  at_gemm_job turned;
  at_gemm_transpose(j, &turned);
  return run(par, &turned, st);
}
