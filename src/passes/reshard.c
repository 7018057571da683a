// From one sharding to another: slices where a device has more than it needs,
// all-to-all where an axis moves between dimensions (from the end of one to the
// end of the other: permutations bring it there, or to its place afterwards), a
// permutation where parts only change their device, all-gather for the rest.
#include "passes/shard.h"

typedef enum move_kind {
  MOVE_SLICE,
  MOVE_GATHER,
  MOVE_ALL_TO_ALL,
  MOVE_REORDER,  // a permutation: `from` is cut along `axes`, what it was
                 // before in another order
  MOVE_PERMUTE
} move_kind;
typedef struct move {
  move_kind kind;
  uint32_t from, to;  // dimensions; ALL_TO_ALL: axes leave `from` and cut `to`
  at_axes axes;
} move;
enum { MAX_MOVES = 64 };

typedef struct plan {
  uint32_t n;
  move moves[MAX_MOVES];
  at_axes *now;  // rank entries
} plan;

// The axes of x from place `from` on.
static at_axes tail(const at_axes *x, uint32_t from) {
  at_axes out = {0};
  for (uint32_t i = from; i < x->n; i++) out.a[out.n++] = x->a[i];
  return out;
}

// Axes of `more` join the end of x; at most AT_MAX_ATOMS.
static void append(at_axes *x, const at_axes *more) {
  for (uint32_t i = 0; i < more->n && x->n < AT_MAX_ATOMS; i++)
    x->a[x->n++] = more->a[i];
}

// Appends m to the plan and applies it to p->now. MOVE_PERMUTE changes p->now
// in the caller. False: the plan is full.
static bool add(plan *p, move m) {
  if (p->n == MAX_MOVES) return false;
  p->moves[p->n++] = m;
  if (m.kind == MOVE_GATHER || m.kind == MOVE_ALL_TO_ALL)
    p->now[m.from].n = (uint8_t)(p->now[m.from].n - m.axes.n);
  if (m.kind == MOVE_SLICE || m.kind == MOVE_ALL_TO_ALL)
    append(&p->now[m.to], &m.axes);
  if (m.kind == MOVE_REORDER) p->now[m.from] = m.axes;
  return true;
}

// The next atoms that dimension d wants, when what it has is a beginning of
// that.
static bool wants(const plan *p, const at_axes *to, uint32_t d, at_axes *rest) {
  uint32_t common = at_axes_common(&p->now[d], &to[d]);
  if (common != p->now[d].n || common == to[d].n) return false;
  *rest = tail(&to[d], common);
  return true;
}

// A dimension goes on with axes that no dimension uses: every device has all of
// it and keeps its part, nothing is sent.
static bool try_slice(plan *p, const at_axes *to, uint32_t rank) {
  uint32_t used = at_dims_bits(p->now, rank);
  for (uint32_t d = 0; d < rank; d++) {
    at_axes rest;
    if (!wants(p, to, d, &rest)) continue;
    uint32_t k = 0;
    while (k < rest.n && !(used >> rest.a[k] & 1)) k++;
    if (!k) continue;
    rest.n = (uint8_t)k;
    return add(p, (move){MOVE_SLICE, d, d, rest});
  }
  return false;
}

// The end of dimension i becomes the end of dimension d.
static bool try_all_to_all(plan *p, const at_axes *to, uint32_t rank) {
  for (uint32_t d = 0; d < rank; d++) {
    at_axes rest;
    if (!wants(p, to, d, &rest)) continue;
    for (uint32_t i = 0; i < rank; i++) {
      if (i == d) continue;
      // The longest beginning of `rest` that is an end of dimension i, and that
      // dimension i does not want to keep.
      uint32_t keep = at_axes_common(&p->now[i], &to[i]);
      for (uint32_t k = AT_MIN(rest.n, p->now[i].n); k > 0; k--) {
        if (p->now[i].n - k < keep) continue;
        at_axes end = tail(&p->now[i], p->now[i].n - k);
        if (at_axes_common(&end, &rest) != k) continue;
        return add(p, (move){MOVE_ALL_TO_ALL, i, d, end});
      }
    }
  }
  return false;
}

// Whether a dimension of n is cut into the same parts by both.
static bool same_parts(const at_cut *c, const at_axes *a, const at_axes *b,
                       int64_t n) {
  if (at_axes_size(c, a) != at_axes_size(c, b)) return false;
  if (at_axes_even(c, a, n)) return true;
  bool same = a->n == b->n;
  for (uint32_t i = 0; same && i < a->n; i++)
    same = c->size[a->a[i]] == c->size[b->a[i]];
  return same;
}

// Parts are the same and only on other devices: one permute ends the plan.
static bool try_permute(const at_cut *c, plan *p, const at_axes *to,
                        const at_type *whole) {
  uint32_t rank = whole->rank;
  for (uint32_t d = 0; d < rank; d++)
    if (!same_parts(c, &p->now[d], &to[d], whole->dims[d])) return false;
  if (!add(p, (move){MOVE_PERMUTE, 0, 0, {0}})) return false;
  memcpy(p->now, to, rank * sizeof *to);
  return true;
}

