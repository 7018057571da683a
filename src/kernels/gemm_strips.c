// Products of few rows on AMX, as in the decoding of tokens: they last as long
// as B takes to be read. It is read once, in an order that the processor
// foresees, and in two forms. Where rows of B are dense, 64 of them go by side
// by side: 32 columns are packed while those before are multiplied, and the
// sums of a few thousand columns wait in the second cache. Where columns are
// dense, they are tiles as they lie: C is summed transposed, and nothing is
// packed.
#include "kernels/gemm_internal.h"

enum {
  PANEL = AT_GEMM_PANEL,
  GROUP = AT_GEMM_GROUP,
  GROUP_BYTES = AT_GEMM_GROUP_BYTES,
  MAX_ROWS = 64,
  MIN_SIDE = 64,     // of B
  MIN_SWEPT = 5,     // rows; fewer are for gemm_thin.c
  MIN_COLUMNS = 3,   // the same where columns are dense
  FEW_ROWS = 8,      // up to so many that does better where B is small
  MIN_B = 1 << 18,   // elements
  MAX_A = 1 << 21,   // elements, all batches
  STEP = 2 * GROUP,  // rows of B that are read side by side
  PACKED = 4,        // panels; one is packed ahead
  MIN_WIDTH = 256,   // columns of a task, where rows are dense
  MAX_WIDTH = 1024,
  CHUNK = 16 * GROUP,  // k of dense columns that all rows of A go through
  MIN_WORK = 1 << 18   // elements of B that are worth a task
};

typedef struct strips {
  const at_gemm_job *j;
  bool by_rows;              // rows of B are dense, else its columns
  uint8_t *a;                // packed: [batch][panels][groups]
  int64_t panels, groups;    // of A
  int64_t width, per_batch;  // columns of a task, tasks of a batch
  float *sums;               // by_rows: [worker][width / PANEL][panels] tiles
} strips;

// Packed rows of A of one batch, from group `group` on.
static uint8_t *packed_a(const strips *s, int64_t batch, int64_t panel,
                         int64_t group) {
  return s->a + ((batch * s->panels + panel) * s->groups + group) * GROUP_BYTES;
}

// Packs A of batches [begin, end): as rows, or as the columns of A transposed.
static void pack_a(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const strips *s = arg;
  const at_gemm_job *j = s->j;
  for (int64_t b = begin; b < end; b++) {
    int64_t off[3];
    j->batch_off(j, b, off);
    at_k_matrix m = {j->a + off[0] * 2, AT_BF16,          j->m, j->k,
                     j->a_m.stride * 2, j->a_k.stride * 2};
    at_gemm_block_pack(&m, !s->by_rows, packed_a(s, b, 0, 0));
  }
}

// Columns [n, n + cols) and values [k, k + kc) of B, whose batch begins `off`
// elements on.
static at_k_matrix part_of_b(const at_gemm_job *j, int64_t off, int64_t n,
                             int64_t cols, int64_t k, int64_t kc) {
  off += at_off(&j->b_n, n) + at_off(&j->b_k, k);
  return (at_k_matrix){j->b + off * 2,    AT_BF16,          cols, kc,
                       j->b_n.stride * 2, j->b_k.stride * 2};
}

// ---- Rows of B are dense

// What a task of dense rows adds up: columns [n0, n0 + cols) of a batch.
typedef struct sweep {
  int64_t batch, n0, cols, off[3];
  float *sums;
} sweep;

