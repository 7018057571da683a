// Sums of products of packed blocks (gemm_block.c). A panel of rows is computed
// strip by strip of columns, in memory that stays in the near caches; C, or
// what it is converted to, is written once.
#include "kernels/gemm_internal.h"

enum {
  PANEL = AT_GEMM_PANEL,
  GROUP_LINES = AT_GEMM_GROUP_BYTES / 64,
  // k of one pass over C: a panel of A stays in the first cache. A part that is
  // added to C is summed apart up to here, as by a matrix unit that adds whole
  // products to an accumulator.
  PASS_GROUPS = 16,
  STRIP = 16,  // panels of columns
  AHEAD_A = GROUP_LINES / STRIP,
  MIN_WORK = 1 << 20
};

typedef struct strip {
  const at_gemm_blocks *e;
  const at_k_block_sum *s;
  int64_t m, n, row, column;  // of all; the first ones of the strip
  int64_t panels;
  bool near;        // C is in a near cache
  bool fresh;       // nobody has read the operands' columns yet
  bool more;        // another panel of rows follows
  at_gemm_put put;  // still to be done, unless it has no rows
  uint32_t turn;    // of the sums
  _Alignas(64) float tiles[STRIP][PANEL * PANEL], sums[2][PANEL * PANEL];
} strip;

// ---- Tiles that are done
// Where a tile lies or goes.
typedef struct place {
  void *p;
  uint32_t type;   // F32 or BF16
  int64_t stride;  // of rows, in bytes
} place;

// The tile of C in `panel` of the strip.
static place place_c(const strip *x, int64_t panel) {
  const at_k_block_sum *s = x->s;
  float *c = s->c + x->row * s->ldc + x->column + panel * PANEL;
  return (place){c, AT_F32, s->ldc * (int64_t)sizeof *c};
}

// Where the result goes: `to` where the caller converts it, else C.
static place place_out(const strip *x, int64_t panel) {
  const at_k_block_sum *s = x->s;
  if (!s->to) return place_c(x, panel);
  int64_t bytes = at_dtype_bytes((at_dtype)s->to_type);
  return (place){(uint8_t *)s->to + x->row * s->to_stride +
                     (x->column + panel * PANEL) * bytes,
                 s->to_type, s->to_stride};
}

// A dense tile of the strip's own memory.
static place place_tile(float *tile) {
  return (place){tile, AT_F32, PANEL * sizeof *tile};
}

// Rows of the current panel that C has.
static int rows_of(const strip *x) {
  return (int)AT_MIN((int64_t)PANEL, x->m - x->row);
}
// Columns of a panel of the strip that C has.
static int columns_of(const strip *x, int64_t panel) {
  return (int)AT_MIN((int64_t)PANEL, x->n - x->column - panel * PANEL);
}

// to = old plus `from`, or `from` alone, while the next product runs.
static void put(strip *x, int64_t panel, const place *old, const float *from,
                place to) {
  int columns = columns_of(x, panel);
  x->put =
      (at_gemm_put){.from = from,
                    .old = old ? old->p : NULL,
                    .old_stride = old ? old->stride : 0,
                    .to = to.p,
                    .stride = to.stride,
                    .rows = rows_of(x),
                    .columns = columns == PANEL ? ~0u : (1u << columns) - 1,
                    .narrow = to.type == AT_BF16};
}

// Stores what is put off, on its own.
static void put_now(strip *x) {
  at_gemm_put_rows(&x->put, 0, x->put.rows);
  x->put.rows = 0;
}

// The product, and meanwhile what was to be put before.
static void multiply(strip *x, at_gemm_block *b) {
  b->put = &x->put;
  x->e->multiply(b);
  x->put.rows = 0;
}

// ---- Products
// What comes after a pass over part `p` that begins with group g.
static const at_k_block_part *after(const strip *x, int64_t p, int64_t *g,
                                    int64_t *panel) {
  const at_k_block_sum *s = x->s;
  *panel = x->row / PANEL;
  *g += PASS_GROUPS;
  if (*g < at_gemm_groups(s->parts[p].k)) return &s->parts[p];
  *g = 0;
  if (p + 1 < s->num_parts) return &s->parts[p + 1];
  *panel += 1;
  return x->more ? &s->parts[0] : NULL;
}

// Group g of k of a packed panel.
static const char *group_of(const void *packed, int64_t k, int64_t panel,
                            int64_t g) {
  return (const char *)packed +
         (panel * at_gemm_groups(k) + g) * AT_GEMM_GROUP_BYTES;
}

// Before the products of a pass: what the next one reads.
// Sets next_a and next_b of b. B is fetched only for the first panel of rows,
// which finds it in memory.
static void look_ahead(const strip *x, int64_t p, int64_t g, at_gemm_block *b) {
  int64_t panel, column = x->column / PANEL;
  const at_k_block_part *next = after(x, p, &g, &panel);
  b->next_a = next ? group_of(next->a, next->k, panel, g) : NULL;
  bool same_rows = next && panel == x->row / PANEL;
  b->next_b =
      x->fresh && same_rows ? group_of(next->b, next->k, column, g) : NULL;
}

