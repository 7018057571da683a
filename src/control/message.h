// What clients, the controller and hosts say to each other. A message is a
// struct of this file and what it says follows it; `kind` and, between
// controller and host, `tag` are the wire's (pod/wire.h). Numbers are
// little-endian as everywhere here, places multiples of eight.
//
//   client -> controller -> hosts   the stream: what happens to arrays and
//                                   programs, in one order on all hosts. The
//                                   tag is the client's number, which the
//                                   controller puts in.
//   client <-> host                 bytes of arrays, questions, callbacks
//   host <-> controller             who takes part
//
// Names of arrays and programs are the client's and start at 1. Nothing that
// comes is trusted: at_message_check looks at sizes and numbers, whoever uses
// them at what they name.
#ifndef ATOLL_CONTROL_MESSAGE_H_
#define ATOLL_CONTROL_MESSAGE_H_

#include "base/span.h"
#include "base/status.h"
#include "profile/spans.h"

enum {
  AT_MESSAGE_CHIPS = 1 << 16,  // of a pod, at most
  AT_MESSAGE_RANK = 64,
  AT_MESSAGE_OUTPUTS = 1 << 20,  // of a launch
  AT_MESSAGE_INLINE = 4096,      // bytes of an array that go with the stream
  AT_MESSAGE_PIECE = 4 << 20,    // of an array between client and host
  AT_MESSAGE_TEXT = 8192,        // of an error
};

// Numbers of the wire; only add.
typedef enum at_message_kind {
  // The stream.
  AT_MSG_CREATE = 1,
  AT_MSG_GROUP,
  AT_MSG_COPY,
  AT_MSG_DROP,
  AT_MSG_LOAD,
  AT_MSG_UNLOAD,
  AT_MSG_LAUNCH,
  AT_MSG_LEFT,  // controller: the client is gone
  AT_MSG_GRAPH,
  AT_MSG_RUN,
  AT_MSG_FORGET,
  // Client to host.
  AT_MSG_IAM = 32,  // the first: which client of the controller it is
  AT_MSG_WRITE,
  AT_MSG_DATA,
  AT_MSG_REFUSE,
  AT_MSG_READ,
  AT_MSG_WATCH,
  AT_MSG_STATS,
  AT_MSG_TOOK,  // what a program sent; its answer
  AT_MSG_GIVE,  // what a program asked for
  // Host to client. The tag is that of the question.
  AT_MSG_BYTES = 64,
  AT_MSG_DONE,
  AT_MSG_FAILED,
  AT_MSG_STATS_ARE,
  AT_MSG_SENT,  // a program has sent something to the client
  AT_MSG_ASKS,  // a program waits for something of the client
  // Controller to client.
  AT_MSG_WELCOME = 96,
  AT_MSG_HOST_LOST,
  AT_MSG_HOST_BACK,
  AT_MSG_HOST_DRAINS,
  // Host to controller and back.
  AT_MSG_HOST = 128,
  AT_MSG_FORM,
  AT_MSG_FORMED,
  AT_MSG_MISSES,
  AT_MSG_BREAK,  // controller: who is forming need not go on
  AT_MSG_REST,   // controller: say when all that the stream has said is done
  AT_MSG_RESTED,
  AT_MSG_LOOK,  // controller: how are you? Beside the stream
  AT_MSG_LOOKS,
  // Of clients, too.
  AT_MSG_RECORD,  // controller: keep spans, and say what there is. Beside the stream
  AT_MSG_RECORDED,
  // Tools and the controller.
  AT_MSG_STATUS = 160,
  AT_MSG_STATUS_IS,
  AT_MSG_STOP,
  AT_MSG_ORDERED,
  AT_MSG_DRAIN,
  AT_MSG_TRACE,
  AT_MSG_SPANS,
  AT_MSG_TRACED,  // controller: those were all
} at_message_kind;

// ---- The stream
typedef struct at_msg_create {
  uint64_t array;
  uint32_t chip;
  uint16_t kind, dtype;  // at_memory_kind, at_dtype
  uint32_t rank;
  uint32_t has_data;  // 1: its bytes follow the dimensions
  // int64_t dims[rank]; data
} at_msg_create;