// Multiplies the panel whose first column is `at` of the task, and stores its
// tiles where k ends.
static void multiply_panel(const strips *s, sweep *x, int64_t at, int64_t k,
                           int64_t kc, const uint8_t *packed) {
  const at_gemm_job *j = s->j;
  for (int64_t i = 0; i < s->panels; i++) {
    float *tile = x->sums + (at / PANEL * s->panels + i) * PANEL * PANEL;
    at_gemm_strip strip = {.groups = at_gemm_groups(kc),
                           .a = packed_a(s, x->batch, i, k / GROUP),
                           .a_stride = GROUP * 2,
                           .a_step = GROUP_BYTES,
                           .b = packed,
                           .c = tile,
                           .go_on = k > 0,
                           .rows = (int)AT_MIN(PANEL, j->m - i * PANEL),
                           .cols = (int)AT_MIN(PANEL, x->cols - at)};
    at_gemm_amx_strip(&strip);
    if (k + kc == j->k)
      at_gemm_store(j, x->off[2], i * PANEL, strip.rows, x->n0 + at, strip.cols,
                    tile, PANEL);
  }
}

// Tasks [begin, end) of dense rows. Tile registers are this thread's from begin
// to end.
static void sweep_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const strips *s = arg;
  const at_gemm_job *j = s->j;
  _Alignas(64) uint8_t packed[PACKED][STEP / GROUP * GROUP_BYTES];
  sweep x = {.sums = s->sums + worker * s->width * s->panels * PANEL};
  j->e->begin();
  for (int64_t t = begin; t < end; t++) {
    x.batch = t / s->per_batch;
    x.n0 = t % s->per_batch * s->width;
    x.cols = AT_MIN(s->width, j->n - x.n0);
    j->batch_off(j, x.batch, x.off);
    for (int64_t k = 0; k < j->k; k += STEP) {
      int64_t kc = AT_MIN(STEP, j->k - k), n = 0;
      for (int64_t at = -PANEL; at < x.cols; at += PANEL, n++) {
        int64_t next = at + PANEL;
        if (next < x.cols) {
          at_k_matrix b = part_of_b(j, x.off[1], x.n0 + next,
                                    AT_MIN(PANEL, x.cols - next), k, kc);
          at_gemm_block_pack(&b, true, packed[n % PACKED]);
        }
        if (at >= 0) multiply_panel(s, &x, at, k, kc, packed[(n - 1) % PACKED]);
      }
    }
  }
  j->e->end();
}

// ---- Columns of B are dense

// Adds values [k, k + kc) of columns [n, n + cols) of B, times panel i of A, to
// a tile of [columns][rows]. Whole columns of whole groups are read in place;
// what is left of them is packed.
static void add_columns(const strips *s, int64_t batch, int64_t off, int64_t n,
                        int64_t cols, int64_t k, int64_t kc, int64_t i,
                        float *tile) {
  const at_gemm_job *j = s->j;
  int64_t whole = cols == PANEL ? kc / GROUP * GROUP : 0, rest = kc - whole;
  at_gemm_strip strip = {.c = tile,
                         .rows = (int)cols,
                         .cols = (int)AT_MIN(PANEL, j->m - i * PANEL)};
  if (whole) {
    at_k_matrix b = part_of_b(j, off, n, cols, k, whole);
    strip.groups = whole / GROUP;
    strip.a = b.p, strip.a_stride = b.outer_stride, strip.a_step = GROUP * 2;
    strip.b = packed_a(s, batch, i, k / GROUP);
    strip.go_on = k > 0;
    at_gemm_amx_strip(&strip);
    k += whole;
  }
  if (rest) {
    _Alignas(64) uint8_t packed[CHUNK / GROUP * GROUP_BYTES];
    at_k_matrix b = part_of_b(j, off, n, cols, k, rest);
    at_gemm_block_pack(&b, false, packed);
    strip.groups = at_gemm_groups(rest);
    strip.a = packed, strip.a_stride = GROUP * 2, strip.a_step = GROUP_BYTES;
    strip.b = packed_a(s, batch, i, k / GROUP);
    strip.go_on = k > 0;
    at_gemm_amx_strip(&strip);
  }
}

