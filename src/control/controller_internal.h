// What the files of the controller share: who is there (controller.c), and what
// clients say (route.c).
#ifndef ATOLL_CONTROL_CONTROLLER_INTERNAL_H_
#define ATOLL_CONTROL_CONTROLLER_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/json.h"
#include "base/thread.h"
#include "control/controller.h"
#include "control/message.h"
#include "control/outbox.h"
#include "control/session.h"
#include "control/table.h"
#include "device/device.h"

typedef struct peer peer;
typedef struct held held;
typedef struct slice slice;  // virtual.c

// Hosts that have something in common. Alike ones are one.
// Interned (at_hosts_intern), so sets may be compared by address; freed with
// the controller.
typedef struct host_set {
  struct host_set *next;
  // By which a drain sees what a host still holds.
  uint64_t arrays;  // that clients have on these
  uint32_t count;
  uint32_t hosts[];  // ascending
} host_set;

// A program: its hosts, and the epoch in which they loaded it.
// The epoch tells which of these hosts are other processes since.
typedef struct placed {
  host_set *hosts;
  uint64_t epoch;
} placed;

// A traced program: what stays of a run, and where.
// kept: which of the arrays that a run makes outlive it (their number among
// `num_made`), and the hosts where each is.
typedef struct placed_graph {
  host_set *hosts;
  uint64_t epoch;
  uint32_t num_inputs, num_made, num_kept, num_launches;
  struct {
    uint64_t made;
    host_set *hosts;
  } kept[];
} placed_graph;

// Of a host: what people want of it. Numbers of the order in which it goes.
typedef enum drain_state {
  DRAIN_NONE,
  DRAIN_STARTED,  // nothing new is placed there
  DRAIN_FORCED,   // it rests once clients have said what they had to say
  DRAIN_RESTS,    // nothing of the stream goes there; it ends what it has
  DRAIN_ENDED     // it has ended, and no other process takes its place
} drain_state;

// A session. All of it under the controller's lock.
// It is freed by the keeper once it is gone and none of its letters is under
// way. Hosts stay in at_controller.hosts until another process has their place.
struct peer {
  // In at_controller.peers, or closing.
  peer *next;
  at_controller *controller;
  uint32_t kind;  // at_session_kind
  // What it has said of itself: a name, process and user, for people.
  at_session_hello hello;
  at_wire *wire;  // NULL: not open yet
  // By which all is said to it, so that nobody waits under the lock.
  at_outbox *outbox;
  // Its wire is lost; and it has been closed by the keeper.
  bool gone, closed;
  bool replaced;  // another one has its place among the hosts
  char why[256];  // it is gone, or does not take part; "": it does
  // Of a host:
  uint32_t number;
  // at_cpu_features, of a host.
  uint64_t cpu;
  char *session, *pod;  // addresses; NULL: it has not said who it is
  // It has formed the current epoch.
  bool formed;
  bool announced;   // clients know of it
  uint64_t joined;  // the epoch in which it became a host
  // Of a client:
  // Numbers of clients are given out once and never again.
  uint64_t client;
  // It has been told of the pod; the hosts have been told that it is gone.
  bool welcomed, left;
  _Atomic uint32_t letters;  // messages of it that hosts have not taken yet
  // By the client's names, as the next two.
  at_table arrays;    // to host_set
  at_table programs;  // to placed
  at_table graphs;    // to placed_graph
  // That it has sent, for people.
  uint64_t launches, messages, bytes;
  uint32_t *flight;  // by host: launches that it has not ended; NULL: none yet
  // Of the client whose launches are counted.
  held *held, **held_end;       // what waits until it has; in order
  double launch_rate;           // a second, of late
  uint64_t rated_ns, rated_at;  // when it was looked at, and launches then
  // Of a host: its last answer to LOOK; NULL: none.
  at_msg_looks *looks;
  // Of a tool: the number of the LOOK whose answers it waits for; 0: none.
  // asked_ns: since when, for the keeper's patience.
  uint64_t waits_for, asked_ns;
  // Of virtual devices that it has; virtual.c.
  slice *slices;
  bool *reached;  // by chip of the pod: it has programs there; NULL: nowhere
  // Launches in a second, measured when somebody asks; 0: not yet.
  double use;
  uint64_t use_ns, use_launches;
  uint64_t heard;  // the last drain by force of which it has heard
  // For a trace of the pod: its clock less the controller's, and how long the
  // question took of which that is known; the last trace that it has ended.
  bool clock_known;
  int64_t clock_offset_ns;
  uint64_t clock_way_ns, recorded;
};

