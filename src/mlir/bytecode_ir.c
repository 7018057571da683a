// Operations, regions, blocks and values from the IR section.
// Values have no names: a use is an index into the list of values that are in
// scope, in the order of their definitions. An isolated region (a function's)
// begins a list of its own; any other sees the values around it and appends its
// own behind them, for as long as it is open. Within a region a use may come
// before its definition, so such uses are noted and filled in when the region
// closes (`forwards`).
// Regions are read by recursion as deep as AT_MLIR_MAX_NESTING.
#include "mlir/bytecode_ir.h"

#include <stdlib.h>

enum {
  // Bits of an operation's mask: which parts follow.
  HAS_ATTRS = 1,
  HAS_RESULTS = 2,
  HAS_OPERANDS = 4,
  HAS_SUCCESSORS = 8,
  HAS_REGIONS = 16,
  HAS_USE_ORDERS = 32,
  HAS_PROPERTIES = 64
};

// A use that came before its definition.
typedef struct forward {
  at_mvalue **slot;
  size_t index;
} forward;

// The values that an isolated operation's regions can see. Each region reserves
// a run at the end and gives it back when it closes.
typedef struct scope {
  AT_VEC(at_mvalue *) values;
  AT_VEC(forward) forwards;
} scope;

// A region while its blocks are read; region NULL: the section's top.
typedef struct region_state {
  scope *s;
  size_t next, end;  // of the run of values
  at_mregion *region;
  at_mblock **blocks;
} region_state;

static at_status read_op(at_mbc *r, at_mcursor *c, region_state *in,
                         uint32_t depth, at_mop **out);

// A region announces how many values it will define and has room for as many.
static at_status define(at_mbc *r, at_mcursor *c, region_state *in,
                        at_mvalue *v, uint32_t n) {
  if (n > in->end - in->next)
    return at_mbc_fail(r, c, "a region defines more values than it announced");
  for (uint32_t i = 0; i < n; i++) in->s->values.ptr[in->next++] = &v[i];
  return AT_OK;
}

// A slot that is still empty is a use before its definition.
static at_status operands(at_mbc *r, at_mcursor *c, region_state *in,
                          at_mop *op) {
  AT_TRY(at_mbc_count(r, c, &op->num_operands));
  at_mvalue **v;
  AT_TRY_ALLOC(v, at_new(r->c.arena, at_mvalue *, op->num_operands));
  op->operands = v;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    uint64_t index;
    AT_TRY(at_mbc_varint(r, c, &index));
    if (index >= in->s->values.len) return at_mbc_fail(r, c, "no such value");
    v[i] = in->s->values.ptr[index];
    forward f = {&v[i], index};
    if (!v[i] && !at_vec_push(r->c.arena, &in->s->forwards, f))
      return AT_NO_MEMORY("operands");
  }
  return AT_OK;
}

// A region's values are known when it closes; so are the uses before them.
static at_status close_region(at_mbc *r, at_mcursor *c, region_state *in,
                              size_t base) {
  size_t kept = 0;
  for (size_t i = 0; i < in->s->forwards.len; i++) {
    forward f = in->s->forwards.ptr[i];
    if (f.index < base) {
      in->s->forwards.ptr[kept++] = f;
      continue;
    }
    *f.slot = in->s->values.ptr[f.index];
    if (!*f.slot) return at_mbc_fail(r, c, "a used value is never defined");
  }
  // What is left is a use of a value around the region.
  in->s->forwards.len = kept;
  in->s->values.len = base;
  return AT_OK;
}

// Orders of uses matter to nobody here; they are checked to be there.
static at_status use_orders(at_mbc *r, at_mcursor *c, uint32_t num_values) {
  uint64_t n = 1, ignored;
  // One value needs no index in front of its order.
  if (num_values > 1) AT_TRY(at_mbc_varint(r, c, &n));
  for (uint64_t i = 0; i < n; i++) {
    uint64_t count;
    bool pairs;
    if (num_values > 1) AT_TRY(at_mbc_varint(r, c, &ignored));
    AT_TRY(at_mbc_flagged(r, c, &count, &pairs));
    for (uint64_t k = 0; k < count; k++) AT_TRY(at_mbc_varint(r, c, &ignored));
  }
  return AT_OK;
}

// Every operation and argument has one, though it may be the unknown location.
static at_status op_location(at_mbc *r, at_mcursor *c, const at_mloc **out) {
  const at_mattr *a;
  AT_TRY(at_mbc_attr(r, c, &a));
  if (a->kind != AT_MATTR_LOCATION)
    return at_mbc_fail(r, c, "an operation's location is no location");
  *out = a->loc;
  return AT_OK;
}

