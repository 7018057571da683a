// RAGGED_DOT: products over groups whose sizes are data, as in mixtures of
// experts. Each group is a product of its own, by the code of GEMM. Groups
// follow each other along one dimension: one ends where the sizes up to its own
// add up to, and ends that lie behind it or before an earlier one are clipped.
#include "kernels/gemm_internal.h"

// Products run one after the other: each finds the scratch memory of the one
// before.
enum { MAX_BLOCKS = 12 };
// Scratch memory by the order in which a product asks for it.
typedef struct shelf {
  const at_par *from;
  int used;
  struct {
    void *p;
    size_t bytes;
  } block[MAX_BLOCKS];
} shelf;

// at_par's source of scratch memory for one product: block number s->used. NULL
// when the launch has no more, or a product asks for more than MAX_BLOCKS.
static void *shelf_take(void *owner, size_t bytes) {
  shelf *s = owner;
  if (s->used == MAX_BLOCKS) return NULL;
  int i = s->used++;
  if (s->block[i].bytes < bytes || !s->block[i].p) {
    // Grown blocks are given back only at the end: few steps to the largest.
    size_t want = AT_MAX(bytes, at_mul(s->block[i].bytes, 2));
    s->block[i].p = at_par_scratch(s->from, want);
    s->block[i].bytes = s->block[i].p ? want : 0;
  }
  return s->block[i].p;
}

// One row of sizes and what it divides.
typedef struct ragged {
  const at_k_ragged_params *p;
  at_k_gemm_params product;  // without the dimensions that the row fixes
  uint32_t dim;              // there
  int64_t off[3];            // of this row, elements of A, B and C
  const at_k_call *call;
  shelf *shelf;
} ragged;

// The dimension group of p that the groups divide.
static at_k_gemm_dims *divided(ragged *r, at_k_gemm_params *p) {
  return r->p->kind == AT_RAGGED_ROWS ? &p->m
         : r->p->kind == AT_RAGGED_K  ? &p->k
                                      : &p->batch;
}

// Runs product p with its operands `off` elements further on.
static at_status multiply(const ragged *r, const at_k_gemm_params *p,
                          const int64_t off[3]) {
  char *a = r->call->bufs[0], *b = r->call->bufs[1], *c = r->call->bufs[3];
  void *bufs[] = {a + off[0] * at_dtype_bytes((at_dtype)p->a),
                  b + off[1] * at_dtype_bytes((at_dtype)p->b),
                  c + off[2] * at_dtype_bytes((at_dtype)p->c)};
  at_par par = {r->call->par->pool, shelf_take, r->shelf};
  r->shelf->used = 0;
  at_k_call call = {&par, p, bufs, 3, NULL};
  return at_k_gemm(&call);
}

// Positions [begin, end) of the divided dimension; `group` < 0: of no group,
// zeros.
static at_status part(ragged *r, int64_t group, int64_t begin, int64_t end) {
  at_k_gemm_params p = r->product;
  at_k_gemm_dims *d = divided(r, &p);
  int64_t off[3] = {r->off[0], r->off[1], r->off[2]};
  d->size[r->dim] = end - begin;
  off[0] += begin * d->stride_x[r->dim];
  switch (r->p->kind) {
    case AT_RAGGED_ROWS:
      off[2] += begin * d->stride_y[r->dim];
      off[1] += AT_MAX(group, 0) * r->p->group_stride;
      break;
    case AT_RAGGED_K:
      off[1] += begin * d->stride_y[r->dim];
      off[2] += group * r->p->group_stride;
      break;
    default:
      off[1] += begin * d->stride_y[r->dim];
      off[2] += begin * d->stride_z[r->dim];
  }
  // No k: a product of zeros.
  if (group < 0) p.k = (at_k_gemm_dims){1, {0}, {0}, {0}, {0}};
  return multiply(r, &p, off);
}

// All groups of one row of sizes, then the rest. Positions that no group has
// become zeros in ROWS and BATCH; in K every group has its own C, also where it
// is empty.
static at_status run_row(ragged *r, const int64_t *sizes) {
  int64_t extent = divided(r, &r->product)->size[r->dim];
  int64_t end = 0, done = 0;
  bool by_batch = r->p->kind == AT_RAGGED_BATCH;
  for (int64_t g = 0; g < r->p->groups; g++) {
    if (__builtin_add_overflow(end, sizes[g], &end)) end = INT64_MAX;
    int64_t to = AT_MIN(AT_MAX(end, done), extent);
    if (!by_batch && (to > done || r->p->kind == AT_RAGGED_K))
      AT_TRY(part(r, g, done, to));
    done = to;
  }
  if (by_batch && done > 0) AT_TRY(part(r, 0, 0, done));
  if (done < extent && r->p->kind != AT_RAGGED_K)
    AT_TRY(part(r, -1, done, extent));
  return AT_OK;
}

