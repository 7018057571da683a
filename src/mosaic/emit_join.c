// Refs that control flow chooses or carries: their parts become phis where they
// are not known to agree. What is done to such a ref may be done to any memory.
#include "mosaic/emit.h"

// The parts of a ref that may be values of the run time.
static uint32_t num_parts(const at_me_ref *r) { return 2 * r->rank + 2; }

// Sizes, strides, then the packing's part stride and row.
static at_me_num part(const at_me_ref *r, uint32_t i) {
  if (i < r->rank) return r->size[i];
  if (i < 2 * r->rank) return r->stride[i - r->rank];
  return i == 2 * r->rank ? r->packing->part_stride : r->packing->row;
}

// Packing is shared, so a view that differs gets its own.
static void set_part(at_me *m, at_me_ref *r, uint32_t i, at_me_num n) {
  if (i < r->rank)
    r->size[i] = n;
  else if (i < 2 * r->rank)
    r->stride[i - r->rank] = n;
  else if (i == 2 * r->rank)
    at_me_repack(m, r)->part_stride = n;
  else
    at_me_repack(m, r)->row = n;
}

static bool same_part(at_me_num a, at_me_num b) {
  return a.v == b.v && (a.v || a.c == b.c);
}

// What code depends on at compile time must agree: types, rank, packing.
static at_status check_form(at_me *m, const at_mop *op, const at_me_ref *a,
                            const at_me_ref *b) {
  bool packed = a->packing->parts > 1 || a->packing->split > 1;
  if (a->dtype != b->dtype || a->storage != b->storage ||
      a->bytes != b->bytes || a->rank != b->rank ||
      a->packing->parts != b->packing->parts ||
      a->packing->split != b->packing->split ||
      (packed && a->packing->packed != b->packing->packed))
    return at_me_refuse(m, op, "refs of different layouts");
  return AT_OK;
}

// The base is always a phi. With b, only parts in which a and b differ become
// phis; without, every part that is not a constant.
void at_me_join_begin(at_me *m, const at_me_ref *a, const at_me_ref *b,
                      at_me_join *j) {
  *j = (at_me_join){.ref = *a};
  j->ref.base = at_b_phi(m->e, at_b_ptr(m->e));
  at_me_home *home = at_me_rehome(m, &j->ref);
  home->arg = b && b->home->arg == a->home->arg ? a->home->arg : 0;
  home->root =
      b && b->home->root == a->home->root ? a->home->root : AT_MPLAN_ANY_ROOT;
  for (uint32_t i = 0; i < num_parts(a); i++) {
    at_me_num n = part(a, i);
    if (b ? same_part(n, part(b, i)) : !n.v) continue;
    n = (at_me_num){0, at_b_phi(m->e, at_em_int(m->e, 64))};
    set_part(m, &j->ref, i, n);
    j->phis |= 1u << i;
  }
}

// One way in. A part that is no phi must be the same on every way.
at_status at_me_join_add(at_me *m, const at_mop *op, at_me_join *j,
                         const at_me_ref *r, LLVMBasicBlockRef from) {
  AT_TRY(check_form(m, op, &j->ref, r));
  at_b_phi_add(j->ref.base, r->base, from);
  for (uint32_t i = 0; i < num_parts(r); i++) {
    at_me_num n = part(&j->ref, i), own = part(r, i);
    if (j->phis >> i & 1)
      at_b_phi_add(n.v, at_me_num_value(m, own), from);
    else if (!same_part(n, own))
      return at_me_refuse(m, op, "a ref whose layout changes");
  }
  return AT_OK;
}
