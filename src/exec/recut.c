// The bits of one element type as elements of another. They are a stream, least
// significant first; types under 8 bits keep theirs in the low end of a byte.
#include "exec/exec_internal.h"

// How many of the bits of each byte in memory count.
static unsigned used_bits(at_dtype t) {
  unsigned bits = at_dtype_of(t)->bits;
  return t == AT_PRED ? 8 : AT_MIN(bits, 8u);
}

// Types that fill their bytes differ only in how bytes are read.
bool at_recut_is_copy(at_dtype from, at_dtype to) {
  return from == to || (used_bits(from) == 8 && used_bits(to) == 8);
}

// The wider type must be a whole number of the narrower.
at_status at_recut_check(at_dtype from, size_t from_bytes, at_dtype to,
                         size_t to_bytes) {
  if (from == to && from_bytes == to_bytes) return AT_OK;
  unsigned f = used_bits(from), t = used_bits(to);
  if (!f || !t || AT_MAX(f, t) % AT_MIN(f, t) ||
      at_mul(from_bytes, f) != at_mul(to_bytes, t))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "a bitcast from %zu bits of %s to %zu bits of %s",
                   at_mul(from_bytes, f), at_dtype_of(from)->text,
                   at_mul(to_bytes, t), at_dtype_of(to)->text);
  return AT_OK;
}

// Bit by bit of the narrower type's width.
void at_recut(at_dtype from, const void *src, at_dtype to, void *dst,
              size_t to_bytes) {
  const uint8_t *in = src;
  uint8_t *out = dst;
  unsigned f = used_bits(from), t = used_bits(to), cut = AT_MIN(f, t);
  uint8_t mask = (uint8_t)(0xff >> (8 - cut));
  size_t in_parts = f / cut, out_parts = t / cut;
  for (size_t i = 0; i < to_bytes; i++) {
    unsigned v = 0;
    for (size_t k = 0; k < out_parts; k++) {
      size_t at = i * out_parts + k;
      unsigned part = in[at / in_parts] >> (at % in_parts * cut) & mask;
      v |= part << (k * cut);
    }
    out[i] = (uint8_t)v;
  }
  at_settle_bits(to, dst, to_bytes);
}
