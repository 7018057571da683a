// Where expressions are computed: into memory that somebody stores to, or of
// their own.
#include "mosaic/emit_laws.h"
#include "mosaic/emit_life.h"
#include "mosaic/emit_memory.h"

// An expression (at_me_node) is computed when somebody needs it in memory:
// at_me_copy_to writes it to where a store wants it, at_me_materialise to
// temporary memory of its own, after which the node is a BUFFER for all who
// hold it.
//
// Products, and transposes that bring other elements to the lanes, cannot be
// computed element by element inside a loop nest. at_me_prepare computes those
// of a tree first, each into its own memory.
// ---- sinks
// What of n cannot be computed inside a loop nest is computed; turn: transposes
// that are turned, too.
void at_me_prepare_as(at_me *m, at_me_node *tree, bool turn) {
  AT_VEC(at_me_node *) apart = {0};
  if (!tree) return;
  at_walk_clear(at_me_walk(m));
  at_walk_add(at_me_walk(m), tree, 0);
  for (at_walk_step s; at_walk_next(at_me_walk(m), &s);) {
    at_me_node *n = (at_me_node *)(uintptr_t)s.item;
    AT_VERIFY(at_me_node_holds(n));
    if (n->kind == AT_ME_DOT || (turn && at_me_turns_lanes(m, n))) {
      if (!at_vec_push(m->a, &apart, n))
        at_em_fail(m->e, AT_NO_MEMORY("values of a kernel"));
      continue;
    }
    if (n->kind == AT_ME_LOAD && n->ref->home->pages)
      at_me_pages_fetch(m, n->ref);
    for (uint32_t i = 0; i < n->num_in; i++)
      at_walk_add(at_me_walk(m), n->in[i], 0);
  }
  for (size_t i = 0; i < apart.len; i++)
    at_me_node_drop(m, at_me_materialise(m, apart.ptr[i]));
}
void at_me_prepare(at_me *m, at_me_node *n) { at_me_prepare_as(m, n, true); }

typedef struct copy_args {
  at_me_node *n, *mask;
  const at_me_ref *dst;
  at_me_store_mode mode;
} copy_args;

// The body of the loops: elements at one position. A masked store reads what is
// there and writes it back where the mask is not set.
static void copy_element(at_me *m, const at_pos *p, void *arg) {
  const copy_args *c = arg;
  at_val v = at_me_eval(m, c->n, p);
  if (c->mask || c->mode == AT_ME_ADD) {
    at_val mask = {0};
    if (c->mask) mask = at_me_eval(m, c->mask, p);
    at_val old = at_me_ref_load(m, c->dst, p);
    if (c->mode == AT_ME_ADD)
      v = at_em_apply_real(m->e, AT_OP_ADD, c->dst->dtype, old, v);
    if (c->mask) v.re = at_b_select(m->e, mask.re, v.re, old.re);
  }
  at_me_ref_store(m, c->dst, p, v);
}

// Turns registers where n is a transpose; else one loop nest over n's elements,
// divided where n, mask and dst need it. Threads share it unless dst packs
// several elements into a word.
void at_me_copy_to(at_me *m, at_me_node *n, const at_me_ref *dst,
                   at_me_node *mask, at_me_store_mode mode) {
  if (!mask && mode == AT_ME_PLAIN && at_me_turn_into(m, n, dst)) return;
  // A transpose that cannot be turned is read as it is.
  at_me_prepare_as(m, n, n->kind != AT_ME_TRANSPOSE);
  if (mask) at_me_prepare(m, mask);
  at_me_space s = {.total = at_me_elements(n)};
  if (n->rank == 0)
    for (uint32_t d = 0; d < dst->rank; d++) s.total *= dst->size[d].c;
  at_me_space_tree(m, &s, n);
  if (mask) at_me_space_tree(m, &s, mask);
  at_me_space_ref(&s, dst);
  at_me_space_widen(&s, dst->storage);
  at_me_space_widen(&s, dst->dtype);
  if (dst->packing->parts == 1 && dst->packing->split == 1)
    s.work = (double)s.total * at_me_node_cost(m, n);
  copy_args c = {n, mask, dst, mode};
  at_me_loops(m, &s, copy_element, &c);
}

