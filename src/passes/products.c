// Small products inside of loops become sums over products of broadcasts: they
// fuse with what is around them, and a turn of the loop stays one function.
// A call of the kernel of products costs more than so few multiplications.
// Outside of loops so do those that a few numbers take part in, such as the
// weights of an image's channels: they cost less than to read the other operand
// once more; and so do many products of matrices that a few vectors hold.
// Products with banded matrices are sums of few terms (banded.c).
#include "cost/count.h"
#include "passes/passes_internal.h"

enum {
  kMostProducts = 1 << 15,
  kMaxRank = 12,
  kFewTerms = 8,
  kFewResults = 4,
  kVector = 8,
  kManyRows = 1 << 12,
  kManyProducts = 64,
  kSmallSide = 16
};

// Dimensions of a dot by what they are, in the order of the result.
typedef struct plan {
  int64_t extent[kMaxRank];          // of the space that is multiplied
  int64_t a[kMaxRank], b[kMaxRank];  // per operand dimension: which of it
  int64_t reduced[kMaxRank];
  uint32_t rank, num_reduced;
} plan;

typedef enum kind { BATCH, FREE, SUMMED } kind;

static bool has(at_dims d, int64_t x, uint32_t *at) {
  for (uint32_t i = 0; i < d.rank; i++)
    if (d.ptr[i] == x) return *at = i, true;
  return false;
}

typedef struct side {
  const at_type *t;
  at_dims batch, summed;
} side;

// What dimension d of an operand is to the product.
static kind kind_of(const side *s, uint32_t d) {
  uint32_t at;
  if (has(s->batch, d, &at)) return BATCH;
  return has(s->summed, d, &at) ? SUMMED : FREE;
}

// Product of the extents of all dimensions of kind k.
static int64_t count(const side *s, kind k) {
  int64_t n = 1;
  for (uint32_t d = 0; d < s->t->rank; d++)
    if (kind_of(s, d) == k) n *= s->t->dims[d];
  return n;
}

// What lies side by side in memory.
static kind minor(const side *s) {
  for (uint32_t d = s->t->rank; d-- > 0;)
    if (s->t->dims[d] > 1) return kind_of(s, d);
  return FREE;
}

// Gives the side's free dimensions the next places of the space, in order.
static void put_free(plan *p, const side *s, int64_t *where) {
  for (uint32_t d = 0; d < s->t->rank; d++) {
    if (kind_of(s, d) != FREE) continue;
    where[d] = p->rank;
    p->extent[p->rank++] = s->t->dims[d];
  }
}

// Gives batch or contracted dimensions, which both operands have, the next
// places of the space; contracted ones are summed over.
static void put_shared(plan *p, const side *a, const side *b, at_dims in_a,
                       at_dims in_b, bool summed) {
  for (uint32_t i = 0; i < in_a.rank; i++) {
    p->a[in_a.ptr[i]] = p->b[in_b.ptr[i]] = p->rank;
    if (summed) p->reduced[p->num_reduced++] = p->rank;
    p->extent[p->rank++] = a->t->dims[in_a.ptr[i]];
  }
}

// v in element type t, broadcast to the space of the plan.
static at_status widen(at_node *at, at_value v, at_dtype t, const plan *p,
                       const int64_t *where, at_value *out) {
  at_value wide = v;
  if (at_value_type(v)->dtype != t) AT_TRY(at_mk_convert(at, v, t, &wide));
  return at_mk_broadcast(at, wide, (at_dims){p->extent, p->rank}, where, out);
}

// *out = the sum, over the contracted dimensions, of a * b in the space of the
// plan, in type t.
static at_status sum_of(at_node *dot, const plan *p, at_dtype t,
                        at_value *out) {
  at_value a, b, product, zero;
  AT_TRY(widen(dot, dot->operands[0], t, p, p->a, &a));
  AT_TRY(widen(dot, dot->operands[1], t, p, p->b, &b));
  AT_TRY(at_mk2(dot, AT_OP_MULTIPLY, a, b, &product));
  if (!p->num_reduced) return *out = product, AT_OK;
  AT_TRY(at_mk_splat_int(dot, at_type_scalar(t), 0, &zero));
  return at_mk_reduce(dot, AT_OP_ADD, product, zero,
                      (at_dims){p->reduced, p->num_reduced}, out);
}

// From [batch, right, left] to [batch, left, right].
static at_status exchange(at_node *at, uint32_t batch, uint32_t left,
                          uint32_t right, at_value v, at_value *out) {
  int64_t perm[kMaxRank];
  uint32_t n = 0;
  for (uint32_t i = 0; i < batch; i++) perm[n++] = i;
  for (uint32_t i = 0; i < left; i++) perm[n++] = batch + right + i;
  for (uint32_t i = 0; i < right; i++) perm[n++] = batch + i;
  return at_mk_transpose(at, v, perm, out);
}

