#include "compile/nan.h"

#include <stdio.h>
#include <string.h>

#include "compile/compile.h"
#include "compile/sparse.h"
#include "mosaic/mosaic.h"

typedef struct watcher {
  at_module *module;
  at_arena *arena;
  at_value record;
  at_map ids;  // value (its type's address) -> id + 1
  AT_VEC(at_value) values;
  AT_VEC(uint32_t) sites;  // by value; 0: not watched, else site + 1
  uint32_t num_sites;
  at_strbuf table;  // "name\tplace" of each site, a line each
} watcher;

// Floats and complex numbers of static shape: what can hold a NaN.
static bool is_floating(at_value v) {
  at_dtype t = at_value_type(v)->dtype;
  return (at_is_float(t) || at_is_complex(t)) &&
         at_type_is_static(at_value_type(v));
}

// Moves values about, or runs regions: makes no value of its own. What
// collectives bring is the other device's to tell (sums: add_sum); kernels and
// SparseCore calls have checks of theirs.
static bool makes_none(const at_node *n) {
  if (at_mosaic_is_call(n) || at_sparse_is_call(n)) return true;
  switch (n->op) {
    case AT_OP_PARAMETER:
    case AT_OP_CONSTANT:
    case AT_OP_BITCAST_CONVERT:
    case AT_OP_OPTIMIZATION_BARRIER:
    case AT_OP_SLICE:
    case AT_OP_DYNAMIC_SLICE:
    case AT_OP_DYNAMIC_UPDATE_SLICE:
    case AT_OP_CONCATENATE:
    case AT_OP_GATHER:
    case AT_OP_PAD:
      return true;
    default:
      return at_op_is(n->op, AT_CONTROL) || at_op_is(n->op, AT_COLLECTIVE) ||
             at_op_of(n->op)->cost == AT_COST_NONE;
  }
}

// Control flow, whose results come from its regions.
static bool runs_regions(const at_node *n) {
  return n->op == AT_OP_WHILE || n->op == AT_OP_CASE || n->op == AT_OP_IF;
}

// Works off regions from a list, without recursion.
at_status at_nan_refuse(const at_module *m) {
  AT_VEC(const at_comp *) open = {0};
  at_arena *a = m->arena;
  if (!at_vec_push(a, &open, m->entry)) return AT_NO_MEMORY("regions");
  for (size_t i = 0; i < open.len; i++) AT_FOR_NODES(n, open.ptr[i]) {
      if (n->op == AT_OP_CUSTOM_CALL &&
          at_str_is(at_node_str(n, AT_ATTR_CALL_TARGET_NAME), AT_NAN_TARGET))
        return AT_FAIL(AT_INVALID_ARGUMENT,
                       "the custom call " AT_NAN_TARGET
                       " is the compiler's own: a program cannot have it");
      for (uint32_t r = 0; r < n->num_regions; r++)
        if (!at_vec_push(a, &open, n->regions[r]))
          return AT_NO_MEMORY("regions");
    }
  return AT_OK;
}

// Numbers v when it is met first. Keyed by the address of its type, which is
// its alone.
static at_status id_of(watcher *w, at_value v, uint32_t *out) {
  void **place;
  AT_TRY_ALLOC(place, at_map_put_ptr(&w->ids, at_value_type(v)));
  if (!*place) {
    if (!at_vec_push(w->arena, &w->values, v) ||
        !at_vec_push(w->arena, &w->sites, 0u))
      return AT_NO_MEMORY("values to watch");
    *place = (void *)(uintptr_t)w->values.len;
  }
  *out = (uint32_t)(uintptr_t)*place - 1;
  return AT_OK;
}

// A custom call AT_NAN_TARGET with `config`; has_side_effect keeps it from
// being dropped.
static at_status add_call(watcher *w, at_comp *c, at_node *before,
                          const at_value *operands, uint32_t n, at_str config,
                          const at_type *result, const at_loc *loc,
                          at_node **out) {
  at_attr attrs[] = {
      {.id = AT_ATTR_CALL_TARGET_NAME, .s = AT_STR(AT_NAN_TARGET)},
      {.id = AT_ATTR_BACKEND_CONFIG},
      {.id = AT_ATTR_HAS_SIDE_EFFECT, .i = 1}};
  at_type none = {0};
  AT_TRY_ALLOC(attrs[1].s.ptr, at_arena_str(w->arena, config));
  attrs[1].s.len = config.len;
  at_node_desc d = {.op = AT_OP_CUSTOM_CALL,
                    .operands = operands,
                    .num_operands = n,
                    .attrs = attrs,
                    .num_attrs = AT_LEN(attrs),
                    .types = result ? result : &none,
                    .num_types = result != NULL,
                    .loc = loc};
  return at_build(c, before, &d, out);
}