// ---- Attributes and properties
typedef AT_VEC(at_mnamed) named_vec;

// Appends the entries of a dictionary to the operation's attributes.
static at_status add_dict(at_mbc *r, at_mcursor *c, named_vec *v) {
  const at_mattr *d;
  AT_TRY(at_mbc_attr(r, c, &d));
  if (d->kind != AT_MATTR_DICT)
    return at_mbc_fail(r, c, "an operation's attributes are no dictionary");
  for (uint32_t i = 0; i < d->num_elems; i++)
    if (!at_vec_push(r->c.arena, v, d->fields[i]))
      return AT_NO_MEMORY("attributes");
  return AT_OK;
}

// Segment sizes: a count with a sparse flag; then the values, or, when most are
// zero, the bits of an index and pairs of index and value in one integer each.
static at_status segments(at_mbc *r, at_mcursor *c, uint32_t len,
                          const at_mattr **out) {
  int32_t v[64] = {0};
  uint64_t n, x, index_bits;
  bool sparse;
  AT_TRY(at_mbc_flagged(r, c, &n, &sparse));
  if (n > len) return at_mbc_fail(r, c, "too many operand segments");
  // In order, those behind the last one being zero.
  if (!sparse) {
    for (uint64_t i = 0; i < n; i++) {
      AT_TRY(at_mbc_varint(r, c, &x));
      v[i] = (int32_t)x;
    }
  } else {
    AT_TRY(at_mbc_varint(r, c, &index_bits));
    if (index_bits > 8) return at_mbc_fail(r, c, "a sparse index is too wide");
    for (uint64_t i = 0; i < n; i++) {
      AT_TRY(at_mbc_varint(r, c, &x));
      uint64_t at = x & ((1ull << index_bits) - 1);
      if (at >= len) return at_mbc_fail(r, c, "too many operand segments");
      v[at] = (int32_t)(x >> index_bits);
    }
  }
  AT_TRY_ALLOC(*out, at_mattr_make_i32s(&r->c, v, len));
  return AT_OK;
}

// Properties of an operation in a form of its own: `schema` lists them in
// order, separated by blanks. "name" is an attribute, "name?" one that may be
// absent, "!o3" or "!r2" the sizes of so many segments of operands or results.
// They become attributes, as older bytecode has them.
// newer: with the attributes ("name+") that older writers do not know.
static at_status native_as(at_mbc *r, at_bytes raw, const char *schema,
                           bool newer, named_vec *v) {
  at_mcursor c = {raw.ptr, raw.ptr + raw.len, r->all.ptr};
  for (const char *p = schema; *p;) {
    size_t len = strcspn(p, " ");
    // The marks of this name.
    bool added = p[len - 1] == '+', segment = *p == '!';
    bool optional = p[len - 1] == '?' || added;
    at_str name = {p, len - optional};
    const at_mattr *a = NULL;
    // Before version 6 the sizes are an attribute like any other.
    if (segment) {
      name = p[1] == 'o' ? AT_STR("operandSegmentSizes")
                         : AT_STR("resultSegmentSizes");
      uint32_t n = (uint32_t)atoi(p + strcspn(p, "0123456789"));
      AT_TRY(r->version < 6 ? at_mbc_attr(r, &c, &a) : segments(r, &c, n, &a));
    } else if (!added || newer) {
      AT_TRY(optional ? at_mbc_opt_attr(r, &c, &a) : at_mbc_attr(r, &c, &a));
    }
    at_mnamed e = {NULL, a};
    if (a) AT_TRY_ALLOC(e.name, at_mctx_intern(&r->c, name));
    if (a && !at_vec_push(r->c.arena, v, e)) return AT_NO_MEMORY("properties");
    p += len + (p[len] == ' ');
  }
  if (c.p != c.end)
    return at_mbc_fail(r, &c, "bytes are left over in properties");
  return AT_OK;
}

// A schema with added attributes fits two lengths of properties; the longer
// form is tried first.
static at_status native(at_mbc *r, at_bytes raw, const char *schema,
                        named_vec *v) {
  if (!strchr(schema, '+')) return native_as(r, raw, schema, false, v);
  // The two are of different lengths: only one of them fits.
  size_t before = v->len;
  at_status st = native_as(r, raw, schema, true, v);
  if (at_ok(st)) return AT_OK;
  at_status_free(st);
  v->len = before;
  return native_as(r, raw, schema, false, v);
}