// ---- Axes that are not where an all-to-all takes them from or puts them
// What dimension d lacks of what it wants, in that order; false: nothing, or it
// has something that it does not want, or its parts would be uneven.
static bool lacks(const at_cut *c, const plan *p, const at_axes *to,
                  const at_type *whole, uint32_t d, at_axes *rest) {
  uint32_t has = at_axes_bits(&p->now[d]);
  *rest = (at_axes){0};
  for (uint32_t k = 0; k < to[d].n; k++)
    if (!(has >> to[d].a[k] & 1)) rest->a[rest->n++] = to[d].a[k];
  return rest->n && !(has & ~at_axes_bits(&to[d])) &&
         at_axes_even(c, &to[d], whole->dims[d]);
}

// Axes that no dimension has cut the parts where they lack them, in any order.
static bool try_slice_anywhere(const at_cut *c, plan *p, const at_axes *to,
                               const at_type *whole) {
  uint32_t used = at_dims_bits(p->now, whole->rank);
  for (uint32_t d = 0; d < whole->rank; d++) {
    at_axes rest, free = {0};
    if (!lacks(c, p, to, whole, d, &rest)) continue;
    for (uint32_t k = 0; k < rest.n; k++)
      if (!(used >> rest.a[k] & 1)) free.a[free.n++] = rest.a[k];
    if (free.n) return add(p, (move){MOVE_SLICE, d, d, free});
  }
  return false;
}

// Axes of dimension i that `mask` has, brought to its end.
static at_axes with_end(const at_axes *x, uint32_t mask, const at_axes *rest) {
  at_axes out = {0};
  for (uint32_t k = 0; k < x->n; k++)
    if (!(mask >> x->a[k] & 1)) out.a[out.n++] = x->a[k];
  for (uint32_t k = 0; k < rest->n; k++)
    if (mask >> rest->a[k] & 1) out.a[out.n++] = rest->a[k];
  return out;
}

// What d lacks goes from dimension i to d, behind what d has; where it is not
// at the end of i, that comes first.
static bool try_all_to_all_anywhere(const at_cut *c, plan *p, const at_axes *to,
                                    const at_type *whole) {
  for (uint32_t d = 0; d < whole->rank; d++) {
    at_axes rest;
    if (!lacks(c, p, to, whole, d, &rest)) continue;
    for (uint32_t i = 0; i < whole->rank; i++) {
      uint32_t mask = at_axes_bits(&rest) & at_axes_bits(&p->now[i]);
      if (i == d || !mask || !at_axes_even(c, &p->now[i], whole->dims[i]))
        continue;
      at_axes order = with_end(&p->now[i], mask, &rest);
      if (at_axes_common(&order, &p->now[i]) != order.n)
        return add(p, (move){MOVE_REORDER, i, i, order});
      uint32_t k = (uint32_t)__builtin_popcount(mask);
      return add(p, (move){MOVE_ALL_TO_ALL, i, d, tail(&order, order.n - k)});
    }
  }
  return false;
}

// A dimension that has what it wants, in another order.
static bool try_reorder(const at_cut *c, plan *p, const at_axes *to,
                        const at_type *whole) {
  for (uint32_t d = 0; d < whole->rank; d++) {
    if (at_axes_bits(&p->now[d]) != at_axes_bits(&to[d]) ||
        at_axes_common(&p->now[d], &to[d]) == to[d].n ||
        !at_axes_even(c, &to[d], whole->dims[d]))
      continue;
    return add(p, (move){MOVE_REORDER, d, d, to[d]});
  }
  return false;
}

// The last resort: takes axes off the end of a dimension that does not want
// them.
static bool try_gather(plan *p, const at_axes *to, uint32_t rank) {
  for (uint32_t d = 0; d < rank; d++) {
    uint32_t common = at_axes_common(&p->now[d], &to[d]);
    if (common == p->now[d].n) continue;
    return add(p, (move){MOVE_GATHER, d, d, tail(&p->now[d], common)});
  }
  return false;
}

// p->now holds the beginning; false: too long (never with atoms as they are).
static bool make_plan(const at_cut *c, plan *p, const at_axes *to,
                      const at_type *whole) {
  uint32_t rank = whole->rank;
  while (!at_dims_axes_eq(p->now, to, rank))
    if (!try_slice(p, to, rank) && !try_all_to_all(p, to, rank) &&
        !try_permute(c, p, to, whole) && !try_slice_anywhere(c, p, to, whole) &&
        !try_all_to_all_anywhere(c, p, to, whole) &&
        !try_reorder(c, p, to, whole) && !try_gather(p, to, rank))
      return false;
  return true;
}

double at_part_bytes(const at_cut *c, const at_type *whole,
                     const at_axes *dims) {
  double n = (double)at_type_bytes(whole);
  for (uint32_t d = 0; d < whole->rank; d++)
    n /= (double)at_axes_size(c, &dims[d]);
  return n;
}

