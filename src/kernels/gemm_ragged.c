// RAGGED_DOT: products over groups whose sizes are data, as in mixtures of
// experts. Each group is a product of its own, by the code of GEMM. Groups
// follow each other along one dimension: one ends where the sizes up to its own
// add up to, and ends that lie behind it or before an earlier one are clipped.
#include <pthread.h>

#include "kernels/gemm_internal.h"

// A launch's scratch memory, of which several workers take.
typedef struct source {
  const at_par *par;
  pthread_mutex_t taking;
} source;

// A worker's products run one after the other: each finds the scratch memory of
// the one before.
enum { MAX_BLOCKS = 12 };
// Scratch memory by the order in which a product asks for it.
typedef struct shelf {
  source *from;
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
    pthread_mutex_lock(&s->from->taking);
    s->block[i].p = at_par_scratch(s->from->par, want);
    pthread_mutex_unlock(&s->from->taking);
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
  shelf *shelves;  // a worker's each
  at_status *st;   // a worker's first failure
} ragged;

// Positions [begin, end) of the divided dimension, which belong to one group;
// group < 0: to none, they become zeros.
typedef struct piece {
  int64_t group, begin, end;
} piece;

// The dimension group of p that the groups divide.
static at_k_gemm_dims *divided(const ragged *r, at_k_gemm_params *p) {
  return r->p->kind == AT_RAGGED_ROWS ? &p->m
         : r->p->kind == AT_RAGGED_K  ? &p->k
                                      : &p->batch;
}

// Runs product p with its operands `off` elements further on: on the threads of
// `pool`, or on this one alone where it is NULL.
static at_status multiply(const ragged *r, const at_k_gemm_params *p,
                          const int64_t off[3], at_pool *pool,
                          uint32_t worker) {
  char *a = r->call->bufs[0], *b = r->call->bufs[1], *c = r->call->bufs[3];
  void *bufs[] = {a + off[0] * at_dtype_bytes((at_dtype)p->a),
                  b + off[1] * at_dtype_bytes((at_dtype)p->b),
                  c + off[2] * at_dtype_bytes((at_dtype)p->c)};
  at_par par = {pool, shelf_take, &r->shelves[worker]};
  r->shelves[worker].used = 0;
  at_k_call call = {&par, p, bufs, 3, NULL};
  return at_k_gemm(&call);
}

static at_status run_piece(const ragged *r, const piece *x, at_pool *pool,
                           uint32_t worker) {
  at_k_gemm_params p = r->product;
  at_k_gemm_dims *d = divided(r, &p);
  int64_t off[3] = {r->off[0], r->off[1], r->off[2]};
  d->size[r->dim] = x->end - x->begin;
  off[0] += x->begin * d->stride_x[r->dim];
  switch (r->p->kind) {
    case AT_RAGGED_ROWS:
      off[2] += x->begin * d->stride_y[r->dim];
      off[1] += AT_MAX(x->group, 0) * r->p->group_stride;
      break;
    case AT_RAGGED_K:
      off[1] += x->begin * d->stride_y[r->dim];
      off[2] += x->group * r->p->group_stride;
      break;
    default:
      off[1] += x->begin * d->stride_y[r->dim];
      off[2] += x->begin * d->stride_z[r->dim];
  }
  // No k: a product of zeros.
  if (x->group < 0) p.k = (at_k_gemm_dims){1, {0}, {0}, {0}, {0}};
  return multiply(r, &p, off, pool, worker);
}

// What the groups of one row of sizes have, in order, then the rest. Positions
// that no group has become zeros in ROWS and BATCH; in K every group has its
// own C, also where it is empty. `to` has room for one more than there are
// groups; returns how many it got.
static int64_t pieces_of(const ragged *r, const int64_t *sizes, int64_t extent,
                         piece *to) {
  int64_t end = 0, done = 0, n = 0;
  bool by_batch = r->p->kind == AT_RAGGED_BATCH;
  for (int64_t g = 0; g < r->p->groups; g++) {
    if (__builtin_add_overflow(end, sizes[g], &end)) end = INT64_MAX;
    int64_t next = AT_MIN(AT_MAX(end, done), extent);
    if (!by_batch && (next > done || r->p->kind == AT_RAGGED_K))
      to[n++] = (piece){g, done, next};
    done = next;
  }
  if (by_batch && done > 0) to[n++] = (piece){0, 0, done};
  if (done < extent && r->p->kind != AT_RAGGED_K)
    to[n++] = (piece){-1, done, extent};
  AT_ASSERT(n <= r->p->groups + 1);
  return n;
}

// Pieces that threads take one by one.
typedef struct shared {
  const ragged *r;
  const piece *pieces;
} shared;

// Pieces [begin, end), each on this thread alone.
static void piece_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const shared *s = arg;
  at_status *st = &s->r->st[worker];
  for (int64_t i = begin; i < end && at_ok(*st); i++)
    *st = run_piece(s->r, &s->pieces[i], NULL, worker);
}

