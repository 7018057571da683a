// Messages between the processes of a group, its members: each with each, over
// memory that two of them share ("shm", on one machine), over TCP ("tcp"), or
// over TCP with the data in BULK over UCX ("ucx", pod/wire_ucx.c). "net" is ucx
// between any two members that reach each other over UCX, and tcp between
// others.
//
// Order. Messages of one lane from one member to another arrive once, whole and
// in the order of their sends. Lanes do not wait for each other: CONTROL is for
// small messages that must not queue behind data, BULK for data.
//
// Threads. Every function may be called from any thread, unless its line says
// otherwise. One thread of the wire, the poller, makes all calls of the sink,
// one at a time. They must be short: while one runs, nothing else is received,
// and a member whose poller is busy for `stuck_ms` counts as stuck. They may
// send with `until_ns` 0, but never wait.
//
// Bounds. What lies between a send and the receiver's release of the message is
// at most a window of bytes and of messages, for each pair and lane (credits).
// The wire itself holds less: a ring, or a socket's buffer. Who is out of
// credits waits or is refused.
//
// Loss. A member that ends, is killed, stops (SIGSTOP) or sends malformed
// frames is lost: `lost` is called once, after the last message from it, sends
// to it fail with UNAVAILABLE, and what does not involve it goes on. Lost
// members never come back to this wire; a new wire with a new epoch takes them
// in.
//
// Sizes are in bytes, times in nanoseconds of at_clock_ns unless named _ms.
#ifndef ATOLL_POD_WIRE_H_
#define ATOLL_POD_WIRE_H_

#include "base/span.h"
#include "base/status.h"

struct at_pod_link;

typedef enum at_wire_lane {
  AT_WIRE_CONTROL,
  AT_WIRE_BULK,
  AT_WIRE_LANES
} at_wire_lane;

enum {
  AT_WIRE_MEMBERS = 1024,           // at most
  AT_WIRE_CONTROL_BYTES = 32 << 10  // at most, of a message on CONTROL
};

typedef struct at_wire at_wire;

// What the receiver knows of a message before its body. kind and tag are the
// sender's, as it gave them.
typedef struct at_wire_head {
  uint64_t bytes;  // of the body
  uint64_t tag;
  uint32_t kind;
  at_wire_lane lane;
} at_wire_head;

// Where messages go. All calls are the poller's.
typedef struct at_wire_sink {
  void *arg;
  // A block of head->bytes (> 0, at most max_bytes) for the body, which belongs
  // to the sink again with `message` or `abandon`. NULL: no memory; the sender
  // is lost with RESOURCE_EXHAUSTED. Not called for empty bodies.
  void *(*place)(void *arg, uint32_t from, const at_wire_head *head);
  // A whole message; body: what `place` gave, NULL when empty. True: its
  // credits go back now. False: when at_wire_release is called for it.
  bool (*message)(void *arg, uint32_t from, const at_wire_head *head,
                  void *body);
  // The rest of a message will not come: its sender gave up, or is lost.
  void (*abandon)(void *arg, uint32_t from, const at_wire_head *head,
                  void *body);
  // May be NULL. After a send that did not wait was refused: it is worth trying
  // again. Several refusals in a row may be answered once.
  void (*room)(void *arg, uint32_t to, at_wire_lane lane);
  // `why` names the member and is the sink's to free.
  void (*lost)(void *arg, uint32_t member, at_status why);
} at_wire_sink;

