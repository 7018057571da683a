// Kernels exported for symbolic shapes: their types hold placeholders, and the
// module has, for each, a StableHLO function of sizes and values of the call's
// operands that says what it stands for. Where a call tells all of these, the
// sizes are filled in.
#include <stdio.h>
#include <stdlib.h>

#include "import/import.h"
#include "mosaic/mosaic_internal.h"

static const char prefix[] = "tpu.dynamic_dimension_mapping_";

typedef struct size {
  int64_t placeholder, value;
} size;

typedef struct filler {
  at_mosaic_kernel *k;
  at_arena *a;
  AT_VEC(size) sizes;
  at_map types;  // at_mtype * -> its replacement
} filler;

// Names the placeholder, as the message can name no dimension.
static at_status bad(const filler *f, int64_t placeholder, const char *what) {
  return at_mosaic_fail(f->k, f->k->module->op, AT_INVALID_ARGUMENT,
                        "symbolic size %lld: %s", (long long)placeholder, what);
}

// ---- What a placeholder stands for
// An integer field of a dictionary.
static bool field_int(const at_mattr *v, const char *name, int64_t *out) {
  const at_mattr *x = at_mattr_field(v, name);
  if (!x || x->kind != AT_MATTR_INTEGER) return false;
  *out = x->i;
  return true;
}

// A dimension of an operand, or, with dimension -1, its value. false: the call
// does not tell.
static bool told(const at_mosaic_call *c, int64_t operand, int64_t dim,
                 int64_t *out) {
  if (operand < 0 || operand >= c->num_operands || !c->operands) return false;
  const at_type *t = &c->operands[operand];
  if (dim < 0) {
    *out = c->values ? c->values[operand] : AT_MDYN;
    return *out != AT_MDYN;
  }
  if (dim >= t->rank || t->dims[dim] < 0) return false;
  return *out = t->dims[dim], true;
}

// A literal of the parameter's type, S32 or S64.
static at_status scalar(at_arena *a, const at_node *param, int64_t value,
                        const at_literal **out) {
  at_type t = param->types[0];
  int32_t narrow = (int32_t)value;
  const void *data = t.dtype == AT_S64 ? (const void *)&value : &narrow;
  return at_literal_make(a, t, data, false, false, out);
}

static bool is_count(const at_type *t) {
  return !t->rank && (t->dtype == AT_S32 || t->dtype == AT_S64);
}

// Reads, imports and evaluates the StableHLO function on the given sizes;
// bounded in operations.
static at_status evaluate(const filler *f, at_str text, int64_t placeholder,
                          const int64_t *in, uint32_t n, int64_t *out) {
  at_mmodule *parsed;
  at_module *m;
  AT_TRY(at_mlir_read_text(text, f->a, &parsed));
  AT_TRY(at_import(parsed, f->a, &m));
  const at_comp *e = m->entry;
  if (e->num_params != n || e->num_results != 1 ||
      !is_count(at_value_type(e->results[0])))
    return bad(f, placeholder, "its function has another signature");
  const at_literal **args, *result;
  AT_TRY_ALLOC(args, at_new(f->a, const at_literal *, n + 1));
  for (uint32_t i = 0; i < n; i++) {
    if (!is_count(&e->params[i]->types[0]))
      return bad(f, placeholder, "its function takes no count");
    AT_TRY(scalar(f->a, e->params[i], in[i], &args[i]));
  }
  at_eval_options o = {.max_ops = 1 << 16};
  AT_TRY(at_eval(e, args, &o, f->a, &result));
  *out = at_literal_int(result, 0);
  if (*out < 0 || *out > INT32_MAX)
    return bad(f, placeholder, "it is negative or too large");
  return AT_OK;
}

// known: false where the call does not tell.
static at_status size_of(filler *f, const at_mnamed *attr, bool *known) {
  int64_t in[64], value,
      number = strtoll(strrchr(attr->name, '_') + 1, NULL, 10);
  char name[96];
  snprintf(name, sizeof name, "%sindices_%lld", prefix, (long long)number);
  const at_mattr *places = at_mop_attr(f->k->module->op, name);
  if (attr->value->kind != AT_MATTR_STRING || !places ||
      places->kind != AT_MATTR_ARRAY || places->num_elems > AT_LEN(in))
    return bad(f, number, "how it follows from the operands is not said");
  for (uint32_t i = 0; i < places->num_elems; i++) {
    int64_t operand, dim;
    if (!field_int(places->elems[i], "operand_index", &operand) ||
        !field_int(places->elems[i], "dimension_index", &dim))
      return bad(f, number, "a place without operand or dimension");
    *known &= told(&f->k->call, operand, dim, &in[i]);
  }
  if (!*known) return AT_OK;
  AT_TRY(evaluate(f, attr->value->str, number, in, places->num_elems, &value));
  return at_vec_push(f->a, &f->sizes, ((size){number, value}))
             ? AT_OK
             : AT_NO_MEMORY("sizes of a kernel");
}