typedef struct at_msg_shard {
  uint64_t array;
  uint32_t shard, chip;
} at_msg_shard;

typedef struct at_msg_group {
  uint64_t array;
  uint64_t count;
  // at_msg_shard shards[count]
} at_msg_group;

// To a new array of one shard.
typedef struct at_msg_copy {
  at_msg_shard from;
  uint64_t array;
  uint32_t chip, kind;
  uint16_t dtype, zero;
  uint32_t rank;
  // int64_t dims[rank]
} at_msg_copy;

typedef struct at_msg_drop {
  uint64_t count;
  // uint64_t arrays[count]
} at_msg_drop;

typedef struct at_msg_load {
  uint64_t program;
  uint32_t num_chips;
  uint32_t checks;  // at_kernel_checks, of the client
  uint64_t turns;
  // uint32_t chips[num_chips], padded to eight; the executable
} at_msg_load;

typedef struct at_msg_unload {
  uint64_t program;
} at_msg_unload;

enum { AT_MSG_DONATED = 1, AT_MSG_GIVEN = 2 };
typedef struct at_msg_arg {
  uint64_t array;
  uint32_t first;  // device d of the program takes shard first + d
  uint32_t flags;
} at_msg_arg;

typedef struct at_msg_channel {
  int64_t id;
  uint32_t device;
  uint32_t sends, receives;  // 0 or 1
  uint32_t zero;
} at_msg_channel;

typedef struct at_msg_launch {
  uint64_t program, outputs;
  int64_t launch_id;
  uint64_t number;  // 0, or what hosts call the launch to the client: it wants
                    // to hear when it is done, or has channels
  uint32_t num_args, num_outputs, num_channels;
  // Controller: 1 + a host that has been lost since the program was loaded: its
  // results carry that. 0: none has.
  uint32_t refused;
  // at_msg_arg args[num_args]; at_msg_channel channels[num_channels]
} at_msg_launch;

// A traced program: steps, each a LAUNCH, COPY, GROUP or DROP of the stream, in
// which names may stand for the k-th input of a run or for the k-th array that
// it makes; others are arrays that are there.
static const uint64_t AT_MSG_INPUT = 1ull << 63, AT_MSG_MADE = 1ull << 62;
typedef struct at_msg_graph {
  uint64_t graph;
  uint32_t num_inputs, num_made, num_kept, num_steps;
  // uint64_t kept[num_kept], ascending: which of those that it makes stay;
  // steps: at_msg_step, each with its body, padded to eight
} at_msg_graph;
typedef struct at_msg_step {
  uint32_t kind, bytes;
} at_msg_step;
static inline size_t at_message_step_bytes(uint32_t body) {
  return sizeof(at_msg_step) + ((body + 7u) & ~7u);
}

typedef struct at_msg_run {
  uint64_t graph;
  uint64_t first;  // the k-th array that it makes is first + k
  uint32_t num_inputs;
  uint32_t refused;  // as at_msg_launch's
  // uint64_t inputs[num_inputs]
} at_msg_run;

typedef struct at_msg_forget {
  uint64_t graph;
} at_msg_forget;

// Calls `each` for the place of every name of an array in the body of a
// stream's message that has been checked; what it makes comes last. False: it
// said so.
typedef bool (*at_message_name_fn)(void *arg, uint64_t *name, bool makes,
                                   uint32_t count);
bool at_message_names(uint32_t kind, void *body, at_message_name_fn each,
                      void *arg);

// ---- Client and host
enum { AT_CONTROL_SECRET = 32, AT_CONTROL_KEY = 32 };
typedef struct at_msg_iam {
  uint64_t client;
  uint8_t key[AT_CONTROL_KEY];  // that the controller has given the client
} at_msg_iam;

// Bytes [offset, offset + bytes) of `total` of a shard that was created
// without. They come as DATA with the same tag, which nothing else under way
// has; pieces of a shard come in order.
typedef struct at_msg_write {
  at_msg_shard shard;
  uint64_t offset, bytes, total;
} at_msg_write;

typedef struct at_msg_refuse {
  at_msg_shard shard;
  uint64_t code;
  // text
} at_msg_refuse;

