// A graph as an HloModuleProtoWithConfig.
#include <ctype.h>
#include <stdio.h>

#include "base/verify.h"
#include "hloproto/write_internal.h"

// One value of the graph; a key.
// Keys are hashed as bytes: index is 64 bits wide so that the struct has no
// padding.
typedef struct value_key {
  const at_node *node;
  uint64_t index;
} value_key;

// A computation as it is written.
typedef struct scope {
  at_map ids;  // value_key -> id of the instruction that gives it
  at_strbuf insts;
  at_strbuf order;  // ids, as the schedule has them
  int64_t last;
} scope;

typedef struct writer {
  at_arena *a;
  const at_module *m;
  const at_hloproto_write_options *o;
  at_strbuf comps;      // finished, callees first
  at_strbuf sequences;  // of the schedule
  int64_t next_id, next_comp;
  const at_node *named;   // whose name the next instruction takes; NULL: none
  at_str kernel;          // whose name it takes else; len 0: its opcode's
  const char *thread;     // that computations are for; NULL: the program's own
  at_hp_defined defined;  // filled where options ask for memory
  at_hloproto_memory memory;
} writer;

typedef AT_VEC(at_value) value_vec;

bool at_hp_defined_at(const at_hp_defined *d, at_value v, at_hp_place_of *out) {
  value_key key = {v.node, v.index};
  void **place = at_map_find(&d->places, (at_str){(char *)&key, sizeof key});
  if (place) *out = *(const at_hp_place_of *)*place;
  return place != NULL;
}

// The first that makes a value defines it; others hand it on.
static at_status define(writer *w, at_value v, int64_t id, int64_t index) {
  value_key key = {v.node, v.index}, *copy;
  at_hp_place_of where = {id, index};
  void **place;
  if (!w->o->memory) return AT_OK;
  AT_TRY_ALLOC(copy, at_arena_copy(w->a, &key, sizeof key, 8));
  AT_TRY_ALLOC(place, at_map_put(&w->defined.places,
                                 (at_str){(char *)copy, sizeof key}));
  if (*place) return AT_OK;
  AT_TRY_ALLOC(*place, at_arena_copy(w->a, &where, sizeof where, 8));
  return AT_OK;
}

// From now on, users of v in this computation name instruction `id`.
static at_status id_put(writer *w, scope *s, at_value v, int64_t id) {
  AT_TRY(define(w, v, id, -1));
  value_key key = {v.node, v.index}, *copy;
  void **slot;
  AT_TRY_ALLOC(copy, at_arena_copy(w->a, &key, sizeof key, 8));
  AT_TRY_ALLOC(slot, at_map_put(&s->ids, (at_str){(char *)copy, sizeof key}));
  *slot = (void *)(intptr_t)id;
  return AT_OK;
}

// NULL: the computation does not have the value yet.
static void **id_find(const scope *s, at_value v) {
  value_key key = {v.node, v.index};
  return at_map_find(&s->ids, (at_str){(char *)&key, sizeof key});
}

// ---- Instructions

// Tiled, if options say so; in the host's memory if the memory kind is one of
// the host's.
static at_hp_place place_of(const writer *w, const char *memory) {
  return (at_hp_place){.tiles = w->o->tiles, .host = at_hp_is_host(memory)};
}

// Node ids are unique in a module, so names are.
void at_hloproto_name(const at_node *n, at_strbuf *out) {
  at_strbuf_addf(out, "%s.%u", at_op_text(n->op), n->id);
}

// Numbers of other instructions are behind those of the nodes.
static void put_name(writer *w, at_strbuf *b, const char *opcode) {
  at_strbuf name = {0};
  at_str kernel = w->named ? (at_str){0} : w->kernel;
  for (size_t i = 0; i < kernel.len; i++) {
    char c = kernel.ptr[i];
    at_strbuf_addc(&name, isalnum((unsigned char)c) || c == '-' ? c : '_');
  }
  if (w->named)
    at_hloproto_name(w->named, &name);
  else
    at_strbuf_addf(&name, "%s.%lld", kernel.len ? "" : opcode,
                   (long long)w->next_id);
  w->named = NULL;
  w->kernel = (at_str){0};
  at_proto_write_bytes(b, 1, at_strbuf_str(&name));
  b->failed |= name.failed;
  at_strbuf_free(&name);
  at_proto_write_bytes(b, 2, at_str_of(opcode));
}

// name, opcode, shape: the beginning of an instruction; `end` gives it its id.
static at_strbuf begin_in(writer *w, const char *opcode, const at_type *types,
                          uint32_t n, bool tuple, at_hp_place place) {
  at_strbuf b = {0};
  put_name(w, &b, opcode);
  at_hp_put_shape(&b, 3, types, n, tuple, place);
  return b;
}

// The same in the device's own memory.
static at_strbuf begin(writer *w, const char *opcode, const at_type *types,
                       uint32_t n, bool tuple) {
  return begin_in(w, opcode, types, n, tuple, place_of(w, NULL));
}

// The next instruction is the node's own.
static void name_next(writer *w, const at_node *n) {
  if (w->o->memory) w->named = n;
}

// Gives the instruction the next id, appends it to the computation and to the
// schedule, and frees it.
static int64_t end(writer *w, scope *s, at_strbuf *inst,
                   const int64_t *operands, uint32_t n) {
  int64_t id = w->next_id++;
  for (uint32_t k = 0; k < n; k++)
    AT_ASSERT(operands[k] > 0 && operands[k] < id);
  at_proto_write_int(inst, 35, (uint64_t)id);
  at_proto_write_ints(inst, 36, (at_dims){operands, n});
  at_proto_write_message(&s->insts, 2, inst);
  at_proto_write_varint(&s->order, (uint64_t)id);
  return s->last = id;
}

