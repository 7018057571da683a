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
//
// Errors: INVALID_ARGUMENT names the kind of a message that is not well formed.
// Memory: accessors point into the body.
// Threads: any; pure functions.
#ifndef ATOLL_CONTROL_MESSAGE_H_
#define ATOLL_CONTROL_MESSAGE_H_

#include "base/span.h"
#include "base/status.h"
#include "profile/spans.h"

enum {
  // Limits that at_message_check enforces, so that hosts and the controller
  // never allocate by a count that a stranger has chosen.
  // Numbers of chips are below it; views of chips count above it.
  AT_MESSAGE_CHIPS = 1 << 16,  // of a pod, at most
  // Dimensions of an array.
  AT_MESSAGE_RANK = 64,
  AT_MESSAGE_OUTPUTS = 1 << 20,  // of a launch
  AT_MESSAGE_INLINE = 4096,      // bytes of an array that go with the stream
  AT_MESSAGE_PIECE = 4 << 20,    // of an array between client and host
  // Longer texts are cut by who sends them.
  AT_MESSAGE_TEXT = 8192,   // of an error
  AT_MESSAGE_KIND = 32,     // of a kind of chip
  AT_MESSAGE_SLICE = 4096,  // devices of a slice
  AT_MESSAGE_ENDS = 64,     // launches that one DONE speaks of
};

// Numbers of the wire; only add.
typedef enum at_message_kind {
  // Grouped by who says it to whom. From somebody who may not say it a kind is
  // ignored, or ends the session.
  // The stream.

  // A new array of one shard, with or without its bytes.
  AT_MSG_CREATE = 1,
  // Shards of several arrays become one array, without a copy.
  AT_MSG_GROUP,
  // A shard to another chip or memory, as an array of its own.
  AT_MSG_COPY,
  // Names are not used any more.
  AT_MSG_DROP,
  // A program, to the hosts of its chips.
  AT_MSG_LOAD,
  // The program's name is not used any more.
  AT_MSG_UNLOAD,
  // A program runs; its results are new arrays.
  AT_MSG_LAUNCH,
  AT_MSG_LEFT,  // controller: the client is gone
  // A traced program is kept, for runs.
  AT_MSG_GRAPH,
  // All steps of a graph, with these inputs.
  AT_MSG_RUN,
  // The graph's name is not used any more.
  AT_MSG_FORGET,
  // An array gets to other chips, cut otherwise.
  AT_MSG_RESHARD,
  // Named objects; the controller answers.

  // Arrays get a name under which other clients find them.
  AT_MSG_KEEP = 20,
  // A named object's arrays become the client's.
  AT_MSG_FETCH,
  // The object goes.
  AT_MSG_DISCARD,
  // What named objects there are.
  AT_MSG_OBJECTS,
  // Of a client, for the controller alone.

  // Virtual devices are wanted, or given back.
  AT_MSG_SLICE = 24,
  AT_MSG_UNSLICE,
  // Checkpoints; the controller answers.

  // Arrays to files, and back.
  AT_MSG_SAVE,
  AT_MSG_RESTORE,
  AT_MSG_PEEK,    // what a checkpoint has
  AT_MSG_COMMIT,  // controller, to one host
  AT_MSG_HEARD,   // to a HOST_DRAINS; before it is what was said until then
  // Client to host.
  AT_MSG_IAM = 32,  // the first: which client of the controller it is
  // Bytes of an array are announced, and come.
  AT_MSG_WRITE,
  AT_MSG_DATA,
  // There will be no bytes: the array fails.
  AT_MSG_REFUSE,
  // Bytes of an array are wanted, or only to hear when it is there.
  AT_MSG_READ,
  AT_MSG_WATCH,
  // Of a chip's memory; it goes with the stream.
  AT_MSG_STATS,
  AT_MSG_TOOK,   // what a program sent; its answer
  AT_MSG_GIVE,   // what a program asked for
  AT_MSG_CLOCK,  // simulated hosts, both ways: when what follows was said
  // Host to client. The tag is that of the question.

  // A piece of what READ has asked for.
  AT_MSG_BYTES = 64,
  AT_MSG_DONE,  // of a launch: and of those whose numbers follow
  // The question's answer is an error.
  AT_MSG_FAILED,
  // The answer to STATS.
  AT_MSG_STATS_ARE,
  AT_MSG_SENT,  // a program has sent something to the client
  AT_MSG_ASKS,  // a program waits for something of the client
  // Controller to client.

  // The pod as it is, once all hosts have formed.
  AT_MSG_WELCOME = 96,
  // A host is gone, and another process takes its place.
  AT_MSG_HOST_LOST,
  AT_MSG_HOST_BACK,
  // Nothing new should be placed on a host, or it may again.
  AT_MSG_HOST_DRAINS,
  AT_MSG_ANSWER = 112,  // its tag is the question's
  // Where a slice of virtual devices is, or why it is not.
  AT_MSG_SLICED = 104,
  AT_MSG_SIMULATED,  // before WELCOME: hosts run nothing (control/simulate.h)
  // Host to controller and back.

  // A process wants to be a host.
  AT_MSG_HOST = 128,
  // The hosts of an epoch, who are to connect to each other.
  AT_MSG_FORM,
  // A host has done that, or says why not.
  AT_MSG_FORMED,
  // A host has lost another one.
  AT_MSG_MISSES,
  AT_MSG_BREAK,  // controller: who is forming need not go on
  AT_MSG_DID,    // host: how many launches of a client have ended
  AT_MSG_REST,   // controller: say when all that the stream has said is done
  AT_MSG_RESTED,
  AT_MSG_LOOK,  // controller: how are you? Beside the stream
  AT_MSG_LOOKS,
  AT_MSG_ACTED = 144,  // host: what the controller has asked of it is done
  // Of clients, too.
  AT_MSG_RECORD,  // controller: keep spans, and say what there is. Beside the
                  // stream
  AT_MSG_RECORDED,
  // Tools and the controller.

  // How the pod is, as JSON.
  AT_MSG_STATUS = 160,
  AT_MSG_STATUS_IS,
  // The pod is to end; from the controller: this session is.
  AT_MSG_STOP,
  // What a tool has ordered is under way.
  AT_MSG_ORDERED,
  // A host is to be taken away, or is wanted back.
  AT_MSG_DRAIN,
  AT_MSG_ERASE = 176,  // a named object; answered by ORDERED or FAILED
  // Spans of the whole pod are wanted, and come.
  AT_MSG_TRACE,
  AT_MSG_SPANS,
  AT_MSG_TRACED,  // controller: those were all
} at_message_kind;

