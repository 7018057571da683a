// Transposes that bring another dimension to the lanes: squares of vectors are
// turned in registers. Any other transpose is a way to read.
#include "mosaic/emit.h"

enum { MAX_SIDE = 16 };

typedef struct turning {
  const at_me_ref *dst;
  at_me_ref src;            // under the dimensions of dst
  uint32_t rank, row, col;  // col: the lanes of dst; row: those of src
  uint32_t side;
  int64_t dim[AT_ME_RANK];
  LLVMValueRef at[AT_ME_RANK];  // elements, of the square that is turned
} turning;

// Squares of so many elements a side; 0: there are none.
static uint32_t side_of(const at_me_node *n) {
  if (n->kind != AT_ME_TRANSPOSE || n->rank < 2) return 0;
  uint32_t last = n->rank - 1, row = 0;
  while (n->ints[row] != last) row++;
  bool wide = at_dtype_bytes(n->dtype) > 4;
  for (uint32_t side = wide ? MAX_SIDE / 2 : MAX_SIDE; side >= 8; side /= 2)
    if (row != last && n->dim[row] % side == 0 && n->dim[last] % side == 0)
      return side;
  return 0;
}

bool at_me_turns_lanes(at_me *m, const at_me_node *n) {
  return !m->rows.count && side_of(n) > 0;
}

// Trades the upper right with the lower left of all squares of 2 * by.
static void trade(at_em *e, LLVMValueRef *v, uint32_t side, uint32_t by) {
  int low[MAX_SIDE], high[MAX_SIDE];
  for (uint32_t i = 0; i < side; i++) {
    bool right = i & by;
    low[i] = (int)(right ? side + i - by : i);
    high[i] = (int)(right ? side + i : i + by);
  }
  for (uint32_t i = 0; i < side; i++) {
    if (i & by) continue;
    LLVMValueRef a = v[i], b = v[i + by];
    v[i] = at_b_shuffle(e, a, b, low, side);
    v[i + by] = at_b_shuffle(e, a, b, high, side);
  }
}

// The element of r at t->at, `steps` further along dimension d.
static LLVMValueRef place(at_me *m, const turning *t, const at_me_ref *r,
                          uint32_t d, uint32_t steps) {
  at_me_num sum = at_me_mul(m, r->stride[d], (at_me_num){steps, NULL});
  for (uint32_t k = 0; k < t->rank; k++)
    sum = at_me_add(
        m, sum, at_me_mul(m, r->stride[k], at_me_num_of(t->at[k])));
  return at_me_offset(m, r->base, r->bytes, sum);
}

static void turn_square(at_me *m, const turning *t) {
  at_em *e = m->e;
  LLVMValueRef v[MAX_SIDE];
  LLVMTypeRef type = at_b_vector(at_em_int(e, 8 * t->src.bytes), t->side);
  uint32_t align = t->src.bytes;
  for (uint32_t i = 0; i < t->side; i++)
    v[i] = at_b_load(e, type, place(m, t, &t->src, t->col, i), align);
  for (uint32_t by = t->side / 2; by; by /= 2) trade(e, v, t->side, by);
  for (uint32_t i = 0; i < t->side; i++)
    at_b_store(e, v[i], place(m, t, t->dst, t->row, i), align);
}

// d: of the dimensions but row and col, then these.
static void squares(at_me *m, turning *t, uint32_t d) {
  if (d == t->rank + 2) {
    turn_square(m, t);
    return;
  }
  bool inner = d >= t->rank;
  uint32_t dim = d < t->rank ? d : d == t->rank ? t->col : t->row;
  if (!inner && (dim == t->row || dim == t->col)) {
    squares(m, t, d + 1);
    return;
  }
  int64_t step = inner ? t->side : 1, size = t->dim[dim];
  bool all = d == t->rank &&
             at_me_shares(m, 2.0 * (double)(size * t->dim[t->row]));
  at_me_share share;
  at_loop l;
  at_me_loop_begin(m, &share, &l, size, step, all);
  t->at[dim] = at_ix_value(m->e, l.i);
  squares(m, t, d + 1);
  at_me_loop_end(m, &share, &l);
}

bool at_me_turn_into(at_me *m, at_me_node *n, const at_me_ref *dst) {
  turning t = {.dst = dst, .rank = n->rank, .side = side_of(n)};
  const at_me_num *lanes = &dst->stride[dst->rank - 1];
  if (!at_me_turns_lanes(m, n) || dst->rank != n->rank || lanes->v ||
      lanes->c != 1 || dst->parts > 1 || dst->split > 1 ||
      dst->dtype != n->dtype || dst->storage != n->dtype)
    return false;
  t.col = n->rank - 1;
  while (n->ints[t.row] != t.col) t.row++;
  memcpy(t.dim, n->dim, sizeof t.dim);
  at_me_node *in = at_me_view(m, n->in[0], &t.src);
  if (!in) return false;
  at_me_ref from = t.src;
  for (uint32_t d = 0; d < n->rank; d++)
    t.src.stride[d] = from.stride[n->ints[d]];
  bool fits = from.storage == n->dtype && !t.src.stride[t.row].v &&
              t.src.stride[t.row].c == 1;
  if (fits) squares(m, &t, 0);
  at_me_node_drop(m, in);
  return fits;
}
