// The primitives of the bytecode: integers, counts, blobs, strings.
#include "mlir/mlir_internal.h"

// The offset is that of the byte behind what was read.
at_status at_mbc_fail(const at_mbc *r, const at_mcursor *c, const char *what) {
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "malformed MLIR bytecode at byte %zu of %zu: %s",
                 (size_t)(c->p - c->base), r->all.len, what);
}

// The cursor is always within its bytes, whatever the input says.
at_status at_mbc_byte(at_mbc *r, at_mcursor *c, uint8_t *out) {
  AT_ASSERT(c->base <= c->p && c->p <= c->end);
  if (c->p == c->end) return at_mbc_fail(r, c, "a byte is missing");
  *out = *c->p++;
  return AT_OK;
}

// The trailing zeros of the first byte say how many bytes follow; none set:
// eight.
at_status at_mbc_varint(at_mbc *r, at_mcursor *c, uint64_t *out) {
  uint8_t first;
  AT_TRY(at_mbc_byte(r, c, &first));
  if (first & 1) {
    *out = first >> 1;
    return AT_OK;
  }
  uint32_t more = first ? (uint32_t)__builtin_ctz(first) : 8;
  if ((size_t)(c->end - c->p) < more)
    return at_mbc_fail(r, c, "an integer is cut short");
  uint64_t v = 0;
  memcpy(&v, c->p, more);
  c->p += more;
  *out = first ? (v << 8 | first) >> (more + 1) : v;
  return AT_OK;
}

// The lowest bit is the sign, so that small negative numbers are short.
at_status at_mbc_svarint(at_mbc *r, at_mcursor *c, int64_t *out) {
  uint64_t u;
  AT_TRY(at_mbc_varint(r, c, &u));
  *out = (int64_t)(u >> 1 ^ (0 - (u & 1)));
  return AT_OK;
}

// The flag is the lowest bit.
at_status at_mbc_flagged(at_mbc *r, at_mcursor *c, uint64_t *out, bool *flag) {
  AT_TRY(at_mbc_varint(r, c, out));
  *flag = *out & 1;
  *out >>= 1;
  return AT_OK;
}

// The bound keeps allocations within a constant factor of the input.
at_status at_mbc_count(at_mbc *r, at_mcursor *c, uint32_t *out) {
  uint64_t n;
  AT_TRY(at_mbc_varint(r, c, &n));
  if (n > (size_t)(c->end - c->p) || n > UINT32_MAX)
    return at_mbc_fail(r, c, "a count is larger than the bytes that remain");
  *out = (uint32_t)n;
  return AT_OK;
}

// The only place where a length moves the cursor.
at_status at_mbc_bytes(at_mbc *r, at_mcursor *c, size_t n, at_bytes *out) {
  if (n > (size_t)(c->end - c->p))
    return at_mbc_fail(r, c, "a length is larger than the bytes that remain");
  *out = (at_bytes){c->p, n};
  c->p += n;
  return AT_OK;
}

at_status at_mbc_blob(at_mbc *r, at_mcursor *c, at_bytes *out) {
  uint64_t n;
  AT_TRY(at_mbc_varint(r, c, &n));
  return at_mbc_bytes(r, c, n, out);
}

// Strings may hold any bytes.
at_status at_mbc_string(at_mbc *r, at_mcursor *c, at_str *out) {
  uint64_t i;
  AT_TRY(at_mbc_varint(r, c, &i));
  if (i >= r->num_strings) return at_mbc_fail(r, c, "no such string");
  *out = r->strings[i];
  return AT_OK;
}

// A count and its numbers.
at_status at_mbc_svarints(at_mbc *r, at_mcursor *c, at_dims *out) {
  uint32_t n;
  AT_TRY(at_mbc_count(r, c, &n));
  int64_t *v;
  AT_TRY_ALLOC(v, at_new(r->c.arena, int64_t, n));
  for (uint32_t i = 0; i < n; i++) AT_TRY(at_mbc_svarint(r, c, &v[i]));
  *out = (at_dims){v, n};
  return AT_OK;
}

// Sizes that are not known are AT_MDYN; other negative numbers are no sizes.
at_status at_mbc_shape(at_mbc *r, at_mcursor *c, at_dims *out) {
  AT_TRY(at_mbc_svarints(r, c, out));
  for (uint32_t i = 0; i < out->rank; i++)
    if (out->ptr[i] < 0 && out->ptr[i] != AT_MDYN)
      return at_mbc_fail(r, c, "a negative dimension");
  return AT_OK;
}
