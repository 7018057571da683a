// Linear algebra by the plainest algorithms, in long double complex: Cholesky,
// triangular solve, and the custom calls that JAX makes for QR, LU, eigenvalues
// and top-k.
#include <math.h>
#include <stdlib.h>

#include "hlo/eval_internal.h"

typedef long double complex cx_t;

// A matrix in row-major order.
typedef struct matrix {
  int64_t rows, cols;
  cx_t *v;
} matrix;
// Row i, column j; not checked.
#define AT(m, i, j) ((m)->v[(i) * (m)->cols + (j)])

static long double abs2(cx_t z) {
  return creall(z) * creall(z) + cimagl(z) * cimagl(z);
}

// A real element reads with imaginary part 0, so that one algorithm serves both
// kinds.
static cx_t load_number(at_dtype t, const void *p) {
  double complex z = at_load_complex(t, p);
  return CMPLXL(creal(z), cimag(z));
}

// Real types drop the imaginary part, which is 0 for real input.
static void store_number(at_dtype t, void *p, cx_t z) {
  if (at_is_complex(t))
    at_store_complex(t, p, CMPLX((double)creall(z), (double)cimagl(z)));
  else
    at_store_float(t, p, (double)creall(z));
}

// rows x cols zeros in `a`.
static at_status matrix_make(at_arena *a, int64_t rows, int64_t cols,
                             matrix *m) {
  *m = (matrix){rows, cols, NULL};
  AT_TRY_ALLOC(m->v, at_new(a, cx_t, at_mul((size_t)rows, (size_t)cols)));
  return AT_OK;
}

// The matrix `batch` of a literal whose last two dims are rows and columns.
static at_status matrix_load(at_arena *a, const at_literal *l, int64_t batch,
                             matrix *m) {
  const at_type *t = &l->type;
  AT_TRY(matrix_make(a, t->dims[t->rank - 2], t->dims[t->rank - 1], m));
  int64_t n = m->rows * m->cols;
  for (int64_t i = 0; i < n; i++)
    m->v[i] = load_number(t->dtype, at_literal_at(l, batch * n + i));
  return AT_OK;
}

// Writes m as matrix number `batch` of a dense array at data.
static void matrix_store(const matrix *m, at_dtype t, int64_t batch,
                         uint8_t *data) {
  int64_t n = m->rows * m->cols;
  for (int64_t i = 0; i < n; i++)
    store_number(t, data + (size_t)(batch * n + i) * at_dtype_bytes(t),
                 m->v[i]);
}

static int64_t batches_of(const at_type *t) {
  return at_product(t->dims, t->rank - 2);
}

// ---- Cholesky

// Lower factor of the Hermitian matrix in a's lower triangle; NaN everywhere
// when the matrix is not positive definite.
static void cholesky(matrix *a) {
  int64_t n = a->rows;
  bool good = true;
  for (int64_t j = 0; j < n; j++) {
    long double d = creall(AT(a, j, j));
    for (int64_t k = 0; k < j; k++) d -= abs2(AT(a, j, k));
    good &= d > 0;
    d = sqrtl(d);
    AT(a, j, j) = d;
    for (int64_t i = j + 1; i < n; i++) {
      cx_t sum = AT(a, i, j);
      for (int64_t k = 0; k < j; k++) sum -= AT(a, i, k) * conjl(AT(a, j, k));
      AT(a, i, j) = CMPLXL(creall(sum) / d, cimagl(sum) / d);
    }
    for (int64_t i = 0; i < j; i++) AT(a, i, j) = 0;
  }
  for (int64_t i = 0; !good && i < n * n; i++) a->v[i] = CMPLXL(NAN, NAN);
}

// In place; square matrices only. The upper factor is the lower one of the
// adjoint.
static void conj_transpose(matrix *a) {
  for (int64_t i = 0; i < a->rows; i++)
    for (int64_t j = 0; j <= i; j++) {
      cx_t x = AT(a, i, j);
      AT(a, i, j) = conjl(AT(a, j, i));
      AT(a, j, i) = conjl(x);
    }
}

