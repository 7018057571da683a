// What ran when. One session per process: started, recorded into from any
// thread, stopped, and then written as XProf's XSpace or as a Chrome trace.
// Off, it costs one relaxed load per launch.
//
// Errors: FAILED_PRECONDITION: a session runs already, or none does;
// RESOURCE_EXHAUSTED.
// Memory: a stopped profile is the caller's.
// Threads: recording from any; a profile is read by one at a time.
#ifndef ATOLL_PROFILE_PROFILE_H_
#define ATOLL_PROFILE_PROFILE_H_

#include "base/arena.h"
#include "base/status.h"
#include "base/strbuf.h"

// What an event is, which decides the line that it stands on.
typedef enum at_profile_kind {
  AT_PROFILE_MODULE,     // a whole launch
  AT_PROFILE_OP,         // one step of it
  AT_PROFILE_TRANSFER,   // host to device, device to host, device to device
  AT_PROFILE_SPARSE,     // what one SparseCore does of a step
  AT_PROFILE_KERNEL,     // a part of a Pallas kernel that it names itself
  AT_PROFILE_RECOMPILE,  // limits of embedding tables changed; of no chip: 0
  AT_PROFILE_CALL,  // the client asked for a launch; on no line, of no chip: 0
  AT_PROFILE_KINDS
} at_profile_kind;

// An interval on a chip. Fields are 0 where their comment names other kinds.
// Made by whoever records, on its stack; texts are copied.
typedef struct at_profile_event {
  uint64_t start_ns, end_ns;  // at_clock_ns
  uint32_t kind, chip;        // at_profile_kind; device id
  int64_t launch_id;
  uint64_t program;    // MODULE, OP: at_profile_program; 0: of none
  uint64_t bytes;      // TRANSFER: moved
  uint64_t context;    // CALL: what the client's own trace calls it
  uint32_t core;       // SPARSE: of the chip; KERNEL: of the launch; else 0
  bool goes_on;        // OP: a further kernel of the op before it
  bool holds;          // OP: a loop or a branch, around the ops that it runs
  const char *name;    // copied on record
  const char *detail;  // op text, or ""
  const char *source;  // "file:line", or ""
} at_profile_event;

// What a session holds if nobody says otherwise.
enum { AT_PROFILE_MAX_EVENTS = 4 << 20 };

// FAILED_PRECONDITION when a session runs already. `max_events` 0: the default.
at_status at_profile_start(size_t max_events);
// Is anybody recording? Asked before an event is made up, as that costs more.
bool at_profile_on(void);  // or spans are kept (profile/spans.h)
// Ignored while no session runs; counted as dropped when the session is full or
// there is no memory for it.
void at_profile_record(const at_profile_event *e);

// A program's number in profiles, of its fingerprint.
static inline uint64_t at_profile_program(uint64_t fingerprint) {
  return fingerprint >> 1;  // clients read it signed
}

// Opaque; see profile_internal.h.
// Read only, but for at_profile_destroy.
typedef struct at_profile at_profile;
// Ends the session; the events in the order of their recording.
at_status at_profile_stop(at_profile **out);
// A profile of given events, for timelines that were not recorded but computed.
// Times are taken as Unix time. Texts are copied. RESOURCE_EXHAUSTED where one
// is missing; *out, if not NULL, is to be destroyed all the same.
at_status at_profile_of(const at_profile_event *events, size_t count,
                        at_profile **out);
// NULL is allowed. Events of it die with it.
void at_profile_destroy(at_profile *p);
// In the order in which they were recorded; borrowed from the profile.
const at_profile_event *at_profile_events(const at_profile *p,
                                          size_t *out_count);
// Events that were not kept, for want of room or memory.
// Since the session began.
size_t at_profile_dropped(const at_profile *p);
// Unix time less the clock of the events' times.
// Adding it to an event's time gives Unix time.
int64_t at_profile_unix_offset_ns(const at_profile *p);

// ---- What programs and chips are, for those who show a profile
// What an op is, beside when it ran; one per op of a program's text.
typedef struct at_profile_op {
  const char *name;  // first word of the events' names: "fusion.12"
  const char *text;  // as an HLO instruction
  const char *category, *scope, *source;  // "loop fusion"; op name; "file:line"
  double flops, transcendentals;          // of one run
  double bytes_read, bytes_written;       // of one run, in HBM
} at_profile_op;
// A program. Everything is borrowed while a profile is written.
typedef struct at_profile_module {
  uint64_t program;  // at_profile_program
  const char *name;
  at_str hlo;  // HloProto; empty: not known
  const at_profile_op *ops;
  uint32_t num_ops;
} at_profile_module;
// A chip's peaks, against which tools compare.
// By device id, as events name chips.
typedef struct at_profile_chip {
  uint32_t chip;
  const char *kind;                               // "TPU v6 lite"
  double flops_per_second, hbm_bytes_per_second;  // peaks; 0: not known
  uint64_t hbm_bytes;
} at_profile_chip;
// What is known beside the events; lists may be empty.
typedef struct at_profile_about {
  const at_profile_module *modules;
  const at_profile_chip *chips;
  uint32_t num_modules, num_chips;
  const char *plane;  // what planes are called, before the number of their
                      // chip; NULL: "/device:TPU:"
} at_profile_about;

// Appends a serialised XSpace, as messages append: a plane "/device:TPU:<id>"
// for each chip, with the lines "Steps" (one event for each launch, tied to the
// client's trace by its CALL), "XLA Modules", "XLA Ops", "Transfers", and
// "SparseCore 0", "SparseCore 1",
// ... and "Kernel core 0", ..., and "SparseCore recompiles"; and a plane
// "/host:metadata" with an HloProto for each program that ran. What `about`
// does not know is left out; NULL: nothing is known.
at_status at_profile_xspace(const at_profile *p, const at_profile_about *about,
                            at_strbuf *out);
// Chrome's trace event format, for Perfetto.
// Appended as one JSON object. RESOURCE_EXHAUSTED alone.
at_status at_profile_trace(const at_profile *p, at_strbuf *out);

#endif
