// What the writer's files share. Not for other rooms.
// write.c walks computations and nodes and writes an instruction for each; the
// functions below append the fields of one message to a buffer. Failure to grow
// stays in the buffer (at_strbuf.failed) and passes on to the buffer that it is
// added to, so that only the whole is checked. A buffer that a put function
// takes as a message is freed by it.
#ifndef ATOLL_HLOPROTO_WRITE_INTERNAL_H_
#define ATOLL_HLOPROTO_WRITE_INTERNAL_H_

#include <string.h>

#include "hloproto/hloproto_internal.h"

// How arrays lie in memory, as layouts say it.
typedef struct at_hp_place {
  bool tiles;  // as TPUs tile them
  bool host;   // in the host's memory
  // Minor to major, a list for each array of a shape; NULL: row-major.
  const at_dims *orders;
} at_hp_place;

// Whether a value of that memory kind (NULL or "": the default) lies in the
// host's memory.
static inline bool at_hp_is_host(const char *memory_kind) {
  return memory_kind && *memory_kind && strcmp(memory_kind, "device") != 0;
}

// Appends ShapeProto of a row-major array.
void at_hp_put_array(at_strbuf *b, const at_type *t, at_hp_place place);
// Field `number` of b, or b itself (0): the shape of an argument or result of
// the program, in the layout that the client asked for; none: row-major without
// tiles, as clients are told of buffers. info may be NULL.
void at_hp_put_entry(at_strbuf *b, uint32_t number, const at_type *t,
                     const at_io_info *info, bool host);
// Field `number` of b: the shape of one array, or of a tuple of them.
void at_hp_put_shape(at_strbuf *b, uint32_t number, const at_type *types,
                     uint32_t n, bool tuple, at_hp_place place);
// Field 8: a literal.
void at_hp_put_literal(at_strbuf *b, const at_literal *l);
// The fields that hold n's attributes.
void at_hp_put_attrs(at_strbuf *b, const at_node *n);
// Field 7: where n comes from.
void at_hp_put_metadata(at_strbuf *b, const at_loc *loc);
// The same, and field 68: what the client said of n beside (frontend
// attributes).
void at_hp_put_origin(at_strbuf *b, const at_node *n);

// Where the instruction that makes a value stands, and which of its results it
// is; index -1: it is no tuple.
typedef struct at_hp_place_of {
  int64_t id, index;
} at_hp_place_of;
// What was written of the values of a program.
typedef struct at_hp_defined {
  at_map places;  // at_hp_value -> at_hp_place_of
  // The instruction that stands for the scratch of kernels; 0 bytes: none.
  int64_t scratch_id;
  const char *scratch_name;
  uint64_t scratch_bytes;
} at_hp_defined;
// False: the program has no such instruction.
bool at_hp_defined_at(const at_hp_defined *d, at_value v, at_hp_place_of *out);

// The most bytes of temporaries that there are at a time.
at_status at_hp_peak(const at_hloproto_memory *m, at_arena *a, uint64_t *out);
// Field `number` of `out`: the BufferAssignmentProto.
at_status at_hp_put_buffers(at_strbuf *out, uint32_t number,
                            const at_hp_defined *d, const at_module *m,
                            const at_hloproto_memory *memory, at_arena *a);

// ---- write_verify.c
// Whether the reader makes of what was written for m a program with m's
// parameters, results and elementwise nodes. True as well where it lacks
// something that was written: private calls, and what no HLO has. infos: also
// with what m says of its arguments, which programs with memory leave out. Any
// thread.
bool at_hp_reads_as(const at_module *m, at_str written, bool infos);
// Whether what was written has the form that XLA's verifier asks for: numbers
// are unique, operands come before their users, computations before their
// callers, halves of operations match, only fusions call what is fused, and
// schedules list every instruction of the others. Any thread.
bool at_hp_is_formed(at_str written);

#endif