// Answered by BYTES, in pieces in order, or FAILED.
typedef struct at_msg_read {
  at_msg_shard shard;
  uint64_t offset, bytes;
} at_msg_read;

// Answered by DONE or FAILED once the shard is defined.
typedef struct at_msg_watch {
  at_msg_shard shard;
} at_msg_watch;

// Of the stream, so that it counts what the client has done before; answered by
// STATS_ARE or FAILED of this tag.
typedef struct at_msg_stats {
  uint64_t tag;
  uint32_t chip, clear;
} at_msg_stats;
typedef struct at_msg_stats_are {
  uint64_t in_use, peak_in_use, limit, num_allocs, largest_alloc, reserved;
} at_msg_stats_are;

// FAILED; the text follows.
typedef struct at_msg_failed {
  uint64_t code;
} at_msg_failed;

// A transfer between a running program and the client, which answers SENT by
// TOOK and ASKS by GIVE, both with the host's tag.
typedef struct at_msg_transfer {
  uint64_t launch;  // at_msg_launch.number
  int64_t channel;
  uint32_t device, done;
  uint64_t bytes, total;  // SENT: bytes follow. ASKS: so many are wanted
} at_msg_transfer;
typedef struct at_msg_took {
  uint64_t code;
  // TOOK: the text of an error. GIVE: of an error, or the bytes
} at_msg_took;

// ---- Who takes part
// The client's first message of the controller.
typedef struct at_msg_welcome {
  uint64_t client, epoch;
  uint8_t key[AT_CONTROL_KEY];
  uint64_t cpu;  // at_cpu_features that all hosts have
  uint32_t num_hosts, num_chips;
  uint64_t target_bytes, addresses_bytes;
  // uint32_t host_of[num_chips], padded to eight; the target, the hosts'
  // addresses by commas
} at_msg_welcome;

typedef struct at_msg_host_lost {
  uint32_t host, zero;
  // why
} at_msg_host_lost;

// In the place of a host that was lost there is another process, at the address
// that follows. Arrays and programs of before are not on it.
typedef struct at_msg_host_back {
  uint32_t host, zero;
  // address
} at_msg_host_back;

// Whether something new may be placed on a host. What is there goes on.
typedef struct at_msg_host_drains {
  uint32_t host, drains;  // 0 or 1
} at_msg_host_drains;

// A daemon that is ready to take part.
typedef struct at_msg_host {
  uint64_t cpu;   // at_cpu_features
  int64_t place;  // that it wants; -1: any
  uint64_t session_bytes, pod_bytes;
  // addresses where clients and other hosts find it
} at_msg_host;

// The hosts, from the first time on or since some of them have been replaced.
typedef struct at_msg_form {
  uint32_t me, count;
  uint64_t epoch;
  uint8_t
      secret[AT_CONTROL_SECRET];  // keys of clients come of it (at_control_key)
  uint64_t target_bytes, addresses_bytes;
  // the target, the hosts' addresses to each other by commas
} at_msg_form;

typedef struct at_msg_formed {
  uint64_t epoch;  // of the FORM
  uint64_t code;   // 0, or why not follows
} at_msg_formed;

// What a client shows to a host, so that it is the one of that number.
void at_control_key(const uint8_t secret[AT_CONTROL_SECRET], uint64_t client,
                    uint8_t out[AT_CONTROL_KEY]);

// A host has lost another one, which the controller may still have.
typedef struct at_msg_misses {
  uint64_t host;
} at_msg_misses;

// ---- Seen by people
// Answered by ORDERED or FAILED.
typedef enum at_drain_how {
  AT_DRAIN_UNDO,
  AT_DRAIN_START,  // nothing new is placed there; it ends when it holds nothing
  AT_DRAIN_FORCE,  // it ends when what it was asked until now is done
} at_drain_how;
// STATUS has this, or no body.
typedef struct at_msg_status {
  uint64_t watch_ms;  // hosts measure each launch for so long
} at_msg_status;
typedef struct at_msg_drain {
  uint32_t host, how;  // at_drain_how
} at_msg_drain;

