// One op of a program that is cut over devices: the cut to compute in, chosen
// among what its neighbours have by the bytes that move; its operands brought
// there; its attributes and types those of a part; partial results combined.
#include <math.h>

#include "passes/shard.h"

// ---- Choosing the cut to compute in
typedef struct choice {
  at_axes *factors;
  double cost;
} choice;

// Takes from the factors what some tensor cannot express; whether it did.
static bool settle_once(const at_cut *c, const at_rule *r, at_axes *f) {
  bool changed = false;
  for (uint32_t t = 0; t < r->num_tensors; t++)
    for (uint32_t d = 0; r->places[t] && d < r->places[t]->whole.rank; d++) {
      const at_dim_factors *x = &r->dims[t][d];
      bool full = true;
      for (uint32_t k = 0; k < x->n; k++) {
        at_axes *axes = &f[x->f[k]];
        changed |= !full && axes->n;
        if (!full) axes->n = 0;
        full &= at_axes_size(c, axes) == r->size[x->f[k]];
      }
    }
  return changed;
}

// What one tensor cannot express, no other may: until all agree.
static void settle(const at_cut *c, const at_rule *r, at_axes *f) {
  while (settle_once(c, r, f)) continue;
}

// Adds to the factors' axes f those that tensor t is cut by, as far as they
// continue what is there and no factor uses the atom.
static void fill(const at_cut *c, const at_rule *r, uint32_t t, at_axes *f,
                 at_axes *scratch) {
  if (!r->places[t]) return;
  at_rule_project(c, r, t, r->places[t]->dims, scratch);
  uint32_t used = 0;
  for (uint32_t i = 0; i < r->num_factors; i++) used |= at_axes_bits(&f[i]);
  for (uint32_t i = 0; i < r->num_factors; i++) {
    if (at_axes_common(&f[i], &scratch[i]) != f[i].n) continue;
    for (uint32_t k = f[i].n; k < scratch[i].n; k++) {
      uint8_t atom = scratch[i].a[k];
      if (used >> atom & 1) break;
      used |= 1u << atom;
      f[i].a[f[i].n++] = atom;
    }
  }
}

// How tensor t is cut when the factors are cut by f.
static void dims_of(const at_cut *c, const at_rule *r, uint32_t t,
                    const at_axes *f, at_axes *out) {
  for (uint32_t d = 0; r->places[t] && d < r->places[t]->whole.rank; d++)
    out[d] = at_rule_dim(c, r, t, d, f);
}

// Axes of partial results, in order.
static at_axes partial_axes(const at_rule *r, const at_axes *f) {
  at_axes out = {0};
  for (uint32_t i = 0; i < r->num_factors; i++)
    if (r->kind[i] == AT_FACTOR_SUM || r->kind[i] == AT_FACTOR_LOOKUP)
      for (uint32_t k = 0; k < f[i].n && out.n < AT_MAX_ATOMS; k++)
        out.a[out.n++] = f[i].a[k];
  return out;
}

// Multiplications of a product, twice.
static double flops_of(const at_node *n, const at_rule *r) {
  double flops = 2;
  if (n->op == AT_OP_DOT_GENERAL) {
    for (uint32_t i = 0; i < r->num_factors; i++) flops *= (double)r->size[i];
    return flops;
  }
  const at_type *kernel = &r->places[1]->whole, *out = &r->places[2]->whole;
  int64_t of = at_node_int(n, AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 0);
  return flops * (double)at_type_elements(out) *
         (double)at_type_elements(kernel) /
         (double)AT_MAX(kernel->dims[of], (int64_t)1);
}

static bool is_product(at_op op) {
  return op == AT_OP_DOT_GENERAL || op == AT_OP_CONVOLUTION;
}

// How many products would have p's value cut as `dims`: they share what moves.
static uint32_t readers(const at_place *p, const at_axes *dims) {
  const at_want *x = p->wants;
  while (x && !at_dims_axes_eq(x->dims, dims, p->whole.rank)) x = x->next;
  return x ? x->count : 1;
}

// Counts one more product that would read p cut as `dims`.
static at_status want(at_cut *c, at_place *p, const at_axes *dims) {
  at_want *x = p->wants;
  while (x && !at_dims_axes_eq(x->dims, dims, p->whole.rank)) x = x->next;
  if (x) return x->count++, AT_OK;
  AT_TRY_ALLOC(x, at_new(c->m->arena, at_want, 1));
  *x = (at_want){.count = 1, .next = p->wants};
  AT_TRY_ALLOC(x->dims, at_new(c->m->arena, at_axes, p->whole.rank + 1));
  for (uint32_t d = 0; d < p->whole.rank; d++) x->dims[d] = dims[d];
  p->wants = x;
  return AT_OK;
}

