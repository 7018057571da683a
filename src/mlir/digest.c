// Digests of programs: what at_mop_eq calls equal has equal digests.
#include "mlir/mlir_internal.h"

// The tables of one digest, in the caller's scratch arena.
typedef struct walk {
  const at_mdigest_hooks *hooks;
  at_map types, attrs;  // -> at_digest
  at_map numbers;       // values and blocks -> number + 1, as defined or used
} walk;

static at_status type_digest(walk *w, const at_mtype *t, at_digest *out);
static at_status attr_digest(walk *w, const at_mattr *t, at_digest *out);

// Mixes in the 16 bytes of a part's digest.
static void add_digest(at_digest *d, at_digest x) {
  at_digest_add(d, (at_bytes){(const uint8_t *)&x, sizeof x});
}
// NULL and the empty text are alike: no kind has both.
static void add_text(at_digest *d, const char *z) {
  at_digest_add_str(d, at_str_of(z));
}
// The length is mixed in by at_digest_add.
static void add_dims(at_digest *d, at_dims x) {
  at_digest_add(d, (at_bytes){(const uint8_t *)x.ptr, x.rank * sizeof *x.ptr});
}
// Memoised in w->types.
static at_status add_type(walk *w, const at_mtype *t, at_digest *d) {
  at_digest x;
  AT_TRY(type_digest(w, t, &x));
  return add_digest(d, x), AT_OK;
}
// Memoised in w->attrs.
static at_status add_attr(walk *w, const at_mattr *t, at_digest *d) {
  at_digest x;
  AT_TRY(attr_digest(w, t, &x));
  return add_digest(d, x), AT_OK;
}

// Each is computed once: types and attributes share their parts.
static at_digest *known(const at_map *m, const void *key) {
  void **at = at_map_find_ptr(m, key);
  return at ? *at : NULL;
}
// The digest is copied into the map's arena.
static at_status keep(at_map *m, const void *key, at_digest d) {
  at_digest *p;
  void **at;
  AT_TRY_ALLOC(p, at_new(m->arena, at_digest, 1));
  AT_TRY_ALLOC(at, at_map_put_ptr(m, key));
  *p = d;
  *at = p;
  return AT_OK;
}

// What a location says itself, without the locations that it refers to.
static void add_loc(at_digest *d, const at_mloc *l) {
  at_digest_add_u64(d, l->kind);
  add_text(d, l->text);
  at_digest_add_u64(d, (uint64_t)l->line << 32 | l->column);
  at_digest_add_u64(d, (uint64_t)l->end_line << 32 | l->end_column);
}

// Recursion as deep as the chain of locations, which readers bound; each
// location once.
at_status at_mloc_digest(const at_mloc *l, at_map *memo, at_digest *out) {
  *out = at_digest_start(5);
  if (!l) return AT_OK;
  at_digest *seen = known(memo, l), d = at_digest_start(6), x;
  if (seen) return *out = *seen, AT_OK;
  add_loc(&d, l);
  AT_TRY(at_mloc_digest(l->child, memo, &x));
  add_digest(&d, x);
  AT_TRY(at_mloc_digest(l->caller, memo, &x));
  add_digest(&d, x);
  for (uint32_t i = 0; i < l->num_locs; i++) {
    AT_TRY(at_mloc_digest(l->locs[i], memo, &x));
    add_digest(&d, x);
  }
  *out = d;
  return keep(memo, l, d);
}

// The hook decides whether and how a location counts.
static at_status add_place(walk *w, const void *of, const at_mloc *l,
                           at_digest *d) {
  return w->hooks->place ? w->hooks->place(w->hooks->user, of, l, d) : AT_OK;
}