// A tuple of those instructions; returns its id.
static int64_t put_tuple(writer *w, scope *s, const at_type *types,
                         const int64_t *ids, uint32_t n) {
  at_strbuf b = begin(w, "tuple", types, n, true);
  return end(w, s, &b, ids, n);
}

// Part k of the tuple `of`; returns its id.
static int64_t put_element(writer *w, scope *s, const at_type *t, int64_t of,
                           uint32_t k) {
  at_strbuf b = begin(w, "get-tuple-element", t, 1, false);
  at_proto_write_int(&b, 13, k);
  return end(w, s, &b, &of, 1);
}

// The node's values are those of the instruction: of its parts where it is a
// tuple.
static at_status put_results(writer *w, scope *s, const at_node *n, int64_t id,
                             bool tuple) {
  for (uint32_t k = 0; tuple && k < n->num_results; k++)
    AT_TRY(define(w, (at_value){(at_node *)n, k}, id, k));
  for (uint32_t k = 0; k < n->num_results; k++)
    AT_TRY(id_put(w, s, (at_value){(at_node *)n, k},
                  tuple ? put_element(w, s, &n->types[k], id, k) : id));
  return AT_OK;
}

static at_status put_constant(writer *w, scope *s, const at_node *n);

// Small constants stand in every computation that uses them.
static bool is_small(const at_node *n) {
  const at_literal *l = at_node_literal(n);
  return l && (l->splat || at_type_elements(&l->type) <= 1024);
}

// The instruction that gives v in this computation. A small constant is written
// there on its first use; UNIMPLEMENTED: the value was neither captured nor is
// it a constant.
static at_status id_of(writer *w, scope *s, at_value v, int64_t *out) {
  if (!id_find(s, v) && is_small(v.node)) AT_TRY(put_constant(w, s, v.node));
  void **slot = id_find(s, v);
  if (!slot)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "%s is used in a computation that cannot be given it",
                   at_op_text(v.node->op));
  *out = (int64_t)(intptr_t)*slot;
  return AT_OK;
}

// The ids of n values, in the arena.
static at_status operand_ids(writer *w, scope *s, const at_value *v, uint32_t n,
                             int64_t **out) {
  AT_TRY_ALLOC(*out, at_new(w->a, int64_t, (size_t)n + 1));
  for (uint32_t k = 0; k < n; k++) AT_TRY(id_of(w, s, v[k], &(*out)[k]));
  return AT_OK;
}

// ---- Values from around a region
static bool is_inside(const at_comp *region, const at_comp *c) {
  while (c != region && c->owner) c = c->owner->parent;
  return c == region;
}

// Appends v once if it comes from outside the region. Small constants are
// copied instead.
static at_status add_captured(writer *w, const at_comp *region, at_value v,
                              at_map *seen, value_vec *out) {
  if (is_inside(region, v.node->parent) || is_small(v.node)) return AT_OK;
  value_key key = {v.node, v.index}, *copy;
  void **slot;
  AT_TRY_ALLOC(copy, at_arena_copy(w->a, &key, sizeof key, 8));
  AT_TRY_ALLOC(slot, at_map_put(seen, (at_str){(char *)copy, sizeof key}));
  if (*slot) return AT_OK;
  *slot = copy;
  return at_vec_push(w->a, out, v) ? AT_OK : AT_NO_MEMORY("captured values");
}

// Regions lie AT_MOST_NESTED deep at most.
static at_status captured(writer *w, const at_comp *region, const at_comp *c,
                          at_map *seen, value_vec *out) {
  AT_FOR_NODES(n, c) {
    for (uint32_t k = 0; k < n->num_operands; k++)
      AT_TRY(add_captured(w, region, n->operands[k], seen, out));
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(captured(w, region, n->regions[r], seen, out));
  }
  for (uint32_t k = 0; k < c->num_results; k++)
    AT_TRY(add_captured(w, region, c->results[k], seen, out));
  return AT_OK;
}

// ---- Computations
typedef enum comp_form {
  COMP_PLAIN,   // a parameter for each of the region's
  COMP_FUSION,  // the same, and it is a fusion's
  COMP_TUPLE    // one parameter, a tuple of all
} comp_form;

static at_status put_node(writer *w, scope *s, const at_node *n);

// Parameters for the region's own and for the captured values behind them; as
// one tuple where XLA's op passes a single one.
static at_status put_params(writer *w, scope *s, const at_comp *c,
                            const value_vec *more, comp_form form) {
  uint32_t n = c->num_params + (uint32_t)more->len;
  at_type *types;
  at_value *values;
  AT_TRY_ALLOC(types, at_new(w->a, at_type, (size_t)n + 1));
  AT_TRY_ALLOC(values, at_new(w->a, at_value, (size_t)n + 1));
  for (uint32_t k = 0; k < n; k++) {
    values[k] = k < c->num_params ? (at_value){c->params[k], 0}
                                  : more->ptr[k - c->num_params];
    types[k] = *at_value_type(values[k]);
  }
  int64_t all = 0;
  if (form == COMP_TUPLE) {
    at_strbuf b = begin(w, "parameter", types, n, true);
    at_proto_write_int(&b, 9, 0);
    all = end(w, s, &b, NULL, 0);
  }
  for (uint32_t k = 0; k < n; k++) {
    int64_t id;
    if (form == COMP_TUPLE) {
      id = put_element(w, s, &types[k], all, k);
    } else {
      const at_io_info *info = c == w->m->entry ? w->m->params : NULL;
      if (k < c->num_params) name_next(w, c->params[k]);
      at_strbuf b = begin_in(w, "parameter", &types[k], 1, false,
                             place_of(w, info ? info[k].memory_kind : NULL));
      at_proto_write_int(&b, 9, k);
      if (k < c->num_params) at_hp_put_metadata(&b, c->params[k]->loc);
      id = end(w, s, &b, NULL, 0);
    }
    AT_TRY(id_put(w, s, values[k], id));
  }
  return AT_OK;
}

