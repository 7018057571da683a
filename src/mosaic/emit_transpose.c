// Transposes that bring another dimension to the lanes: squares of vectors are
// turned in registers. Any other transpose is a way to read.
#include <stdio.h>

#include "mosaic/emit.h"

enum { MAX_SIDE = 16 };

typedef struct turning {
  const at_me_ref *dst;
  at_me_ref src;            // under the dimensions of dst
  uint32_t rank, row, col;  // col: the lanes of dst; row: those of src
  uint32_t side;
  int64_t dim[AT_ME_RANK];
} turning;

typedef struct plane {
  LLVMValueRef src, dst;  // first elements
} plane;

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
  return !m->rows->count && side_of(n) > 0;
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

// `steps` elements along dimension d of r, from `at`.
static LLVMValueRef along(at_me *m, const at_me_ref *r, uint32_t d,
                          LLVMValueRef at, at_me_num steps) {
  return at_me_offset(m, at, r->bytes, at_me_mul(m, r->stride[d], steps));
}

// side loads, log2(side) rounds of shuffles, side stores.
static void turn_square(at_me *m, const turning *t, const plane *p) {
  at_em *e = m->e;
  LLVMValueRef v[MAX_SIDE];
  LLVMTypeRef type = at_b_vector(at_em_int(e, 8 * t->src.bytes), t->side);
  uint32_t align = t->src.bytes;
  for (uint32_t i = 0; i < t->side; i++)
    v[i] = at_b_load(e, type,
                     along(m, &t->src, t->col, p->src, (at_me_num){i, NULL}),
                     align);
  for (uint32_t by = t->side / 2; by; by /= 2) trade(e, v, t->side, by);
  for (uint32_t i = 0; i < t->side; i++)
    at_b_store(e, v[i], along(m, t->dst, t->row, p->dst, (at_me_num){i, NULL}),
               align);
}

// The plane moved by `by` steps along dimension d, on both sides.
static plane further(at_me *m, const turning *t, const plane *p, uint32_t d,
                     LLVMValueRef by) {
  at_me_num n = at_me_num_of(by);
  return (plane){along(m, &t->src, d, p->src, n),
                 along(m, t->dst, d, p->dst, n)};
}

// Squares column by column; threads may share the columns of squares.
static void turn_plane(at_me *m, const turning *t, const plane *p,
                       bool shared) {
  at_me_share share;
  at_loop cols, rows;
  at_me_loop_begin(m, &share, &cols, t->dim[t->col], t->side, shared);
  plane strip = further(m, t, p, t->col, at_ix_value(m->e, cols.i));
  at_loop_range(m->e, &rows, 0, t->dim[t->row], t->side);
  plane square = further(m, t, &strip, t->row, at_ix_value(m->e, rows.i));
  turn_square(m, t, &square);
  at_loop_end(m->e, &rows);
  at_me_loop_end(m, &share, &cols);
}

// Planes of a kind are turned by one function: a kernel may turn hundreds.
static void call_to_turn(at_me *m, const turning *t, const plane *p) {
  char name[128];
  snprintf(name, sizeof name, "at.turn.%u.%u.%lld.%lld.%lld.%lld", t->src.bytes,
           t->side, (long long)t->dim[t->row], (long long)t->dim[t->col],
           (long long)t->src.stride[t->col].c,
           (long long)t->dst->stride[t->row].c);
  at_b_helper h;
  if (at_b_helper_begin(m->e, &h, name)) {
    plane q = {at_b_param(m->e, 0), at_b_param(m->e, 1)};
    turn_plane(m, t, &q, false);
    at_b_helper_end(m->e, &h);
  }
  LLVMValueRef args[2] = {p->src, p->dst};
  at_b_call(m->e, name, NULL, args, 2);
}

// d: of the dimensions but row and col; p: where it begins.
static void planes(at_me *m, const turning *t, uint32_t d, const plane *p) {
  while (d < t->rank && (d == t->row || d == t->col)) d++;
  if (d < t->rank) {
    at_loop l;
    at_loop_range(m->e, &l, 0, t->dim[d], 1);
    plane inner = further(m, t, p, d, at_ix_value(m->e, l.i));
    planes(m, t, d + 1, &inner);
    at_loop_end(m->e, &l);
    return;
  }
  bool shared =
      at_me_shares(m, 2.0 * (double)(t->dim[t->col] * t->dim[t->row]));
  if (shared || t->src.stride[t->col].v || t->dst->stride[t->row].v)
    turn_plane(m, t, p, shared);
  else
    call_to_turn(m, t, p);
}

// Needs dense lanes on both sides, of plain elements of one type.
bool at_me_turn_into(at_me *m, at_me_node *n, const at_me_ref *dst) {
  turning t = {.dst = dst, .rank = n->rank, .side = side_of(n)};
  const at_me_num *lanes = &dst->stride[dst->rank - 1];
  if (!at_me_turns_lanes(m, n) || dst->rank != n->rank || lanes->v ||
      lanes->c != 1 || dst->packing->parts > 1 || dst->packing->split > 1 ||
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
  plane all = {t.src.base, dst->base};
  if (fits) planes(m, &t, 0, &all);
  at_me_node_drop(m, in);
  return fits;
}