// The bytes of a list of n chips, padded to eight.
static inline size_t at_message_chips_bytes(uint64_t n) {
  return (size_t)((n * sizeof(uint32_t) + 7) & ~7ull);
}

// ---- The stream
// A new array of one shard. Up to AT_MESSAGE_INLINE bytes come with it, others
// by WRITE.
typedef struct at_msg_create {
  uint64_t array;
  uint32_t chip;
  uint16_t kind, dtype;  // at_memory_kind, at_dtype
  uint32_t rank;
  uint32_t has_data;  // 1: its bytes follow the dimensions
  // int64_t dims[rank]; data
} at_msg_create;

// A shard of an array, and the chip where the client thinks it is.
typedef struct at_msg_shard {
  uint64_t array;
  uint32_t shard, chip;
} at_msg_shard;

// A new array whose shard i is shards[i]; its memory is shared with the old one
// until either is donated.
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

// To a new array of `num_to` shards, of boxes of the shards of others. All of
// `from` have one shape, and so have those that it makes.
typedef struct at_msg_reshard {
  uint64_t array;
  uint32_t num_from, num_to, num_boxes;
  uint32_t rank;
  uint16_t dtype, kind;
  uint32_t zero;
  // at_msg_shard from[num_from]; int64_t from_dims[rank], to_dims[rank];
  // uint32_t chips[num_to], padded to eight; boxes, each with
  // int64_t at_from[rank], at_to[rank], dims[rank] behind it
} at_msg_reshard;
typedef struct at_msg_box {
  uint32_t from, to;  // of the lists
  uint32_t like;      // the first box of the same bytes to the same host: the
                      // wire takes these once. Mostly itself
  uint32_t zero;
} at_msg_box;

// What follows an at_msg_reshard, and its box i.
typedef struct at_resharding {
  const at_msg_shard *from;
  at_dims from_dims, to_dims;
  const uint32_t *chips;
  const uint8_t *boxes;
} at_resharding;
// The parts of a RESHARD's body, which has been checked; borrowed from it.
at_resharding at_message_resharding(const at_msg_reshard *m);
static inline const at_msg_box *at_message_box(const at_msg_reshard *m,
                                               const at_resharding *r,
                                               uint32_t i) {
  size_t each = sizeof(at_msg_box) + 3 * m->rank * sizeof(int64_t);
  return (const at_msg_box *)(const void *)(r->boxes + i * each);
}