// Spends n multiplications for each element. Only the triangle that `lower`
// names is read.
AT_EVAL(cholesky) {
  const at_type *t = &e->n->types[0];
  bool lower = at_node_bool(e->n, AT_ATTR_LOWER);
  uint8_t *data;
  int64_t n = t->dims[t->rank - 1], batches = batches_of(t), cost;
  if (__builtin_mul_overflow(at_type_elements(t), n, &cost)) cost = INT64_MAX;
  AT_TRY(at_eval_spend(e->cx, cost));
  AT_TRY(at_eval_new(e->cx, t, e->out, &data));
  for (int64_t b = 0; b < batches; b++) {
    matrix a;
    AT_TRY(matrix_load(e->cx->arena, e->in[0], b, &a));
    if (!lower) conj_transpose(&a);
    cholesky(&a);
    if (!lower) conj_transpose(&a);
    matrix_store(&a, t->dtype, b, data);
  }
  return AT_OK;
}

// ---- Triangular solve

// The matrix of a triangular solve and how it is to be read.
typedef struct triangle {
  const matrix *a;
  bool lower, unit;
  int64_t transpose;
} triangle;

// op(a)[i][j], reading the triangle only.
static cx_t entry(const triangle *t, int64_t i, int64_t j) {
  if (i == j && t->unit) return 1;
  int64_t r = i, c = j;
  if (t->transpose != AT_NO_TRANSPOSE) r = j, c = i;
  if (r != c && (t->lower ? c > r : c < r)) return 0;
  cx_t v = AT(t->a, r, c);
  return t->transpose == AT_ADJOINT ? conjl(v) : v;
}

// Solves m x = b for one column of b at the given stride, where m[i][j] is
// entry(i, j), or entry(j, i) from the right; `forward`: m is lower triangular.
static void substitute(const triangle *t, bool left, bool forward, cx_t *b,
                       int64_t stride) {
  int64_t n = t->a->rows;
  for (int64_t s = 0; s < n; s++) {
    int64_t i = forward ? s : n - 1 - s;
    cx_t sum = b[i * stride];
    for (int64_t k = forward ? 0 : i + 1; k < (forward ? i : n); k++)
      sum -= (left ? entry(t, i, k) : entry(t, k, i)) * b[k * stride];
    if (t->unit) {
      b[i * stride] = sum;
      continue;
    }
    cx_t d = entry(t, i, i);
    b[i * stride] = cimagl(d) == 0 ? CMPLXL(creall(sum) / creall(d),
                                            cimagl(sum) / creall(d))
                                   : sum / d;
  }
}

// A solve from the right works on rows of b with the roles of row and column
// exchanged, instead of transposing.
AT_EVAL(triangular_solve) {
  const at_type *t = &e->n->types[0];
  bool left = at_node_bool(e->n, AT_ATTR_LEFT_SIDE);
  triangle tri = {
      .lower = at_node_bool(e->n, AT_ATTR_LOWER),
      .unit = at_node_bool(e->n, AT_ATTR_UNIT_DIAGONAL),
      .transpose = at_node_int(e->n, AT_ATTR_TRANSPOSE_A, AT_NO_TRANSPOSE)};
  bool op_lower = tri.lower == (tri.transpose == AT_NO_TRANSPOSE);
  uint8_t *data;
  int64_t cost;
  if (__builtin_mul_overflow(at_type_elements(t),
                             e->in[0]->type.dims[t->rank - 1], &cost))
    cost = INT64_MAX;
  AT_TRY(at_eval_spend(e->cx, cost));
  AT_TRY(at_eval_new(e->cx, t, e->out, &data));
  if (at_type_elements(t) == 0) return AT_OK;
  for (int64_t batch = 0; batch < batches_of(t); batch++) {
    matrix a, b;
    AT_TRY(matrix_load(e->cx->arena, e->in[0], batch, &a));
    AT_TRY(matrix_load(e->cx->arena, e->in[1], batch, &b));
    tri.a = &a;
    // x op(a) = b, row by row, is op(a)^T x^T = b^T.
    if (left)
      for (int64_t j = 0; j < b.cols; j++)
        substitute(&tri, true, op_lower, b.v + j, b.cols);
    else
      for (int64_t i = 0; i < b.rows; i++)
        substitute(&tri, false, !op_lower, b.v + i * b.cols, 1);
    matrix_store(&b, t->dtype, batch, data);
  }
  return AT_OK;
}

