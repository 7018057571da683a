// Unsigned integers of less than a byte. Arrays hold them zero-extended; a
// kernel knows no unsigned types and works on sign-extended bytes. A launch
// with such operands gets copies in the kernel's form, and its results the
// arrays' form.
#include <stdlib.h>

#include "device/core_internal.h"

// 0: the operand needs no copy.
static uint32_t bits_of(const at_xcore_ref *x) {
  bool narrow = x->dtype == AT_U2 || x->dtype == AT_U4;
  return narrow ? at_dtype_of((at_dtype)x->dtype)->bits : 0;
}

// In place where dst is src. Bits above the type's are ignored.
static void sign_extend(uint8_t *dst, const uint8_t *src, size_t n,
                        uint32_t bits) {
  uint8_t sign = (uint8_t)(1u << (bits - 1)), mask = (uint8_t)(2 * sign - 1);
  for (size_t i = 0; i < n; i++)
    dst[i] = (uint8_t)(((src[i] & mask) ^ sign) - sign);
}

static void zero_extend(uint8_t *p, size_t n, uint32_t bits) {
  uint8_t mask = (uint8_t)((1u << bits) - 1);
  for (size_t i = 0; i < n; i++) p[i] &= mask;
}

// Looks at the first program, which has the launch's operands.
bool core_has_narrow(const at_core_launch *l) {
  const at_core_program *p = &l->programs[0];
  for (uint32_t i = 0; i < p->record->num_refs; i++)
    if (bits_of(&p->refs[i])) return true;
  return false;
}

// Frees the copies, not the launch's own buffers, which stand in the same list.
void core_narrow_free(void **bufs, const at_core_launch *l) {
  for (uint32_t i = 0; bufs && i < l->num_bufs; i++)
    if (bufs[i] != l->bufs[i]) free(bufs[i]);
  free(bufs);
}

// *out: the launch's buffers, inputs of narrow unsigned types replaced by
// sign-extended copies. Inputs that alias a result are extended in place. On
// failure nothing is left.
at_status core_narrow_begin(const at_core_launch *l, void ***out) {
  const at_core_program *p = &l->programs[0];
  uint32_t buf = p->record->num_dynamic, first_out = core_first_out(p);
  void **bufs = calloc(l->num_bufs + 1, sizeof *bufs);
  if (!bufs) goto none;
  memcpy(bufs, l->bufs, l->num_bufs * sizeof *bufs);
  for (uint32_t i = 0; i < p->record->num_refs; i++) {
    const at_xcore_ref *x = &p->refs[i];
    if (x->role == AT_CORE_SCRATCH) continue;
    uint32_t at = buf++, bits = bits_of(x);
    if (!bits || x->role != AT_CORE_IN) continue;
    size_t n = core_array_bytes(x);
    if (x->alias >= 0) {  // it lies in the result already
      uint8_t *shared = bufs[first_out + (uint32_t)x->alias];
      sign_extend(shared, shared, n, bits);
      continue;
    }
    bufs[at] = malloc(n + 1);
    if (!bufs[at]) {
      bufs[at] = l->bufs[at];
      goto none;
    }
    sign_extend(bufs[at], l->bufs[at], n, bits);
  }
  *out = bufs;
  return AT_OK;
none:
  core_narrow_free(bufs, l);
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "kernel %s: no memory for operands",
                 p->name);
}

// Results back to the arrays' form, also after a failed launch.
void core_narrow_end(const at_core_launch *l) {
  const at_core_program *p = &l->programs[0];
  uint32_t buf = core_first_out(p);
  for (uint32_t i = 0; i < p->record->num_refs; i++) {
    const at_xcore_ref *x = &p->refs[i];
    if (x->role != AT_CORE_OUT) continue;
    uint8_t *data = l->bufs[buf++];
    if (bits_of(x)) zero_extend(data, core_array_bytes(x), bits_of(x));
  }
}
