// Vector values as nodes: their life, and lists of those that are not computed
// yet, by what memory they read.
#include "mosaic/emit_life.h"

// Lists of nodes that are not computed yet, by what they may still read: one
// for each bit of `reads`, one for those that read anything, one for products.
struct at_me_link {
  at_me_node *node;
  uint32_t list;
  at_me_link *prev, *next;  // in the list
  at_me_link *other;        // of the same node
};

struct at_me_pending {
  at_me_link *lists[AT_ME_LISTS];
  at_me_cursor *cursors;  // of the loops over them, innermost first
  at_walk walk;
};

at_me_pending *at_me_pending_new(at_arena *a) {
  at_me_pending *p = at_new(a, at_me_pending, 1);
  if (p) p->walk = at_walk_in(a);
  return p;
}

at_walk *at_me_walk(at_me *m) { return &m->pending->walk; }

// ---- life
// A node and its life.
typedef struct whole {
  at_me_node node;
  at_me_life life;
} whole;

static const at_me_home g_nowhere;
static const at_me_ref none = {.home = &g_nowhere, .packing = &at_me_plain};

// Nodes share refs until one changes.
at_me_ref *at_me_node_ref(at_me *m, at_me_node *n) {
  static _Thread_local at_me_ref spare;
  at_me_ref *own =
      at_arena_copy(m->a, n->ref, sizeof *own, _Alignof(at_me_ref));
  if (!own) {
    at_em_fail(m->e, AT_NO_MEMORY("values of a kernel"));
    own = &spare;
    *own = *n->ref;
  }
  n->ref = own;
  return own;
}

// No uses yet: they are set when the node becomes a value, or is held.
static at_me_node *new_node(at_me *m, at_me_kind kind, at_dtype t,
                            uint32_t rank, const int64_t *dim) {
  whole *w = at_new(m->a, whole, 1);
  if (!w || rank > AT_ME_RANK) {
    at_em_fail(
        m->e, w ? AT_FAIL(AT_UNIMPLEMENTED, "a vector with %u dimensions", rank)
                : AT_NO_MEMORY("values of a kernel"));
    return NULL;
  }
  w->life = (at_me_life){.depth = m->depth,
                         .region = m->region,
                         .within = m->rows->count && m->within,
                         .slot = -1};
  w->node = (at_me_node){
      .kind = kind, .dtype = t, .rank = rank, .ref = &none, .life = &w->life};
  for (uint32_t d = 0; d < rank; d++) w->node.dim[d] = dim[d];
  return &w->node;
}

// Of the type's shape and elements. NULL: no memory.
at_me_node *at_me_node_new(at_me *m, at_me_kind kind, const at_mop *op,
                           const at_mtype *type) {
  at_dtype t = at_mosaic_dtype_of(type);
  at_me_node *n = new_node(m, kind, t, type->shape.rank, type->shape.ptr);
  if (n) n->op = op;
  return n;
}

// Rows of this turn at the beginning of the memory, so the first of all rows
// would lie before it.
static LLVMValueRef turn_memory(at_me *m, at_me_node *n) {
  int64_t row = n->life->slot_bytes / m->rows->count;
  n->life->turn = true;
  n->life->slot_bytes = row * m->rows->step;
  n->life->slot = at_me_turn_alloc(m, n->life->slot_bytes);
  at_me_num first = at_me_num_of(at_ix_value(m->e, m->rows->first));
  return at_me_offset(m, at_me_turn_at(m, n->life->slot), 1,
                      at_me_mul(m, first, (at_me_num){-row, NULL}));
}

// Values that are needed inside a loop over rows only get memory for the rows
// of one turn.
at_me_node *at_me_buffer(at_me *m, const at_mop *op, at_dtype t, uint32_t rank,
                         const int64_t *dim) {
  at_me_node *n = new_node(m, AT_ME_BUFFER, t, rank, dim);
  if (!n) return NULL;
  n->op = op;
  n->life->slot_bytes = at_me_elements(n) * at_dtype_bytes(t);
  LLVMValueRef base;
  if (n->life->within && at_mosaic_row_dim(rank, dim, m->rows->count) >= 0) {
    base = turn_memory(m, n);
  } else {
    n->life->slot = at_me_temp_alloc(m, n->life->slot_bytes);
    base = at_me_temp_at(m, n->life->slot);
  }
  at_me_dense(m, at_me_node_ref(m, n), base, t, rank, n->dim);
  return n;
}

// Known, as vectors have static shapes.
int64_t at_me_elements(const at_me_node *n) {
  int64_t k = 1;
  for (uint32_t d = 0; d < n->rank; d++) k *= n->dim[d];
  return k;
}

// Nodes that read memory are listed, so that a store can find them.
static void list_in(at_me *m, at_me_node *n, uint32_t list) {
  at_me_link *k = at_new(m->a, at_me_link, 1);
  if (!k) {
    at_em_fail(m->e, AT_NO_MEMORY("values of a kernel"));
    return;
  }
  *k = (at_me_link){n, list, NULL, m->pending->lists[list], n->life->links};
  if (k->next) k->next->prev = k;
  n->life->links = k;
  m->pending->lists[list] = k;
}