// The names mean nothing from here on. Unknown ones are ignored.
typedef struct at_msg_drop {
  uint64_t count;
  // uint64_t arrays[count]
} at_msg_drop;

// Only the hosts of these chips hear of it.
typedef struct at_msg_load {
  uint64_t program;
  uint32_t num_chips;
  uint32_t checks;  // at_kernel_checks, of the client
  uint64_t turns;
  // uint32_t chips[num_chips], padded to eight; the executable
} at_msg_load;

// Launches before it in the stream go on.
typedef struct at_msg_unload {
  uint64_t program;
} at_msg_unload;

// Of an argument: the launch may reuse its memory; its name is gone with the
// launch, and nobody drops it.
// Bits of at_msg_arg.flags.
enum { AT_MSG_DONATED = 1, AT_MSG_GIVEN = 2 };
typedef struct at_msg_arg {
  uint64_t array;
  uint32_t first;  // device d of the program takes shard first + d
  uint32_t flags;
} at_msg_arg;

// A host callback of one device: hosts call the client when the program sends
// or receives there.
typedef struct at_msg_channel {
  int64_t id;
  uint32_t device;
  uint32_t sends, receives;  // 0 or 1
  uint32_t zero;
} at_msg_channel;

// Results are named outputs, outputs + 1, ...
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

// A traced program: steps, each a LAUNCH, COPY, GROUP, RESHARD or DROP of the
// stream, in
// which names may stand for the k-th input of a run or for the k-th array that
// it makes; others are arrays that are there.
// Bits of a name inside a graph: which of the two it stands for; the number is
// below them.
static const uint64_t AT_MSG_INPUT = 1ull << 63, AT_MSG_MADE = 1ull << 62;
// Followed by the numbers of what stays, then by the steps.
typedef struct at_msg_graph {
  uint64_t graph;
  uint32_t num_inputs, num_made, num_kept, num_steps;
  // uint64_t kept[num_kept], ascending: which of those that it makes stay;
  // steps: at_msg_step, each with its body, padded to eight
} at_msg_graph;
// kind of a step, and how long its body is.
typedef struct at_msg_step {
  uint32_t kind, bytes;
} at_msg_step;
// How far the next step is: the header and the body, padded to eight.
static inline size_t at_message_step_bytes(uint32_t body) {
  return sizeof(at_msg_step) + ((body + 7u) & ~7u);
}

// One run of a graph.
typedef struct at_msg_run {
  uint64_t graph;
  uint64_t first;  // the k-th array that it makes is first + k
  uint32_t num_inputs;
  uint32_t refused;  // as at_msg_launch's
  // uint64_t inputs[num_inputs]
} at_msg_run;

// Runs that are before it in the stream go on.
typedef struct at_msg_forget {
  uint64_t graph;
} at_msg_forget;

// ---- Named objects
// Arrays under a name that outlive who made them. What a client asks about them
// has a tag of its own, which the controller's ANSWER bears; `object` is the
// controller's number, 0 when the client says it.
enum {
  AT_MESSAGE_NAME = 512,        // bytes of a name or a label
  AT_MESSAGE_OBJECT = 1 << 16,  // arrays of an object
  AT_MESSAGE_ABOUT = 4 << 20,   // bytes that a client wants back with it
};

// Hosts copy the arrays as they are in the stream's order, and say ACTED (the
// tag is the object) once the copies are defined; then the name stands for
// them.
enum {
  // Bits of at_msg_keep.flags.
  AT_MSG_KEEP_MOVES = 1
};  // takes the arrays themselves, with their names
typedef struct at_msg_keep {
  uint64_t tag, object;
  uint64_t bytes;  // of all shards, for people
  uint32_t num_arrays, flags;
  uint32_t name_bytes, label_bytes, about_bytes, zero;
  // uint64_t arrays[num_arrays]; name, label, about
} at_msg_keep;

// FETCH: the object's arrays become `first`, `first + 1`, ...; ANSWER brings
// at_msg_fetched and `about`. DISCARD: nobody finds it any more. OBJECTS: JSON.
// Bits of at_msg_named.flags.
enum { AT_MSG_FETCH_TAKES = 1 };  // and the object is gone
typedef struct at_msg_named {
  uint64_t tag, object, first;
  uint32_t flags, name_bytes;
  // name; hosts need none
} at_msg_named;
// `about` follows it in the ANSWER.
// How many arrays the object has.
typedef struct at_msg_fetched {
  uint64_t num_arrays;
} at_msg_fetched;