// Whether n adds up along a dimension of tensor t that is cut otherwise than in
// `dims`: then partial sums may serve n better.
static bool sums_moved(const at_rule *r, uint32_t t, const at_axes *dims) {
  const at_place *p = r->places[t];
  for (uint32_t d = 0; d < p->whole.rank; d++)
    for (uint32_t k = 0; k < r->dims[t][d].n; k++)
      if (r->kind[r->dims[t][d].f[k]] == AT_FACTOR_SUM &&
          !at_axes_eq(&p->dims[d], &dims[d]))
        return true;
  return false;
}

// Before the computation is rewritten: several products that want one operand
// in the same cut share the bytes that bring it there.
at_status at_products_want(at_cut *c, at_comp *comp) {
  AT_FOR_NODES(n, comp) {
    at_rule r;
    at_axes *f, dims[64];
    if (!n->aux || !is_product(n->op)) continue;
    AT_TRY(at_rule_make(c->m->arena, n, &r));
    AT_TRY_ALLOC(f, at_new(c->m->arena, at_axes, 2 * r.num_factors + 1));
    for (uint32_t t = r.num_tensors; t-- > 0;)
      fill(c, &r, t, f, f + r.num_factors);
    settle(c, &r, f);
    for (uint32_t t = 0; t < 2; t++) {
      if (!r.places[t] || r.places[t]->whole.rank > 64) continue;
      dims_of(c, &r, t, f, dims);
      if (!sums_moved(&r, t, dims)) AT_TRY(want(c, r.places[t], dims));
    }
  }
  return AT_OK;
}

// What a device could compute while a byte arrives. Chips reach 2,000 and more,
// but a product that all of them do whole keeps what follows from being cut.
static const double kFlopsPerByte = 100;

// Bytes that a device receives to bring operands there, to combine partial
// results and to bring the results home, plus a weight for work that is not
// divided. Values of more than 64 dimensions count nothing.
static double cost_of(const at_cut *c, const at_node *n, const at_rule *r,
                      const at_axes *f) {
  at_axes dims[64];
  at_axes partial = partial_axes(r, f);
  double bytes = 0, work = 0, cut = 1;
  bool product = is_product(n->op);
  for (uint32_t i = 0; i < r->num_factors; i++)
    cut *= (double)at_axes_size(c, &f[i]);
  for (uint32_t t = 0; t < r->num_tensors; t++) {
    const at_place *p = r->places[t];
    if (!p || p->whole.rank > 64) continue;
    dims_of(c, r, t, f, dims);
    work += (double)at_type_bytes(&p->whole) / cut;
    if (t < n->num_operands) {
      if (!at_has_part(p, n->parent, dims))
        bytes += at_reshard_cost(c, &p->whole, p->dims, dims) /
                 (product ? readers(p, dims) : 1);
      continue;
    }
    for (uint32_t mask = at_axes_bits(&partial); mask;) {
      double part = at_part_bytes(c, &p->whole, dims);
      at_axes axes;
      int32_t d = at_sum_step(c, dims, p->dims, p->whole.rank, &mask, &axes);
      double g = (double)at_axes_size(c, &axes);
      bytes += part * (g - 1) / g * (d >= 0 ? 1 : 2);
    }
    // A little more, as parts of operands can serve others, too.
    bytes += 1.02 * at_reshard_cost(c, &p->whole, dims, p->dims);
  }
  // Work that is not divided costs too: a little, which decides between equal
  // traffic; more where each element takes a sum of products.
  double weight = product ? 0.2 : 0.01;
  if (product) bytes += flops_of(n, r) / cut / kFlopsPerByte;
  return bytes + weight * work;
}

// *best: the cheapest of the seeds. Ops of many tensors try the first 16 and
// the last 4 only.
static at_status choose(at_cut *c, const at_node *n, const at_rule *r,
                        at_axes *best) {
  uint32_t nf = r->num_factors, nt = r->num_tensors;
  at_axes *f, *scratch;
  AT_TRY_ALLOC(f, at_new(c->m->arena, at_axes, 2 * nf + 1));
  scratch = f + nf;
  double least = -1;
  // Seeds: each tensor alone, then with what the others add; last, nothing.
  for (uint32_t seed = 0; seed <= 2 * nt && (nf || !seed); seed++) {
    if (seed < 2 * nt && (seed / 2 >= 16 && seed / 2 + 4 < nt)) continue;
    for (uint32_t i = 0; i < nf; i++) f[i].n = 0;
    uint32_t first = seed / 2;
    if (first < nt) {
      fill(c, r, first, f, scratch);
      if (seed % 2)
        for (uint32_t t = nt; t-- > 0;) fill(c, r, t, f, scratch);
    }
    settle(c, r, f);
    double cost = cost_of(c, n, r, f);
    if (least >= 0 && cost >= least) continue;
    least = cost;
    memcpy(best, f, nf * sizeof *f);
  }
  return AT_OK;
}

