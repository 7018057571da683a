// Kernels written in C, and a bench that runs them on virtual cores.
#ifndef ATOLL_DEVICE_CORE_TEST_UTIL_H_
#define ATOLL_DEVICE_CORE_TEST_UTIL_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "device/core.h"

// ---- A bench of kernels
// kMaxBlocks: scratch blocks of all launches between two calls of give_all.
enum { kMaxArgs = 8, kMaxBlocks = 1 << 16 };

// Launches on several fibers take memory at the same time, hence the atomics.
extern void *g_blocks[kMaxBlocks];
extern _Atomic int g_num_blocks;
extern _Atomic size_t g_taken;  // bytes of all blocks

// Scratch memory of a launch, remembered so that give_all can free it.
// An at_par's scratch function. Never NULL: what happens without memory is
// tested elsewhere.
void *take(void *owner, size_t bytes);

// No launch may be under way.
void give_all(void);

// A kernel under test: its record, arguments and C body.
// Kept by the test until its launch has ended.
typedef struct kernel {
  // The grid, how many refs there are and which kind of core; the rest is set
  // by run_on.
  at_xcore record;
  at_xcore_ref refs[kMaxArgs];
  // Index maps of refs with blocks; NULL entries: the others'.
  at_core_index_fn index[kMaxArgs];
  at_core_body_fn body;
  // Arrays that refs name by number: the test's memory, which results are
  // written to.
  void *bufs[kMaxArgs];
  uint64_t max_turns;  // 0: many
  bool sized;          // the record says what is allocated
} kernel;

// AT_CORE_CHECK bits for the launches that follow; each test sets them.
extern uint32_t g_checks;
// Counts launches that have begun, so a test can wait for all to be there.
extern _Atomic int g_begun;  // launches
// Made by the test's setup, shared by all of its launches.
extern at_pool *g_pool;
extern at_sched *g_sched;

// One place in the source, which messages show: file, line and name by offsets
// into g_strings.
static const at_xlocation g_places[] = {{1, 9, 7, 3, 0}};
static const char g_strings[] = "\0kern.py\0get";

// One launch on device `device` of n, with the checks of g_checks.
// g: the group of devices that know each other; NULL: a launch by itself. On a
// v6e, whose sizes of memory the checks use. Memory stays taken until give_all.
at_status run_on(kernel *k, at_core_group *g, int32_t device, int32_t n);

// ---- Several devices
// A launch on a fiber of its own.
// Its kernel is a copy, so launches change records of their own.
typedef struct device_run {
  kernel k;
  // Shared by all devices of a run: by it they find each other's memory and
  // semaphores.
  at_core_group *group;
  // Number of this one, and how many there are.
  int32_t device, devices;
  at_status status;
  at_event *done;
} device_run;

// One kernel per device, which know each other; the caller frees `st`, and
// gives memory back.
// k: n kernels. All are begun before any is waited for, as they wait for each
// other.
void run_devices(const kernel *k, int32_t n, at_status *st);

// On one device; memory is given back. runs: it must succeed; fails: with this
// code and text.
// The status is the launch's: INTERNAL, ABORTED and so on for what the checks
// of core.h find.
at_status run(kernel *k);

// Prints why where it does not.
void runs(kernel *k);

// text: a part of the message.
void fails(kernel *k, at_code code, const char *text);

// An argument of floats of rank 2 with blocks.
// r x c elements in blocks of br x bc, in VMEM; dense rows.
// role: input or output. The grid steps along rows, then columns; index maps
// say otherwise.
at_xcore_ref windowed(at_core_role role, int64_t r, int64_t c, int64_t br,
                      int64_t bc);

// An argument of rank 1 without blocks.
// n elements of type t, in one piece.
at_xcore_ref whole(at_core_role role, at_core_space space, at_dtype t,
                   int64_t n);

// Element (i, j) through the ref's byte strides.
// Not checked: i and j must lie within the ref.
float *cell(const at_core_ref *r, int64_t i, int64_t j);

// A copy of n dense words on this core.
// n words of four bytes; sem: a semaphore that counts the bytes at the end.
// src, dst: of this core; neither may go away before the copy is waited for.
at_core_dma copy_of(void *dst, void *src, int64_t n, void *sem);

#endif