// ---- Custom calls

// A custom call while it is evaluated; data[i] are the bytes of result i.
typedef struct call {
  const at_node *n;
  const at_literal *const *in;
  const at_literal **out;
  at_arena *a;  // of the results
  at_arena *scratch;
  uint8_t *data[3];
} call;

// A dense zeroed result i of the call's declared type, in the caller's arena.
static at_status call_result(const call *c, uint32_t i, uint8_t **data) {
  AT_TRY(at_literal_make(c->a, c->n->types[i], NULL, false, false, &c->out[i]));
  *data = (uint8_t *)(uintptr_t)c->out[i]->data;
  return AT_OK;
}

// Householder QR as LAPACK's geqrf: v below the diagonal, r on and above, H = I
// - tau v v^H with v[0] = 1.
static void qr(matrix *a, cx_t *tau) {
  int64_t steps = AT_MIN(a->rows, a->cols);
  for (int64_t k = 0; k < steps; k++) {
    long double tail = 0;
    for (int64_t i = k + 1; i < a->rows; i++) tail += abs2(AT(a, i, k));
    cx_t alpha = AT(a, k, k);
    tau[k] = 0;
    if (tail == 0 && cimagl(alpha) == 0) continue;
    long double beta = -copysignl(sqrtl(abs2(alpha) + tail), creall(alpha));
    tau[k] = CMPLXL((beta - creall(alpha)) / beta, -cimagl(alpha) / beta);
    for (int64_t i = k + 1; i < a->rows; i++) AT(a, i, k) /= alpha - beta;
    AT(a, k, k) = beta;
    for (int64_t j = k + 1; j < a->cols; j++) {  // the rest, by H^H
      cx_t dot = AT(a, k, j);
      for (int64_t i = k + 1; i < a->rows; i++)
        dot += conjl(AT(a, i, k)) * AT(a, i, j);
      dot *= conjl(tau[k]);
      AT(a, k, j) -= dot;
      for (int64_t i = k + 1; i < a->rows; i++)
        AT(a, i, j) -= dot * AT(a, i, k);
    }
  }
}

// Results: the factors in geqrf's form and tau, one batch after another.
static at_status call_qr(call *c) {
  const at_type *t = &c->in[0]->type;
  at_dtype d = t->dtype;
  int64_t steps = AT_MIN(t->dims[t->rank - 1], t->dims[t->rank - 2]);
  for (int64_t b = 0; b < batches_of(t); b++) {
    matrix a;
    cx_t *tau;
    AT_TRY(matrix_load(c->scratch, c->in[0], b, &a));
    AT_TRY_ALLOC(tau, at_new(c->scratch, cx_t, (size_t)steps));
    qr(&a, tau);
    matrix_store(&a, d, b, c->data[0]);
    for (int64_t k = 0; k < steps; k++)
      store_number(d, c->data[1] + (size_t)(b * steps + k) * at_dtype_bytes(d),
                   tau[k]);
  }
  return AT_OK;
}