// What one device receives in a move of parts of `part` bytes.
static double move_bytes(const at_cut *c, const move *m, double part) {
  double g = (double)at_axes_size(c, &m->axes);
  switch (m->kind) {
    case MOVE_GATHER:
      return part * (g - 1);
    case MOVE_ALL_TO_ALL:
      return part * (g - 1) / g;
    case MOVE_REORDER:
    case MOVE_PERMUTE:
      return part;
    default:
      return 0;
  }
}

// Sums the moves of the plan that at_reshard_part would run; 1e30: cannot be
// planned.
double at_reshard_cost(const at_cut *c, const at_type *whole,
                       const at_axes *from, const at_axes *to) {
  at_axes now[64];
  uint32_t rank = whole->rank;
  if (at_dims_axes_eq(from, to, rank)) return 0;
  if (rank > 64) return 1e30;
  memcpy(now, from, rank * sizeof *from);
  plan p = {.now = now};
  if (!make_plan(c, &p, to, whole)) return 1e30;
  // Parts grow where they are gathered and shrink where they are sliced.
  double total = 0, part = at_part_bytes(c, whole, from);
  for (uint32_t i = 0; i < p.n; i++) {
    const move *m = &p.moves[i];
    double g = (double)at_axes_size(c, &m->axes);
    total += move_bytes(c, m, part);
    if (m->kind == MOVE_GATHER) part *= g;
    if (m->kind == MOVE_SLICE) part /= g;
  }
  return total;
}

// ---- Making nodes
at_status at_emit(at_comp *comp, at_node *before, const at_node_desc *d,
                  at_value *out) {
  at_node *n;
  AT_TRY(at_build(comp, before, d, &n));
  *out = (at_value){n, 0};
  return AT_OK;
}

// Rounded up atom after atom: the padded part.
at_status at_type_cut(const at_cut *c, const at_type *whole,
                      const at_axes *dims, at_type *out) {
  int64_t *p;
  *out = *whole;
  if (!whole->rank) return AT_OK;
  AT_TRY_ALLOC(p, at_new(c->m->arena, int64_t, whole->rank));
  for (uint32_t d = 0; d < whole->rank; d++)
    p[d] = at_axes_part(c, &dims[d], whole->dims[d]);
  out->dims = p;
  return AT_OK;
}

// Position in the mesh of the k-th device that differs from `base` in `axes`.
static int64_t member(const at_cut *c, const at_axes *axes, int64_t base,
                      int64_t k) {
  for (uint32_t i = axes->n; i-- > 0;) {
    base += k % c->size[axes->a[i]] * c->stride[axes->a[i]];
    k /= c->size[axes->a[i]];
  }
  return base;
}
// The digit of `atom` in the position number.
static int64_t digit(const at_cut *c, uint32_t atom, int64_t position) {
  return position / c->stride[atom] % c->size[atom];
}
// Device number of a mesh position.
static int64_t device_at(const at_cut *c, int64_t position) {
  return c->devices ? c->devices[position] : position;
}

// Groups of devices that differ in `axes` alone, each in the order of the axes.
// `flat`: device numbers over all replicas, else partitions.
static at_status groups_over(const at_cut *c, const at_axes *axes, bool flat,
                             at_attr *out) {
  int64_t parts = c->m->num_partitions, g = at_axes_size(c, axes);
  int64_t replicas = flat ? AT_MAX(c->m->num_replicas, (int64_t)1) : 1;
  size_t count = (size_t)(parts / g * replicas), at = 0;
  at_dims *list;
  AT_TRY_ALLOC(list, at_new(c->m->arena, at_dims, count));
  for (int64_t r = 0; r < replicas; r++)
    for (int64_t p = 0; p < parts; p++) {
      bool base = true;
      for (uint32_t i = 0; i < axes->n; i++)
        base &= digit(c, axes->a[i], p) == 0;
      if (!base) continue;
      int64_t *ids;
      AT_TRY_ALLOC(ids, at_new(c->m->arena, int64_t, (size_t)g));
      for (int64_t k = 0; k < g; k++)
        ids[k] = r * parts + device_at(c, member(c, axes, p, k));
      list[at++] = (at_dims){ids, (uint32_t)g};
    }
  *out = (at_attr){.id = AT_ATTR_REPLICA_GROUPS};
  out->groups.list = list;
  out->groups.n = (uint32_t)at;
  return AT_OK;
}

// An INT attribute that owns nothing.
static at_attr flag(at_attr_id id, int64_t v) {
  at_attr a = {.id = id};
  a.i = v;
  return a;
}