// Memory of a turn that only n reads, each element where its own goes: n may
// take its place.
static at_me_node *spent(at_me_node *n, const at_me_node *top) {
  if (n->kind == AT_ME_BUFFER)
    return n->life->turn && n->life->slot >= 0 && n->life->refs == 1 &&
                   n->dtype == top->dtype &&
                   at_me_elements(n) == at_me_elements(top)
               ? n
               : NULL;
  if (n->kind != AT_ME_APPLY && n->kind != AT_ME_RESHAPE) return NULL;
  if (n != top && n->life->refs > 1) return NULL;
  for (uint32_t i = 0; i < n->num_in; i++) {
    at_me_node *x = spent(n->in[i], top);
    if (x) return x;
  }
  return NULL;
}

// n takes the memory of an operand that nobody else reads, instead of new
// memory: only values of one turn of a loop over rows, where each element is
// read before it is written.
static bool in_place(at_me *m, at_me_node *n) {
  at_me_node *x =
      n->kind == AT_ME_APPLY && n->life->within ? spent(n, n) : NULL;
  if (!x) return false;
  at_me_prepare(m, n);
  at_me_ref to;
  at_me_dense(m, &to, x->ref->base, n->dtype, n->rank, n->dim);
  at_me_copy_to(m, n, &to, NULL, AT_ME_PLAIN);
  n->life->slot = x->life->slot;
  n->life->slot_bytes = x->life->slot_bytes;
  n->life->turn = true;
  x->life->slot = -1;
  at_me_node_release(m, n);
  n->kind = AT_ME_BUFFER;
  *at_me_node_ref(m, n) = to;
  n->life->depth = m->depth;
  return true;
}

// n's value is in b, which nobody else has.
static void become(at_me *m, at_me_node *n, const at_me_node *b) {
  at_me_node_release(m, n);
  n->kind = AT_ME_BUFFER;
  n->ref = b->ref;
  n->life->slot = b->life->slot;
  n->life->slot_bytes = b->life->slot_bytes;
  n->life->turn = b->life->turn;
  n->life->depth = m->depth;
}

// Three ways, from the cheapest: a reshape of what is in memory is the same
// memory; a value may take its operand's place; else it is computed into a new
// buffer. The caller holds the result (at_me_node_drop).
at_me_node *at_me_materialise(at_me *m, at_me_node *n) {
  if (!n || n->kind == AT_ME_BUFFER) return n ? at_me_retain(n) : NULL;
  bool here = n->life->region == m->region;
  if (n->kind == AT_ME_RESHAPE && here) {
    // The same memory under other dimensions.
    at_me_node *in = n->in[0];
    if (in->kind != AT_ME_BUFFER && in->kind != AT_ME_RESHAPE &&
        in->kind != AT_ME_DOT)
      goto plain;
    at_me_node *b = at_me_materialise(m, in);
    if (!b || b != in || (b->life->turn && !n->life->within)) {
      at_me_node_drop(m, b);
      goto plain;
    }
    at_me_dense(m, at_me_node_ref(m, n), b->ref->base, n->dtype, n->rank,
                n->dim);
    n->kind = AT_ME_BUFFER;
    at_me_node_unlist(m, n);
    at_me_node_drop(m, b);
    return at_me_retain(n);
  }
  if (here && in_place(m, n)) return at_me_retain(n);
plain:;
  bool within = m->within;
  m->within = n->life->within;
  at_me_node *b = at_me_buffer(m, n->op, n->dtype, n->rank, n->dim);
  m->within = within;
  if (!b) return NULL;
  if (n->kind == AT_ME_DOT)
    at_me_dot_run(m, n, b->ref, false);
  else
    at_me_copy_to(m, n, b->ref, NULL, AT_ME_PLAIN);
  if (!here) return at_me_retain(b);
  become(m, n, b);
  return at_me_retain(n);
}

// ---- several values at once
typedef struct cut {
  AT_VEC(at_me_node *) nodes;
  AT_VEC(at_me_ref) to;  // of each
} cut;

// Will an operation to come use n, which is worth keeping and computed in the
// same loops as `top`?
static bool is_cut(at_me *m, const at_me_node *n, const at_me_node *top) {
  switch (n->kind) {
    case AT_ME_SPLAT:
    case AT_ME_IOTA:
    case AT_ME_LOAD:
    case AT_ME_BUFFER:
    case AT_ME_DOT:
      return false;
    default:
      break;
  }
  return n == top ||
         (n->life->refs > n->life->holds && n->life->region == m->region &&
          !n->life->within && at_me_elements(n) == at_me_elements(top) &&
          at_me_node_cost(m, n) > AT_ME_KEEP_COST && !at_me_turns_lanes(m, n));
}

