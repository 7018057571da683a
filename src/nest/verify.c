// What must hold in every nest. It is checked of each one that is made
// (compile/native.c): what is refused here is a bug of whoever made the nest,
// never of a user's program.
//
// Shapes of statements are checked one by one. That locals are written before
// they are read is checked along the control flow, in one walk: `written` holds
// at the statement at hand, and a log of first writes lets a block be undone
// without copying the set. So the work is linear in statements and refs.
#include "base/map.h"
#include "nest/nest.h"

// Which local buffers were written on every way to the statement at hand. A
// block's writes are undone at its end, but where all branches of a CASE, or
// the condition of a WHILE, have made them.
typedef struct checker {
  const at_nest *nest;
  bool *written;
  AT_VEC(uint32_t) log;  // buffers, in the order of their first writes
} checker;

// INTERNAL, with the nest and the statement.
static at_status refuse(const at_nest *n, const at_nest_stmt *s,
                        const char *why) {
  return AT_FAIL(AT_INTERNAL, "nest %s: statement \"%s\": %s", n->name, s->name,
                 why);
}

// A ref lies in its buffer, and a local that it reads was written before. The
// bounds are compared without sums, which could wrap.
static at_status check_ref(checker *c, const at_nest_stmt *s,
                           const at_nest_ref *r) {
  const at_nest *n = c->nest;
  if (r->buffer >= n->buffers.len) return refuse(n, s, "no such buffer");
  const at_nest_buffer *b = &n->buffers.ptr[r->buffer];
  if (r->offset > b->bytes || r->bytes > b->bytes - r->offset)
    return refuse(n, s, "a ref reaches beyond its buffer");
  if (!r->access || r->access > (AT_NEST_READ | AT_NEST_WRITE))
    return refuse(n, s, "a ref that neither reads nor writes");
  bool reads = r->access & AT_NEST_READ;
  if (reads && b->memory == AT_NEST_LOCAL && !c->written[r->buffer])
    return refuse(n, s, "it reads a local buffer that was not written");
  return AT_OK;
}

// Counts of refs and blocks, and sizes, as at_nest_kind says them.
static at_status check_shape(const at_nest *n, const at_nest_stmt *s) {
  uint32_t refs =
      s->kind == AT_NEST_COPY || s->kind == AT_NEST_EXCHANGE ? 2 : 1;
  if (s->kind != AT_NEST_CALL && s->num_refs != refs)
    return refuse(n, s, "wrong number of refs");
  switch (s->kind) {
    case AT_NEST_CALL:
      if (!s->kernel || s->tasks < 0) return refuse(n, s, "no kernel");
      break;
    case AT_NEST_COPY:
      if (s->refs[0].bytes != s->refs[1].bytes)
        return refuse(n, s, "sizes differ");
      break;
    case AT_NEST_EXCHANGE:
      if (s->refs[0].bytes != s->refs[1].bytes)
        return refuse(n, s, "sizes differ");
      break;
    case AT_NEST_FILL:
      if (!s->element_bytes || s->element_bytes > sizeof s->element ||
          s->refs[0].bytes % s->element_bytes)
        return refuse(n, s, "the element does not divide the buffer");
      break;
    case AT_NEST_EMPTY:
      break;
    case AT_NEST_WHILE:
      if (s->num_blocks != 2 || s->refs[0].bytes != 1)
        return refuse(n, s, "a loop has a predicate, a condition and a body");
      break;
    case AT_NEST_CASE:
      if (!s->num_blocks || s->refs[0].bytes != (s->is_bool ? 1 : 4) ||
          (s->is_bool && s->num_blocks != 2))
        return refuse(n, s, "wrong selector");
      break;
  }
  return AT_OK;
}

// A write to a part of a buffer counts as one of all of it.
static at_status note_writes(checker *c, const at_nest_stmt *s) {
  for (uint32_t i = 0; i < s->num_refs; i++) {
    uint32_t b = s->refs[i].buffer;
    if (!(s->refs[i].access & AT_NEST_WRITE) || c->written[b]) continue;
    c->written[b] = true;
    if (!at_vec_push(c->nest->arena, &c->log, b))
      return AT_NO_MEMORY("the nest's verifier");
  }
  return AT_OK;
}

