// Small buffers of the caller become local ones. A loop's state is what its
// node shares with the rest of the program, so without this pass every turn
// would go through memory.
#include "base/verify.h"
#include "nest/nest.h"

// Bounds on what becomes local, in bytes: of one buffer, so that the code
// generator can keep it in registers or the first cache, and of all together,
// since locals lie on the stack of a pool thread.
enum { SMALL_BYTES = 1024, ALL_BYTES = 64 << 10 };

// What statements do with a buffer, wherever they are in the nest.
typedef struct use {
  bool read, written;
} use;

// `user`: an array of use, one for each buffer.
static at_status note_use(void *user, at_nest_stmt *s) {
  use *u = user;
  for (uint32_t i = 0; i < s->num_refs; i++) {
    u[s->refs[i].buffer].read |= (s->refs[i].access & AT_NEST_READ) != 0;
    u[s->refs[i].buffer].written |= (s->refs[i].access & AT_NEST_WRITE) != 0;
  }
  return AT_OK;
}

// `user`: the new number of each buffer.
static at_status rename(void *user, at_nest_stmt *s) {
  const uint32_t *to = user;  // never smaller: new buffers come last
  for (uint32_t i = 0; i < s->num_refs; i++) {
    AT_ASSERT(to[s->refs[i].buffer] >= s->refs[i].buffer);
    s->refs[i].buffer = to[s->refs[i].buffer];
  }
  return AT_OK;
}

// The whole of `from` to `to`, as the last statement of b.
static at_status copy(at_nest *n, at_nest_block *b, uint32_t to,
                      uint32_t from) {
  uint64_t bytes = n->buffers.ptr[to].bytes;
  at_nest_stmt *s;
  AT_TRY(at_nest_add(n->arena, b, AT_NEST_COPY, "localise", 2, 0, &s));
  s->refs[0] = (at_nest_ref){to, AT_NEST_WRITE, 0, bytes};
  s->refs[1] = (at_nest_ref){from, AT_NEST_READ, 0, bytes};
  return AT_OK;
}

// The statements of b behind those of `to`; b itself must not be used after.
static void append(at_nest_block *to, const at_nest_block *b) {
  if (!b->first) return;
  if (to->last)
    to->last->next = b->first;
  else
    to->first = b->first;
  to->last = b->last;
}

// First come, first served: buffers are taken in their order until the stack's
// share is used up. Refs of the root block are renamed before the copies are
// put around it, so that these keep the parameter's number.
at_status at_nest_localise(at_nest *n) {
  uint32_t count = (uint32_t)n->buffers.len;
  use *uses;
  uint32_t *to;
  AT_TRY_ALLOC(uses, at_new(n->arena, use, count + 1));
  AT_TRY_ALLOC(to, at_new(n->arena, uint32_t, count + 1));
  AT_TRY(at_nest_walk(&n->root, note_use, uses));
  // A buffer that is only written is copied in all the same: a loop that makes
  // no turn leaves it as it was.
  at_nest_block before = {0}, behind = {0};
  uint64_t taken = 0;
  for (uint32_t i = 0; i < count; i++) {
    at_nest_buffer b = n->buffers.ptr[i];
    to[i] = i;
    bool used = uses[i].read || uses[i].written;
    if (b.memory != AT_NEST_PARAM || !used || b.bytes > SMALL_BYTES ||
        taken + b.bytes > ALL_BYTES)
      continue;
    taken += b.bytes;
    AT_TRY(at_nest_add_buffer(n, AT_NEST_LOCAL, b.bytes, &to[i]));
    AT_TRY(copy(n, &before, to[i], i));
    if (uses[i].written && b.live_out) AT_TRY(copy(n, &behind, i, to[i]));
  }
  AT_TRY(at_nest_walk(&n->root, rename, to));
  append(&before, &n->root);
  append(&before, &behind);
  n->root = before;
  AT_ASSERT(taken <= ALL_BYTES);
  AT_VERIFY_OK(at_nest_verify(n));
  return AT_OK;
}
