// Products with a few tiles of rows, such as the step of a recurrent net: a
// pass that packs B first would cost as much as the product. Here the first
// tile of rows reads B in place and leaves a packed panel, small enough for the
// first cache, for the other tiles.
#include "kernels/gemm_internal.h"

// Panels are what threads share; the bound must not depend on their number,
// since K_BLOCK is not the block of the other engines.
enum { MIN_ROWS = 9, MAX_ROWS = 64, MIN_PANELS = 8, K_BLOCK = 128 };
// Elements of A, which is packed whole by the calling thread.
enum { MAX_A = 1 << 20 };
// Bytes: a packed panel and a row of sums, f32 x 32 or f64 x 16 wide.
enum { MAX_TILE = 32 * 4, MAX_PANEL = K_BLOCK * MAX_TILE };

typedef struct narrow {
  const at_gemm_job *j;
  char *a;        // packed: [k blocks][tiles][kc][mr]
  int64_t tiles;  // of rows, as even as they can be
  int64_t off_b, off_c, es;
  bool direct;  // C takes the sums as they are
} narrow;

// First row of tile `tile`; tile_at(t, t->tiles) is m.
static int64_t tile_at(const narrow *t, int64_t tile) {
  return tile * t->j->m / t->tiles;
}
// Packed rows of a tile in the block of k that begins at k and has kc values.
static const char *packed_a(const narrow *t, int64_t tile, int64_t k,
                            int64_t kc) {
  return t->a + (k * t->tiles + tile * kc) * t->j->e->mr * t->es;
}

// Packs all of A on this thread, block of k by block.
static void pack_rows(const narrow *t) {
  const at_gemm_job *j = t->j;
  int64_t mr = j->e->mr;
  for (int64_t k = 0; k < j->k; k += K_BLOCK) {
    int64_t kc = AT_MIN(K_BLOCK, j->k - k);
    for (int64_t i = 0; i < t->tiles; i++) {
      int64_t r = tile_at(t, i);
      j->pack_a(j, 0, r, tile_at(t, i + 1) - r, mr, k, kc, kc, false, mr,
                (char *)packed_a(t, i, k, kc));
    }
  }
}

// All rows of the columns [n0, n0 + cols), into out.
static void panel_run(const narrow *t, int64_t n0, int64_t cols, char *panel,
                      char *out, int64_t ld) {
  const at_gemm_job *j = t->j;
  const at_gemm_engine *e = j->e;
  const char *b = j->b + (t->off_b + at_off(&j->b_n, n0)) * t->es;
  for (int64_t k = 0; k < j->k; k += K_BLOCK) {
    int64_t kc = AT_MIN(K_BLOCK, j->k - k), first = 0;
    // A whole panel: the first tile reads B in place and packs it. A narrower
    // one at the right edge is packed before.
    if (cols == e->nr) {
      e->copying(kc, packed_a(t, 0, k, kc), b + k * j->b_k.stride * t->es,
                 j->b_k.stride, out, ld, (int)tile_at(t, 1), k > 0, panel);
      first = 1;
    } else {
      at_gemm_pack_b(j, 0, n0, cols, k, kc, kc, 0, NULL, panel);
    }
    for (int64_t i = first; i < t->tiles; i++) {
      int64_t r = tile_at(t, i);
      e->micro(kc, packed_a(t, i, k, kc), panel, out + r * ld * t->es, ld,
               (int)(tile_at(t, i + 1) - r), (int)cols, k > 0);
    }
  }
}

// Panels [begin, end) of nr columns. C takes sums that need no conversion;
// others wait in a panel of sums on the stack.
static void panel_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const narrow *t = arg;
  const at_gemm_job *j = t->j;
  _Alignas(64) char panel[MAX_PANEL], sums[MAX_ROWS * MAX_TILE];
  for (int64_t p = begin; p < end; p++) {
    int64_t n0 = p * j->e->nr, cols = AT_MIN(j->e->nr, j->n - n0);
    if (t->direct) {
      panel_run(t, n0, cols, panel,
                j->c + (t->off_c + at_off(&j->c_n, n0)) * t->es, j->c_m.stride);
    } else {
      panel_run(t, n0, cols, panel, sums, j->e->nr);
      at_gemm_store(j, t->off_c, 0, j->m, n0, cols, sums, j->e->nr);
    }
  }
}

// Needs an engine that packs B as it goes, operands of its type, dense rows of
// B and enough panels to share out.
bool at_gemm_narrow(const at_par *par, const at_gemm_job *j, at_status *st) {
  const at_gemm_engine *e = j->e;
  if (!e->copying || j->batch != 1 || j->m < MIN_ROWS || j->m > MAX_ROWS ||
      j->k > MAX_A / j->m || j->n < MIN_PANELS * e->nr ||
      j->a_type != e->pack_type || j->b_type != e->pack_type ||
      !at_off_dense(&j->b_n, 0, j->n) || !at_off_uniform(&j->b_k, 0, j->k))
    return false;
  int64_t off[3];
  j->batch_off(j, 0, off);
  narrow t = {.j = j,
              .tiles = at_k_ceil_div(j->m, e->mr),
              .off_b = off[1],
              .off_c = off[2],
              .es = at_dtype_bytes((at_dtype)e->pack_type)};
  t.direct = j->c_type == e->acc_type && !j->bias &&
             at_off_dense(&j->c_n, 0, j->n) && at_off_uniform(&j->c_m, 0, j->m);
  t.a = at_par_scratch(par, (size_t)(t.tiles * e->mr * j->k * t.es));
  if (!t.a) {
    *st = AT_FAIL(AT_RESOURCE_EXHAUSTED,
                  "gemm: no scratch memory for a narrow product");
    return true;
  }
  pack_rows(&t);
  int64_t grain = (1 << 19) / (j->m * j->k * e->nr) + 1;
  at_par_for(par, at_k_ceil_div(j->n, e->nr), grain, panel_range, &t);
  return true;
}
