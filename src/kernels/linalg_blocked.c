#include "kernels/linalg_blocked.h"

#include "kernels/linalg_panel.h"

enum { TRANSPOSED = 2, ADJOINT = 3 };  // at_transpose_a
enum { BLOCK = 64, SMALLEST = 65, KEPT = 8 };

// One call. Products take their scratch memory again and again from what is
// kept.
typedef struct blocked {
  const at_k_linalg_params *p;
  const at_par *par;
  at_par inner;
  struct kept {
    void *p;
    size_t bytes;
  } kept[KEPT];
  int taken;
  int64_t es;
  const at_panel_fns *f;
  char *panel, *factor, *t;  // BLOCK columns of the longer side; a square
  char *product;
} blocked;

// Source of scratch memory of one product: what the product before took in the
// same place, grown if needed.
static void *kept_scratch(void *owner, size_t bytes) {
  blocked *b = owner;
  if (b->taken == KEPT) return at_par_scratch(b->par, bytes);
  struct kept *k = &b->kept[b->taken++];
  if (k->bytes < bytes)
    *k = (struct kept){at_par_scratch(b->par, bytes), bytes};
  if (!k->p) k->bytes = 0;
  return k->p;
}

// Smaller matrices than a panel gain nothing from products.
bool at_blocked_fits(const at_k_linalg_params *p, int64_t side) {
  return (p->dtype == AT_F32 || p->dtype == AT_F64) && side >= SMALLEST;
}

// long_side x wide: the largest product that is subtracted.
// Fills in *b and takes the scratch memory that all of the call uses.
static at_status begin(const at_k_call *c, blocked *b, int64_t long_side,
                       int64_t wide) {
  const at_k_linalg_params *p = c->params;
  bool dbl = p->dtype == AT_F64;
  *b = (blocked){.p = p,
                 .par = c->par,
                 .es = dbl ? 8 : 4,
                 .f = &at_panel[dbl][at_k_has(AT_CPU_AVX512)]};
  b->inner = (at_par){c->par->pool, kept_scratch, b};
  size_t rows = at_mul((size_t)long_side, (size_t)b->es);
  AT_K_SCRATCH(b->panel, c, at_mul(rows, BLOCK));
  AT_K_SCRATCH(b->factor, c, at_mul(rows, BLOCK));
  AT_K_SCRATCH(b->t, c, (size_t)(BLOCK * BLOCK * 8));
  AT_K_SCRATCH(b->product, c, at_mul(rows, (size_t)AT_MAX(wide, BLOCK)));
  return AT_OK;
}

// A view with these strides.
static at_view view(void *p, int64_t down, int64_t right) {
  return (at_view){p, down, right};
}
// The part of v from (i, j) on.
static at_view at(const blocked *b, at_view v, int64_t i, int64_t j) {
  v.p = (char *)v.p + (i * v.down + j * v.right) * b->es;
  return v;
}
// The transpose of v.
static at_view turned(at_view v) { return view(v.p, v.right, v.down); }

// ---- Products
// A group of one dimension.
static at_k_gemm_dims dim(int64_t size, int64_t x, int64_t y) {
  return (at_k_gemm_dims){
      .rank = 1, .size = {size}, .stride_x = {x}, .stride_y = {y}};
}
// The GEMM c (m x n) = x (m x k) y (k x n) in views.
static at_k_gemm_params product_params(const blocked *b, at_view x, at_view y,
                                       at_view c, int64_t m, int64_t n,
                                       int64_t k) {
  uint32_t t = b->p->dtype;
  return (at_k_gemm_params){.a = t,
                            .b = t,
                            .acc = t,
                            .c = t,
                            .m = dim(m, x.down, c.down),
                            .n = dim(n, y.right, c.right),
                            .k = dim(k, x.right, y.down)};
}
// c (m x n) = x y.
static at_status multiply(blocked *b, at_view c, at_view x, at_view y,
                          int64_t m, int64_t n, int64_t k) {
  at_k_gemm_params p = product_params(b, x, y, c, m, n, k);
  void *bufs[] = {x.p, y.p, c.p};
  at_k_call call = {&b->inner, &p, bufs, 3, NULL};
  b->taken = 0;
  return at_k_gemm(&call);
}