// ---- One move
// u32: this device's digit of an atom.
static at_status position_of(at_cut *c, at_value *out) {
  at_comp *e = c->m->entry;
  at_node *head = c->head;
  at_node_desc id = {.op = AT_OP_PARTITION_ID};
  AT_TRY(at_emit(e, head, &id, out));
  if (!c->devices) return AT_OK;
  int64_t n = c->m->num_partitions, one = 1;
  uint32_t *inverse;
  AT_TRY_ALLOC(inverse, at_new(c->m->arena, uint32_t, (size_t)n));
  for (int64_t p = 0; p < n; p++) inverse[c->devices[p]] = (uint32_t)p;
  int64_t *dim;
  AT_TRY_ALLOC(dim, at_new(c->m->arena, int64_t, 1));
  *dim = n;
  at_type table = {.dtype = AT_U32, .rank = 1, .dims = dim};
  const at_literal *l;
  at_value v[2];
  AT_TRY(at_literal_make(c->m->arena, table, inverse, false, true, &l));
  AT_TRY(at_build_constant(e, head, l, &v[0]));
  v[1] = *out;
  at_attr size = at_attr_ints(AT_ATTR_SLICE_SIZES, &one, 1);
  at_node_desc pick = {.op = AT_OP_DYNAMIC_SLICE,
                       .operands = v,
                       .num_operands = 2,
                       .attrs = &size,
                       .num_attrs = 1};
  AT_TRY(at_emit(e, head, &pick, &v[0]));
  at_type scalar = at_type_scalar(AT_U32);
  at_node_desc flat = {.op = AT_OP_RESHAPE,
                       .operands = v,
                       .num_operands = 1,
                       .types = &scalar,
                       .num_types = 1};
  return at_emit(e, head, &flat, out);
}

// x must fit t.
at_status at_scalar_value(at_cut *c, at_comp *comp, at_node *before, at_dtype t,
                          int64_t x, at_value *out) {
  uint64_t bits[2] = {0};
  const at_literal *l;
  at_store_int(t, bits, x);
  AT_TRY(
      at_literal_make(c->m->arena, at_type_scalar(t), bits, false, false, &l));
  return at_build_constant(comp, before, l, out);
}

static at_status binary(at_comp *comp, at_node *before, at_op op, at_value a,
                        at_value b, at_value *out) {
  at_value v[2] = {a, b};
  return at_build_op(comp, before, op, v, 2, NULL, out);
}

// position / stride % size, made once for each atom at the head of the entry,
// so that every region can read it.
at_status at_digit_value(at_cut *c, uint32_t atom, at_value *out) {
  at_comp *e = c->m->entry;
  if (!c->position.node) AT_TRY(position_of(c, &c->position));
  if (!c->digits[atom].node) {
    at_value k, v;
    AT_TRY(at_scalar_value(c, e, c->head, AT_U32, c->stride[atom], &k));
    AT_TRY(binary(e, c->head, AT_OP_DIVIDE, c->position, k, &v));
    AT_TRY(at_scalar_value(c, e, c->head, AT_U32, c->size[atom], &k));
    AT_TRY(binary(e, c->head, AT_OP_REMAINDER, v, k, &c->digits[atom]));
  }
  *out = c->digits[atom];
  return AT_OK;
}

at_dtype at_offset_type(int64_t n) { return n > INT32_MAX ? AT_S64 : AT_S32; }

// *v as a scalar of type t.
static at_status convert_scalar(at_comp *comp, at_node *before, at_dtype t,
                                at_value *v) {
  at_type type = at_type_scalar(t);
  at_node_desc convert = {.op = AT_OP_CONVERT,
                          .operands = v,
                          .num_operands = 1,
                          .types = &type,
                          .num_types = 1};
  return at_value_type(*v)->dtype == t ? AT_OK
                                       : at_emit(comp, before, &convert, v);
}

// The largest offset of a part.
static int64_t last_offset(const at_cut *c, const at_axes *axes, int64_t n) {
  int64_t last = 0;
  for (uint32_t i = 0; i < axes->n; i++) {
    int64_t size = c->size[axes->a[i]];
    n = n / size + (n % size != 0);
    last += (size - 1) * n;
  }
  return last;
}

// Sum over the atoms of digit * size of the parts that it numbers; in u32, or
// in u64 where that is too narrow.
at_status at_part_offset(at_cut *c, at_comp *comp, at_node *before,
                         const at_axes *axes, int64_t n, at_dtype dtype,
                         at_value *out) {
  at_value sum, k, w;
  at_dtype t = last_offset(c, axes, n) > UINT32_MAX ? AT_U64 : AT_U32;
  AT_TRY(at_scalar_value(c, comp, before, t, 0, &sum));
  for (uint32_t i = 0; i < axes->n; i++) {
    int64_t size = c->size[axes->a[i]];
    n = n / size + (n % size != 0);
    AT_TRY(at_digit_value(c, axes->a[i], &k));
    AT_TRY(convert_scalar(comp, before, t, &k));
    AT_TRY(at_scalar_value(c, comp, before, t, n, &w));
    AT_TRY(binary(comp, before, AT_OP_MULTIPLY, k, w, &k));
    AT_TRY(binary(comp, before, AT_OP_ADD, sum, k, &sum));
  }
  AT_TRY(convert_scalar(comp, before, dtype, &sum));
  *out = sum;
  return AT_OK;
}

