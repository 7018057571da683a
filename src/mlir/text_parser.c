// Modules, operations, regions and blocks, in MLIR's generic form and, by
// text_pretty.c, in the forms of single operations. One pass without tokens:
// each function looks at the text where it is and takes what it knows.
// Values and blocks may be used before they are defined. A use of an unknown
// name is noted (`forwards`) and settled when the region closes, or further
// out. Names that a region defines are undone at its end (`undo` has what the
// name meant before), so one map serves all scopes.
#include <ctype.h>
#include <stdlib.h>

#include "mlir/bytecode_ir.h"
#include "mlir/text.h"

static at_status read_op(at_mtext *t, at_mblock *block, at_mop **out);

// ---- Values
// %name or %name#2: the third of several results.
bool at_mtext_operand(at_mtext *t, at_moperand *out) {
  const char *back;
  at_mtext_space(t);
  back = t->p;
  if (!at_mtext_accept(t, "%")) return false;
  *out = (at_moperand){0};
  if (!at_mtext_suffix(t, &out->name)) {
    t->p = back;
    return false;
  }
  if (t->p + 1 < t->end && *t->p == '#' && isdigit((unsigned char)t->p[1])) {
    uint64_t v = 0;
    for (t->p++; t->p < t->end && isdigit((unsigned char)*t->p); t->p++)
      v = AT_MIN(v * 10 + (uint64_t)(*t->p - '0'), 1u << 30);
    out->index = (uint32_t)v;
  }
  return true;
}

// Appends it.
at_status at_mtext_need_operand(at_mtext *t, at_moperand_vec *v) {
  at_moperand o;
  if (!at_mtext_operand(t, &o)) return at_mtext_fail(t, "a value is expected");
  return at_vec_push(t->c.arena, v, o) ? AT_OK : AT_NO_MEMORY("operands");
}

// By commas; none where no '%' follows.
at_status at_mtext_operands(at_mtext *t, at_moperand_vec *v) {
  if (!at_mtext_at(t, "%")) return AT_OK;
  do AT_TRY(at_mtext_need_operand(t, v));
  while (at_mtext_accept(t, ","));
  return AT_OK;
}

// The name stands for v[0 .. n); what it stood for before comes back at the end
// of the region.
static at_status define(at_mtext *t, at_str name, at_mvalue *v, uint32_t n) {
  at_mtext_group *g;
  AT_TRY_ALLOC(g, at_new(t->c.arena, at_mtext_group, 1));
  *g = (at_mtext_group){v, n};
  void **slot = at_map_put(&t->values, name);
  if (!slot) return AT_NO_MEMORY("values");
  at_mtext_undo u = {name, *slot};
  if (!at_vec_push(t->c.arena, &t->undo, u)) return AT_NO_MEMORY("values");
  *slot = g;
  const char *z;
  AT_TRY_ALLOC(z, at_mctx_intern(&t->c, name));
  for (uint32_t i = 0; i < n; i++) v[i].name = z;
  return AT_OK;
}

// *out NULL: the name is not known yet.
static at_status find_value(at_mtext *t, at_str name, uint32_t index,
                            at_mvalue **out) {
  void **slot = at_map_find(&t->values, name);
  at_mtext_group *g = slot ? *slot : NULL;
  *out = NULL;
  if (!g) return AT_OK;
  if (index >= g->count)
    return at_mtext_fail(t, "%%%.*s has only %u values",
                         (int)AT_MIN(name.len, 64), name.ptr, g->count);
  *out = &g->first[index];
  return AT_OK;
}

