// What the files of a client share: the stream and the sessions (client.c),
// questions and their answers (questions.c), host callbacks (calls.c).
#ifndef ATOLL_CONTROL_CLIENT_INTERNAL_H_
#define ATOLL_CONTROL_CLIENT_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/parallel.h"
#include "base/sha256.h"
#include "base/strbuf.h"
#include "control/client.h"
#include "control/graph.h"
#include "control/message.h"
#include "control/outbox.h"
#include "control/session.h"
#include "control/table.h"
#include "control/virtual_clock.h"
#include "device/device.h"

// With one process of a host: what comes from one that has been replaced does
// not concern the next.
typedef struct far_session {
  struct far_host *host;
  uint32_t generation;
} far_session;

// A host may be replaced by another process 15 times in a client's life; after
// that it stays lost for the client.
enum { AT_FAR_PROCESSES = 16 };
// A host as the client sees it. Its session is opened by the first call that
// needs it (at_far_host_wire). Where a new process takes the place of a lost
// one, `generation` counts up and the former session is kept, idle, until the
// client closes, because another thread may still hold its wire.
typedef struct far_host {
  at_client *client;
  // Among the pod's hosts.
  uint32_t number;
  // Where its process is: of the welcome, or own_address. "": it has not come.
  const char *address;
  char *own_address;        // of a process that came later
  pthread_mutex_t opening;  // held while its session is opened
  pthread_mutex_t writing;  // a WRITE and its DATA go together
  _Atomic(at_wire *) wire;  // NULL: not called yet
  at_outbox *outbox;        // for answers to it
  far_session sessions[AT_FAR_PROCESSES];
  _Atomic uint32_t generation;              // of them
  at_outbox *formers[AT_FAR_PROCESSES];     // of those before; they and their
  at_wire *former_wires[AT_FAR_PROCESSES];  // wires go with the client
  // Calls to it fail until another process has its place.
  _Atomic bool lost;
  _Atomic bool unsaid;  // bytes for it were not sent since
  _Atomic bool drains;  // nothing new is to be placed there
  // Arrays with smaller names were on processes that it had before.
  _Atomic uint64_t lost_before;
} far_host;

// A program that hosts have, and whom a launch of it concerns.
typedef struct far_slice far_slice;  // spares.c
// Owned by at_client.programs, or by at_client.pinned_programs' graphs while
// one of these uses it.
typedef struct far_program {
  // What a graph needs to know of it.
  at_graph_program shown;
  // Owned.
  at_bytes block;  // the executable, for hosts that come later
  // One of its hosts is another process since, or a device another chip.
  // Its launches load it anew first.
  bool stale;
  uint32_t num_hosts, num_spares;
  uint32_t *spares;  // its virtual devices, behind its hosts
  // [num_hosts], ascending, then num_spares devices.
  uint32_t hosts[];
} far_program;

// Something that hosts will answer.
// It lives in at_client.questions from the moment its tag is taken until it is
// answered; `users` keeps it alive beyond that for callbacks.
typedef struct question {
  // By which answers find it.
  uint64_t tag;
  at_event *done;           // referenced
  uint64_t asked_ns, flow;  // of spans; asked_ns 0: none were kept then
  // Of one host, `host`:
  uint32_t host;
  uint8_t *into;  // READ, STATS
  // Wanted, and arrived so far.
  uint64_t bytes, got;
  bool is_stats;
  at_strbuf *reply;  // of the controller, whose answer comes here; else NULL
  bool arriving;     // a poller writes to `into`: it answers, nobody else
  // Of a launch: hosts that have not answered yet; else NULL.
  uint32_t num_hosts;
  uint32_t *hosts;
  // The first of its hosts' errors; the launch ends when all have answered.
  at_status first;  // error
  uint32_t num_devices;
  at_channel_list *channels;  // by device; NULL: none
  uint32_t users;    // callbacks that run; and one, until it is answered
  at_status result;  // once it is, while callbacks run
} question;