// ---- Checkpoints
// Hosts write and read the shards of arrays themselves. A message says how each
// array is cut, not where each of its shards is: it is as long for a thousand
// shards as for one.
enum { AT_MESSAGE_PATH = 3072, AT_MESSAGE_AXES = 64 };

// The devices of an array form a mesh, the last axis changing fastest; shard i
// is on the i-th of them. Axis `axis` cuts dimension `dim`; of several, the
// first is the major one. Axes that are not used have copies.
// A use of an axis of the mesh.
typedef struct at_msg_use {
  uint32_t dim, axis;
} at_msg_use;
typedef struct at_msg_chips {  // first, first + step, ...
  uint32_t first, count;
  int32_t step;
} at_msg_chips;
// How one array of a checkpoint is cut.
typedef struct at_msg_cut {
  uint64_t array;  // SAVE; RESTORE makes at_msg_files.first + its number
  uint16_t kind, dtype;
  uint32_t rank, num_axes, num_used;
  uint32_t num_runs;  // of chips: RESTORE alone
  uint32_t name_bytes;
  // int64_t dims[rank]; uint32_t axes[num_axes], their sizes;
  // at_msg_use used[num_used]; at_msg_chips chips[num_runs]; name: where its
  // files lie below the folder; padded to eight
} at_msg_cut;
// A SAVE, RESTORE or PEEK.
typedef struct at_msg_files {
  uint64_t tag, operation, first;
  uint32_t num_arrays, path_bytes, folder_bytes, about_bytes;
  // path, absolute; folder, below it, where arrays are saved, or nothing;
  // about, which comes back with PEEK; padded to eight; at_msg_cut
  // cuts[num_arrays]
} at_msg_files;

// What a host has saved: its ACTED brings one for each tile, and sums of each
// AT_MESSAGE_BLOCK bytes of it.
enum { AT_MESSAGE_BLOCK = 4 << 20 };
typedef struct at_msg_saved {
  uint32_t array, num_sums;
  uint64_t tile;  // row by row
  // uint64_t sums[num_sums]
} at_msg_saved;

// All hosts have saved theirs: one writes the manifest. abandon: one has not.
typedef struct at_msg_commit {
  uint64_t operation, save_bytes, saved_bytes;
  uint32_t abandon, zero;
  // the SAVE; what hosts have saved
} at_msg_commit;

// Relative, without `.`, `..` and control characters; of 1 to AT_MESSAGE_NAME
// bytes.
// A name that may become a path below a folder.
bool at_message_file_is_good(at_bytes name);

// ANSWER and ACTED: the text of an error, or what was asked for.
typedef struct at_msg_answer {
  uint64_t code;
} at_msg_answer;

// 1 to AT_MESSAGE_NAME bytes without control characters.
bool at_message_name_is_good(at_bytes name);

// Calls `each` for the place of every name of an array in the body of a
// stream's message that has been checked; what it makes comes last. False: it
// said so.
typedef bool (*at_message_name_fn)(void *arg, uint64_t *name, bool makes,
                                   uint32_t count);
// body: writable, as `each` may change the names in place.
bool at_message_names(uint32_t kind, void *body, at_message_name_fn each,
                      void *arg);
// Names of a graph's step become those of a run.
// body is changed in place; inputs of m are as many as the graph says.
void at_message_name_run(uint32_t kind, void *body, const at_msg_run *m);

// ---- Slices of virtual devices
// Chips of messages are numbers of at_runtime_view: which chip of the pod, and
// which view of it. A client's virtual devices on one chip have a view each.
// The chip of the pod, without its view.
static inline uint32_t at_message_chip(uint32_t number) {
  return number % AT_MESSAGE_CHIPS;
}
// How a chip's load is counted when a slice is placed: by devices alone, or
// also by how much their clients launch.
// at_msg_slice.policy.
enum { AT_SLICE_SPREAD, AT_SLICE_FAIR, AT_SLICE_POLICIES };

// What a new slice is to be; answered by SLICED.
typedef struct at_msg_slice {
  uint64_t slice;  // not 0; the client gives it out
  // A chip whose free memory does not suffice is not taken.
  uint64_t memory;  // bytes of HBM that each device keeps for itself
  uint32_t count;
  uint32_t policy;
  uint32_t shape[3];           // 0: any; else it has `count` devices
  int32_t island, host;        // -1: any
  char kind[AT_MESSAGE_KIND];  // "": any; ends with 0
  uint32_t zero;
} at_msg_slice;

