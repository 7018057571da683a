// Which layout clients are told that an array has. A client may ask for one (on
// an argument or result, or by a LayoutConstraint call in the program); results
// inherit it through transposes and elementwise ops, for which a chip would not
// copy either. An argument whose layout the client leaves open ("auto") gets
// the order of dimensions that pads least in tiles of 8 x 128.
//
// On this machine nothing moves: arrays stay dense and row-major.
#include "compile/layouts.h"

#include <stdio.h>
#include <string.h>

#include "base/walk.h"

enum { kMostDims = 32, kWorthwhile = 4 };

static bool is_call(const at_node *n, const char *target) {
  return n->op == AT_OP_CUSTOM_CALL && n->num_operands == 1 &&
         n->num_results == 1 &&
         at_str_is(at_node_str(n, AT_ATTR_CALL_TARGET_NAME), target);
}

// Minor to major; the order of dimensions of a row-major array.
typedef struct order {
  uint32_t n;
  int64_t d[kMostDims];
} order;

// The last dimension first.
static order row_major(uint32_t rank) {
  order x = {.n = rank};
  for (uint32_t i = 0; i < rank; i++) x.d[i] = rank - 1 - i;
  AT_ASSERT(rank <= kMostDims &&
            (!rank || (x.d[0] == rank - 1 && !x.d[rank - 1])));
  return x;
}

// Is every dimension there once?
static bool is_order(const order *x) {
  uint64_t seen = 0;
  for (uint32_t i = 0; i < x->n; i++) {
    if (x->d[i] < 0 || x->d[i] >= x->n || seen >> x->d[i] & 1) return false;
    seen |= 1ull << x->d[i];
  }
  return true;
}

// "{1,0:T(8,128)}": the numbers in front; tilings are ignored. False: no such
// order of `rank` dimensions.
static bool read_order(const char *text, uint32_t rank, order *out) {
  const char *p = text;
  out->n = 0;
  if (!text || *p++ != '{') return false;
  for (; *p >= '0' && *p <= '9' && out->n < rank; p += *p == ',') {
    out->d[out->n] = 0;
    for (; *p >= '0' && *p <= '9'; p++)
      out->d[out->n] = AT_MIN(out->d[out->n] * 10 + (*p - '0'), kMostDims);
    out->n++;
  }
  return out->n == rank && (*p == '}' || *p == ':') && is_order(out);
}

// Ops that keep the order of their operands.
static bool is_elementwise(const at_node *n) {
  return is_call(n, "Sharding") || at_op_is(n->op, AT_ELEMENTWISE);
}

// The order of p's memory, as the client asked for it. Entry parameters are
// marked with their index.
static bool order_of_param(const at_module *m, const at_node *p, order *out) {
  const at_comp *e = m->entry;
  if (p->mark >= e->num_params || e->params[p->mark] != p) return false;
  if (!m->params ||
      !read_order(m->params[p->mark].layout, p->types[0].rank, out))
    *out = row_major(p->types[0].rank);
  return true;
}

// The order of n's result where those of its operands are in w, NULL: unknown.
static const order *order_of_operands(const at_walk *w, const at_node *n,
                                      uint32_t through) {
  uint32_t rank = n->types[0].rank;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_value o = n->operands[i];
    const at_walk_value *have = at_walk_get(w, o.node, through);
    if (have && have->p && at_value_type(o)->rank == rank) return have->p;
  }
  return NULL;
}

// Dimension d of the result is perm[d] of the operand: each entry is renamed,
// its place in the order stays.
static void order_of_transposed(const at_node *n, const order *from,
                                order *out) {
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  out->n = from->n;
  for (uint32_t i = 0; i < from->n; i++)
    for (uint32_t d = 0; d < from->n; d++)
      if (perm.ptr[d] == from->d[i]) out->d[i] = d;
  AT_ASSERT(is_order(out));
}

// Leaves n: where its order is not an operand's it is a new one.
static at_status set_order(const at_module *m, at_walk *w,
                           const at_walk_step *s) {
  const at_node *n = s->item;
  const order *known = NULL;
  order own = {0};
  bool has = false;
  if (n->types[0].rank > kMostDims) return AT_OK;
  if (is_call(n, "LayoutConstraint")) {
    const at_attr *a = at_node_attr(n, AT_ATTR_RESULT_LAYOUTS);
    has = a && a->groups.n == 1 && a->groups.list[0].rank == n->types[0].rank;
    if (has) own.n = n->types[0].rank;
    for (uint32_t i = 0; i < own.n; i++) own.d[i] = a->groups.list[0].ptr[i];
    has = has && is_order(&own);
  } else if (n->op == AT_OP_PARAMETER && s->tag) {
    has = order_of_param(m, n, &own);
  } else if (n->op == AT_OP_TRANSPOSE && s->tag) {
    known = order_of_operands(w, n, s->tag);
    has = known != NULL;
    if (has) order_of_transposed(n, known, &own);
  } else if (is_elementwise(n)) {
    known = order_of_operands(w, n, s->tag);
  }
  if (has)
    AT_TRY_ALLOC(known,
                 at_arena_copy(m->arena, &own, sizeof own, _Alignof(order)));
  at_walk_set(w, s, (at_walk_value){.p = known});
  return AT_OK;
}