// " dtype:count" of each value, as nan_call.c reads it.
static void put_arrays(at_strbuf *b, const at_value *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    at_strbuf_addf(b, " %u:%llu", (unsigned)at_value_type(v[i])->dtype,
                   (unsigned long long)at_type_elements(at_value_type(v[i])));
}

// ---- Sites
// What the program calls it: "psum", the last part of "jit(f)/jit(main)/div";
// else its op, which may be another since it was simplified.
static void put_name(at_strbuf *b, const at_node *n) {
  const char *name = n->loc && n->loc->name ? n->loc->name : "";
  const char *last = strrchr(name, '/');
  if (last) name = last + 1;
  size_t len = strcspn(name, "[");
  if (len && !strchr(name, '('))
    at_strbuf_add(b, (at_str){name, len});
  else
    at_strbuf_addz(b, at_op_text(n->op));
}

// A line of the table. Names may hold whatever; tabs and ends of lines are
// ours.
static at_status put_row(watcher *w, const at_node *n) {
  at_strbuf row = {0};
  put_name(&row, n);
  size_t op = row.len;
  at_strbuf_addc(&row, ' ');
  at_loc_print(&row, at_loc_source(n->loc));
  at_status st = at_strbuf_status(&row);
  for (size_t i = 0; at_ok(st) && i < row.len; i++)
    if ((unsigned char)row.ptr[i] < ' ') row.ptr[i] = ' ';
  if (at_ok(st)) row.ptr[op] = '\t';
  at_strbuf_add(&w->table, at_strbuf_str(&row));
  at_strbuf_addc(&w->table, '\n');
  at_strbuf_free(&row);
  return st;
}

typedef struct site {
  at_node *node;
  const at_value *results, *operands;
  uint32_t num_results, num_operands;
  bool elementwise;
} site;

// A watch behind s->node: record, floating results, floating operands.
static at_status add_site(watcher *w, const site *s) {
  at_value *v;
  uint32_t count = 1, results, id;
  AT_TRY_ALLOC(
      v, at_new(w->arena, at_value, s->num_results + s->num_operands + 1));
  v[0] = w->record;
  for (uint32_t r = 0; r < s->num_results; r++) {
    if (!is_floating(s->results[r])) continue;
    AT_TRY(id_of(w, s->results[r], &id));
    w->sites.ptr[id] = w->num_sites + 1;
    v[count++] = s->results[r];
  }
  results = count - 1;
  for (uint32_t o = 0; o < s->num_operands; o++)
    if (is_floating(s->operands[o])) v[count++] = s->operands[o];
  at_strbuf b = {0};
  at_strbuf_addf(&b, "watch %u %d %u", w->num_sites++, s->elementwise, results);
  put_arrays(&b, v + 1, count - 1);
  at_node *call, *n = s->node;
  at_status st = at_strbuf_status(&b);
  if (at_ok(st))
    st = add_call(w, n->parent, n->next, v, count, at_strbuf_str(&b), NULL,
                  n->loc, &call);
  at_strbuf_free(&b);
  return at_ok(st) ? put_row(w, n) : st;
}

// Results against operands.
static at_status add_op(watcher *w, at_node *n) {
  at_value *v;
  AT_TRY_ALLOC(v, at_new(w->arena, at_value, n->num_results));
  for (uint32_t r = 0; r < n->num_results; r++) v[r] = (at_value){n, r};
  site s = {n,
            v,
            n->operands,
            n->num_results,
            n->num_operands,
            at_op_is(n->op, AT_ELEMENTWISE)};
  return add_site(w, &s);
}

// ---- Sums over devices
static bool sums(const at_node *n) {
  return n->op == AT_OP_ALL_REDUCE || n->op == AT_OP_REDUCE_SCATTER;
}