// This device's part of v along m->to, by a dynamic slice at its offset; padded
// first where parts are uneven.
static at_status slice_part(at_cut *c, at_comp *comp, at_node *before,
                            const move *m, at_value v, at_value *out) {
  AT_TRY(at_uneven_widen(c, comp, before, m->to, &m->axes, v, &v));
  const at_type *t = at_value_type(v);
  at_value *ops, zero;
  int64_t *sizes, each = t->dims[m->to] / at_axes_size(c, &m->axes);
  AT_TRY_ALLOC(ops, at_new(c->m->arena, at_value, t->rank + 1));
  AT_TRY_ALLOC(sizes, at_new(c->m->arena, int64_t, t->rank));
  at_dtype index = at_offset_type(t->dims[m->to]);
  AT_TRY(at_scalar_value(c, comp, before, index, 0, &zero));
  ops[0] = v;
  for (uint32_t d = 0; d < t->rank; d++) {
    ops[1 + d] = zero;
    sizes[d] = d == m->to ? each : t->dims[d];
  }
  AT_TRY(at_part_offset(c, comp, before, &m->axes, t->dims[m->to], index,
                        &ops[1 + m->to]));
  at_attr attr = at_attr_ints(AT_ATTR_SLICE_SIZES, sizes, t->rank);
  at_node_desc d = {.op = AT_OP_DYNAMIC_SLICE,
                    .operands = ops,
                    .num_operands = t->rank + 1,
                    .attrs = &attr,
                    .num_attrs = 1,
                    .loc = v.node->loc};
  return at_emit(comp, before, &d, out);
}

// *out: t with dimension d of `size`; dimensions are copied.
static at_status resized(const at_cut *c, at_type t, uint32_t d, int64_t size,
                         at_type *out) {
  int64_t *p;
  AT_TRY_ALLOC(p, at_new(c->m->arena, int64_t, t.rank));
  memcpy(p, t.dims, t.rank * sizeof *p);
  p[d] = size;
  *out = t;
  out->dims = p;
  return AT_OK;
}

// All-gather along m->from, then without the padding that uneven parts brought.
static at_status gather_parts(at_cut *c, at_comp *comp, at_node *before,
                              const move *m, int64_t n, at_value v,
                              at_value *out) {
  at_type t;
  at_attr attrs[4] = {flag(AT_ATTR_ALL_GATHER_DIM, m->from),
                      {0},
                      flag(AT_ATTR_CHANNEL_ID, ++c->channel),
                      flag(AT_ATTR_USE_GLOBAL_DEVICE_IDS, 1)};
  AT_TRY(groups_over(c, &m->axes, true, &attrs[1]));
  AT_TRY(resized(c, *at_value_type(v), m->from,
                 at_value_type(v)->dims[m->from] * at_axes_size(c, &m->axes),
                 &t));
  at_node_desc d = {.op = AT_OP_ALL_GATHER,
                    .operands = &v,
                    .num_operands = 1,
                    .attrs = attrs,
                    .num_attrs = 4,
                    .types = &t,
                    .num_types = 1,
                    .loc = v.node->loc};
  AT_TRY(at_emit(comp, before, &d, out));
  return at_uneven_narrow(c, comp, before, m->from, &m->axes, n, *out, out);
}

// All-to-all: what was cut along m->from is cut along m->to.
static at_status exchange_parts(at_cut *c, at_comp *comp, at_node *before,
                                const move *m, int64_t n, at_value v,
                                at_value *out) {
  at_type t;
  int64_t g = at_axes_size(c, &m->axes);
  AT_TRY(at_uneven_widen(c, comp, before, m->to, &m->axes, v, &v));
  at_attr attrs[5] = {flag(AT_ATTR_SPLIT_DIMENSION, m->to),
                      flag(AT_ATTR_CONCAT_DIMENSION, m->from),
                      flag(AT_ATTR_SPLIT_COUNT, g),
                      {0},
                      flag(AT_ATTR_CHANNEL_ID, ++c->channel)};
  AT_TRY(groups_over(c, &m->axes, false, &attrs[3]));
  AT_TRY(resized(c, *at_value_type(v), m->from,
                 at_value_type(v)->dims[m->from] * g, &t));
  AT_TRY(resized(c, t, m->to, t.dims[m->to] / g, &t));
  at_node_desc d = {.op = AT_OP_ALL_TO_ALL,
                    .operands = &v,
                    .num_operands = 1,
                    .attrs = attrs,
                    .num_attrs = 5,
                    .types = &t,
                    .num_types = 1,
                    .loc = v.node->loc};
  AT_TRY(at_emit(comp, before, &d, out));
  return at_uneven_narrow(c, comp, before, m->from, &m->axes, n, *out, out);
}

// Number of the part of dimension after dimension that `position` holds under
// `dims`, written onto the digits of `from`; axes outside both keep their
// place.
static int64_t source_of(const at_cut *c, uint32_t rank, const at_axes *from,
                         const at_axes *to, int64_t position) {
  uint32_t in_from = at_dims_bits(from, rank), in_to = at_dims_bits(to, rank);
  int64_t source = 0;
  for (uint32_t d = 0; d < rank; d++) {
    int64_t part = 0;
    for (uint32_t i = 0; i < to[d].n; i++)
      part = part * c->size[to[d].a[i]] + digit(c, to[d].a[i], position);
    source = member(c, &from[d], source, part);
  }
  // Copies: axes that cut neither stay; the others, numbered together, follow.
  int64_t copy = 0;
  for (uint32_t i = 0; i < c->num_atoms; i++) {
    bool free_to = !(in_to >> i & 1), free_from = !(in_from >> i & 1);
    if (free_to && free_from) source += digit(c, i, position) * c->stride[i];
    if (free_to && !free_from) copy = copy * c->size[i] + digit(c, i, position);
  }
  for (uint32_t i = c->num_atoms; i-- > 0;)
    if (!(in_from >> i & 1) && (in_to >> i & 1)) {
      source += copy % c->size[i] * c->stride[i];
      copy /= c->size[i];
    }
  return source;
}

