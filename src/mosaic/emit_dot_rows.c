// Products in loops over rows: operands are packed before the loop, a first
// operand that the loop makes a few rows at a time.
#include "mosaic/emit_dot.h"

// Of products in a loop over rows.
struct at_me_products {
  struct {
    const at_mop *op;
    LLVMValueRef a, b;  // packed; a NULL: made in the loop
    int64_t row_bytes;  // of a, packed
    int64_t room_a, room_b, bytes_a, bytes_b;  // of the temporary memory
  } list[AT_MPLAN_ROW_PRODUCTS];
  uint32_t num;
};

at_me_products *at_me_products_new(at_arena *a) {
  return at_new(a, at_me_products, 1);
}

// Temporary memory for an operand of `outer` vectors of length k, packed;
// *bytes is its size.
static int64_t rows_room(at_me *m, int64_t outer, int64_t k, int64_t *bytes) {
  *bytes = at_core_dot_room(outer, k);
  return at_me_temp_alloc(m, *bytes);
}

// An operand packed, in the room at `offset` or where it stays.
static LLVMValueRef pack_operand(at_me *m, at_me_product *p, at_me_node *n,
                                 const at_mproduct_dims *free,
                                 const at_mproduct_dims *sum, bool is_b,
                                 int64_t room) {
  at_me_ref *v = is_b ? &p->b : &p->a;
  at_me_node *held = at_me_view(m, at_me_narrow_source(n), v);
  if (!held) return NULL;
  int64_t d = at_mproduct_only_dim(free, n->dim),
          k = at_mproduct_only_dim(sum, n->dim);
  const at_me_num none = {0, NULL};
  at_me_num outer = v->stride[d], inner = v->stride[k];
  p->m.n = p->n.n = p->k.n = 0;
  if (is_b) {
    at_me_add_axis(&p->n, (at_me_axis){n->dim[d], none, outer, none});
    at_me_add_axis(&p->k, (at_me_axis){n->dim[k], none, inner, none});
  } else {
    at_me_add_axis(&p->m, (at_me_axis){n->dim[d], outer, none, none});
    at_me_add_axis(&p->k, (at_me_axis){n->dim[k], inner, none, none});
  }
  LLVMValueRef args[3] = {m->core, at_me_dot_record(m, p, false),
                          at_me_temp_at(m, room)};
  at_me_node_drop(m, held);
  return at_b_call(m->e, is_b ? "at_core_dot_pack_b" : "at_core_dot_pack_a",
                   at_b_ptr(m->e), args, 3);
}

// Registers the product with its packed operands. b is packed here; a too if it
// does not depend on the row, else each turn packs its own rows.
void at_me_dot_rows_pack(at_me *m, const at_mop *op, bool a_too) {
  uint32_t i = m->products->num++;
  at_me_node *b = at_me_vector(m, op->operands[1]), *a = NULL;
  at_mproduct_shape rows = at_mproduct_shape_of(op->operands[0]);
  at_mproduct_numbers x;
  at_me_product p = {.op = op};
  if (!b) return;
  at_mproduct_shape of_b = {b->dtype, b->rank, b->dim};
  if (!at_mproduct_numbers_of(op, &rows, &of_b, &x)) return;
  if (a_too) a = at_me_vector(m, op->operands[0]);
  int64_t k =
      rows.dim[at_mproduct_only_dim(&x.list[AT_MPRODUCT_SUM_A], rows.dim)];
  int64_t num =
      a ? rows.dim[at_mproduct_only_dim(&x.list[AT_MPRODUCT_FREE_A], rows.dim)]
        : 0;
  m->products->list[i].op = op;
  m->products->list[i].a = NULL;
  m->products->list[i].row_bytes =
      at_core_dot_room(AT_MPRODUCT_ROWS, k) / AT_MPRODUCT_ROWS;
  m->products->list[i].bytes_a = 0;
  m->products->list[i].room_b = rows_room(
      m, b->dim[at_mproduct_only_dim(&x.list[AT_MPRODUCT_FREE_B], b->dim)], k,
      &m->products->list[i].bytes_b);
  m->products->list[i].b = pack_operand(m, &p, b, &x.list[AT_MPRODUCT_FREE_B],
                                        &x.list[AT_MPRODUCT_SUM_B], true,
                                        m->products->list[i].room_b);
  if (!a) return;
  p = (at_me_product){.op = op};
  m->products->list[i].room_a =
      rows_room(m, num, k, &m->products->list[i].bytes_a);
  m->products->list[i].a = pack_operand(m, &p, a, &x.list[AT_MPRODUCT_FREE_A],
                                        &x.list[AT_MPRODUCT_SUM_A], false,
                                        m->products->list[i].room_a);
}

// Nothing where no product was packed.
void at_me_dot_rows_begin(at_me *m) {
  if (m->products->num)
    at_b_call(m->e, "at_core_dot_rows_begin", NULL, NULL, 0);
}
void at_me_dot_rows_end(at_me *m) {
  if (m->products->num) at_b_call(m->e, "at_core_dot_rows_end", NULL, NULL, 0);
}

// Gives back what the products' operands took, behind the loop.
void at_me_dot_rows_free(at_me *m) {
  for (uint32_t i = 0; i < m->products->num; i++) {
    if (m->products->list[i].bytes_a)
      at_me_temp_free(m, m->products->list[i].room_a,
                      m->products->list[i].bytes_a);
    at_me_temp_free(m, m->products->list[i].room_b,
                    m->products->list[i].bytes_b);
  }
  m->products->num = 0;
}

// at_core_dot_rows multiplies the packed rows of this turn by the packed b.
// Turn memory holds the rows of a where the loop makes them.
void at_me_dot_call_rows(at_me *m, at_me_product *p, bool accumulate) {
  uint32_t i = 0;
  while (i < m->products->num && m->products->list[i].op != p->op) i++;
  if (i == m->products->num || p->m.n != 1 ||
      p->m.x[0].size != m->rows->count) {
    at_em_fail(m->e, AT_FAIL(AT_INTERNAL, "a product without rows"));
    return;
  }
  at_me_axis *rows = &p->m.x[0];
  LLVMValueRef a = m->products->list[i].a;
  at_me_num bytes = {m->products->list[i].row_bytes, NULL};
  int64_t room = a ? 0 : m->rows->step * bytes.c, at = -1;
  if (a) {
    a = at_me_moved(m, a, 1, m->rows->first, bytes);
    p->a.base = NULL;
  } else {
    at = at_me_turn_alloc(m, room);
    a = at_me_turn_at(m, at);
    p->a.base = at_me_moved(m, p->a.base, p->a.bytes, m->rows->first, rows->a);
  }
  p->c.base = at_me_moved(m, p->c.base, p->c.bytes, m->rows->first, rows->c);
  rows->size = m->rows->step;
  p->later = false;
  LLVMValueRef args[3] = {at_me_dot_record(m, p, accumulate), a,
                          m->products->list[i].b};
  at_b_call(m->e, "at_core_dot_rows", NULL, args, 3);
  if (room) at_me_turn_free(m, at, room);
}
