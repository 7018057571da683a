// Refs that control flow chooses or carries: their parts become phis where they
// are not known to agree. What is done to such a ref may be done to any memory.
#include "mosaic/emit.h"

// The parts of a ref that may be values of the run time.
static uint32_t num_parts(const at_me_ref *r) { return 2 * r->rank + 2; }

static at_me_num *part(at_me_ref *r, uint32_t i) {
  if (i < r->rank) return &r->size[i];
  if (i < 2 * r->rank) return &r->stride[i - r->rank];
  return i == 2 * r->rank ? &r->part_stride : &r->row;
}

static bool same_part(at_me_num a, at_me_num b) {
  return a.v == b.v && (a.v || a.c == b.c);
}

static at_status check_form(at_me *m, const at_mop *op, const at_me_ref *a,
                            const at_me_ref *b) {
  bool packed = a->parts > 1 || a->split > 1;
  if (a->dtype != b->dtype || a->storage != b->storage ||
      a->bytes != b->bytes || a->rank != b->rank || a->parts != b->parts ||
      a->split != b->split || (packed && a->packed != b->packed))
    return at_me_refuse(m, op, "refs of different layouts");
  return AT_OK;
}

void at_me_join_begin(at_me *m, const at_me_ref *a, const at_me_ref *b,
                      at_me_join *j) {
  at_me_ref other = b ? *b : *a;
  *j = (at_me_join){.ref = *a};
  j->ref.base = at_b_phi(m->e, at_b_ptr(m->e));
  j->ref.arg = b && b->arg == a->arg ? a->arg : 0;
  j->ref.root = b && b->root == a->root ? a->root : AT_MPLAN_ANY_ROOT;
  for (uint32_t i = 0; i < num_parts(a); i++) {
    at_me_num *n = part(&j->ref, i);
    if (b ? same_part(*n, *part(&other, i)) : !n->v) continue;
    *n = (at_me_num){0, at_b_phi(m->e, at_em_int(m->e, 64))};
    j->phis |= 1u << i;
  }
}

at_status at_me_join_add(at_me *m, const at_mop *op, at_me_join *j,
                         const at_me_ref *r, LLVMBasicBlockRef from) {
  at_me_ref in = *r;
  AT_TRY(check_form(m, op, &j->ref, r));
  at_b_phi_add(j->ref.base, r->base, from);
  for (uint32_t i = 0; i < num_parts(r); i++) {
    at_me_num *n = part(&j->ref, i), own = *part(&in, i);
    if (j->phis >> i & 1)
      at_b_phi_add(n->v, at_me_num_value(m, own), from);
    else if (!same_part(*n, own))
      return at_me_refuse(m, op, "a ref whose layout changes");
  }
  return AT_OK;
}