// All fields of all kinds: those that a kind does not use are zero on both
// sides.
static at_status type_digest(walk *w, const at_mtype *t, at_digest *out) {
  *out = at_digest_start(1);
  if (!t) return AT_OK;
  at_digest *seen = known(&w->types, t), d = at_digest_start(2);
  if (seen) return *out = *seen, AT_OK;
  at_digest_add_u64(&d, t->kind);
  at_digest_add_u64(&d, (uint64_t)t->width << 32 | t->sign);
  add_text(&d, t->name);
  add_dims(&d, t->shape);
  add_dims(&d, t->scalable);
  add_dims(&d, t->ints);
  at_digest_add(&d, t->bytes);
  AT_TRY(add_type(w, t->elem, &d));
  AT_TRY(add_attr(w, t->encoding, &d));
  AT_TRY(add_attr(w, t->layout, &d));
  AT_TRY(add_attr(w, t->space, &d));
  at_digest_add_u64(&d, (uint64_t)t->num_types << 32 | t->num_results);
  for (uint32_t i = 0; i < t->num_types; i++)
    AT_TRY(add_type(w, t->types[i], &d));
  for (uint32_t i = 0; i < t->num_results; i++)
    AT_TRY(add_type(w, t->results[i], &d));
  for (uint32_t i = 0; i < t->num_attrs; i++)
    AT_TRY(add_attr(w, t->attrs[i], &d));
  *out = d;
  return keep(&w->types, t, d);
}

// Postfix would do, too: kind, value, then both operands.
static void add_affine(at_digest *d, const at_maffine *e) {
  at_digest_add_u64(d, e->kind);
  at_digest_add_u64(d, (uint64_t)e->value);
  if (!e->lhs) return;
  add_affine(d, e->lhs);
  add_affine(d, e->rhs);
}

// Whether every element of `each` bytes equals the first.
static bool is_one(at_bytes data, size_t each) {
  for (size_t i = each; i < data.len; i += each)
    if (memcmp(data.ptr, data.ptr + i, each)) return false;
  return true;
}

// A splat equals the same element written out.
static void add_dense(at_digest *d, const at_mattr *t) {
  uint64_t count = 1;
  for (uint32_t i = 0; t->type && i < t->type->shape.rank; i++)
    count = at_mul(count, (size_t)AT_MAX(t->type->shape.ptr[i], 0));
  bool splat = t->splat;
  size_t each = splat || !count ? t->data.len : t->data.len / count;
  if (!splat && each && count > 1 && each * count == t->data.len)
    splat = is_one(t->data, each);
  if (count == 1) splat = false;
  at_digest_add_u64(d, splat);
  at_digest_add(d, (at_bytes){t->data.ptr, splat ? each : t->data.len});
}

// Elements, named fields and affine results, whichever the kind has.
static at_status add_parts(walk *w, const at_mattr *t, at_digest *d) {
  at_digest_add_u64(d, t->num_elems);
  for (uint32_t i = 0; i < t->num_elems; i++) {
    if (t->elems) AT_TRY(add_attr(w, t->elems[i], d));
    if (t->fields) {
      add_text(d, t->fields[i].name);
      AT_TRY(add_attr(w, t->fields[i].value, d));
    }
    if (t->exprs) add_affine(d, t->exprs[i]);
    if (t->is_eq) at_digest_add_u64(d, t->is_eq[i]);
  }
  return AT_OK;
}

// Floats by their bits, as at_mattr_eq compares them.
static at_status attr_digest(walk *w, const at_mattr *t, at_digest *out) {
  *out = at_digest_start(3);
  if (!t) return AT_OK;
  at_digest *seen = known(&w->attrs, t), d = at_digest_start(4);
  if (seen) return *out = *seen, AT_OK;
  uint64_t f;
  memcpy(&f, &t->f, sizeof f);
  at_digest_add_u64(&d, t->kind);
  at_digest_add_u64(&d, (uint64_t)t->i);
  at_digest_add_u64(&d, f);
  at_digest_add_u64(&d, (uint64_t)t->num_dims << 32 | t->num_syms);
  add_text(&d, t->name);
  at_digest_add_str(&d, t->str);
  at_digest_add(&d, t->wide);
  at_digest_add(&d, t->bytes);
  add_dims(&d, t->ints);
  add_dense(&d, t);
  AT_TRY(add_type(w, t->type, &d));
  AT_TRY(add_parts(w, t, &d));
  if (t->loc) AT_TRY(add_place(w, t, t->loc, &d));
  *out = d;
  return keep(&w->attrs, t, d);
}