// Work on ranges of columns or rows.
typedef struct columns_run {
  const blocked *b;
  at_view c, x;
  int64_t n, columns;
  bool forward, unit;
  const int32_t *pivots;
} columns_run;

// Rows [begin, end).
static void subtract_range(void *arg, int64_t begin, int64_t end,
                           uint32_t worker) {
  const columns_run *r = arg;
  r->b->f->subtract(r->c, r->x, begin, end, r->n);
}

// c (m x n, dense rows) -= x y; k is at most BLOCK.
static at_status subtract(blocked *b, at_view c, at_view x, at_view y,
                          int64_t m, int64_t n, int64_t k) {
  if (!m || !n || !k) return AT_OK;
  at_view minus = view(b->factor, k, 1);
  b->f->copy(minus, x, m, k, true);
  at_k_gemm_params p = product_params(b, minus, y, c, m, n, k);
  void *bufs[] = {minus.p, y.p, c.p};
  at_k_call call = {&b->inner, &p, bufs, 3, NULL};
  at_status st;
  b->taken = 0;
  if (at_k_gemm_add(&call, &st)) return st;
  at_view product = view(b->product, n, 1);
  AT_TRY(multiply(b, product, x, y, m, n, k));
  columns_run r = {.b = b, .c = c, .x = product, .n = n};
  at_par_for(b->par, m, 1 + 65536 / n, subtract_range, &r);
  return AT_OK;
}

// ---- Triangles
enum { SPAN = 256 };  // columns of one task: a multiple of every tile

// Spans [begin, end) of SPAN columns.
static void solve_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const columns_run *r = arg;
  for (int64_t i = begin; i < end; i++)
    r->b->f->solve(r->c, r->forward, r->unit, r->n, r->x, i * SPAN,
                   AT_MIN((i + 1) * SPAN, r->columns));
}
// t x = b in place for n rows of `columns` elements.
static void solve_block(const blocked *b, at_view t, bool forward, bool unit,
                        int64_t n, at_view x, int64_t columns) {
  columns_run r = {.b = b,
                   .c = t,
                   .x = x,
                   .n = n,
                   .columns = columns,
                   .forward = forward,
                   .unit = unit};
  at_par_for(b->par, at_k_ceil_div(columns, SPAN), 1, solve_range, &r);
}

// t x = b for all n rows: a block of rows is solved for, then taken out of the
// rows that are left.
static at_status solve_all(blocked *b, at_view t, bool forward, int64_t n,
                           at_view x, int64_t columns) {
  bool unit = b->p->unit_diagonal;
  for (int64_t done = 0; done < n; done += BLOCK) {
    int64_t w = AT_MIN(BLOCK, n - done), left = n - done - w;
    int64_t i = forward ? done : left, rest = forward ? done + w : 0;
    at_view xi = at(b, x, i, 0);
    solve_block(b, at(b, t, i, i), forward, unit, w, xi, columns);
    AT_TRY(subtract(b, at(b, x, rest, 0), at(b, t, rest, i), xi, left, columns,
                    w));
  }
  return AT_OK;
}

// Does the triangle act transposed on columns? x on the left: t' x' = b'.
static bool acts_turned(const at_k_linalg_params *p) {
  bool turned = p->transpose_a == TRANSPOSED || p->transpose_a == ADJOINT;
  return turned == !!p->left_side;
}

// One thread reads a triangle this large at the rate of its caches; beyond,
// products share it.
enum { VECTOR_MOST = 1024 };

bool at_vector_solve_fits(const at_k_linalg_params *p) {
  return (p->dtype == AT_F32 || p->dtype == AT_F64) &&
         (p->left_side ? p->n : p->m) == 1 &&
         (p->left_side ? p->m : p->n) <= VECTOR_MOST;
}

