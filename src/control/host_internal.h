// What the files of a host share: the process itself (host.c), what one client
// has on it (tenant.c), what the stream does to that (stream.c), and what it
// and the client say to each other (talk.c, callbacks.c).
#ifndef ATOLL_CONTROL_HOST_INTERNAL_H_
#define ATOLL_CONTROL_HOST_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/sha256.h"
#include "control/host.h"
#include "control/message.h"
#include "control/outbox.h"
#include "control/session.h"
#include "control/table.h"
#include "exec/exec.h"
#include "pod/hosts.h"
#include "pod/pod.h"

typedef struct host host;
typedef struct tenant tenant;
typedef struct parked parked;

// Shards of an array that are on this host, by their number.
// In the order of their numbers.
typedef struct piece {
  uint32_t shard;
  // It may be defined later.
  at_buffer *buffer;  // one reference; NULL: `why` of the array
} piece;
// A client's array as one host has it: only the shards that are here. Owned by
// tenant.arrays.
typedef struct array {
  uint64_t name;
  bool written;   // the client brings its bytes: see tenant.filling
  at_status why;  // of those without a buffer
  uint32_t count;
  // [count]
  piece here[];
} array;

// Owned by tenant.programs. Where it could not be loaded it exists all the
// same, and its launches get `why`.
typedef struct program {
  uint64_t name;
  // For people; cut.
  char title[AT_LOOK_NAME];   // the executable's own name
  _Atomic uint64_t launches;  // the stream's to count
  // One reference.
  at_loaded *loaded;  // NULL: `why`
  at_status why;
  uint64_t epoch;  // of the hosts that `loaded` spans; 0: it does not
  // Devices of the program, those that are this host's, and results of each.
  uint32_t num_chips, num_here, num_outputs;
  at_kernel_checks checks;
  // Both lists are owned; chips of other hosts are the runtime's stand-ins for
  // them.
  at_chip **all;      // by device of the program
  at_chip **chips;    // of this host
  uint32_t *devices;  // and which of the program they are
} program;

// A traced program, as it came.
// Owned by tenant.graphs.
typedef struct graph {
  uint8_t *body;
  // So that a run can copy any step to one buffer before it renames.
  size_t bytes, largest;  // largest: body of a step
  uint32_t num_launches;  // on all hosts
} graph;

// A launch whose time is taken.
// In the ring host.samples; `times` is filled in by the runtime.
typedef struct sample {
  uint64_t client, program, given_ns;
  // Chips write to it while others read.
  at_launch_times times;  // start_ns 0: there is none, or it has not begun
  char name[AT_LOOK_NAME];
} sample;

// What one client has here.
// Made when the stream or a session first names the client; freed with its last
// user once it has left.
struct tenant {
  tenant *next;
  host *host;
  uint64_t client;
  bool left;       // the stream has said so
  bool streamed;   // the stream has spoken of it, so it will say so
  bool mute;       // its session is lost: it brings and answers nothing more
  at_event *gone;  // fires then
  // The last one frees it, once the client has left.
  uint32_t users;  // visitors, and answers under way; under the host's lock
  uint32_t num_parked;  // under it, too
  // To array and program, by the client's names. The stream enters and removes;
  // others look under the lock.
  at_table arrays, programs;
  at_table graphs;  // to graph; the stream's alone
  // To buffers, acquired: of arrays of which WRITE or REFUSE has not come to an
  // end. Dropped or not: a launch may wait for them.
  at_table filling;
  // By the array's name, to lists of them.
  at_table parked;  // questions about arrays that are not here yet
  // A program waits for each.
  at_table pending;  // transfers between programs and the client, by tag
  uint64_t next_tag;
  uint64_t since;    // of IAM; under the host's lock
  uint64_t counted;  // launches of the group in hand (pace.c); the stream's
  _Atomic uint64_t ended;  // of groups, that the controller has not heard of
  // Launches of which the client wants to hear; under the host's lock (ends.c).
  // Launches of which it wants to hear that have not ended, and those that have
  // but of which it has not been told.
  uint32_t running, num_ends;  // num_ends: that it has not been told
  // Told when the list is full, or after a moment (ends.c).
  uint64_t ends[AT_MESSAGE_ENDS];  // their numbers
  // What is said before the session is open waits in it.
  at_outbox *outbox;  // to the client
  bool open;          // the outbox has its wire
};

