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
#include "device/device.h"

typedef struct peer peer;
typedef struct slice slice;  // virtual.c

// Hosts that have something in common. Alike ones are one.
typedef struct host_set {
  struct host_set *next;
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
  slice *slices;
  bool *reached;  // by chip of the pod: it has programs there; NULL: nowhere
  // Launches in a second, measured when somebody asks; 0: not yet.
  double use;
  uint64_t use_ns, use_launches;
};

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
  at_thread *keeper;
  peer *peers, *closing;
  peer **hosts;     // [max_hosts]; NULL: has never been there
  uint32_t formed;  // of them have formed the epoch
  uint64_t epoch, num_clients;
  host_set *sets;
  uint64_t torn_ns;  // when a host said that it misses another one, or could
                     // not take part; 0: none
  bool forming;      // not all hosts have said that they have formed the epoch
  bool up, stopped, closes;
};

void at_peer_say(peer *p, uint32_t kind, const at_bytes *parts, uint32_t n);
void at_controller_print(const at_controller *c, at_strbuf *out);

// ---- route.c; under the lock
// Sends a client's message to whom it concerns; takes the body. True: its
// credits go back now, else when the hosts have taken it.
bool at_client_says(peer *p, const at_wire_head *head, void *body);
void at_client_leaves(peer *p);
void at_client_tables_free(peer *p);
void at_client_sets_free(at_controller *c);

// ---- virtual.c; under the lock
// An error: it cannot be, and ends the client. What cannot be had is answered.
at_status at_client_slice(peer *p, const at_msg_slice *m);
at_status at_client_unslice(peer *p, const at_msg_unslice *m);
void at_client_slices_free(peer *p);
// It has a program on these chips, which are there.
void at_client_reaches(peer *p, const uint32_t *chips, uint32_t n);
uint32_t at_client_devices(const peer *p);  // virtual ones
// A host is lost: devices that were on it stand for other chips.
void at_slices_move(at_controller *c);

#endif
