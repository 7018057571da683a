// Dense literals: nested lists, splats, hexadecimal strings; dense arrays. The
// type of a literal stands behind it and says how many elements there are and
// how each is held, so a literal is passed over, its type read, and then the
// literal itself. Memory is bounded by the text: an element takes a character.
#include <ctype.h>
#include <stdlib.h>

#include "mlir/text.h"

// Elements while they are read: scalars at out, cap of them.
typedef struct dense_state {
  const at_mtype *elem;  // of one scalar
  bool complex;
  size_t bytes;  // of one scalar
  uint8_t *out;
  size_t cap, len;  // scalars
} dense_state;

// The low bytes of v; integers over 64 bits are filled up with the sign.
static void store(dense_state *d, uint64_t v) {
  uint8_t *p = d->out + d->len++ * d->bytes;
  memset(p, (int64_t)v < 0 && d->bytes > 8 ? 0xff : 0, d->bytes);
  memcpy(p, &v, AT_MIN(d->bytes, sizeof v));
}

// One number or truth value in memory form. Hexadecimal floats are bit
// patterns.
static at_status scalar(at_mtext *t, dense_state *d) {
  if (d->len == d->cap) return at_mtext_fail(t, "too many dense elements");
  if (at_mtext_accept_word(t, "true") || at_mtext_accept_word(t, "false")) {
    if (!at_mtype_is_int(d->elem, 1))
      return at_mtext_fail(t, "true and false are elements of i1");
    store(d, t->p[-2] == 'u');  // tr-u-e, fal-s-e
    return AT_OK;
  }
  at_mtext_space(t);
  const char *q = t->p + (t->p < t->end && *t->p == '-');
  bool hexa = q + 1 < t->end && q[0] == '0' && q[1] == 'x';
  int64_t v;
  if (d->elem->kind == AT_MTYPE_FLOAT && !hexa) {
    double x;
    AT_TRY(at_mtext_f64(t, &x));
    store(d, at_mfloat_encode(at_mfloat_find(at_str_of(d->elem->name)), x));
    return AT_OK;
  }
  AT_TRY(at_mtext_i64(t, &v));
  AT_TRY(at_mtext_int_fits(t, d->elem, v));
  // Sub-byte integers are extended to their whole byte.
  uint32_t n = d->elem->kind == AT_MTYPE_INTEGER ? d->elem->width : 64;
  if (d->elem->kind == AT_MTYPE_INTEGER && n < 8) {
    uint64_t up = (uint64_t)v << (64 - n);
    v = n == 1 || d->elem->sign == AT_UNSIGNED ? (int64_t)(up >> (64 - n))
                                               : (int64_t)up >> (64 - n);
  }
  store(d, (uint64_t)v);
  return AT_OK;
}

// Complex numbers are pairs in brackets.
static at_status one_element(at_mtext *t, dense_state *d) {
  if (!d->complex) return scalar(t, d);
  AT_TRY(at_mtext_expect(t, "("));
  AT_TRY(scalar(t, d));
  AT_TRY(at_mtext_expect(t, ","));
  AT_TRY(scalar(t, d));
  return at_mtext_expect(t, ")");
}

// A list for each dimension, of exactly its size. Recursion over dimensions.
static at_status nested(at_mtext *t, dense_state *d, at_dims shape,
                        uint32_t dim) {
  if (dim == shape.rank) return one_element(t, d);
  AT_TRY(at_mtext_expect(t, "["));
  int64_t n = 0;
  if (!at_mtext_accept(t, "]")) {
    do {
      AT_TRY(nested(t, d, shape, dim + 1));
      n++;
    } while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, "]"));
  }
  if (n != shape.ptr[dim])
    return at_mtext_fail(t, "dimension %u of a dense literal has %lld elements",
                         dim, (long long)n);
  return AT_OK;
}

// Skips the literal between '<' and '>', since its type comes after it.
static at_status skip_literal(at_mtext *t) {
  for (; t->p < t->end && *t->p != '>'; t->p++)
    if (*t->p == '"') {
      at_str ignored;
      AT_TRY(at_mtext_quoted(t, &ignored));
      t->p--;
    }
  return at_mtext_expect(t, ">");
}

// c is a hexadecimal digit.
static int digit(char c) {
  return isdigit((unsigned char)c) ? c - '0'
                                   : tolower((unsigned char)c) - 'a' + 10;
}

// Two digits a byte, in memory order.
at_status at_mtext_hex_bytes(at_mtext *t, at_str s, at_bytes *out) {
  if (s.len < 2 || s.ptr[0] != '0' || s.ptr[1] != 'x' || s.len % 2)
    return at_mtext_fail(t, "a hexadecimal string is expected");
  size_t n = (s.len - 2) / 2;
  uint8_t *b;
  AT_TRY_ALLOC(b, at_arena_alloc(t->c.arena, n, 16));
  for (size_t i = 0; i < n; i++) {
    char hi = s.ptr[2 + 2 * i], lo = s.ptr[3 + 2 * i];
    if (!isxdigit((unsigned char)hi) || !isxdigit((unsigned char)lo))
      return at_mtext_fail(t, "a hexadecimal string is expected");
    b[i] = (uint8_t)(digit(hi) * 16 + digit(lo));
  }
  *out = (at_bytes){b, n};
  return AT_OK;
}