// A client's session. The sink's calls come one at a time.
// A tenant may have none (its session is not open yet) or several, one after
// another.
typedef struct visitor {
  struct visitor *next;
  host *host;
  // A user of it.
  tenant *tenant;  // NULL: it has not said who it is
  at_wire *wire;
  bool gone;
  bool ended;  // it is lost, or has been turned out; the sink's
  // In the order in which they will come.
  struct expected *expected;  // bytes of which a WRITE has spoken
} visitor;

// A message of the stream, or work for the same thread.
// In the host's queue until the stream's thread has done it, which frees it
// with its body.
typedef struct job {
  struct job *next;
  uint32_t kind;  // at_message_kind, or kVisitorGone
  uint64_t client;
  // As the wire had it; the tag is the client's number.
  at_wire_head head;
  uint8_t *body;
  visitor *visitor;
  // When the wire brought it.
  uint64_t heard_ns;  // of a launch, where spans are kept; else 0
} job;
enum { kVisitorGone = 1 << 16, AT_HOST_FORMERS = 256 };

// The process: one of it in at_host_run, on its stack. What has no lock beside
// it belongs to the stream's thread, which is the one that called at_host_run.
struct host {
  // Borrowed from who called at_host_run.
  const at_host_options *options;
  at_listener *listener;
  // By which the stream comes. NULL before the session is open.
  at_wire *controller;
  // The other hosts of this epoch.
  at_pod_hosts *pod;
  at_pod_hosts *formers[AT_HOST_FORMERS];  // before some were replaced
  uint32_t num_formers;
  // [count], of this epoch.
  bool *missed;      // by host: the controller has been told that it is lost
  int pod_listener;  // bound; where other hosts call
  // Of this host's chips; made when the pod forms for the first time.
  at_runtime *runtime;
  // Orders launches over several hosts.
  at_island *island;
  uint32_t me, count, places;  // places: hosts that there may be
  // An epoch begins with each FORM that is carried out.
  uint64_t epoch, born;  // now, and when this process joined
  // By which keys of clients are checked.
  uint8_t secret[AT_CONTROL_SECRET];
  // What is to be done, in order; any thread.
  pthread_mutex_t queue_lock;
  // The queue, oldest first.
  job *first, **end;
  // The controller's wire, while the stream's thread waits there; or NULL.
  at_wire *polled;
  // stops: the stream's thread is to leave its loop.
  _Atomic bool stops, ends;    // ends: the controller has said so
  _Atomic uint32_t forms;      // FORM and BREAK that have come
  uint32_t formed;             // of these, those that the stream has reached
  _Atomic bool some_ended;     // a tenant has `ended`
  _Atomic bool launches_more;  // the stream has more to do right now
  _Atomic uint64_t ends_ns;    // when `ends` are told at the latest; 0: none
  at_status why;               // of stopping; under the queue's lock
  // Copies between hosts that one message brings (copies.c).
  pthread_mutex_t copies_lock;
  // coming: what is expected, or has come unexpected. lent: what another host
  // is still to read.
  at_table coming, lent;  // by their keys
  struct unsent_copy *unsent;
  _Atomic uint32_t copies;  // under way
  // Tenants and all that is theirs. The stream's thread alone removes.
  pthread_mutex_t lock;
  // A list: clients are few.
  tenant *tenants;
  // Sessions that are open, or not freed yet.
  visitor *visitors;
  // For people (look.c).
  at_outbox *answers;  // to the controller, of who must not wait
  // Others than the stream's thread may use them from then on.
  _Atomic bool there;    // runtime and island are
  _Atomic bool watched;  // each launch is measured
  _Atomic uint64_t watched_until_ns;
  pthread_mutex_t samples_lock;
  // A ring of the last launches that were measured.
  sample samples[AT_LOOK_RUNS];
  uint32_t num_samples;  // so far
  bool rests;  // the controller waits until all that it has said is done
  uint32_t idle_looks;  // in a row, since then
  // Of the stream's thread alone: named objects, by the controller's numbers.
  // To their arrays, which belong to no tenant.
  at_table objects;
  at_sched *files;  // checkpoints (files_host.c); NULL: none yet
};

