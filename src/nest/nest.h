// The program of one function of machine code: statements in order, loops and
// branches around them, and the buffers that they work on. A control-flow node
// whose turns are short becomes one nest, so that a turn costs instructions and
// not steps of the run loop.
//
// Everything belongs to the arena that the nest was made in. Sizes and offsets
// are bytes. Not thread-safe while it is built; a finished nest is read-only.
//
// Errors: INTERNAL from at_nest_verify names the statement; else
// RESOURCE_EXHAUSTED when the arena refuses.
// Use: at_nest_create, at_nest_add_buffer for each buffer, at_nest_add for each
// statement in the order of effects, then at_nest_localise and at_nest_verify.
#ifndef ATOLL_NEST_NEST_H_
#define ATOLL_NEST_NEST_H_

#include "base/arena.h"
#include "base/strbuf.h"

// Whose memory a buffer is.
typedef enum at_nest_memory {
  AT_NEST_PARAM,  // the caller's: pointer `param` of the function
  AT_NEST_LOCAL   // the function's own, undefined at its start
} at_nest_memory;

// One buffer. Buffers are numbered from 0 and refs name them by number.
typedef struct at_nest_buffer {
  at_nest_memory memory;
  uint32_t param;
  uint64_t bytes;
  bool live_out;  // PARAM: somebody reads it behind the nest
  bool alone;     // no other buffer of the nest shares its memory at any time
} at_nest_buffer;

// What a statement does with the bytes of a ref; both bits for read and write.
typedef enum at_nest_access {
  AT_NEST_READ = 1,
  AT_NEST_WRITE = 2  // all of it, or parts: the rest keeps what it had
} at_nest_access;

// Bytes of a buffer that a statement uses.
typedef struct at_nest_ref {
  uint32_t buffer, access;
  uint64_t offset, bytes;
} at_nest_ref;

// What a statement does, and which refs and blocks it has.
typedef enum at_nest_kind {
  AT_NEST_CALL,   // a kernel on refs, all its tasks in order
  AT_NEST_COPY,   // refs: to, from, of equal size; they do not overlap
  AT_NEST_FILL,   // refs: to; `element` again and again
  AT_NEST_EMPTY,  // refs: a buffer whose contents nobody may rely on from here
  // refs: all of two buffers, which change places until the loop whose body
  // ends with this is left: there the first one's contents come to its own.
  AT_NEST_EXCHANGE,
  AT_NEST_WHILE,  // refs: predicate (1 byte); blocks: condition, body
  AT_NEST_CASE    // refs: selector; blocks: branches
} at_nest_kind;

// Statements of a block are a list in the order of their effects.
typedef struct at_nest_stmt at_nest_stmt;

typedef struct at_nest_block {
  at_nest_stmt *first, *last;
} at_nest_block;

// One statement. Fields that its kind does not name are zero.
struct at_nest_stmt {
  at_nest_kind kind;
  // Filled in by at_nest_add; refs and blocks are the caller's to set.
  const char *name;  // for people; never NULL
  at_nest_ref *refs;
  uint32_t num_refs;
  // The kernel is only a name here: codegen/nest.c knows what it is.
  const void *kernel;  // CALL: the code generator's
  int64_t tasks;       // CALL
  // In the order of memory.
  uint8_t element[16];
  uint32_t element_bytes;  // FILL: 1 to 16; divides the size of its ref
  // CASE: the selector is a bool of one byte, and the first of the two blocks
  // is taken when it is true. Else it is s32; out of range means the last
  // block.
  bool is_bool;
  at_nest_block *blocks;
  uint32_t num_blocks;
  at_nest_stmt *next;
};

// The whole function: its buffers, parameters first come first numbered, and
// its statements.
typedef struct at_nest {
  at_arena *arena;
  const char *name;
  // Grows as buffers are added; pointers into it do not last.
  AT_VEC(at_nest_buffer) buffers;
  uint32_t num_params;
  at_nest_block root;
} at_nest;

// An empty nest in `a`. RESOURCE_EXHAUSTED when the arena refuses, as all
// below.
at_status at_nest_create(at_arena *a, const char *name, at_nest **out);
// A buffer; PARAM takes the next parameter.
at_status at_nest_add_buffer(at_nest *n, at_nest_memory m, uint64_t bytes,
                             uint32_t *out);
// A statement with zeroed refs and blocks at the end of `b`. `name` is
// borrowed.
at_status at_nest_add(at_arena *a, at_nest_block *b, at_nest_kind kind,
                      const char *name, uint32_t num_refs, uint32_t num_blocks,
                      at_nest_stmt **out);

// INTERNAL, with the statement, where the nest is not one: refs outside of
// their buffers, wrong sizes, a local buffer that is read and was not written
// on every way there. Linear in statements and refs.
at_status at_nest_verify(const at_nest *n);
// As text, one statement a line (test/ir/nest has examples).
void at_nest_print(const at_nest *n, at_strbuf *out);
// Calls `visit` with every statement of a block and of the blocks inside it, in
// the order of the text; stops at the first error.
typedef at_status at_nest_visit(void *user, at_nest_stmt *s);
// Recurses as deep as the blocks nest. `visit` may change the statement, but
// not the lists of statements.
at_status at_nest_walk(const at_nest_block *b, at_nest_visit *visit,
                       void *user);
// How many statements that are.
uint32_t at_nest_count(const at_nest *n);

// ---- passes
// Small PARAM buffers become LOCAL ones, which the code generator can keep in
// registers: they are copied in at the start, and out at the end where they are
// live out and were written.
at_status at_nest_localise(at_nest *n);
// Copies at the end of a loop's body, of what the turn has made into the loop's
// state, become exchanges where both are alone and the other is nobody else's.
at_status at_nest_exchange(at_nest *n);

#endif