// Of an unregistered operation they are a dictionary; of a registered one
// without a schema here, bytes that are kept as they are.
static at_status op_properties(at_mbc *r, at_mcursor *c, const char *name,
                               bool registered, named_vec *v) {
  if (!registered) return add_dict(r, c, v);
  uint64_t i;
  AT_TRY(at_mbc_varint(r, c, &i));
  if (i >= r->num_props) return at_mbc_fail(r, c, "no such properties");
  const char *schema = at_mprops_of(at_str_of(name));
  if (schema) return native(r, r->props[i], schema, v);
  // A registered operation that props.def does not list.
  at_mattr *a;
  AT_TRY_ALLOC(a, at_mattr_make(&r->c, AT_MATTR_OPAQUE));
  a->name = "properties";
  a->bytes.len = r->props[i].len;
  AT_TRY_ALLOC(a->bytes.ptr,
               at_arena_copy(r->c.arena, r->props[i].ptr, r->props[i].len, 1));
  at_mnamed e = {NULL, a};
  AT_TRY_ALLOC(e.name, at_mctx_intern(&r->c, AT_STR("properties")));
  return at_vec_push(r->c.arena, v, e) ? AT_OK : AT_NO_MEMORY("properties");
}

// For qsort.
static int by_name(const void *a, const void *b) {
  return strcmp(((const at_mnamed *)a)->name, ((const at_mnamed *)b)->name);
}

// arg_attrs or res_attrs with nothing in them.
static bool all_empty(const at_mnamed *n) {
  if (strcmp(n->name, "arg_attrs") && strcmp(n->name, "res_attrs"))
    return false;
  if (n->value->kind != AT_MATTR_ARRAY) return false;
  for (uint32_t i = 0; i < n->value->num_elems; i++)
    if (n->value->elems[i]->kind != AT_MATTR_DICT ||
        n->value->elems[i]->num_elems)
      return false;
  return true;
}

// v is reordered and kept by the operation.
at_status at_mop_set_attrs(at_mctx *c, at_mop *op, at_mnamed *v, size_t n) {
  // The pretty form of a function cannot tell empty dictionaries from none.
  if (strcmp(op->name, "func.func") == 0) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
      if (!all_empty(&v[i])) v[kept++] = v[i];
    n = kept;
  }
  // Sorted, so that at_mop_eq and the digest need no search.
  if (n) qsort(v, n, sizeof *v, by_name);
  for (size_t i = 1; i < n; i++)
    if (strcmp(v[i - 1].name, v[i].name) == 0)
      return AT_FAIL(AT_INVALID_ARGUMENT, "%s: attribute %s occurs twice",
                     op->name, v[i].name);
  op->attrs = v;
  op->num_attrs = (uint32_t)n;
  return AT_OK;
}

// ---- Regions
// From version 4 on a flag says whether a location follows, from 3 on use
// orders may.
static at_status block_args(at_mbc *r, at_mcursor *c, region_state *in,
                            at_mblock *b) {
  AT_TRY(at_mbc_count(r, c, &b->num_args));
  AT_TRY_ALLOC(b->args, at_new(r->c.arena, at_mvalue, b->num_args));
  for (uint32_t i = 0; i < b->num_args; i++) {
    at_mvalue *v = &b->args[i];
    uint64_t type;
    bool has_loc = true;
    AT_TRY(r->version >= 4 ? at_mbc_flagged(r, c, &type, &has_loc)
                           : at_mbc_varint(r, c, &type));
    AT_TRY(at_mbc_type_at(r, c, type, &v->type));
    v->loc = &at_mloc_unknown;
    if (has_loc) AT_TRY(op_location(r, c, &v->loc));
    v->block = b;
    v->index = i;
  }
  AT_TRY(define(r, c, in, b->args, b->num_args));
  uint8_t ordered = 0;
  if (r->version >= 3) AT_TRY(at_mbc_byte(r, c, &ordered));
  return ordered ? use_orders(r, c, b->num_args) : AT_OK;
}

