// The walk over the MLIR tree: module, functions, regions, values. What each op
// becomes is in vhlo_ops.def.
#include <stdarg.h>
#include <stdio.h>

#include "import/import_internal.h"

enum { MAX_INLINED = 1 << 20 };

// ---- Errors

// Formats the caller's message, then puts the op's name and its source place in
// front of it. The place is read on a best effort: when the arena refuses, the
// message goes without it.
at_status at_imp_fail(at_imp *x, const at_mop *op, at_code code,
                      const char *file, int line, const char *fmt, ...) {
  char text[1024];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  const at_loc *loc = NULL;
  if (op) at_status_free(at_imp_loc(x, op->loc, op, &loc));
  at_strbuf b = {0};
  if (loc) at_loc_print(&b, loc);
  at_status s =
      at_fail(code, file, line, "%s%s%.300s: %s", op ? op->name : "module",
              loc ? " at " : "", b.ptr ? b.ptr : "", text);
  at_strbuf_free(&b);
  return s;
}

// Same arena means same lifetime, so the pointer is shared. Otherwise the tree
// may be destroyed before the module, and the text is copied.
at_status at_imp_keep(at_imp *x, const char *z, const char **out) {
  if (x->src->arena == x->a) return *out = z, AT_OK;
  AT_TRY_ALLOC(*out, at_arena_str(x->a, at_str_of(z)));
  return AT_OK;
}

at_status at_imp_dims(at_imp *x, const int64_t *p, uint32_t n, at_dims *out) {
  int64_t *copy;
  AT_TRY_ALLOC(copy, at_new(x->a, int64_t, (size_t)n + 1));
  if (n) memcpy(copy, p, n * sizeof *p);
  *out = (at_dims){copy, n};
  return AT_OK;
}

// ---- Values

// The map's slot is one pointer, at_vals is two words: hence the record in the
// arena. A function that is imported again as a region defines its values anew,
// and the last import counts.
at_status at_imp_define(at_imp *x, const at_mvalue *v, at_vals vals) {
  at_vals *kept;
  AT_TRY_ALLOC(kept, at_new(x->a, at_vals, 1));
  *kept = vals;
  void **slot;
  AT_TRY_ALLOC(slot, at_map_put_ptr(&x->values, v));
  *slot = kept;
  return AT_OK;
}

// A value may be used where its computation is the current one or around it.
static bool in_scope(const at_imp *x, const at_comp *c) {
  for (const at_imp_scope *s = x->scope; s; s = s->up)
    if (s->comp == c) return true;
  return false;
}

// The values of an operand; what is defined in a region that is not around the
// current one must not be used.
static at_status value_find(at_imp *x, const at_mop *op, uint32_t i,
                            const at_mvalue *v, at_vals *out) {
  void **slot = at_map_find_ptr(&x->values, v);
  if (!slot)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "operand %u is used before its definition", i);
  *out = *(at_vals *)*slot;
  for (uint32_t k = 0; k < out->n; k++)
    if (!in_scope(x, out->v[k].node->parent))
      return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                        "operand %u is defined in another region", i);
  return AT_OK;
}

at_status at_imp_operand(at_imp *x, const at_mop *op, uint32_t i,
                         at_vals *out) {
  if (i >= op->num_operands)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "operand %u is missing", i);
  return value_find(x, op, i, op->operands[i], out);
}

at_status at_imp_single(at_imp *x, const at_mop *op, uint32_t i,
                        at_value *out) {
  at_vals v;
  AT_TRY(at_imp_operand(x, op, i, &v));
  if (v.n != 1)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "operand %u is a tuple", i);
  *out = v.v[0];
  return AT_OK;
}

// Two passes: the first one resolves and counts, so that the array is allocated
// once. n is summed in 64 bits and bounded before it is used as a size.
at_status at_imp_operands(at_imp *x, const at_mop *op, at_vals *out) {
  uint64_t n = 0;
  at_vals v;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    AT_TRY(at_imp_operand(x, op, i, &v));
    n += v.n;
  }
  if (n > AT_IMP_MAX_LEAVES)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "more than %d operands",
                      AT_IMP_MAX_LEAVES);
  *out = (at_vals){0};
  AT_TRY_ALLOC(out->v, at_new(x->a, at_value, n + 1));
  for (uint32_t i = 0; i < op->num_operands; i++) {
    AT_TRY(at_imp_operand(x, op, i, &v));
    for (uint32_t k = 0; k < v.n; k++) out->v[out->n++] = v.v[k];
  }
  AT_ASSERT(out->n == n);
  return AT_OK;
}

