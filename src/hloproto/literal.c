// LiteralProto: elements in the order of the literal's own layout.
#include "hloproto/hloproto_internal.h"

// What a list of elements holds, one field after another.
typedef struct source {
  const at_hp_primitive *p;
  at_bytes literal;    // what is left of its fields
  at_bytes run;        // what is left of the field at hand
  at_proto_field one;  // or one element, not packed
  bool has_one;
} source;

// Moves on to the next field that holds elements: a packed run, or one element
// on its own. False: there are no more.
static bool next_run(source *s) {
  at_proto_field f;
  while (at_proto_next(&s->literal, &f)) {
    if (f.number != s->p->field) continue;
    if (f.wire == AT_PROTO_BYTES) {
      s->run = f.bytes;
      if (f.bytes.len) return true;
      continue;
    }
    s->one = f;
    return s->has_one = true;
  }
  return false;
}

// Stores the low bits in t's width; predicates become 0 or 1.
static void put_int(at_dtype t, void *to, uint64_t v) {
  at_store_int(t, to, t == AT_PRED ? v != 0 : (int64_t)v);
}

// An element that is an integer on the wire.
static bool packed_next(source *s, uint8_t *to) {
  uint64_t v;
  if (s->has_one) {
    v = s->one.value;
    s->has_one = false;
  } else if (!at_proto_varint(&s->run, &v)) {
    return false;
  }
  put_int(s->p->dtype, to, v);
  return true;
}

// Elements whose storage is their wire form, little-endian as this machine is.
static bool fixed_next(source *s, size_t bytes, uint8_t *to) {
  if (s->has_one) {
    memcpy(to, &s->one.value, AT_MIN(bytes, sizeof s->one.value));
    s->has_one = false;
    return true;
  }
  if (s->run.len < bytes) return false;
  memcpy(to, s->run.ptr, bytes);
  s->run.ptr += bytes;
  s->run.len -= bytes;
  return true;
}

// One number of `bytes` bytes to `to`; false: the literal has no more. Of a
// wire's byte only the bits of the type count.
static bool element_next(source *s, size_t bytes, uint8_t *to) {
  if (!s->has_one && s->run.len == 0 && !next_run(s)) return false;
  if (s->p->form == AT_HP_PACKED) return packed_next(s, to);
  if (!fixed_next(s, bytes, to)) return false;
  if (bytes == 1) at_store_int(s->p->dtype, to, *to);
  return true;
}

// Element k of the source stands here.
static int64_t place_of(const at_hp_leaf *l, const int64_t *stride, int64_t k) {
  int64_t at = 0;
  for (uint32_t d = 0; d < l->layout.rank; d++) {
    int64_t dim = l->layout.ptr[d], n = l->type.dims[dim];
    at += k % n * stride[dim];
    k /= n;
  }
  return at;
}

// Reads n elements in the order of the literal's own layout and stores them
// row-major: element k of the wire goes to place_of(k). stride[d] is in
// elements of the row-major result.
static at_status elements_read(at_hp *x, const at_hp_inst *i,
                               const at_hp_leaf *l, int64_t n, source *s,
                               uint8_t *to) {
  size_t bytes = at_type_bytes(&l->type) / (size_t)n;
  // Complex numbers are two of the wire's.
  size_t parts = at_is_complex(l->type.dtype) ? 2 : 1, unit = bytes / parts;
  AT_ASSERT(unit > 0 && unit * parts * (size_t)n == at_type_bytes(&l->type));
  bool in_order = at_hp_is_row_major(l->layout);
  int64_t *stride, next = 1;
  AT_TRY_ALLOC(stride, at_new(x->a, int64_t, (size_t)l->type.rank + 1));
  for (uint32_t d = l->type.rank; d-- > 0; next *= l->type.dims[d])
    stride[d] = next;
  for (int64_t k = 0; k < n; k++) {
    int64_t at = in_order ? k : place_of(l, stride, k);
    AT_ASSERT(at >= 0 && at < n);
    for (size_t p = 0; p < parts; p++)
      if (!element_next(s, unit, to + (size_t)at * bytes + p * unit))
        return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                          "the literal ends after %lld of %lld elements",
                          (long long)k, (long long)n);
  }
  if (s->has_one || s->run.len || next_run(s))
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "the literal has more than %lld elements", (long long)n);
  return AT_OK;
}

// The size of the data is bounded by that of the bytes before anything is
// allocated: a shape alone may claim any number of elements.
at_status at_hp_literal(at_hp *x, const at_hp_inst *i, at_bytes b,
                        const at_literal **out) {
  at_hp_shape shape;
  AT_TRY(at_hp_shape_read(x->a, at_proto_bytes(b, 1), &shape));
  if (shape.is_tuple || shape.leaves[0].type.dtype == AT_TOKEN)
    return AT_HP_FAIL(x, i, AT_UNIMPLEMENTED,
                      "literals of tuples and tokens are not supported");
  const at_hp_leaf *l = &shape.leaves[0];
  int64_t n = at_type_elements(&l->type);
  // An element takes a byte at least: what is too large is not all there.
  if (n > 0 && (uint64_t)n > b.len)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "the literal has %zu bytes for %lld elements", b.len,
                      (long long)n);
  size_t bytes = at_type_bytes(&l->type);
  uint8_t *data;
  AT_TRY_ALLOC(data, at_arena_alloc(x->a, AT_MAX(bytes, 16u), 64));
  source s = {.p = at_hp_primitive_of(l->type.dtype), .literal = b};
  if (n > 0) AT_TRY(elements_read(x, i, l, n, &s, data));
  return at_literal_make(x->a, l->type, data, false, true, out);
}
