// Every operation against its row of the table: kinds of operands, results and
// attributes, operand groups, order of definition and use, then its type rule.
#include "mosaic/mosaic_internal.h"

// ---- Rows: "name:kind name?:kind name*:kind"
typedef struct field {
  at_str name, kind;
  char mark;  // '?', '*' or 0
} field;

// The next "name:kind" of a row's text; the mark stands behind the name.
static bool next_field(const char **spec, field *f) {
  const char *p = *spec;
  while (*p == ' ') p++;
  if (!*p) return false;
  const char *colon = strchr(p, ':');
  const char *end = colon + strcspn(colon, " ");
  f->name = (at_str){p, (size_t)(colon - p)};
  f->kind = (at_str){colon + 1, (size_t)(end - colon - 1)};
  f->mark = colon[-1] == '?' || colon[-1] == '*' ? colon[-1] : 0;
  if (f->mark) f->name.len--;
  *spec = end;
  return true;
}

// ---- Kinds of types
static const at_mtype *elem_of(const at_mtype *t) {
  return t->kind == AT_MTYPE_VECTOR ? t->elem : t;
}
static bool is_int(const at_mtype *t, bool index) {
  return (t->kind == AT_MTYPE_INTEGER && at_mosaic_dtype_of(t) != AT_INVALID) ||
         (index && t->kind == AT_MTYPE_INDEX);
}
static bool is_float(const at_mtype *t) {
  return t->kind == AT_MTYPE_FLOAT && at_mosaic_dtype_of(t) != AT_INVALID;
}
static bool is_width(const at_mtype *t, uint32_t width) {
  return t->kind == AT_MTYPE_INTEGER && t->width == width;
}
// semaphore: 0 any ref, 1 any semaphore, 2 regular or barrier, 3 DMA.
static bool is_ref(const at_mtype *t, int semaphore) {
  at_mosaic_ref r;
  at_status s = at_mosaic_ref_of(t, &r);
  bool good = at_ok(s);
  at_status_free(s);
  if (!good) return false;
  if (semaphore == 0) return true;
  if (semaphore == 1) return r.semaphore != AT_MSEM_NONE;
  return semaphore == 2
             ? r.semaphore == AT_MSEM_REGULAR || r.semaphore == AT_MSEM_BARRIER
             : r.semaphore == AT_MSEM_DMA;
}

enum { MAX_RANK = 16 };

// Static, positive dimensions and elements that are numbers.
static bool is_vector(const at_mtype *t, uint32_t min_rank) {
  if (t->kind != AT_MTYPE_VECTOR || t->shape.rank < min_rank ||
      t->shape.rank > MAX_RANK || !(is_int(t->elem, true) || is_float(t->elem)))
    return false;
  for (uint32_t i = 0; i < t->shape.rank; i++)
    if (t->shape.ptr[i] <= 0) return false;
  return true;
}

// The kinds of ops.def. Scalars are allowed where "like" is part of the name.
static bool has_kind(const at_mtype *t, at_str kind) {
  const at_mtype *e = elem_of(t);
  bool vector = t->kind == AT_MTYPE_VECTOR;
  if (vector && !is_vector(t, 0)) return false;
  if (at_str_is(kind, "any")) return true;
  if (at_str_is(kind, "num"))
    return !vector && (is_int(t, true) || is_float(t));
  if (at_str_is(kind, "int")) return is_int(t, true);
  if (at_str_is(kind, "i32")) return is_width(t, 32);
  if (at_str_is(kind, "index")) return t->kind == AT_MTYPE_INDEX;
  if (at_str_is(kind, "flag")) return is_width(t, 1);
  if (at_str_is(kind, "like")) return is_int(e, true) || is_float(e);
  if (at_str_is(kind, "flike")) return is_float(e);
  if (at_str_is(kind, "ilike")) return is_int(e, true);
  if (at_str_is(kind, "blike")) return is_width(e, 1);
  if (at_str_is(kind, "vec0")) return vector;
  if (at_str_is(kind, "ref")) return is_ref(t, 0);
  if (at_str_is(kind, "sem")) return is_ref(t, 1);
  if (at_str_is(kind, "regsem")) return is_ref(t, 2);
  if (at_str_is(kind, "dmasem")) return is_ref(t, 3);
  if (!is_vector(t, 1)) return false;
  if (at_str_is(kind, "vec")) return true;
  if (at_str_is(kind, "vecb")) return is_width(e, 1);
  if (at_str_is(kind, "veci")) return is_int(e, true);
  return at_str_is(kind, "vec32") && (is_width(e, 32) || is_float(e));
}