// ---- Rewriting one node
// Dimensions of operands that are cut, and that n cannot use cut: bit d.
static uint64_t useless_cuts(const at_cut *c, const at_rule *r, uint32_t t) {
  uint64_t found = 0;
  const at_place *p = r->places[t];
  for (uint32_t d = 0; p && d < p->whole.rank && d < 64; d++)
    if (!r->dims[t][d].n && at_axes_size(c, &p->dims[d]) > 1)
      found |= 1ull << d;
  return found;
}

// Notes an op for which operands had to be all-gathered, and along which
// dimensions.
static void note(at_cut *c, const at_node *n, const at_rule *r) {
  for (uint32_t t = 0; t < n->num_operands; t++) {
    uint64_t dims = useless_cuts(c, r, t);
    if (!dims) continue;
    if (r->known) {
      at_strbuf_addf(&c->notes, "operand %u whole along", t);
      for (uint32_t d = 0; dims; d++, dims >>= 1)
        if (dims & 1) at_strbuf_addf(&c->notes, " %u", d);
      at_strbuf_addz(&c->notes, ": ");
    } else {
      at_strbuf_addz(&c->notes, "whole on every device: ");
    }
    at_node_describe(&c->notes, n);
    at_strbuf_addc(&c->notes, '\n');
    if (!r->known) return;
  }
}

// n's attribute `id` becomes a copy of v[count].
static at_status set_ints(at_cut *c, at_node *n, at_attr_id id,
                          const int64_t *v, uint32_t count) {
  int64_t *copy;
  AT_TRY_ALLOC(copy, at_arena_copy(c->m->arena, v, count * sizeof *v + 1,
                                   _Alignof(int64_t)));
  return at_node_set_attr(n, at_attr_ints(id, copy, count));
}

// Attributes that speak of sizes: those of dimensions that are cut shrink
// along.
static at_status shrink_attrs(at_cut *c, at_node *n, const at_type *whole) {
  int64_t v[64];
  const at_type *part = at_value_type(n->operands[0]);
  if (whole->rank > 64) return AT_OK;
  at_attr_id id =
      n->op == AT_OP_SLICE ? AT_ATTR_LIMIT_INDICES : AT_ATTR_SLICE_SIZES;
  at_dims old = at_node_ints(n, id);
  for (uint32_t d = 0; d < old.rank; d++)
    v[d] = old.ptr[d] == whole->dims[d] ? part->dims[d] : old.ptr[d];
  return set_ints(c, n, id, v, old.rank);
}

// Operand k of a scatter or gather, with the component that points into
// dimension `d` moved by where this device's part begins. *mask, if asked:
// which are here.
static at_status shift_indices(at_cut *c, at_node *n, uint32_t k,
                               int64_t component, const at_axes *axes,
                               int64_t whole, bool clamp, at_value *mask) {
  at_comp *comp = n->parent;
  at_value v = n->operands[k], off, low, high;
  at_type t = *at_value_type(v);
  int64_t vector = at_node_int(n, AT_ATTR_INDEX_VECTOR_DIM, 0);
  int64_t each = at_axes_part(c, axes, whole);
  // Wide enough for a negative offset.
  if (t.dtype != AT_S64) {
    t.dtype = AT_S64;
    AT_TRY(at_mk_convert(n, v, AT_S64, &v));
  }
  at_value zero, lo1, hi1;
  AT_TRY(at_mk_splat_int(n, t, 0, &zero));
  // By component: only the one that points into the dimension moves.
  bool many = vector < t.rank && t.dims[vector] > 1;
  at_value column = {0};
  if (many) {
    at_value k1, i;
    at_attr dim = at_attr_int(AT_ATTR_DIMENSION, vector);
    AT_TRY(at_mk(n, AT_OP_IOTA, NULL, 0, &dim, 1, &t, &i));
    AT_TRY(at_mk_splat_int(n, t, component, &k1));
    AT_TRY(at_mk_compare(n, AT_EQ, i, k1, &column));
  }
  AT_TRY(at_part_offset(c, comp, n, axes, whole, AT_S64, &off));
  AT_TRY(at_mk_broadcast(n, off, at_type_dims(&t), NULL, &off));
  if (clamp) {
    at_value bounded, args[3];
    AT_TRY(at_mk_splat_int(n, t, whole - 1, &hi1));
    args[0] = zero;
    args[1] = v;
    args[2] = hi1;
    AT_TRY(at_mk(n, AT_OP_CLAMP, args, 3, NULL, 0, NULL, &bounded));
    if (many) {
      at_value sel[3] = {column, bounded, v};
      AT_TRY(at_mk(n, AT_OP_SELECT, sel, 3, NULL, 0, NULL, &bounded));
    }
    v = bounded;
  }
  at_value moved;
  AT_TRY(at_mk2(n, AT_OP_SUBTRACT, v, off, &moved));
  if (many) {
    at_value sel[3] = {column, moved, v};
    AT_TRY(at_mk(n, AT_OP_SELECT, sel, 3, NULL, 0, NULL, &moved));
  }
  if (mask) {
    if (at_axes_even(c, axes, whole)) {
      AT_TRY(at_mk_splat_int(n, t, each, &hi1));
    } else {
      AT_TRY(at_uneven_count(c, comp, n, axes, whole, AT_S64, &hi1));
      AT_TRY(at_mk_broadcast(n, hi1, at_type_dims(&t), NULL, &hi1));
    }
    AT_TRY(at_mk_compare(n, AT_GE, moved, zero, &lo1));
    AT_TRY(at_mk_compare(n, AT_LT, moved, hi1, &low));
    AT_TRY(at_mk2(n, AT_OP_AND, lo1, low, &high));
    if (many) {
      at_value other;
      AT_TRY(at_mk1(n, AT_OP_NOT, column, &other));
      AT_TRY(at_mk2(n, AT_OP_OR, high, other, &high));
    }
    *mask = high;
  }
  n->operands[k] = moved;
  return AT_OK;
}