// The root: the result, or a tuple of all. `more`: a loop's unchanging values.
static at_status put_root(writer *w, scope *s, const at_comp *c,
                          const value_vec *more, bool tuple) {
  uint32_t n = c->num_results + (uint32_t)more->len;
  at_type *types;
  at_value *values;
  int64_t *ids;
  AT_TRY_ALLOC(types, at_new(w->a, at_type, (size_t)n + 1));
  AT_TRY_ALLOC(values, at_new(w->a, at_value, (size_t)n + 1));
  for (uint32_t k = 0; k < n; k++) {
    values[k] =
        k < c->num_results ? c->results[k] : more->ptr[k - c->num_results];
    types[k] = *at_value_type(values[k]);
  }
  AT_TRY(operand_ids(w, s, values, n, &ids));
  if (tuple || n != 1)
    put_tuple(w, s, types, ids, n);
  else
    s->last = ids[0];
  return AT_OK;
}

// Writes the computation with its root (s->last) and, if it is no fusion, its
// schedule; frees both buffers.
static void comp_end(writer *w, scope *s, const char *name, bool fusion,
                     int64_t *out) {
  at_strbuf b = {0};
  int64_t id = w->next_comp++;
  at_proto_write_bytes(&b, 1, at_str_of(name));
  at_strbuf_add(&b, at_strbuf_str(&s->insts));
  at_proto_write_int(&b, 5, (uint64_t)id);
  at_proto_write_int(&b, 6, (uint64_t)s->last);
  if (fusion) at_proto_write_int(&b, 7, 1);
  if (w->thread) at_proto_write_bytes(&b, 8, at_str_of(w->thread));
  b.failed |= s->insts.failed | s->order.failed;
  at_proto_write_message(&w->comps, 3, &b);
  if (!fusion) {
    at_strbuf entry = {0}, list = {0};
    at_proto_write_int(&entry, 1, (uint64_t)id);
    at_proto_write_bytes(&list, 1, at_strbuf_str(&s->order));
    at_proto_write_message(&entry, 2, &list);
    at_proto_write_message(&w->sequences, 1, &entry);
  }
  at_strbuf_free(&s->insts);
  at_strbuf_free(&s->order);
  *out = id;
}

// Temporaries whose instructions were written.
static at_status keep_defined(writer *w) {
  const at_hloproto_memory *m = w->o->memory;
  at_hloproto_temp *list;
  at_hp_place_of where;
  AT_TRY_ALLOC(list, at_new(w->a, at_hloproto_temp, (size_t)m->num_temps + 1));
  w->memory = *m;
  w->memory.temps = list;
  w->memory.num_temps = 0;
  for (uint32_t i = 0; i < m->num_temps; i++)
    if (at_hp_defined_at(&w->defined, m->temps[i].value, &where))
      list[w->memory.num_temps++] = m->temps[i];
  return AT_OK;
}

// What temporaries leave of their memory, as a buffer of its own that is there
// all the time.
static at_status put_scratch(writer *w, scope *s) {
  const at_hloproto_memory *m = &w->memory;
  AT_TRY(keep_defined(w));
  uint64_t peak;
  AT_TRY(at_hp_peak(m, w->a, &peak));
  if (peak >= m->temp_bytes) return AT_OK;
  w->defined.scratch_bytes = m->temp_bytes - peak;
  int64_t root = s->last, bytes = (int64_t)w->defined.scratch_bytes;
  at_type t;
  AT_TRY(at_type_make(w->a, AT_U8, (at_dims){&bytes, 1}, &t));
  char *name =
      at_arena_printf(w->a, "kernel_scratch.%lld", (long long)w->next_id);
  AT_TRY_ALLOC(w->defined.scratch_name, name);
  at_strbuf b = {0};
  at_proto_write_bytes(&b, 1, at_str_of(name));
  at_proto_write_bytes(&b, 2, AT_STR("custom-call"));
  at_hp_put_shape(&b, 3, &t, 1, false, place_of(w, NULL));
  at_proto_write_bytes(&b, 28, AT_STR("AllocateBuffer"));
  w->defined.scratch_id = end(w, s, &b, NULL, 0);
  s->last = root;
  return AT_OK;
}

// Writes c and everything that it calls; *out is its id. `more`: captured
// values. state: the root hands `more` on as well, as a loop's body has to.
// Regions get numbered names, functions keep theirs.
static at_status put_comp(writer *w, const at_comp *c, const char *name,
                          const value_vec *more, comp_form form, bool state,
                          int64_t *out) {
  scope s = {.ids = at_map_in(w->a)};
  static const value_vec none = {0};
  char numbered[96];
  at_status st = put_params(w, &s, c, more, form);
  AT_FOR_NODES(n, c) {
    if (at_ok(st) && n->op != AT_OP_PARAMETER) st = put_node(w, &s, n);
  }
  if (at_ok(st)) st = put_root(w, &s, c, state ? more : &none, state);
  if (at_ok(st) && c == w->m->entry && w->o->memory) st = put_scratch(w, &s);
  if (!at_ok(st)) {
    at_strbuf_free(&s.insts);
    at_strbuf_free(&s.order);
    return st;
  }
  if (c->owner)
    snprintf(numbered, sizeof numbered, "%s.%lld", name,
             (long long)w->next_comp);
  comp_end(w, &s, c->owner ? numbered : name, form == COMP_FUSION, out);
  return AT_OK;
}