// 0 is the default wherever one is named. Members agree on group, count, epoch
// and everything from beat_ms on, else they do not meet.
typedef struct at_wire_options {
  uint32_t count, me;
  // A name that only this group has. Members of one user on one machine find
  // each other by it (shm); over TCP it keeps strangers out like a password
  // that is sent in clear.
  const char *group;
  const char *addresses;  // not shm: "host:port" of every member, by commas
  // Not shm: connections that have been made and proved,
  // [count][AT_WIRE_LANES] (pod/meet.h); no other meeting takes place then, and
  // group and addresses are not used. Frames carry their seals, or go through
  // the links' TLS. The links are the wire's from here on, also on failure, and
  // closed behind the call.
  struct at_pod_link *links;
  // [count]; NULL: none. These take no part: nobody waits for them, and they
  // are lost from the beginning. Borrowed for the call.
  const bool *absent;
  uint32_t epoch;    // how often the group has been formed anew
  uint32_t meet_ms;  // until all members have to be there
  at_wire_sink sink;
  // The poller lingers this long before it sleeps, as far as that pays
  // (base/linger.h); default: 200,000. AT_WIRE_NO_SPIN: never.
  uint32_t spin_ns;
  // A sender that has waited so long for a member to take what was sent before
  // logs a warning, once for each wait; default: 10,000.
  uint32_t tell_ms;
  uint32_t beat_ms;  // between two signs of life; default: 250
  // Without one: lost; default: 1,500. The first one may take meet_ms more.
  uint32_t stuck_ms;
  uint64_t max_bytes;        // of a message; default: 1 GiB
  uint64_t window_bytes;     // default: 256 MiB. One message may exceed it.
  uint32_t window_messages;  // default: 4,096
  // Not shm: leave out the checksums of bodies, not those of headers.
  bool unchecked;
  // net: UCX over whatever it finds, as ucx. Default: over RDMA alone. UCX
  // checks nobody: over TCP whoever reaches its port writes to any memory.
  bool any_ucx;
} at_wire_options;
enum { AT_WIRE_NO_SPIN = UINT32_MAX };

// Is it another member that takes part?
static inline bool at_wire_meets(const at_wire_options *o, uint32_t member) {
  return member != o->me && !(o->absent && o->absent[member]);
}

// A message to send; its body is the parts (any may be empty) one behind the
// other. Borrowed until
// the send returns.
typedef struct at_wire_out {
  uint32_t kind;
  uint64_t tag;
  uint32_t num_parts;
  const at_bytes *parts;
} at_wire_out;

// How long a send may wait for credits and room.
typedef struct at_wire_wait {
  uint64_t until_ns;  // 0: not at all; UINT64_MAX: for ever
  // Borrowed; NULL: none. True: give up. Whoever sets it calls at_wire_wake.
  const _Atomic bool *cancel;
  // The sender may look (at_wire_look) while it waits for room, so that two
  // that send each other much both get on.
  bool looks;
} at_wire_wait;

// What a look at a wire has found.
typedef enum at_wire_seen {
  AT_WIRE_NOTHING,  // that is new
  AT_WIRE_NEWS,     // the sink was called, or part of a message has come
  AT_WIRE_BUSY,     // another thread receives at this moment
} at_wire_seen;

// Since the wire was opened. Messages are those of the caller, frames what they
// are cut into (and signs of life and credits).
typedef struct at_wire_counts {
  uint64_t sent_messages, sent_bytes, sent_frames;
  uint64_t received_messages, received_bytes, received_frames;
  uint64_t received_bare;  // frames, without the seals that others have
  uint64_t refused;        // sends that would have had to wait
  uint64_t waits;          // of senders for credits or room
  uint64_t wakeups;        // of the poller out of its sleep
  uint64_t bells;     // a sleeping poller or sender of another member was woken
  uint64_t syscalls;  // for messages, sleeps and bells
} at_wire_counts;

// What a medium provides; callers use the functions below. Arguments have been
// checked against `count` and `me` when they arrive here.
typedef struct at_wire_vtable {
  at_status (*send)(at_wire *w, uint32_t to, at_wire_lane lane,
                    const at_wire_out *messages, uint32_t count,
                    const at_wire_wait *wait, uint32_t *out_sent);
  void (*release)(at_wire *w, uint32_t from, at_wire_lane lane, uint64_t bytes);
  void (*wake)(at_wire *w);
  at_status (*member)(at_wire *w, uint32_t member);
  void (*drop)(at_wire *w, uint32_t member);
  void (*counts)(at_wire *w, at_wire_counts *out);
  void (*close)(at_wire *w);
  at_wire_seen (*look)(at_wire *w);
  void (*look_end)(at_wire *w);
  void (*poll)(at_wire *w, uint64_t until_ns);
  void (*poke)(at_wire *w);
  void (*poll_end)(at_wire *w);
} at_wire_vtable;

struct at_wire {
  const at_wire_vtable *vtable;
  const char *medium;  // "shm", "tcp"; "ucx": to a member at least
  uint32_t count, me;
};