// True where the whole index lies here, in the shape of the gather's result.
static at_status lookup_mask(at_node *n, at_value mask, const at_type *result,
                             at_value *out) {
  at_type t = *at_value_type(mask);
  int64_t vector = at_node_int(n, AT_ATTR_INDEX_VECTOR_DIM, 0), where[64];
  at_dims offsets = at_node_ints(n, AT_ATTR_OFFSET_DIMS);
  if (vector < t.rank) {
    at_value yes;
    at_type s = at_type_scalar(AT_PRED);
    AT_TRY(at_mk_splat_int(n, s, 1, &yes));
    AT_TRY(at_mk_reduce(n, AT_OP_AND, mask, yes, (at_dims){&vector, 1}, &mask));
  }
  uint32_t k = 0;
  for (uint32_t d = 0; d < result->rank && d < 64; d++) {
    bool offset = false;
    for (uint32_t i = 0; i < offsets.rank; i++) offset |= offsets.ptr[i] == d;
    if (!offset) where[k++] = d;
  }
  return at_mk_broadcast(n, mask, at_type_dims(result), where, out);
}

// The start of n, an update, along dimension d of size `whole`, within this
// device's part; *here: whether it lies there.
static at_status local_start(at_cut *c, at_node *n, uint32_t d,
                             const at_axes *axes, int64_t whole,
                             at_value *here) {
  at_value *start = &n->operands[2 + d], zero, last, low, high, at[3];
  at_type t = *at_value_type(*start), wide = at_type_scalar(AT_S64);
  int64_t each = at_axes_part(c, axes, whole);
  AT_TRY(at_mk_convert(n, *start, AT_S64, &at[1]));
  AT_TRY(at_mk_splat_int(n, wide, 0, &zero));
  AT_TRY(at_mk_splat_int(n, wide, whole - 1, &last));
  at[0] = zero;
  at[2] = last;
  AT_TRY(at_mk(n, AT_OP_CLAMP, at, 3, NULL, 0, NULL, &at[1]));
  AT_TRY(at_part_offset(c, n->parent, n, axes, whole, AT_S64, &at[2]));
  AT_TRY(at_mk2(n, AT_OP_SUBTRACT, at[1], at[2], &at[1]));
  AT_TRY(at_mk_splat_int(n, wide, each - 1, &at[2]));
  AT_TRY(at_mk_compare(n, AT_GE, at[1], zero, &low));
  AT_TRY(at_mk_compare(n, AT_LE, at[1], at[2], &high));
  AT_TRY(at_mk2(n, AT_OP_AND, low, high, &low));
  if (here->node) AT_TRY(at_mk2(n, AT_OP_AND, *here, low, &low));
  *here = low;
  AT_TRY(at_mk(n, AT_OP_CLAMP, at, 3, NULL, 0, NULL, &at[1]));
  return at_mk_convert(n, at[1], t.dtype, start);
}

// Devices that do not hold what is updated write what was there.
static at_status update_where_held(at_cut *c, at_node *n, const at_rule *r,
                                   const at_axes *f) {
  at_value here = {0}, pick[3];
  uint32_t rank = r->places[0]->whole.rank;
  for (uint32_t d = 0; d < rank; d++) {
    const at_dim_factors *x = &r->dims[0][d];
    if (x->n && r->kind[x->f[0]] == AT_FACTOR_STORE && f[x->f[0]].n)
      AT_TRY(local_start(c, n, d, &f[x->f[0]], r->places[0]->whole.dims[d],
                         &here));
  }
  if (!here.node) return AT_OK;
  at_value *ops;
  at_dims sizes = at_type_dims(at_value_type(n->operands[1]));
  AT_TRY_ALLOC(ops, at_new(c->m->arena, at_value, rank + 1));
  ops[0] = n->operands[0];
  for (uint32_t d = 0; d < rank; d++) ops[1 + d] = n->operands[2 + d];
  at_attr attr = at_attr_ints(AT_ATTR_SLICE_SIZES, sizes.ptr, rank);
  AT_TRY(
      at_mk(n, AT_OP_DYNAMIC_SLICE, ops, rank + 1, &attr, 1, NULL, &pick[2]));
  AT_TRY(at_mk_broadcast(n, here, sizes, NULL, &pick[0]));
  pick[1] = n->operands[1];
  return at_mk(n, AT_OP_SELECT, pick, 3, NULL, 0, NULL, &n->operands[1]);
}