// The number of operations carries the flag that arguments follow.
static at_status read_block(at_mbc *r, at_mcursor *c, region_state *in,
                            uint32_t depth, at_mblock *b) {
  uint64_t n;
  bool has_args;
  AT_TRY(at_mbc_flagged(r, c, &n, &has_args));
  if (n > (size_t)(c->end - c->p))
    return at_mbc_fail(r, c, "more operations than bytes");
  if (has_args) AT_TRY(block_args(r, c, in, b));
  at_mop **ops;
  AT_TRY_ALLOC(ops, at_new(r->c.arena, at_mop *, n));
  b->ops = ops;
  for (uint64_t i = 0; i < n; i++) {
    AT_TRY(read_op(r, c, in, depth, &ops[i]));
    ops[i]->block = b;
    b->num_ops++;
  }
  return AT_OK;
}

// Blocks are made before any is read: branches name blocks that come later.
static at_status read_region(at_mbc *r, at_mcursor *c, scope *s, at_mop *op,
                             uint32_t depth, at_mregion **out) {
  region_state in = {.s = s};
  uint64_t num_values;
  AT_TRY_ALLOC(in.region, at_new(r->c.arena, at_mregion, 1));
  in.region->op = op;
  *out = in.region;
  AT_TRY(at_mbc_count(r, c, &in.region->num_blocks));
  uint32_t n = in.region->num_blocks;
  if (n == 0) return AT_OK;
  AT_TRY(at_mbc_varint(r, c, &num_values));
  if (num_values > (size_t)(c->end - c->p))
    return at_mbc_fail(r, c, "more values than bytes");
  // The region's own values get a run at the end of the list.
  size_t base = s->values.len;
  in.next = base;
  in.end = base + num_values;
  if (!at_vec_reserve(r->c.arena, &s->values, in.end))
    return AT_NO_MEMORY("values");
  s->values.len = in.end;
  for (size_t i = base; i < in.end; i++) s->values.ptr[i] = NULL;
  AT_TRY_ALLOC(in.blocks, at_new(r->c.arena, at_mblock *, n));
  in.region->blocks = in.blocks;
  // All blocks exist before the first is read.
  for (uint32_t i = 0; i < n; i++) {
    AT_TRY_ALLOC(in.blocks[i], at_new(r->c.arena, at_mblock, 1));
    in.blocks[i]->region = in.region;
  }
  for (uint32_t i = 0; i < n; i++)
    AT_TRY(read_block(r, c, &in, depth, in.blocks[i]));
  return close_region(r, c, &in, base);
}

// From version 2 on isolated regions are a section of their own, so that a
// reader may skip them; here they are read at once all the same.
static at_status read_regions(at_mbc *r, at_mcursor *c, region_state *in,
                              uint32_t depth, at_mop *op) {
  uint64_t n;
  bool isolated;
  AT_TRY(at_mbc_flagged(r, c, &n, &isolated));
  if (n > (size_t)(c->end - c->p))
    return at_mbc_fail(r, c, "more regions than bytes");
  if (depth >= AT_MLIR_MAX_NESTING)
    return at_mbc_fail(r, c, "regions are nested too deep");
  at_mregion **v;
  AT_TRY_ALLOC(v, at_new(r->c.arena, at_mregion *, n));
  op->regions = v;
  op->num_regions = (uint32_t)n;
  // An isolated region sees no value from outside.
  scope own = {0};
  scope *s = isolated ? &own : in->s;
  at_mcursor sub = *c;
  if (isolated && r->version >= 2) {
    uint8_t id;
    at_bytes section;
    AT_TRY(at_mbc_section(r, c, &id, &section));
    if (id != 4) return at_mbc_fail(r, c, "an IR section is expected");
    sub = (at_mcursor){section.ptr, section.ptr + section.len, c->base};
    for (uint64_t i = 0; i < n; i++)
      AT_TRY(read_region(r, &sub, s, op, depth + 1, &v[i]));
    return sub.p == sub.end
               ? AT_OK
               : at_mbc_fail(r, &sub, "bytes are left over in a region");
  }
  for (uint64_t i = 0; i < n; i++)
    AT_TRY(read_region(r, c, s, op, depth + 1, &v[i]));
  return AT_OK;
}

// Blocks of the region at hand, by number.
static at_status successors(at_mbc *r, at_mcursor *c, region_state *in,
                            at_mop *op) {
  AT_TRY(at_mbc_count(r, c, &op->num_successors));
  at_mblock **v;
  AT_TRY_ALLOC(v, at_new(r->c.arena, at_mblock *, op->num_successors));
  op->successors = v;
  for (uint32_t i = 0; i < op->num_successors; i++) {
    uint64_t index;
    AT_TRY(at_mbc_varint(r, c, &index));
    if (!in->region || index >= in->region->num_blocks)
      return at_mbc_fail(r, c, "no such block");
    v[i] = in->blocks[index];
  }
  return AT_OK;
}