// What the controller has asked for under that number is done, or not; any
// thread. Borrows.
void at_host_acted(host *h, uint64_t number, at_status st, at_bytes result);

// Appends to the queue; never waits.
void at_host_post(host *h, job *j);  // for the stream's thread; takes it
void at_host_wake(host *h);  // the stream's thread looks what there is to do

// For `atoll pod status`: what this host does, told beside the stream so that a
// busy one answers, too.
// ---- look.c
void at_host_look(host *h, const at_msg_look *m);  // answers; never waits
void at_look_tick(host *h);                        // now and then
// Counts a launch. NULL: its time is not taken.
sample *at_sample_begin(tenant *t, program *p);
void at_sample_cancel(sample *s);  // it is not made; NULL: nothing

// A tenant is what a client has here. Users keep its memory; `left` says that
// the client is gone.
// ---- tenant.c
tenant *at_tenant_find(host *h, uint64_t client, bool make);  // under the lock
// What it has asked for and has not begun does not begin, wherever the stream
// is.
// So a client that is gone keeps no chip busy.
// Called when the controller has said LEFT, before the stream reaches it.
void at_tenant_is_gone(host *h, uint64_t client);
// The stream's thread, when it reaches LEFT.
void at_tenant_leave(tenant *t);    // drops all that it has
void at_tenant_release(tenant *t);  // under the lock: one user less
// Under the lock. NULL: not here.
// Valid until the lock is left, for the stream may drop it then; the stream's
// own thread may keep it.
array *at_tenant_array(tenant *t, uint64_t name);
// The shard with that number, if it is here. NULL: it is on another host.
const piece *at_array_piece(const array *a, uint32_t shard);
array *at_array_make(uint64_t name, uint32_t count);  // NULL: no memory
void at_array_free(array *a);
// NULL is allowed, as for the next one. Launches under way hold what they need.
void at_program_free(program *p);
void at_graph_free(graph *g);

// ---- copies.c: arrays of at most AT_COPY_QUICK bytes to and from other hosts.
// Up to AT_COPY_SMALL their bytes are in the message.
enum { AT_COPY_SMALL = 4096, AT_COPY_QUICK = 1 << 20 };
// Both ends decide by the shape alone, so they agree without a word.
bool at_copy_is_quick(at_dtype t, at_dims dims);
// Sends b once it is defined, or its error; returns at once. key: of this copy,
// the same at both ends, not 0. b is retained as long as needed.
// INVALID_ARGUMENT: b is larger than AT_COPY_QUICK.
at_status at_copy_send(host *h, at_buffer *b, uint32_t to, uint64_t key);
// The other host's array gets this error. Borrows why.
void at_copy_refuse(host *h, uint32_t to, uint64_t key, at_status why);
// Creates the array that a copy will define; *out is the caller's reference,
// written on success only. Where there is no memory for it the sender's bytes
// are thrown away.
at_status at_copy_receive(host *h, at_chip *c, at_memory_kind k, at_dtype t,
                          at_dims dims, uint32_t from, uint64_t key,
                          at_buffer **out);
// There is no place for what that host sends, which is told so.
void at_copy_decline(host *h, uint32_t from, uint64_t key);
// Once for each epoch, after the pod has been formed.
void at_copies_listen(host *h);  // to the hosts of now
void at_copies_end(host *h);     // what is expected fails

// ---- stream.c: the stream's thread
// Carries out one message of the stream. What it cannot do becomes the error of
// the arrays or the program that it defines: the stream itself goes on. Borrows
// j.
void at_stream_do(host *h, const job *j);
// number: of at_runtime_view; NULL: another's.
// Borrowed from the runtime.
at_chip *at_stream_own_chip(const host *h, uint32_t number);
// From here on others find the array; takes it. NULL: there was no memory.
// Answers what was parked for it. Takes over a.
void at_stream_enter(tenant *t, array *a);
// A shard's buffer, which stays until the stream drops it. NULL: why.
// *why is a new error, the caller's, where NULL is returned.
at_buffer *at_stream_find(tenant *t, const at_msg_shard *s, at_status *why);

// ---- reshard.c: the stream's thread. refused: the results carry that;
// consumed.
void at_host_reshard(tenant *t, at_bytes body, at_status refused);
// Has this host a part in it, as a source or a destination?
bool at_host_reshards(const host *h, const at_msg_reshard *m);