// Systems [begin, end) of the batch.
static void vector_range(void *arg, int64_t begin, int64_t end,
                         uint32_t worker) {
  const at_k_call *c = arg;
  const at_k_linalg_params *p = c->params;
  bool dbl = p->dtype == AT_F64, turn = acts_turned(p);
  const at_panel_fns *f = &at_panel[dbl][at_k_has(AT_CPU_AVX512)];
  int64_t n = p->left_side ? p->m : p->n, es = dbl ? 8 : 4;
  for (int64_t i = begin; i < end; i++) {
    at_view t = view((char *)c->bufs[0] + i * n * n * es, n, 1);
    char *x = (char *)c->bufs[2] + i * n * es;
    memmove(x, (const char *)c->bufs[1] + i * n * es, (size_t)(n * es));
    f->solve_vector(turn ? turned(t) : t, !!p->lower != turn, p->unit_diagonal,
                    n, x);
  }
}

void at_vector_solve(const at_k_call *c) {
  const at_k_linalg_params *p = c->params;
  int64_t n = p->left_side ? p->m : p->n;
  at_par_for(c->par, p->batch, 1 + 65536 / (n * n + 1), vector_range,
             (void *)c);
}

// See linalg.c for the parameters. Where a is on the right, x' is solved for in
// scratch memory.
at_status at_blocked_solve(const at_k_call *c) {
  const at_k_linalg_params *p = c->params;
  blocked b;
  int64_t n = p->left_side ? p->m : p->n, columns = p->left_side ? p->n : p->m;
  AT_TRY(begin(c, &b, n, columns));
  char *swapped = NULL;
  if (!p->left_side) AT_K_SCRATCH(swapped, c, (size_t)(n * columns * b.es));
  bool turn = acts_turned(p);
  bool forward = !!p->lower != turn;
  for (int64_t i = 0; i < p->batch; i++) {
    at_view t = view((char *)c->bufs[0] + i * n * n * b.es, n, 1);
    at_view from = view((char *)c->bufs[1] + i * n * columns * b.es, p->n, 1);
    at_view to = view((char *)c->bufs[2] + i * n * columns * b.es, p->n, 1);
    if (turn) t = turned(t);
    if (p->left_side) {
      memmove(to.p, from.p, (size_t)(n * columns * b.es));
      AT_TRY(solve_all(&b, t, forward, n, to, columns));
    } else {
      at_view x = view(swapped, columns, 1);
      b.f->copy(x, turned(from), n, columns, false);
      AT_TRY(solve_all(&b, t, forward, n, x, columns));
      b.f->copy(to, turned(x), columns, n, false);
    }
  }
  return AT_OK;
}

// ---- Cholesky: u of u' u in dense rows; the lower factor is its transpose.
// Right-looking: corner, its rows to the right, then the rest of the upper
// triangle in strips. *ok false: not positive definite, a is then of no use.
static at_status cholesky_one(blocked *b, at_view a, bool *ok) {
  enum { STRIP = 256 };  // rows of which what lies left of them is not computed
  int64_t n = b->p->n;
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t w = AT_MIN(BLOCK, n - i), rest = i + w;
    at_view corner = at(b, a, i, i), side = at(b, a, i, rest);
    if (!(*ok = b->f->cholesky(corner, w))) return AT_OK;
    solve_block(b, turned(corner), true, false, w, side, n - rest);
    for (int64_t r = rest; r < n; r += STRIP) {
      at_view x = at(b, a, i, r);
      AT_TRY(subtract(b, at(b, a, r, r), turned(x), x, AT_MIN(STRIP, n - r),
                      n - r, w));
    }
  }
  return AT_OK;
}

