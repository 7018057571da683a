// Modules, operations, regions and blocks in text. A first walk numbers values,
// blocks and locations in the order of printing; the second prints. Locations
// are lines at the end of the file, each before those that refer to it, because
// programs share them and chains of them are long.
#include <stdint.h>

#include "base/verify.h"
#include "mlir/print.h"

// ---- Names
static void number_region(at_mprint *p, const at_mregion *r);

// Lack of memory is noted in `failed`, which at_mlir_print reports.
static void note(at_mprint *p, at_map *map, const void *key, uint64_t value) {
  void **slot = at_map_put_ptr(map, key);
  if (slot)
    *slot = (void *)(uintptr_t)value;
  else
    p->failed = true;
}

// Recursion as deep as the chain of locations, which readers bound; each
// location once.
static void number_loc(at_mprint *p, const at_mloc *l) {
  if (!p->opt.locations || !l || l->kind == AT_MLOC_UNKNOWN ||
      at_map_find_ptr(&p->locs, l))
    return;
  // What a location refers to is defined before it.
  number_loc(p, l->child);
  number_loc(p, l->caller);
  for (uint32_t i = 0; i < l->num_locs; i++) number_loc(p, l->locs[i]);
  note(p, &p->locs, l, p->locs.len + 1);
}

// Results share one number, arguments count by themselves: %3#1 and %arg2.
// Numbers are given in the order of printing.
static void number_op(at_mprint *p, const at_mop *op) {
  number_loc(p, op->loc);
  for (uint32_t i = 0; i < op->num_results; i++)
    note(p, &p->values, &op->results[i], ((uint64_t)p->num_values + 1) << 1);
  p->num_values += op->num_results != 0;
  bool loop = strcmp(op->name, "stablehlo.while") == 0;
  uint32_t first_arg = p->num_args;
  for (uint32_t i = 0; i < op->num_regions; i++) {
    uint32_t after = p->num_args;
    // The two regions of a loop call their arguments by the same names.
    if (loop && i == 1 && op->regions[1]->num_blocks == 1) {
      const at_mblock *b = op->regions[1]->blocks[0];
      for (uint32_t k = 0; k < b->num_args; k++)
        note(p, &p->values, &b->args[k],
             (uint64_t)(first_arg + k + 1) << 1 | 1);
      p->num_args = AT_MAX(after, first_arg + b->num_args);
    }
    number_region(p, op->regions[i]);
  }
}

// Arguments that a loop's first region has named keep their name.
static void number_region(at_mprint *p, const at_mregion *r) {
  for (uint32_t i = 0; i < r->num_blocks; i++) {
    const at_mblock *b = r->blocks[i];
    note(p, &p->blocks, b, p->num_blocks++ + 1);
    for (uint32_t k = 0; k < b->num_args; k++) {
      number_loc(p, b->args[k].loc);
      if (!at_map_find_ptr(&p->values, &b->args[k]))
        note(p, &p->values, &b->args[k], (uint64_t)++p->num_args << 1 | 1);
    }
    for (uint32_t k = 0; k < b->num_ops; k++) number_op(p, b->ops[k]);
  }
}

// 0: has no number.
static uint64_t find(const at_map *map, const void *key) {
  void **slot = at_map_find_ptr(map, key);
  return slot ? (uint64_t)(uintptr_t)*slot : 0;
}

// A value of several has # and its index behind the shared number.
void at_mprint_value(at_mprint *p, const at_mvalue *v) {
  uint64_t n = find(&p->values, v);
  at_strbuf_addf(p->out, n & 1 ? "%%arg%u" : "%%%u", (uint32_t)(n >> 1) - 1);
  if (v->op && v->op->num_results > 1) at_strbuf_addf(p->out, "#%u", v->index);
}

// By commas.
void at_mprint_values(at_mprint *p, at_mvalue *const *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (i) at_strbuf_addz(p->out, ", ");
    at_mprint_value(p, v[i]);
  }
}

// Blocks count through the whole program.
static void block_name(at_mprint *p, const at_mblock *b) {
  at_strbuf_addf(p->out, "^bb%u", (uint32_t)find(&p->blocks, b) - 1);
}

