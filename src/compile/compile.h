// Facade of the compile side: a program's bytes and its options in, an
// executable (abi/executable.h) out.
//
// Errors: what cannot be compiled is INVALID_ARGUMENT or UNIMPLEMENTED, with
// the op and its source line; RESOURCE_EXHAUSTED: no memory; INTERNAL: a bug
// here, as of LLVM. Results are written on success only.
// Memory: what lives in a caller's arena is said; other results are the
// caller's to free.
// Threads: any, side by side.
#ifndef ATOLL_COMPILE_COMPILE_H_
#define ATOLL_COMPILE_COMPILE_H_

#include "abi/collective.h"
#include "abi/executable.h"
#include "base/arena.h"
#include "base/digest.h"
#include "base/strbuf.h"

// What the program's bytes are.
typedef enum at_program_format {
  AT_PROGRAM_ANY,  // looked at: MLIR bytecode or text, hlo text, XLA's protos
  AT_PROGRAM_HLO,  // HloModuleProto
  AT_PROGRAM_HLO_WITH_CONFIG  // HloModuleProtoWithConfig
} at_program_format;

// What to compile for, and how. Zero is a good default for each; pointers are
// borrowed until the call returns.
typedef struct at_compile_options {
  at_program_format format;
  at_bytes request;  // CompileOptionsProto; may be empty
  // 0: this machine's (base/cpu.h), and its caches count where tasks are
  // grouped. Else the code is the same wherever it is made.
  uint64_t cpu_features;
  uint32_t threads;      // 0: this machine's; for code generation and splitting
  const char *dump_dir;  // NULL: ATOLL_DUMP
  bool verify_each;      // or ATOLL_VERIFY=1
  bool no_cache;         // or ATOLL_CACHE=off
  bool placements;       // at_compile_module: keep copies between memories
  // An HloModuleProto in place of what AT_STAGE_PARTITIONED gives, with the
  // same parameters and results: shardings, donation and layouts stay those of
  // the program. Empty: none.
  at_bytes rewritten;
  // AT_STAGE_XLA: OpSharding of parameters and results, as bytes; NULL: none.
  const at_str *param_shardings, *result_shardings;
  // at_compile: asked now and then by the calling thread; true: it returns
  // CANCELLED at once. NULL: never.
  bool (*interrupted)(void);
} at_compile_options;

// Compiles MLIR bytecode or text, hlo text ("hlo module ...") or an
// HloModuleProto. `out`: malloc'd block, 64-byte aligned, free() it.
// Thread-safe. Looks into the disk cache first.
at_status at_compile(at_bytes program, const at_compile_options *o,
                     at_bytes *out);
// Every at_compile that runs now returns CANCELLED at once. What they were
// doing ends soon after; the end of the process waits for it.
void at_compile_leave_all(void);

// at_config_check, and whether the chip and topology of ATOLL_TARGET can be.
// INVALID_ARGUMENT names the knob, its value and what is allowed. Whoever
// begins something that depends on knobs calls it; at_compile does.
at_status at_knobs_check(void);

// Where at_compile_dump stops, in the order of the pipeline up to ASM.
typedef enum at_stage {
  AT_STAGE_MLIR,
  AT_STAGE_HLO,
  AT_STAGE_OPTIMIZED,
  AT_STAGE_STEPS,
  AT_STAGE_NEST,  // the loops and branches that are one kernel each
  AT_STAGE_LLVM,
  AT_STAGE_ASM,
  AT_STAGE_STABLEHLO,   // of one device, before ops are fused: StableHLO again
  AT_STAGE_XLA,         // optimised and in order: an HloModuleProtoWithConfig
  AT_STAGE_PARTITIONED  // of one device, before anything is changed for this
                        // machine: an HloModuleProto
} at_stage;
// The program as it will run: optimised and in order; with `plan` (else NULL)
// also with the copies that the memory plan makes and without those that it
// saves, and the plan. memory (may be NULL): what it takes of the memory of the
// chip that ATOLL_TARGET names, by the values of the program before its ops
// were fused; NULL where that is no TPU. All live in `a`; the program borrows
// `program`.
typedef struct at_module at_module;
typedef struct at_plan at_plan;
typedef struct at_estimate at_estimate;
// INVALID_ARGUMENT, UNIMPLEMENTED: the program; RESOURCE_EXHAUSTED. Nothing is
// looked up in the cache or kept there.
at_status at_compile_module(at_bytes program, const at_compile_options *o,
                            at_plan *plan, const at_estimate **memory,
                            at_arena *a, at_module **out);