// A collective permute that moves the part of device from[p] to device to[p],
// for all p at once.
at_status at_reorder(at_cut *c, at_comp *comp, at_node *before,
                     const int64_t *from, const int64_t *to, at_value v,
                     at_value *out) {
  int64_t n = c->m->num_partitions;
  at_dims *list;
  AT_TRY_ALLOC(list, at_new(c->m->arena, at_dims, (size_t)n));
  for (int64_t p = 0; p < n; p++) {
    int64_t *pair;
    AT_TRY_ALLOC(pair, at_new(c->m->arena, int64_t, 2));
    pair[0] = from ? from[p] : p;
    pair[1] = to ? to[p] : p;
    list[p] = (at_dims){pair, 2};
  }
  at_attr attrs[2] = {{.id = AT_ATTR_SOURCE_TARGET_PAIRS},
                      flag(AT_ATTR_CHANNEL_ID, ++c->channel)};
  attrs[0].groups.list = list;
  attrs[0].groups.n = (uint32_t)n;
  at_node_desc d = {.op = AT_OP_COLLECTIVE_PERMUTE,
                    .operands = &v,
                    .num_operands = 1,
                    .attrs = attrs,
                    .num_attrs = 2,
                    .loc = v.node->loc};
  return at_emit(comp, before, &d, out);
}

// A broadcast from device `from` to all others.
at_status at_spread(at_cut *c, at_comp *comp, at_node *before, int64_t from,
                    at_value v, at_value *out) {
  int64_t n = c->m->num_partitions, *ids;
  AT_TRY_ALLOC(ids, at_new(c->m->arena, int64_t, (size_t)n));
  uint32_t count = 0;
  ids[count++] = from;
  for (int64_t p = 0; p < n; p++)
    if (p != from) ids[count++] = p;
  at_dims group = {ids, count};
  at_attr attrs[2] = {{.id = AT_ATTR_REPLICA_GROUPS},
                      flag(AT_ATTR_CHANNEL_ID, ++c->channel)};
  attrs[0].groups.list = &group;
  attrs[0].groups.n = 1;
  at_node_desc d = {.op = AT_OP_COLLECTIVE_BROADCAST,
                    .operands = &v,
                    .num_operands = 1,
                    .attrs = attrs,
                    .num_attrs = 2,
                    .loc = v.node->loc};
  return at_emit(comp, before, &d, out);
}

// Along the atoms in `mask`, the last device's part goes to the first, and so
// on.
at_status at_mirror(at_cut *c, at_comp *comp, at_node *before, uint32_t mask,
                    at_value v, at_value *out) {
  int64_t n = c->m->num_partitions, *source;
  AT_TRY_ALLOC(source, at_new(c->m->arena, int64_t, (size_t)n));
  for (int64_t p = 0; p < n; p++) {
    int64_t other = p;
    for (uint32_t i = 0; i < c->num_atoms; i++)
      if (mask >> i & 1)
        other += (c->size[i] - 1 - 2 * digit(c, i, p)) * c->stride[i];
    source[p] = device_at(c, other);
  }
  return at_reorder(c, comp, before, source, c->devices, v, out);
}

// One permute, where axes only change their places or order.
static at_status permute_parts(at_cut *c, at_comp *comp, at_node *before,
                               const at_axes *from, const at_axes *to,
                               at_value v, at_value *out) {
  int64_t n = c->m->num_partitions, *source;
  AT_TRY_ALLOC(source, at_new(c->m->arena, int64_t, (size_t)n));
  for (int64_t p = 0; p < n; p++)
    source[p] = device_at(c, source_of(c, at_value_type(v)->rank, from, to, p));
  return at_reorder(c, comp, before, source, c->devices, v, out);
}

// op over the devices that differ in `axes`; scatter >= 0: each keeps its part
// of that dimension.
static at_status combine_over(at_cut *c, at_comp *comp, at_node *before,
                              at_op op, at_value part, const at_axes *axes,
                              int32_t scatter, at_value *out) {
  if (scatter >= 0)
    AT_TRY(
        at_uneven_widen(c, comp, before, (uint32_t)scatter, axes, part, &part));
  const at_type *t = at_value_type(part);
  at_comp *body;
  at_type smaller;
  at_attr attrs[4] = {{0},
                      flag(AT_ATTR_CHANNEL_ID, ++c->channel),
                      flag(AT_ATTR_USE_GLOBAL_DEVICE_IDS, 1),
                      flag(AT_ATTR_SCATTER_DIMENSION, scatter)};
  AT_TRY(groups_over(c, axes, true, &attrs[0]));
  AT_TRY(at_mk_binary_region(c->m, op, t->dtype, part.node->loc, &body));
  at_node_desc d = {.op = AT_OP_ALL_REDUCE,
                    .operands = &part,
                    .num_operands = 1,
                    .attrs = attrs,
                    .num_attrs = 3,
                    .regions = &body,
                    .num_regions = 1,
                    .types = t,
                    .num_types = 1,
                    .loc = part.node->loc};
  if (scatter >= 0) {
    AT_TRY(resized(c, *t, (uint32_t)scatter,
                   t->dims[scatter] / at_axes_size(c, axes), &smaller));
    d.op = AT_OP_REDUCE_SCATTER;
    d.num_attrs = 4;
    d.types = &smaller;
  }
  return at_emit(comp, before, &d, out);
}