// The first factor of that kind that is cut; -1: none.
static int32_t factor_of_kind(const at_rule *r, const at_axes *f,
                              at_factor_kind kind) {
  for (uint32_t i = 0; i < r->num_factors; i++)
    if (r->kind[i] == kind && f[i].n) return (int32_t)i;
  return -1;
}

// The dimension of tensor 0 that factor f cuts, and the index component that
// maps to it.
static int64_t component_of(const at_rule *r, const at_node *n, int32_t f,
                            uint32_t *dim) {
  at_dims map = at_node_ints(n, n->op == AT_OP_GATHER
                                    ? AT_ATTR_START_INDEX_MAP
                                    : AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS);
  for (uint32_t d = 0; d < r->places[0]->whole.rank; d++)
    if (r->dims[0][d].n && r->dims[0][d].f[0] == f) {
      *dim = d;
      for (uint32_t i = 0; i < map.rank; i++)
        if (map.ptr[i] == d) return i;
    }
  *dim = 0;
  return 0;
}

// before the node itself: what its operands need beyond being cut.
static at_status prepare(at_cut *c, at_node *n, const at_rule *r,
                         const at_axes *f, at_value *mask) {
  uint32_t dim;
  int32_t k;
  mask->node = NULL;
  switch (n->op) {
    case AT_OP_SLICE:
    case AT_OP_DYNAMIC_SLICE:
      return shrink_attrs(c, n, &r->places[0]->whole);
    case AT_OP_DYNAMIC_UPDATE_SLICE:
      return update_where_held(c, n, r, f);
    case AT_OP_GATHER: {
      k = factor_of_kind(r, f, AT_FACTOR_LOOKUP);
      at_type whole = r->places[0]->whole;
      if (k >= 0) {
        int64_t component = component_of(r, n, k, &dim);
        AT_TRY(shift_indices(c, n, 1, component, &f[k], whole.dims[dim], true,
                             mask));
      }
      return shrink_attrs(c, n, &whole);
    }
    case AT_OP_SCATTER:
      k = factor_of_kind(r, f, AT_FACTOR_STORE);
      if (k < 0) return AT_OK;
      int64_t component = component_of(r, n, k, &dim);
      return shift_indices(c, n, n->num_results, component, &f[k],
                           r->places[0]->whole.dims[dim], false, NULL);
    default:
      return AT_OK;
  }
}

// A splat of what `op` leaves alone, of type t; has_identity holds.
static at_status identity_of(at_node *n, at_op op, at_type t, at_value *out) {
  uint64_t zero[2] = {0}, one[2] = {0};
  switch (op) {
    case AT_OP_MULTIPLY:
      if (at_is_complex(t.dtype)) {
        at_store_float(t.dtype == AT_C64 ? AT_F32 : AT_F64, one, 1);
        return at_mk_splat(n, t, one, out);
      }
      return at_is_float(t.dtype) ? at_mk_splat_float(n, t, 1, out)
                                  : at_mk_splat_int(n, t, 1, out);
    case AT_OP_AND:
      return at_mk_splat_int(n, t, t.dtype == AT_PRED ? 1 : -1, out);
    case AT_OP_MAXIMUM:
      return at_mk_splat_float(n, t, -(double)INFINITY, out);
    case AT_OP_MINIMUM:
      return at_mk_splat_float(n, t, (double)INFINITY, out);
    default:
      return at_mk_splat(n, t, zero, out);  // add, or
  }
}

// Is there a value of t that `op` leaves alone? Extrema need an infinity.
static bool has_identity(at_op op, at_dtype t) {
  if (op == AT_OP_ADD || op == AT_OP_OR || op == AT_OP_MULTIPLY ||
      op == AT_OP_AND)
    return true;
  return t == AT_F32 || t == AT_F64 || t == AT_BF16 || t == AT_F16;
}