// What a host does and holds. Names are for people, and end with a zero.
enum {
  AT_LOOK_NAME = 56,
  AT_LOOK_CHIPS = 1024,
  AT_LOOK_TENANTS = 1024,
  AT_LOOK_PROGRAMS = 256,
  AT_LOOK_RUNS = 512,
  AT_LOOK_MOST_MS = 60000,
};
typedef struct at_msg_look {
  uint64_t number;
  uint64_t watch_ms;  // measure each launch for so long
} at_msg_look;
typedef struct at_look_chip {
  uint32_t chip, queued;  // launches, the one that runs included
  uint64_t in_use, peak, limit;
} at_look_chip;
typedef struct at_look_tenant {
  uint64_t client, arrays;
  uint64_t bytes;       // of HBM, padded; memory that arrays share counts once
  uint64_t host_bytes;  // of arrays in the host's memory
} at_look_tenant;
typedef struct at_look_program {
  uint64_t client, program, launches;
  char name[AT_LOOK_NAME];
} at_look_program;
// A launch that was measured, by the host's clock.
typedef struct at_look_run {
  uint64_t client, program, given_ns, start_ns, end_ns;
  char name[AT_LOOK_NAME];
} at_look_run;
typedef struct at_msg_looks {
  uint64_t number, now_ns;
  uint32_t num_chips, num_tenants, num_programs, num_runs;
  // at_look_chip, at_look_tenant, at_look_program, at_look_run
} at_msg_looks;
static inline const at_look_chip *at_look_chips(const at_msg_looks *m) {
  return (const at_look_chip *)(m + 1);
}
static inline const at_look_tenant *at_look_tenants(const at_msg_looks *m) {
  return (const at_look_tenant *)(at_look_chips(m) + m->num_chips);
}
static inline const at_look_program *at_look_programs(const at_msg_looks *m) {
  return (const at_look_program *)(at_look_tenants(m) + m->num_tenants);
}
static inline const at_look_run *at_look_runs(const at_msg_looks *m) {
  return (const at_look_run *)(at_look_programs(m) + m->num_programs);
}

// A trace of the whole pod. Clocks are those of who says it; now_ns comes back as
// asked_ns, so that the controller learns how they differ from its own.
enum { AT_RECORD_SPANS = 2048 };
typedef struct at_msg_record {
  uint64_t number;  // of the trace
  uint64_t now_ns;
  uint32_t on, zero;  // 0: that is all, and nothing is kept from now on
} at_msg_record;
typedef struct at_msg_recorded {
  uint64_t number, asked_ns, heard_ns, said_ns;  // asked_ns 0: nobody has asked
  uint64_t dropped;                              // since the last time
  uint32_t count, more;  // more: the answer goes on in the next message
  uint32_t on, zero;     // of the question
  // at_profile_span spans[count]
} at_msg_recorded;
// Answered by ORDERED or FAILED; then SPANS come, until it is ended: TRACED.
typedef struct at_msg_trace {
  uint32_t on, zero;
} at_msg_trace;
enum { AT_SPANS_NAME = 96 };
typedef struct at_msg_spans {
  uint32_t kind, number;  // at_session_kind and which; 0: the controller
  uint32_t pid, count;
  int64_t offset_ns;  // their clock less the controller's, as known now
  uint64_t error_ns;  // at most, if both ways took as long
  uint64_t dropped;   // before these
  char name[AT_SPANS_NAME];
  // at_profile_span spans[count]
} at_msg_spans;

// An error on its way: its text, as much of it as is sent, borrowed; and the
// error that a code and a text stand for. The code of none is UNKNOWN.
at_bytes at_message_text(at_status why);
at_status at_message_error(uint64_t code, at_bytes text);

// Sizes and numbers fit the kind, so that the accessors below stay inside.
// INVALID_ARGUMENT.
at_status at_message_check(uint32_t kind, at_bytes body);

// What follows a message's struct of `head` bytes, of a body that has been
// checked.
static inline at_bytes at_message_tail(at_bytes body, size_t head) {
  return (at_bytes){body.ptr + head, body.len - head};
}
static inline size_t at_message_chips_bytes(uint64_t n) {
  return (size_t)((n * sizeof(uint32_t) + 7) & ~7ull);
}

#endif