at_status at_imp_need(at_imp *x, const at_mop *op, uint32_t operands,
                      uint32_t results) {
  if (op->num_operands != operands || op->num_results != results)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "has %u operands and %u results, takes %u and %u",
                      op->num_operands, op->num_results, operands, results);
  return AT_OK;
}

// AT_DYN agrees with every size.
static bool types_agree(const at_type *a, const at_type *b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  for (uint32_t i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i] && a->dims[i] != AT_DYN &&
        b->dims[i] != AT_DYN)
      return false;
  return true;
}

// The builder has compared what it built; this catches rewrites and identities.
static at_status check_types(at_imp *x, const at_mop *op, const at_value *v,
                             const at_types *want) {
  for (uint32_t i = 0; i < want->n; i++) {
    if (types_agree(at_value_type(v[i]), &want->t[i])) continue;
    at_strbuf is = {0}, declared = {0};
    at_type_print(&is, at_value_type(v[i]));
    at_type_print(&declared, &want->t[i]);
    at_status s =
        AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                   "result %u is declared %.200s, its operands give %.200s", i,
                   declared.ptr ? declared.ptr : "?", is.ptr ? is.ptr : "?");
    at_strbuf_free(&is);
    at_strbuf_free(&declared);
    return s;
  }
  return AT_OK;
}

// The values are copied, because the callers' arrays are on their stacks.
// Result i takes the next at_imp_leaves(type) of them; the sum of those is
// want.n by the way at_imp_types_flatten counts.
at_status at_imp_define_results(at_imp *x, const at_mop *op, const at_value *v,
                                uint32_t n) {
  at_types want;
  AT_TRY(at_imp_result_types(x, op, &want));
  if (want.n != n)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "declares %u results, gives %u", want.n, n);
  AT_TRY(check_types(x, op, v, &want));
  at_value *copy;
  AT_TRY_ALLOC(copy, at_new(x->a, at_value, (size_t)n + 1));
  if (n) memcpy(copy, v, n * sizeof *v);
  for (uint32_t i = 0, at = 0; i < op->num_results; i++) {
    uint32_t leaves = at_imp_leaves(x, op->results[i].type);
    AT_ASSERT(leaves <= n - at);
    AT_TRY(at_imp_define(x, &op->results[i], (at_vals){copy + at, leaves}));
    at += leaves;
    AT_ASSERT(i + 1 < op->num_results || at == n);
  }
  return AT_OK;
}

// ---- Ops and regions

// The op's row in vhlo_ops.def; found once for each name.
static at_status row_of(at_imp *x, const at_mop *op, const at_imp_row **out) {
  void **seen = at_map_find_ptr(&x->rows, op->name);
  if (seen) return *out = (const at_imp_row *)*seen, AT_OK;
  const at_imp_row *row = at_imp_row_find(op->name);
  if (!row)
    return AT_OP_FAIL(x, op, AT_UNIMPLEMENTED,
                      "this op, or this version of it, is not supported");
  void **slot;
  AT_TRY_ALLOC(slot, at_map_put_ptr(&x->rows, op->name));
  *slot = (void *)row;
  *out = row;
  return AT_OK;
}

at_status at_imp_op(at_imp *x, const at_mop *op) {
  const at_imp_row *row;
  AT_TRY(row_of(x, op, &row));
  // Ops in the region of a copy come from the program themselves.
  const at_mop *outer = x->original;
  x->original = NULL;
  at_status st = row->how(x, op, row);
  x->original = outer;
  return st;
}

// Terminators of functions and regions.
static bool is_return(const at_mop *op) {
  static const char *const names[] = {"func.return", "stablehlo.return",
                                      "vhlo.return_v1", "sdy.return"};
  for (size_t i = 0; i < AT_LEN(names); i++)
    if (!strcmp(op->name, names[i])) return true;
  return false;
}

// Every op but the last is imported for its effect on the scope. A return
// before the end of the block is refused by its row (`structure`).
at_status at_imp_block(at_imp *x, const at_mop *op, const at_mblock *b,
                       at_vals *out) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    if (is_return(b->ops[i]) && i + 1 == b->num_ops)
      return at_imp_operands(x, b->ops[i], out);
    AT_TRY(at_imp_op(x, b->ops[i]));
  }
  return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                    "a region does not end in a return");
}