// A dimension whose cut goes on with atoms of the mask takes a reduce-scatter
// over them, which moves less than an all-reduce and a slice.
int32_t at_sum_step(const at_cut *c, at_axes *have, const at_axes *want,
                    uint32_t rank, uint32_t *mask, at_axes *axes) {
  *axes = (at_axes){0};
  for (uint32_t d = 0; d < rank; d++) {
    uint32_t common = at_axes_common(&have[d], &want[d]);
    if (common != have[d].n) continue;
    for (uint32_t i = common; i < want[d].n; i++) {
      if (!(*mask >> want[d].a[i] & 1)) break;
      axes->a[axes->n++] = want[d].a[i];
    }
    if (!axes->n) continue;
    append(&have[d], axes);
    *mask &= ~at_axes_bits(axes);
    return (int32_t)d;
  }
  for (uint32_t i = 0; i < c->num_atoms; i++)
    if (*mask >> i & 1) axes->a[axes->n++] = (uint8_t)i;
  *mask = 0;
  return -1;
}

// Step by step, until no summands are left (mask is empty).
at_status at_combine(at_cut *c, at_comp *comp, at_node *before, at_op op,
                     uint32_t mask, at_axes *have, const at_axes *want,
                     at_value *v) {
  uint32_t rank = at_value_type(*v)->rank;
  while (mask) {
    at_axes axes;
    int32_t d = at_sum_step(c, have, want, rank, &mask, &axes);
    AT_TRY(combine_over(c, comp, before, op, *v, &axes, d, v));
  }
  return AT_OK;
}

// ---- From one lay to another
// One device along the atoms in `mask` keeps the value, the others have zeros.
static at_status keep_one(at_cut *c, at_comp *comp, at_node *before,
                          uint32_t mask, at_value *v) {
  at_value mine = {0}, zero, k;  // digits that differ from the first
  for (uint32_t i = 0; i < c->num_atoms; i++) {
    if (!(mask >> i & 1)) continue;
    AT_TRY(at_digit_value(c, i, &k));
    if (mine.node) AT_TRY(binary(comp, before, AT_OP_OR, mine, k, &k));
    mine = k;
  }
  uint64_t bits[2] = {0};
  const at_literal *l;
  at_type pred = at_type_scalar(AT_PRED);
  at_node_desc elsewhere = {.op = AT_OP_CONVERT,
                            .operands = &mine,
                            .num_operands = 1,
                            .types = &pred,
                            .num_types = 1};
  AT_TRY(at_emit(comp, before, &elsewhere, &mine));
  AT_TRY(
      at_literal_make(c->m->arena, *at_value_type(*v), bits, true, false, &l));
  AT_TRY(at_build_constant(comp, before, l, &zero));
  at_value pick[3] = {mine, zero, *v};
  return at_build_op(comp, before, AT_OP_SELECT, pick, 3, v->node->loc, v);
}

// Cuts by atoms in *mask become summands: the part lies among zeros. What is
// done that way leaves the mask.
static at_status spread_out(at_cut *c, at_comp *comp, at_node *before,
                            const at_type *all, const at_axes *to,
                            uint32_t *mask, at_axes *now, at_value *v) {
  uint32_t rank = all->rank;
  for (uint32_t d = 0; d < rank; d++) {
    uint32_t keep = now[d].n;
    while (keep > at_axes_common(&now[d], &to[d]) &&
           *mask >> now[d].a[keep - 1] & 1)
      keep--;
    at_axes end = tail(&now[d], keep);
    if (!end.n) continue;
    uint64_t bits[2] = {0};
    at_type whole;
    const at_literal *l;
    at_value *ops, zero;
    int64_t each = at_value_type(*v)->dims[d];
    AT_TRY(resized(c, *at_value_type(*v), d, each * at_axes_size(c, &end),
                   &whole));
    AT_TRY_ALLOC(ops, at_new(c->m->arena, at_value, rank + 2));
    AT_TRY(at_literal_make(c->m->arena, whole, bits, true, false, &l));
    AT_TRY(at_build_constant(comp, before, l, &ops[0]));
    at_dtype index = at_offset_type(whole.dims[d]);
    AT_TRY(at_scalar_value(c, comp, before, index, 0, &zero));
    ops[1] = *v;
    for (uint32_t i = 0; i < rank; i++) ops[2 + i] = zero;
    AT_TRY(at_part_offset(c, comp, before, &end, whole.dims[d], index,
                          &ops[2 + d]));
    AT_TRY(at_build_op(comp, before, AT_OP_DYNAMIC_UPDATE_SLICE, ops, rank + 2,
                       v->node->loc, v));
    now[d].n = (uint8_t)keep;
    AT_TRY(at_uneven_narrow(c, comp, before, d, &end,
                            at_axes_part(c, &now[d], all->dims[d]), *v, v));
    *mask &= ~at_axes_bits(&end);
  }
  return AT_OK;
}