// Operands by name. Their types, where the text says them, must be those of the
// definitions.
at_status at_mtext_resolve(at_mtext *t, at_mopstate *s,
                           const at_mtype *const *types, size_t n) {
  at_mop *op = s->op;
  if (types && n != s->operands.len)
    return at_mtext_fail(t, "%s: %zu operands, but %zu types", op->name,
                         s->operands.len, n);
  at_mvalue **v;
  AT_TRY_ALLOC(v, at_new(t->c.arena, at_mvalue *, s->operands.len));
  op->operands = v;
  op->num_operands = (uint32_t)s->operands.len;
  for (size_t i = 0; i < s->operands.len; i++) {
    at_moperand *o = &s->operands.ptr[i];
    AT_TRY(find_value(t, o->name, o->index, &v[i]));
    if (!v[i]) {
      at_mtext_forward f = {&v[i], o->name, o->index};
      if (!at_vec_push(t->c.arena, &t->forwards, f))
        return AT_NO_MEMORY("operands");
    } else if (types && !at_mtype_eq(v[i]->type, types[i])) {
      return at_mtext_fail(t, "%s: %%%.*s has another type than is said here",
                           op->name, (int)AT_MIN(o->name.len, 64), o->name.ptr);
    }
  }
  return AT_OK;
}

// At the end of a region its names go, and uses before their definition are
// settled; what is still open may be defined further out.
static at_status close_scope(at_mtext *t, size_t undo, size_t forwards) {
  size_t kept = forwards;
  for (size_t i = forwards; i < t->forwards.len; i++) {
    at_mtext_forward f = t->forwards.ptr[i];
    AT_TRY(find_value(t, f.name, f.index, f.slot));
    if (!*f.slot) t->forwards.ptr[kept++] = f;
  }
  t->forwards.len = kept;
  // Newest first, so that a name taken twice gets its first meaning back.
  while (t->undo.len > undo) {
    at_mtext_undo u = t->undo.ptr[--t->undo.len];
    *at_map_find(&t->values, u.name) = u.before;
  }
  return AT_OK;
}

// ---- Blocks and regions
typedef struct block_list {
  at_map by_name;  // at_mblock
  AT_VEC(at_mblock *) order;
  at_mregion *region;
} block_list;

// Made when it is first named, by a branch or by its label.
static at_status block_named(at_mtext *t, block_list *l, at_str name,
                             at_mblock **out) {
  void **slot = at_map_put(&l->by_name, name);
  if (!slot) return AT_NO_MEMORY("blocks");
  if (!*slot) {
    at_mblock *b;
    AT_TRY_ALLOC(b, at_new(t->c.arena, at_mblock, 1));
    b->region = l->region;
    *slot = b;
  }
  *out = *slot;
  return AT_OK;
}

// The block's arguments, whose names are then in scope.
static at_status set_args(at_mtext *t, at_mblock *b, const at_marg_vec *v) {
  AT_TRY_ALLOC(b->args, at_new(t->c.arena, at_mvalue, v->len));
  b->num_args = (uint32_t)v->len;
  for (uint32_t i = 0; i < b->num_args; i++) {
    b->args[i] = (at_mvalue){
        .type = v->ptr[i].type, .block = b, .index = i, .loc = v->ptr[i].loc};
    AT_TRY(define(t, v->ptr[i].name, &b->args[i], 1));
  }
  return AT_OK;
}

// The location is unknown where none stands.
at_status at_mtext_argument(at_mtext *t, at_marg_vec *v, at_mnamed_vec *attrs) {
  at_marg a = {.loc = &at_mloc_unknown};
  AT_TRY(at_mtext_expect(t, "%"));
  if (!at_mtext_suffix(t, &a.name))
    return at_mtext_fail(t, "a name is expected");
  AT_TRY(at_mtext_expect(t, ":"));
  AT_TRY(at_mtext_read_type(t, &a.type));
  if (attrs) AT_TRY(at_mtext_opt_dict(t, attrs));
  AT_TRY(at_mtext_opt_loc(t, &a.loc));
  return at_vec_push(t->c.arena, v, a) ? AT_OK : AT_NO_MEMORY("arguments");
}