// A parameter for each leaf of each argument.
static at_status build_params(at_imp *x, const at_mop *op, const at_mblock *b,
                              at_comp *c) {
  for (uint32_t i = 0; i < b->num_args; i++) {
    const at_mvalue *arg = &b->args[i];
    at_types t;
    AT_TRY(at_imp_types_flatten(x, op, &arg->type, 1, &t));
    at_vals v = {0};
    AT_TRY_ALLOC(v.v, at_new(x->a, at_value, (size_t)t.n + 1));
    const at_loc *loc;
    AT_TRY(at_imp_loc(x, arg->loc, arg, &loc));
    for (; v.n < t.n; v.n++)
      AT_TRY(at_build_param(c, t.t[v.n], loc, &v.v[v.n]));
    AT_ASSERT(v.n == at_imp_leaves(x, arg->type));
    AT_TRY(at_imp_define(x, arg, v));
  }
  return AT_OK;
}

// The body of a region or function: exactly one block.
static at_status region_fill(at_imp *x, const at_mop *op, const at_mregion *r,
                             at_comp *c) {
  if (r->num_blocks != 1)
    return AT_OP_FAIL(x, op,
                      r->num_blocks ? AT_UNIMPLEMENTED : AT_INVALID_ARGUMENT,
                      "a region has %u blocks, takes 1", r->num_blocks);
  if (x->depth >= AT_MOST_NESTED)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "regions are nested over %d deep", AT_MOST_NESTED);
  AT_ASSERT(x->scope && x->scope->comp == c);
  x->depth++;
  AT_TRY(build_params(x, op, r->blocks[0], c));
  at_vals results;
  AT_TRY(at_imp_block(x, op, r->blocks[0], &results));
  x->depth--;
  return at_comp_return(c, results.v, results.n);
}

// isolated: no value from around it may be used (functions).
static at_status region_import(at_imp *x, const at_mop *op, const at_mregion *r,
                               bool isolated, at_comp **out) {
  at_comp *c;
  AT_TRY(at_region_create(x->m, &c));
  at_imp_scope scope = {c, isolated ? NULL : x->scope};
  const at_imp_scope *outer = x->scope;
  x->scope = &scope;
  at_status s = region_fill(x, op, r, c);
  x->scope = outer;
  AT_TRY(s);
  *out = c;
  return AT_OK;
}

// Values of the enclosing computations may be used inside; hlo's regions
// capture them as they are.
at_status at_imp_region(at_imp *x, const at_mop *op, uint32_t i,
                        at_comp **out) {
  return region_import(x, op, op->regions[i], false, out);
}

// ---- Functions

// In either spelling.
static bool is_func(const at_mop *op) {
  return !strcmp(op->name, "func.func") || !strcmp(op->name, "vhlo.func_v1");
}

// Makes the computation on the first reference and queues the body. Bodies are
// imported from that queue and not recursively, so a long chain of calls needs
// no stack. Every reference adds an edge for check_recursion; the entry is
// referenced by no function and adds none.
at_status at_imp_callee(at_imp *x, const at_mop *op, at_str name,
                        at_imp_func **out) {
  void **slot = at_map_find(&x->funcs, name);
  if (!slot)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "no function `%.*s`",
                      (int)AT_MIN(name.len, 200), name.ptr ? name.ptr : "");
  at_imp_func *f = (at_imp_func *)*slot;
  if (!f->comp) {
    AT_TRY(at_comp_create(x->m, name, NULL, &f->comp));
    if (!at_vec_push(x->a, &x->pending, f)) return AT_NO_MEMORY("functions");
  }
  if (x->func && (!at_vec_push(x->a, &x->edges, x->func->index) ||
                  !at_vec_push(x->a, &x->edges, f->index)))
    return AT_NO_MEMORY("call graph");
  *out = f;
  return AT_OK;
}

// The builtin FUNCTION type that both spellings of a function carry in
// `function_type`.
at_status at_imp_func_type(at_imp *x, const at_mop *func,
                           const at_mtype **out) {
  const at_mattr *t = at_mop_attr(func, "function_type");
  if (!t || t->kind != AT_MATTR_TYPE || !t->type ||
      t->type->kind != AT_MTYPE_FUNCTION)
    return AT_OP_FAIL(x, func, AT_INVALID_ARGUMENT, "has no function type");
  *out = t->type;
  return AT_OK;
}

