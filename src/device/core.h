// Virtual cores: run a Pallas kernel's machine code (abi/core.h) on its
// operands, with its grid, windows, memories, copies and semaphores.
//
// Errors: what a kernel does wrong comes out of its launch: OUT_OF_RANGE,
// INVALID_ARGUMENT, FAILED_PRECONDITION (races, deadlocks and other findings),
// with kernel, core and source line; RESOURCE_EXHAUSTED: no host memory.
// Memory: operands are borrowed for the launch.
// Threads: launches of a group run on threads of their own and meet in it.
#ifndef ATOLL_DEVICE_CORE_H_
#define ATOLL_DEVICE_CORE_H_

#include <stdatomic.h>

#include "abi/core.h"
#include "base/parallel.h"
#include "base/strbuf.h"
#include "device/device.h"

// What a launch is checked for, one bit each.
typedef enum at_core_checks {
  AT_CHECK_RACES = 1,
  AT_CHECK_BOUNDS = 2,
  AT_CHECK_UNINIT = 4,
  AT_CHECK_NAN = 8,
  AT_CHECK_DEADLOCK = 16,
  AT_CHECK_LIMITS = 32,
  // Those that need not know what other devices do: of groups with a `far`.
  AT_CORE_FAR_CHECKS = AT_CHECK_BOUNDS | AT_CHECK_LIMITS
} at_core_checks;
// Those that ATOLL_CHECK has, as bits.
uint32_t at_core_checks_wanted(void);

// One kernel, ready to run. All borrowed; strings are resolved.
// Arrays have as many entries as their comment says.
typedef struct at_core_program {
  const at_xcore *record;
  const char *name;
  const at_xcore_ref *refs;  // record->num_refs
  at_core_body_fn body;
  const at_core_index_fn *index;  // per ref; NULL: stays at block 0
  const at_core_fill_fn *fill;    // per ref; NULL: the array is there
  const at_xlocation *locations;  // record->num_locations
  const at_xlocation *places;     // all of the executable: of arguments
  const char *strings;            // what at_xlocation's strings point into
} at_core_program;

// Launches of one program on several devices that know each other.
typedef struct at_core_group at_core_group;
// Devices of the program that other processes run. What their kernels and those
// here do to each other travels as messages.
typedef struct at_core_far {
  void *arg;
  uint32_t processes;  // that run the others
  // All devices here have joined: messages may come from now on.
  at_status (*begin)(void *arg);
  // To the process of a device; at most AT_CORE_FAR_PARTS. May wait.
  at_status (*send)(void *arg, int32_t device, const at_bytes *parts,
                    uint32_t num_parts);
  // Only messages can let the kernels here go on; after `end`: nothing is left
  // but to wait until the others have ended. Said again whenever one comes and
  // changes nothing of that. Must not wait.
  void (*waits)(void *arg, bool on);
  // All devices here have ended: tells the other processes that nothing more
  // will come. Not called where the group has failed.
  at_status (*end)(void *arg);
} at_core_far;
enum { AT_CORE_FAR_PARTS = 2 };
// devices: how many launches will join, in any order. far: borrowed; NULL: all
// devices are here.
// RESOURCE_EXHAUSTED alone; *out is owned by the caller.
at_status at_core_group_create(uint32_t devices, const at_core_far *far,
                               at_core_group **out);
// NULL is allowed. All launches of it have ended, and nobody calls
// at_core_group_leave or _fail any more.
void at_core_group_destroy(at_core_group *g);
// One of the launches will not come: the others fail with CANCELLED.
// Any thread; no launch joins the group after it.
void at_core_group_give_up(at_core_group *g);
// From `begin` until the launches have ended, one call at a time, from any
// thread: a message has come, borrowed for the call; a process has sent its
// last; another one has failed or is lost (consumes why). They do not wait.
void at_core_group_hear(at_core_group *g, at_bytes message);
// One of the other processes has sent its last message. Any thread.
void at_core_group_leave(at_core_group *g);
// Stops all cores of the group, which then fail with `why`; consumes it. The
// first call counts. Any thread.
void at_core_group_fail(at_core_group *g, at_status why);
// For people who look for a deadlock. Any thread; takes the group's lock.
void at_core_group_print(at_core_group *g,
                         at_strbuf *out);  // what cores wait for
// Why it failed, if none of its launches has said so.
// OK if it has not failed, or was asked before: the caller owns the status. Any
// thread.
at_status at_core_group_failure(at_core_group *g);

// Lives on the caller's stack until at_core_run has returned; nothing in it is
// changed.
typedef struct at_core_launch {
  const at_core_program *programs;  // run at the same time
  uint32_t num_programs;
  void *const *bufs;  // of the first program: dynamic bounds, prefetch, in, out
  uint32_t num_bufs;
  const at_hw *hw;
  const at_par *par;     // threads, memory
  at_sched *sched;       // fibers for cores that run at the same time
  at_core_group *group;  // NULL: no other device
  int32_t device_id, num_devices;
  uint32_t checks;           // at_core_checks
  uint64_t max_turns;        // of loops, per core; 0: no limit
  struct core_rerun *rerun;  // this room's own; NULL
  bool *out_alone;  // set if a single core ran that never waits; or NULL
} at_core_launch;
// Runs to the end. Errors name the kernel, what failed and the source line.
at_status at_core_run(const at_core_launch *l);

// For what the kernel's code calls outside this room: the launch that a core
// belongs to, and a failure at a place of the source (consumes st).
const at_core_launch *at_core_launch_of(at_core *core);
// How many steps of the grid read what lies at p, on average, where that is an
// operand which nothing writes as long as the kernel runs; 0: it is not.
int64_t at_core_reads_of(at_core *core, const void *p);
// Bytes of all such operands.
size_t at_core_bytes_read(at_core *core);
// The caller's own, NULL at first, one for all threads that run the core's
// steps; what it points to must come from the launch's scratch memory, and goes
// with it.
_Atomic(void *) *at_core_note(at_core *core);
// The caller's own of one thread's steps: `run`, where set, is called before an
// output's window leaves and after the last step. `data` begins as NULL and
// must come from the launch's scratch memory.
typedef struct at_core_due {
  void (*run)(at_core *core);
  void *data;
} at_core_due;
// Owned by the core, constant address; each thread of a core's steps has its
// own.
at_core_due *at_core_due_of(at_core *core);
// Memory that copies with `lazy` fill, as what stands for it: `count` pages of
// `bytes`, in order. false: it has been filled, and is read itself.
enum { AT_CORE_MOST_PAGES = 256 };
typedef struct at_core_pages {
  const void *page[AT_CORE_MOST_PAGES];
  int64_t count, bytes;
  const void *next;  // what will likely be read after them
} at_core_pages;
// The copies that at_core_page_start has put off and that fill exactly these
// bytes, in order. False: they do not (other sizes, too many, a part is there
// already), and out's count says nothing.
bool at_core_pages_of(at_core *core, const void *at, int64_t bytes,
                      at_core_pages *out);
// Ends the core with `st` (consumed), kernel and place put in front of it. Does
// not return: it unwinds to the launch, so the caller must own nothing and hold
// no lock.
_Noreturn void at_core_give_up(at_core *core, int32_t loc, at_status st);

#endif