// How v is held when nothing but transposes (if `through` says so) and
// elementwise ops lie between it and a constraint or a parameter; NULL: no such
// order. w: what earlier results have found.
static at_status order_of(const at_module *m, at_walk *w, at_value v,
                          bool through, const order **out) {
  at_walk_add(w, v.node, through);
  for (at_walk_step s; at_walk_next_both(w, &s);) {
    const at_node *n = s.item;
    if (s.leaving) {
      AT_TRY(set_order(m, w, &s));
    } else if (!is_call(n, "LayoutConstraint") &&
               (is_elementwise(n) || (n->op == AT_OP_TRANSPOSE && s.tag))) {
      for (uint32_t i = 0; i < n->num_operands; i++)
        at_walk_add(w, n->operands[i].node, s.tag);
    }
  }
  AT_TRY(at_walk_status(w));
  *out = at_walk_get(w, v.node, through)->p;
  return AT_OK;
}

// Elements that an array takes whose minor dimension is a and next one b: the
// chip keeps them in tiles of 128 by 8, or more where elements are narrow.
static double padded_elements(const at_type *t, uint32_t a, uint32_t b) {
  size_t bytes = at_dtype_bytes(t->dtype);
  int64_t rows = 8 * (bytes && bytes < 4 ? 4 / (int64_t)bytes : 1);
  double n = 1;
  for (uint32_t d = 0; d < t->rank; d++) {
    int64_t tile = d == a ? 128 : d == b ? rows : 1;
    n *= (double)((t->dims[d] + tile - 1) / tile * tile);
  }
  return n;
}

// The order in which t pads least; row-major unless that takes several times as
// much: copies to and from the host are of dense rows.
static order compact(const at_type *t) {
  order best = row_major(t->rank);
  if (t->rank < 2) return best;
  double least = padded_elements(t, t->rank - 1, t->rank - 2) / kWorthwhile;
  for (uint32_t a = t->rank; a-- > 0;)
    for (uint32_t b = t->rank; b-- > 0;) {
      double n = a == b ? least : padded_elements(t, a, b);
      if (n >= least) continue;
      least = n;
      best = (order){.n = 2, .d = {a, b}};
      for (uint32_t d = t->rank; d-- > 0;)
        if (d != a && d != b) best.d[best.n++] = d;
    }
  AT_ASSERT(best.n == t->rank && is_order(&best));
  return best;
}

// out: the text of x; NULL when it is row-major.
static at_status print_order(const at_module *m, const order *x,
                             const char **out) {
  char list[kMostDims * 4], *p = list;
  order plain = row_major(x->n);
  *out = NULL;
  AT_ASSERT(is_order(x));  // so `list` holds it
  if (!x->n || !memcmp(plain.d, x->d, x->n * sizeof *x->d)) return AT_OK;
  for (uint32_t d = 0; d < x->n; d++)
    p += snprintf(p, (size_t)(list + sizeof list - p), "%s%d", d ? "," : "",
                  (int)x->d[d]);
  AT_TRY_ALLOC(*out, at_arena_printf(m->arena, "{%s}", list));
  return AT_OK;
}

// Marks parameters with their index, which order_of_param reads.
at_status at_layouts_settle(at_module *m) {
  const at_comp *e = m->entry;
  const char *chosen;
  at_walk w = at_walk_in(m->arena);
  for (uint32_t i = 0; i < e->num_params; i++) e->params[i]->mark = i;
  for (uint32_t i = 0; m->params && i < e->num_params; i++) {
    const at_type *t = &e->params[i]->types[0];
    const char *text = m->params[i].layout;
    if (!text || strcmp(text, "auto") || t->rank > kMostDims ||
        !at_type_is_static(t))
      continue;
    order x = compact(t);
    AT_TRY(print_order(m, &x, &chosen));
    if (chosen) m->params[i].layout = chosen;
  }
  for (uint32_t i = 0; m->results && i < e->num_results; i++) {
    const char *text = m->results[i].layout;
    bool open = text && !strcmp(text, "auto");
    const order *x;
    if (text && *text == '{') continue;
    AT_TRY(order_of(m, &w, e->results[i], open, &x));
    if (!x) continue;
    AT_TRY(print_order(m, x, &chosen));
    if (chosen) m->results[i].layout = chosen;
  }
  return AT_OK;
}

// Tilings are compared as text, orders by value; arrays of different rank have
// no order in common and agree.
bool at_layouts_agree(const at_module *m, uint32_t p, uint32_t r) {
  const at_comp *e = m->entry;
  const char *a = m->params ? m->params[p].layout : NULL;
  const char *b = m->results ? m->results[r].layout : NULL;
  order x, y;
  uint32_t rank = at_value_type(e->results[r])->rank;
  bool tiled = (a && strchr(a, ':')) || (b && strchr(b, ':'));
  if (tiled) return a && b && !strcmp(a, b);
  if (e->params[p]->types[0].rank != rank || rank > kMostDims) return true;
  if (!read_order(a, rank, &x)) x = row_major(rank);
  if (!read_order(b, rank, &y)) y = row_major(rank);
  return !memcmp(x.d, y.d, rank * sizeof *x.d);
}