// The kind as messages say it.
static const char *kind_text(at_str kind) {
  static const struct {
    const char *kind, *text;
  } texts[] = {{"any", "anything"},
               {"num", "a number"},
               {"int", "an integer"},
               {"i32", "an i32"},
               {"index", "an index"},
               {"flag", "an i1"},
               {"like", "a number or a vector"},
               {"flike", "a float or a vector of floats"},
               {"ilike", "an integer or a vector of integers"},
               {"blike", "an i1 or a vector of i1"},
               {"vec0", "a vector"},
               {"ref", "a memref"},
               {"sem", "a memref of semaphores"},
               {"regsem", "a memref of regular semaphores"},
               {"dmasem", "a memref of DMA semaphores"},
               {"vec", "a vector of rank 1 or more"},
               {"vecb", "a vector of i1"},
               {"veci", "a vector of integers"},
               {"vec32", "a vector of i32 or f32"}};
  for (size_t i = 0; i < AT_LEN(texts); i++)
    if (at_str_is(kind, texts[i].kind)) return texts[i].text;
  return "?";
}

// ---- Operands and results
bool at_mosaic_segments(const at_mop *op, at_arena *a, at_dims *out) {
  return at_mosaic_attr_ints(at_mop_attr(op, "operandSegmentSizes"), a, out);
}

// The detail is the row's own text.
static at_status wrong_count(at_mosaic_verifier *v, const at_mop *op,
                             const char *what, uint32_t n, const char *spec) {
  return at_mosaic_fail(
      v->k, op, AT_INVALID_ARGUMENT,
      "'%s' op has a wrong number of %s: %u\ndetail: it takes "
      "(%s)",
      op->name, what, n, spec);
}

// How many values each group has. Without segments the groups that may vary
// share what the others leave, equally.
static at_status group_sizes(at_mosaic_verifier *v, const at_mop *op,
                             const char *what, const char *spec, uint32_t n,
                             at_dims segments, uint32_t *sizes) {
  uint32_t fixed = 0, varying = 0, groups = 0;
  field f;
  for (const char *p = spec; next_field(&p, &f); groups++)
    f.mark ? varying++ : fixed++;
  if (n < fixed || groups > 16) return wrong_count(v, op, what, n, spec);
  uint32_t rest = n - fixed, g = 0;
  if (segments.ptr && segments.rank != groups)
    return wrong_count(v, op, "operand groups", segments.rank, spec);
  for (const char *p = spec; next_field(&p, &f); g++) {
    if (segments.ptr) {
      if (segments.ptr[g] < 0 || segments.ptr[g] > n)
        return wrong_count(v, op, what, n, spec);
      sizes[g] = (uint32_t)segments.ptr[g];
    } else {
      sizes[g] = f.mark ? rest / varying : 1;
    }
    if (f.mark != '*' && sizes[g] > 1) return wrong_count(v, op, what, n, spec);
    if (!f.mark && sizes[g] != 1) return wrong_count(v, op, what, n, spec);
  }
  uint64_t sum = 0;
  for (uint32_t i = 0; i < groups; i++) sum += sizes[i];
  return sum == n ? AT_OK : wrong_count(v, op, what, n, spec);
}

// More elements than any core has memory for; placeholders of symbolic sizes
// are as large as that.
static bool too_large(at_mosaic_verifier *v, const at_mtype *t) {
  int64_t n = 1;
  if (t->kind != AT_MTYPE_VECTOR || v->k->symbolic) return false;
  for (uint32_t i = 0; i < t->shape.rank; i++)
    if (__builtin_mul_overflow(n, t->shape.ptr[i], &n)) return true;
  return n > INT32_MAX;
}