// Q = H_0 H_1 ... H_(k-1), its first columns.
static at_status call_householder(call *c) {
  const at_type *t = &c->in[0]->type;
  int64_t k = c->in[1]->type.dims[c->in[1]->type.rank - 1];
  for (int64_t b = 0; b < batches_of(t); b++) {
    matrix a, q;
    AT_TRY(matrix_load(c->scratch, c->in[0], b, &a));
    AT_TRY(matrix_make(c->scratch, a.rows, a.cols, &q));
    for (int64_t i = 0; i < AT_MIN(q.rows, q.cols); i++) AT(&q, i, i) = 1;
    for (int64_t s = k; s-- > 0;) {
      cx_t tau = load_number(t->dtype, at_literal_at(c->in[1], b * k + s));
      for (int64_t j = 0; j < q.cols; j++) {
        cx_t dot = AT(&q, s, j);
        for (int64_t i = s + 1; i < q.rows; i++)
          dot += conjl(AT(&a, i, s)) * AT(&q, i, j);
        dot *= tau;
        AT(&q, s, j) -= dot;
        for (int64_t i = s + 1; i < q.rows; i++)
          AT(&q, i, j) -= dot * AT(&a, i, s);
      }
    }
    matrix_store(&q, t->dtype, b, c->data[0]);
  }
  return AT_OK;
}

// Partial pivoting by the largest |re| + |im|, as LAPACK.
static void lu(matrix *a, int32_t *pivots, int32_t *permutation) {
  for (int64_t i = 0; i < a->rows; i++) permutation[i] = (int32_t)i;
  for (int64_t k = 0; k < AT_MIN(a->rows, a->cols); k++) {
    int64_t best = k;
    long double most = -1;
    for (int64_t i = k; i < a->rows; i++) {
      long double m = fabsl(creall(AT(a, i, k))) + fabsl(cimagl(AT(a, i, k)));
      if (m > most) most = m, best = i;
    }
    pivots[k] = (int32_t)best;
    for (int64_t j = 0; best != k && j < a->cols; j++) {
      cx_t x = AT(a, k, j);
      AT(a, k, j) = AT(a, best, j);
      AT(a, best, j) = x;
    }
    int32_t p = permutation[k];
    permutation[k] = permutation[best];
    permutation[best] = p;
    if (AT(a, k, k) == 0) continue;
    for (int64_t i = k + 1; i < a->rows; i++) {
      cx_t f = AT(a, i, k) /= AT(a, k, k);
      for (int64_t j = k + 1; j < a->cols; j++) AT(a, i, j) -= f * AT(a, k, j);
    }
  }
}

// Results: both factors in one matrix, the pivots of each step, and the
// permutation of rows that they amount to.
static at_status call_lu(call *c) {
  const at_type *t = &c->in[0]->type;
  int64_t rows = t->dims[t->rank - 2];
  int64_t steps = AT_MIN(rows, t->dims[t->rank - 1]);
  for (int64_t b = 0; b < batches_of(t); b++) {
    matrix a;
    AT_TRY(matrix_load(c->scratch, c->in[0], b, &a));
    lu(&a, (int32_t *)c->data[1] + b * steps, (int32_t *)c->data[2] + b * rows);
    matrix_store(&a, t->dtype, b, c->data[0]);
  }
  return AT_OK;
}

// One cyclic Jacobi rotation of rows and columns p and q.
static void rotate_pair(matrix *a, matrix *v, int64_t p, int64_t q) {
  cx_t apq = AT(a, p, q);
  long double r = cabsl(apq);
  if (r == 0) return;
  cx_t phase = CMPLXL(creall(apq) / r, cimagl(apq) / r);
  long double theta = (creall(AT(a, q, q)) - creall(AT(a, p, p))) / (2 * r);
  long double t = copysignl(1, theta) / (fabsl(theta) + hypotl(theta, 1));
  long double cs = 1 / hypotl(t, 1), sn = t * cs;
  for (int64_t k = 0; k < a->rows; k++) {  // columns, by the unitary G
    cx_t x = AT(a, k, p), y = AT(a, k, q);
    AT(a, k, p) = cs * x - sn * conjl(phase) * y;
    AT(a, k, q) = sn * phase * x + cs * y;
    x = AT(v, k, p), y = AT(v, k, q);
    AT(v, k, p) = cs * x - sn * conjl(phase) * y;
    AT(v, k, q) = sn * phase * x + cs * y;
  }
  for (int64_t k = 0; k < a->rows; k++) {  // rows, by its adjoint
    cx_t x = AT(a, p, k), y = AT(a, q, k);
    AT(a, p, k) = cs * x - sn * phase * y;
    AT(a, q, k) = sn * conjl(phase) * x + cs * y;
  }
}