// Two blanks for each level.
void at_mprint_newline(at_mprint *p) {
  at_strbuf_addc(p->out, '\n');
  for (uint32_t i = 0; i < p->indent; i++) at_strbuf_addz(p->out, "  ");
}

// ---- Attributes and locations
void at_mprint_loc(at_mprint *p, const at_mloc *l) {
  if (!p->opt.locations || !l) return;
  if (l->kind == AT_MLOC_UNKNOWN)
    at_strbuf_addz(p->out, " loc(unknown)");
  else
    at_strbuf_addf(p->out, " loc(#loc%u)", (uint32_t)find(&p->locs, l));
}

// Resources may stand anywhere inside an attribute.
static void note_resources(at_mprint *p, const at_mattr *a) {
  if (a->kind == AT_MATTR_RESOURCE && a->data.len) {
    void **slot = at_map_put(&p->resources, at_str_of(a->name));
    if (slot)
      *slot = (void *)(uintptr_t)a;
    else
      p->failed = true;
  }
  for (uint32_t i = 0; i < a->num_elems; i++) {
    if (a->elems) note_resources(p, a->elems[i]);
    if (a->fields) note_resources(p, a->fields[i].value);
  }
}

// Elision is for readers: a program printed with it does not read back.
void at_mprint_attr(at_mprint *p, const at_mattr *a) {
  if (a->kind == AT_MATTR_DENSE && p->opt.elide_dense_over && !a->splat &&
      at_mtype_num_elems(a->type) > p->opt.elide_dense_over) {
    at_strbuf_addz(p->out, "dense_resource<__elided__> : ");
    at_mtype_print(p->out, a->type);
    return;
  }
  note_resources(p, a);
  at_mattr_print(p->out, a);
}

// A unit attribute is its name alone.
static void one_attr(at_mprint *p, const at_mnamed *n) {
  at_mprint_key(p->out, at_str_of(n->name));
  if (n->value->kind == AT_MATTR_UNIT) return;
  at_strbuf_addz(p->out, " = ");
  at_mprint_attr(p, n->value);
}

void at_mprint_dict(at_mprint *p, const at_mnamed *v, uint32_t n) {
  at_strbuf_addc(p->out, '{');
  for (uint32_t i = 0; i < n; i++) {
    if (i) at_strbuf_addz(p->out, ", ");
    one_attr(p, &v[i]);
  }
  at_strbuf_addc(p->out, '}');
}

// skip: names with a blank before and after each.
static bool listed(const char *skip, const char *name) {
  size_t n = strlen(name);
  for (const char *s = skip; n && (s = strstr(s, name)); s += n)
    if (s > skip && s[-1] == ' ' && s[n] == ' ') return true;
  return false;
}

// `before` is printed only if an attribute follows.
void at_mprint_rest(at_mprint *p, const at_mop *op, const char *before,
                    const char *skip) {
  bool any = false;
  for (uint32_t i = 0; i < op->num_attrs; i++) {
    if (listed(skip, op->attrs[i].name)) continue;
    at_strbuf_addz(p->out, any ? ", " : before);
    if (!any) at_strbuf_addz(p->out, " {");
    one_attr(p, &op->attrs[i]);
    any = true;
  }
  if (any) at_strbuf_addc(p->out, '}');
}

// ---- Regions
void at_mprint_arg(at_mprint *p, const at_mvalue *v, const at_mattr *attrs) {
  at_mprint_value(p, v);
  at_strbuf_addz(p->out, ": ");
  at_mtype_print(p->out, v->type);
  if (attrs && attrs->num_elems) {
    at_strbuf_addc(p->out, ' ');
    at_mprint_attr(p, attrs);
  }
  at_mprint_loc(p, v->loc);
}

static void print_op(at_mprint *p, const at_mop *op);

// Whether a branch of the region goes to the block: then it needs its label.
static bool is_target(const at_mregion *r, const at_mblock *b) {
  for (uint32_t i = 0; i < r->num_blocks; i++)
    for (uint32_t k = 0; k < r->blocks[i]->num_ops; k++) {
      const at_mop *op = r->blocks[i]->ops[k];
      for (uint32_t s = 0; s < op->num_successors; s++)
        if (op->successors[s] == b) return true;
    }
  return false;
}