// Kind of each operand or result, by its group.
static at_status check_values(at_mosaic_verifier *v, const at_mop *op,
                              bool results, at_dims segments) {
  const at_mosaic_op_info *info = at_mosaic_op_info_of(at_mosaic_opcode_of(op));
  const char *spec = results ? info->results : info->operands;
  const char *what = results ? "results" : "operands";
  uint32_t n = results ? op->num_results : op->num_operands, at = 0, g = 0;
  uint32_t sizes[16];
  AT_TRY(group_sizes(v, op, what, spec, n, segments, sizes));
  field f;
  for (const char *p = spec; next_field(&p, &f); g++)
    for (uint32_t i = 0; i < sizes[g]; i++, at++) {
      const at_mtype *t =
          results ? op->results[at].type : op->operands[at]->type;
      if (has_kind(t, f.kind) && !too_large(v, t)) continue;
      return at_mosaic_fail(v->k, op, AT_INVALID_ARGUMENT,
                            "'%s' op %s #%u (%.*s) must be %s", op->name,
                            results ? "result" : "operand", at, (int)f.name.len,
                            f.name.ptr, kind_text(f.kind));
    }
  return AT_OK;
}

// ---- Attributes
// The kinds of attributes of ops.def.
static bool attr_is(at_mosaic_verifier *v, const at_mattr *a, at_str kind) {
  at_dims d;
  if (at_str_is(kind, "any")) return true;
  if (at_str_is(kind, "int")) return a->kind == AT_MATTR_INTEGER;
  if (at_str_is(kind, "bool"))
    return a->kind == AT_MATTR_BOOL || a->kind == AT_MATTR_INTEGER;
  if (at_str_is(kind, "str")) return a->kind == AT_MATTR_STRING;
  if (at_str_is(kind, "type")) return a->kind == AT_MATTR_TYPE;
  if (at_str_is(kind, "ints") || at_str_is(kind, "segments"))
    return at_mosaic_attr_ints(a, v->scratch, &d);
  return at_str_starts(kind, "enum.") && a->kind == AT_MATTR_DIALECT &&
         strstr(a->name, ".") &&
         at_str_is((at_str){kind.ptr + 5, kind.len - 5},
                   strstr(a->name, ".") + 1);
}

// Required attributes are there, and those that are there have their kind;
// *segments: operandSegmentSizes, if the row has them.
static at_status check_attrs(at_mosaic_verifier *v, const at_mop *op,
                             at_dims *segments) {
  field f;
  for (const char *p = at_mosaic_op_info_of(at_mosaic_opcode_of(op))->attrs;
       next_field(&p, &f);) {
    char name[64];
    memcpy(name, f.name.ptr, f.name.len);
    name[f.name.len] = 0;
    const at_mattr *a = at_mop_attr(op, name);
    if (!a && f.mark) continue;
    if (!a)
      return at_mosaic_fail(v->k, op, AT_INVALID_ARGUMENT,
                            "'%s' op requires attribute '%s'", op->name, name);
    if (!attr_is(v, a, f.kind))
      return at_mosaic_fail(v->k, op, AT_INVALID_ARGUMENT,
                            "'%s' op attribute '%s' is not of kind %.*s",
                            op->name, name, (int)f.kind.len, f.kind.ptr);
    if (at_str_is(f.kind, "segments"))
      at_mosaic_attr_ints(a, v->scratch, segments);
  }
  return AT_OK;
}

// ---- Order
// Is b outer, or in a region inside it?
static bool is_inside(const at_mblock *b, const at_mblock *outer) {
  while (b && b != outer) {
    const at_mop *op = b->region ? b->region->op : NULL;
    b = op ? op->block : NULL;
  }
  return b != NULL;
}

static const at_mblock *block_of(const at_mvalue *x) {
  return x->op ? x->op->block : x->block;
}

// Definition before use, in a block around the use. `seen` has values in the
// order of the walk.
static at_status check_uses(at_mosaic_verifier *v, const at_mop *op) {
  for (uint32_t i = 0; i < op->num_operands; i++) {
    const at_mvalue *x = op->operands[i];
    if (!at_map_find_ptr(&v->seen, x) || !is_inside(op->block, block_of(x)))
      return at_mosaic_fail(v->k, op, AT_INVALID_ARGUMENT,
                            "operand #%u does not dominate this use", i);
  }
  return AT_OK;
}

// From here on the value may be used.
static at_status define(at_mosaic_verifier *v, const at_mvalue *x) {
  void **slot;
  AT_TRY_ALLOC(slot, at_map_put_ptr(&v->seen, x));
  *slot = v;
  return AT_OK;
}