// The first failure of `n` workers; the others' are freed.
static at_status first_failure(at_status *st, uint32_t n) {
  at_status first = AT_OK;
  for (uint32_t i = 0; i < n; i++) {
    if (at_ok(first))
      first = st[i];
    else
      at_status_free(st[i]);
    st[i] = AT_OK;
  }
  return first;
}

// Runs n pieces. Those of more than a thread's share of all positions are run
// by all threads, one after the other; threads take the others whole, since to
// share out each of many small products costs more than it saves. A product has
// the same bits either way.
static at_status run_pieces(const ragged *r, piece *pieces, int64_t n,
                            int64_t extent) {
  at_pool *pool = r->call->par->pool;
  uint32_t threads = at_par_threads(r->call->par);
  int64_t small = 0;
  for (int64_t i = 0; i < n; i++) {
    piece x = pieces[i];
    if ((x.end - x.begin) * threads <= extent)
      pieces[small++] = x;
    else
      AT_TRY(run_piece(r, &x, pool, 0));
  }
  if (small < 2 * (int64_t)threads) {
    for (int64_t i = 0; i < small; i++)
      AT_TRY(run_piece(r, &pieces[i], pool, 0));
    return AT_OK;
  }
  shared s = {r, pieces};
  at_par_for(r->call->par, small, 1, piece_range, &s);
  return first_failure(r->st, threads);
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

// INVALID_ARGUMENT for parameters that name no product; *rows: of sizes.
static at_status check_params(const at_k_call *c, int64_t *rows) {
  const at_k_ragged_params *p = c->params;
  AT_K_BUFS(c, 4u);
  AT_K_CHECK(p->kind <= AT_RAGGED_BATCH && p->product.epilogue == AT_EPI_NONE,
             "ragged_dot: unknown kind %u or epilogue %u", p->kind,
             p->product.epilogue);
  AT_K_CHECK(at_is_int((at_dtype)p->sizes_type) && p->groups >= 0,
             "ragged_dot: %lld group sizes of type %s", (long long)p->groups,
             at_k_dtype_text(p->sizes_type));
  *rows = 1;
  AT_K_CHECK(rows_of(&p->product.batch, p->batch_dims, rows) &&
                 rows_of(&p->product.m, p->m_dims, rows),
             "ragged_dot: bad dimensions of group sizes");
  return AT_OK;
}

// One row of sizes after the other. `sizes` and `pieces` have room for one more
// than there are groups.
static at_status run_rows(ragged *r, int64_t rows, int64_t *sizes,
                          piece *pieces) {
  const at_k_ragged_params *p = r->p;
  int64_t es = at_dtype_bytes((at_dtype)p->sizes_type);
  for (int64_t i = 0; i < rows; i++) {
    fix_row(r, i);
    at_k_convert(AT_S64, sizes, p->sizes_type,
                 (const char *)r->call->bufs[2] + i * p->groups * es,
                 p->groups);
    int64_t extent = divided(r, &r->product)->size[r->dim];
    int64_t n = pieces_of(r, sizes, extent, pieces);
    AT_TRY(run_pieces(r, pieces, n, extent));
  }
  return AT_OK;
}

// RAGGED_DOT: operands A and B, sizes in bufs[2], C in bufs[3].
at_status at_k_ragged_dot(const at_k_call *c) {
  const at_k_ragged_params *p = c->params;
  int64_t rows;
  AT_TRY(check_params(c, &rows));
  ragged r = {.p = p, .product = p->product, .call = c};
  uint32_t fixed = p->kind == AT_RAGGED_ROWS    ? p->m_dims
                   : p->kind == AT_RAGGED_BATCH ? p->batch_dims
                                                : 0;
  uint32_t rank = divided(&r, &r.product)->rank;
  AT_K_CHECK(rank <= AT_K_MAX_RANK && p->dim < rank && p->dim >= fixed,
             "ragged_dot: no dimension %u to divide", p->dim);
  r.dim = p->dim - fixed;
  drop_first(&r.product.batch, p->batch_dims);
  drop_first(&r.product.m, p->m_dims);
  uint32_t threads = at_par_threads(c->par);
  int64_t *sizes;
  piece *pieces;
  AT_K_SCRATCH(sizes, c, at_mul((size_t)p->groups + 1, sizeof *sizes));
  AT_K_SCRATCH(pieces, c, at_mul((size_t)p->groups + 1, sizeof *pieces));
  AT_K_SCRATCH(r.shelves, c, threads * sizeof *r.shelves);
  AT_K_SCRATCH(r.st, c, threads * sizeof *r.st);
  source from = {.par = c->par};
  pthread_mutex_init(&from.taking, NULL);
  for (uint32_t i = 0; i < threads; i++) {
    r.shelves[i] = (shelf){.from = &from};
    r.st[i] = AT_OK;
  }
  at_status st = run_rows(&r, rows, sizes, pieces);
  pthread_mutex_destroy(&from.taking);
  return st;
}