// Types only: results have no names and no locations of their own.
static at_status results(at_mbc *r, at_mcursor *c, at_mop *op) {
  AT_TRY(at_mbc_count(r, c, &op->num_results));
  AT_TRY_ALLOC(op->results, at_new(r->c.arena, at_mvalue, op->num_results));
  for (uint32_t i = 0; i < op->num_results; i++) {
    at_mvalue *v = &op->results[i];
    AT_TRY(at_mbc_type(r, c, &v->type));
    v->op = op;
    v->index = i;
  }
  return AT_OK;
}

// Name, mask of what follows, location; then each of those parts, in this
// order. Results are defined before the operation's regions are read, which may
// use them only where the region is not isolated.
static at_status read_op(at_mbc *r, at_mcursor *c, region_state *in,
                         uint32_t depth, at_mop **out) {
  at_mop *op;
  uint64_t name;
  uint8_t mask;
  named_vec attrs = {0};
  AT_TRY_ALLOC(op, at_new(r->c.arena, at_mop, 1));
  AT_TRY(at_mbc_varint(r, c, &name));
  if (name >= r->num_ops) return at_mbc_fail(r, c, "no such operation name");
  op->name = r->ops[name].name;
  if (!*op->name) return at_mbc_fail(r, c, "an operation has no name");
  AT_TRY(at_mbc_byte(r, c, &mask));
  // Attributes before properties: both become attributes of the operation.
  AT_TRY(op_location(r, c, &op->loc));
  if (mask & HAS_ATTRS) AT_TRY(add_dict(r, c, &attrs));
  if (mask & HAS_PROPERTIES)
    AT_TRY(op_properties(r, c, op->name, r->ops[name].registered, &attrs));
  AT_TRY(at_mop_set_attrs(&r->c, op, attrs.ptr, attrs.len));
  if (mask & HAS_RESULTS) AT_TRY(results(r, c, op));
  if (mask & HAS_OPERANDS) AT_TRY(operands(r, c, in, op));
  if (mask & HAS_SUCCESSORS) AT_TRY(successors(r, c, in, op));
  if (mask & HAS_USE_ORDERS) AT_TRY(use_orders(r, c, op->num_results));
  // An operation outside any region defines nothing that others can use.
  if (in->region) AT_TRY(define(r, c, in, op->results, op->num_results));
  if (mask & HAS_REGIONS) AT_TRY(read_regions(r, c, in, depth, op));
  *out = op;
  return AT_OK;
}

// One builtin.module is the module; anything else gets one around it.
at_status at_mmodule_wrap(at_mctx *c, at_mop **ops, size_t n, at_mop **out) {
  if (n == 1 && strcmp(ops[0]->name, "builtin.module") == 0) {
    *out = ops[0];
    (*out)->block = NULL;
    return AT_OK;
  }
  at_mop *op;
  at_mregion *region, **regions;
  at_mblock *block, **blocks;
  AT_TRY_ALLOC(op, at_new(c->arena, at_mop, 1));
  AT_TRY_ALLOC(region, at_new(c->arena, at_mregion, 1));
  AT_TRY_ALLOC(block, at_new(c->arena, at_mblock, 1));
  AT_TRY_ALLOC(regions, at_new(c->arena, at_mregion *, 1));
  AT_TRY_ALLOC(blocks, at_new(c->arena, at_mblock *, 1));
  AT_TRY_ALLOC(op->name, at_mctx_intern(c, AT_STR("builtin.module")));
  op->loc = &at_mloc_unknown;
  *regions = region;
  *blocks = block;
  op->regions = regions;
  op->num_regions = 1;
  region->op = op;
  region->blocks = blocks;
  region->num_blocks = 1;
  block->region = region;
  block->ops = ops;
  block->num_ops = (uint32_t)n;
  for (size_t i = 0; i < n; i++) ops[i]->block = block;
  *out = op;
  return AT_OK;
}

// The section is one block of operations without a region around it.
at_status at_mbc_ir(at_mbc *r, at_mcursor c, at_mop **out) {
  scope s = {0};
  region_state top = {.s = &s};
  at_mblock block = {0};
  AT_TRY(read_block(r, &c, &top, 0, &block));
  if (c.p != c.end) return at_mbc_fail(r, &c, "bytes are left over in the IR");
  return at_mmodule_wrap(&r->c, (at_mop **)block.ops, block.num_ops, out);
}
