// Types: comparison, sizes, text.
#include "hlo/hlo_internal.h"

// No bounds at all is the same as no bound anywhere.
static bool bounds_eq(const at_type *a, const at_type *b) {
  for (uint32_t i = 0; i < a->rank; i++) {
    int64_t x = a->bounds ? a->bounds[i] : AT_DYN;
    int64_t y = b->bounds ? b->bounds[i] : AT_DYN;
    if (x != y) return false;
  }
  return true;
}

bool at_type_eq(const at_type *a, const at_type *b) {
  return a->dtype == b->dtype && at_dims_eq(at_type_dims(a), at_type_dims(b)) &&
         bounds_eq(a, b) && at_str_eq(at_str_of(a->quant), at_str_of(b->quant));
}

// Bounds and quantisation do not matter here; at_type_eq asks for those.
bool at_type_compatible(const at_type *a, const at_type *b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  for (uint32_t i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i] && a->dims[i] != AT_DYN &&
        b->dims[i] != AT_DYN)
      return false;
  return true;
}

bool at_type_is_static(const at_type *t) {
  for (uint32_t i = 0; i < t->rank; i++)
    if (t->dims[i] == AT_DYN) return false;
  return true;
}

// A dimension of size zero wins over an overflow of the others.
int64_t at_type_elements(const at_type *t) {
  int64_t n = 1;
  bool over = false;
  for (uint32_t i = 0; i < t->rank; i++) {
    if (t->dims[i] == 0) return 0;
    over |= __builtin_mul_overflow(n, t->dims[i], &n);
  }
  return over || n < 0 ? INT64_MAX : n;
}

// Sub-byte types take a whole byte each.
size_t at_type_bytes(const at_type *t) {
  int64_t n = at_type_elements(t);
  if (n == INT64_MAX) return SIZE_MAX;
  return at_mul((size_t)n, at_dtype_bytes(t->dtype));
}

at_type at_type_scalar(at_dtype t) { return (at_type){.dtype = t}; }

at_status at_type_make(at_arena *a, at_dtype t, at_dims dims, at_type *out) {
  for (uint32_t i = 0; i < dims.rank; i++)
    if (dims.ptr[i] < 0 && dims.ptr[i] != AT_DYN)
      return AT_FAIL(AT_INVALID_ARGUMENT, "type: dimension %u is %lld", i,
                     (long long)dims.ptr[i]);
  at_type shape = {.dtype = t, .rank = dims.rank, .dims = dims.ptr};
  return at_type_copy(a, &shape, out);
}

// Arrays and texts are copied, so that `t` may be on the stack.
at_status at_type_copy(at_arena *a, const at_type *t, at_type *out) {
  at_type c = *t;
  if (t->rank) {
    AT_TRY_ALLOC(c.dims, at_arena_copy(a, t->dims, t->rank * sizeof *t->dims,
                                       _Alignof(int64_t)));
    if (t->bounds)
      AT_TRY_ALLOC(c.bounds,
                   at_arena_copy(a, t->bounds, t->rank * sizeof *t->bounds,
                                 _Alignof(int64_t)));
  }
  if (t->quant) AT_TRY_ALLOC(c.quant, at_arena_str(a, at_str_of(t->quant)));
  *out = c;
  return AT_OK;
}

// A bound is printed only where the size is unknown.
static void print_dim(at_strbuf *b, const at_type *t, uint32_t i) {
  if (t->dims[i] != AT_DYN) {
    at_strbuf_addf(b, "%lld", (long long)t->dims[i]);
    return;
  }
  at_strbuf_addc(b, '?');
  if (t->bounds && t->bounds[i] != AT_DYN)
    at_strbuf_addf(b, "<=%lld", (long long)t->bounds[i]);
}

// Quantised types show their storage type and the text.
void at_type_print(at_strbuf *b, const at_type *t) {
  at_strbuf_addz(b, at_dtype_of(t->dtype)->text);
  if (t->dtype == AT_TOKEN) return;
  at_strbuf_addc(b, '[');
  for (uint32_t i = 0; i < t->rank; i++) {
    if (i) at_strbuf_addc(b, ',');
    print_dim(b, t, i);
  }
  at_strbuf_addc(b, ']');
  if (t->quant) at_strbuf_addf(b, "!\"%s\"", t->quant);
}

// Cut at 127 bytes.
at_type_text at_type_z(const at_type *t) {
  at_strbuf b = {0};
  at_type_print(&b, t);
  at_type_text out = {{0}};
  size_t n = AT_MIN(b.len, sizeof out.z - 1);
  if (n) memcpy(out.z, b.ptr, n);
  at_strbuf_free(&b);
  return out;
}

// Printed as a type and stripped of its element type.
at_type_text at_dims_z(at_dims d) {
  at_type t = {.dtype = AT_PRED, .rank = d.rank, .dims = d.ptr};
  at_type_text full = at_type_z(&t), out = {{0}};
  memcpy(out.z, full.z + 2, sizeof out.z - 3);  // without "i1"
  return out;
}

// ---- Meshes

// The end of a dictionary's entry: a comma or brace outside of all brackets.
static const char *entry_end(const char *p, const char *end) {
  int depth = 0;
  for (; p < end; p++) {
    if (*p == '"')
      for (p++; p < end && *p != '"';) p++;
    if (p == end) break;
    if (depth == 0 && (*p == ',' || *p == '}')) return p;
    depth += strchr("<[({", *p) != NULL;
    depth -= strchr(">])}", *p) != NULL;
  }
  return end;
}

// A dictionary's entries become lines with an @ in front; other text is taken
// as it is.
at_status at_module_set_meshes(at_module *m, at_str text) {
  const char *p = text.ptr, *end = text.ptr + text.len;
  at_strbuf b = {0};
  if (text.len == 0) return AT_OK;
  if (*p != '{') {
    AT_TRY_ALLOC(m->mesh_text, at_arena_str(m->arena, text));
    return AT_OK;
  }
  for (p++; p < end && *p != '}';) {
    const char *stop = entry_end(p, end);
    while (p < stop && (*p == ' ' || *p == '\n')) p++;
    if (stop > p) at_strbuf_addc(&b, '@');
    at_strbuf_add(&b, (at_str){p, (size_t)(stop - p)});
    at_strbuf_addc(&b, '\n');
    p = stop < end && *stop == ',' ? stop + 1 : stop;
  }
  m->mesh_text = at_strbuf_move(&b, m->arena);
  return m->mesh_text ? AT_OK : AT_NO_MEMORY("meshes");
}
