// A planned program as steps: which kernel runs on which slots, in what order.
#ifndef ATOLL_COMPILE_STEPS_H_
#define ATOLL_COMPILE_STEPS_H_

#include "codegen/codegen.h"
#include "compile/places.h"
#include "compile/writer.h"
#include "schedule/schedule.h"
#include "spinput/flags.h"
#include "spinput/limits.h"

// What was found out about control flow so far (native.h); begins with the
// module alone.
typedef struct at_native {
  const at_module *module;
  at_map known;  // control node -> fragment of a nest, or NULL: it stays steps
  uint32_t *uses;    // per slot: how often its values are made or read
  uint32_t *buffer;  // per slot: 1 + its buffer in the nest at hand
  at_strbuf *text;   // nests are printed here; NULL: nowhere
} at_native;

// The state of emission. The caller fills in what is borrowed; the counters and
// flags are results.
typedef struct at_emit_steps {
  at_writer *w;
  at_cg *cg;
  const at_plan *plan;
  at_arena *arena;
  at_map choices;  // node -> at_rt_choice, see at_steps_choose
  uint64_t
      scratch_bytes;  // largest scratch of any node; placed after the plan's
  bool has_effects;
  double ns;
  uint32_t num_devices;             // of the program
  const at_spinput_flags *sparse;   // the SparseCore's flags
  const at_spinput_limits *limits;  // of its tables, from a file
  at_places
      *places;  // NULL: the program's locations have no numbers (hlo text)
  at_native native;
  at_map starts;  // of the computation at hand: asynchronous op -> its step + 1
  struct at_core_pending
      *cores;        // Pallas kernels whose records are not complete
  at_strbuf *plans;  // of Pallas kernels are printed here; NULL: nowhere
} at_emit_steps;

// Constants of one repeated element above this size are written by a FILL step
// where they are needed, instead of being stored.
enum { AT_LARGE_SPLAT_BYTES = 4096 };
// Runs before the plan: puts a COPY between a large splat and its readers.
at_status at_steps_fill_splats(at_module *m);
// Runs before the plan: which nodes runtime kernels take (the planner's hooks
// and the emitter both ask). Refuses, by name, what nothing can run.
at_status at_steps_choose(const at_module *m, at_arena *a, at_map *out);
// The planner's question: may the result take the operand's memory in the code
// that was chosen for n?
bool at_steps_can_alias(const at_map *choices, const at_node *n,
                        uint32_t result, uint32_t operand);
// Writes slots, constants and steps of the entry; [*out_begin, *out_end) are
// the program's own steps.
at_status at_steps_emit(at_emit_steps *e, const at_module *m,
                        uint32_t *out_begin, uint32_t *out_end);
// The laws of all that is in the writer for the run side: numbers name
// something, ranges are in order, temporaries fit into h's. INTERNAL names the
// step or slot that breaks one. Linear.
at_status at_steps_verify(at_writer *w, const at_xheader *h);
// Which operand shares the slot of each of n's results; -1: none.
at_status at_steps_aliases(const at_emit_steps *e, const at_node *n,
                           int32_t **out);
// A node that takes no step.
bool at_steps_is_silent(const at_node *n);
// NULL: nothing was chosen for n.
const struct at_rt_choice *at_steps_choice(const at_map *choices,
                                           const at_node *n);
// Memory whose contents nobody may rely on (jax.lax.empty).
bool at_steps_is_empty(const at_node *n);
// Readable listing of an executable's steps, slots and memory.
at_status at_steps_print(at_bytes executable, at_strbuf *out);

#endif
