// Records of abi/core.h that code hands to the virtual core. What is known of
// one is a constant, which equal ones share; only the rest is stored at run
// time. Kernels with hundreds of unrolled copies stay small that way.
#include "mosaic/emit.h"

struct at_me_records {
  LLVMValueRef place;  // on the stack: where records are completed
  at_map templates;    // what is known of a record -> its constant
};

at_me_records *at_me_records_new(at_arena *a) {
  at_me_records *r = at_new(a, at_me_records, 1);
  if (r) r->templates = at_map_in(a);
  return r;
}

// Where records are written from here on. Yields the old place, for the caller
// to put back.
LLVMValueRef at_me_records_move(at_me *m, LLVMValueRef place) {
  LLVMValueRef old = m->records->place;
  m->records->place = place;
  return old;
}

// All zeros.
void at_me_record_begin(at_me_record *r, size_t bytes) {
  AT_ASSERT(bytes <= sizeof r->known);
  memset(r, 0, sizeof *r);
  r->bytes = (uint32_t)bytes;
}

void at_me_record_i32(at_me_record *r, size_t at, int32_t v) {
  AT_ASSERT(at + sizeof v <= r->bytes);
  memcpy(r->known + at, &v, sizeof v);
}

// At most AT_ME_RECORD_LATE registers per record.
void at_me_record_value(at_me *m, at_me_record *r, size_t at, LLVMValueRef v) {
  AT_ASSERT(at < r->bytes);
  if (r->num_late == AT_LEN(r->late)) {
    at_em_fail(m->e, AT_FAIL(AT_INTERNAL, "a record of too many values"));
    return;
  }
  r->late[r->num_late].at = (uint32_t)at;
  r->late[r->num_late++].v = v;
}

// 64 bits, known or stored at run time.
void at_me_record_num(at_me *m, at_me_record *r, size_t at, at_me_num n) {
  AT_ASSERT(at + sizeof n.c <= r->bytes);
  if (n.v)
    at_me_record_value(m, r, at, n.v);
  else
    memcpy(r->known + at, &n.c, sizeof n.c);
}

// Equal images are one constant of the module.
static LLVMValueRef constant_of(at_me *m, const at_me_record *r) {
  void **t = at_map_find(&m->records->templates,
                         (at_str){(const char *)r->known, r->bytes});
  if (t) return *t;
  const char *key = at_arena_copy(m->a, r->known, r->bytes, 1);
  LLVMValueRef c = at_b_bytes(m->e, r->known, r->bytes);
  t = key ? at_map_put(&m->records->templates, (at_str){key, r->bytes}) : NULL;
  if (t) *t = c;
  return c;
}

// A record without registers is the constant itself; else a copy of it on the
// stack, completed by stores.
LLVMValueRef at_me_record_end(at_me *m, const at_me_record *r) {
  LLVMValueRef known = at_me_handed(m, constant_of(m, r));
  if (!r->num_late) return known;
  if (!m->records->place)
    m->records->place =
        at_em_alloca(m->e, at_em_int(m->e, 8), AT_ME_RECORD_BYTES);
  at_b_copy(m->e, m->records->place, known, r->bytes);
  for (uint32_t i = 0; i < r->num_late; i++)
    at_me_put(m, m->records->place, r->late[i].at, r->late[i].v);
  return m->records->place;
}