// A matrix without a factor becomes NaN.
at_status at_blocked_cholesky(const at_k_call *c) {
  const at_k_linalg_params *p = c->params;
  blocked b;
  int64_t n = p->n;
  AT_TRY(begin(c, &b, n, n));
  char *mem;
  AT_K_SCRATCH(mem, c, (size_t)(n * n * b.es));
  at_view a = view(mem, n, 1);
  for (int64_t i = 0; i < p->batch; i++) {
    at_view from = view((char *)c->bufs[0] + i * n * n * b.es, n, 1);
    at_view to = view((char *)c->bufs[1] + i * n * n * b.es, n, 1);
    b.f->copy(a, p->lower ? turned(from) : from, n, n, false);
    bool ok;
    AT_TRY(cholesky_one(&b, a, &ok));
    for (int64_t r = 1; r < n; r++)
      memset(mem + r * n * b.es, 0, (size_t)(r * b.es));
    if (ok)
      b.f->copy(to, p->lower ? turned(a) : a, n, n, false);
    else
      memset(to.p, 0xff, (size_t)(n * n * b.es));  // NaN
  }
  return AT_OK;
}

// ---- LU
// Columns [begin, end): every column takes all swaps.
static void swap_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const columns_run *r = arg;
  r->b->f->swap(r->c, r->pivots, r->n, begin, end);
}

// Right-looking with the panel in columns; pivots are counted from the first
// row of the matrix.
static at_status lu_one(blocked *b, at_view a, int32_t *pivots) {
  int64_t m = b->p->m, n = b->p->n, k = AT_MIN(m, n);
  for (int64_t i = 0; i < k; i += BLOCK) {
    int64_t w = AT_MIN(BLOCK, k - i), rest = i + w;
    // The panel by columns; the swaps move its own rows too when it is back.
    at_view corner = at(b, a, i, i), panel = view(b->panel, 1, m - i);
    b->f->copy(panel, corner, m - i, w, false);
    b->f->lu(b->panel, m - i, w, pivots + i);
    columns_run swap = {
        .b = b, .c = at(b, a, i, 0), .pivots = pivots + i, .n = w};
    at_par_for(b->par, n, SPAN, swap_range, &swap);
    b->f->copy(corner, panel, m - i, w, false);
    at_view side = at(b, a, i, rest);
    solve_block(b, corner, true, true, w, side, n - rest);
    AT_TRY(subtract(b, at(b, a, rest, rest), at(b, a, rest, i), side, m - rest,
                    n - rest, w));
    for (int64_t j = i; j < rest; j++) pivots[j] += (int32_t)i;
  }
  return AT_OK;
}

// LU in place in bufs[1].
at_status at_blocked_lu(const at_k_call *c) {
  const at_k_linalg_params *p = c->params;
  blocked b;
  int64_t m = p->m, n = p->n, k = AT_MIN(m, n);
  AT_TRY(begin(c, &b, m, n));
  for (int64_t i = 0; i < p->batch; i++) {
    int32_t *pivots = (int32_t *)c->bufs[2] + i * k,
            *rows = (int32_t *)c->bufs[3] + i * m;
    at_view a = view((char *)c->bufs[1] + i * m * n * b.es, n, 1);
    memmove(a.p, (char *)c->bufs[0] + i * m * n * b.es, (size_t)(m * n * b.es));
    AT_TRY(lu_one(&b, a, pivots));
    for (int32_t r = 0; r < m; r++) rows[r] = r;
    for (int64_t r = 0; r < k; r++) {
      int32_t t = rows[r];
      rows[r] = rows[pivots[r]], rows[pivots[r]] = t;
    }
  }
  return AT_OK;
}

// ---- QR
// The reflectors of a panel, columns of `rows` elements, as v: ones on the
// diagonal, zeros above.
static void make_v(const blocked *b, int64_t rows, int64_t w) {
  const double one64 = 1;
  const float one32 = 1;
  for (int64_t c = 0; c < w; c++) {
    char *column = b->panel + c * rows * b->es;
    memset(column, 0, (size_t)(c * b->es));
    memcpy(column + c * b->es, b->es == 8 ? (const void *)&one64 : &one32,
           (size_t)b->es);
  }
}