// One tile's share of a part of one pass.
static void multiply_apart(strip *x, int64_t panel, at_gemm_block *b,
                           bool first, bool last) {
  float *tile = x->tiles[panel];
  bool add = !first || x->s->add;
  place out = last ? place_out(x, panel) : place_tile(tile);
  bool whole = rows_of(x) == PANEL && columns_of(x, panel) == PANEL;
  // C takes the sum as it is, or has it added whole.
  b->go_on = add && first && last && x->near && whole && !x->s->to &&
             b->groups <= x->e->whole;
  if ((!add || b->go_on) &&
      (!last || (x->near && whole && out.type == AT_F32))) {
    b->c = out.p;
    b->ldc = out.stride / (int64_t)sizeof *b->c;
    multiply(x, b);
    return;
  }
  place old = first ? place_c(x, panel) : place_tile(tile);
  b->c = x->sums[x->turn++ % 2];
  b->ldc = PANEL;
  multiply(x, b);
  put(x, panel, add ? &old : NULL, b->c, out);
}

// Of a part of several passes, which go on from what the tile holds.
static void multiply_on(strip *x, int64_t panel, at_gemm_block *b, bool first,
                        bool last) {
  float *tile = x->tiles[panel];
  if (first && x->s->add) {
    place c = place_c(x, panel);
    put_now(x);
    memset(x->sums[0], 0, sizeof x->sums[0]);
    put(x, panel, &c, x->sums[0], place_tile(tile));
  }
  put_now(x);
  b->c = tile;
  b->ldc = PANEL;
  b->go_on = !first || x->s->add;
  multiply(x, b);
  if (last) put(x, panel, NULL, tile, place_out(x, panel));
}

// Part p for every panel of the strip, in passes of PASS_GROUPS groups.
static void multiply_part(strip *x, int64_t p) {
  const at_k_block_part *part = &x->s->parts[p];
  int64_t groups = at_gemm_groups(part->k), column = x->column / PANEL;
  int64_t parts = x->s->num_parts;
  for (int64_t g = 0; g < groups; g += PASS_GROUPS) {
    at_gemm_block b = {.groups = AT_MIN((int64_t)PASS_GROUPS, groups - g),
                       .lines_a = AHEAD_A,
                       .lines_b = GROUP_LINES};
    look_ahead(x, p, g, &b);
    const char *ahead_b = b.next_b;
    bool first = p == 0 && g == 0;
    bool last = p + 1 == x->s->num_parts && g + PASS_GROUPS >= groups;
    for (int64_t j = 0; j < x->panels; j++) {
      b.a = group_of(part->a, part->k, x->row / PANEL, g);
      b.b = group_of(part->b, part->k, column + j, g);
      bool more = x->fresh && j + 1 < x->panels;
      b.next_b = more ? group_of(part->b, part->k, column + j + 1, g) : ahead_b;
      if (groups <= PASS_GROUPS && (parts == 1 || groups > x->e->whole))
        multiply_apart(x, j, &b, first, last);
      else
        multiply_on(x, j, &b, first, last);
      if (b.next_a) b.next_a = (const char *)b.next_a + b.groups * AHEAD_A * 64;
    }
  }
}

// One panel of rows: strips of columns, and of each all parts.
static void multiply_row(strip *x) {
  for (x->column = 0; x->column < x->n; x->column += STRIP * PANEL) {
    x->panels = AT_MIN((int64_t)STRIP, at_k_ceil_div(x->n - x->column, PANEL));
    for (int64_t p = 0; p < x->s->num_parts; p++) multiply_part(x, p);
    put_now(x);
  }
}

typedef struct product {
  const at_k_block_sum *s;
  int64_t m, n;
} product;

// Rows of panels [begin, end).
static void multiply_range(void *arg, int64_t begin, int64_t end,
                           uint32_t worker) {
  const product *p = arg;
  strip x;
  x.e = at_gemm_blocks_of();
  x.s = p->s, x.m = p->m, x.n = p->n, x.near = false;
  x.turn = 0, x.put.rows = 0;
  x.e->begin();
  for (int64_t i = begin; i < end; i++) {
    x.row = i * PANEL;
    x.fresh = i == 0;
    x.more = (i + 1) * PANEL < p->m;
    multiply_row(&x);
  }
  x.e->end();
}

// Shares of about MIN_WORK multiplications, at most four a thread; a panel of
// rows is never split.
void at_k_block_multiply(const at_par *par, int64_t m, int64_t n,
                         const at_k_block_sum *s) {
  product p = {s, m, n};
  int64_t k = 0;
  for (int64_t i = 0; i < s->num_parts; i++) k += s->parts[i].k;
  int64_t panels = at_k_ceil_div(m, PANEL);
  int64_t shares = panels * PANEL * n * k / MIN_WORK;
  shares = AT_MIN(shares, 4 * (int64_t)at_par_threads(par));
  int64_t grain = at_k_ceil_div(panels, AT_MAX(shares, (int64_t)1));
  at_par_for(par, panels, grain, multiply_range, &p);
}

void at_k_block_rows_begin(void) { at_gemm_blocks_of()->begin(); }
void at_k_block_rows_end(void) { at_gemm_blocks_of()->end(); }

// One part and C in a near cache: sums go on in C where its tiles are whole.
void at_k_block_rows(int64_t m, int64_t n, const at_k_block_part *part,
                     float *c, int64_t ldc, bool add) {
  at_k_block_sum s = {part, 1, c, ldc, add, NULL, 0, 0};
  strip x;
  x.e = at_gemm_blocks_of();
  x.s = &s, x.m = m, x.n = n, x.near = true, x.fresh = x.more = false;
  x.turn = 0, x.put.rows = 0;
  for (x.row = 0; x.row < m; x.row += PANEL) multiply_row(&x);
}