// x where it is NaN, else 0.
static at_status put_marks(watcher *w, at_node *before, at_value x,
                           at_value *out) {
  at_type t = *at_value_type(x);
  const at_literal *zero;
  at_attr attrs[] = {{.id = AT_ATTR_COMPARISON_DIRECTION, .i = AT_NE},
                     {.id = AT_ATTR_COMPARE_TYPE, .i = AT_CMP_FLOAT}};
  at_value v[] = {x, x, {0}};
  at_node_desc d = {.op = AT_OP_COMPARE,
                    .operands = v,
                    .num_operands = 2,
                    .attrs = attrs,
                    .num_attrs = AT_LEN(attrs),
                    .loc = before->loc};
  at_node *differs;
  AT_TRY(
      at_literal_make(w->arena, t, (const uint64_t[2]){0}, true, false, &zero));
  AT_TRY(at_build(before->parent, before, &d, &differs));
  v[0] = (at_value){differs, 0};
  AT_TRY(at_build_constant(before->parent, before, zero, &v[2]));
  return at_build_op(before->parent, before, AT_OP_SELECT, v, 3, before->loc,
                     out);
}

// A sum over devices may make NaN itself. What it was given is elsewhere, so
// the NaNs of its operands are summed once more, by themselves: an element that
// is NaN there was given, and is for its device to tell.
static at_status add_sum(watcher *w, at_node *n) {
  at_value *given;
  at_comp **regions;
  at_node *copy;
  AT_TRY_ALLOC(given, at_new(w->arena, at_value, n->num_operands));
  AT_TRY_ALLOC(regions, at_new(w->arena, at_comp *, n->num_regions));
  for (uint32_t o = 0; o < n->num_operands; o++) {
    given[o] = n->operands[o];
    if (is_floating(given[o])) AT_TRY(put_marks(w, n, given[o], &given[o]));
  }
  for (uint32_t r = 0; r < n->num_regions; r++) {
    at_map map = at_map_in(w->arena);
    AT_TRY(at_comp_clone(w->module, n->regions[r], &map, &regions[r]));
  }
  at_node_desc d = at_node_desc_like(n, given, regions);
  AT_TRY(at_build(n->parent, n, &d, &copy));
  for (uint32_t r = 0; r < n->num_results; r++) {
    at_value made = {n, r}, was = {copy, r};
    site s = {n, &made, &was, 1, 1, true};
    if (is_floating(made)) AT_TRY(add_site(w, &s));
  }
  return AT_OK;
}

// Regions are worked off from a list, so that none waits on the stack.
static at_status watch_all(watcher *w, at_comp *entry) {
  AT_VEC(at_comp *) open = {0};
  if (!at_vec_push(w->arena, &open, entry)) return AT_NO_MEMORY("regions");
  for (size_t i = 0; i < open.len; i++) {
    at_comp *c = open.ptr[i];
    at_node *next;
    for (at_node *n = c->first; n; n = next) {
      next = n->next;
      bool made = n == w->record.node;
      for (uint32_t r = 0; runs_regions(n) && r < n->num_regions; r++)
        if ((n->op != AT_OP_WHILE || r == 1) &&
            !at_vec_push(w->arena, &open, n->regions[r]))
          return AT_NO_MEMORY("regions");
      bool floats = false;
      for (uint32_t r = 0; r < n->num_results; r++)
        floats |= is_floating((at_value){n, r});
      if (floats && sums(n)) AT_TRY(add_sum(w, n));
      if (floats && !made && !makes_none(n)) AT_TRY(add_op(w, n));
    }
  }
  return AT_OK;
}

// ---- Where values come from
static at_status put_source(watcher *w, at_strbuf *b, at_value v) {
  uint32_t id;
  if (!is_floating(v)) return AT_OK;
  AT_TRY(id_of(w, v, &id));
  at_strbuf_addf(b, " %u", id);
  return AT_OK;
}