// The type that products are added in: at least f32 for floats, the result's
// own for complex numbers and integers; INVALID: a mix that is left alone.
static at_dtype sum_type(at_dtype a, at_dtype b, at_dtype c) {
  if (at_is_float(a) && at_is_float(b) && at_is_float(c))
    return a == AT_F64 || b == AT_F64 || c == AT_F64 ? AT_F64 : AT_F32;
  if (at_is_complex(c)) return a == c && b == c ? c : AT_INVALID;
  return at_is_int(a) && at_is_int(b) && at_is_int(c) ? c : AT_INVALID;
}

// The dot as a sum of products where that is cheaper. The order of the space
// decides what vectors run along: the right's free dimensions, the left's, or
// the contracted ones (`rows`).
static at_status as_sum(at_rw *r, at_node *n, bool in_loop) {
  at_dims lb = at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS),
          rb = at_node_ints(n, AT_ATTR_RHS_BATCHING_DIMENSIONS),
          lc = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS),
          rc = at_node_ints(n, AT_ATTR_RHS_CONTRACTING_DIMENSIONS);
  side a = {at_value_type(n->operands[0]), lb, lc},
       b = {at_value_type(n->operands[1]), rb, rc};
  at_dtype t = sum_type(a.t->dtype, b.t->dtype, n->types[0].dtype);
  int64_t batch = count(&a, BATCH), left = count(&a, FREE),
          right = count(&b, FREE), summed = count(&a, SUMMED);
  uint32_t shared = lb.rank + lc.rank;
  if (t == AT_INVALID || a.t->rank + b.t->rank - shared > kMaxRank)
    return AT_OK;
  double products =  // may be more than an integer holds
      (double)batch * (double)left * (double)right * (double)summed;
  if (products == 0) return AT_OK;
  bool small = in_loop && products <= kMostProducts;
  bool few = summed <= kFewTerms && AT_MIN(left, right) <= kFewResults;
  // Rows of a vector's length, too many for a kernel that packs them.
  bool vectors = summed <= kFewTerms && right == kVector && left >= kManyRows;
  bool many = batch >= kManyProducts && left <= kSmallSide &&
              right <= kSmallSide && summed <= kSmallSide;
  if (!small && !few && !vectors && !many) return AT_OK;
  bool along_right = (minor(&b) == FREE && right > 1) || vectors,
       along_left = !along_right && minor(&a) == FREE && left > 1;
  bool rows = !along_right && !along_left;
  plan p = {0};
  put_shared(&p, &a, &b, lb, rb, false);
  if (along_left)
    put_free(&p, &b, p.b);
  else
    put_free(&p, &a, p.a);
  if (!rows) put_shared(&p, &a, &b, lc, rc, true);
  if (along_left)
    put_free(&p, &a, p.a);
  else
    put_free(&p, &b, p.b);
  if (rows) put_shared(&p, &a, &b, lc, rc, true);
  at_value v;
  AT_TRY(sum_of(n, &p, t, &v));
  if (along_left)
    AT_TRY(exchange(n, lb.rank, a.t->rank - shared, b.t->rank - shared, v, &v));
  if (t != n->types[0].dtype)
    AT_TRY(at_mk_convert(n, v, n->types[0].dtype, &v));
  return at_fwd_set(r, n, 0, v);
}

void at_mk_stand_for(const at_node *n, uint32_t first) {
  for (at_node *k = n->prev; k && k->id >= first; k = k->prev) {
    at_count c = at_count_arithmetic(k);
    if (c.flops + c.transcendentals > 0) k->origin = n;
  }
}

// `in_loop`: some WHILE is around c. Transposes are simplified on the way, as
// sums bring new ones.
static at_status walk(at_rw *r, at_comp *c, bool in_loop) {
  AT_FOR_NODES(n, c) {
    at_fwd_operands(n);
    uint32_t first = r->m->next_id;
    bool product = n->op == AT_OP_DOT_GENERAL &&
                   at_type_is_static(&n->types[0]) && !n->types[0].quant;
    if (product) AT_TRY(as_sum(r, n, in_loop));
    if (product && !at_fwd_has(n)) AT_TRY(at_products_banded(r, n));
    if (at_fwd_has(n)) at_mk_stand_for(n, first);
    if (n->op == AT_OP_TRANSPOSE) AT_TRY(at_laws_apply(&at_laws_shape, r, n));
    if (!at_is_control(n->op)) continue;
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(walk(r, n->regions[i], in_loop || n->op == AT_OP_WHILE));
  }
  at_fwd_results(c);
  return AT_OK;
}

// For code of this machine only.
at_status at_pass_products(at_module *m, const at_pass_options *o) {
  if (!o->small_products) return AT_OK;
  at_aux_clear(m);
  at_rw r = {.m = m, .o = o};
  for (uint32_t i = 0; i < m->num_funcs; i++)
    AT_TRY(walk(&r, m->funcs[i], false));
  at_dce(m);
  return AT_OK;
}