// Cyclic Jacobi sweeps until what is left off the diagonal is below rounding,
// at most 60. Leaves eigenvalues on a's diagonal, eigenvectors in v's columns.
static void eigh(matrix *a, matrix *v) {
  int64_t n = a->rows;
  for (int64_t i = 0; i < n; i++) AT(v, i, i) = 1;
  for (int sweep = 0; sweep < 60; sweep++) {
    long double off = 0, all = 0;
    for (int64_t i = 0; i < n * n; i++) all += abs2(a->v[i]);
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = i + 1; j < n; j++) off += abs2(AT(a, i, j));
    if (!(off > 1e-38L * all)) return;
    for (int64_t p = 0; p < n; p++)
      for (int64_t q = p + 1; q < n; q++) rotate_pair(a, v, p, q);
  }
}

// backend_config "lower,sort,...": which triangle counts, and whether to sort.
static at_status call_eigh(call *c) {
  at_str config = at_node_str(c->n, AT_ATTR_BACKEND_CONFIG);
  bool lower = config.len < 1 || config.ptr[0] != '0';
  bool sort = config.len < 3 || config.ptr[2] != '0';
  const at_type *t = &c->in[0]->type;
  at_dtype real = c->n->types[1].dtype;
  int64_t n = t->dims[t->rank - 1];
  for (int64_t b = 0; b < batches_of(t); b++) {
    matrix a, v, sorted;
    int64_t *order;
    AT_TRY(matrix_load(c->scratch, c->in[0], b, &a));
    AT_TRY(matrix_make(c->scratch, n, n, &v));
    AT_TRY(matrix_make(c->scratch, n, n, &sorted));
    AT_TRY_ALLOC(order, at_new(c->scratch, int64_t, (size_t)n));
    for (int64_t i = 0; i < n; i++) {
      order[i] = i;
      AT(&a, i, i) = creall(AT(&a, i, i));
      for (int64_t j = 0; j < i; j++) {
        if (lower)
          AT(&a, j, i) = conjl(AT(&a, i, j));
        else
          AT(&a, i, j) = conjl(AT(&a, j, i));
      }
    }
    eigh(&a, &v);
    for (int64_t i = 1; sort && i < n; i++)  // insertion sort, ascending
      for (int64_t k = i;
           k > 0 && creall(AT(&a, order[k], order[k])) <
                        creall(AT(&a, order[k - 1], order[k - 1]));
           k--) {
        int64_t x = order[k];
        order[k] = order[k - 1];
        order[k - 1] = x;
      }
    for (int64_t k = 0; k < n; k++) {
      for (int64_t i = 0; i < n; i++) AT(&sorted, i, k) = AT(&v, i, order[k]);
      at_store_float(real,
                     c->data[1] + (size_t)(b * n + k) * at_dtype_bytes(real),
                     (double)creall(AT(&a, order[k], order[k])));
    }
    matrix_store(&sorted, t->dtype, b, c->data[0]);
  }
  return AT_OK;
}

// ---- Top-k calls