// in_turn: b is the body of a loop.
static at_status check_block(checker *c, const at_nest_block *b, bool in_turn);

// Forgets the writes since `mark`.
static void undo(checker *c, size_t mark) {
  while (c->log.len > mark) c->written[c->log.ptr[--c->log.len]] = false;
}

// What all branches write is written behind the CASE. Each branch is checked
// from the same state; a count per buffer says in how many it was logged.
static at_status check_case(checker *c, const at_nest_stmt *s) {
  size_t mark = c->log.len;
  AT_VEC(uint32_t) seen = {0};
  at_arena *a = c->nest->arena;
  at_map counts = at_map_in(a);
  for (uint32_t i = 0; i < s->num_blocks; i++) {
    AT_TRY(check_block(c, &s->blocks[i], false));
    for (size_t k = mark; k < c->log.len; k++) {
      void **at;
      AT_TRY_ALLOC(at, at_map_put_ptr(&counts, &c->written[c->log.ptr[k]]));
      if (!*at && !at_vec_push(a, &seen, c->log.ptr[k]))
        return AT_NO_MEMORY("the nest's verifier");
      *at = (void *)((uintptr_t)*at + 1);
    }
    undo(c, mark);
  }
  for (size_t k = 0; k < seen.len; k++) {
    void **at = at_map_find_ptr(&counts, &c->written[seen.ptr[k]]);
    if ((uintptr_t)*at != s->num_blocks) continue;
    c->written[seen.ptr[k]] = true;
    if (!at_vec_push(a, &c->log, seen.ptr[k]))
      return AT_NO_MEMORY("the nest's verifier");
  }
  return AT_OK;
}

// The condition runs at least once, so what it writes holds behind the loop;
// the body may not run at all.
static at_status check_while(checker *c, const at_nest_stmt *s) {
  AT_TRY(check_block(c, &s->blocks[0], false));
  AT_TRY(check_ref(c, s, &s->refs[0]));
  size_t mark = c->log.len;
  AT_TRY(check_block(c, &s->blocks[1], true));
  undo(c, mark);

  return AT_OK;
}

// Buffers of their own, whole, at the end of a turn.
static at_status check_exchange(const at_nest *n, const at_nest_stmt *s,
                                bool in_turn) {
  for (uint32_t i = 0; i < 2; i++) {
    const at_nest_buffer *b = &n->buffers.ptr[s->refs[i].buffer];
    if (!b->alone || s->refs[i].bytes != b->bytes)
      return refuse(n, s, "it exchanges what is not a whole buffer, alone");
  }
  return in_turn ? AT_OK : refuse(n, s, "an exchange outside of a loop's body");
}

static at_status check_block(checker *c, const at_nest_block *b, bool in_turn) {
  for (const at_nest_stmt *s = b->first; s; s = s->next) {
    AT_TRY(check_shape(c->nest, s));
    if (s->kind == AT_NEST_WHILE) {
      AT_TRY(check_while(c, s));
      continue;
    }
    for (uint32_t i = 0; i < s->num_refs; i++)
      AT_TRY(check_ref(c, s, &s->refs[i]));
    if (s->kind == AT_NEST_EXCHANGE)
      AT_TRY(check_exchange(c->nest, s, in_turn));
    AT_TRY(note_writes(c, s));
    if (s->kind == AT_NEST_CASE) AT_TRY(check_case(c, s));
  }
  return AT_OK;
}

// Memory is the nest's arena: a bool for each buffer and a log of writes.
at_status at_nest_verify(const at_nest *n) {
  checker c = {.nest = n};
  AT_TRY_ALLOC(c.written, at_new(n->arena, bool, n->buffers.len + 1));
  return check_block(&c, &n->root, false);
}