// Everything is under `lock` but what is constant from at_controller_open on:
// target, topology, max_hosts, num_chips, host_of, secret, listener and
// simulated.
struct at_controller {
  pthread_mutex_t lock;
  pthread_cond_t news;  // for the keeper
  char *target;
  at_topology topology;
  uint32_t num_hosts, max_hosts;  // more come later
  uint32_t num_chips;             // of max_hosts
  uint32_t *host_of;              // by chip
  uint8_t secret[AT_CONTROL_SECRET];
  at_listener *listener;
  struct at_simulated *simulated;  // NULL: hosts are processes
  // Closes wires and frees peers, and looks after time: no session's thread
  // can.
  at_thread *keeper;
  // Sessions that are open; those that are gone and are being closed.
  peer *peers, *closing;
  // By place.
  peer **hosts;     // [max_hosts]; NULL: has never been there
  uint32_t formed;  // of them have formed the epoch
  // The epoch counts how often the hosts have formed; clients, so far.
  uint64_t epoch, num_clients;
  // All sets of hosts that were ever needed, interned.
  host_set *sets;
  uint64_t torn_ns;  // when a host said that it misses another one, or could
                     // not take part; 0: none
  held *paid;        // was held, and its credits go back
  bool forming;      // not all hosts have said that they have formed the epoch
  // The hosts have formed and clients are welcome; a tool has ended the pod;
  // at_controller_close is at work.
  bool up, stopped, closes;
  // [max_hosts]
  uint8_t *drains;             // by host: drain_state
  uint64_t forces, forced_ns;  // drains by force, so far; when the last was
  // Numbers of LOOK messages; an answer with another number is late.
  uint64_t looks;  // that have been asked
  // Named objects, and what hosts have been asked to do (named.c).
  // By name, of all clients.
  struct object *objects;
  struct operation *operations;
  uint64_t num_operations;  // so far
  uint32_t under_way;       // of them
  uint32_t num_objects;
  // Bounded: a client's request that would exceed it is refused.
  uint64_t about_bytes;  // that clients have left with them
  struct {
    peer *tool;       // that wants the trace; NULL: none is made
    uint64_t number;  // of traces, so far
    uint64_t asked_ns;
    uint64_t ends_ns;  // until when it waits for the last spans; 0: it goes on
    uint64_t dropped;  // that the tool has not been told of
    _Atomic uint64_t under_way;  // bytes to the tool
  } recording;
};

// Posts a message to the peer's outbox, which copies the parts. Never waits;
// what cannot be sent is dropped, as the peer is lost then. Under the lock.
// p may be gone already.
void at_peer_say(peer *p, uint32_t kind, const at_bytes *parts, uint32_t n);
// Appends the JSON object of `atoll pod status`. Under the lock.
void at_controller_print(const at_controller *c, at_strbuf *out);

// Nothing goes there any more.
static inline bool at_peer_is_away(const peer *h) {
  return h->gone || h->controller->drains[h->number] >= DRAIN_RESTS;
}

// ---- controller.c; under the lock
// All hosts are there, but for those that are drained.
// At least one host must be there, and have formed the epoch; false while one
// that is not drained is missing.
bool at_controller_is_complete(const at_controller *c);
// Launches that the host had not ended count as ended, operations that waited
// for it get an error, and virtual devices on its chips move.
void at_host_leaves(peer *host);  // it is gone, and clients are told
// If the hosts that are not drained are there, clients that wait may begin, or
// the hosts, where they have not, form.
void at_controller_go_on(at_controller *c);
// Goes by the control lane, past what waits in the outbox. Does not wait.
void at_host_end(peer *host);  // tells it to end