// ---- Nodes with computations

// (state..., what the body reads from outside) as one tuple.
static at_status put_while(writer *w, scope *s, const at_node *n) {
  value_vec more = {0};
  at_map seen = at_map_in(w->a);
  int64_t comps[2], *ids;
  for (uint32_t r = 0; r < 2; r++)
    AT_TRY(captured(w, n->regions[r], n->regions[r], &seen, &more));
  uint32_t all = n->num_operands + (uint32_t)more.len;
  at_type *types;
  at_value *values;
  AT_TRY_ALLOC(types, at_new(w->a, at_type, (size_t)all + 1));
  AT_TRY_ALLOC(values, at_new(w->a, at_value, (size_t)all + 1));
  for (uint32_t k = 0; k < all; k++) {
    values[k] =
        k < n->num_operands ? n->operands[k] : more.ptr[k - n->num_operands];
    types[k] = *at_value_type(values[k]);
  }
  AT_TRY(
      put_comp(w, n->regions[1], "body", &more, COMP_TUPLE, true, &comps[0]));
  AT_TRY(put_comp(w, n->regions[0], "condition", &more, COMP_TUPLE, false,
                  &comps[1]));
  AT_TRY(operand_ids(w, s, values, all, &ids));
  int64_t init = put_tuple(w, s, types, ids, all);
  name_next(w, n);
  at_strbuf b = begin(w, "while", types, all, true);
  at_proto_write_ints(&b, 38, (at_dims){comps, 2});
  at_hp_put_origin(&b, n);
  return put_results(w, s, n, end(w, s, &b, &init, 1), true);
}

// Each branch takes what it captures as one tuple.
static at_status put_conditional(writer *w, scope *s, const at_node *n) {
  int64_t *comps, *ids;
  AT_TRY_ALLOC(comps, at_new(w->a, int64_t, (size_t)n->num_regions + 1));
  AT_TRY_ALLOC(ids, at_new(w->a, int64_t, (size_t)n->num_regions + 1));
  AT_TRY(id_of(w, s, n->operands[0], &ids[0]));
  bool tuple = n->num_results != 1;
  for (uint32_t r = 0; r < n->num_regions; r++) {
    value_vec more = {0};
    at_map seen = at_map_in(w->a);
    int64_t *parts;
    AT_TRY(captured(w, n->regions[r], n->regions[r], &seen, &more));
    AT_TRY(put_comp(w, n->regions[r], "branch", &more, COMP_TUPLE, false,
                    &comps[r]));
    at_type *types;
    AT_TRY_ALLOC(types, at_new(w->a, at_type, more.len + 1));
    for (size_t k = 0; k < more.len; k++)
      types[k] = *at_value_type(more.ptr[k]);
    AT_TRY(operand_ids(w, s, more.ptr, (uint32_t)more.len, &parts));
    ids[r + 1] = put_tuple(w, s, types, parts, (uint32_t)more.len);
  }
  name_next(w, n);
  at_strbuf b = begin(w, "conditional", n->types, n->num_results, tuple);
  at_proto_write_ints(&b, 38, (at_dims){comps, n->num_regions});
  at_hp_put_origin(&b, n);
  return put_results(w, s, n, end(w, s, &b, ids, n->num_regions + 1), tuple);
}

// The fused computation's captured values become further operands.
static at_status put_fusion(writer *w, scope *s, const at_node *n) {
  static const char *const kinds[] = {[AT_FUSION_LOOP] = "kLoop",
                                      [AT_FUSION_REDUCE] = "kInput",
                                      [AT_FUSION_KERNEL] = "kCustom",
                                      [AT_FUSION_ROWS] = "kInput"};
  value_vec more = {0};
  at_map seen = at_map_in(w->a);
  int64_t comp, *ids;
  AT_TRY(captured(w, n->regions[0], n->regions[0], &seen, &more));
  AT_TRY(put_comp(w, n->regions[0], "fused_computation", &more, COMP_FUSION,
                  false, &comp));
  uint32_t all = n->num_operands + (uint32_t)more.len;
  at_value *values;
  AT_TRY_ALLOC(values, at_new(w->a, at_value, (size_t)all + 1));
  for (uint32_t k = 0; k < all; k++)
    values[k] =
        k < n->num_operands ? n->operands[k] : more.ptr[k - n->num_operands];
  AT_TRY(operand_ids(w, s, values, all, &ids));
  bool tuple = n->num_results != 1;
  int64_t kind = at_node_int(n, AT_ATTR_KIND, AT_FUSION_LOOP);
  name_next(w, n);
  at_strbuf b = begin(w, "fusion", n->types, n->num_results, tuple);
  at_proto_write_bytes(
      &b, 11,
      at_str_of(kind >= 0 && kind < (int64_t)AT_LEN(kinds) ? kinds[kind]
                                                           : "kLoop"));
  at_proto_write_ints(&b, 38, (at_dims){&comp, 1});
  at_hp_put_origin(&b, n);
  return put_results(w, s, n, end(w, s, &b, ids, all), tuple);
}

// ---- Other nodes
static at_status put_constant(writer *w, scope *s, const at_node *n) {
  const at_literal *l = at_node_literal(n);
  at_type scalar = at_type_scalar(l->type.dtype);
  bool spread = l->splat && at_type_elements(&l->type) > 1;
  at_literal one = *l;
  if (spread) one.type = scalar;
  at_strbuf b = begin(w, "constant", &one.type, 1, false);
  at_hp_put_literal(&b, &one);
  int64_t id = end(w, s, &b, NULL, 0);
  if (spread) {
    b = begin(w, "broadcast", &l->type, 1, false);
    id = end(w, s, &b, &id, 1);
  }
  return put_results(w, s, n, id, false);
}