// As many strings as elements, or one without brackets that stands for all.
static at_status strings(at_mtext *t, const at_mtype *type,
                         const at_mattr **out) {
  at_mattr *a;
  at_mattr_vec v = {0};
  bool list = false;
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DENSE_STRINGS));
  // The nesting of the list is implied by the type.
  for (;;) {
    at_str s;
    const at_mattr *one;
    while (at_mtext_accept(t, "[") || at_mtext_accept(t, "]") ||
           at_mtext_accept(t, ","))
      list = true;
    if (at_mtext_at(t, ">")) break;
    AT_TRY(at_mtext_quoted(t, &s));
    AT_TRY_ALLOC(one, at_mattr_make_str(&t->c, s));
    if (!at_vec_push(t->c.arena, &v, one)) return AT_NO_MEMORY("strings");
  }
  size_t n = at_mtype_num_elems(type);
  a->type = type;
  a->elems = v.ptr;
  a->num_elems = (uint32_t)v.len;
  a->splat = !list && v.len == 1 && n > 1;
  if (!a->splat && v.len != n)
    return at_mtext_fail(t, "%zu strings for %zu elements", v.len, n);
  *out = a;
  return AT_OK;
}

// What stands between the angle brackets, of the type that was read behind
// them; `stop` is their end.
static at_status literal(at_mtext *t, const at_mtype *type, const char *stop,
                         const at_mattr **out) {
  size_t n = at_mtype_num_elems(type), each = at_mtype_elem_bytes(type->elem);
  if (!type->elem || n == SIZE_MAX ||
      (type->kind != AT_MTYPE_TENSOR && type->kind != AT_MTYPE_VECTOR &&
       type->kind != AT_MTYPE_MEMREF))
    return at_mtext_fail(t, "dense elements need a type of static shape");
  at_mtext_space(t);
  if (!each) return strings(t, type, out);
  // The whole buffer in hexadecimal.
  if (at_mtext_at(t, "\"")) {
    at_str s;
    at_bytes raw;
    AT_TRY(at_mtext_quoted(t, &s));
    AT_TRY(at_mtext_hex_bytes(t, s, &raw));
    return at_mattr_dense(&t->c, type, raw, false, out);
  }
  at_mattr *a;
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DENSE));
  a->type = type;
  *out = a;
  if (at_mtext_at(t, ">")) {
    if (n) return at_mtext_fail(t, "a dense literal has no elements");
    return AT_OK;
  }
  bool complex = type->elem->kind == AT_MTYPE_COMPLEX;
  bool splat = !at_mtext_at(t, "[");
  // Each element takes a character or more, so text bounds the memory.
  if (!splat && n > (size_t)(stop - t->p))
    return at_mtext_fail(t, "a dense literal is shorter than its type");
  size_t count = splat ? 1 : n;
  dense_state d = {complex ? type->elem->elem : type->elem,
                   complex,
                   complex ? each / 2 : each,
                   NULL,
                   count * (complex ? 2 : 1),
                   0};
  AT_TRY_ALLOC(d.out,
               at_arena_alloc(t->c.arena, AT_MAX(at_mul(count, each), 1), 16));
  AT_TRY(splat ? one_element(t, &d) : nested(t, &d, type->shape, 0));
  if (n == 0) return AT_OK;
  a->splat = splat && n > 1;
  a->data = (at_bytes){d.out, count * each};
  return AT_OK;
}

// The type stands behind the literal, so the literal is passed over, the type
// read, and then the literal.
at_status at_mtext_dense(at_mtext *t, const at_mattr **out) {
  AT_TRY(at_mtext_expect(t, "<"));
  const char *from = t->p;
  AT_TRY(skip_literal(t));
  const char *stop = t->p;
  AT_TRY(at_mtext_expect(t, ":"));
  const at_mtype *type;
  AT_TRY(at_mtext_read_type(t, &type));
  const char *after = t->p;
  t->p = from;
  AT_TRY(literal(t, type, stop, out));
  if (!at_mtext_at(t, ">"))
    return at_mtext_fail(t, "'>' is expected after dense elements");
  t->p = after;
  return AT_OK;
}

// array<i64: 1, 2>; the element type comes first.
at_status at_mtext_dense_array(at_mtext *t, const at_mattr **out) {
  at_mattr *a;
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DENSE_ARRAY));
  AT_TRY(at_mtext_expect(t, "<"));
  AT_TRY(at_mtext_read_type(t, &a->type));
  size_t each = at_mtype_elem_bytes(a->type);
  if (!each || each > 8 || a->type->kind == AT_MTYPE_COMPLEX)
    return at_mtext_fail(t, "a dense array holds integers or floats");
  *out = a;
  if (at_mtext_accept(t, ":")) {
    AT_VEC(uint64_t) v = {0};
    uint64_t one;
    do {
      // Each number is read as 8 bytes, of which the type's are kept.
      dense_state d = {a->type, false, 8, (uint8_t *)&one, 1, 0};
      AT_TRY(scalar(t, &d));
      if (!at_vec_push(t->c.arena, &v, one)) return AT_NO_MEMORY("array");
    } while (at_mtext_accept(t, ","));
    uint8_t *b;
    AT_TRY_ALLOC(b, at_arena_alloc(t->c.arena, v.len * each, 8));
    for (size_t i = 0; i < v.len; i++) memcpy(b + i * each, &v.ptr[i], each);
    a->num_elems = (uint32_t)v.len;
    a->data = (at_bytes){b, v.len * each};
  }
  return at_mtext_expect(t, ">");
}