// ^bb1(%arg0: type):
static void block_header(at_mprint *p, const at_mblock *b) {
  at_mprint_newline(p);
  block_name(p, b);
  if (b->num_args) {
    at_strbuf_addc(p->out, '(');
    for (uint32_t i = 0; i < b->num_args; i++) {
      if (i) at_strbuf_addz(p->out, ", ");
      at_mprint_arg(p, &b->args[i], NULL);
    }
    at_strbuf_addc(p->out, ')');
  }
  at_strbuf_addc(p->out, ':');
}

// entry_header false: the arguments of the first block stand elsewhere in the
// operation's form.
void at_mprint_region(at_mprint *p, const at_mregion *r, bool entry_header) {
  at_strbuf_addc(p->out, '{');
  for (uint32_t i = 0; i < r->num_blocks; i++) {
    const at_mblock *b = r->blocks[i];
    bool header =
        i || (entry_header && (b->num_args || !b->num_ops || is_target(r, b)));
    if (header) block_header(p, b);
    p->indent++;
    for (uint32_t k = 0; k < b->num_ops; k++) {
      at_mprint_newline(p);
      print_op(p, b->ops[k]);
    }
    p->indent--;
  }
  at_mprint_newline(p);
  at_strbuf_addc(p->out, '}');
}

// ---- Operations
void at_mprint_function(at_mprint *p, const at_mop *op) {
  at_strbuf_addc(p->out, '(');
  for (uint32_t i = 0; i < op->num_operands; i++) {
    if (i) at_strbuf_addz(p->out, ", ");
    at_mtype_print(p->out, op->operands[i]->type);
  }
  at_strbuf_addz(p->out, ") -> ");
  bool one =
      op->num_results == 1 && op->results[0].type->kind != AT_MTYPE_FUNCTION;
  if (!one) at_strbuf_addc(p->out, '(');
  for (uint32_t i = 0; i < op->num_results; i++) {
    if (i) at_strbuf_addz(p->out, ", ");
    at_mtype_print(p->out, op->results[i].type);
  }
  if (!one) at_strbuf_addc(p->out, ')');
}

// MLIR's form for any operation: everything that it has, in quotes and
// brackets.
static void generic(at_mprint *p, const at_mop *op) {
  at_mprint_string(p->out, at_str_of(op->name));
  at_strbuf_addc(p->out, '(');
  at_mprint_values(p, op->operands, op->num_operands);
  at_strbuf_addc(p->out, ')');
  if (op->num_successors) {
    at_strbuf_addc(p->out, '[');
    for (uint32_t i = 0; i < op->num_successors; i++) {
      if (i) at_strbuf_addz(p->out, ", ");
      block_name(p, op->successors[i]);
    }
    at_strbuf_addc(p->out, ']');
  }
  if (op->num_regions) {
    at_strbuf_addz(p->out, " (");
    for (uint32_t i = 0; i < op->num_regions; i++) {
      if (i) at_strbuf_addz(p->out, ", ");
      at_mprint_region(p, op->regions[i], true);
    }
    at_strbuf_addc(p->out, ')');
  }
  if (op->num_attrs) {
    at_strbuf_addc(p->out, ' ');
    at_mprint_dict(p, op->attrs, op->num_attrs);
  }
  at_strbuf_addz(p->out, " : ");
  at_mprint_function(p, op);
}

// The pretty form is tried first; what it has written is taken back where it
// does not fit.
static void print_op(at_mprint *p, const at_mop *op) {
  if (op->num_results) {
    at_strbuf_addf(p->out, "%%%u",
                   (uint32_t)(find(&p->values, op->results) >> 1) - 1);
    if (op->num_results > 1) at_strbuf_addf(p->out, ":%u", op->num_results);
    at_strbuf_addz(p->out, " = ");
  }
  size_t mark = p->out->len;
  if (p->opt.generic || !at_mprint_pretty(p, op)) {
    if (p->out->ptr) p->out->ptr[p->out->len = mark] = 0;
    generic(p, op);
  }
  at_mprint_loc(p, op->loc);
}

