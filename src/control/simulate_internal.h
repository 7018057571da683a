// What the files of simulated hosts share: how messages come (simulate.c), what
// clients ask (simulate_visit.c), and virtual time (simulate_stream.c). All
// that messages change is changed by one thread, in the order in which they
// came.
#ifndef ATOLL_CONTROL_SIMULATE_INTERNAL_H_
#define ATOLL_CONTROL_SIMULATE_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/thread.h"
#include "control/message.h"
#include "control/outbox.h"
#include "control/simulate.h"
#include "control/table.h"

// A client's session with a host.
// Freed by the thread of virtual time, or at the end.
// Made by the listener when a client connects.
typedef struct sim_visitor {
  struct sim_visitor *next;
  at_simulated *owner;
  // To the client, for answers; NULL until it is open.
  at_wire *wire;
  at_outbox *outbox;
  // By its own clock, as its messages say.
  uint64_t client, clock_ns;  // client 0: it has not said who it is
  uint32_t host, said;        // of its last CLOCK
  bool open, gone;            // under the lock: what its wire has said
} sim_visitor;

// A message to hosts, or of a visitor.
// Taken by at_sim_post: body and job are freed when it has been done.
typedef struct sim_job {
  struct sim_job *next;
  uint32_t kind;  // at_message_kind, or one of the below
  uint64_t client, tag;
  uint64_t clock_ns;  // of the client; 0: not known
  uint64_t spent_ns;  // of the controller
  sim_visitor *visitor;
  uint8_t *body;
  size_t bytes;
  // Of `hosts`: who gets it. 0: of a visitor.
  uint32_t num_hosts;
  uint32_t hosts[];
} sim_job;
enum { kSimGone = 1 << 16, kSimHeard };

// Shards of an array: when each is there.
// Virtual times in nanoseconds; there are no values.
typedef struct sim_array {
  uint32_t count;
  uint64_t bytes;      // of a shard
  uint64_t known_ns;   // when the hosts have done their work for it
  const char *failed;  // NULL, or why it has no values
  uint64_t ready_ns[];
} sim_array;

// ns: what one launch takes on each chip.
// What has to be known of an executable to charge for it.
typedef struct sim_program {
  char name[48];
  uint64_t ns;
  bool meets;           // its devices wait for each other
  const char *refused;  // what of it cannot be simulated
  uint32_t num_chips, num_hosts, num_outputs;
  // [num_outputs], of one device.
  uint64_t *output_bytes;
  // [num_hosts] each.
  uint32_t *hosts;  // ascending
  uint32_t *here;   // chips of each of these
  uint32_t chips[];
} sim_program;

// As it came, for at_message_name_run.
typedef struct sim_graph {
  size_t largest;  // body of a step
  size_t bytes;
  uint64_t body[];
} sim_graph;

// A READ or WATCH that waits for the stream.
// In a list of its client, oldest first.
typedef struct sim_question {
  struct sim_question *next;
  sim_visitor *visitor;
  uint32_t kind;
  uint64_t tag, clock_ns, bytes;
  uint32_t said;  // it is behind so many messages of the client
  // What is asked for.
  at_msg_shard shard;
} sim_question;

// An answer of a host whose session with the client is not open yet.
// Kept until the client has opened its session with the host.
typedef struct sim_unsaid {
  struct sim_unsaid *next;
  uint32_t host, kind;
  uint64_t tag, ns;
  const char *failed;
} sim_unsaid;

// clock_ns: the latest of the client's clock that has been seen. end_ns: when
// it has said its last message. answered_ns: the latest answer. nic_ns: when
// its network card is free.
// A client as the hosts know it.
typedef struct sim_tenant {
  struct sim_tenant *next;
  uint64_t client;
  uint64_t clock_ns, end_ns, answered_ns, nic_ns;
  // By the client's number for each: sim_array, sim_program and sim_graph,
  // owned.
  at_table arrays, programs, graphs;
  uint32_t heard;  // of its messages to the controller
  // In the order in which they came.
  sim_question *waiting;
  // For hosts whose session the client has not opened yet.
  sim_unsaid *unsaid;
} sim_tenant;

// free_ns, nic_ns: when its process and its network card are free. busy_ns: sum
// of its work.
// A host: its end of the controller's wire, and when it is free.
typedef struct sim_host {
  // So that the controller's pointer is the host's.
  at_wire wire;  // first: the controller's end
  at_simulated *owner;
  // Of the controller's end: its calls are made by the thread of virtual time.
  at_wire_sink sink;
  uint32_t number;
  // messages: that it has done, for people.
  uint64_t free_ns, nic_ns, busy_ns, messages;
  uint64_t arrive_ns;  // of the message that is being done
  uint64_t done_ns;    // with the launch that is
} sim_host;

