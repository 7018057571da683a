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
static void *g_blocks[kMaxBlocks];
static _Atomic int g_num_blocks;
static _Atomic size_t g_taken;  // bytes of all blocks

// Scratch memory of a launch, remembered so that give_all can free it.
// An at_par's scratch function. Never NULL: what happens without memory is
// tested elsewhere.
static inline void *take(void *owner, size_t bytes) {
  atomic_fetch_add(&g_taken, bytes);
  void *p = aligned_alloc(64, at_align_up(bytes, 64));
  g_blocks[atomic_fetch_add(&g_num_blocks, 1)] = p;
  return p;
}

// No launch may be under way.
static inline void give_all(void) {
  for (int i = 0; i < g_num_blocks; i++) free(g_blocks[i]);
  g_num_blocks = 0;
  g_taken = 0;
}

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
static uint32_t g_checks;
// Counts launches that have begun, so a test can wait for all to be there.
static _Atomic int g_begun;  // launches
// Made by the test's setup, shared by all of its launches.
static at_pool *g_pool;
static at_sched *g_sched;

// One place in the source, which messages show: file, line and name by offsets
// into g_strings.
static const at_xlocation g_places[] = {{1, 9, 7, 3, 0}};
static const char g_strings[] = "\0kern.py\0get";

// Borrows from k.
static inline at_core_program program_of(const kernel *k) {
  return (at_core_program){.record = &k->record,
                           .name = "bench",
                           .refs = k->refs,
                           .body = k->body,
                           .index = k->index,
                           .locations = g_places,
                           .strings = g_strings};
}

// One launch on device `device` of n, with the checks of g_checks.
// g: the group of devices that know each other; NULL: a launch by itself. On a
// v6e, whose sizes of memory the checks use. Memory stays taken until give_all.
static inline at_status run_on(kernel *k, at_core_group *g, int32_t device,
                               int32_t n) {
  const at_hw *hw;
  assert_int_equal(at_code_take(at_hw_find(AT_STR("v6e"), &hw)), 0);
  k->record.num_locations = 1;
  // Without a recorded size the core takes what allocations need as they come.
  if (!k->sized) k->record.stack_bytes = k->record.stack_sems = -1;
  at_par par = {g_pool, take, NULL};
  at_core_program p = program_of(k);
  at_core_launch l = {.programs = &p,
                      .num_programs = 1,
                      .bufs = k->bufs,
                      .num_bufs = kMaxArgs,
                      .hw = hw,
                      .par = &par,
                      .sched = g_sched,
                      .group = g,
                      .device_id = device,
                      .num_devices = n,
                      .checks = g_checks,
                      .max_turns = k->max_turns ? k->max_turns : 1 << 22};
  atomic_fetch_add(&g_begun, 1);
  return at_core_run(&l);
}

// ---- Several devices
// A launch on a fiber of its own.
// Its kernel is a copy, so launches change records of their own.
typedef struct device_run {
  kernel k;
  at_core_group *group;
  int32_t device, devices;
  at_status status;
  at_event *done;
} device_run;

// The fiber's function. `done` fires last: run_devices frees everything then.
static inline void run_device(void *arg) {
  device_run *d = arg;
  d->status = run_on(&d->k, d->group, d->device, d->devices);
  at_event_fire(d->done, AT_OK);
}

// One kernel per device, which know each other; the caller frees `st`, and
// gives memory back.
// k: n kernels. All are begun before any is waited for, as they wait for each
// other.
static inline void run_devices(const kernel *k, int32_t n, at_status *st) {
  at_core_group *g;
  device_run *runs = calloc((size_t)n, sizeof *runs);
  assert_non_null(runs);
  assert_int_equal(at_code_take(at_core_group_create((uint32_t)n, NULL, &g)),
                   0);
  for (int32_t i = 0; i < n; i++) {
    runs[i] = (device_run){.k = k[i],
                           .group = g,
                           .device = i,
                           .devices = n,
                           .done = at_event_create()};
    assert_int_equal(
        at_code_take(at_sched_spawn(g_sched, run_device, &runs[i])), 0);
  }
  for (int32_t i = 0; i < n; i++) {
    assert_int_equal(at_code_take(at_event_wait(runs[i].done)), 0);
    at_event_release(runs[i].done);
    st[i] = runs[i].status;
  }
  at_core_group_destroy(g);
  free(runs);
}

// On one device; memory is given back. runs: it must succeed; fails: with this
// code and text.
static inline at_status run(kernel *k) {
  at_status st = run_on(k, NULL, 0, 1);
  give_all();
  return st;
}

// Prints why where it does not.
static inline void runs(kernel *k) {
  at_status st = run(k);
  if (st.err) print_message("%s\n", at_status_message(st));
  assert_int_equal(at_code_take(st), 0);
}

// text: a part of the message.
static inline void fails(kernel *k, at_code code, const char *text) {
  at_status st = run(k);
  assert_non_null(strstr(at_status_message(st), text));
  assert_int_equal(at_code_take(st), code);
}

// An argument of floats of rank 2 with blocks.
// r x c elements in blocks of br x bc, in VMEM; dense rows.
static inline at_xcore_ref windowed(at_core_role role, int64_t r, int64_t c,
                                    int64_t br, int64_t bc) {
  return (at_xcore_ref){.role = role,
                        .space = AT_CORE_VMEM,
                        .window = AT_CORE_BLOCKED,
                        .dtype = AT_F32,
                        .rank = 2,
                        .alias = -1,
                        .dims = {r, c},
                        .block = {br, bc}};
}

// An argument of rank 1 without blocks.
// n elements of type t, in one piece.
static inline at_xcore_ref whole(at_core_role role, at_core_space space,
                                 at_dtype t, int64_t n) {
  return (at_xcore_ref){.role = role,
                        .space = space,
                        .dtype = t,
                        .rank = 1,
                        .alias = -1,
                        .dims = {n},
                        .block = {n}};
}

// Element (i, j) through the ref's byte strides.
static inline float *cell(const at_core_ref *r, int64_t i, int64_t j) {
  return (float *)((char *)r->base + i * r->stride[0] + j * r->stride[1]);
}

// A copy of n dense words on this core.
// n words of four bytes; sem: a semaphore that counts the bytes at the end.
static inline at_core_dma copy_of(void *dst, void *src, int64_t n, void *sem) {
  return (at_core_dma){.src = src,
                       .dst = dst,
                       .dst_sem = sem,
                       .device = AT_CORE_SELF,
                       .core = AT_CORE_SELF,
                       .subcore = AT_CORE_SELF,
                       .rank = 1,
                       .elem_bytes = 4,
                       .loc = 0,
                       .size = {n},
                       .src_stride = {4},
                       .dst_stride = {4}};
}

#endif