// Removes the first n dimensions of d: fix_row gives their place.
static void drop_first(at_k_gemm_dims *d, uint32_t n) {
  at_k_gemm_dims to = {.rank = d->rank - n};
  for (uint32_t i = 0; i < to.rank; i++) {
    to.size[i] = d->size[n + i];
    to.stride_x[i] = d->stride_x[n + i];
    to.stride_y[i] = d->stride_y[n + i];
    to.stride_z[i] = d->stride_z[n + i];
  }
  *d = to;
}

// The part of the product that row `row` of the sizes is about.
static void fix_row(ragged *r, int64_t row) {
  const at_k_ragged_params *p = r->p;
  const at_k_gemm_dims *m = &p->product.m, *batch = &p->product.batch;
  r->off[0] = r->off[1] = r->off[2] = 0;
  for (uint32_t i = p->m_dims; i-- > 0; row /= m->size[i]) {
    int64_t x = row % m->size[i];
    r->off[0] += x * m->stride_x[i];
    r->off[2] += x * m->stride_y[i];
  }
  for (uint32_t i = p->batch_dims; i-- > 0; row /= batch->size[i]) {
    int64_t x = row % batch->size[i];
    r->off[0] += x * batch->stride_x[i];
    r->off[1] += x * batch->stride_y[i];
    r->off[2] += x * batch->stride_z[i];
  }
}

// Multiplies *rows by the sizes of the first n dimensions of d. False: there
// are not so many, or the product overflows.
static bool rows_of(const at_k_gemm_dims *d, uint32_t n, int64_t *rows) {
  if (d->rank > AT_K_MAX_RANK || n > d->rank) return false;
  for (uint32_t i = 0; i < n; i++)
    if (d->size[i] < 0 || __builtin_mul_overflow(*rows, d->size[i], rows))
      return false;
  return true;
}

// RAGGED_DOT: operands A and B, sizes in bufs[2], C in bufs[3]. Rows of sizes
// are run one after the other; a product uses all threads.
at_status at_k_ragged_dot(const at_k_call *c) {
  const at_k_ragged_params *p = c->params;
  AT_K_BUFS(c, 4u);
  AT_K_CHECK(p->kind <= AT_RAGGED_BATCH && p->product.epilogue == AT_EPI_NONE,
             "ragged_dot: unknown kind %u or epilogue %u", p->kind,
             p->product.epilogue);
  AT_K_CHECK(at_is_int((at_dtype)p->sizes_type) && p->groups >= 0,
             "ragged_dot: %lld group sizes of type %s", (long long)p->groups,
             at_k_dtype_text(p->sizes_type));
  int64_t rows = 1;
  AT_K_CHECK(rows_of(&p->product.batch, p->batch_dims, &rows) &&
                 rows_of(&p->product.m, p->m_dims, &rows),
             "ragged_dot: bad dimensions of group sizes");
  shelf s = {.from = c->par};
  ragged r = {.p = p, .product = p->product, .call = c, .shelf = &s};
  uint32_t fixed = p->kind == AT_RAGGED_ROWS    ? p->m_dims
                   : p->kind == AT_RAGGED_BATCH ? p->batch_dims
                                                : 0;
  uint32_t rank = divided(&r, &r.product)->rank;
  AT_K_CHECK(rank <= AT_K_MAX_RANK && p->dim < rank && p->dim >= fixed,
             "ragged_dot: no dimension %u to divide", p->dim);
  r.dim = p->dim - fixed;
  drop_first(&r.product.batch, p->batch_dims);
  drop_first(&r.product.m, p->m_dims);
  int64_t *sizes, es = at_dtype_bytes((at_dtype)p->sizes_type);
  AT_K_SCRATCH(sizes, c, at_mul((size_t)p->groups + 1, sizeof *sizes));
  for (int64_t i = 0; i < rows; i++) {
    fix_row(&r, i);
    at_k_convert(AT_S64, sizes, p->sizes_type,
                 (const char *)c->bufs[2] + i * p->groups * es, p->groups);
    AT_TRY(run_row(&r, sizes));
  }
  return AT_OK;
}
