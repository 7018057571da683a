// Modules, computations and nodes: creation, attributes, rewrites, text for
// error messages.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "hlo/hlo_internal.h"

// Everything else starts empty: no functions, no entry, no meshes.
at_status at_module_create(at_arena *a, at_str name, at_module **out) {
  at_module *m;
  AT_TRY_ALLOC(m, at_new(a, at_module, 1));
  AT_TRY_ALLOC(m->name, at_arena_str(a, name));
  m->arena = a;
  m->by_name = at_map_in(a);
  m->num_replicas = m->num_partitions = 1;
  *out = m;
  return AT_OK;
}

static void forget_effects(const at_comp *c, const at_node *n);

// A name that is taken is INVALID_ARGUMENT.
static at_status add_func(at_module *m, at_comp *c) {
  void **slot;
  AT_TRY_ALLOC(slot, at_map_put(&m->by_name, at_str_of(c->name)));
  if (*slot)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "module \"%s\" has two functions \"%s\"", m->name, c->name);
  if (m->num_funcs == m->cap_funcs) {
    uint32_t cap = m->cap_funcs ? m->cap_funcs * 2 : 8;
    at_comp **funcs;
    AT_TRY_ALLOC(funcs, at_new(m->arena, at_comp *, cap));
    if (m->num_funcs) memcpy(funcs, m->funcs, m->num_funcs * sizeof *funcs);
    m->funcs = funcs;
    m->cap_funcs = cap;
  }
  m->funcs[m->num_funcs++] = c;
  *slot = c;
  return AT_OK;
}

// The other functions' memory stays in the arena; they are only no longer
// listed.
at_status at_module_keep(at_module *m, at_comp *f) {
  m->num_funcs = 0;
  m->by_name = at_map_in(m->arena);
  return add_func(m, f);
}

// Regions are few, so the list is copied for each.
static at_status add_region(at_module *m, at_node *owner, at_comp *c) {
  at_comp **regions;
  AT_TRY_ALLOC(regions,
               at_new(m->arena, at_comp *, (size_t)owner->num_regions + 1));
  for (uint32_t i = 0; i < owner->num_regions; i++)
    regions[i] = owner->regions[i];
  regions[owner->num_regions++] = c;
  owner->regions = regions;
  c->owner = owner;
  return AT_OK;
}

// A region is added behind those that its owner has.
at_status at_comp_create(at_module *m, at_str name, at_node *owner,
                         at_comp **out) {
  at_comp *c;
  AT_TRY_ALLOC(c, at_new(m->arena, at_comp, 1));
  c->module = m;
  if (owner) {
    AT_TRY(add_region(m, owner, c));
  } else {
    AT_TRY_ALLOC(c->name, at_arena_str(m->arena, name));
    AT_TRY(add_func(m, c));
  }
  *out = c;
  return AT_OK;
}

// A computation that nobody owns yet: at_build adopts it.
at_status at_region_create(at_module *m, at_comp **out) {
  at_comp *c;
  AT_TRY_ALLOC(c, at_new(m->arena, at_comp, 1));
  c->module = m;
  *out = c;
  return AT_OK;
}

// Linear in the number of operands; regions take few values from outside.
at_status at_region_param(at_arena *a, at_comp *region, at_value_list *operands,
                          at_value v, at_value *out) {
  for (size_t i = 0; i < operands->len; i++) {
    if (!at_value_eq(operands->ptr[i], v)) continue;
    *out = (at_value){region->params[i], 0};
    return AT_OK;
  }
  if (!at_vec_push(a, operands, v)) return AT_NO_MEMORY("a region");
  return at_build_param(region, *at_value_type(v), v.node->loc, out);
}

at_comp *at_module_find(const at_module *m, at_str name) {
  void **found = at_map_find(&m->by_name, name);
  return found ? *found : NULL;
}

// ---- Attributes

// A copy in `a`, which is also terminated by NUL.
static at_status copy_str(at_arena *a, at_str in, at_str *out) {
  AT_TRY_ALLOC(out->ptr, at_arena_str(a, in));
  out->len = in.len;
  return AT_OK;
}