// t of the block reflector 1 - v t v' of the w reflectors in the panel, into
// b->t. The panel becomes v.
static at_status join(blocked *b, int64_t rows, int64_t w, const char *tau) {
  make_v(b, rows, w);
  at_view v = view(b->panel, 1, rows), g = view(b->factor, w, 1);
  AT_TRY(multiply(b, g, turned(v), v, w, w, rows));
  b->f->join(g.p, w, tau, b->t);
  return AT_OK;
}

// a (rows x n) = (1 - v t v') a, or with t' where `turn`; v is the panel.
static at_status reflect(blocked *b, at_view a, int64_t rows, int64_t n,
                         int64_t w, bool turn, char *mem) {
  if (!n) return AT_OK;
  at_view v = view(b->panel, 1, rows), t = view(b->t, w, 1);
  at_view x = view(mem, n, 1), y = view(mem + w * n * b->es, n, 1);
  AT_TRY(multiply(b, x, turned(v), a, w, n, rows));
  AT_TRY(multiply(b, y, turn ? turned(t) : t, x, w, n, w));
  return subtract(b, a, v, y, rows, n, w);
}

// Panel by panel: reflectors, then the rest of the columns by products (compact
// WY form).
at_status at_blocked_qr(const at_k_call *c) {
  const at_k_linalg_params *p = c->params;
  blocked b;
  int64_t m = p->m, n = p->n, k = AT_MIN(m, n);
  AT_TRY(begin(c, &b, m, n));
  char *mem;
  AT_K_SCRATCH(mem, c, (size_t)(2 * BLOCK * n * b.es));
  for (int64_t i = 0; i < p->batch; i++) {
    at_view a = view((char *)c->bufs[1] + i * m * n * b.es, n, 1);
    char *tau = (char *)c->bufs[2] + i * k * b.es;
    memmove(a.p, (char *)c->bufs[0] + i * m * n * b.es, (size_t)(m * n * b.es));
    for (int64_t j = 0; j < k; j += BLOCK) {
      int64_t w = AT_MIN(BLOCK, k - j), rows = m - j;
      at_view corner = at(&b, a, j, j), panel = view(b.panel, 1, rows);
      b.f->copy(panel, corner, rows, w, false);
      b.f->qr(b.panel, rows, w, tau + j * b.es);
      b.f->copy(corner, panel, rows, w, false);
      AT_TRY(join(&b, rows, w, tau + j * b.es));
      AT_TRY(reflect(&b, at(&b, a, j, j + w), rows, n - j - w, w, true, mem));
    }
  }
  return AT_OK;
}

// Applies the block reflectors, last one first, to the columns of the unit
// matrix that they can reach.
at_status at_blocked_product(const at_k_call *c) {
  const at_k_linalg_params *p = c->params;
  blocked b;
  int64_t m = p->m, n = p->n, k = p->k, es = p->dtype == AT_F64 ? 8 : 4;
  AT_TRY(begin(c, &b, m, n));
  char *mem;
  AT_K_SCRATCH(mem, c, (size_t)(2 * BLOCK * n * es));
  const double one64 = 1;
  const float one32 = 1;
  for (int64_t i = 0; i < p->batch; i++) {
    at_view from = view((char *)c->bufs[0] + i * m * n * es, n, 1);
    at_view q = view((char *)c->bufs[2] + i * m * n * es, n, 1);
    const char *tau = (const char *)c->bufs[1] + i * k * es;
    memset(q.p, 0, (size_t)(m * n * es));
    for (int64_t j = 0; j < n; j++)
      memcpy(at(&b, q, j, j).p, es == 8 ? (const void *)&one64 : &one32,
             (size_t)es);
    for (int64_t j = (k - 1) / BLOCK * BLOCK; j >= 0; j -= BLOCK) {
      int64_t w = AT_MIN(BLOCK, k - j), rows = m - j;
      b.f->copy(view(b.panel, 1, rows), at(&b, from, j, j), rows, w, false);
      AT_TRY(join(&b, rows, w, tau + j * es));
      AT_TRY(reflect(&b, at(&b, q, j, j), rows, n - j, w, false, mem));
    }
  }
  return AT_OK;
}