// The lists of a call's layouts, one for each operand or result; NULL: it has
// none, or they are of other arrays.
static const at_dims *orders_of(const at_node *call, at_attr_id id) {
  bool operands = id == AT_ATTR_OPERAND_LAYOUTS;
  const at_attr *a = at_node_attr(call, id);
  uint32_t n = operands ? call->num_operands : call->num_results;
  if (!a || a->groups.n != n) return NULL;
  for (uint32_t k = 0; k < n; k++) {
    const at_type *t =
        operands ? at_value_type(call->operands[k]) : &call->types[k];
    if (a->groups.list[k].rank != t->rank) return NULL;
  }
  return a->groups.list;
}

// Shapes with layouts where the call insists on them (56, 57), and which
// results lie in operands (74): output_shape_index 1, operand_index 2. Operands
// are arrays here.
static void put_call_memory(const writer *w, at_strbuf *b, const at_node *n) {
  const at_attr *a = at_node_attr(n, AT_ATTR_OUTPUT_OPERAND_ALIASES);
  at_hp_place place = place_of(w, NULL);
  for (uint32_t k = 0; a && k < a->groups.n; k++) {
    at_strbuf one = {0};
    at_dims pair = a->groups.list[k];
    if (pair.rank != 2) continue;
    if (n->num_results != 1)
      at_proto_write_ints(&one, 1, (at_dims){pair.ptr, 1});
    at_proto_write_int(&one, 2, (uint64_t)pair.ptr[1]);
    at_proto_write_message(b, 74, &one);
  }
  if (!at_node_attr(n, AT_ATTR_OPERAND_LAYOUTS) &&
      !at_node_attr(n, AT_ATTR_RESULT_LAYOUTS))
    return;
  at_proto_write_int(b, 56, 1);
  place.orders = orders_of(n, AT_ATTR_OPERAND_LAYOUTS);
  for (uint32_t k = 0; k < n->num_operands; k++) {
    at_hp_put_shape(b, 57, at_value_type(n->operands[k]), 1, false, place);
    if (place.orders) place.orders++;
  }
}

// Target, configuration, side effect, API version of a custom call.
static void put_call_fields(const writer *w, at_strbuf *b, const at_node *n) {
  at_proto_write_bytes(b, 28, at_node_str(n, AT_ATTR_CALL_TARGET_NAME));
  at_proto_write_bytes(b, 43, at_node_str(n, AT_ATTR_BACKEND_CONFIG));
  at_proto_write_int(b, 65, at_node_bool(n, AT_ATTR_HAS_SIDE_EFFECT));
  at_proto_write_int(b, 77, (uint64_t)at_node_int(n, AT_ATTR_API_VERSION, 1));
  put_call_memory(w, b, n);
}

// Opcodes of the ops that go over one to one.
const char *at_hloproto_opcode(at_op op) {
  static const struct {
    at_op op;
    const char *opcode, *how;
  } rows[] = {
#define AT_HP_OP(opcode, op, how) {AT_OP_##op, opcode, #how},
#include "hloproto/opcodes.def"
#undef AT_HP_OP
  };
  static const char *const one_to_one[] = {
      "plain",         "convolution",         "dot",         "each_operand",
      "map",           "all_to_all",          "custom_call", "rng",
      "dynamic_slice", "dynamic_update_slice"};
  if (op == AT_OP_COPY) return "copy";
  if (op == AT_OP_SCAN) return "reduce-window";  // as clients wrote it
  for (size_t k = 0; k < AT_LEN(rows); k++)
    for (size_t h = 0; rows[k].op == op && h < AT_LEN(one_to_one); h++)
      if (!strcmp(rows[k].how, one_to_one[h])) return rows[k].opcode;
  return NULL;
}

// To another memory: (there, here, context), then what is there.
static at_status put_copy(writer *w, scope *s, const at_node *n) {
  const at_type context = at_type_scalar(AT_U32);
  at_hp_place here = place_of(w, NULL), there;
  char *memory;
  int64_t id;
  AT_TRY_ALLOC(memory,
               at_arena_str(w->a, at_node_str(n, AT_ATTR_MEMORY_SPACE)));
  there = place_of(w, memory);
  AT_TRY(id_of(w, s, n->operands[0], &id));
  at_strbuf b = {0}, shape = {0};
  name_next(w, n);
  put_name(w, &b, "copy-start");
  at_proto_write_int(&shape, 2, 13);
  at_hp_put_shape(&shape, 4, n->types, 1, false, there);
  at_hp_put_shape(&shape, 4, n->types, 1, false, here);
  at_hp_put_shape(&shape, 4, &context, 1, false, here);
  at_proto_write_message(&b, 3, &shape);
  at_hp_put_origin(&b, n);
  id = end(w, s, &b, &id, 1);
  b = begin_in(w, "copy-done", n->types, 1, false, there);
  return put_results(w, s, n, end(w, s, &b, &id, 1), false);
}

// What XLA has no opcode for is CHLO's.
static void put_target(at_strbuf *b, at_op op) {
  char name[96];
  snprintf(name, sizeof name, "chlo.%s", at_op_text(op));
  at_proto_write_bytes(b, 28, at_str_of(name));
}