// One attribute per placeholder; names end in its number.
static at_status find_sizes(filler *f, bool *known) {
  const at_mop *m = f->k->module->op;
  for (uint32_t i = 0; i < m->num_attrs; i++)
    if (!strncmp(m->attrs[i].name, prefix, sizeof prefix - 1) &&
        !strncmp(m->attrs[i].name + sizeof prefix - 1, "module_", 7))
      AT_TRY(size_of(f, &m->attrs[i], known));
  return AT_OK;
}

// ---- Filling in
// The size that n stands for, or n.
static int64_t filled(const filler *f, int64_t n) {
  for (size_t i = 0; i < f->sizes.len; i++)
    if (f->sizes.ptr[i].placeholder == n) return f->sizes.ptr[i].value;
  return n;
}

// A copy in the arena with placeholders replaced.
static at_status fill_dims(filler *f, at_dims *d) {
  int64_t *p;
  AT_TRY_ALLOC(p, at_new(f->a, int64_t, d->rank + 1));
  for (uint32_t i = 0; i < d->rank; i++) p[i] = filled(f, d->ptr[i]);
  d->ptr = p;
  return AT_OK;
}

static at_status fill_type(filler *f, const at_mtype **type);

// A new list: lists of types are shared, too.
static at_status fill_types(filler *f, const at_mtype *const **types,
                            uint32_t n) {
  const at_mtype **p;
  AT_TRY_ALLOC(p, at_new(f->a, const at_mtype *, n + 1));
  for (uint32_t i = 0; i < n; i++) {
    p[i] = (*types)[i];
    AT_TRY(fill_type(f, &p[i]));
  }
  *types = p;
  return AT_OK;
}

// Types are shared: each is replaced once. The map also ends cycles.
static at_status fill_type(filler *f, const at_mtype **type) {
  if (!*type) return AT_OK;
  void **known = at_map_find_ptr(&f->types, *type);
  if (known) return *type = *known, AT_OK;
  at_mtype *t;
  AT_TRY_ALLOC(t, at_arena_copy(f->a, *type, sizeof *t, _Alignof(at_mtype)));
  AT_TRY_ALLOC(known, at_map_put_ptr(&f->types, *type));
  *known = t;
  *type = t;
  if (t->shape.rank) AT_TRY(fill_dims(f, &t->shape));
  AT_TRY(fill_type(f, &t->elem));
  AT_TRY(fill_types(f, &t->types, t->num_types));
  return fill_types(f, &t->results, t->num_results);
}

// Elements of a dense array of 64-bit integers.
static at_status fill_data(filler *f, at_mattr *v) {
  if (v->type && v->type->kind == AT_MTYPE_INTEGER && v->type->width == 64 &&
      v->data.len % sizeof(int64_t) == 0) {
    int64_t *p;
    AT_TRY_ALLOC(p, at_arena_copy(f->a, v->data.ptr, v->data.len, 8));
    for (size_t i = 0; i < v->data.len / sizeof *p; i++) p[i] = filled(f, p[i]);
    v->data.ptr = (const uint8_t *)p;
  }
  return AT_OK;
}

static at_status fill_attr(filler *f, const at_mattr **attr, bool counts);

// A new list of attributes with sizes filled in.
static at_status fill_fields(filler *f, const at_mnamed **fields, uint32_t n,
                             bool counts) {
  at_mnamed *p;
  AT_TRY_ALLOC(p, at_new(f->a, at_mnamed, n + 1));
  for (uint32_t i = 0; i < n; i++) {
    p[i] = (*fields)[i];
    AT_TRY(fill_attr(f, &p[i].value, counts));
  }
  *fields = p;
  return AT_OK;
}