// ^name(arguments): a label that occurs twice is refused.
static at_status block_header(at_mtext *t, block_list *l, at_mblock **out) {
  at_str name;
  at_marg_vec args = {0};
  AT_TRY(at_mtext_expect(t, "^"));
  if (!at_mtext_suffix(t, &name))
    return at_mtext_fail(t, "a block's name is expected");
  AT_TRY(block_named(t, l, name, out));
  for (size_t i = 0; i < l->order.len; i++)
    if (l->order.ptr[i] == *out)
      return at_mtext_fail(t, "^%.*s is defined twice",
                           (int)AT_MIN(name.len, 64), name.ptr);
  if (at_mtext_accept(t, "(")) {
    if (!at_mtext_accept(t, ")")) {
      do AT_TRY(at_mtext_argument(t, &args, NULL));
      while (at_mtext_accept(t, ","));
      AT_TRY(at_mtext_expect(t, ")"));
    }
  }
  AT_TRY(at_mtext_expect(t, ":"));
  return set_args(t, *out, &args);
}

// Operations up to the next label or the end of the region.
static at_status block_body(at_mtext *t, at_mblock *b) {
  AT_VEC(at_mop *) ops = {0};
  while (!at_mtext_at(t, "}") && !at_mtext_at(t, "^")) {
    at_mop *op;
    AT_TRY(read_op(t, b, &op));
    if (!at_vec_push(t->c.arena, &ops, op)) return AT_NO_MEMORY("operations");
  }
  b->ops = ops.ptr;
  b->num_ops = (uint32_t)ops.len;
  return AT_OK;
}

// An entry block without a label comes first where the text has none. Every
// block that a branch names must have been defined.
static at_status region_body(at_mtext *t, block_list *l,
                             const at_marg_vec *args) {
  at_mblock *b;
  AT_TRY(at_mtext_expect(t, "{"));
  bool entry = args || !at_mtext_at(t, "^");
  if (!args && at_mtext_accept(t, "}")) return AT_OK;
  if (entry) {
    AT_TRY_ALLOC(b, at_new(t->c.arena, at_mblock, 1));
    b->region = l->region;
    if (args) AT_TRY(set_args(t, b, args));
    if (!at_vec_push(t->c.arena, &l->order, b)) return AT_NO_MEMORY("blocks");
    AT_TRY(block_body(t, b));
  }
  while (!at_mtext_accept(t, "}")) {
    AT_TRY(block_header(t, l, &b));
    if (!at_vec_push(t->c.arena, &l->order, b)) return AT_NO_MEMORY("blocks");
    AT_TRY(block_body(t, b));
  }
  return l->by_name.len <= l->order.len - entry
             ? AT_OK
             : at_mtext_fail(t, "a successor names a block that is not here");
}

// Opens a scope of names and blocks and closes it; inside of a function its
// dialect is the default.
at_status at_mtext_region(at_mtext *t, at_mopstate *s,
                          const at_marg_vec *args) {
  AT_TRY(at_mtext_enter(t));
  block_list l = {.by_name = at_map_in(t->c.arena)};
  AT_TRY_ALLOC(l.region, at_new(t->c.arena, at_mregion, 1));
  l.region->op = s->op;
  // Marks of this scope on the two stacks.
  size_t undo = t->undo.len, forwards = t->forwards.len;
  void *outer = t->blocks;
  const char *dialect = t->default_dialect;
  t->blocks = &l;
  if (strcmp(s->op->name, "func.func") == 0) t->default_dialect = "func";
  AT_TRY(region_body(t, &l, args));
  t->blocks = outer;
  t->default_dialect = dialect;
  l.region->blocks = l.order.ptr;
  l.region->num_blocks = (uint32_t)l.order.len;
  AT_TRY(close_scope(t, undo, forwards));
  t->depth--;
  return at_vec_push(t->c.arena, &s->regions, l.region)
             ? AT_OK
             : AT_NO_MEMORY("regions");
}

