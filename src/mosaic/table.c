// The op table, and the attributes and types that it talks about.
#include "mosaic/mosaic_internal.h"

static const at_mosaic_op_info infos[] = {
    [AT_MOSAIC_NO_OP] = {"", "", "", "", "", AT_MOSAIC_COST_NONE,
                         AT_MOSAIC_FORM_EFFECT, 1, ""},
#define AT_MOSAIC_OP(Id, name, operands, results, attrs, rule, cost, form, \
                     weight, handler, doc)                                 \
  [AT_MOSAIC_##Id] = {name,                                                \
                      operands,                                            \
                      results,                                             \
                      attrs,                                               \
                      #rule,                                               \
                      AT_MOSAIC_COST_##cost,                               \
                      AT_MOSAIC_FORM_##form,                               \
                      weight,                                              \
                      doc},
#include "mosaic/ops.def"
#undef AT_MOSAIC_OP
};

const at_mosaic_op_info *at_mosaic_op_info_of(at_mosaic_opcode op) {
  return &infos[op < AT_MOSAIC_OP_COUNT ? op : AT_MOSAIC_NO_OP];
}

// Linear: once per operation when a kernel is read, then its tag has the code.
at_mosaic_opcode at_mosaic_opcode_find(const char *name) {
  for (int i = 1; i < AT_MOSAIC_OP_COUNT; i++)
    if (!strcmp(infos[i].name, name)) return (at_mosaic_opcode)i;
  return AT_MOSAIC_NO_OP;
}

at_mosaic_opcode at_mosaic_opcode_of(const at_mop *op) {
  return op->tag < AT_MOSAIC_OP_COUNT ? (at_mosaic_opcode)op->tag
                                      : AT_MOSAIC_NO_OP;
}

// ---- Types
static const char *const space_names[] = {
    "any",  "vmem",          "smem",        "hbm",
    "cmem", "semaphore_mem", "vmem_shared", "host"};
static const char *const core_names[] = {"any", "tc", "sc_scalar_subcore",
                                         "sc_vector_subcore"};

const char *at_mosaic_space_name(at_mosaic_space s) {
  return s < AT_LEN(space_names) ? space_names[s] : "?";
}
const char *at_mosaic_core_name(at_mosaic_core c) {
  return c < AT_LEN(core_names) ? core_names[c] : "?";
}

// Its index; -1: none.
static int find_name(const char *const *names, size_t n, at_str s) {
  for (size_t i = 0; i < n; i++)
    if (at_str_is(s, names[i])) return (int)i;
  return -1;
}

// Without blanks at both ends.
static at_str trim(at_str s) {
  while (s.len && *s.ptr == ' ') s.ptr++, s.len--;
  while (s.len && s.ptr[s.len - 1] == ' ') s.len--;
  return s;
}

// Of the elements; index is 32 bits wide.
at_dtype at_mosaic_dtype_of(const at_mtype *t) {
  while (t && (t->kind == AT_MTYPE_VECTOR || t->kind == AT_MTYPE_MEMREF))
    t = t->elem;
  if (!t) return AT_INVALID;
  return t->kind == AT_MTYPE_INDEX ? AT_S32 : at_mtype_dtype(t);
}

bool at_mosaic_same_type(const at_mtype *a, const at_mtype *b) {
  return at_mosaic_dtype_of(a) == at_mosaic_dtype_of(b) &&
         at_dims_eq(a->shape, b->shape);
}

// "vmem", or "vmem, tc" and "semaphore_mem, sc_scalar_subcore".
static bool space_of(const at_mattr *space, at_mosaic_ref *out) {
  out->space = AT_MSPACE_ANY;
  if (!space) return true;
  at_str s = {0};
  if (!at_mosaic_attr_text(space, &s)) return false;
  const char *comma = s.len ? memchr(s.ptr, ',', s.len) : NULL;
  at_str first = s;
  if (comma) {
    first.len = (size_t)(comma - s.ptr);
    at_str second = {comma + 1, s.len - first.len - 1};
    int c = find_name(core_names, AT_LEN(core_names), trim(second));
    if (c < 0) return false;
    out->core = (at_mosaic_core)c;
  }
  int i = find_name(space_names, AT_LEN(space_names), trim(first));
  if (i < 0) return false;
  out->space = (at_mosaic_space)i;
  return true;
}

// Semaphores have no dtype; what kind they are is their element's name.
at_status at_mosaic_ref_of(const at_mtype *type, at_mosaic_ref *out) {
  at_mosaic_ref r = {.type = type};
  if (!type || type->kind != AT_MTYPE_MEMREF)
    return AT_FAIL(AT_INVALID_ARGUMENT, "a memref is expected");
  r.shape = type->shape;
  if (!space_of(type->space, &r))
    return AT_FAIL(AT_INVALID_ARGUMENT, "a memref of an unknown memory space");
  const at_mtype *e = type->elem;
  if (e->kind == AT_MTYPE_DIALECT || e->kind == AT_MTYPE_OPAQUE) {
    if (!strcmp(e->name, "tpu.semaphore")) {
      r.semaphore = AT_MSEM_REGULAR;
    } else if (!strcmp(e->name, "tpu.dma_semaphore")) {
      r.semaphore = AT_MSEM_DMA;
    } else if (!strcmp(e->name, "tpu.barrier_semaphore")) {
      r.semaphore = AT_MSEM_BARRIER;
    } else {
      return AT_FAIL(AT_INVALID_ARGUMENT, "a memref of unknown elements %s",
                     e->name);
    }
  } else {
    r.dtype = at_mosaic_dtype_of(e);
    if (r.dtype == AT_INVALID)
      return AT_FAIL(AT_INVALID_ARGUMENT, "a memref of unknown elements");
  }
  *out = r;
  return AT_OK;
}

