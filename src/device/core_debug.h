// A debugger of kernels: a process that listens at a socket in the folder of
// ATOLL_DEBUG. Cores run one at a time, so that what a stopped one sees stays
// as it is, and so that a program runs the same way each time.
//
// What is said, a line of JSON each way. From here, when a core stops:
//   {"event": "hello" | "stop", ...}        (core_debug_tell.c)
// Then, until "go", questions, each with one answer, {"error": text} where it
// cannot be given:
//   {"do": "breaks", "breaks": [...]}       replaces all of them
//   {"do": "state"}                         cores, refs, semaphores, copies
//   {"do": "read", "core": 1, "ref": 2, "start": [0], "count": [8], "step":
//   [1],
//    "array": false}                        "bytes" of the answer follow it
//   {"do": "go", "mode": "run", "core": 1}  has no answer
// While cores run: {"do": "interrupt"}, which has none either.
#ifndef ATOLL_DEVICE_CORE_DEBUG_H_
#define ATOLL_DEVICE_CORE_DEBUG_H_

#include "base/arena.h"
#include "base/strbuf.h"
#include "device/core_internal.h"

// Bounds of what is kept; more breakpoints are refused, more loops or refs are
// not told.
enum {
  DEBUG_MOST_BREAKS = 1024,
  DEBUG_MOST_LOOPS = 8,
  DEBUG_MOST_MADE = 64,
  DEBUG_MOST_LINE = 1 << 20  // bytes of a request
};

// ---- Requests (core_debug_ask.c)
// In the order of the words of debug_read_request.
// Unknown words are INVALID_ARGUMENT, with the list of known ones.
typedef enum debug_ask {
  // Replaces all breakpoints.
  DEBUG_ASK_BREAKS,
  // What every core does.
  DEBUG_ASK_STATE,
  // Elements of a box.
  DEBUG_ASK_READ,
  // Lets a core go on in a mode.
  DEBUG_ASK_GO,
  // Stops what runs.
  DEBUG_ASK_INTERRUPT,
  DEBUG_ASK_COUNT
} debug_ask;

// How a core goes on.
// "Line": of the kernel's source, as locations of its operations name it.
typedef enum debug_mode {
  DEBUG_RUN,     // until something else stops it
  DEBUG_STEP,    // to the next line
  DEBUG_NEXT,    // the same, over functions that it calls
  DEBUG_FINISH,  // to the line that called this function
  DEBUG_GRID,    // to the next step of the grid
  DEBUG_MODE_COUNT
} debug_mode;

// What a breakpoint stops at.
// Compared whenever a core comes to a place where it may stop.
typedef enum debug_break_kind {
  // A line of the source, before it runs.
  DEBUG_AT_LINE,
  DEBUG_AT_GRID,    // a step of the grid
  DEBUG_AT_KERNEL,  // its first step
  DEBUG_AT_CHANGE,  // of a ref
  DEBUG_BREAK_COUNT
} debug_break_kind;

// A box of a ref. rank 0: all of it.
// Bounds are checked when it is read, as refs come and go.
typedef struct debug_box {
  uint32_t core, ref;  // as the state numbers them
  bool array;          // of the operand, not of its window
  uint32_t rank;
  int64_t start[AT_CORE_MAX_RANK], count[AT_CORE_MAX_RANK];
  int64_t step[AT_CORE_MAX_RANK];
} debug_box;

// A breakpoint. Texts live in the debugger's breaks_arena.
typedef struct debug_break {
  debug_break_kind kind;
  // The number that the client gave it, told back when it stops a core.
  int64_t id;
  // Compared from the end: sources are known by different folders on either
  // side.
  const char *file;     // AT_LINE: its last parts
  uint32_t line, last;  // the first line with code from the one to the other
  const char *kernel;   // "" any
  uint32_t rank;        // AT_GRID
  int64_t grid[AT_CORE_MAX_GRID];  // -1: any
  debug_box box;                   // AT_CHANGE
  // Found at run time.
  // In this program; in another one the line is looked up anew.
  const at_core_program *program;  // where `found` holds
  uint32_t found;                  // 0: it has no such line
  uint64_t digest;                 // of the ref
  const void *base;
} debug_break;

// A request that has been read; which fields count depends on `ask`.
// Made by debug_read_request, gone with its arena.
typedef struct debug_request {
  // Which of the questions it is.
  debug_ask ask;
  debug_mode mode;
  debug_break *breaks;
  uint32_t num_breaks;
  debug_box box;     // also whose core goes on
  const char *file;  // GO, NEXT: the function's text, where functions
  uint32_t first_line, last_line;  // inside it are not stepped over; "" none
} debug_request;