// The caller fills the block; its operations get the location of the operation
// around it.
at_status at_mtext_block_region(at_mtext *t, at_mopstate *s, at_mblock **out) {
  at_mregion *r;
  at_mblock **blocks;
  AT_TRY_ALLOC(r, at_new(t->c.arena, at_mregion, 1));
  AT_TRY_ALLOC(blocks, at_new(t->c.arena, at_mblock *, 1));
  AT_TRY_ALLOC(blocks[0], at_new(t->c.arena, at_mblock, 1));
  blocks[0]->region = r;
  r->blocks = blocks;
  r->num_blocks = 1;
  r->op = s->op;
  *out = s->made = blocks[0];
  return at_vec_push(t->c.arena, &s->regions, r) ? AT_OK
                                                 : AT_NO_MEMORY("regions");
}

// ---- Generic form
// ^a, ^b up to the closing bracket.
static at_status successors(at_mtext *t, at_mop *op) {
  AT_VEC(at_mblock *) v = {0};
  if (at_mtext_accept(t, "]")) return AT_OK;
  do {
    at_str name;
    at_mblock *b;
    AT_TRY(at_mtext_expect(t, "^"));
    if (!at_mtext_suffix(t, &name) || !t->blocks)
      return at_mtext_fail(t, "a block's name is expected");
    AT_TRY(block_named(t, t->blocks, name, &b));
    if (!at_vec_push(t->c.arena, &v, b)) return AT_NO_MEMORY("successors");
  } while (at_mtext_accept(t, ","));
  op->successors = v.ptr;
  op->num_successors = (uint32_t)v.len;
  return at_mtext_expect(t, "]");
}

// After the quoted name: (operands) [^succ] <{props}> ({regions}) {attrs} :
// type.
at_status at_mtext_generic_tail(at_mtext *t, at_mopstate *s) {
  AT_TRY(at_mtext_expect(t, "("));
  AT_TRY(at_mtext_operands(t, &s->operands));
  AT_TRY(at_mtext_expect(t, ")"));
  if (at_mtext_accept(t, "[")) AT_TRY(successors(t, s->op));
  if (at_mtext_accept(t, "<")) {
    AT_TRY(at_mtext_dict(t, &s->attrs));
    AT_TRY(at_mtext_expect(t, ">"));
  }
  if (at_mtext_accept(t, "(")) {
    do AT_TRY(at_mtext_region(t, s, NULL));
    while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, ")"));
  }
  AT_TRY(at_mtext_opt_dict(t, &s->attrs));
  AT_TRY(at_mtext_expect(t, ":"));
  const at_mtype *f;
  AT_TRY(at_mtext_function_type(t, &f));
  for (uint32_t i = 0; i < f->num_results; i++)
    if (!at_vec_push(t->c.arena, &s->results, f->results[i]))
      return AT_NO_MEMORY("results");
  return at_mtext_resolve(t, s, f->types, f->num_types);
}

// ---- Operations
typedef struct result_name {
  at_str name;
  uint32_t count;
} result_name;
typedef AT_VEC(result_name) result_names;

// %a, %b:2 = ; *total counts all values.
static at_status read_results(at_mtext *t, result_names *v, uint64_t *total) {
  *total = 0;
  if (!at_mtext_at(t, "%")) return AT_OK;
  do {
    result_name r = {.count = 1};
    AT_TRY(at_mtext_expect(t, "%"));
    if (!at_mtext_suffix(t, &r.name))
      return at_mtext_fail(t, "a name is expected");
    if (at_mtext_accept(t, ":")) {
      int64_t n;
      AT_TRY(at_mtext_i64(t, &n));
      if (n < 1 || n > 1 << 20)
        return at_mtext_fail(t, "a number of results is wrong");
      r.count = (uint32_t)n;
    }
    *total += r.count;
    if (!at_vec_push(t->c.arena, v, r)) return AT_NO_MEMORY("results");
  } while (at_mtext_accept(t, ","));
  return at_mtext_expect(t, "=");
}