// Ids of the values from which v got its elements: back through loops and
// branches.
static at_status put_sources(watcher *w, at_strbuf *b, at_value v) {
  const at_node *n = v.node;
  if (n->op == AT_OP_PARAMETER) {
    const at_node *owner = n->parent->owner;
    uint32_t i = at_param_index(n->parent, n);
    if (!owner || owner->op != AT_OP_WHILE) return AT_OK;
    AT_TRY(put_source(w, b, owner->operands[i]));
    return put_source(w, b, owner->regions[1]->results[i]);
  }
  if (n->op == AT_OP_WHILE) AT_TRY(put_source(w, b, n->operands[v.index]));
  if (runs_regions(n)) {
    for (uint32_t r = n->op == AT_OP_WHILE; r < n->num_regions; r++)
      AT_TRY(put_source(w, b, n->regions[r]->results[v.index]));
    return AT_OK;
  }
  for (uint32_t o = 0; o < n->num_operands; o++)
    AT_TRY(put_source(w, b, n->operands[o]));
  return AT_OK;
}

// "results R id dtype:count...", the sites, then per value its site and
// sources.
static at_status end(watcher *w, at_comp *c) {
  at_value *v;
  uint32_t count = 1, id;
  at_strbuf b = {0}, sources = {0};
  AT_TRY_ALLOC(v, at_new(w->arena, at_value, c->num_results + 1));
  v[0] = w->record;
  at_strbuf ids = {0};
  at_status st = AT_OK;
  for (uint32_t r = 0; at_ok(st) && r < c->num_results; r++) {
    if (!is_floating(c->results[r])) continue;
    st = id_of(w, c->results[r], &id);
    at_strbuf_addf(&ids, " %u:%u", r, id);
    v[count++] = c->results[r];
  }
  // The list grows while it is read: sources of sources.
  for (size_t i = 0; at_ok(st) && i < w->values.len; i++) {
    at_strbuf_addf(&sources, "%u", w->sites.ptr[i]);
    st = put_sources(w, &sources, w->values.ptr[i]);
    at_strbuf_addc(&sources, '\n');
  }
  at_strbuf_addf(&b, "end %u %u %zu", count - 1, w->num_sites, w->values.len);
  put_arrays(&b, v + 1, count - 1);
  at_strbuf_add(&b, at_strbuf_str(&ids));
  at_strbuf_addc(&b, '\n');
  at_strbuf_add(&b, at_strbuf_str(&w->table));
  at_strbuf_add(&b, at_strbuf_str(&sources));
  at_node *call;
  if (at_ok(st)) st = at_strbuf_status(&b);
  if (at_ok(st) && count > 1)
    st = add_call(w, c, NULL, v, count, at_strbuf_str(&b), NULL, NULL, &call);
  at_strbuf_free(&ids), at_strbuf_free(&sources), at_strbuf_free(&b);
  return st;
}

// begin, watches, end. The record's type is set once the number of sites is
// known.
at_status at_nan_watch(at_module *m) {
  watcher w = {.module = m, .arena = m->arena, .ids = at_map_in(m->arena)};
  at_comp *c = m->entry;
  at_node *first = c->first, *begin;
  while (first && first->op == AT_OP_PARAMETER) first = first->next;
  // Its size is known once the sites are: it is made first and typed last.
  at_type type = {.dtype = AT_U32, .rank = 1, .dims = (int64_t[]){1}};
  AT_TRY(add_call(&w, c, first, NULL, 0, AT_STR("begin"), &type, NULL, &begin));
  w.record = (at_value){begin, 0};
  at_status st = watch_all(&w, c);
  if (at_ok(st)) {
    char config[32];
    int n = snprintf(config, sizeof config, "begin %u", w.num_sites);
    at_attr a = {
        .id = AT_ATTR_BACKEND_CONFIG,
        .s = {at_arena_str(m->arena, (at_str){config, (size_t)n}), (size_t)n}};
    int64_t *dims = at_new(m->arena, int64_t, 1);
    if (!dims) st = AT_NO_MEMORY("a record of NaNs");
    if (dims) dims[0] = AT_NAN_HEAD + AT_NAN_WORDS * (int64_t)w.num_sites;
    begin->types[0].dims = dims;
    if (at_ok(st))
      st = a.s.ptr ? at_node_set_attr(begin, a)
                   : AT_NO_MEMORY("a record of NaNs");
  }
  if (at_ok(st)) st = end(&w, c);
  at_strbuf_free(&w.table);
  return st;
}