// INVALID_ARGUMENT says what is wrong; what *out points to is in `a`.
at_status debug_read_request(at_bytes line, at_arena *a, debug_request *out);

// ---- Cores (core_debug.c)
// Where a core is, as the debugger counts.
typedef enum debug_state {
  DEBUG_NEW,    // has not run yet
  DEBUG_READY,  // stands at a line, another one runs
  DEBUG_RUNS,   // or is stopped
  DEBUG_WAITS,
  DEBUG_ENDED
} debug_state;

// A ref that the kernel allocated.
// Forgotten when its scope ends.
typedef struct debug_made {
  at_core_view view;
  int32_t dtype, space, loc;
} debug_made;

// A core under the debugger. Made when the core's memories are there, freed
// when its launch ends. Written by its own thread, but for the queue's fields,
// which are under the debugger's lock.
struct debug_core {
  core_state *core;
  debug_core *next;    // of all that there are
  debug_core *behind;  // in the queue
  uint32_t id;         // from 1
  debug_state state;
  uint64_t came;        // into the queue, in turns
  at_event *turn;       // in the queue: fires when it may run
  int32_t loc, before;  // of its line and the one before; -1: none
  const char *pending;  // why it stops at the next line; NULL: it does not
  int64_t pending_id;
  uint32_t num_loops, num_made;
  struct {
    int32_t loc, turn;
  } loops[DEBUG_MOST_LOOPS];
  debug_made made[DEBUG_MOST_MADE];
  const sem *wait_for;  // NULL: it does not wait
  // What the semaphore must reach for the wait to end.
  int64_t wait_amount;
  int32_t wait_loc;
};

// The one debugger of the process. Whoever has the floor may use the fields
// below "Of who runs" without the lock.
typedef struct debugger {
  pthread_mutex_t lock;  // of what follows, but for what only who runs touches
  debug_core *first;
  debug_core *floor;  // who runs
  debug_core *queue;  // who is ready to
  uint64_t turns;     // that cores have had
  // Ids count from 1 over all launches and are not used again.
  uint32_t ids;
  // Of who runs.
  // The socket; lines go both ways over it.
  int fd;          // -1: there is none
  uint64_t asked;  // digest of the folder of the last one
  uint8_t *input;
  // Bytes that have come and hold no whole line yet.
  size_t input_len, input_cap;
  debug_mode mode;
  uint32_t stepped;  // its id, 0: any
  uint32_t depth;    // of its calls, when it was stopped
  char file[512];    // NEXT: lines of it that are of the same function, too
  uint32_t first_line, last_line;
  uint32_t wanted;  // goes on first, 0: any
  uint64_t told;    // digest of the last failure that a core has told
  // Places passed where a core may stop: at every so many it looks whether it
  // is to be interrupted.
  uint32_t hooks;
  at_arena *breaks_arena;  // holds:
  // Replaced as a whole by each request.
  debug_break *breaks;
  uint32_t num_breaks;
} debugger;
extern debugger g_debugger;

// The place of a line, and what called it.
// NULL: not known. depth: how many calls lead to it.
const at_xlocation *debug_place(const core_state *c, int32_t loc);
// Calls around a place of the kernel's source, 0 where it is not known.
uint32_t debug_depth(const core_state *c, int32_t loc);

// ---- What is told (core_debug_tell.c)
// d: NULL: no core. st: the failure, or AT_OK; borrowed.
// A JSON object on one line, appended to *out.
void debug_tell_stop(const debug_core *d, const char *why, int64_t id,
                     const char *kernel, at_status st, at_strbuf *out);
// Every core with its refs, semaphores and copies. Takes the lock.
void debug_tell_state(at_strbuf *out);
// The box of a ref: its header, and its elements, dense, in *data (the caller
// frees). INVALID_ARGUMENT: there is no such box.
at_status debug_read_box(const debug_box *b, at_strbuf *header, uint8_t **data,
                         size_t *bytes);
// A digest of all elements, and where they are; 0: there is no such ref now.
uint64_t debug_digest(const debug_box *b, const void **base);

// ---- The socket (core_debug_talk.c)
// Leaves the one before.
// folder: of the socket. INVALID_ARGUMENT: its path is too long. NOT_FOUND:
// nobody listens there.
at_status debug_connect(const char *folder);
// Tells why, then answers until the debugger lets go or is gone.
// Returns at once where there is no debugger.
void debug_stop(debug_core *d, const char *why, int64_t id, const char *kernel,
                at_status st);
// Only asked by the core that runs; does not wait.
bool debug_is_interrupted(void);

#endif