// An empty list stays without memory.
static at_status copy_dims(at_arena *a, at_dims in, at_dims *out) {
  *out = (at_dims){NULL, in.rank};
  if (in.rank)
    AT_TRY_ALLOC(out->ptr, at_arena_copy(a, in.ptr, in.rank * sizeof *in.ptr,
                                         _Alignof(int64_t)));
  return AT_OK;
}

// Keys and values are copied; their number is in *out already.
static at_status copy_dict(at_arena *a, const at_attr *in, at_attr *out) {
  at_str *kv;
  AT_TRY_ALLOC(kv, at_new(a, at_str, at_mul(in->dict.n, 2)));
  for (uint32_t i = 0; i < 2 * in->dict.n; i++)
    AT_TRY(copy_str(a, in->dict.kv[i], &kv[i]));
  out->dict.kv = kv;
  return AT_OK;
}

// Each list is copied by itself.
static at_status copy_groups(at_arena *a, const at_attr *in, at_attr *out) {
  at_dims *list;
  AT_TRY_ALLOC(list, at_new(a, at_dims, in->groups.n));
  for (uint32_t i = 0; i < in->groups.n; i++)
    AT_TRY(copy_dims(a, in->groups.list[i], &list[i]));
  out->groups.list = list;
  return AT_OK;
}

// Deep, but for literals, which are shared: they never change and live as long
// as the module.
at_status at_attr_copy(at_arena *a, const at_attr *in, at_attr *out) {
  *out = *in;
  switch (at_attr_kind_of(in->id)) {
    case AT_KIND_STR:
    case AT_KIND_BYTES:
      return copy_str(a, in->s, &out->s);
    case AT_KIND_INTS:
      return copy_dims(a, in->ints, &out->ints);
    case AT_KIND_DICT:
      return copy_dict(a, in, out);
    case AT_KIND_GROUPS:
      return copy_groups(a, in, out);
    case AT_KIND_TYPE: {
      at_type *t;
      AT_TRY_ALLOC(t, at_new(a, at_type, 1));
      AT_TRY(at_type_copy(a, in->type, t));
      out->type = t;
      return AT_OK;
    }
    default:
      return AT_OK;
  }
}

const at_attr *at_node_attr(const at_node *n, at_attr_id id) {
  for (uint32_t i = 0; i < n->num_attrs; i++)
    if (n->attrs[i].id == id) return &n->attrs[i];
  return NULL;
}

// Is the attribute of one of these kinds (a bit each)? Who asks for the member
// of another kind reads bits that mean something else.
static bool is_kind(at_attr_id id, uint32_t kinds) {
  return kinds >> at_attr_kind_of(id) & 1;
}

int64_t at_node_int(const at_node *n, at_attr_id id, int64_t absent) {
  AT_ASSERT(
      is_kind(id, 1u << AT_KIND_INT | 1u << AT_KIND_BOOL | 1u << AT_KIND_ENUM));
  const at_attr *a = at_node_attr(n, id);
  return a ? a->i : absent;
}

at_dims at_node_ints(const at_node *n, at_attr_id id) {
  AT_ASSERT(is_kind(id, 1u << AT_KIND_INTS));
  const at_attr *a = at_node_attr(n, id);
  return a ? a->ints : (at_dims){NULL, 0};
}

at_str at_node_str(const at_node *n, at_attr_id id) {
  AT_ASSERT(is_kind(id, 1u << AT_KIND_STR | 1u << AT_KIND_BYTES));
  const at_attr *a = at_node_attr(n, id);
  return a ? a->s : (at_str){"", 0};
}

// The dictionary is searched from its first entry; keys are unique in what JAX
// writes.
at_str at_node_told(const at_node *n, const char *key) {
  const at_attr *a = at_node_attr(n, AT_ATTR_FRONTEND_ATTRIBUTES);
  for (uint32_t i = 0; a && i < a->dict.n; i++)
    if (at_str_is(a->dict.kv[2 * i], key)) return a->dict.kv[2 * i + 1];
  return (at_str){NULL, 0};
}