// n reads these roots, too.
static void list(at_me *m, at_me_node *n, uint64_t roots) {
  uint64_t more = roots & ~n->reads;
  if (!more) return;
  if (!n->life->links && n->kind == AT_ME_DOT) list_in(m, n, AT_ME_LIST_DOTS);
  n->reads |= roots;
  if (roots == ~0ull) {
    list_in(m, n, AT_ME_LIST_ANY);
    return;
  }
  for (; more; more &= more - 1) list_in(m, n, (uint32_t)__builtin_ctzll(more));
}

// Links stay in the arena; cursors that stand at them move on.
void at_me_node_unlist(at_me *m, at_me_node *n) {
  n->reads = 0;
  for (at_me_link *k = n->life->links; k; k = k->other) {
    for (at_me_cursor *c = m->pending->cursors; c; c = c->outer)
      if (c->next == k) c->next = k->next;
    if (k->prev)
      k->prev->next = k->next;
    else
      m->pending->lists[k->list] = k->next;
    if (k->next) k->next->prev = k->prev;
  }
  n->life->links = NULL;
}

// Nodes may be dropped while the list is walked.
at_me_node *at_me_list_next(at_me_cursor *c) {
  at_me_link *k = c->next;
  if (k) c->next = k->next;
  return k ? k->node : NULL;
}
// Cursors are nested: the innermost is registered first and ends first.
at_me_node *at_me_list_begin(at_me *m, uint32_t list, at_me_cursor *c) {
  *c = (at_me_cursor){m->pending->lists[list], m->pending->cursors};
  m->pending->cursors = c;
  return at_me_list_next(c);
}
// Cursors end in reverse order.
void at_me_list_end(at_me *m, at_me_cursor *c) {
  AT_ASSERT(m->pending->cursors == c);
  m->pending->cursors = c->outer;
}
// The first list from `list` on that has one of these roots; nodes without
// roots only stand among the products.
uint32_t at_me_list_of(uint64_t roots, uint32_t list) {
  while (list < AT_ME_LIST_ANY && !(roots >> list & 1)) list++;
  return roots ? list : AT_ME_LIST_DOTS;
}

// NULL operands are skipped: their error is noted.
void at_me_node_hold(at_me *m, at_me_node *n, at_me_node *in) {
  if (!n || !in) return;
  if (n->num_in == AT_ME_MAX_IN) {
    at_em_fail(m->e, AT_FAIL(AT_UNIMPLEMENTED,
                             "an operation with more than %d "
                             "vectors",
                             AT_ME_MAX_IN));
    return;
  }
  n->in[n->num_in++] = in;
  in->life->refs++;
  in->life->holds++;
  n->life->height = AT_MAX(n->life->height, in->life->height + 1);
  list(m, n, in->reads);
}
void at_me_node_reads(at_me *m, at_me_node *n, uint64_t roots) {
  list(m, n, roots);
}

// n stops being an expression: what it was made of is no longer held.
void at_me_node_release(at_me *m, at_me_node *n) {
  at_me_node_unlist(m, n);
  n->life->height = 0;
  for (uint32_t i = 0; i < n->num_in; i++) {
    n->in[i]->life->holds--;
    at_me_node_drop(m, n->in[i]);
  }
  n->num_in = 0;
}

uint32_t at_me_uses_of(const at_me_node *n) { return n->life->refs; }
uint32_t at_me_height_of(const at_me_node *n) { return n->life->height; }
bool at_me_is_of_turn(const at_me_node *n) { return n->life->turn; }

void at_me_expect_uses(at_me_node *n, uint32_t uses) { n->life->refs += uses; }

// Takes one more use, which a drop gives back.
at_me_node *at_me_retain(at_me_node *n) {
  n->life->refs++;
  return n;
}

// Memory that was taken outside the current loop is kept until that loop ends:
// the next turn reads it again.
void at_me_node_drop(at_me *m, at_me_node *n) {
  if (!n || n->life->refs == 0 || --n->life->refs > 0) return;
  at_me_node_release(m, n);
  if (n->life->slot < 0) return;
  if (n->life->turn) {
    at_me_turn_free(m, n->life->slot, n->life->slot_bytes);
    n->life->slot = -1;
    return;
  }
  if (n->life->depth < m->depth ||
      m->rows->count) {  // the loop comes round again
    at_me_temp_later(m, n);
    return;
  }
  at_me_temp_free(m, n->life->slot, n->life->slot_bytes);
  n->life->slot = -1;
}

// Rank 0: any shape can be broadcast from it.
at_me_node *at_me_splat(at_me *m, at_dtype t, LLVMValueRef scalar) {
  at_me_node *n = new_node(m, AT_ME_SPLAT, t, 0, NULL);
  if (n) n->scalar = scalar;
  return n;
}
