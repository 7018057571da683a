// Nests (nest/nest.h) as one function: what they call is written in place, so
// that values of a turn stay in registers where their buffers are small.
#include <llvm-c/Core.h>

#include "codegen/build.h"
#include "codegen/job.h"

enum { LOCAL_ALIGN = 64 };

// Where every buffer begins; of one that changes places, `place` is the slot
// that says where it is now (else NULL).
typedef struct nest_emitter {
  at_em *e;
  LLVMValueRef *base, *place;
} nest_emitter;

// Memory of the nest alone, on the stack.
static LLVMValueRef local(at_em *e, uint64_t bytes) {
  LLVMValueRef p = at_em_alloca(e, at_em_int(e, 8), (int64_t)AT_MAX(bytes, 1));
  LLVMSetAlignment(p, bytes >= LOCAL_ALIGN ? LOCAL_ALIGN : 16);
  return p;
}

// Where the buffer is now.
static LLVMValueRef place_of(const nest_emitter *n, uint32_t buffer) {
  if (!n->place[buffer]) return n->base[buffer];
  return LLVMBuildLoad2(n->e->b, at_b_ptr(n->e), n->place[buffer], "");
}

// The ref's buffer and offset, in bytes.
static LLVMValueRef address(const nest_emitter *n, const at_nest_ref *r) {
  LLVMValueRef base = place_of(n, r->buffer);
  if (!r->offset) return base;
  LLVMValueRef at = at_em_i64(n->e, (int64_t)r->offset);
  return LLVMBuildGEP2(n->e->b, at_em_int(n->e, 8), base, &at, 1, "");
}

// The kernel's buffers are bound to addresses, and forgotten behind it.
static void emit_call(const nest_emitter *n, const at_nest_stmt *s) {
  at_em *e = n->e;
  uint32_t scope = at_em_scope_push(e);
  for (uint32_t i = 0; i < s->num_refs; i++)
    at_job_bind_buffer(e, i, address(n, &s->refs[i]));
  at_job_emit_inside(e, s->kernel);
  at_em_scope_pop(e, scope);
}

// Refs do not overlap (nest/nest.h's verifier).
static void emit_copy(const nest_emitter *n, const at_nest_stmt *s) {
  at_em *e = n->e;
  LLVMBuildMemCpy(e->b, address(n, &s->refs[0]), 1, address(n, &s->refs[1]), 1,
                  at_em_i64(e, (int64_t)s->refs[0].bytes));
}

static void emit_exchange(const nest_emitter *n, const at_nest_stmt *s) {
  uint32_t a = s->refs[0].buffer, b = s->refs[1].buffer;
  LLVMValueRef to = place_of(n, b), from = place_of(n, a);
  LLVMBuildStore(n->e->b, to, n->place[a]);
  LLVMBuildStore(n->e->b, from, n->place[b]);
}

// Behind a loop: what changed places in its body is where it was before, the
// first of each pair with its contents.
static void settle(const nest_emitter *n, const at_nest_block *body) {
  at_em *e = n->e;
  for (const at_nest_stmt *s = body->first; s; s = s->next) {
    if (s->kind != AT_NEST_EXCHANGE) continue;
    uint32_t a = s->refs[0].buffer, b = s->refs[1].buffer;
    LLVMValueRef now = place_of(n, a);
    at_branch away;
    at_if_begin(e, &away, LLVMBuildICmp(e->b, LLVMIntNE, now, n->base[a], ""));
    LLVMBuildMemCpy(e->b, n->base[a], 1, now, 1,
                    at_em_i64(e, (int64_t)s->refs[0].bytes));
    LLVMBuildStore(e->b, n->base[a], n->place[a]);
    LLVMBuildStore(e->b, n->base[b], n->place[b]);
    at_if_end(e, &away);
  }
}

// Then memset does it.
static bool all_equal(const uint8_t *p, uint32_t n) {
  for (uint32_t i = 1; i < n; i++)
    if (p[i] != p[0]) return false;
  return true;
}

// The element repeated; a loop for elements of more than one value of a byte.
// Alignment is not known.
static void emit_fill(const nest_emitter *n, const at_nest_stmt *s) {
  at_em *e = n->e;
  LLVMValueRef to = address(n, &s->refs[0]);
  if (all_equal(s->element, s->element_bytes)) {
    LLVMBuildMemSet(e->b, to, at_em_ci(e, at_em_int(e, 8), s->element[0]),
                    at_em_i64(e, (int64_t)s->refs[0].bytes), 1);
    return;
  }
  LLVMTypeRef t = at_em_int(e, 8 * s->element_bytes);
  uint64_t words[2] = {0};
  memcpy(words, s->element, s->element_bytes);
  LLVMValueRef v = LLVMConstIntOfArbitraryPrecision(t, 2, words);
  at_loop l;
  at_loop_range(e, &l, 0, (int64_t)(s->refs[0].bytes / s->element_bytes), 1);
  LLVMValueRef i = at_ix_value(e, l.i);
  LLVMValueRef store =
      LLVMBuildStore(e->b, v, LLVMBuildGEP2(e->b, t, to, &i, 1, ""));
  LLVMSetAlignment(store, 1);
  at_loop_end(e, &l);
}

static void emit_block(const nest_emitter *n, const at_nest_block *b);