const at_literal *at_node_literal(const at_node *n) {
  if (n->op != AT_OP_CONSTANT) return NULL;
  const at_attr *a = at_node_attr(n, AT_ATTR_VALUE);
  return a ? a->literal : NULL;
}

// The list stays sorted by id. Its old memory stays in the arena.
at_status at_node_set_attr(at_node *n, at_attr a) {
  at_arena *arena = n->parent->module->arena;
  if (!at_op_has_attr(n->op, a.id))
    return AT_BAD(n, "has no attribute \"%s\"", at_attr_text(a.id));
  forget_effects(n->parent, n);
  at_attr copy;
  AT_TRY(at_attr_copy(arena, &a, &copy));
  uint32_t at = 0;
  while (at < n->num_attrs && n->attrs[at].id < a.id) at++;
  if (at < n->num_attrs && n->attrs[at].id == a.id) {
    n->attrs[at] = copy;
    return AT_OK;
  }
  at_attr *attrs;
  AT_TRY_ALLOC(attrs, at_new(arena, at_attr, (size_t)n->num_attrs + 1));
  for (uint32_t i = 0; i <= n->num_attrs; i++)
    attrs[i] = i < at ? n->attrs[i] : i == at ? copy : n->attrs[i - 1];
  n->attrs = attrs;
  n->num_attrs++;
  AT_ASSERT(at == 0 || attrs[at - 1].id < a.id);
  AT_ASSERT(at + 1 == n->num_attrs || a.id < attrs[at + 1].id);
  return AT_OK;
}

// ---- Checks

// Kinds that are pointers must point somewhere.
static bool attr_is_null(const at_attr *a) {
  switch (at_attr_kind_of(a->id)) {
    case AT_KIND_LITERAL:
      return !a->literal;
    case AT_KIND_TYPE:
      return !a->type;
    default:
      return false;
  }
}

// Each attribute is one of the op's, once, in order, with a value of its kind.
static at_status check_attrs(const at_node *n) {
  for (uint32_t i = 0; i < n->num_attrs; i++) {
    const at_attr *a = &n->attrs[i];
    if (!at_op_has_attr(n->op, a->id))
      return AT_BAD(n, "has no attribute \"%s\"", at_attr_text(a->id));
    if (i && n->attrs[i - 1].id >= a->id)
      return AT_BAD(n, "attribute \"%s\" is given twice or out of order",
                    at_attr_text(a->id));
    if (attr_is_null(a))
      return AT_BAD(n, "attribute \"%s\" is empty", at_attr_text(a->id));
    if (at_attr_kind_of(a->id) == AT_KIND_ENUM && !at_enum_text(a->id, a->i))
      return AT_BAD(n, "attribute \"%s\" has the unknown value %lld",
                    at_attr_text(a->id), (long long)a->i);
  }
  return AT_OK;
}

// Operands name values; their number, the number of regions and the attributes
// are as the op's row has them.
at_status at_node_check(const at_node *n) {
  const at_op_info *info = at_op_of(n->op);
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_value v = n->operands[i];
    if (!v.node || v.index >= v.node->num_results)
      return AT_FAIL(AT_INVALID_ARGUMENT, "%s: operand %u names no value",
                     info->text, i);
  }
  if ((int64_t)n->num_operands < info->min_operands ||
      (info->max_operands >= 0 &&
       (int64_t)n->num_operands > info->max_operands))
    return AT_BAD(
        n, "has %u operands, takes %s%d", n->num_operands,
        info->max_operands < 0 ? "at least " : "",
        info->max_operands < 0 ? info->min_operands : info->max_operands);
  if (info->regions >= 0 && n->num_regions != (uint32_t)info->regions)
    return AT_BAD(n, "has %u regions, takes %d", n->num_regions, info->regions);
  return check_attrs(n);
}