// ---- drain.c; under the lock
// INVALID_ARGUMENT: there is no such host. FAILED_PRECONDITION: it has never
// come, or an undo comes too late.
at_status at_drain(at_controller *c, const at_msg_drain *m);
// By the keeper.
void at_drain_look(at_controller *c);  // now and then: who can rest does
// A client's HEARD, behind all that it had said. Numbers of the future are
// ignored.
void at_drain_heard(peer *client, const at_msg_heard *m);
// A host has done all that the stream told it: it is ended, and its place is
// free once people undrain it.
void at_drain_rested(peer *host);
// A host that is being drained was lost: that counts as having ended.
void at_drain_lost(peer *host);
// What a new client has to know.
// HOST_DRAINS for each host that is being drained.
void at_drain_tell(peer *client);

// ---- status.c; under the lock
// Answers a tool, once all hosts have said how they are, or at_status_look
// finds that they take too long.
void at_status_ask(peer *tool, uint64_t watch_ms);
// Keeps a copy, for this status and the next ones.
// An answer to a LOOK of before is of use, too: it is the newest there is.
void at_status_heard(peer *host, at_bytes body);  // LOOKS
void at_status_look(at_controller *c);            // now and then

// ---- recording.c; under the lock
// Begins or ends the one trace that a pod can have at a time.
// FAILED_PRECONDITION: another tool makes one, or this one makes none.
at_status at_recording_order(peer *tool, bool on);
// Before WELCOME: what the client says first is in the trace.
void at_recording_welcome(peer *client);
// Passes the spans on to the tool, with what is known of the process's clock.
void at_recording_heard(peer *p, at_bytes body);  // RECORDED
void at_recording_look(at_controller *c);         // now and then

// A client's stream goes to those hosts that its messages concern, with
// refusals for what is lost. Messages are passed on as they came, but for
// fields that the controller fills in.
// ---- route.c; under the lock
// Sends a client's message to whom it concerns; takes the body. True: its
// credits go back now, else when the hosts have taken it.
// body: a block of malloc that at_message_check has accepted. What cannot be
// carried out (a name used twice, or of nothing) ends the client.
bool at_client_says(peer *p, const at_wire_head *head, void *body);
// Tells the hosts that the client is gone, and forgets what it had. Its tables
// are freed later, with the peer.
void at_client_leaves(peer *p);
// The sets in them are the controller's.
void at_client_tables_free(peer *p);
// No peer is left.
void at_client_sets_free(at_controller *c);
// Messages that were held go on, as far as they may.
void at_client_goes_on(peer *p);

// ---- flight.c; under the lock, but for the last
// A client's launches that hosts have not ended yet. From so many on, on one of
// them, what the client says waits with the controller, and keeps its credits:
// so the client waits, and not the hosts, whose streams are everybody's.
enum { AT_FLIGHT_LAUNCHES = 512 };
// May a launch on these hosts be sent now? False: one of them has
// AT_FLIGHT_LAUNCHES of this client to end first.
// Under the lock, as all of these but at_flight_unlock.
bool at_flight_may_go(const peer *p, const host_set *to);
// Counts launches that have been sent to each of the hosts.
void at_flight_add(peer *p, const host_set *to, uint32_t launches);
// A host has ended so many launches; more than are counted: all of them.
void at_flight_did(peer *p, uint32_t host, uint64_t launches);
// Keeps a message, in order behind what is held already; takes the body. False:
// no memory, and the body is the caller's still.
bool at_flight_hold(peer *p, const at_wire_head *head, void *body);
held *at_flight_next(peer *p);  // the first that is held, taken out
// What it held has gone on. pays: its credits go back with at_flight_unlock.
void at_flight_went(peer *p, held *x, bool pays);
// The message that was held; the body stays the held one's until
// at_flight_went.
// As it came.
at_wire_head at_flight_head(const held *x);
void *at_flight_body(const held *x);
void at_flight_drop(peer *p);  // forgets it all
// Unlocks; credits go back without the lock, which who has it may wait for.
void at_flight_unlock(at_controller *c);

// For what hosts of a set have in common; NULL: no memory.
host_set *at_hosts_intern(at_controller *c, const uint32_t *hosts, uint32_t n);
// Those of them that are there, and were in that epoch; *refused: as
// at_msg_launch's.
host_set *at_hosts_still_there(at_controller *c, host_set *all, uint64_t epoch,
                               uint32_t *refused);
