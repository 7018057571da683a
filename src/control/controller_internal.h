// What the files of the controller share: who is there (controller.c), and what
// clients say (route.c).
#ifndef ATOLL_CONTROL_CONTROLLER_INTERNAL_H_
#define ATOLL_CONTROL_CONTROLLER_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/thread.h"
#include "control/controller.h"
#include "control/message.h"
#include "control/outbox.h"
#include "control/session.h"
#include "control/table.h"

typedef struct peer peer;

// Hosts that have something in common. Alike ones are one.
typedef struct host_set {
  struct host_set *next;
  uint64_t arrays;  // that clients have on these
  uint32_t count;
  uint32_t hosts[];  // ascending
} host_set;

// A program: its hosts, and the epoch in which they loaded it.
typedef struct placed {
  host_set *hosts;
  uint64_t epoch;
} placed;

// A traced program: what stays of a run, and where.
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
  DRAIN_RESTS,    // nothing of the stream goes there; it ends what it has
  DRAIN_ENDED     // it has ended, and no other process takes its place
} drain_state;

// A session. All of it under the controller's lock.
struct peer {
  peer *next;
  at_controller *controller;
  uint32_t kind;  // at_session_kind
  at_session_hello hello;
  at_wire *wire;  // NULL: not open yet
  at_outbox *outbox;
  bool gone, closed;
  bool replaced;  // another one has its place among the hosts
  char why[256];  // it is gone, or does not take part; "": it does
  // Of a host:
  uint32_t number;
  uint64_t cpu;
  char *session, *pod;  // addresses; NULL: it has not said who it is
  bool formed;
  bool announced;   // clients know of it
  uint64_t joined;  // the epoch in which it became a host
  // Of a client:
  uint64_t client;
  bool welcomed, left;
  _Atomic uint32_t letters;  // messages of it that hosts have not taken yet
  at_table arrays;           // to host_set
  at_table programs;         // to placed
  at_table graphs;           // to placed_graph
  uint64_t launches, messages, bytes;
  double launch_rate;           // a second, of late
  uint64_t rated_ns, rated_at;  // when it was looked at, and launches then
  // Of a host: its last answer to LOOK; NULL: none.
  at_msg_looks *looks;
  // Of a tool: the number of the LOOK whose answers it waits for; 0: none.
  uint64_t waits_for, asked_ns;
  // For a trace of the pod: its clock less the controller's, and how long the
  // question took of which that is known; the last trace that it has ended.
  bool clock_known;
  int64_t clock_offset_ns;
  uint64_t clock_way_ns, recorded;
};

struct at_controller {
  pthread_mutex_t lock;
  pthread_cond_t news;  // for the keeper
  char *target;
  uint32_t num_hosts, num_chips;
  uint32_t *host_of;  // by chip
  uint8_t secret[AT_CONTROL_SECRET];
  at_listener *listener;
  at_thread *keeper;
  peer *peers, *closing;
  peer **hosts;  // [num_hosts]; NULL: has never been there
  uint32_t formed;  // of them have formed the epoch
  uint64_t epoch, num_clients;
  host_set *sets;
  uint64_t torn_ns;  // when a host said that it misses another one, or could
                     // not take part; 0: none
  bool forming;      // not all hosts have said that they have formed the epoch
  bool up, stopped, closes;
  uint8_t *drains;  // by host: drain_state
  uint64_t looks;   // that have been asked
  struct {
    peer *tool;       // that wants the trace; NULL: none is made
    uint64_t number;  // of traces, so far
    uint64_t asked_ns;
    uint64_t ends_ns;  // until when it waits for the last spans; 0: it goes on
    uint64_t dropped;  // that the tool has not been told of
    _Atomic uint64_t under_way;  // bytes to the tool
  } recording;
};

void at_peer_say(peer *p, uint32_t kind, const at_bytes *parts, uint32_t n);
void at_controller_print(const at_controller *c, at_strbuf *out);

// Nothing goes there any more.
static inline bool at_peer_is_away(const peer *h) {
  return h->gone || h->controller->drains[h->number] >= DRAIN_RESTS;
}

// ---- controller.c; under the lock
// All hosts are there, but for those that are drained.
bool at_controller_is_complete(const at_controller *c);
void at_host_leaves(peer *host);  // it is gone, and clients are told
void at_controller_welcome(at_controller *c);  // clients that wait, if all are there
void at_host_end(peer *host);                  // tells it to end

// ---- drain.c; under the lock
at_status at_drain(at_controller *c, const at_msg_drain *m);
void at_drain_look(at_controller *c);  // now and then: who holds nothing rests
void at_drain_rested(peer *host);
void at_drain_lost(peer *host);
// What a new client has to know.
void at_drain_tell(peer *client);

// ---- status.c; under the lock
// Answers a tool, once all hosts have said how they are, or at_status_look finds
// that they take too long.
void at_status_ask(peer *tool, uint64_t watch_ms);
void at_status_heard(peer *host, at_bytes body);  // LOOKS
void at_status_look(at_controller *c);            // now and then

// ---- recording.c; under the lock
at_status at_recording_order(peer *tool, bool on);
void at_recording_heard(peer *p, at_bytes body);  // RECORDED
void at_recording_look(at_controller *c);         // now and then

// ---- route.c; under the lock
// Sends a client's message to whom it concerns; takes the body. True: its
// credits go back now, else when the hosts have taken it.
bool at_client_says(peer *p, const at_wire_head *head, void *body);
void at_client_leaves(peer *p);
void at_client_tables_free(peer *p);
void at_client_sets_free(at_controller *c);

#endif