// Part of an iota along a dimension that is cut. Numbers that round are counted
// as integers first: their sums would round twice.
static at_status offset_iota(at_cut *c, at_node *n, const at_axes *have,
                             at_value *v) {
  int64_t d = at_node_int(n, AT_ATTR_DIMENSION, 0);
  at_axes axes = have[d];
  if (!axes.n) return AT_OK;
  at_value ops[2] = {*v};
  at_node *after = n->next;
  at_comp *comp = n->parent;
  at_type *t = &n->types[0], result = *t;
  const at_place *p = at_place_of(*v);
  if (at_is_complex(t->dtype) || at_is_float(t->dtype))
    t->dtype = at_offset_type(p->whole.dims[d]);
  AT_TRY(at_part_offset(c, comp, after, &axes, p->whole.dims[d], t->dtype,
                        &ops[1]));
  at_attr none = at_attr_ints(AT_ATTR_BROADCAST_DIMENSIONS, NULL, 0);
  at_node_desc x = {.op = AT_OP_BROADCAST_IN_DIM,
                    .operands = &ops[1],
                    .num_operands = 1,
                    .attrs = &none,
                    .num_attrs = 1,
                    .types = t,
                    .num_types = 1};
  AT_TRY(at_emit(comp, after, &x, &ops[1]));
  AT_TRY(at_build_op(comp, after, AT_OP_ADD, ops, 2, n->loc, v));
  if (result.dtype == t->dtype) return AT_OK;
  x = (at_node_desc){.op = AT_OP_CONVERT,
                     .operands = v,
                     .num_operands = 1,
                     .types = &result,
                     .num_types = 1,
                     .loc = n->loc};
  return at_emit(comp, after, &x, v);
}

// For ops that need all of an operand on each device.
at_status at_bring_whole(at_cut *c, at_node *n, at_value *v) {
  at_place *p = at_place_of(*v);
  at_axes *none;
  if (!p) return AT_OK;
  AT_TRY_ALLOC(none, at_new(c->m->arena, at_axes, p->whole.rank + 1));
  return at_reshard(c, n->parent, n, p, (at_lay){none, 0}, v);
}

// Regions of reductions and the like see scalars from outside.
static at_status captured(at_cut *c, at_node *n, at_comp *body) {
  AT_FOR_NODES(k, body) {
    for (uint32_t i = 0; i < k->num_operands; i++)
      AT_TRY(at_bring_whole(c, n, &k->operands[i]));
    for (uint32_t i = 0; i < k->num_regions; i++)
      AT_TRY(captured(c, n, k->regions[i]));
  }
  for (uint32_t i = 0; i < body->num_results; i++)
    AT_TRY(at_bring_whole(c, n, &body->results[i]));
  return AT_OK;
}

// Takes the atoms in `mask` out of `axes`; which they were.
static uint32_t take_out(at_axes *axes, uint32_t mask) {
  at_axes rest = {0};
  uint32_t out = at_axes_bits(axes) & mask;
  for (uint32_t i = 0; i < axes->n; i++)
    if (!(mask >> axes->a[i] & 1)) rest.a[rest.n++] = axes->a[i];
  *axes = rest;
  return out;
}

// Operand t of n under `f`.
static at_status bring(at_cut *c, at_node *n, const at_rule *r, uint32_t t,
                       const at_axes *f, uint32_t sums) {
  at_place *p = r->places[t];
  at_axes *dims;
  if (!p) return AT_OK;
  AT_TRY_ALLOC(dims, at_new(c->m->arena, at_axes, p->whole.rank + 1));
  dims_of(c, r, t, f, dims);
  if (!at_sums_may_be(n, t)) sums = 0;
  return at_reshard(c, n->parent, n, p, (at_lay){dims, p->sums & sums},
                    &n->operands[t]);
}

// Padding of dimensions that are summed over must not count.
static at_status mask_sums(at_cut *c, at_node *n, const at_rule *r,
                           const at_axes *f) {
  bool reduce = n->op == AT_OP_REDUCE;
  if (!reduce && n->op != AT_OP_DOT_GENERAL && n->op != AT_OP_CONVOLUTION)
    return AT_OK;
  for (uint32_t t = 0; t < n->num_operands; t++)
    for (uint32_t d = 0; r->places[t] && d < r->places[t]->whole.rank; d++) {
      const at_dim_factors *x = &r->dims[t][d];
      if (x->n != 1 || r->kind[x->f[0]] != AT_FACTOR_SUM) continue;
      const at_axes *axes = &f[x->f[0]];
      int64_t size = r->size[x->f[0]];
      if (at_axes_even(c, axes, size)) continue;
      at_value fill = n->operands[1];  // a reduction's initial value
      uint64_t bits[2] = {0};
      if (!reduce)
        AT_TRY(at_mk_splat(n, at_type_scalar(r->places[t]->whole.dtype), bits,
                           &fill));
      AT_TRY(at_uneven_mask(c, n, d, axes, size, fill, &n->operands[t]));
    }
  return AT_OK;
}

// Partial scatters begin with what the combination leaves alone; the operand
// joins once, after the parts are combined.
static at_status split_scatter(at_node *n, const at_rule *r, at_value *base) {
  *base = n->operands[0];
  return identity_of(n, r->combine, *at_value_type(*base), &n->operands[0]);
}

// Is the operand the identity already? Then each device may begin with it as it
// is.
static bool scatters_into_nothing(const at_node *n, at_op combine) {
  at_value v = n->operands[0];
  while (at_is_constraint(v.node)) v = v.node->operands[0];
  return at_is_identity(combine, v);
}