// ---- Operations
// The number of a value or block: in the order of definitions and uses.
static at_status add_number(walk *w, const void *p, at_digest *d) {
  void **at;
  AT_TRY_ALLOC(at, at_map_put_ptr(&w->numbers, p));
  if (!*at) *at = (void *)(uintptr_t)w->numbers.len;
  at_digest_add_u64(d, (uintptr_t)*at);
  return AT_OK;
}

// Results have no locations of their own; arguments do.
static at_status add_values(walk *w, const at_mvalue *v, uint32_t n,
                            bool placed, at_digest *d) {
  for (uint32_t i = 0; i < n; i++) {
    AT_TRY(add_number(w, &v[i], d));
    AT_TRY(add_type(w, v[i].type, d));
    if (placed) AT_TRY(add_place(w, &v[i], v[i].loc, d));
  }
  return AT_OK;
}

static at_status add_op(walk *w, const at_mop *op, at_digest *d);

// Blocks and arguments of the whole region are numbered first, since branches
// may name blocks that come later.
static at_status add_region(walk *w, const at_mregion *r, at_digest *d) {
  at_digest_add_u64(d, r->num_blocks);
  for (uint32_t i = 0; i < r->num_blocks; i++) {
    const at_mblock *b = r->blocks[i];
    at_digest_add_u64(d, (uint64_t)b->num_args << 32 | b->num_ops);
    AT_TRY(add_number(w, b, d));
    AT_TRY(add_values(w, b->args, b->num_args, true, d));
  }
  for (uint32_t i = 0; i < r->num_blocks; i++)
    for (uint32_t k = 0; k < r->blocks[i]->num_ops; k++)
      AT_TRY(add_op(w, r->blocks[i]->ops[k], d));
  return AT_OK;
}

// Counts first, so that lists of different lengths cannot look alike.
static at_status add_op(walk *w, const at_mop *op, at_digest *d) {
  add_text(d, op->name);
  at_digest_add_u64(d, (uint64_t)op->num_operands << 32 | op->num_results);
  at_digest_add_u64(d, (uint64_t)op->num_regions << 32 | op->num_successors);
  at_digest_add_u64(d, op->num_attrs);
  AT_TRY(add_place(w, op, op->loc, d));
  // Attributes are sorted, so their order does not depend on the file.
  for (uint32_t i = 0; i < op->num_attrs; i++) {
    bool done = false;
    add_text(d, op->attrs[i].name);
    if (w->hooks->attr)
      AT_TRY(w->hooks->attr(w->hooks->user, op, &op->attrs[i], d, &done));
    if (!done) AT_TRY(add_attr(w, op->attrs[i].value, d));
  }
  for (uint32_t i = 0; i < op->num_operands; i++)
    AT_TRY(add_number(w, op->operands[i], d));
  for (uint32_t i = 0; i < op->num_successors; i++)
    AT_TRY(add_number(w, op->successors[i], d));
  AT_TRY(add_values(w, op->results, op->num_results, false, d));
  for (uint32_t i = 0; i < op->num_regions; i++)
    AT_TRY(add_region(w, op->regions[i], d));
  return AT_OK;
}

// Numbers of values and blocks are by order of definition and use, which is
// what at_mop_eq pairs.
at_status at_mop_digest(const at_mop *op, const at_mdigest_hooks *hooks,
                        at_arena *scratch, at_digest *io) {
  walk w = {hooks, at_map_in(scratch), at_map_in(scratch), at_map_in(scratch)};
  return add_op(&w, op, io);
}