// Fields without a remark are constant once at_client_open has returned.
struct at_client {
  // What the runtime of this process calls: arrays and programs of far chips.
  // Its `arg` is this client.
  at_proxy face;
  // Owned: the pod's target, and the controller's address.
  char *target, *address;
  at_topology topology;  // of the target
  // One kind of chip each, of a pod that has several.
  char *part_targets[AT_TOPOLOGY_PARTS];
  // The number that the controller has given, and what all hosts' CPUs can do.
  uint64_t client, cpu;
  uint8_t key[AT_CONTROL_KEY];
  // Chips and hosts that there may be, virtual devices behind the chips, and
  // chips whose hosts have come.
  uint32_t num_chips, num_hosts, num_spares, num_listed;
  // By device, a chip of the pod or, behind these, a spare one: its host; its
  // number in messages, UINT32_MAX: it stands for no chip; and arrays with
  // smaller names were on the chip that it stood for before. Changed under the
  // lock.
  _Atomic uint32_t *host_of, *place;
  _Atomic uint64_t *lost_before;
  // Under the lock.
  far_slice *slices;
  // [num_hosts]; a host keeps its entry whatever processes it is.
  far_host *hosts;
  at_token token;
  // The session by which the stream goes.
  at_wire *controller;
  at_virtual_clock *clock;  // NULL: hosts are not simulated
  bool on_cpus;             // of which chips are
  // at_msg_simulated's figures.
  uint64_t meet_ns;
  double bandwidth;
  at_outbox *late;  // to the controller, from those who must not wait
  at_sched *calls;  // host callbacks
  bool closes;      // under the lock: no more of them
  // Names of arrays, programs and graphs, and tags of questions: each once.
  _Atomic uint64_t next_name, next_tag;
  // To the controller, for people.
  _Atomic uint64_t sent_messages, sent_bytes;
  _Atomic bool closed;  // the controller is lost, or this client closes
  pthread_mutex_t lock;
  pthread_cond_t news;  // the welcome
  // WELCOME has come, and everything above is filled in.
  bool welcomed;
  bool greeted;        // WELCOME has come; others are ignored. The receiver's
  at_status why;       // nothing can be asked any more
  at_table questions;  // by tag
  at_table programs;   // to far_program
  at_table pinned_arrays, pinned_programs;  // that graphs use (trace.c)
  _Atomic uint32_t replaced;                // hosts, so far
  _Atomic uint64_t records;                 // the trace of which this is a part
  // Names that nobody uses, for the next message.
  pthread_mutex_t drops_lock;
  // Under drops_lock.
  uint64_t drops[256];
  uint32_t num_drops;
  // Of memory that they free, so that much memory does not wait for long.
  uint64_t drop_bytes;
  _Atomic bool drops_at_once;  // a host is drained, and waits for them
};

// ---- client.c
// This thread makes a session's calls, so it must not wait.
// Set while a thread delivers messages of a wire. Whatever would block on a
// full wire goes to an outbox instead: the poller itself must make the room.
extern _Thread_local bool at_far_poller;
// The session with a host; *out NULL: it is lost. An error: this process cannot
// have one.
at_status at_far_host_wire(at_client *c, uint32_t host, at_wire **out);
// Waits for room, but for its poller. UNAVAILABLE: it is lost.
at_status at_far_host_say(far_host *h, at_wire *w, const at_wire_out *m,
                          uint32_t n);
// Now, instead of before the next message.
void at_client_flush(at_client *c);  // drops that wait
// A new error, the caller's to free: the first reason for which the pod is
// gone, UNAVAILABLE where none was noted. Never OK.
at_status at_client_why(at_client *c);

// Sends one message of the stream, behind the drops that wait. Blocks while the
// controller gives no credits. parts are borrowed for the call. An error means
// that the pod is lost, and says why.
at_status at_client_say(at_client *c, uint32_t kind, const at_bytes *parts,
                        uint32_t n);
// As at_client_say, for the kinds that a graph can have as steps: LAUNCH, COPY,
// GROUP or RESHARD. A thread that traces keeps it, too.
at_status at_client_say_step(at_client *c, uint32_t kind, const at_bytes *parts,
                             uint32_t n);
// A span of a message that has been made since begin_ns.
void at_client_record_launch(const at_client *c, uint64_t begin_ns,
                             uint64_t outputs);