// Declared types win where both are compatible: they may know a dimension that
// inference leaves open, and the other way round.
at_status at_infer_set(at_module *m, at_node *n, const at_type *types,
                       uint32_t count) {
  if (!n->types) {
    at_type *t;
    AT_TRY_ALLOC(t, at_new(m->arena, at_type, count));
    for (uint32_t i = 0; i < count; i++)
      AT_TRY(at_type_copy(m->arena, &types[i], &t[i]));
    n->types = t;
    n->num_results = count;
    return AT_OK;
  }
  if (n->num_results != count)
    return AT_BAD(n, "has %u results, its operands give %u", n->num_results,
                  count);
  for (uint32_t i = 0; i < count; i++)
    if (!at_type_compatible(&n->types[i], &types[i]))
      return AT_BAD(n, "result %u is declared %s, its operands give %s", i,
                    at_type_z(&n->types[i]).z, at_type_z(&types[i]).z);
  return AT_OK;
}

// ---- Building

static int by_id(const void *a, const void *b) {
  return (int)((const at_attr *)a)->id - (int)((const at_attr *)b)->id;
}

// Copies the attributes and sorts them by id.
static at_status fill_attrs(at_arena *a, at_node *n, const at_node_desc *d) {
  n->num_attrs = d->num_attrs;
  if (!d->num_attrs) return AT_OK;
  AT_TRY_ALLOC(n->attrs, at_new(a, at_attr, d->num_attrs));
  for (uint32_t i = 0; i < d->num_attrs; i++)
    AT_TRY(at_attr_copy(a, &d->attrs[i], &n->attrs[i]));
  qsort(n->attrs, n->num_attrs, sizeof *n->attrs, by_id);
  return AT_OK;
}

// Copies what the description has into the module's arena.
static at_status fill_node(at_arena *a, at_node *n, const at_node_desc *d) {
  n->op = d->op;
  n->loc = d->loc;
  n->num_operands = d->num_operands;
  if (d->num_operands)
    AT_TRY_ALLOC(n->operands,
                 at_arena_copy(a, d->operands,
                               at_mul(d->num_operands, sizeof *d->operands),
                               _Alignof(at_value)));
  AT_TRY(fill_attrs(a, n, d));
  n->num_regions = d->num_regions;
  if (d->num_regions)
    AT_TRY_ALLOC(
        n->regions,
        at_arena_copy(a, d->regions, at_mul(d->num_regions, sizeof *d->regions),
                      _Alignof(at_comp *)));
  if (d->types) {
    AT_TRY_ALLOC(n->types, at_new(a, at_type, d->num_types));
    for (uint32_t i = 0; i < d->num_types; i++)
      AT_TRY(at_type_copy(a, &d->types[i], &n->types[i]));
    n->num_results = d->num_types;
  }
  return AT_OK;
}

// n comes to c or leaves it: whether c's owners hold an effect is to be asked
// again.
static void forget_effects(const at_comp *c, const at_node *n) {
  if (!n->num_regions && !at_op_is(n->op, AT_EFFECT) &&
      n->op != AT_OP_CUSTOM_CALL && n->op != AT_OP_CALL &&
      n->op != AT_OP_COMPOSITE)
    return;
  for (at_node *o = c->owner; o; o = o->parent ? o->parent->owner : NULL)
    o->effect = AT_EFFECT_UNKNOWN;
}

// Puts n into c's list in front of `before`, or at the end.
static void link_node(at_comp *c, at_node *n, at_node *before) {
  AT_ASSERT(!before || before->parent == c);
  forget_effects(c, n);
  n->parent = c;
  n->next = before;
  n->prev = before ? before->prev : c->last;
  *(n->prev ? &n->prev->next : &c->first) = n;
  *(before ? &before->prev : &c->last) = n;
  AT_ASSERT((n->prev == NULL) == (c->first == n) && c->last && !c->last->next);
}

// What the caller passes must fit n: as many operands and regions as it has.
at_node_desc at_node_desc_like(const at_node *n, const at_value *operands,
                               at_comp **regions) {
  return (at_node_desc){.op = n->op,
                        .operands = operands,
                        .num_operands = n->num_operands,
                        .attrs = n->attrs,
                        .num_attrs = n->num_attrs,
                        .regions = regions,
                        .num_regions = n->num_regions,
                        .types = n->types,
                        .num_types = n->num_results,
                        .loc = n->loc};
}