// Quoted names are the generic form. Names without a dialect get the region's
// default.
static at_status op_name(at_mtext *t, at_mop *op, bool *generic) {
  at_str name;
  *generic = at_mtext_at(t, "\"");
  if (*generic) {
    AT_TRY(at_mtext_quoted(t, &name));
  } else if (!at_mtext_word(t, &name)) {
    return at_mtext_fail(t, "an operation is expected");
  } else if (at_str_is(name, "module")) {
    name = AT_STR("builtin.module");
  } else if (at_str_is(name, "call")) {
    name = AT_STR("func.call");
  } else if (!memchr(name.ptr, '.', name.len)) {
    char *full;
    AT_TRY_ALLOC(full,
                 at_arena_printf(t->c.arena, "%s.%.*s", t->default_dialect,
                                 (int)name.len, name.ptr));
    name = at_str_of(full);
  }
  if (!name.len || memchr(name.ptr, 0, name.len) ||
      name.ptr[name.len - 1] == '.')
    return at_mtext_fail(t, "an operation's name is expected");
  AT_TRY_ALLOC(op->name, at_mctx_intern(&t->c, name));
  return AT_OK;
}

// Makes the results, puts their names in scope, and sorts the attributes.
static at_status finish(at_mtext *t, at_mopstate *s, const result_names *names,
                        uint64_t total) {
  at_mop *op = s->op;
  op->num_results = (uint32_t)s->results.len;
  AT_TRY_ALLOC(op->results, at_new(t->c.arena, at_mvalue, op->num_results));
  for (uint32_t i = 0; i < op->num_results; i++)
    op->results[i] =
        (at_mvalue){.type = s->results.ptr[i], .op = op, .index = i};
  if (names->len && total != op->num_results)
    return at_mtext_fail(t, "%s: %u results, but names for %u", op->name,
                         op->num_results, (uint32_t)total);
  // Each name takes as many results as its count says.
  uint32_t at = 0;
  for (size_t i = 0; i < names->len; i++) {
    AT_TRY(
        define(t, names->ptr[i].name, &op->results[at], names->ptr[i].count));
    at += names->ptr[i].count;
  }
  op->regions = s->regions.ptr;
  op->num_regions = (uint32_t)s->regions.len;
  at_status st = at_mop_set_attrs(&t->c, op, s->attrs.ptr, s->attrs.len);
  if (at_ok(st)) return st;
  at_status_free(st);
  return at_mtext_fail(t, "%s: an attribute occurs twice", op->name);
}

// Results, name, the form that the name decides, location.
static at_status read_op(at_mtext *t, at_mblock *block, at_mop **out) {
  at_mopstate s = {0};
  result_names names = {0};
  uint64_t total;
  bool generic, known = true;
  AT_TRY_ALLOC(s.op, at_new(t->c.arena, at_mop, 1));
  s.op->block = block;
  s.op->loc = &at_mloc_unknown;
  AT_TRY(read_results(t, &names, &total));
  const char *start = t->p;
  AT_TRY(op_name(t, s.op, &generic));
  if (generic) {
    AT_TRY(at_mtext_generic_tail(t, &s));
  } else {
    AT_TRY(at_mtext_pretty(t, &s, &known));
    if (!known) {
      // The message points at the name.
      t->p = start;
      return at_mtext_fail(
          t, "%s is read in its generic form only, \"%s\"(...) : (...) -> ...",
          s.op->name, s.op->name);
    }
  }
  AT_TRY(at_mtext_opt_loc(t, &s.op->loc));
  // A reducer that the text only names has the reduction's location.
  if (s.made) {
    for (uint32_t i = 0; i < s.made->num_args; i++)
      s.made->args[i].loc = s.op->loc;
    for (uint32_t i = 0; i < s.made->num_ops; i++)
      s.made->ops[i]->loc = s.op->loc;
  }
  AT_TRY(finish(t, &s, &names, total));
  *out = s.op;
  return AT_OK;
}