// The second half of an operation under way: its values are those of the first,
// of a tuple where it has several.
static at_status put_done(writer *w, scope *s, const at_node *n) {
  static const struct {
    at_op op;
    const char *opcode;
  } halves[] = {{AT_OP_ALL_GATHER, "all-gather-done"},
                {AT_OP_ALL_REDUCE, "all-reduce-done"},
                {AT_OP_COLLECTIVE_PERMUTE, "collective-permute-done"}};
  const char *opcode = "copy-done";
  for (size_t k = 0; k < AT_LEN(halves); k++)
    if (halves[k].op == n->operands[0].node->op) opcode = halves[k].opcode;
  bool tuple = n->num_results != 1;
  int64_t *ids, of;
  AT_TRY(operand_ids(w, s, n->operands, n->num_operands, &ids));
  of = tuple ? put_tuple(w, s, n->types, ids, n->num_results) : ids[0];
  name_next(w, n);
  at_strbuf b = begin(w, opcode, n->types, n->num_results, tuple);
  at_hp_put_origin(&b, n);
  return put_results(w, s, n, end(w, s, &b, &of, 1), tuple);
}

// The node's regions as computations, then one instruction. RNG's shape operand
// is left out: XLA reads the shape from the result.
static at_status put_plain(writer *w, scope *s, const at_node *n) {
  const char *opcode = at_hloproto_opcode(n->op);
  static const value_vec none = {0};
  int64_t *ids, *comps;
  bool tuple = n->num_results != 1;
  uint32_t operands = n->num_operands - (n->op == AT_OP_RNG);
  AT_TRY_ALLOC(comps, at_new(w->a, int64_t, (size_t)n->num_regions + 1));
  for (uint32_t r = 0; r < n->num_regions; r++)
    AT_TRY(put_comp(w, n->regions[r], "region", &none, COMP_PLAIN, false,
                    &comps[r]));
  AT_TRY(operand_ids(w, s, n->operands, operands, &ids));
  name_next(w, n);
  at_hp_place place = place_of(w, NULL);
  if (n->op == AT_OP_CUSTOM_CALL) {
    w->kernel = at_node_str(n, AT_ATTR_KERNEL_NAME);
    place.orders = orders_of(n, AT_ATTR_RESULT_LAYOUTS);
  }
  at_strbuf b = begin_in(w, opcode ? opcode : "custom-call", n->types,
                         n->num_results, tuple, place);
  if (n->op == AT_OP_CUSTOM_CALL)
    put_call_fields(w, &b, n);
  else if (!opcode)
    put_target(&b, n->op);
  at_hp_put_attrs(&b, n);
  at_proto_write_ints(&b, 38, (at_dims){comps, n->num_regions});
  at_hp_put_origin(&b, n);
  return put_results(w, s, n, end(w, s, &b, ids, operands), tuple);
}

// ---- What the client has the SparseCores do (compute_on("tpu_sparsecore"))
static bool is_offloaded(const writer *w, const at_node *n) {
  return w->o->sparse_cores && !w->thread && n->num_results == 1 &&
         (n->op == AT_OP_GATHER || n->op == AT_OP_SCATTER) &&
         at_node_offloaded(n);
}

// A computation of n alone: its operands are the parameters.
static at_status put_alone(writer *w, const at_node *n, scope *s) {
  for (uint32_t k = 0; k < n->num_operands; k++) {
    at_strbuf b =
        begin(w, "parameter", at_value_type(n->operands[k]), 1, false);
    at_proto_write_int(&b, 9, k);
    AT_TRY(id_put(w, s, n->operands[k], end(w, s, &b, NULL, 0)));
  }
  return put_plain(w, s, n);
}

// ((operands), result, context), then the result.
static at_status put_offloaded(writer *w, scope *s, const at_node *n) {
  const at_type context = at_type_scalar(AT_U32);
  at_hp_place here = place_of(w, NULL);
  scope alone = {.ids = at_map_in(w->a)};
  char name[96];
  at_type *types;
  int64_t *ids, id, comp;
  AT_TRY_ALLOC(types, at_new(w->a, at_type, (size_t)n->num_operands + 1));
  for (uint32_t k = 0; k < n->num_operands; k++)
    types[k] = *at_value_type(n->operands[k]);
  AT_TRY(operand_ids(w, s, n->operands, n->num_operands, &ids));
  w->thread = "sparsecore";
  at_status st = put_alone(w, n, &alone);
  snprintf(name, sizeof name, "async_computation.%lld",
           (long long)w->next_comp);
  comp_end(w, &alone, name, false, &comp);
  w->thread = NULL;
  AT_TRY(st);
  at_strbuf b = {0}, shape = {0};
  put_name(w, &b, "async-start");
  at_proto_write_int(&shape, 2, 13);
  at_hp_put_shape(&shape, 4, types, n->num_operands, true, here);
  at_hp_put_shape(&shape, 4, n->types, 1, false, here);
  at_hp_put_shape(&shape, 4, &context, 1, false, here);
  at_proto_write_message(&b, 3, &shape);
  at_proto_write_ints(&b, 38, (at_dims){&comp, 1});
  at_proto_write_bytes(&b, 79, AT_STR("sparsecore"));
  at_hp_put_origin(&b, n);
  id = end(w, s, &b, ids, n->num_operands);
  b = begin(w, "async-done", n->types, 1, false);
  return put_results(w, s, n, end(w, s, &b, &id, 1), false);
}

// ---- all-to-all, where it is split along one dimension and joined along
// another: XLA's exchanges parts of a dimension of their own.
// An array on its way through reshapes and transposes.
typedef struct view {
  int64_t id;
  at_type type;
} view;