// Drops are collected, up to 256 of them or 1 MiB of memory, and go before the
// next message of the stream. An array that a graph uses has to be taken out of
// its pins before.
void at_client_drop(at_client *c, uint64_t array);
// Forgets a program here and on its hosts. Errors are ignored: a pod that is
// lost has unloaded it.
void at_client_unload(at_client *c, uint64_t program);

// ---- far_program.c; what is given is copied.
// Under the lock. chips: filled in, the devices' numbers in messages.
at_status at_far_program_make(const at_client *c, uint64_t name, at_bytes block,
                              const uint32_t *devices, uint32_t num_devices,
                              uint32_t *chips, far_program **out);
// NULL: nothing.
void at_far_program_free(far_program *p);

// Devices behind the pod's chips are virtual: each stands for a view of some
// chip, or for none, and that changes when hosts are lost. Messages have
// numbers of views, the runtime has devices.
// ---- spares.c
// host_of: by chip of the pod, as the controller says it.
at_status at_spares_open(at_client *c, const uint32_t *host_of,
                         uint32_t num_spares);
// Frees the tables by device and all slices. No other thread uses the client
// any more.
void at_spares_close(at_client *c);
// The number of a device in messages. FAILED_PRECONDITION: it has none now.
at_status at_far_chip(const at_client *c, uint32_t device, uint32_t *out);
// The runtime's name of a shard as the messages have it; fails as at_far_chip
// does for a device that stands for no chip.
at_status at_far_shard(const at_client *c, const at_proxy_shard *s,
                       at_msg_shard *out);
// Moves devices to the chips that it says, or ends the wait for a slice.
// INVALID_ARGUMENT: it does not fit.
at_status at_spares_heard(at_client *c, at_bytes body);  // a SLICED

// A thread may trace: what it asks of the pod is kept as well, and becomes a
// graph.
// ---- trace.c
// False while it is paused.
bool at_trace_is_on(const at_client *c);  // for this thread
// The three below add to the trace of the calling thread, which must have one
// (at_trace_is_on). What does not fit into a graph, or into memory, makes the
// trace's end fail; the call itself is not affected.
void at_trace_step(uint32_t kind, const at_bytes *parts, uint32_t n);
void at_trace_create(const at_proxy_spec *s, at_bytes data);
void at_trace_looks(void);  // at values, which no graph can
// A graph uses it: it is dropped with that.
bool at_pin_drop(at_client *c, at_table *of, uint64_t name);

// A question has a tag, which its answer bears. It ends exactly once: by an
// answer, by the loss of its host, or with the client.
// ---- questions.c
extern const at_wire_sink at_far_host_sink;  // arg: a far_session
// The three calls of at_proxy of the same names; arg is the client. `done`
// fires with the outcome, from any thread, in any case. dst must stay valid
// until then.
void at_question_read(void *arg, const at_proxy_shard *s, void *dst,
                      uint64_t offset, uint64_t bytes, at_event *done);
void at_question_watch(void *arg, const at_proxy_shard *s, at_event *done);
at_status at_question_stats(void *arg, uint32_t chip, bool clear,
                            at_memory_stats *out);
// A launch that is asked about, or has channels; its tag. 0: no memory.
// The question has to exist before the launch is sent, since a host may answer
// at once.
uint64_t at_question_launch(at_client *c, const far_program *p,
                            const at_proxy_launch *l);
// Nothing fires.
void at_question_forget(at_client *c, uint64_t tag);  // it was not sent
// A question to the controller, to be sent with *tag: `done` fires with its
// status, and *reply has what it brings. Consumes `done`.
// reply is borrowed until `done` fires. On failure `done` has been consumed all
// the same, and *tag is not written.
at_status at_question_begin(at_client *c, at_strbuf *reply, at_event *done,
                            uint64_t *tag);
// An ANSWER that has been checked.
void at_question_answered(at_client *c, uint64_t tag, at_bytes body);
// A host is lost, or (UINT32_MAX) all that is asked fails. Borrows why.
void at_questions_fail(at_client *c, uint32_t host, at_status why);
void at_questions_end(at_client *c);  // all that are left; no session is open
void at_question_release(at_client *c, question *q);  // one user less

// ---- calls.c
// A program's SENT or ASKS; takes the body.
void at_client_call(far_host *h, const at_wire_head *head, void *body);

#endif