// Launches are counted in groups, and only a group's last one is watched: the
// controller hears how far a client is without an event for each.
// ---- pace.c: the stream's thread
void at_pace_count(tenant *t, uint32_t launches);
bool at_pace_is_due(const tenant *t);  // the group in hand is to be closed
// last: a launch of the group, or NULL: they have ended.
void at_pace_close(tenant *t, at_event *last);
// Takes what tenants have ended since the last call, one entry for each; how
// many entries.
uint32_t at_pace_take(host *h, at_msg_did *out, uint32_t most);

// Launches of which a client wants to hear end in groups as well: one DONE
// tells of up to AT_MESSAGE_ENDS.
// ---- ends.c
// Under the lock: a launch of which the client wants to hear begins.
// The tenant has one user more until at_ends_add.
void at_ends_begin(tenant *t);
// It is over; any thread. number: 0 if the client has heard. now: it is told at
// once, with all before it.
void at_ends_add(tenant *t, uint64_t number, bool now);
// Those that it is time to tell; the stream's thread.
void at_ends_tell(host *h);

// ---- named_host.c: the stream's thread. Bodies have been checked.
// Copies, or moves, the tenant's arrays to an object of the host's, and says
// ACTED once they are defined.
void at_named_keep(tenant *t, at_bytes body);
// Enters an object's arrays under the tenant's names.
void at_named_fetch(tenant *t, at_bytes body);
void at_named_discard(host *h, at_bytes body);
// Drops all objects; the process ends.
void at_named_close(host *h);

// ---- files_host.c: the stream's thread. Bodies have been checked.
// Reading and writing happens on threads of their own; the four below return as
// soon as the work is scheduled, and ACTED tells its end.
void at_files_save(tenant *t, at_bytes body);
void at_files_restore(tenant *t, at_bytes body);
void at_files_peek(host *h, at_bytes body);
void at_files_commit(host *h, at_bytes body);
void at_files_close(host *h);  // waits

// What comes from clients directly: bytes of arrays, and questions about them,
// which may come before the stream has made the array.
// ---- talk.c
extern const at_wire_sink at_visitor_sink;  // arg: a visitor
// Frees what it had announced and not brought.
void at_visitor_free(visitor *v);  // its wire is closed
// Questions and bytes that waited for the array; under the lock.
void at_tenant_answer_parked(tenant *t, uint64_t array);
// The end of what a WRITE or REFUSE defines, taken out of tenant.filling.
// Consumes s. Not under the lock.
void at_filling_end(at_buffer *b, at_status s);
// Of a tenant who will bring no more bytes and answers; frees the tables.
void at_fillings_cancel(at_table *filling, const char *why);
// Its bytes went to the process that was this host before.
// A new DATA_LOSS error for it.
at_status at_filling_lost(const host *h, uint64_t array);
// With all that are behind it in its list.
void at_parked_free(parked *p);
void at_tenant_answer_stats(tenant *t, const at_msg_stats *m);  // the stream's
// Says to the client; any thread.
void at_tenant_say(tenant *t, at_wire_lane lane, uint32_t kind, uint64_t tag,
                   const at_bytes *parts, uint32_t num_parts);
void at_tenant_say_failed(tenant *t, uint64_t tag, at_status why);  // borrowed

// ---- callbacks.c
// Channels of a launch, by device here; freed with at_callbacks_free when it is
// done. m: has been checked.
typedef struct callbacks callbacks;
// *out is written on success only. t must outlive it. RESOURCE_EXHAUSTED.
at_status at_callbacks_make(tenant *t, const program *p, const at_msg_launch *m,
                            callbacks **out);
// [num_here], in the order of the program's chips on this host; as long as c.
const at_channel_list *at_callbacks_lists(const callbacks *c);
// Transfers that wait for the client are cancelled before.
void at_callbacks_free(callbacks *c);
// The client's answers.
// TOOK, or GIVE where `gives`. Ends the transfer of that tag; unknown tags are
// ignored. body has been checked.
void at_tenant_took(tenant *t, uint64_t tag, at_bytes body, bool gives);
void at_transfers_cancel(at_table *pending);  // and frees it

#endif
