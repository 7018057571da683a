// A loop's state that a turn makes anew in another buffer, and copies back at
// its end, changes places with that buffer instead.
#include "base/verify.h"
#include "nest/nest.h"

// Smaller states stay in registers or the first cache, where a copy is short
// and fixed places are worth more.
enum { SMALL_BYTES = 1024 };

// Refs to a buffer: in all of the nest, in the body at hand, in the first
// statement there that has any, and in the copies at its end.
typedef struct use {
  uint32_t everywhere, body, first, copied;
  bool made;  // that first statement writes all of it, and reads nothing
} use;

// `user`: an array of use, one for each buffer.
static at_status count_everywhere(void *user, at_nest_stmt *s) {
  use *u = user;
  for (uint32_t i = 0; i < s->num_refs; i++) u[s->refs[i].buffer].everywhere++;
  return AT_OK;
}

static at_status count_in_body(void *user, at_nest_stmt *s) {
  use *u = user;
  for (uint32_t i = 0; i < s->num_refs; i++) u[s->refs[i].buffer].body++;
  return AT_OK;
}

// Of the whole of a buffer.
static bool is_whole(const at_nest *n, const at_nest_ref *r) {
  return r->offset == 0 && r->bytes == n->buffers.ptr[r->buffer].bytes;
}

// A buffer's first use in the body, where that is a statement of the body's own
// list, so that every turn comes there: is it written and not read?
static void note_first(const at_nest *n, const at_nest_stmt *s, use *u) {
  for (uint32_t i = 0; i < s->num_refs; i++) {
    const at_nest_ref *r = &s->refs[i];
    use *b = &u[r->buffer];
    if (b->body) continue;
    bool makes = r->access == AT_NEST_WRITE && is_whole(n, r);
    b->made = makes && (b->made || !b->first);
    b->first++;
  }
}

// The copies that end the body's list, as one chain of statements; NULL: none.
static at_nest_stmt *last_copies(const at_nest_block *body) {
  at_nest_stmt *from = NULL;
  for (at_nest_stmt *s = body->first; s; s = s->next) {
    if (s->kind != AT_NEST_COPY)
      from = NULL;
    else if (!from)
      from = s;
  }
  return from;
}

static bool may_exchange(const at_nest *n, const at_nest_stmt *s,
                         const use *u) {
  const at_nest_ref *to = &s->refs[0], *from = &s->refs[1];
  const at_nest_buffer *state = &n->buffers.ptr[to->buffer],
                       *made = &n->buffers.ptr[from->buffer];
  const use *m = &u[from->buffer];
  return state->alone && made->alone && !made->live_out &&
         made->bytes == state->bytes && made->bytes > SMALL_BYTES &&
         is_whole(n, to) && is_whole(n, from) && m->made &&
         m->body == m->everywhere && u[to->buffer].copied == 1 &&
         m->copied == 1;
}

// Uses of the loop at hand are counted afresh, so a nest takes as many walks
// over a statement as there are loops with such copies around it.
static at_status exchange_in(at_nest *n, at_nest_stmt *loop, use *u) {
  const at_nest_block *body = &loop->blocks[1];
  at_nest_stmt *copies = last_copies(body);
  if (!copies) return AT_OK;
  for (size_t i = 0; i < n->buffers.len; i++)
    u[i] = (use){.everywhere = u[i].everywhere};
  for (at_nest_stmt *s = body->first; s; s = s->next) {
    note_first(n, s, u);
    for (uint32_t k = 0; k < s->num_blocks; k++)
      AT_TRY(at_nest_walk(&s->blocks[k], count_in_body, u));
    for (uint32_t i = 0; i < s->num_refs; i++) u[s->refs[i].buffer].body++;
  }
  for (at_nest_stmt *s = copies; s; s = s->next)
    for (uint32_t i = 0; i < 2; i++) u[s->refs[i].buffer].copied++;
  for (at_nest_stmt *s = copies; s; s = s->next) {
    if (!may_exchange(n, s, u)) continue;
    s->kind = AT_NEST_EXCHANGE;
    s->refs[0].access = s->refs[1].access = AT_NEST_READ | AT_NEST_WRITE;
  }
  return AT_OK;
}

typedef struct exchanger {
  at_nest *nest;
  use *uses;
} exchanger;

static at_status visit(void *user, at_nest_stmt *s) {
  exchanger *e = user;
  return s->kind == AT_NEST_WHILE ? exchange_in(e->nest, s, e->uses) : AT_OK;
}

at_status at_nest_exchange(at_nest *n) {
  exchanger e = {.nest = n};
  AT_TRY_ALLOC(e.uses, at_new(n->arena, use, n->buffers.len + 1));
  AT_TRY(at_nest_walk(&n->root, count_everywhere, e.uses));
  AT_TRY(at_nest_walk(&n->root, visit, &e));
  AT_VERIFY_OK(at_nest_verify(n));
  return AT_OK;
}
