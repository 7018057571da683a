// Temporary memory of a function: first fit, by offset. Memory for the rows of
// one turn of a loop has a list of its own.
#include "mosaic/emit_life.h"

typedef struct at_me_free {
  int64_t offset, bytes;
  struct at_me_free *next;
} at_me_free;

struct at_me_temp {
  LLVMValueRef base;
  at_me_free *free, *turn_free;
  AT_VEC(at_me_node *) later;  // buffers to free when their loop ends
  int64_t bytes;
};

at_me_temp *at_me_temp_new(at_arena *a, LLVMValueRef base) {
  at_me_temp *t = at_new(a, at_me_temp, 1);
  if (t) t->base = base;
  return t;
}

int64_t at_me_temp_bytes(const at_me *m) { return m->temp->bytes; }

// -1: the list has no room.
static int64_t take(at_me_free **list, int64_t bytes) {
  for (at_me_free **p = list; *p; p = &(*p)->next) {
    at_me_free *f = *p;
    if (f->bytes < bytes) continue;
    int64_t at = f->offset;
    f->offset += bytes;
    f->bytes -= bytes;
    if (f->bytes == 0) *p = f->next;
    return at;
  }
  return -1;
}

static int64_t rounded(int64_t bytes) {
  return (int64_t)at_align_up((size_t)AT_MAX(bytes, 1), 64);
}

// Grows the memory where no free range is large enough.
int64_t at_me_temp_alloc(at_me *m, int64_t bytes) {
  bytes = rounded(bytes);
  int64_t at = take(&m->temp->free, bytes);
  if (at >= 0) return at;
  at = m->temp->bytes;
  m->temp->bytes += bytes;
  return at;
}

// Keeps the list in order of offsets and merges neighbours.
static void give(at_me *m, at_me_free **p, int64_t offset, int64_t bytes) {
  bytes = rounded(bytes);
  at_me_free *before = NULL;
  while (*p && (*p)->offset < offset) {
    before = *p;
    p = &(*p)->next;
  }
  at_me_free *after = *p;
  AT_ASSERT(offset >= 0 && offset % 64 == 0);
  AT_ASSERT(!before || before->offset + before->bytes <= offset);
  AT_ASSERT(!after || offset + bytes <= after->offset);
  if (before && before->offset + before->bytes == offset) {
    before->bytes += bytes;
    if (after && before->offset + before->bytes == after->offset) {
      before->bytes += after->bytes;
      before->next = after->next;
    }
    return;
  }
  if (after && offset + bytes == after->offset) {
    after->offset = offset;
    after->bytes += bytes;
    return;
  }
  at_me_free *f = at_new(m->a, at_me_free, 1);
  if (!f) return;  // the memory is not used again, that is all
  *f = (at_me_free){offset, bytes, after};
  *p = f;
}

void at_me_temp_free(at_me *m, int64_t offset, int64_t bytes) {
  give(m, &m->temp->free, offset, bytes);
}

// In a shared loop each thread has its own memory for turns, whose size is told
// with the task.
int64_t at_me_turn_alloc(at_me *m, int64_t bytes) {
  int64_t at = take(&m->temp->turn_free, rounded(bytes));
  if (at >= 0) return at;
  if (!m->share) return at_me_temp_alloc(m, bytes);
  at = m->share->turn_bytes;
  m->share->turn_bytes += rounded(bytes);
  return at;
}
void at_me_turn_free(at_me *m, int64_t offset, int64_t bytes) {
  give(m, m->rows->count ? &m->temp->turn_free : &m->temp->free, offset, bytes);
}
// Behind the loop the turns' memory is free for everything else.
void at_me_turns_end(at_me *m) {
  for (at_me_free *f = m->temp->turn_free; f && !m->share; f = f->next)
    at_me_temp_free(m, f->offset, f->bytes);
  m->temp->turn_free = NULL;
}

// The address is computed outside a task: it is the same in all turns.
LLVMValueRef at_me_temp_at(at_me *m, int64_t offset) {
  at_em *e = m->e;
  if (m->share) at_b_task_outside(e, &m->share->task);
  LLVMValueRef p =
      at_b_gep(e, at_em_int(e, 8), m->temp->base, at_em_i64(e, offset));
  if (m->share) at_b_task_inside(e, &m->share->task);
  return p;
}
// In a shared loop each thread has its own such memory.
LLVMValueRef at_me_turn_at(at_me *m, int64_t offset) {
  if (!m->share) return at_me_temp_at(m, offset);
  return at_b_gep(m->e, at_em_int(m->e, 8), m->share->task.memory,
                  at_em_i64(m->e, offset));
}

// ---- buffers that a loop needs until it ends
void at_me_temp_later(at_me *m, at_me_node *n) {
  if (!at_vec_push(m->a, &m->temp->later, n))
    at_em_fail(m->e, AT_NO_MEMORY("values of a kernel"));
}

// Called with the depth behind the loop; buffers of outer loops stay in the
// list.
void at_me_leave_loop(at_me *m) {
  size_t kept = 0;
  for (size_t i = 0; i < m->temp->later.len; i++) {
    at_me_node *n = m->temp->later.ptr[i];
    if (n->life->depth < m->depth) {
      m->temp->later.ptr[kept++] = n;
      continue;
    }
    at_me_temp_free(m, n->life->slot, n->life->slot_bytes);
    n->life->slot = -1;
  }
  m->temp->later.len = kept;
}