// Looked-up rows that live elsewhere are zero here; the sum over devices has
// them all.
static at_status mask_lookup(at_node *n, at_value mask, at_value *out) {
  const at_type *part = &n->types[0];
  uint64_t bits[2] = {0};
  at_value zero, m;
  AT_TRY(lookup_mask(n, mask, part, &m));
  AT_TRY(at_mk_splat(n, *part, bits, &zero));
  at_value sel[3] = {m, {n, 0}, zero};
  return at_mk(n->next, AT_OP_SELECT, sel, 3, NULL, 0, NULL, out);
}

// Parts are reversed where they are; they also change their ends.
static at_status reverse_parts(at_cut *c, at_node *n, const at_axes *have,
                               at_value *v) {
  at_dims dims = at_node_ints(n, AT_ATTR_DIMENSIONS);
  uint32_t ends = 0;
  for (uint32_t i = 0; i < dims.rank; i++)
    ends |= at_axes_bits(&have[dims.ptr[i]]);
  return ends ? at_mirror(c, n->parent, n->next, ends, *v, v) : AT_OK;
}

// From what n computes under f to where the place wants it: offsets of iotas,
// reversed ends, masked lookups, the combination of partial results, the
// operand of a split scatter, the reshard.
static at_status finish_result(at_cut *c, at_node *n, const at_rule *r,
                               const at_axes *f, uint32_t i, uint32_t sums,
                               at_value base, at_value mask) {
  at_place *p = r->places[n->num_operands + i];
  at_axes *have, axes = partial_axes(r, f);
  at_node *after = n->next;
  at_value v = {n, i};
  AT_TRY_ALLOC(have, at_new(c->m->arena, at_axes, p->whole.rank + 1));
  dims_of(c, r, n->num_operands + i, f, have);
  // Sums that somebody would take as summands need not be added up here.
  uint32_t free = p->wanted & ~at_dims_bits(p->dims, p->whole.rank);
  if (!base.node && (r->combine == AT_OP_ADD || n->op == AT_OP_GATHER))
    sums |= take_out(&axes, free);
  if (n->op == AT_OP_IOTA) AT_TRY(offset_iota(c, n, have, &v));
  if (n->op == AT_OP_REVERSE) AT_TRY(reverse_parts(c, n, have, &v));
  if (mask.node) AT_TRY(mask_lookup(n, mask, &v));
  at_op op = n->op != AT_OP_GATHER       ? r->combine
             : p->whole.dtype == AT_PRED ? AT_OP_OR
                                         : AT_OP_ADD;
  AT_TRY(at_combine(c, n->parent, after, op, at_axes_bits(&axes), have,
                    base.node ? have : p->dims, &v));
  if (base.node) {
    at_value ops[2] = {base, v};
    AT_TRY(at_build_op(n->parent, after, r->combine, ops, 2, n->loc, &v));
  }
  p->sums = sums & ~at_dims_bits(p->dims, p->whole.rank);
  return at_reshard_part(c, n->parent, after, &p->whole, v,
                         (at_lay){have, sums}, (at_lay){p->dims, p->sums},
                         &p->now);
}

// n's result types become those of the parts under f.
static at_status cut_types(at_cut *c, at_node *n, const at_rule *r,
                           const at_axes *f) {
  at_axes *dims;
  for (uint32_t i = 0; i < n->num_results; i++) {
    const at_place *p = r->places[n->num_operands + i];
    AT_TRY_ALLOC(dims, at_new(c->m->arena, at_axes, p->whole.rank + 1));
    dims_of(c, r, n->num_operands + i, f, dims);
    AT_TRY(at_type_cut(c, &p->whole, dims, &n->types[i]));
  }
  return AT_OK;
}

// Constants stay whole, and each device takes its part, but for splats.
static at_status rewrite_constant(at_cut *c, at_node *n) {
  at_place *p = at_place_of((at_value){n, 0});
  const at_literal *l = at_node_literal(n);
  at_axes *none;
  if (!l->splat) {
    AT_TRY_ALLOC(none, at_new(c->m->arena, at_axes, p->whole.rank + 1));
    return at_reshard_part(c, n->parent, n->next, &p->whole, (at_value){n, 0},
                           (at_lay){none, 0}, (at_lay){p->dims, 0}, &p->now);
  }
  at_attr v = {.id = AT_ATTR_VALUE};
  AT_TRY(at_type_cut(c, &p->whole, p->dims, &n->types[0]));
  AT_TRY(at_literal_make(c->m->arena, n->types[0], l->data, true, false,
                         &v.literal));
  p->now = (at_value){n, 0};
  return at_node_set_attr(n, v);
}