// A program that ran.
typedef struct sim_record {
  char name[48];
  // When it was asked for, began on its chips and was done; all virtual.
  uint64_t client, said_ns, begin_ns, end_ns;
} sim_record;
enum { AT_SIM_RECORDS = 64 };

// Sums in nanoseconds, for people; one copy is the thread's, one is printed.
typedef struct sim_counts {
  uint64_t now_ns;  // the latest that anything has happened
  uint64_t client_ns, controller_ns, hosts_ns, host_most_ns, chips_ns;  // busy
  uint64_t moved_bytes, launches, messages;
} sim_counts;

// A core had nothing to do; used up from its beginning on.
typedef struct sim_gap {
  // Both are virtual.
  uint64_t begin_ns, end_ns;
} sim_gap;
enum { AT_SIM_GAPS = 128 };

// Everything below `tenants` is the thread's of virtual time, but for `shown`.
struct at_simulated {
  // A copy; `target` below is its own.
  at_simulated_options o;
  char *target;
  uint32_t num_chips, chips_per_host, chips_per_slice;
  // Told to clients as each chip's limit.
  uint64_t hbm_bytes;  // of a chip
  // Where clients find the hosts: all of them listen at one address.
  at_listener *listener;
  // Of virtual time: everything under "Virtual time" is its alone.
  at_thread *thread;
  // [number of hosts], owned.
  sim_host *hosts;
  uint8_t secret[AT_CONTROL_SECRET];
  pthread_mutex_t lock;  // the queue, `visitors`, and what is printed
  pthread_cond_t news;
  // Messages in the order in which they came.
  sim_job *first, **end;
  // The thread leaves when the queue is empty.
  bool ends;
  sim_visitor *visitors;
  sim_tenant *tenants;
  sim_counts shown;  // under the lock
  // Virtual time.
  sim_counts counts;
  uint64_t controller_ns;     // when it is free
  uint64_t *core_ns;          // [cores]: when each is
  sim_gap gaps[AT_SIM_GAPS];  // of cores that are shared, the last ones
  uint32_t num_gaps;
  uint64_t *chip_ns;  // when each chip is
  sim_record records[AT_SIM_RECORDS];
  // So far; the last AT_SIM_RECORDS are kept.
  uint64_t num_records;
};

// ---- simulate.c
void at_sim_post(at_simulated *s, sim_job *j);  // takes it

// ---- simulate_visit.c
// Opens the listener of at_simulated_options. Errors: the address cannot be
// bound.
at_status at_sim_listen(at_simulated *s);
// Closes their wires.
void at_sim_visitors_free(at_simulated *s);  // no other thread is left
// A message of a visitor, or its end. The thread of virtual time; so are those
// below, but at_sim_listen.
void at_sim_visit(at_simulated *s, sim_job *j);
// Questions that waited for messages and arrays of a client, where these are
// there now.
void at_sim_answer_waiting(at_simulated *s, sim_tenant *t);
// Of a launch, DONE, or of STATS, STATS_ARE: at that time; failed: NULL, or why
// it is FAILED.
void at_sim_say(at_simulated *s, sim_tenant *t, const sim_unsaid *what);
// What waits for an answer, and answers that wait for a session.
void at_sim_questions_free(sim_tenant *t);

// Time moves only here: each process is busy until its free_ns, each chip until
// its chip_ns, and work begins at the latest of what it needs.
// ---- simulate_stream.c
// NULL: there is none, or no memory.
// With `make` one is made where there is none. Owned by s.
sim_tenant *at_sim_tenant(at_simulated *s, uint64_t client, bool make);
// What the controller has said to hosts: moves virtual time.
void at_sim_stream(at_simulated *s, sim_job *j);
void at_sim_heard(at_simulated *s, uint64_t client);  // a message of it is done
// At the end.
void at_sim_tenants_free(at_simulated *s);
// A process does something that takes ns, from ready_ns on at the earliest and
// after what it did before (*free_ns); when it has.
uint64_t at_sim_work(at_simulated *s, uint64_t *free_ns, uint64_t ready_ns,
                     uint64_t ns);
// What so many bytes take on a process's network card; 0: it has no limit.
uint64_t at_sim_wire_ns(const at_simulated *s, uint64_t bytes);

#endif