// The body's arguments against the function's type.
static at_status check_arguments(at_imp *x, const at_mop *func) {
  const at_mtype *t;
  AT_TRY(at_imp_func_type(x, func, &t));
  if (func->num_regions != 1 || func->regions[0]->num_blocks == 0)
    return AT_OP_FAIL(x, func, AT_INVALID_ARGUMENT, "has no body");
  const at_mblock *b = func->regions[0]->blocks[0];
  bool same = b->num_args == t->num_types;
  for (uint32_t i = 0; same && i < b->num_args; i++)
    same = at_mtype_eq(b->args[i].type, t->types[i]);
  if (!same)
    return AT_OP_FAIL(x, func, AT_INVALID_ARGUMENT,
                      "arguments of the body differ from the function's type");
  return AT_OK;
}

// What the body returns against the function's type.
static at_status check_returned(at_imp *x, const at_mop *func,
                                const at_comp *c) {
  const at_mtype *t;
  at_types want;
  AT_TRY(at_imp_func_type(x, func, &t));
  AT_TRY(at_imp_types_flatten(x, func, t->results, t->num_results, &want));
  if (want.n != c->num_results)
    return AT_OP_FAIL(x, func, AT_INVALID_ARGUMENT,
                      "declares %u results, returns %u", want.n,
                      c->num_results);
  return check_types(x, func, c->results, &want);
}

// A called computation may be used many times, and use others in turn.
at_status at_imp_func_region(at_imp *x, const at_mop *op, at_str name,
                             at_comp **out) {
  void **slot = at_map_find(&x->funcs, name);
  if (!slot)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "no function `%.*s`",
                      (int)AT_MIN(name.len, 200), name.ptr ? name.ptr : "");
  const at_mop *func = ((at_imp_func *)*slot)->op;
  AT_TRY(check_arguments(x, func));
  x->inlined += func->regions[0]->blocks[0]->num_ops + 1u;
  if (x->inlined > MAX_INLINED)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "called computations have over %d ops", MAX_INLINED);
  AT_TRY(region_import(x, func, func->regions[0], true, out));
  return check_returned(x, func, *out);
}

// The body of a function that something reachable has called.
static at_status func_import(at_imp *x, at_imp_func *f) {
  const at_mop *op = f->op;
  AT_TRY(check_arguments(x, op));
  at_imp_scope scope = {f->comp, NULL};
  x->scope = &scope;
  x->func = f;
  at_status s = region_fill(x, op, op->regions[0], f->comp);
  x->scope = NULL;
  x->func = NULL;
  AT_TRY(s);
  return check_returned(x, op, f->comp);
}

// No function may reach itself: take away functions that nobody left calls.
static at_status check_recursion(at_imp *x, uint32_t num_funcs) {
  uint32_t *calls, *ready, num_ready = 0;
  AT_TRY_ALLOC(calls, at_new(x->a, uint32_t, (size_t)num_funcs + 1));
  AT_TRY_ALLOC(ready, at_new(x->a, uint32_t, (size_t)num_funcs + 1));
  for (size_t i = 1; i < x->edges.len; i += 2) calls[x->edges.ptr[i]]++;
  // Edges by caller, in one array.
  uint32_t *first, *list;
  AT_TRY_ALLOC(first, at_new(x->a, uint32_t, (size_t)num_funcs + 2));
  AT_TRY_ALLOC(list, at_new(x->a, uint32_t, x->edges.len / 2 + 1));
  for (size_t i = 0; i < x->edges.len; i += 2) first[x->edges.ptr[i] + 2]++;
  for (uint32_t i = 2; i <= num_funcs; i++) first[i] += first[i - 1];
  for (size_t i = 0; i < x->edges.len; i += 2)
    list[first[x->edges.ptr[i] + 1]++] = x->edges.ptr[i + 1];
  // Each caller's part ends where the next one's begins, and all are taken.
  AT_ASSERT(first[0] == 0 && first[num_funcs] == x->edges.len / 2);
  for (uint32_t i = 0; i < num_funcs; i++)
    if (!calls[i]) ready[num_ready++] = i;
  for (uint32_t i = 0; i < num_ready; i++)
    for (uint32_t e = first[ready[i]]; e < first[ready[i] + 1]; e++)
      if (--calls[list[e]] == 0) ready[num_ready++] = list[e];
  AT_ASSERT(num_ready <= num_funcs);
  if (num_ready == num_funcs) return AT_OK;
  for (uint32_t i = 0; i < num_funcs; i++)
    if (calls[i])
      for (size_t k = 0; k < x->funcs.len; k++) {
        at_imp_func *f = (at_imp_func *)x->funcs.entries[k].value;
        if (f->index == i)
          return AT_OP_FAIL(x, f->op, AT_INVALID_ARGUMENT,
                            "recursive calls are not supported");
      }
  return AT_OK;
}