// One reshape or transpose of *io, which becomes its result. perm NULL: a
// reshape.
static at_status put_view(writer *w, scope *s, const char *opcode,
                          const int64_t *dims, uint32_t rank,
                          const int64_t *perm, view *io) {
  int64_t *copy;
  AT_TRY_ALLOC(copy, at_arena_copy(w->a, dims, rank * sizeof *dims, 8));
  io->type.dims = copy;
  io->type.rank = rank;
  at_strbuf b = begin(w, opcode, &io->type, 1, false);
  if (perm) at_proto_write_ints(&b, 14, (at_dims){perm, rank});
  io->id = end(w, s, &b, &io->id, 1);
  return AT_OK;
}

// XLA's all-to-all along one dimension. Where a dimension was split off, the
// exchange goes along that one (0).
static at_status put_exchange(writer *w, scope *s, const at_node *n,
                              const at_type *t, bool first, view *io) {
  at_node like = *n;  // with the groups and the channel, but no dimensions
  at_attr *attrs;
  AT_TRY_ALLOC(attrs, at_new(w->a, at_attr, (size_t)n->num_attrs + 1));
  like.attrs = attrs;
  like.num_attrs = 0;
  for (uint32_t k = 0; k < n->num_attrs; k++)
    if (n->attrs[k].id != AT_ATTR_CONCAT_DIMENSION)
      attrs[like.num_attrs++] = n->attrs[k];
  for (uint32_t k = 0; k < like.num_attrs; k++)
    if (attrs[k].id == AT_ATTR_SPLIT_DIMENSION && io->type.rank != t->rank)
      attrs[k].i = 0;
  if (first) name_next(w, n);
  at_strbuf b = begin(w, "all-to-all", &io->type, 1, false);
  at_hp_put_attrs(&b, &like);
  at_hp_put_origin(&b, n);
  io->id = end(w, s, &b, &io->id, 1);
  return AT_OK;
}

// Operand k. Different split and concat dimensions: split off the parts as a
// dimension, bring it to the front, exchange along it, put it before the concat
// dimension, merge the two.
static at_status all_to_all(writer *w, scope *s, const at_node *n, uint32_t k) {
  const at_type *t = at_value_type(n->operands[k]);
  int64_t split = at_node_int(n, AT_ATTR_SPLIT_DIMENSION, 0);
  int64_t join = at_node_int(n, AT_ATTR_CONCAT_DIMENSION, 0);
  int64_t parts = at_node_int(n, AT_ATTR_SPLIT_COUNT, 1);
  at_value result = {(at_node *)n, k};
  view v = {.type = *t};
  AT_TRY(id_of(w, s, n->operands[k], &v.id));
  if (split == join) {
    AT_TRY(put_exchange(w, s, n, t, k == 0, &v));
    return id_put(w, s, result, v.id);
  }
  int64_t *dims, *perm;
  uint32_t rank = t->rank + 1;
  AT_TRY_ALLOC(dims, at_new(w->a, int64_t, rank));
  AT_TRY_ALLOC(perm, at_new(w->a, int64_t, rank));
  for (uint32_t d = 0, to = 0; d < t->rank; d++) {
    if (d == split) dims[to++] = parts;
    dims[to++] = d == split ? t->dims[d] / parts : t->dims[d];
  }
  AT_TRY(put_view(w, s, "reshape", dims, rank, NULL, &v));
  perm[0] = split;
  for (uint32_t d = 1; d < rank; d++) perm[d] = d <= split ? d - 1 : d;
  for (uint32_t d = 0; d < rank; d++) dims[d] = v.type.dims[perm[d]];
  AT_TRY(put_view(w, s, "transpose", dims, rank, perm, &v));
  AT_TRY(put_exchange(w, s, n, t, k == 0, &v));
  for (uint32_t d = 0; d < rank; d++)
    perm[d] = d < join ? d + 1 : d == join ? 0 : d;
  for (uint32_t d = 0; d < rank; d++) dims[d] = v.type.dims[perm[d]];
  AT_TRY(put_view(w, s, "transpose", dims, rank, perm, &v));
  AT_TRY(put_view(w, s, "reshape", n->types[k].dims, t->rank, NULL, &v));
  return id_put(w, s, result, v.id);
}

// One exchange for each operand.
static at_status put_all_to_all(writer *w, scope *s, const at_node *n) {
  for (uint32_t k = 0; k < n->num_operands; k++) AT_TRY(all_to_all(w, s, n, k));
  return AT_OK;
}

// Every op that needs more than operands, regions and attributes has a writer
// of its own. Calls must have been inlined.
static at_status put_node(writer *w, scope *s, const at_node *n) {
  switch (n->op) {
    case AT_OP_ALL_TO_ALL:
      return put_all_to_all(w, s, n);
    case AT_OP_ASYNC_DONE:
      return put_done(w, s, n);
    case AT_OP_CONSTANT:
      return put_constant(w, s, n);
    case AT_OP_WHILE:
      return put_while(w, s, n);
    case AT_OP_IF:
    case AT_OP_CASE:
      return put_conditional(w, s, n);
    case AT_OP_FUSION:
      return put_fusion(w, s, n);
    case AT_OP_COPY:
      return at_node_attr(n, AT_ATTR_MEMORY_SPACE) ? put_copy(w, s, n)
                                                   : put_plain(w, s, n);
    case AT_OP_CALL:
    case AT_OP_COMPOSITE:
    case AT_OP_MANUAL_COMPUTATION:
      return AT_FAIL(AT_UNIMPLEMENTED, "%s is not inlined", at_op_text(n->op));
    default:
      return is_offloaded(w, n) ? put_offloaded(w, s, n) : put_plain(w, s, n);
  }
}