// A permutation where dimension m->from has its axes in another order.
static at_status reorder_parts(at_cut *c, at_comp *comp, at_node *before,
                               const move *m, const at_axes *from, at_value v,
                               at_value *out) {
  at_axes to[64];
  memcpy(to, from, at_value_type(v)->rank * sizeof *to);
  to[m->from] = m->axes;
  return permute_parts(c, comp, before, from, to, v, out);
}

// One move of the plan; *v is the part before and after.
static at_status move_part(at_cut *c, at_comp *comp, at_node *before,
                           const move *m, const at_type *whole,
                           const at_axes *from, const at_axes *to,
                           at_value *v) {
  at_axes left = from[m->from];  // without what is gathered
  left.n = (uint8_t)(left.n - AT_MIN(left.n, m->axes.n));
  int64_t n = whole->rank ? at_axes_part(c, &left, whole->dims[m->from]) : 0;
  switch (m->kind) {
    case MOVE_SLICE:
      return slice_part(c, comp, before, m, *v, v);
    case MOVE_GATHER:
      return gather_parts(c, comp, before, m, n, *v, v);
    case MOVE_ALL_TO_ALL:
      return exchange_parts(c, comp, before, m, n, *v, v);
    case MOVE_REORDER:
      return reorder_parts(c, comp, before, m, from, *v, v);
    case MOVE_PERMUTE:
      return permute_parts(c, comp, before, from, to, *v, v);
  }
  return AT_OK;
}

// From one lay to the other by the moves of make_plan: first summands,
// then moves, each on parts as small as possible.
at_status at_reshard_part(at_cut *c, at_comp *comp, at_node *before,
                          const at_type *whole, at_value part, at_lay from,
                          at_lay to, at_value *out) {
  at_axes now[64], now2[64];
  uint32_t rank = whole->rank;
  *out = part;
  if (from.sums == to.sums && at_dims_axes_eq(from.dims, to.dims, rank))
    return AT_OK;
  if (rank > 64)
    return AT_FAIL(AT_UNIMPLEMENTED, "sharding of %u dimensions", rank);
  if (rank) memcpy(now, from.dims, rank * sizeof *now);
  if (from.sums & ~to.sums)
    AT_TRY(at_combine(c, comp, before, AT_OP_ADD, from.sums & ~to.sums, now,
                      to.dims, out));
  uint32_t more = to.sums & ~from.sums;
  if (more)
    AT_TRY(spread_out(c, comp, before, whole, to.dims, &more, now, out));
  if (rank) memcpy(now2, now, rank * sizeof *now);
  plan p = {.now = now}, at = {.now = now2};
  AT_ENSURE(make_plan(c, &p, to.dims, whole));
  for (uint32_t i = 0; i < p.n; i++) {
    AT_TRY(move_part(c, comp, before, &p.moves[i], whole, now2, to.dims, out));
    if (p.moves[i].kind == MOVE_PERMUTE)
      memcpy(now2, to.dims, rank * sizeof *now2);
    AT_ENSURE(add(&at, p.moves[i]));
  }
  return more ? keep_one(c, comp, before, more, out) : AT_OK;
}

// A part in that lay which was made in this computation already.
static const at_part *find_part(const at_place *p, const at_comp *comp,
                                at_lay lay) {
  const at_part *x = p->parts;
  while (x && (x->comp != comp || x->sums != lay.sums ||
               !at_dims_axes_eq(x->dims, lay.dims, p->whole.rank)))
    x = x->next;
  return x;
}

bool at_has_part(const at_place *p, const at_comp *comp, const at_axes *dims) {
  return find_part(p, comp, (at_lay){dims, 0}) != NULL;
}

// at_reshard_part of a place's value, each lay once.
at_status at_reshard(at_cut *c, at_comp *comp, at_node *before, at_place *p,
                     at_lay to, at_value *out) {
  uint32_t rank = p->whole.rank;
  *out = p->now;
  if (p->sums == to.sums && at_dims_axes_eq(p->dims, to.dims, rank))
    return AT_OK;
  const at_part *made = find_part(p, comp, to);
  if (made) {
    *out = made->v;
    return AT_OK;
  }
  AT_TRY(at_reshard_part(c, comp, before, &p->whole, p->now,
                         (at_lay){p->dims, p->sums}, to, out));
  at_part *x;
  AT_TRY_ALLOC(x, at_new(c->m->arena, at_part, 1));
  *x = (at_part){comp, NULL, to.sums, *out, p->parts};
  AT_TRY_ALLOC(x->dims, at_new(c->m->arena, at_axes, rank + 1));
  if (rank) memcpy(x->dims, to.dims, rank * sizeof *x->dims);
  p->parts = x;
  return AT_OK;
}