// Sizes and places of elements are counted in int64 everywhere.
static at_status check_sizes(const at_node *n) {
  for (uint32_t r = 0; r < n->num_results; r++)
    if (at_type_is_static(&n->types[r]) &&
        at_type_bytes(&n->types[r]) > INT64_MAX)
      return AT_BAD(n, "an array of over 2^63 bytes");
  return AT_OK;
}

// Nothing of the module changes before every check has passed, but for the
// memory taken.
at_status at_build(at_comp *c, at_node *before, const at_node_desc *d,
                   at_node **out) {
  at_module *m = c->module;
  if ((unsigned)d->op >= AT_OP_COUNT)
    return AT_FAIL(AT_INVALID_ARGUMENT, "no op has the number %d", (int)d->op);
  if (before && before->parent != c)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "%s: to be inserted before a node of another computation",
                   at_op_text(d->op));
  at_node *n;
  AT_TRY_ALLOC(n, at_new(m->arena, at_node, 1));
  AT_TRY(fill_node(m->arena, n, d));
  n->parent = c;
  AT_TRY(at_node_check(n));
  for (uint32_t i = 0; i < n->num_regions; i++)
    if (!n->regions[i] || n->regions[i]->owner || n->regions[i]->name)
      return AT_BAD(n, "region %u is missing or belongs elsewhere", i);
  AT_TRY(at_op_of(n->op)->infer(m, n));
  AT_TRY(check_sizes(n));
  for (uint32_t i = 0; i < n->num_regions; i++) n->regions[i]->owner = n;
  n->id = m->next_id++;
  link_node(c, n, before);
  if (out) *out = n;
  return AT_OK;
}

static at_status add_param(at_comp *c, at_node *n) {
  // Capacity is the next power of two, from 4.
  uint32_t len = c->num_params;
  if (len == 0 || (len >= 4 && (len & (len - 1)) == 0)) {
    at_node **p;
    AT_TRY_ALLOC(p, at_new(c->module->arena, at_node *,
                           len ? (size_t)len * 2 : (size_t)4));
    if (len) memcpy(p, c->params, len * sizeof *p);
    c->params = p;
  }
  AT_ASSERT(n->op == AT_OP_PARAMETER && n->parent == c);
  AT_ASSERT(at_node_int(n, AT_ATTR_INDEX, -1) == len);
  c->params[c->num_params++] = n;
  return AT_OK;
}

// The index attribute is the number of parameters so far.
at_status at_build_param(at_comp *c, at_type t, const at_loc *loc,
                         at_value *out) {
  at_attr index = {.id = AT_ATTR_INDEX, .i = c->num_params};
  at_node_desc d = {.op = AT_OP_PARAMETER,
                    .attrs = &index,
                    .num_attrs = 1,
                    .types = &t,
                    .num_types = 1,
                    .loc = loc};
  // Parameters stand first, in index order.
  at_node *last = c->num_params ? c->params[c->num_params - 1] : NULL;
  at_node *n;
  AT_TRY(at_build(c, last ? last->next : c->first, &d, &n));
  AT_TRY(add_param(c, n));
  *out = (at_value){n, 0};
  return AT_OK;
}

// Types come from the literal by inference.
at_status at_build_constant(at_comp *c, at_node *before, const at_literal *l,
                            at_value *out) {
  at_attr value = {.id = AT_ATTR_VALUE, .literal = l};
  at_node_desc d = {.op = AT_OP_CONSTANT, .attrs = &value, .num_attrs = 1};
  at_node *n;
  AT_TRY(at_build(c, before, &d, &n));
  *out = (at_value){n, 0};
  return AT_OK;
}

at_status at_build_op(at_comp *c, at_node *before, at_op op,
                      const at_value *operands, uint32_t n, const at_loc *loc,
                      at_value *out) {
  at_node_desc d = {
      .op = op, .operands = operands, .num_operands = n, .loc = loc};
  at_node *node;
  AT_TRY(at_build(c, before, &d, &node));
  *out = (at_value){node, 0};
  return AT_OK;
}