// ---- The end of the file
static void loc_ref(at_mprint *p, const at_mloc *l) {
  if (l->kind == AT_MLOC_UNKNOWN)
    at_strbuf_addz(p->out, "unknown");
  else
    at_strbuf_addf(p->out, "#loc%u", (uint32_t)find(&p->locs, l));
}

// "#loc3 = loc(...)"; locations that it refers to have lines before it.
static void loc_line(at_mprint *p, const at_mloc *l) {
  at_strbuf_addf(p->out, "#loc%u = loc(", (uint32_t)find(&p->locs, l));
  if (l->kind == AT_MLOC_NAME && l->child->kind != AT_MLOC_UNKNOWN) {
    at_mprint_string(p->out, at_str_of(l->text));
    at_strbuf_addc(p->out, '(');
    loc_ref(p, l->child);
    at_strbuf_addc(p->out, ')');
  } else if (l->kind == AT_MLOC_CALLSITE) {
    at_strbuf_addz(p->out, "callsite(");
    loc_ref(p, l->child);
    at_strbuf_addz(p->out, " at ");
    loc_ref(p, l->caller);
    at_strbuf_addc(p->out, ')');
  } else if (l->kind == AT_MLOC_FUSED) {
    at_strbuf_addz(p->out, "fused");
    if (l->metadata) {
      at_strbuf_addc(p->out, '<');
      at_mattr_print(p->out, l->metadata);
      at_strbuf_addc(p->out, '>');
    }
    at_strbuf_addc(p->out, '[');
    for (uint32_t i = 0; i < l->num_locs; i++) {
      if (i) at_strbuf_addz(p->out, ", ");
      loc_ref(p, l->locs[i]);
    }
    at_strbuf_addc(p->out, ']');
  } else {
    at_mloc_print(p->out, l);
  }
  at_strbuf_addz(p->out, ")\n");
}

// The blobs of all resources that were printed, each with its alignment, 64, in
// front.
static void resources(at_mprint *p) {
  at_strbuf_addz(p->out, "{-#\n  dialect_resources: {\n    builtin: {");
  for (size_t i = 0; i < p->resources.len; i++) {
    const at_mattr *a = p->resources.entries[i].value;
    at_strbuf_addz(p->out, i ? ",\n      " : "\n      ");
    at_mprint_key(p->out, at_str_of(a->name));
    at_strbuf_addz(p->out, ": \"0x40000000");
    for (size_t k = 0; k < a->data.len; k++)
      at_strbuf_addf(p->out, "%02X", a->data.ptr[k]);
    at_strbuf_addc(p->out, '"');
  }
  at_strbuf_addz(p->out, "\n    }\n  }\n#-}\n");
}

// Values, blocks and locations are numbered in a first walk, so that uses
// before definitions have names.
at_status at_mlir_print(const at_mmodule *m, const at_mlir_print_options *opt,
                        at_strbuf *out) {
  at_mprint p = {.out = out, .arena = at_arena_create()};
  if (opt) p.opt = *opt;
  if (!p.arena) return AT_NO_MEMORY("printing");
  p.values = p.blocks = p.locs = p.resources = at_map_in(p.arena);
  number_op(&p, m->op);
  size_t from = out->len;
  if (!p.failed) {
    print_op(&p, m->op);
    at_strbuf_addc(out, '\n');
    for (size_t i = 0; i < p.locs.len; i++)
      loc_line(&p, (const at_mloc *)(const void *)p.locs.entries[i].key.ptr);
    if (p.resources.len) resources(&p);
  }
  bool failed = p.failed || out->failed;
  AT_VERIFY(failed || p.opt.elide_dense_over ||
            at_mlir_reads_as(m, (at_str){out->ptr + from, out->len - from},
                             p.opt.locations));
  at_arena_destroy(p.arena);
  return p.failed ? AT_NO_MEMORY("printing") : at_strbuf_status(out);
}