// A barrier's values have nothing to do with one another: each passes as it is.
static at_status rewrite_barrier(at_cut *c, at_node *n) {
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_place *from = at_place_of(n->operands[i]);
    at_place *p = at_place_of((at_value){n, i});
    uint32_t cut = at_dims_bits(p->dims, p->whole.rank);
    p->sums = at_sums_carried(n, cut, i);
    AT_TRY(at_reshard(c, n->parent, n, from, (at_lay){from->dims, p->sums},
                      &n->operands[i]));
    AT_TRY(at_type_cut(c, &p->whole, from->dims, &n->types[i]));
    AT_TRY(at_reshard_part(c, n->parent, n->next, &p->whole, (at_value){n, i},
                           (at_lay){from->dims, p->sums},
                           (at_lay){p->dims, p->sums}, &p->now));
  }
  return AT_OK;
}

// A host callback of one device: the others neither send nor receive, and have
// what it receives from it.
static at_status rewrite_host(at_cut *c, at_node *n, int64_t device) {
  at_node *after = n->next;
  at_axes *none;
  for (uint32_t i = 0; i < n->num_operands; i++)
    AT_TRY(at_bring_whole(c, n, &n->operands[i]));
  AT_TRY(at_node_set_attr(n, at_attr_int(AT_ATTR_ON_PARTITION, device)));
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_place *p = at_place_of((at_value){n, i});
    at_value v = {n, i};
    p->now = v;
    if (p->whole.dtype == AT_TOKEN) continue;
    AT_TRY(at_spread(c, n->parent, after, device, v, &v));
    AT_TRY_ALLOC(none, at_new(c->m->arena, at_axes, p->whole.rank + 1));
    AT_TRY(at_reshard_part(c, n->parent, after, &p->whole, v, (at_lay){none, 0},
                           (at_lay){p->dims, 0}, &p->now));
  }
  return AT_OK;
}

// No partial sums where the combination has nothing that it leaves alone.
static void keep_whole(const at_node *n, const at_rule *r, at_axes *f) {
  if (n->op != AT_OP_SCATTER ||
      has_identity(r->combine, r->places[0]->whole.dtype))
    return;
  for (uint32_t i = 0; i < r->num_factors; i++)
    if (r->kind[i] == AT_FACTOR_SUM) f[i].n = 0;
}

// Axes that belong to the program cut nothing here.
static void leave_manual(const at_rule *r, const at_node *n, at_axes *f) {
  uint32_t manual = 0;
  for (uint32_t i = 0; i < n->num_results; i++)
    manual |= r->places[n->num_operands + i]->manual;
  for (uint32_t i = 0; i < r->num_factors; i++)
    for (uint32_t k = 0; k < f[i].n; k++)
      if (manual >> f[i].a[k] & 1) f[i].n = (uint8_t)k;
}

// Steps: choose the cut, bring the operands, mask padding, adapt attributes and
// types, finish each result.
at_status at_partition_op(at_cut *c, at_node *n) {
  at_rule r;
  at_axes *f;
  uint32_t *sums;
  at_value base = {0}, mask = {0};
  int64_t device = -1;
  if (n->op == AT_OP_SEND || n->op == AT_OP_RECV)
    AT_TRY(at_sharding_device(c, at_node_str(n, AT_ATTR_SHARDING), &device));
  if (device >= 0) return rewrite_host(c, n, device);
  if (n->op == AT_OP_CONSTANT) return rewrite_constant(c, n);
  if (n->op == AT_OP_OPTIMIZATION_BARRIER) return rewrite_barrier(c, n);
  AT_TRY(at_rule_make(c->m->arena, n, &r));
  note(c, n, &r);
  AT_TRY_ALLOC(f, at_new(c->m->arena, at_axes, r.num_factors + 1));
  if (r.num_factors) AT_TRY(choose(c, n, &r, f));
  keep_whole(n, &r, f);
  leave_manual(&r, n, f);
  // Before the operands are brought: their places are those of the program.
  AT_TRY_ALLOC(sums, at_new(c->m->arena, uint32_t, n->num_results + 1));
  bool empty = n->op == AT_OP_SCATTER && scatters_into_nothing(n, r.combine);
  for (uint32_t i = 0; i < n->num_results; i++)
    sums[i] = at_sums_carried(n, at_dims_bits(f, r.num_factors), i);
  for (uint32_t t = 0; t < n->num_operands; t++)
    AT_TRY(bring(c, n, &r, t, f, sums[0]));
  for (uint32_t k = 0; k < n->num_regions; k++)
    AT_TRY(captured(c, n, n->regions[k]));
  AT_TRY(mask_sums(c, n, &r, f));
  AT_TRY(prepare(c, n, &r, f, &mask));
  if (n->op == AT_OP_SCATTER && !empty &&
      factor_of_kind(&r, f, AT_FACTOR_SUM) >= 0)
    AT_TRY(split_scatter(n, &r, &base));
  AT_TRY(cut_types(c, n, &r, f));
  for (uint32_t i = 0; i < n->num_results; i++)
    AT_TRY(finish_result(c, n, &r, f, i, sums[i], base, mask));
  return AT_OK;
}