// The old list's memory stays in the arena.
at_status at_comp_return(at_comp *c, const at_value *results, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (!results[i].node || results[i].index >= results[i].node->num_results)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "return: value %u names no value of the graph", i);
  c->results = NULL;
  if (n)
    AT_TRY_ALLOC(c->results,
                 at_arena_copy(c->module->arena, results,
                               at_mul(n, sizeof *results), _Alignof(at_value)));
  c->num_results = n;
  return AT_OK;
}

// ---- Rewrites

// The node stays valid and may be linked again (at_node_move_before does).
void at_node_remove(at_node *n) {
  at_comp *c = n->parent;
  AT_ASSERT(n->prev ? n->prev->next == n : c->first == n);
  AT_ASSERT(n->next ? n->next->prev == n : c->last == n);
  forget_effects(c, n);
  *(n->prev ? &n->prev->next : &c->first) = n->next;
  *(n->next ? &n->next->prev : &c->last) = n->prev;
  n->prev = n->next = NULL;
}

// Removes and links again, so that what is known of effects is asked anew on
// both sides.
void at_node_move_before(at_node *n, at_node *before) {
  at_comp *c = before ? before->parent : n->parent;
  if (n == before || (n->parent == c && n->next == before)) return;
  at_node_remove(n);
  link_node(c, n, before);
}

// Recursion over regions only, which nest at most AT_MOST_NESTED deep. Uses by
// enclosing computations of old_v's are not touched.
void at_replace_uses(at_comp *c, at_value old_v, at_value new_v) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      if (at_value_eq(n->operands[i], old_v)) n->operands[i] = new_v;
    for (uint32_t i = 0; i < n->num_regions; i++)
      at_replace_uses(n->regions[i], old_v, new_v);
  }
  for (uint32_t i = 0; i < c->num_results; i++)
    if (at_value_eq(c->results[i], old_v)) c->results[i] = new_v;
}

// ---- Text for messages

// Callers are followed outwards.
const at_loc *at_loc_source(const at_loc *loc) {
  while (loc && !loc->file && loc->caller) loc = loc->caller;
  return loc;
}

// The innermost location only: callers are not printed.
void at_loc_print(at_strbuf *b, const at_loc *loc) {
  if (!loc || (!loc->file && !loc->name)) {
    at_strbuf_addz(b, "unknown");
    return;
  }
  if (loc->file)
    at_strbuf_addf(b, "%s:%u:%u", loc->file, loc->line, loc->column);
  if (loc->name) at_strbuf_addf(b, loc->file ? " (%s)" : "(%s)", loc->name);
}

// Result types and location, without operands.
void at_node_describe(at_strbuf *b, const at_node *n) {
  at_strbuf_addf(b, "%%%u = %s", n->id, at_op_text(n->op));
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_strbuf_addz(b, i ? ", " : " ");
    at_type_print(b, &n->types[i]);
  }
  if (n->loc) {
    at_strbuf_addz(b, " at ");
    at_loc_print(b, n->loc);
  }
}

// The operands' types end the message, since they are what the user can compare
// with the program. The caller's text is cut at 511 bytes.
at_status at_node_fail(const at_node *n, const char *file, int line,
                       const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  at_strbuf b = {0};
  at_strbuf_addz(&b, at_op_text(n->op));
  if (n->loc) {
    at_strbuf_addz(&b, " at ");
    at_loc_print(&b, n->loc);
  }
  at_strbuf_addf(&b, ": %s", text);
  if (n->num_operands) at_strbuf_addz(&b, "\ndetail: operands (");
  for (uint32_t i = 0; i < n->num_operands; i++) {
    if (i) at_strbuf_addz(&b, ", ");
    at_type_print(&b, at_value_type(n->operands[i]));
  }
  if (n->num_operands) at_strbuf_addc(&b, ')');
  at_status s =
      at_fail(AT_INVALID_ARGUMENT, file, line, "%s", b.ptr ? b.ptr : text);
  at_strbuf_free(&b);
  return s;
}