// ---- Attributes
bool at_mosaic_attr_int(const at_mop *op, const char *name, int64_t *out) {
  const at_mattr *v = at_mop_attr(op, name);
  if (!v || (v->kind != AT_MATTR_INTEGER && v->kind != AT_MATTR_BOOL))
    return false;
  *out = v->i;
  return true;
}

// Sign-extended.
static int64_t element(const at_mattr *v, uint32_t i, size_t bytes) {
  const uint8_t *p = v->data.ptr + (v->splat ? 0 : i * bytes);
  int64_t x = 0;
  int32_t w;
  int16_t h;
  if (bytes == 8) return memcpy(&x, p, 8), x;
  if (bytes == 4) return memcpy(&w, p, 4), w;
  if (bytes == 2) return memcpy(&h, p, 2), h;
  return *(const int8_t *)p;
}

// Elements of a width that is no power of two bytes are refused.
bool at_mosaic_attr_ints(const at_mattr *v, at_arena *a, at_dims *out) {
  if (!v) return false;
  uint32_t n = v->num_elems;
  bool array = v->kind == AT_MATTR_ARRAY;
  size_t bytes = 0;
  if (v->kind == AT_MATTR_DENSE_ARRAY) {
    if (!v->type || v->type->kind != AT_MTYPE_INTEGER) return false;
    bytes = v->type->width <= 8 ? 1 : v->type->width / 8;
    if (bytes * n != v->data.len) return false;
  } else if (!array) {
    return false;
  }
  if (bytes > 8 || (bytes & (bytes - 1))) return false;
  int64_t *p = at_new(a, int64_t, n ? n : 1);
  if (!p) return false;
  for (uint32_t i = 0; i < n; i++) {
    if (!array) {
      p[i] = element(v, i, bytes);
    } else {
      if (v->elems[i]->kind != AT_MATTR_INTEGER) return false;
      p[i] = v->elems[i]->i;
    }
  }
  *out = (at_dims){p, n};
  return true;
}

bool at_mosaic_attr_text(const at_mattr *v, at_str *out) {
  if (!v || (v->kind != AT_MATTR_DIALECT && v->kind != AT_MATTR_STRING))
    return false;
  *out = v->str;
  return true;
}

// Attributes are sorted by name and stay so; the old list is left as it was.
at_status at_mosaic_attr_set(at_arena *a, at_mop *op, const char *name,
                             const at_mattr *value) {
  at_mnamed *v;
  AT_TRY_ALLOC(v, at_new(a, at_mnamed, op->num_attrs + 1));
  uint32_t n = 0;
  bool placed = value == NULL;
  for (uint32_t i = 0; i < op->num_attrs; i++) {
    int order = strcmp(op->attrs[i].name, name);
    if (!placed && order >= 0) {
      v[n++] = (at_mnamed){name, value};
      placed = true;
    }
    if (order != 0) v[n++] = op->attrs[i];
  }
  if (!placed) v[n++] = (at_mnamed){name, value};
  op->attrs = v;
  op->num_attrs = n;
  return AT_OK;
}

static const at_mtype type_i1 = {.kind = AT_MTYPE_INTEGER, .width = 1};
static const at_mtype type_i32 = {.kind = AT_MTYPE_INTEGER, .width = 32};

// A dense array, whose data is copied.
at_status at_mosaic_attr_new_i32s(at_arena *a, const int32_t *v, uint32_t n,
                                  const at_mattr **out) {
  at_mattr *m;
  AT_TRY_ALLOC(m, at_new(a, at_mattr, 1));
  m->kind = AT_MATTR_DENSE_ARRAY;
  m->type = &type_i32;
  m->num_elems = n;
  m->data.len = n * sizeof *v;
  AT_TRY_ALLOC(m->data.ptr, at_arena_copy(a, v, m->data.len, 8));
  *out = m;
  return AT_OK;
}

// An attribute of a number; type: its MLIR type.
static at_status new_number(at_arena *a, at_mattr_kind kind,
                            const at_mtype *type, int32_t v,
                            const at_mattr **out) {
  at_mattr *m;
  AT_TRY_ALLOC(m, at_new(a, at_mattr, 1));
  m->kind = kind;
  m->type = type;
  m->i = v;
  *out = m;
  return AT_OK;
}

at_status at_mosaic_attr_new_bool(at_arena *a, bool v, const at_mattr **out) {
  return new_number(a, AT_MATTR_BOOL, &type_i1, v, out);
}

at_status at_mosaic_attr_new_i32(at_arena *a, int32_t v, const at_mattr **out) {
  return new_number(a, AT_MATTR_INTEGER, &type_i32, v, out);
}

// Goes out through blocks and regions.
const at_mop *at_mosaic_function_of(const at_mop *op) {
  while (op && strcmp(op->name, "func.func"))
    op = op->block && op->block->region ? op->block->region->op : NULL;
  return op;
}

// ANY where the function does not say, or says what is not known.
at_mosaic_core at_mosaic_core_of(const at_mop *func) {
  at_str s;
  if (!func || !at_mosaic_attr_text(at_mop_attr(func, "tpu.core_type"), &s))
    return AT_MCORE_ANY;
  int c = find_name(core_names, AT_LEN(core_names), trim(s));
  return c < 0 ? AT_MCORE_ANY : (at_mosaic_core)c;
}