// Exact top-k along dimension `d` of operand 0; operand 1 (when `indexed`) are
// the indices to carry along. `smallest`: the least come first.
static at_status top_k_along(call *c, int64_t d, bool smallest, bool indexed) {
  const at_literal *l = c->in[0];
  const at_type *t = &l->type, *r = &c->n->types[0];
  int64_t length = t->dims[d], k = r->dims[d];
  int64_t inner = at_product(t->dims + d + 1, t->rank - (uint32_t)d - 1);
  int64_t outer = at_product(t->dims, (uint32_t)d);
  bool *used;
  if (k > length)
    return AT_FAIL(AT_INVALID_ARGUMENT, "top-k: k = %lld of %lld elements",
                   (long long)k, (long long)length);
  AT_TRY_ALLOC(used, at_new(c->scratch, bool, (size_t)length));
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < inner; i++) {
      memset(used, 0, (size_t)length);
      for (int64_t s = 0; s < k; s++) {
        int64_t best = -1;
        int64_t at_best = 0;
        for (int64_t x = 0; x < length; x++) {
          if (used[x]) continue;
          int64_t v = at_eval_order(
              t->dtype, at_literal_at(l, (o * length + x) * inner + i));
          bool wins = smallest ? v < at_best : v > at_best;
          if (best < 0 || wins) best = x, at_best = v;
        }
        used[best] = true;
        int64_t from = (o * length + best) * inner + i;
        int64_t to = (o * k + s) * inner + i;
        at_put(t->dtype, c->data[0], to, at_literal_at(l, from));
        int32_t index =
            (int32_t)(indexed ? at_literal_int(c->in[1], from) : best);
        memcpy(c->data[1] + 4 * to, &index, 4);
      }
    }
  return AT_OK;
}

// The dimension that shrinks, or the last.
static int64_t top_k_dim(const call *c) {
  const at_type *t = &c->in[0]->type, *r = &c->n->types[0];
  for (uint32_t i = 0; i < t->rank; i++)
    if (t->dims[i] != r->dims[i]) return i;
  return (int64_t)t->rank - 1;
}

// The integer after "name" in a printed dictionary, or `absent`.
static int64_t config_int(const at_node *n, const char *name, int64_t absent) {
  at_str s = at_node_str(n, AT_ATTR_BACKEND_CONFIG_DICT);
  if (!s.len) s = at_node_str(n, AT_ATTR_BACKEND_CONFIG);
  const char *p = s.len ? memmem(s.ptr, s.len, name, strlen(name)) : NULL;
  if (!p) return absent;
  const char *end = s.ptr + s.len;
  for (p += strlen(name); p < end && (*p < '0' || *p > '9'); p++)
    if (*p == ',' || *p == '}') return absent;
  int64_t v = 0;
  for (; p < end && *p >= '0' && *p <= '9' && v < INT32_MAX; p++)
    v = v * 10 + (*p - '0');
  return v;
}

// Operands: values, their indices, the initial value and the initial index. The
// dimension is in the call's configuration, else it is the one that shrinks.
static at_status call_approx_top_k(call *c) {
  const at_type *t = &c->in[0]->type;
  int64_t d = config_int(c->n, "reduction_dim", top_k_dim(c));
  if (d < 0 || d >= t->rank || c->n->num_operands < 4 ||
      at_type_elements(&c->in[1]->type) != at_type_elements(t))
    return AT_FAIL(AT_INVALID_ARGUMENT, "ApproxTopK: malformed call");
  // The initial value is what every element beats: +inf asks for the smallest.
  bool smallest = at_is_float(t->dtype) && at_literal_float(c->in[2], 0) > 0;
  return top_k_along(c, d, smallest, true);
}

// The indices are counted by position, as there is no operand of them.
static at_status call_top_k(call *c) {
  return top_k_along(c, top_k_dim(c), false, false);
}

// Which call it serves: the least number of operands, the number of results,
// the least rank of operand 0.
typedef struct handler {
  const char *name;
  uint32_t operands, results;
  uint32_t min_rank;
  at_status (*run)(call *);
} handler;