// ---- The file
// Aliases may be used before their line, so all are found first. They start a
// line, which nothing else with '#' or '!' does.
static at_status find_aliases(at_mtext *t) {
  for (const char *line = t->base; line < t->end;) {
    const char *nl = memchr(line, '\n', (size_t)(t->end - line));
    const char *stop = nl ? nl : t->end;
    if (*line == '#' || *line == '!') {
      const char *q = line + 1;
      while (q < stop && (isalnum((unsigned char)*q) || *q == '_' ||
                          *q == '$' || *q == '.' || *q == '-'))
        q++;
      at_str key = {line, (size_t)(q - line)};
      while (q < stop && *q == ' ') q++;
      if (q < stop && *q == '=' && key.len > 1) {
        // Only its place: it is read when first used.
        at_mtext_alias *a;
        AT_TRY_ALLOC(a, at_new(t->c.arena, at_mtext_alias, 1));
        a->at = q + 1;
        void **slot = at_map_put(&t->aliases, key);
        if (!slot) return AT_NO_MEMORY("aliases");
        *slot = a;
      }
    }
    line = nl ? nl + 1 : t->end;
  }
  return AT_OK;
}

// {-# dialect_resources: { builtin: { key: "0x..." } } #-}: a blob is its
// alignment in four bytes and its data.
static at_status resource_entries(at_mtext *t, bool ours) {
  AT_TRY(at_mtext_expect(t, "{"));
  if (at_mtext_accept(t, "}")) return AT_OK;
  do {
    at_str key, value;
    at_bytes *b;
    if (at_mtext_at(t, "\""))
      AT_TRY(at_mtext_quoted(t, &key));
    else if (!at_mtext_word(t, &key))
      return at_mtext_fail(t, "a resource's name is expected");
    AT_TRY(at_mtext_expect(t, ":"));
    // Numbers and words belong to tools.
    if (!at_mtext_at(t, "\"")) {
      at_str word;
      int64_t number;
      if (!at_mtext_word(t, &word)) AT_TRY(at_mtext_i64(t, &number));
      continue;
    }
    AT_TRY(at_mtext_quoted(t, &value));
    if (!ours || !at_str_starts(value, "0x")) continue;
    AT_TRY_ALLOC(b, at_new(t->c.arena, at_bytes, 1));
    AT_TRY(at_mtext_hex_bytes(t, value, b));
    if (b->len < 4) return at_mtext_fail(t, "a resource has no alignment");
    uint8_t *copy = at_arena_copy(t->c.arena, b->ptr + 4, b->len - 4, 64);
    if (!copy) return AT_NO_MEMORY("resource");
    *b = (at_bytes){copy, b->len - 4};
    void **slot = at_map_put(&t->resources, key);
    if (!slot) return AT_NO_MEMORY("resource");
    *slot = b;
  } while (at_mtext_accept(t, ","));
  return at_mtext_expect(t, "}");
}

// Resources of every dialect; only `ours` are kept.
static at_status resource_groups(at_mtext *t, bool ours) {
  AT_TRY(at_mtext_expect(t, "{"));
  if (at_mtext_accept(t, "}")) return AT_OK;
  do {
    at_str group;
    if (!at_mtext_word(t, &group))
      return at_mtext_fail(t, "a dialect's name is expected");
    AT_TRY(at_mtext_expect(t, ":"));
    AT_TRY(resource_entries(t, ours));
  } while (at_mtext_accept(t, ","));
  return at_mtext_expect(t, "}");
}

// {-# dialect_resources: {...}, external_resources: {...} #-}
static at_status read_resources(at_mtext *t) {
  AT_TRY(at_mtext_expect(t, "{-#"));
  if (!at_mtext_accept(t, "#-}")) {
    do {
      at_str what;
      if (!at_mtext_word(t, &what))
        return at_mtext_fail(t, "dialect_resources is expected");
      AT_TRY(at_mtext_expect(t, ":"));
      AT_TRY(resource_groups(t, at_str_is(what, "dialect_resources")));
    } while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, "#-}"));
  }
  return AT_OK;
}

// Blobs stand at the end of the file and are needed while operations are read.
static at_status find_resources(at_mtext *t) {
  for (const char *line = t->base; line + 3 <= t->end;) {
    if (memcmp(line, "{-#", 3) == 0) {
      t->p = line;
      AT_TRY(read_resources(t));
    }
    const char *nl = memchr(line, '\n', (size_t)(t->end - line));
    if (!nl) break;
    line = nl + 1;
  }
  t->p = t->base;
  return AT_OK;
}