// Ends a block and hands its operands to the operation around it.
static bool is_terminator(const at_mop *op) {
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_SCF_YIELD:
    case AT_MOSAIC_SCF_CONDITION:
    case AT_MOSAIC_FUNC_RETURN:
    case AT_MOSAIC_TPU_YIELD:
      return true;
    default:
      return false;
  }
}

// All others are leaves.
static bool may_have_regions(const at_mop *op) {
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_SCF_IF:
    case AT_MOSAIC_SCF_FOR:
    case AT_MOSAIC_SCF_WHILE:
    case AT_MOSAIC_TPU_REGION:
    case AT_MOSAIC_TPU_TRACE:
    case AT_MOSAIC_FUNC_FUNC:
      return true;
    default:
      return false;
  }
}

static at_status check_op(at_mosaic_verifier *v, const at_mop *op);

// A module holds functions only, and functions no functions; any other block
// ends in its only terminator.
static at_status check_block(at_mosaic_verifier *v, const at_mop *parent,
                             const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_args; i++) {
    const at_mtype *t = b->args[i].type;
    if (t->kind == AT_MTYPE_VECTOR && !is_vector(t, 0))
      return at_mosaic_fail(v->k, parent, AT_INVALID_ARGUMENT,
                            "argument #%u is an impossible vector", i);
    AT_TRY(define(v, &b->args[i]));
  }
  bool module = at_mosaic_opcode_of(parent) == AT_MOSAIC_BUILTIN_MODULE;
  if (!module && (!b->num_ops || !is_terminator(b->ops[b->num_ops - 1])))
    return at_mosaic_fail(v->k, parent, AT_INVALID_ARGUMENT,
                          "a block must end in a terminator");
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    if (is_terminator(op) && i + 1 < b->num_ops)
      return at_mosaic_fail(v->k, op, AT_INVALID_ARGUMENT,
                            "must be the last operation in its block");
    bool func = at_mosaic_opcode_of(op) == AT_MOSAIC_FUNC_FUNC;
    if (module != func)
      return at_mosaic_fail(
          v->k, op, AT_INVALID_ARGUMENT,
          module ? "a function is expected" : "a function inside a function");
    AT_TRY(check_op(v, op));
  }
  return AT_OK;
}

// Uses, attributes, operands, results, regions, then the type rule, which may
// rely on all of them.
static at_status check_op(at_mosaic_verifier *v, const at_mop *op) {
  at_dims segments = {0};
  AT_TRY(check_uses(v, op));
  AT_TRY(check_attrs(v, op, &segments));
  AT_TRY(check_values(v, op, false, segments));
  AT_TRY(check_values(v, op, true, (at_dims){0}));
  if (op->num_successors)
    return at_mosaic_fail(v->k, op, AT_UNIMPLEMENTED,
                          "branches between blocks");
  if (op->num_regions && !may_have_regions(op))
    return at_mosaic_fail(v->k, op, AT_INVALID_ARGUMENT,
                          "'%s' op takes no regions", op->name);
  for (uint32_t r = 0; r < op->num_regions; r++) {
    if (op->regions[r]->num_blocks > 1)
      return at_mosaic_fail(v->k, op, AT_UNIMPLEMENTED,
                            "a region with several blocks");
    if (op->regions[r]->num_blocks)
      AT_TRY(check_block(v, op, op->regions[r]->blocks[0]));
  }
  at_mosaic_rule rule = at_mosaic_rule_of(at_mosaic_opcode_of(op));
  if (rule) AT_TRY(rule(v, op));
  for (uint32_t i = 0; i < op->num_results; i++)
    AT_TRY(define(v, &op->results[i]));
  return AT_OK;
}

// Scratch memory of its own, freed on return.
at_status at_mosaic_verify(const at_mosaic_kernel *k) {
  const at_mop *m = k->module->op;
  at_arena *scratch = at_arena_create();
  if (!scratch) return AT_NO_MEMORY("the verifier");
  at_mosaic_verifier v = {k, scratch, at_map_in(scratch)};
  at_status s = AT_OK;
  for (uint32_t r = 0; at_ok(s) && r < m->num_regions; r++)
    for (uint32_t i = 0; at_ok(s) && i < m->regions[r]->num_blocks; i++)
      s = check_block(&v, m, m->regions[r]->blocks[i]);
  at_arena_destroy(scratch);
  return s;
}