// Tasks [begin, end) of dense columns: a panel of them each.
static void columns_range(void *arg, int64_t begin, int64_t end,
                          uint32_t worker) {
  const strips *s = arg;
  const at_gemm_job *j = s->j;
  _Alignas(64) float tiles[MAX_ROWS / PANEL][PANEL * PANEL];
  float rows[PANEL * PANEL];
  j->e->begin();
  for (int64_t t = begin; t < end; t++) {
    int64_t batch = t / s->per_batch, n = t % s->per_batch * PANEL, off[3];
    int64_t cols = AT_MIN(PANEL, j->n - n);
    j->batch_off(j, batch, off);
    for (int64_t k = 0; k < j->k; k += CHUNK)
      for (int64_t i = 0; i < s->panels; i++)
        add_columns(s, batch, off[1], n, cols, k, AT_MIN(CHUNK, j->k - k), i,
                    tiles[i]);
    for (int64_t i = 0; i < s->panels; i++) {
      int64_t m = AT_MIN(PANEL, j->m - i * PANEL);
      for (int64_t r = 0; r < m; r++)
        for (int64_t c = 0; c < cols; c++)
          rows[r * PANEL + c] = tiles[i][c * PANEL + r];
      at_gemm_store(j, off[2], i * PANEL, m, n, cols, rows, PANEL);
    }
  }
  j->e->end();
}

// ---- The choice

// bf16 on AMX with few rows; each operand has one dense side.
static bool fits(const at_gemm_job *j) {
  if (!j->e->blocks || j->e->acc_type != AT_F32 || j->a_type != AT_BF16 ||
      j->b_type != AT_BF16)
    return false;
  if (j->m < (j->b_n.stride == 1 ? MIN_SWEPT : MIN_COLUMNS) ||
      j->m > MAX_ROWS || j->n < MIN_SIDE || j->k < MIN_SIDE ||
      j->k > MAX_A / j->m / j->batch)
    return false;
  if (j->m <= FEW_ROWS && j->k < MIN_B / j->n) return false;
  return at_off_uniform(&j->a_m, 0, j->m) && at_off_uniform(&j->a_k, 0, j->k) &&
         at_off_uniform(&j->b_n, 0, j->n) && at_off_uniform(&j->b_k, 0, j->k) &&
         (j->a_m.stride == 1 || j->a_k.stride == 1) &&
         (j->b_n.stride == 1 || j->b_k.stride == 1);
}

// Columns of a task where rows are dense: as many as can be, for threads that
// all have some.
static int64_t width_of(const at_gemm_job *j, int64_t threads) {
  int64_t tasks = AT_MAX(1, at_k_ceil_div(threads, j->batch));
  int64_t width = at_k_round_up(at_k_ceil_div(j->n, tasks), PANEL);
  return AT_MAX(MIN_WIDTH, AT_MIN(width, MAX_WIDTH));
}

// Packs A of all batches, then shares out columns. Their order of summation is
// that of k, whatever the form or the number of threads.
bool at_gemm_strips(const at_par *par, const at_gemm_job *j, at_status *st) {
  if (!fits(j)) return false;
  strips s = {.j = j,
              .by_rows = j->b_n.stride == 1,
              .panels = at_k_ceil_div(j->m, PANEL),
              .groups = at_gemm_groups(j->k)};
  int64_t threads = at_par_threads(par);
  s.width = s.by_rows ? width_of(j, threads) : PANEL;
  s.per_batch = at_k_ceil_div(j->n, s.width);
  size_t a = (size_t)(j->batch * s.panels * s.groups * GROUP_BYTES);
  size_t sums = s.by_rows ? (size_t)(threads * s.width * s.panels * PANEL) : 0;
  s.a = at_par_scratch(par, a + sums * sizeof *s.sums);
  if (!s.a) {
    *st = AT_FAIL(AT_RESOURCE_EXHAUSTED,
                  "gemm: no scratch memory for a product of few rows");
    return true;
  }
  s.sums = (float *)(void *)(s.a + a);
  at_par_for(par, j->batch, MIN_WORK / (j->m * j->k) + 1, pack_a, &s);
  int64_t grain = MIN_WORK / (j->k * s.width) + 1;
  at_par_for(par, j->batch * s.per_batch, grain,
             s.by_rows ? sweep_range : columns_range, &s);
  return true;
}