// Meets the other members. medium: "shm", "tcp", "ucx" or "net", the same for
// all. Returns when all are there; the sink may be called from then on, even
// before this returns; *out is set before.
//   INVALID_ARGUMENT     options that do not fit, unknown medium
//   UNIMPLEMENTED        ucx, and this build is without it
//   DEADLINE_EXCEEDED    names a member that did not come
//   FAILED_PRECONDITION  a member has other options; names it
//   PERMISSION_DENIED    a process of another user is in a member's place (shm)
//   RESOURCE_EXHAUSTED, UNAVAILABLE  what the system, or UCX, refused
at_status at_wire_open(const char *medium, const at_wire_options *options,
                       at_wire **out);

// Sends messages to one member, in one batch: it is woken once. The bytes have
// been copied, or are in the kernel, when this returns. *out_sent (may be
// NULL): how many went before an error. A message whose wait ends half-way is
// abandoned at the receiver.
//   RESOURCE_EXHAUSTED  no credits or no room now (until_ns 0)
//   DEADLINE_EXCEEDED   nor until until_ns
//   CANCELLED           *cancel was set first
//   UNAVAILABLE         the member is lost; the status is at_wire_member's
//   INVALID_ARGUMENT    to itself, too large for the lane or for max_bytes;
//   with
//                       until_ns 0 also: too large ever to go at once
//   FAILED_PRECONDITION the poller asks to wait
at_status at_wire_send(at_wire *w, uint32_t to, at_wire_lane lane,
                       const at_wire_out *messages, uint32_t count,
                       const at_wire_wait *wait, uint32_t *out_sent);

// Returns the credits of a message for which `message` said false. bytes: its
// head's.
static inline void at_wire_release(at_wire *w, uint32_t from, at_wire_lane lane,
                                   uint64_t bytes) {
  w->vtable->release(w, from, lane, bytes);
}

// Senders that wait look at their cancel flags.
static inline void at_wire_wake(at_wire *w) { w->vtable->wake(w); }

// OK, or a copy of why the member is lost. INVALID_ARGUMENT: there is none
// such.
at_status at_wire_member(at_wire *w, uint32_t member);

// Gives the member up: soon it is lost here, and this process is lost there.
// Any thread. Of one that is lost already: nothing.
static inline void at_wire_drop(at_wire *w, uint32_t member) {
  w->vtable->drop(w, member);
}

static inline void at_wire_counts_of(at_wire *w, at_wire_counts *out) {
  w->vtable->counts(w, out);
}

// For a thread that waits for a message: receives what has come by now in place
// of the wire's own thread, which then need not be woken for it nor wake the
// caller. Calls the sink, so the caller must hold no lock that the sink takes.
// The wire's own thread keeps away for up to 1 ms after a look, as far as that
// pays, so who stops looking without having got its message calls
// at_wire_look_end. Any thread; not from the sink.
static inline at_wire_seen at_wire_look(at_wire *w) {
  return w->vtable->look(w);
}
// The wire's own thread receives again, at once.
static inline void at_wire_look_end(at_wire *w) { w->vtable->look_end(w); }

// For a thread that has nothing to do but what messages bring: it polls itself,
// so that no message has to wake a second thread. Calls the sink, until
// something has come, at_wire_poke or until_ns (at_clock_ns); may return
// earlier. The wire's own thread stands in where the caller stays away for
// longer (20 ms), so signs of life and credits go on; the sink is never called
// by two threads at a time, and at_wire_send must not wait in it. One thread of
// a wire; shm and tcp.
static inline void at_wire_poll(at_wire *w, uint64_t until_ns) {
  w->vtable->poll(w, until_ns);
}

// The at_wire_poll under way, or else the next one, returns. Any thread.
static inline void at_wire_poke(at_wire *w) { w->vtable->poke(w); }

// There will be no at_wire_poll any more; by the thread that called it.
static inline void at_wire_poll_end(at_wire *w) { w->vtable->poll_end(w); }

// Leaves the group: others receive what was sent before, then see this member
// as gone. No call of the sink after this. Not from the sink, nor while another
// thread uses the wire. NULL: nothing.
void at_wire_close(at_wire *w);

#endif