// The slice's chips are free for others.
typedef struct at_msg_unslice {
  uint64_t slice;
} at_msg_unslice;

// Where a slice is: as the answer, and again when hosts are lost. code: not 0:
// there is no such slice, and why follows.
typedef struct at_msg_sliced {
  uint64_t slice;
  // count is 0 where code is not.
  uint32_t count, code;
  // uint32_t chips[count], padded to eight
} at_msg_sliced;

// ---- Client and host
// Bytes of the epoch's secret, which the controller shares with hosts, and of
// the keys that come of it.
enum { AT_CONTROL_SECRET = 32, AT_CONTROL_KEY = 32 };
// Which client a session with a host is of. Hosts check the key.
typedef struct at_msg_iam {
  uint64_t client;
  // Arrays with smaller names were another process's, which was lost: the
  // stream may still make them here, but no bytes of them come.
  uint64_t since;
  uint8_t key[AT_CONTROL_KEY];  // that the controller has given the client
} at_msg_iam;

// Bytes [offset, offset + bytes) of `total` of a shard that was created
// without. They come as DATA with the same tag, which nothing else under way
// has; pieces of a shard come in order.
typedef struct at_msg_write {
  at_msg_shard shard;
  uint64_t offset, bytes, total;
} at_msg_write;

// The array gets this error instead of its bytes, or of the rest of them.
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
// As at_memory_stats, in bytes but for num_allocs.
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
// The client's part of a transfer: OK, or an error.
typedef struct at_msg_took {
  uint64_t code;
  // TOOK: the text of an error. GIVE: of an error, or the bytes
} at_msg_took;

// To and from simulated hosts: the client's virtual time, and by whom it is
// meant to be read.
typedef struct at_msg_clock {
  uint64_t ns;
  uint32_t host;
  uint32_t said;  // client: messages to the controller before, modulo 2^32
} at_msg_clock;

// ---- Who takes part
// The client puts its virtual time into the tags of what it says to the
// controller.
typedef struct at_msg_simulated {
  uint64_t client_ns;  // that a message takes of its time; 0: as measured
  uint64_t meet_ns;    // of each chip for a collective over several hosts
  double bandwidth;    // of the target's links and networks, to what it says
  uint32_t on_cpus;    // 1: chips are this machine's; 0: they are the target's
  uint32_t zero;
} at_msg_simulated;

// The client's first message of the controller.
typedef struct at_msg_welcome {
  uint64_t client, epoch;
  uint8_t key[AT_CONTROL_KEY];
  uint64_t cpu;                   // at_cpu_features that all hosts have
  uint32_t num_hosts, num_chips;  // that there may be
  uint32_t num_listed, zero;      // chips whose hosts have come, the first ones
  uint64_t target_bytes, addresses_bytes;
  // uint32_t host_of[num_chips], padded to eight; the target, the hosts'
  // addresses by commas; "": it has not come yet
} at_msg_welcome;

// Arrays that had a shard there are lost with it.
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
  uint64_t number;        // not 0: the host is about to rest; HEARD answers
} at_msg_host_drains;

typedef struct at_msg_heard {
  uint64_t number;
} at_msg_heard;

// A daemon that is ready to take part.
typedef struct at_msg_host {
  uint64_t cpu;   // at_cpu_features
  int64_t place;  // that it wants; -1: any
  // Lengths of the two addresses that follow.
  uint64_t session_bytes, pod_bytes;
  // addresses where clients and other hosts find it
} at_msg_host;

// The hosts, from the first time on or since some of them have been replaced.
typedef struct at_msg_form {
  uint32_t me, count;
  uint32_t places, zero;  // hosts that there may be, who share the chips
  uint64_t epoch;
  uint8_t
      secret[AT_CONTROL_SECRET];  // keys of clients come of it (at_control_key)
  uint64_t target_bytes, addresses_bytes;
  // the target, the hosts' addresses to each other by commas
} at_msg_form;

// What a host says of an epoch; answers to older ones are ignored.
typedef struct at_msg_formed {
  uint64_t epoch;  // of the FORM
  uint64_t code;   // 0, or why not follows
} at_msg_formed;

// What a client shows to a host, so that it is the one of that number.
// Both sides compute it: the controller for WELCOME, hosts to check an IAM.
void at_control_key(const uint8_t secret[AT_CONTROL_SECRET], uint64_t client,
                    uint8_t out[AT_CONTROL_KEY]);