// The program as text at a stage, for `atoll dump` and for clients that ask.
at_status at_compile_dump(at_bytes program, const at_compile_options *o,
                          at_stage s, at_strbuf *out);

// ---- Sameness
// This build: of the library that holds this code, and of LLVM. Executables of
// one build are for no other. NOT_FOUND: the process has no such libraries.
at_status at_compile_build(at_digest *out);
// All that decides on executables beside programs and their options: the build,
// the CPU, the threads, the knobs. INVALID_ARGUMENT: LIBTPU_INIT_ARGS does not
// parse.
at_status at_compile_settings(at_digest *out);
// What this process compiled since it began. Thread-safe.
typedef struct at_compile_counts {
  uint64_t programs;      // that were compiled
  uint64_t cached;        // that came from the disk cache instead
  uint64_t modules;       // of LLVM that were made
  uint64_t instructions;  // of LLVM in them, before any were optimised
  uint64_t quick;         // of these, those that were compiled quickly
} at_compile_counts;
// Sums of this process. Any thread.
at_compile_counts at_compile_count(void);

// ---- The disk cache, for people
// What `atoll cache` tells.
typedef struct at_cache_state {
  char folder[4000];
  uint64_t entries, bytes;
  uint64_t limit_bytes;  // UINT64_MAX: none
} at_cache_state;
// Where the cache lies, whether or not the folder is there. NOT_FOUND: HOME is
// not set.
at_status at_cache_folder(char *out, size_t size);
// The path of a file in it; without a folder one that cannot be opened.
void at_cache_file(const char *name, char *out, size_t size);
// Entries and bytes as they are in the folder now; other processes may change
// it meanwhile. No folder: none. NOT_FOUND: the folder cannot be named or read.
at_status at_cache_look(at_cache_state *out);
// Removes every entry. FAILED_PRECONDITION: one stays.
at_status at_cache_clear(uint64_t *out_entries);

// ---- Machines of tiles: ATOLL_TARGET=mk2 with ATOLL_TILES=tiles
// The executable is then one custom call that carries the program's text; who
// serves it (exec's AT_CUSTOM_OWN) calls at_on_tiles_call.
#define AT_ON_TILES_TARGET "atoll.tiles"
// Whether the knobs ask for it.
bool at_on_tiles_runs(void);
// Runs a program's text on dense arrays, tile by tile. It is laid out on its
// first call and kept. Thread-safe; one at a time.
at_status at_on_tiles_call(at_bytes program, const void *const *args,
                           uint32_t num_args, void *const *results,
                           uint32_t num_results);

// ---- ATOLL_CHECK=nan (compile/nan.h)
// Programs compiled under it hold calls of this target, which exec's
// AT_CUSTOM_OWN serves by at_nan_call. INVALID_ARGUMENT names the op that made
// a NaN which reached a result, and its place. Thread-safe.
#define AT_NAN_TARGET "atoll.nan"
// Of the record, in words: how many NaNs were made, then the sites.
enum { AT_NAN_HEAD = 1, AT_NAN_WORDS = 4 };
// An at_custom_fn: config names which call of the program it is ("begin",
// "watch", ...), args and results are as compile/nan.c made them.
at_status at_nan_call(at_bytes config, const void *const *args,
                      uint32_t num_args, void *const *results,
                      uint32_t num_results);

#endif
