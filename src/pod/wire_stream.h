// What media have in common that carry streams of bytes: a wire over two
// streams (lanes) each way between any two members. It cuts messages into
// frames, keeps credits and turns, and runs the poller. A medium moves the
// bytes.
//
// Locks. A lane's `lock` is for who sends in it and is never held across a
// wait. `taken` lets a sender keep its turn while it waits for room without the
// lock, so that the wire's own frames get through between.
#ifndef ATOLL_POD_WIRE_STREAM_H_
#define ATOLL_POD_WIRE_STREAM_H_

#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "base/linger.h"
#include "base/thread.h"
#include "pod/loopback.h"
#include "pod/wire_frame.h"

enum {
  AT_STREAM_AT_ONCE = 128 << 10,  // of a message that does not wait, at most
  AT_STREAM_ASIDE_NS = 1000000,   // at_stream.aside_for, at the beginning
  // Beyond the room of a lane there is place for these: BARE, ABANDON and
  // LEAVE.
  AT_STREAM_RESERVE = 3 * (sizeof(at_frame) + AT_SEAL_BYTES),
};

typedef struct at_stream at_stream;

// Messages and bytes whose credits have come back so far.
// They only grow: a sender compares them with what it has sent.
typedef struct at_stream_credit {
  _Atomic uint64_t messages, bytes;
} at_stream_credit;

// One per member; its two halves are used by different threads.
typedef struct at_stream_lane {
  // To the member. Under the lock:
  pthread_mutex_t lock;
  pthread_cond_t turn;
  bool taken;         // a sender waits for room
  uint32_t in_line;   // senders that wait for their turn
  uint32_t sequence;  // of the next frame
  uint64_t messages, bytes, frames, waits, refusals;
  at_seal send_seal;  // where `sealed`
  // The member needs no seals of what it receives; it has been told that none
  // follow.
  bool waived, bare;
  // Any thread:
  _Atomic uint32_t *room;    // moves with every credit and all room that comes
  at_stream_credit *credit;  // what the member has released
  _Atomic uint32_t waiting;  // senders that sleep on `room`
  _Atomic size_t refused;    // bytes that a refused send needs; 0: none was
  bool unpushed;             // the poller's: it has sent, and not pushed
  // From the member. The poller's, but for the credit:
  at_frames in;
  at_seal recv_seal;           // where `sealed`
  at_stream_credit *released;  // by this process
  bool told_socket;            // SOCKET has come, about this lane
  bool left;                   // LEAVE has come
} at_stream_lane;

typedef struct at_stream_member {
  at_stream_lane lanes[AT_WIRE_LANES];
  _Atomic bool lost;
  _Atomic bool given_up;  // by at_wire_drop
  at_status why;          // under at_stream's lock; set once, with `lost`
  // The poller's: last sign of life, and what it has sent on BULK, as that
  // says.
  uint64_t heard_ns, bulk_bytes;
} at_stream_member;

// A table of functions; constant. All of them get the stream as it was opened.
typedef struct at_stream_medium {
  const char *name;
  bool sums;  // bodies need checksums
  uint32_t max_frame;
  uint64_t tick_ns;  // between two looks at who is still there, at most
  // Sending, under the lane's lock. `room`: bytes that `write` takes now
  // (beside AT_STREAM_RESERVE); whoever waits asks for more at a time than who
  // does not. `push`: what was written is under way when it returns.
  size_t (*room)(at_stream *s, uint32_t to, at_wire_lane lane, bool waits);
  void (*write)(at_stream *s, uint32_t to, at_wire_lane lane,
                const struct iovec *v, int n);
  void (*push)(at_stream *s, uint32_t to, at_wire_lane lane);
  // From now on the lane's `room` word moves, or with `poller` this process's
  // poller wakes, when there is room for `bytes`, or credits come.
  void (*want)(at_stream *s, uint32_t to, at_wire_lane lane, size_t bytes,
               bool poller);
  // Any thread: the credit of the lane from a member has grown.
  void (*released)(at_stream *s, uint32_t from, at_wire_lane lane);
  void (*wake)(at_stream *s);  // the poller
  // The poller's. `read`: up to n bytes of a lane, 0: none now. `sleep`: finds
  // out what there is to read, and waits for it, or for work, until a time at
  // most. `check`: is the member still there? `beat`: a sign of life to all,
  // also before the poller has started.
  // `drop`: of one lost. `end`, `reaches`: of pod/loopback.h; NULL: frames keep
  // their seals.
  void (*start)(at_stream *s);  // may be NULL
  size_t (*read)(at_stream *s, uint32_t from, at_wire_lane lane, void *to,
                 size_t n);
  void (*sleep)(at_stream *s, uint64_t until_ns);
  at_status (*check)(at_stream *s, uint32_t member, uint64_t now_ns);
  void (*beat)(at_stream *s);
  void (*drop)(at_stream *s, uint32_t member);
  at_loopback_end (*end)(at_stream *s, uint32_t member, at_wire_lane lane);
  bool (*reaches)(at_stream *s, uint32_t member, at_wire_lane lane,
                  at_loopback_end there);
  void (*close)(
      at_stream *s);  // the poller has ended; frees what is the medium's
} at_stream_medium;