// The alias was read before; the line is passed over.
static at_status alias_line(at_mtext *t) {
  char sigil = *t->p++;
  at_str name;
  at_mtext_alias *a;
  if (!at_mtext_suffix(t, &name)) return at_mtext_fail(t, "a name is expected");
  AT_TRY(at_mtext_expect(t, "="));
  at_mtext_space(t);
  const char *back = t->p;
  AT_TRY(at_mtext_alias_find(t, sigil, name, &a));
  t->p = back;
  // Passed over by reading it again.
  const at_mattr *attr;
  const at_mtype *type;
  return sigil == '!' ? at_mtext_read_type(t, &type)
                      : at_mtext_read_attr(t, &attr);
}

// Aliases and resources are found first, then operations are read in order.
at_status at_mlir_read_text(at_str text, at_arena *a, at_mmodule **out) {
  at_mtext *t;
  at_mmodule *m;
  AT_VEC(at_mop *) ops = {0};
  AT_TRY_ALLOC(t, at_new(a, at_mtext, 1));
  AT_TRY_ALLOC(m, at_new(a, at_mmodule, 1));
  at_mtext_init(t, a, text);
  t->default_dialect = "builtin";
  if (text.len && memchr(text.ptr, 0, text.len))
    return at_mtext_fail(t, "a NUL in text");
  AT_TRY(find_aliases(t));
  AT_TRY(find_resources(t));
  // In the order of the file, in which those that others need come first: long
  // chains of locations then nest nowhere.
  for (size_t i = 0; i < t->aliases.len; i++) {
    at_str key = t->aliases.entries[i].key;
    at_mtext_alias *alias;
    AT_TRY(at_mtext_alias_find(t, *key.ptr, (at_str){key.ptr + 1, key.len - 1},
                               &alias));
  }
  for (;;) {
    at_mtext_space(t);
    if (t->p == t->end) break;
    if (*t->p == '#' || *t->p == '!') {
      AT_TRY(alias_line(t));
    } else if (at_mtext_at(t, "{-#")) {
      AT_TRY(read_resources(t));
    } else {
      at_mop *op;
      AT_TRY(read_op(t, NULL, &op));
      if (!at_vec_push(a, &ops, op)) return AT_NO_MEMORY("operations");
    }
  }
  AT_TRY(close_scope(t, 0, 0));
  if (t->forwards.len) {
    at_str n = t->forwards.ptr[0].name;
    return at_mtext_fail(t, "%%%.*s is used but not defined",
                         (int)AT_MIN(n.len, 64), n.ptr);
  }
  if (!ops.len && !text.len) return at_mtext_fail(t, "there is no operation");
  AT_TRY(at_mmodule_wrap(&t->c, ops.ptr, ops.len, &m->op));
  m->producer = "";
  m->arena = a;
  *out = m;
  return AT_OK;
}

// ---- Inside bytecode
at_status at_mtext_attr(at_mctx *c, at_str text, const at_mattr **out) {
  at_mtext t;
  at_mtext_init(&t, c->arena, text);
  t.c = *c;
  at_status s = at_mtext_read_attr(&t, out);
  at_mtext_space(&t);
  if (at_ok(s) && t.p != t.end)
    s = at_mtext_fail(&t, "more text than one attribute");
  *c = t.c;
  return s;
}

// As at_mtext_attr.
at_status at_mtext_type(at_mctx *c, at_str text, const at_mtype **out) {
  at_mtext t;
  at_mtext_init(&t, c->arena, text);
  t.c = *c;
  at_status s = at_mtext_read_type(&t, out);
  at_mtext_space(&t);
  if (at_ok(s) && t.p != t.end)
    s = at_mtext_fail(&t, "more text than one type");
  *c = t.c;
  return s;
}