// ---- The module
// Clients of PJRT before executables told their layouts (JAX 0.8) take those of
// arguments and results from here, and compare them with those of buffers.
static void put_signature(writer *w, at_strbuf *b, uint32_t number) {
  const at_comp *e = w->m->entry;
  at_strbuf sig = {0};
  for (uint32_t k = 0; k < e->num_params; k++)
    at_hp_put_entry(
        &sig, 1, &e->params[k]->types[0],
        w->m->params ? &w->m->params[k] : NULL,
        place_of(w, w->m->params ? w->m->params[k].memory_kind : NULL).host);
  at_strbuf result = {0};
  bool tuple = e->num_results != 1;
  if (tuple) at_proto_write_int(&result, 2, 13);
  for (uint32_t k = 0; k < e->num_results; k++)
    at_hp_put_entry(
        &result, tuple ? 4 : 0, at_value_type(e->results[k]),
        w->m->results ? &w->m->results[k] : NULL,
        place_of(w, w->m->results ? w->m->results[k].memory_kind : NULL).host);
  at_proto_write_message(&sig, 2, &result);
  for (uint32_t k = 0; k < e->num_params; k++) {
    const char *name = w->m->params ? w->m->params[k].name : NULL;
    at_proto_write_bytes(&sig, 3, at_str_of(name ? name : ""));
  }
  at_proto_write_message(b, number, &sig);
}

// Field 8: parameters that results may take the memory of; 18: donors without a
// result.
static void put_aliases(writer *w, at_strbuf *b) {
  const at_comp *e = w->m->entry;
  at_strbuf aliases = {0}, donors = {0};
  for (uint32_t k = 0; w->m->params && k < e->num_params; k++) {
    at_strbuf one = {0};
    const at_io_info *info = &w->m->params[k];
    int64_t to = info->alias;
    if (to >= 0) {
      if (e->num_results != 1) at_proto_write_ints(&one, 1, (at_dims){&to, 1});
      at_proto_write_int(&one, 2, k);
      at_proto_write_int(&one, 4, 1);  // it may
      at_proto_write_message(&aliases, 1, &one);
    } else if (info->donor) {
      at_proto_write_int(&one, 1, k);
      at_proto_write_message(&donors, 1, &one);
    }
  }
  at_proto_write_message(b, 8, &aliases);
  at_proto_write_message(b, 18, &donors);
}

// Fields 12 and 14, which mark the module as partitioned for the reader.
static void put_shardings(writer *w, at_strbuf *b) {
  const at_comp *e = w->m->entry;
  if (w->o->result_shardings) {
    at_strbuf all = {0};
    bool tuple = e->num_results != 1;
    if (tuple) at_proto_write_int(&all, 1, 2);
    for (uint32_t k = 0; tuple && k < e->num_results; k++)
      at_proto_write_bytes(&all, 5, w->o->result_shardings[k]);
    // An empty tuple has one, that of none of its parts: replicated.
    if (!e->num_results) at_proto_write_bytes(&all, 5, (at_str){0});
    if (!tuple) at_strbuf_add(&all, w->o->result_shardings[0]);
    at_proto_write_message(b, 12, &all);
  }
  for (uint32_t k = 0; w->o->param_shardings && k < e->num_params; k++)
    at_proto_write_bytes(b, 14, w->o->param_shardings[k]);
}

// The module with its configuration, or with buffers where options ask for
// memory.
static at_status put_module(writer *w, at_strbuf *out) {
  static const value_vec none = {0};
  int64_t entry;
  at_strbuf module = {0}, config = {0};
  AT_TRY(put_comp(w, w->m->entry, "main", &none, COMP_PLAIN, false, &entry));
  at_proto_write_bytes(&module, 1, at_str_of(w->m->name ? w->m->name : "main"));
  at_proto_write_bytes(&module, 2, AT_STR("main"));
  at_strbuf_add(&module, at_strbuf_str(&w->comps));
  put_signature(w, &module, 4);
  at_proto_write_int(&module, 6, (uint64_t)entry);
  at_proto_write_bytes(&module, 7, at_strbuf_str(&w->sequences));
  put_aliases(w, &module);
  put_shardings(w, &module);
  module.failed |= w->comps.failed | w->sequences.failed;
  at_proto_write_message(out, 1, &module);
  if (w->o->memory)
    return at_hp_put_buffers(out, 3, &w->defined, w->m, &w->memory, w->a);
  put_signature(w, &config, 1);
  at_proto_write_int(&config, 4, (uint64_t)w->m->num_replicas);
  at_proto_write_int(&config, 5, (uint64_t)w->m->num_partitions);
  at_proto_write_int(&config, 7, w->m->num_partitions > 1);
  // Lists of one false, as XLA has them where nobody asked.
  at_proto_write_int(&config, 27, 0);
  at_proto_write_int(&config, 33, 0);
  at_proto_write_message(out, 2, &config);
  return at_strbuf_status(out);
}

// Works in an arena of its own. With memory, instructions that are no nodes get
// numbers beyond those of nodes, so names stay unique.
at_status at_hloproto_write(const at_module *m,
                            const at_hloproto_write_options *o,
                            at_strbuf *out) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("the program's text");
  writer w = {.a = a,
              .m = m,
              .o = o,
              .next_id = o->memory ? (int64_t)m->next_id + 1 : 1,
              .next_comp = 1,
              .defined.places = at_map_in(a)};
  size_t from = out->len;
  at_status st = put_module(&w, out);
  if (at_ok(st)) st = at_arena_status(a);
  AT_VERIFY(!at_ok(st) ||
            at_hp_is_formed((at_str){out->ptr + from, out->len - from}));
  AT_VERIFY(!at_ok(st) ||
            at_hp_reads_as(m, (at_str){out->ptr + from, out->len - from},
                           !o->memory));
  at_strbuf_free(&w.comps);
  at_strbuf_free(&w.sequences);
  at_arena_destroy(a);
  return st;
}