// A host has lost another one, which the controller may still have.
typedef struct at_msg_misses {
  uint64_t host;
} at_msg_misses;

// So many more launches of the stream have ended here. Not said for each.
// The controller counts launches under way by it (AT_FLIGHT_LAUNCHES).
typedef struct at_msg_did {
  uint64_t client, launches;
} at_msg_did;

// ---- Seen by people
// Answered by ORDERED or FAILED.
typedef enum at_drain_how {
  AT_DRAIN_UNDO,
  AT_DRAIN_START,  // nothing new is placed there; it ends when it holds nothing
  AT_DRAIN_FORCE,  // it ends when what it was asked until now is done
} at_drain_how;
// STATUS has this, or no body.
// Without it hosts measure only some launches of each program.
typedef struct at_msg_status {
  uint64_t watch_ms;  // hosts measure each launch for so long
} at_msg_status;
// A host by its number, and what is wanted of it.
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
// Answered by LOOKS of the same number.
typedef struct at_msg_look {
  uint64_t number;
  uint64_t watch_ms;  // measure each launch for so long
} at_msg_look;
// A chip of the host: its queue and its memory, in bytes.
typedef struct at_look_chip {
  uint32_t chip, queued;  // launches, the one that runs included
  uint64_t in_use, peak, limit;
} at_look_chip;
// What one client has on the host.
typedef struct at_look_tenant {
  uint64_t client, arrays;
  uint64_t bytes;       // of HBM, padded; memory that arrays share counts once
  uint64_t host_bytes;  // of arrays in the host's memory
} at_look_tenant;
// launches: that this host has seen of it.
// A program that a client has loaded on the host.
typedef struct at_look_program {
  uint64_t client, program, launches;
  char name[AT_LOOK_NAME];
} at_look_program;
// A launch that was measured, by the host's clock.
typedef struct at_look_run {
  uint64_t client, program, given_ns, start_ns, end_ns;
  char name[AT_LOOK_NAME];
} at_look_run;
// A host's answer to LOOK. The lists follow each other without gaps; accessors
// below.
typedef struct at_msg_looks {
  uint64_t number, now_ns;
  uint32_t num_chips, num_tenants, num_programs, num_runs;
  // at_look_chip, at_look_tenant, at_look_program, at_look_run
} at_msg_looks;
// The lists of a LOOKS that has been checked; borrowed from it.
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

// A trace of the whole pod. Clocks are those of who says it; now_ns comes back
// as asked_ns, so that the controller learns how they differ from its own.
// Spans of one message at most.
enum { AT_RECORD_SPANS = 2048 };
typedef struct at_msg_record {
  uint64_t number;  // of the trace
  uint64_t now_ns;
  uint32_t on, zero;  // 0: that is all, and nothing is kept from now on
} at_msg_record;
// Times by two clocks, from which their difference is known to within half of
// the way there and back.
typedef struct at_msg_recorded {
  uint64_t number, asked_ns, heard_ns, said_ns;  // asked_ns 0: nobody has asked
  uint64_t dropped;                              // since the last time
  uint32_t count, more;  // more: the answer goes on in the next message
  uint32_t on, zero;     // of the question
  // at_profile_span spans[count]
} at_msg_recorded;
// Answered by ORDERED or FAILED; then SPANS come, until it is ended: TRACED.
// A tool begins (on) or ends the pod's one trace.
typedef struct at_msg_trace {
  uint32_t on, zero;
} at_msg_trace;
// Bytes of a process's name, with the zero at its end.
enum { AT_SPANS_NAME = 96 };
// Spans of one process, as the controller passes them on to the tool.
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
// Valid as long as why.
at_bytes at_message_text(at_status why);
// A new error with that text (borrowed; cut as a message's text is). Codes that
// there are not become UNKNOWN.
at_status at_message_error(uint64_t code, at_bytes text);

// Sizes and numbers fit the kind, so that the accessors below stay inside.
// INVALID_ARGUMENT.
// Kinds that do not exist are refused as well. What arrays, chips and programs
// a message names is not checked here. body: aligned to eight.
at_status at_message_check(uint32_t kind, at_bytes body);

// What follows a message's struct of `head` bytes, of a body that has been
// checked.
static inline at_bytes at_message_tail(at_bytes body, size_t head) {
  return (at_bytes){body.ptr + head, body.len - head};
}

#endif