static const handler handlers[] = {
    {"Qr", 1, 2, 2, call_qr},
    {"ProductOfElementaryHouseholderReflectors", 2, 1, 2, call_householder},
    {"LuDecomposition", 1, 3, 2, call_lu},
    {"Eigh", 1, 2, 2, call_eigh},
    {"ApproxTopK", 4, 2, 1, call_approx_top_k},
    {"TopK", 1, 2, 1, call_top_k}};

// That the results have the shapes that the algorithms write.
static bool shapes_fit(const call *c, const handler *h) {
  const at_type *t = &c->in[0]->type, *r = c->n->types;
  uint32_t rank = t->rank;
  bool matrix_out = h->min_rank < 2 || at_type_eq(&r[0], t);
  int64_t rows = rank > 1 ? t->dims[rank - 2] : 0;
  int64_t cols = rank ? t->dims[rank - 1] : 0;
  int64_t steps = AT_MIN(rows, cols), batches = rank > 1 ? batches_of(t) : 0;
  if (h->run == call_qr)
    return matrix_out && at_type_elements(&r[1]) == batches * steps &&
           r[1].dtype == t->dtype;
  if (h->run == call_householder) {
    const at_type *tau = &c->in[1]->type;
    return matrix_out && tau->rank + 1 == rank &&
           tau->dims[rank - 2] <= steps && tau->dtype == t->dtype &&
           at_type_elements(tau) == batches * tau->dims[rank - 2];
  }
  if (h->run == call_lu)
    return matrix_out && r[1].dtype == AT_S32 && r[2].dtype == AT_S32 &&
           at_type_elements(&r[1]) == batches * steps &&
           at_type_elements(&r[2]) == batches * rows;
  if (h->run == call_eigh)
    return matrix_out && rows == cols && at_is_float(r[1].dtype) &&
           at_type_elements(&r[1]) == batches * rows;
  return r[0].rank == rank && r[0].dtype == t->dtype && r[1].dtype == AT_S32 &&
         !at_is_complex(t->dtype) &&
         at_type_elements(&r[0]) == at_type_elements(&r[1]);
}

// Checks counts, element types and shapes against the table before a handler
// writes anything, so that handlers need no checks of their own.
at_status at_eval_linalg_custom(void *user, const at_node *n,
                                const at_literal *const *operands, at_arena *a,
                                const at_literal **results) {
  at_str name = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  const handler *h = NULL;
  for (size_t i = 0; i < AT_LEN(handlers); i++)
    if (at_str_is(name, handlers[i].name)) h = &handlers[i];
  if (!h)
    return AT_FAIL(AT_UNIMPLEMENTED, "evaluator: custom_call \"%.*s\"",
                   (int)name.len, name.ptr);
  call c = {.n = n, .in = operands, .out = results, .a = a};
  if (n->num_operands < h->operands || n->num_results != h->results ||
      operands[0]->type.rank < h->min_rank ||
      !(at_is_float(operands[0]->type.dtype) ||
        (h->min_rank == 2 ? at_is_complex(operands[0]->type.dtype)
                          : at_is_int(operands[0]->type.dtype))) ||
      !shapes_fit(&c, h))
    return AT_BAD(n,
                  "custom_call \"%.*s\" does not have the operands and "
                  "results that it is defined with",
                  (int)name.len, name.ptr);
  bool empty = true;
  for (uint32_t i = 0; i < n->num_results; i++) {
    AT_TRY(call_result(&c, i, &c.data[i]));
    empty &= at_type_elements(&n->types[i]) == 0;
  }
  // Of empty matrices there may be any number.
  if (empty) return AT_OK;
  c.scratch = at_arena_create();
  if (!c.scratch) return AT_NO_MEMORY("custom_call");
  at_status st = h->run(&c);
  at_arena_destroy(c.scratch);
  return st;
}