// A name of the client for an array on these hosts.
// INVALID_ARGUMENT: the name is in use, or is none. RESOURCE_EXHAUSTED.
at_status at_client_adds(peer *p, uint64_t name, host_set *hosts);

// An operation is begun, its hosts are told (at_hosts_tell), and each answers
// with ACTED or is lost. It is over when none is left.
// ---- operations.c; under the lock
// What hosts have been asked to do for a client. When all of them have answered
// it leaves the list, and `over` takes it: at_operation_free is its last.
typedef struct operation {
  struct operation *next;
  at_controller *controller;
  // number: by which hosts answer.
  uint64_t number, tag;  // tag: the client's
  // Who is told in the end.
  const peer *asker;  // NULL: it is gone
  void (*over)(struct operation *x);
  // The user's: `over` frees it.
  void *what;
  // OK: none so far.
  at_status why;      // the first error
  at_strbuf results;  // what hosts have said, one behind the other
  host_set *hosts;
  // How many of `waits` are still to answer.
  uint32_t left;
  uint32_t waits[];  // [left] of these have not answered
} operation;
// NULL: no memory, or clients ask too much at once. Its number is no other's.
operation *at_operation_begin(peer *p, uint64_t tag, host_set *hosts,
                              void (*over)(operation *x), void *what);
// Once more, with these hosts.
void at_operation_again(operation *x, const uint32_t *hosts, uint32_t n);
// Frees it with its status and results; it is in no list any more.
void at_operation_free(operation *x);
// Each ends with an error.
void at_operations_end(at_controller *c);  // nobody answers any more
// A host's ACTED. Like at_operations_lose, which counts as DATA_LOSS from that
// host, it may be the last that an operation waits for: then `over` runs.
void at_operation_acted(const peer *host, uint64_t operation, at_bytes body);
void at_operations_lose(at_controller *c, uint32_t host);
// What it has asked goes on, and is told to nobody.
void at_operations_leave(const peer *client);
// To those of the hosts that are there.
void at_hosts_tell(at_controller *c, const host_set *to, uint64_t client,
                   uint32_t kind, const at_bytes *parts, uint32_t n);
// ANSWER. Consumes st; p NULL: nobody waits for it.
void at_client_answer(const peer *p, uint64_t tag, at_status st, at_bytes head,
                      at_bytes rest);
// An answer without anything but the status, which may be OK. Consumes st.
void at_client_refuse(const peer *p, uint64_t tag, at_status st);
// The hosts of arrays, all of which the client has; INVALID_ARGUMENT.
at_status at_arrays_hosts(peer *p, const uint64_t *arrays, uint32_t n,
                          host_set **out);

// ---- files.c; under the lock
// True for SAVE, RESTORE and PEEK, the kinds that at_files_says takes.
bool at_files_is(uint32_t kind);
// Takes nothing. An error ends the client.
at_status at_files_says(peer *p, uint32_t kind, at_bytes body);

// Hosts have the arrays; the controller knows names, owners and where they are.
// ---- named.c; under the lock
bool at_named_is(uint32_t kind);  // what clients ask of it
// An error ends the client.
at_status at_named_says(peer *p, uint32_t kind, const void *body);
at_status at_named_erase(at_controller *c, at_str name);  // NOT_FOUND
// A member of the object that is being written: each named object with its
// size, label and hosts.
void at_named_print(const at_controller *c, at_json_writer *w);
void at_named_free(at_controller *c);

// Placing devices on chips is the controller's: clients only hear where they
// are.
// ---- virtual.c; under the lock
// An error: it cannot be, and ends the client. What cannot be had is answered.
// SLICED tells the client where the slice is, or why it cannot be had.
at_status at_client_slice(peer *p, const at_msg_slice *m);
// Unknown slices are ignored.
at_status at_client_unslice(peer *p, const at_msg_unslice *m);
// Forgets all slices of a client, whose chips bear its load no more.
void at_client_slices_free(peer *p);
// It has a program on these chips, which are there.
void at_client_reaches(peer *p, const uint32_t *chips, uint32_t n);
// Of all its slices.
uint32_t at_client_devices(const peer *p);  // virtual ones
// A host is lost: devices that were on it stand for other chips.
void at_slices_move(at_controller *c);

#endif