// What the poller counts, and who releases credits. Any thread reads it.
// Relaxed counters: for reports and tests.
typedef struct at_stream_tally {
  _Atomic uint64_t messages, bytes, frames, bare;  // received
  _Atomic uint64_t wakeups, syscalls, bells;
} at_stream_tally;

struct at_stream {
  at_wire face;
  const at_stream_medium *medium;
  // Freed by its `close`.
  void *own;                // the medium's
  at_wire_options options;  // with defaults filled in; its texts are gone
  bool sealed;              // all lanes are
  // What is sent in one frame, at most: with a seal, checksum or TLS, and
  // without. At most the medium's max_frame, which is the default.
  uint32_t checked_frame, bare_frame;
  at_thread *poller;
  _Atomic bool stop;
  // Who polls holds `polls`: the poller, the thread that calls at_wire_poll
  // (`helped`), or one that calls at_wire_look (until `aside_ns`). For the
  // latter two the poller stands aside (`aside`), once it has been called out
  // of its sleep (`called`); it learns for how long after a look that pays. In
  // that order: polls, lock.
  pthread_mutex_t polls;
  _Atomic bool helped, wanted, poked;  // wanted: it waits to poll
  _Atomic bool called, aside;
  _Atomic uint64_t aside_ns, aside_for;  // for so long after a look
  pthread_cond_t stand_in;               // with `lock`: the poller is wanted
  at_linger room_waits;                  // of senders that look meanwhile
  uint64_t tick_ns, beat_ns, ticked_ns;  // next tick and beat, last tick
  _Atomic bool urgent;                   // a tick is due now
  _Atomic uint32_t num_refused;          // lanes with `refused`
  at_stream_tally tally;
  pthread_mutex_t lock;
  at_stream_member members[];  // [count]; options.me is unused
};

// RESOURCE_EXHAUSTED: no memory.
at_status at_stream_create(const at_stream_medium *medium,
                           const at_wire_options *options, void *own,
                           at_stream **out);
// Frames of the lane with a member carry seals; for all lanes of all members,
// or for none.
// Before at_stream_start. The keys are copied.
void at_stream_seal(at_stream *s, uint32_t member, at_wire_lane lane,
                    const at_seal *send, const at_seal *recv);
// Once lanes have `room`, `credit` and `released`: starts the poller.
// *out is set before the first call of the sink.
// Errors: no thread; the stream is still the medium's to free then.
at_status at_stream_start(at_stream *s, at_wire **out);
void at_stream_free(at_stream *s);  // one never started; leaves `own` alone

// Tells senders that wait in a lane that room or credits have come. Any thread.
// Cheap where nobody waits.
void at_stream_roomy(at_stream *s, uint32_t to, at_wire_lane lane);
// Sends a frame that is not of a message, if its lane has room. `about`: the
// lane of CREDIT, SOCKET and WAIVE; `bytes`: BEAT's. Any thread.
bool at_stream_notice(at_stream *s, uint32_t to, at_wire_lane lane,
                      at_frame_type type, at_wire_lane about, uint64_t bytes);
bool at_stream_polls(const at_stream *s);  // is this thread the poller?
// Relaxed: counts are for people, and order nothing.
static inline void at_tally(_Atomic uint64_t *count, uint64_t n) {
  atomic_fetch_add_explicit(count, n, memory_order_relaxed);
}
// Any thread. bytes: of one message of that lane, once for each.
void at_stream_release(at_stream *s, uint32_t from, at_wire_lane lane,
                       uint64_t bytes);
// Those who wait to send to a member look again whether they may or must not.
// Called when it is lost, too: they return with an error then.
void at_stream_wake_senders(at_stream *s, uint32_t member);
void at_stream_poll(void *stream);  // what the poller does, until `stop`
// at_wire_look and at_wire_look_end.
at_wire_seen at_stream_look(at_wire *w);
void at_stream_look_end(at_wire *w);
// at_wire_poll, at_wire_poke and at_wire_poll_end.
void at_stream_help(at_wire *w, uint64_t until_ns);
void at_stream_poke(at_wire *w);
void at_stream_help_end(at_wire *w);
// Must the poller go on rather than sleep? Media ask between telling others
// that it sleeps and its sleep.
// For who polls only.
bool at_stream_has_work(at_stream *s);
// A word that processes share: wait while it is `value`, until a time
// (UINT64_MAX: for ever); wake all who do.
// May return early; the caller looks again.
void at_futex_wait_shared(_Atomic uint32_t *word, uint32_t value,
                          uint64_t until_ns);
void at_futex_wake_shared(_Atomic uint32_t *word);

// The media, by the names that at_wire_open knows. Each blocks until all
// members have come or the time to meet is over.
at_status at_wire_shm_open(const at_wire_options *o, at_wire **out);
at_status at_wire_tcp_open(const at_wire_options *o, at_wire **out);
at_status at_wire_ucx_open(const at_wire_options *o, at_wire **out);
at_status at_wire_net_open(const at_wire_options *o, at_wire **out);

#endif