// ---- Module

// Functions are known before any body is imported: calls may go forward.
static at_status func_declare(at_imp *x, const at_mop *op) {
  at_str name;
  AT_TRY(at_imp_str(x, op, "sym_name", &name));
  if (name.len == 0 || memchr(name.ptr, 0, name.len))
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "has no name, or one with a zero byte");
  if (at_map_find(&x->funcs, name))
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "`%.200s` is defined twice",
                      name.ptr);
  at_imp_func *f;
  AT_TRY_ALLOC(f, at_new(x->a, at_imp_func, 1));
  f->op = op;
  f->index = (uint32_t)x->funcs.len;
  void **slot;
  AT_TRY_ALLOC(slot, at_map_put(&x->funcs, name));
  *slot = f;
  return AT_OK;
}

// First pass over the module: declares functions and meshes, imports no body.
// Anything else at module level is refused by name.
static at_status module_declare(at_imp *x, const at_mop *module) {
  if (module->num_regions != 1 || module->regions[0]->num_blocks > 1)
    return AT_OP_FAIL(x, module, AT_INVALID_ARGUMENT, "takes one block");
  if (module->regions[0]->num_blocks == 0) return AT_OK;
  const at_mblock *b = module->regions[0]->blocks[0];
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    if (is_func(op))
      AT_TRY(func_declare(x, op));
    else if (!strcmp(op->name, "sdy.mesh"))
      AT_TRY(at_imp_mesh(x, op));
    else
      return AT_OP_FAIL(x, op, AT_UNIMPLEMENTED,
                        "is not supported at module level");
  }
  return AT_OK;
}

// `main`, or the only function of a module that has no `main` (hand-written
// programs). Referencing it makes it the first one in the queue.
static at_status entry_find(at_imp *x, at_imp_func **out) {
  at_str name = AT_STR("main");
  if (!at_map_find(&x->funcs, name) && x->funcs.len == 1)
    name = x->funcs.entries[0].key;
  if (!at_map_find(&x->funcs, name))
    return AT_OP_FAIL(x, x->src->op, AT_INVALID_ARGUMENT,
                      "has no function `main`");
  return at_imp_callee(x, x->src->op, name, out);
}

// The order matters: meshes and functions are declared before any body, the
// queue grows while it is walked, and recursion is checked when all edges are
// known. Argument and result facts come last, because they are counted against
// the entry's parameters and results.
static at_status import_all(at_imp *x) {
  at_str name;
  AT_TRY(at_imp_str(x, x->src->op, "sym_name", &name));
  AT_TRY(at_module_create(x->a, name.len ? name : AT_STR("main"), &x->m));
  AT_TRY(at_imp_module_info(x, x->src->op));
  AT_TRY(module_declare(x, x->src->op));
  at_imp_func *entry;
  AT_TRY(entry_find(x, &entry));
  x->m->entry = entry->comp;
  for (size_t i = 0; i < x->pending.len; i++)
    AT_TRY(func_import(x, x->pending.ptr[i]));
  AT_TRY(check_recursion(x, (uint32_t)x->funcs.len));
  return at_imp_entry_info(x, entry->op);
}

// All maps live in the arena of the result, so a failure needs no clean-up
// here; the caller drops the arena.
at_status at_import(const at_mmodule *m, at_arena *a, at_module **out) {
  at_imp x = {.src = m,
              .a = a,
              .values = at_map_in(a),
              .rows = at_map_in(a),
              .locs = at_map_in(a),
              .funcs = at_map_in(a),
              .leaves = at_map_in(a),
              .meshes = at_map_in(a)};
  AT_TRY(import_all(&x));
  *out = x.m;
  // What was entered was left, and every function that was named has a body.
  AT_ASSERT(!x.scope && !x.func && !x.original && x.depth == 0);
  AT_ASSERT(x.m->num_funcs == x.pending.len);
  // The builder checks each node; regions and uses as a whole are checked here.
  return at_verify(x.m, "import");
}