// counts: an integer here may be a size: in a list, or as a constant of the
// body (JAX takes numbers for placeholders that nobody else should use).
static at_status fill_attr(filler *f, const at_mattr **attr, bool counts) {
  at_mattr *v;
  AT_TRY_ALLOC(v, at_arena_copy(f->a, *attr, sizeof *v, _Alignof(at_mattr)));
  AT_TRY(fill_type(f, &v->type));
  if (v->kind == AT_MATTR_INTEGER && counts) v->i = filled(f, v->i);
  if (v->kind == AT_MATTR_DENSE_ARRAY) AT_TRY(fill_data(f, v));
  if (v->kind == AT_MATTR_ARRAY) {
    const at_mattr **p;
    AT_TRY_ALLOC(p, at_new(f->a, const at_mattr *, v->num_elems + 1));
    for (uint32_t i = 0; i < v->num_elems; i++) {
      p[i] = v->elems[i];
      AT_TRY(fill_attr(f, &p[i], true));
    }
    v->elems = p;
  }
  if (v->kind == AT_MATTR_DICT)
    AT_TRY(fill_fields(f, &v->fields, v->num_elems, false));
  *attr = v;
  return AT_OK;
}

// Results, attributes, block arguments and everything inside.
static at_status fill_op(filler *f, at_mop *op) {
  for (uint32_t i = 0; i < op->num_results; i++)
    AT_TRY(fill_type(f, &op->results[i].type));
  bool constant = strstr(op->name, "arith.constant") != NULL;
  AT_TRY(fill_fields(f, &op->attrs, op->num_attrs, constant));
  for (uint32_t r = 0; r < op->num_regions; r++)
    for (uint32_t b = 0; b < op->regions[r]->num_blocks; b++) {
      at_mblock *block = op->regions[r]->blocks[b];
      for (uint32_t i = 0; i < block->num_args; i++)
        AT_TRY(fill_type(f, &block->args[i].type));
      for (uint32_t i = 0; i < block->num_ops; i++)
        AT_TRY(fill_op(f, block->ops[i]));
    }
  return AT_OK;
}

// A grid's bounds that are placeholders come as the first operands.
static at_status free_bounds(filler *f, at_mop *func) {
  const at_mattr *v = at_mop_attr(func, "iteration_bounds");
  at_dims bounds;
  if (!v || v->kind != AT_MATTR_DENSE_ARRAY ||
      !at_mosaic_attr_ints(v, f->a, &bounds))
    return AT_OK;
  uint32_t need = 0, have = 0;
  int64_t *p;
  AT_TRY_ALLOC(p, at_new(f->a, int64_t, bounds.rank + 1));
  for (uint32_t i = 0; i < bounds.rank; i++) {
    bool open =
        bounds.ptr[i] == AT_MDYN || filled(f, bounds.ptr[i]) != bounds.ptr[i];
    p[i] = open ? AT_MDYN : bounds.ptr[i];
    need += open;
  }
  const at_mosaic_call *c = &f->k->call;
  while (have < c->num_operands && !c->operands[have].rank) have++;
  if (have < need) return AT_OK;  // they are filled in like other sizes
  at_mattr *changed;
  AT_TRY_ALLOC(changed, at_arena_copy(f->a, v, sizeof *v, _Alignof(at_mattr)));
  changed->data = (at_bytes){(const uint8_t *)p, bounds.rank * sizeof *p};
  return at_mosaic_attr_set(f->a, func, "iteration_bounds", changed);
}

// Behind this step the kernel is not symbolic, and nothing may look for
// mappings.
static at_status drop_mappings(filler *f) {
  at_mop *m = f->k->module->op;
  for (uint32_t i = m->num_attrs; i-- > 0;) {
    if (strncmp(m->attrs[i].name, prefix, sizeof prefix - 1) != 0) continue;
    AT_TRY(at_mosaic_attr_set(f->a, m, m->attrs[i].name, NULL));
  }
  return AT_OK;
}

// Does nothing where the call has no types or does not tell every size.
at_status at_mosaic_fill_sizes(at_mosaic_kernel *k) {
  filler f = {.k = k, .a = k->arena, .types = at_map_in(k->arena)};
  bool known = true;
  if (!k->call.operands) return AT_OK;
  AT_TRY(find_sizes(&f, &known));
  if (!known || !f.sizes.len) return AT_OK;
  at_mop *m = k->module->op;
  if (m->num_regions != 1 || m->regions[0]->num_blocks != 1) return AT_OK;
  AT_TRY(drop_mappings(&f));
  at_mblock *top = m->regions[0]->blocks[0];
  for (uint32_t i = 0; i < top->num_ops; i++)
    AT_TRY(free_bounds(&f, top->ops[i]));
  AT_TRY(fill_op(&f, m));
  k->symbolic = false;
  return AT_OK;
}