// Code of a block, from the start of LLVM's block `at`.
static void emit_block_at(const nest_emitter *n, const at_nest_block *b,
                          LLVMBasicBlockRef at) {
  LLVMPositionBuilderAtEnd(n->e->b, at);
  emit_block(n, b);
}

// The condition's byte is read behind block 0, in each turn.
static void emit_while(const nest_emitter *n, const at_nest_stmt *s) {
  at_em *e = n->e;
  LLVMBasicBlockRef head = at_em_block(e, "while"), body = at_em_block(e, "do"),
                    done = at_em_block(e, "end");
  uint32_t scope = at_em_scope_push(e);
  LLVMBuildBr(e->b, head);
  emit_block_at(n, &s->blocks[0], head);
  LLVMValueRef go =
      LLVMBuildLoad2(e->b, at_em_int(e, 8), address(n, &s->refs[0]), "");
  go = LLVMBuildIsNotNull(e->b, go, "");
  LLVMBuildCondBr(e->b, go, body, done);
  emit_block_at(n, &s->blocks[1], body);
  LLVMBuildBr(e->b, head);
  at_em_scope_pop(e, scope);
  LLVMPositionBuilderAtEnd(e->b, done);
  settle(n, &s->blocks[1]);
}

// A byte that is not zero takes block 0. Numbers out of range take the last
// block.
static LLVMValueRef branch_on(const nest_emitter *n, const at_nest_stmt *s,
                              LLVMBasicBlockRef *blocks) {
  at_em *e = n->e;
  LLVMTypeRef t = at_em_int(e, s->is_bool ? 8 : 32);
  LLVMValueRef pick = LLVMBuildLoad2(e->b, t, address(n, &s->refs[0]), "");
  if (s->is_bool)
    return LLVMBuildCondBr(e->b, LLVMBuildIsNotNull(e->b, pick, ""), blocks[0],
                           blocks[1]);
  uint32_t last = s->num_blocks - 1;
  LLVMValueRef sw = LLVMBuildSwitch(e->b, pick, blocks[last], last);
  for (uint32_t k = 0; k < last; k++)
    LLVMAddCase(sw, at_em_ci(e, t, k), blocks[k]);
  return sw;
}

// What a branch computes stays in its scope.
static void emit_case(const nest_emitter *n, const at_nest_stmt *s) {
  at_em *e = n->e;
  LLVMBasicBlockRef done = at_em_block(e, "end");
  LLVMBasicBlockRef *blocks =
      at_new(e->arena, LLVMBasicBlockRef, s->num_blocks);
  if (!blocks) {
    at_em_fail(e, AT_NO_MEMORY("branches"));
    return;
  }
  for (uint32_t k = 0; k < s->num_blocks; k++)
    blocks[k] = at_em_block(e, "branch");
  branch_on(n, s, blocks);
  for (uint32_t k = 0; k < s->num_blocks; k++) {
    uint32_t scope = at_em_scope_push(e);
    emit_block_at(n, &s->blocks[k], blocks[k]);
    LLVMBuildBr(e->b, done);
    at_em_scope_pop(e, scope);
  }
  LLVMPositionBuilderAtEnd(e->b, done);
}

// Statements in order; ends at the first failure.
static void emit_block(const nest_emitter *n, const at_nest_block *b) {
  for (const at_nest_stmt *s = b->first; s && at_em_ok(n->e); s = s->next)
    switch (s->kind) {
      case AT_NEST_CALL:
        emit_call(n, s);
        break;
      case AT_NEST_COPY:
        emit_copy(n, s);
        break;
      case AT_NEST_FILL:
        emit_fill(n, s);
        break;
      case AT_NEST_EMPTY:
        break;
      case AT_NEST_EXCHANGE:
        emit_exchange(n, s);
        break;
      case AT_NEST_WHILE:
        emit_while(n, s);
        break;
      case AT_NEST_CASE:
        emit_case(n, s);
        break;
    }
}

// Slots for what changes places.
static at_status make_places(void *user, at_nest_stmt *s) {
  const nest_emitter *n = user;
  for (uint32_t i = 0; s->kind == AT_NEST_EXCHANGE && i < 2; i++) {
    uint32_t b = s->refs[i].buffer;
    if (n->place[b]) continue;
    n->place[b] = at_em_alloca(n->e, at_b_ptr(n->e), 1);
    LLVMBuildStore(n->e->b, n->base[b], n->place[b]);
  }
  return AT_OK;
}

// Buffers that are parameters come from the caller, the others live on the
// stack. Loads are not marked invariant: statements write what others have
// read.
void at_job_emit_nest(at_em *e, const at_job *j) {
  const at_nest *nest = j->nest;
  nest_emitter n = {.e = e};
  n.base = at_new(e->arena, LLVMValueRef, nest->buffers.len + 1);
  n.place = at_new(e->arena, LLVMValueRef, nest->buffers.len + 1);
  if (!n.base || !n.place) {
    at_em_fail(e, AT_NO_MEMORY("a nest's buffers"));
    return;
  }
  for (uint32_t i = 0; i < nest->buffers.len; i++) {
    const at_nest_buffer *b = &nest->buffers.ptr[i];
    n.base[i] = b->memory == AT_NEST_PARAM ? at_job_buffer(e, b->param)
                                           : local(e, b->bytes);
  }
  at_status st = at_nest_walk(&nest->root, make_places, &n);
  AT_ASSERT(at_ok(st));
  at_status_free(st);
  e->rewritten = true;
  emit_block(&n, &nest->root);
  e->rewritten = false;
}
