// Kernels written by hand, compiled and run: a virtual core of a few lines that
// notes what it is called with, and a bench around it. Bodies are generic MLIR
// with three short forms: ' for a quotation mark, !T for vector<T>, and &T for
// a memref in VMEM ($T: in SMEM). %c0 to %c9 are there as index.
#ifndef ATOLL_MOSAIC_RUN_TEST_UTIL_H_
#define ATOLL_MOSAIC_RUN_TEST_UTIL_H_

#include "base/cpu.h"
#include "codegen/check_link.h"
#include "mosaic/code.h"

// RT_STACK: bytes that a kernel may allocate in a run; RT_MAX_NOTES: announced
// accesses that are kept.
enum { RT_MAX_ARGS = 8, RT_MAX_NOTES = 64, RT_STACK = 1 << 20 };

// ---- The core
// An access that the kernel announced: what, where, how many elements.
typedef struct rt_note {
  // at_core_access_kind bits, AT_CORE_MASKED among them.
  int32_t kind;  // at_core_access_kind
  const char *base;
  // Of a masked access those whose mask is set.
  int64_t elements;
} rt_note;

// The virtual core of a test. Generated code sees `head`, which must stand
// first.
typedef struct rt_core {
  at_core head;  // what generated code sees
  // Where rt_end jumps to: generated code has no way back of its own.
  jmp_buf failed;
  char why[256];                // what ended the kernel
  rt_note notes[RT_MAX_NOTES];  // the last one is the latest
  // Also counts those that found no place.
  uint32_t num_notes;
  char *stack;  // of at_core_alloc
  // Bytes of at_core_alloc in use, the most that were, calls of at_core_budget,
  // and turns of shared loops.
  int64_t used, most, refills, shared;
  // What was told last: the text of at_core_log and its first argument as an
  // i32, or the call ("barrier 3", "begin part", "end", "n = -7", "delay 100").
  char log[256];
  uint32_t next_random;  // the word that comes next; a seed sets it
  int32_t barrier;       // the semaphore of at_core_sem_barrier
} rt_core;

// ---- The bench
// An argument of a kernel under test.
// A NULL name ends a kernel's list of them.
typedef struct rt_arg {
  const char *name, *type;  // "x", "8x128xf32"
  // As many bytes as rt_strides says; inputs and results alike.
  void *data;  // dense; kept by the caller
  // The argument is in SMEM rather than VMEM.
  bool smem;
} rt_arg;

// One kernel under test: its arguments, and the text of its body, without a
// terminator.
typedef struct rt_kernel {
  rt_arg args[RT_MAX_ARGS];
  // Operations in generic form with the short forms of the head of this file.
  const char *body;
  const char *functions;  // behind it; NULL: none
  int32_t bound;          // of a grid of one dimension; 0: there is no grid
} rt_kernel;

// FULL: all optimisations; PLAIN: code of kernels that compile quickly;
// CHECKED: accesses are announced to the core.
// How a kernel is compiled for a run.
typedef enum rt_mode { RT_FULL, RT_PLAIN, RT_CHECKED, RT_MODES } rt_mode;

// From text to objects. CHECKED announces accesses; PLAIN is the code of
// kernels that are compiled quickly.
// out and code live in `a`. Errors are those of reading and of code generation:
// a test of a refusal looks at them.
// For the CPU that the test runs on, and one thread.
at_status rt_compile(const rt_kernel *k, rt_mode mode, at_arena *a,
                     at_cg_output *out, at_mosaic_code **code);

// Compiles the kernel and runs one step of it. The caller frees the core with
// free; `why` says what ended it, if anything did.
// Runs on the test's thread. Arguments are changed in place.
rt_core *rt_run(const rt_kernel *k, rt_mode mode);

// Runs it in each mode, with the arguments as they were, and has them judged.
// Fails where a mode ends early or leaves memory allocated. judge looks at the
// arguments after each.
void rt_each(const rt_kernel *k, void (*judge)(const rt_kernel *k));

#endif