// Nodes below top that is_cut, in the order of the walk; each once. False: no
// memory.
static bool find_cut(at_me *m, at_me_node *top, cut *c) {
  at_walk_clear(at_me_walk(m));
  at_walk_add(at_me_walk(m), top, 0);
  for (at_walk_step s; at_walk_next(at_me_walk(m), &s);) {
    at_me_node *n = (at_me_node *)(uintptr_t)s.item;
    if (is_cut(m, n, top) && !at_vec_push(m->a, &c->nodes, n)) return false;
    for (uint32_t i = 0; i < n->num_in; i++)
      at_walk_add(at_me_walk(m), n->in[i], 0);
  }
  return true;
}

// The body of the loops: all of them at one position, so shared parts are
// evaluated once.
static void copy_cut(at_me *m, const at_pos *p, void *arg) {
  const cut *c = arg;
  for (size_t i = 0; i < c->nodes.len; i++)
    at_me_ref_store(m, &c->to.ptr[i], p, at_me_eval(m, c->nodes.ptr[i], p));
}

// An expression may be AT_ME_MAX_HEIGHT high. Where one would grow beyond, it
// is computed, and in the same loops all below it that later operations still
// use: otherwise each of them would be computed again by every user.
void at_me_cut(at_me *m, at_me_node *top) {
  cut c = {0};
  AT_VEC(at_me_node *) buffers = {0};
  if (m->rows->count || top->life->region != m->region ||
      at_me_turns_lanes(m, top)) {
    at_me_node_drop(m, at_me_materialise(m, top));
    return;
  }
  at_me_prepare(m, top);
  bool good = find_cut(m, top, &c);
  at_me_space s = {.total = at_me_elements(top)};
  for (size_t i = 0; good && i < c.nodes.len; i++) {
    at_me_node *n = c.nodes.ptr[i];
    at_me_node *b = at_me_buffer(m, n->op, n->dtype, n->rank, n->dim);
    good = b && at_vec_push(m->a, &buffers, b) &&
           at_vec_push(m->a, &c.to, *b->ref);
    at_me_space_tree(m, &s, n);
    s.work += (double)s.total * at_me_node_cost(m, n);
  }
  if (!good) {
    at_em_fail(m->e, AT_NO_MEMORY("values of a kernel"));
    return;
  }
  at_me_loops(m, &s, copy_cut, &c);
  for (size_t i = 0; i < c.nodes.len; i++)
    become(m, c.nodes.ptr[i], buffers.ptr[i]);
}

// Movements of a load or buffer can be read at any position at the cost of
// index arithmetic.
at_me_node *at_me_readable(at_me *m, at_me_node *n) {
  const at_me_node *x = n;
  while (x && (x->kind == AT_ME_RESHAPE || x->kind == AT_ME_SLICE ||
               x->kind == AT_ME_TRANSPOSE || x->kind == AT_ME_BROADCAST))
    x = x->in[0];
  if (x && (x->kind == AT_ME_LOAD || x->kind == AT_ME_BUFFER))
    return at_me_retain(n);
  return at_me_materialise(m, n);
}

// Computes the values of one list that read memory of `roots`, which is about
// to change, and are still wanted. `own`: the value that the change itself is
// of, which may hold one reference.
static void settle_list(at_me *m, uint32_t list, uint64_t roots,
                        const at_me_node *own) {
  at_me_cursor c;
  for (at_me_node *n = at_me_list_begin(m, list, &c); n && at_em_ok(m->e);
       n = at_me_list_next(&c)) {
    uint32_t later = n->life->refs - n->life->holds - (n == own ? 1 : 0);
    bool asked = list == AT_ME_LIST_DOTS || (later && (n->reads & roots));
    if (asked && n->life->region == m->region)
      at_me_node_drop(m, at_me_materialise(m, n));
  }
  at_me_list_end(m, &c);
}

// Only lists of these roots, and the one of nodes that read anything, are
// looked at.
void at_me_settle(at_me *m, uint64_t roots, const at_me_node *own) {
  for (uint32_t l = at_me_list_of(roots, 0); l != AT_ME_LIST_DOTS;
       l = at_me_list_of(roots, l + 1))
    settle_list(m, l, roots, own);
}

// Before op: values that read what op may write, and all products that wait.
void at_me_settle_all(at_me *m, const at_mop *op) {
  at_me_settle(m, at_mplan_op_of(m->plan, op)->writes, NULL);
  settle_list(m, AT_ME_LIST_DOTS, 0, NULL);
}
