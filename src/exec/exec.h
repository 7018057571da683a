// Runs executables on virtual devices of this process: buffers, launches,
// events, host callbacks. Everything is asynchronous: calls enqueue and return;
// a buffer may be used before it is defined, and an error travels with it.
// Thread-safe unless a line says otherwise. Objects are reference-counted where
// `retain` exists.
//
// Errors: FAILED_PRECONDITION in a forked child, RESOURCE_EXHAUSTED for HBM and
// host memory, INVALID_ARGUMENT for what does not fit; a line says more.
// Results are written on success only.
#ifndef ATOLL_EXEC_EXEC_H_
#define ATOLL_EXEC_EXEC_H_

#include <stdatomic.h>
#include <stdlib.h>

#include "abi/executable.h"
#include "base/parallel.h"
#include "base/span.h"
#include "base/status.h"
#include "base/strbuf.h"

// ---- Runtime and devices
// All devices of a target, and what runs them. One process may have several.
typedef struct at_runtime at_runtime;
typedef struct at_chip at_chip;  // a virtual device, owned by the runtime

// The processes of a job, which share the chips of the target: each has equally
// many, in the order of their numbers. A transport (pod/hosts.h) serves it.
//
// A tag tells an exchange from all others. It is equal on all hosts that take
// part in it, and used once. step: the op of the program; turn: of a loop
// around it; round: of one step.
typedef struct at_hosts_tag {
  uint64_t group;  // the processes that take part; alike on all of them
  // Which program: a hash of what it means and exchanges.
  uint64_t program;
  uint64_t launch;  // ordinal of the launch among those of the program on them
  uint32_t step, turn, round, pad;
} at_hosts_tag;
// Exchanges of one launch, whatever their steps?
static inline bool at_hosts_same_launch(const at_hosts_tag *a,
                                        const at_hosts_tag *b) {
  return a->launch == b->launch && a->program == b->program &&
         a->group == b->group;
}
// A place for a piece of a message that comes.
typedef struct at_hosts_into {
  uint8_t *ptr;
  size_t len;
} at_hosts_into;
// A message to a host, and the one from it with the same tag.
typedef struct at_hosts_mail {
  uint32_t host, num_out, num_in;
  // num_out of them.
  const at_bytes *out;  // pieces, one behind the other
  // Where the pieces of the one that comes go: its length is theirs. NULL: it
  // becomes a block of at_hosts_block, the caller's to free.
  const at_hosts_into *in;
  at_bytes block;
} at_hosts_mail;
// Memory that processes of one machine map from each other: each writes its own
// and reads the others'. What lies there may change at any time and say
// anything: copy a number, then check it, then use it.
//
// A channel is where the launches of one set of devices meet, one collective at
// a time: `begin`, then phases, each `say` and `hear`, `finish`, and `end`,
// also after a failure. Hosts that meet name each other; what a host says is
// for those that are in a collective of the same tag. Calls of one channel come
// one at a time, calls of several at once, from any thread or fiber.
typedef struct at_hosts_channel at_hosts_channel;
typedef enum at_hosts_phase {
  AT_HOSTS_READY = 1,  // operands may be read
  AT_HOSTS_SUMMED,     // so may parts of sums
  AT_HOSTS_DONE        // nothing of the others is read any more
} at_hosts_phase;
// Places for what others read: one is written while the others still read the
// last one.
enum { AT_HOSTS_SLOTS = 2 };
typedef struct at_hosts_share {
  void *arg;
  // This host's memory; [first, bytes) of it are the caller's to use. All of it
  // is zero in the beginning, and takes no pages until it is written.
  uint8_t *own;
  uint64_t first, bytes;  // all of it is zero, and takes no memory yet
  // By host: its memory as it is mapped here. Empty: it does not share with
  // this one.
  const at_bytes *maps;
  // Have the hosts of this machine fewer than two cores each? Each has a thread
  // that launches, and one that runs.
  bool crowded;
  // Does each of them share with each other? All of them get the same answer.
  bool (*among)(void *arg, const uint32_t *hosts, uint32_t num_hosts);
  // name: alike on all hosts of the channel, and of no other. Lives as long as
  // the job. RESOURCE_EXHAUSTED: too many.
  at_status (*open)(void *arg, uint64_t name, at_hosts_channel **out);
  // *slot: which of AT_HOSTS_SLOTS places for what the others will read is free
  // now: on all hosts the last collective but one is DONE. Fails as `hear`.
  at_status (*begin)(at_hosts_channel *c, const at_hosts_tag *tag,
                     uint32_t *slot);
  // Tells hosts, alike in all phases, that it is READY or has SUMMED. where:
  // theirs to interpret; what lies there stays until they are DONE.
  void (*say)(at_hosts_channel *c, at_hosts_phase phase, uint64_t where,
              const uint32_t *hosts, uint32_t num_hosts);
  // Waits until all of them are that far; where: of each. Fails like an
  // exchange: DATA_LOSS, ABORTED, DEADLINE_EXCEEDED.
  at_status (*hear)(at_hosts_channel *c, at_hosts_phase phase,
                    const uint32_t *hosts, uint32_t num_hosts, uint64_t *where);
  // DONE; then, if `waits`, until all of them are. Fails as `hear`, and where
  // one of them has failed, so that what was read of it may be wrong.
  at_status (*finish)(at_hosts_channel *c, const uint32_t *hosts,
                      uint32_t num_hosts, bool waits);
  // The collective is over. Not DONE: it has failed here.
  void (*end)(at_hosts_channel *c);
} at_hosts_share;

// A line: one-way messages between the hosts that run a step at the same time.
// Those of one host come in the order in which it sent them. What comes for a
// step that has not begun here waits, and keeps its credits.
typedef struct at_hosts_line at_hosts_line;
// One call at a time, from any thread; they must not wait, nor use the line but
// for `waits`.
typedef struct at_hosts_line_calls {
  void *arg;
  void (*heard)(void *arg, at_bytes message);  // borrowed for the call
  void (*left)(void *arg);  // a host has sent its last message
  // At most once, and the last call but `print`: the launch has failed, or a
  // host is lost that had not left. Consumes why.
  void (*failed)(void *arg, at_status why);
  void (*print)(void *arg, at_strbuf *out);  // what this host waits for
} at_hosts_line_calls;
typedef struct at_hosts_lines {
  void *arg;
  // hosts: the others that run the step. `calls` may come before it returns.
  at_status (*open)(void *arg, const at_hosts_tag *tag, const uint32_t *hosts,
                    uint32_t num_hosts, const at_hosts_line_calls *calls,
                    at_hosts_line **out);
  // Borrowed until it returns; at most AT_HOSTS_LINE_PARTS. Waits for credits.
  // last: nothing more is sent to this host. Fails like an exchange.
  at_status (*send)(at_hosts_line *l, uint32_t host, const at_bytes *parts,
                    uint32_t num_parts, bool last);
  // This host can go on only with what others send, and sends nothing itself
  // until then. That is said after a while, and may end (`failed`): with
  // DEADLINE_EXCEEDED, or FAILED_PRECONDITION where all hosts wait for each
  // other. A host that has sent its last may wait, too. Never waits.
  void (*waits)(at_hosts_line *l, bool on);
  void (*close)(void *arg, at_hosts_line *l);  // no call after it
} at_hosts_lines;
enum { AT_HOSTS_LINE_PARTS = 3 };

// How long somebody has waited, and whether that was said.
typedef struct at_hosts_patience {
  // at_clock_ns of when the wait began.
  uint64_t since_ns;
  bool told;
} at_hosts_patience;

typedef struct at_hosts {
  uint32_t count, me;
  void *arg;
  // Sends to all of `mails` and waits for all of theirs; hosts differ, none is
  // `me`, and each has this one among its own. What is sent is not read any
  // more when the call returns, and nothing is written any more either, also on
  // failure: a host is gone, has failed in this launch or runs another program.
  at_status (*exchange)(void *arg, const at_hosts_tag *tag,
                        at_hosts_mail *mails, uint32_t num_mails);
  // A launch has failed here: what exchanges in it fails, here with `why`,
  // which is borrowed, and on `hosts`, among which this one may be, with
  // DATA_LOSS where that is why, else with ABORTED.
  void (*fail)(void *arg, const at_hosts_tag *tag, const uint32_t *hosts,
               uint32_t num_hosts, at_status why);
  // Why nothing of a host will come any more in a launch, as an exchange would
  // say; OK: it may. Never waits. patience: of who waits for it, or NULL. NULL
  // where `share` is.
  at_status (*check)(void *arg, const at_hosts_tag *tag, uint32_t host,
                     at_hosts_patience *patience);
  // The first failure of a launch that one of `hosts` has told of, with its
  // code and words; OK: none has. Never waits. NULL where every process has a
  // user of its own, who is told which process failed.
  at_status (*cause)(void *arg, const at_hosts_tag *tag, const uint32_t *hosts,
                     uint32_t num_hosts);
  // For a thread that waits a moment for what another host's message decides,
  // and holds no lock: hears what has come by now. True: something has. Who
  // gives up calls `look_end`. Both are NULL where messages need no help.
  bool (*look)(void *arg);
  void (*look_end)(void *arg);
  // Takes back a block that came (at_hosts_mail.block) for later messages.
  // NULL: free() does.
  void (*give_block)(void *arg, void *block);
  const at_hosts_share *share;  // NULL: everything travels by messages
  const at_hosts_lines *lines;  // NULL: kernels cannot talk to other hosts
} at_hosts;
void *at_hosts_block(size_t bytes);  // 64-byte aligned; free(); NULL: no memory
// Instead of free(); NULL is allowed.
static inline void at_hosts_give_block(const at_hosts *h, void *block) {
  if (h->give_block)
    h->give_block(h->arg, block);
  else
    free(block);
}

typedef struct at_runtime_options {
  const char *target;  // ATOLL_TARGET's grammar: "v6e", "v5p:2x2x4",
                       // "2*v5e:2x2"; NULL: default
  // Threads of the pool; 0: all cores of this process.
  uint32_t threads;
  const at_hosts *hosts;  // borrowed; NULL: this process has all chips
  // How many processes may have chips in the end: each has its share from the
  // beginning, also of hosts that come later (at_runtime_rehost). 0: `hosts`.
  uint32_t places;
  const struct at_proxy *proxy;  // borrowed; other processes have all (proxy.h)
  // With a proxy: chips behind those of the target (at_topology_spare). Where
  // they are is the proxy's to say.
  uint32_t spares;
} at_runtime_options;
// Devices of the target, each with a queue, and the threads that serve them;
// `o` may be NULL. The caller destroys it.
// INVALID_ARGUMENT: the target, or its devices do not divide over the hosts;
// FAILED_PRECONDITION: the CPU lacks the baseline (at_cpu_check);
// RESOURCE_EXHAUSTED. On failure nothing is left, and *out is not written.
at_status at_runtime_create(const at_runtime_options *o, at_runtime **out);
void at_runtime_destroy(at_runtime *rt);  // waits for all work
// Launches over several hosts, and copies between them, that have not ended.
uint32_t at_runtime_far_work(const at_runtime *rt);
// From now on these are the hosts; as many or more, and this one has the same
// number.
// There is no far work, and no call that begins some. Programs over several
// hosts that were loaded before are not launched any more. The hosts of before
// (and the memory that they share) stay until the runtime is gone.
at_status at_runtime_rehost(at_runtime *rt, const at_hosts *hosts);
// Does anything run? What waits for somebody outside does not. In a forked
// child: no.
bool at_runtime_busy(at_runtime *rt);
// Devices of the target and spares, those of other hosts included. Constant.
uint32_t at_runtime_num_chips(const at_runtime *rt);
// Device i, owned by the runtime; NULL: there is none.
at_chip *at_runtime_chip(const at_runtime *rt, uint32_t i);
// Further faces of a chip: each has a queue of its own, so parts of one launch
// on the same chip all go on, and their arrays share the chip's HBM. A number
// is that of the chip, and from AT_CHIP_VIEW bits on which view of it; view 0
// is the chip. Views are made when they are first asked for, and stay. NULL: no
// such chip or view, or no memory.
enum { AT_CHIP_VIEW = 16, AT_CHIP_VIEWS = 256 };
// Thread-safe; owned by the runtime.
at_chip *at_runtime_view(at_runtime *rt, uint32_t number);
// Those of this process: [first, first + count). Others are only described.
uint32_t at_runtime_own_chips(const at_runtime *rt, uint32_t *first);
// The threads that share the work of kernels; owned by the runtime.
at_pool *at_runtime_pool(const at_runtime *rt);

typedef struct at_chip_info {
  uint32_t id, slice_index, core_on_chip, num_cores;
  // The process that has it, by its number in the job.
  uint32_t host;
  int64_t coords[3];
  const char *kind;    // device_kind: "TPU v6 lite"
  const char *target;  // "v6e"
  uint64_t hbm_bytes, vmem_bytes, smem_bytes;
} at_chip_info;
// What a device is; owned by the runtime, constant.
const at_chip_info *at_chip_info_of(const at_chip *c);

// As PJRT_Device_MemoryStats, in bytes but for num_allocs. reserved: what the
// target's system software takes.
typedef struct at_memory_stats {
  uint64_t in_use, peak_in_use, limit, num_allocs, largest_alloc, reserved;
} at_memory_stats;
// Bytes of HBM as the target would use them (padded), limit included. Of
// another process's device: asked there, and if that fails what is known here.
// Not a snapshot together with other calls.
at_memory_stats at_chip_memory_stats(const at_chip *c);
// Launches in its queue, the one that runs included.
uint32_t at_chip_queued(const at_chip *c);
void at_chip_memory_stats_clear(at_chip *c);  // peak = in use; counts = 0

// ---- Buffers
typedef enum at_memory_kind {
  AT_MEM_DEVICE,
  AT_MEM_PINNED_HOST,
  AT_MEM_UNPINNED_HOST,
  AT_MEM_KINDS
} at_memory_kind;
// The kind as JAX spells it: "device", "pinned_host", "unpinned_host"; "?" for
// no kind. Static.
const char *at_memory_kind_name(at_memory_kind k);

typedef struct at_buffer at_buffer;  // dense row-major array on a chip
typedef enum at_host_semantics {     // as PJRT_HostBufferSemantics
  AT_HOST_IMMUTABLE_ONLY_DURING_CALL,
  AT_HOST_IMMUTABLE_UNTIL_TRANSFER,
  AT_HOST_IMMUTABLE_ZERO_COPY,  // copied at once: see at_buffer_from_host
  AT_HOST_MUTABLE_ZERO_COPY
} at_host_semantics;
// An array in the caller's memory. byte_strides: by dimension, may be negative
// or 0.
typedef struct at_host_array {
  at_dtype dtype;
  at_dims dims;
  const int64_t *byte_strides;  // NULL: dense row-major
  const void *data;
} at_host_array;
// *out_host_done fires when `src->data` is no longer read (one reference).
// Sub-byte types: one byte per element on both sides. RESOURCE_EXHAUSTED over
// HBM.
at_status at_buffer_from_host(at_chip *c, at_memory_kind k,
                              const at_host_array *src, at_host_semantics s,
                              at_buffer **out, at_event **out_host_done);
// On a device the bytes of types under 8 bits are extended (abi/dtype.def);
// hosts leave anything in the high bits. Brings `bytes` bytes of type t into
// that form.
void at_settle_bits(at_dtype t, void *data, size_t bytes);
// A bitcast: elements of one type as elements of another of as many bits in
// all. Where it is a copy, the bytes stay what they are.
bool at_recut_is_copy(at_dtype from, at_dtype to);
// May from_bytes bytes of one type be taken as to_bytes of the other?
// INVALID_ARGUMENT: the bits in all differ, or one type's width does not divide
// the other's.
at_status at_recut_check(at_dtype from, size_t from_bytes, at_dtype to,
                         size_t to_bytes);
// Does it, for types that at_recut_check allows and at_recut_is_copy denies.
// src and dst do not overlap; to_bytes is dst's size. The result's high bits
// are settled.
void at_recut(at_dtype from, const void *src, at_dtype to, void *dst,
              size_t to_bytes);
// Not defined yet: fill with at_buffer_data_mut, then at_buffer_define.
at_status at_buffer_create(at_chip *c, at_memory_kind k, at_dtype t,
                           at_dims dims, at_buffer **out);
void at_buffer_define(at_buffer *b, at_status s);  // consumes s
// Without memory; whoever uses it gets `why`, which is borrowed.
at_status at_buffer_failed(at_chip *c, at_memory_kind k, at_dtype t,
                           at_dims dims, at_status why, at_buffer **out);
// A view of foreign memory; on_release(arg) when the last user is gone.
at_status at_buffer_view(at_chip *c, at_memory_kind k, at_dtype t, at_dims dims,
                         void *data, void (*on_release)(void *), void *arg,
                         at_buffer **out);
// One reference more, for the caller to release; returns b. Thread-safe, as
// everything of buffers.
at_buffer *at_buffer_retain(at_buffer *b);
// Drops a reference; NULL is allowed. With the last one the memory goes, unless
// launches or external references still hold it: then with the last of these.
void at_buffer_release(at_buffer *b);
// Element type. Constant, also of a deleted buffer.
at_dtype at_buffer_dtype(const at_buffer *b);
// Major to minor; borrowed from the buffer, constant.
at_dims at_buffer_dims(const at_buffer *b);
size_t at_buffer_bytes(const at_buffer *b);  // dense
size_t at_buffer_padded_bytes(
    const at_buffer *b);  // what the target's HBM holds
// The device (or view of one) that it was made for; owned by the runtime.
at_chip *at_buffer_chip(const at_buffer *b);
// Which of the device's memories it counts against.
at_memory_kind at_buffer_memory(const at_buffer *b);
at_event *at_buffer_ready(at_buffer *b);  // borrowed; fires when defined
// Has it been defined, or failed? Never waits; at_event_status of
// at_buffer_ready tells which.
bool at_buffer_is_ready(const at_buffer *b);
void *at_buffer_data(
    at_buffer *b);  // valid once ready; NULL when deleted/donated
// The memory to fill before at_buffer_define, by one thread. NULL: deleted.
void *at_buffer_data_mut(at_buffer *b);
// Of one that the caller has acquired, deleted or not.
// Borrowed from the buffer, until its hold is given back.
void *at_buffer_data_held(at_buffer *b);
// False: another process has it (proxy.h), and at_buffer_data waits for a copy;
// then callbacks of events, which must not wait, go on with at_buffer_defer.
bool at_buffer_is_here(const at_buffer *b);
at_status at_buffer_defer(at_buffer *b, void (*fn)(void *), void *arg);
// Deleted buffers free their memory when the last launch that reads them is
// done.
void at_buffer_delete(at_buffer *b);
// True once at_buffer_delete, or a launch that donates it, has taken it; never
// false again.
bool at_buffer_is_deleted(const at_buffer *b);
// External references hold the memory (PJRT's external reference count).
// FAILED_PRECONDITION: it was deleted. One that was spilled comes back, which
// may wait for running work to give memory back; _now does not wait, for
// threads that running work may wait for.
at_status at_buffer_acquire(at_buffer *b);
at_status at_buffer_acquire_now(at_buffer *b);
// Gives back what at_buffer_acquire took. The last one frees the memory of a
// deleted array.
void at_buffer_unacquire(at_buffer *b);
// Keeps the memory as it is, wherever it lies, also of an array that is deleted
// or donated from then on. False: it is deleted.
bool at_buffer_hold(at_buffer *b);
// Gives back an at_buffer_hold; may free the memory, and the buffer where it
// has no reference left.
void at_buffer_unhold(at_buffer *b);
// Of one that the caller holds and that is defined: at_buffer_data_held is
// valid until at_buffer_unpin. RESOURCE_EXHAUSTED: it was spilled, and there is
// no room.
at_status at_buffer_pin(at_buffer *b);
void at_buffer_unpin(at_buffer *b);
// Copies the dense row-major bytes [offset, offset + n) to dst; *out_done
// fires.
at_status at_buffer_to_host(at_buffer *b, void *dst, size_t offset, size_t n,
                            at_event **out_done);
// A copy in a memory of device c: *out is one reference, defined when b is
// ready and its bytes have arrived; an error of b becomes its own.
// INVALID_ARGUMENT: b was deleted; RESOURCE_EXHAUSTED: c's HBM. b may be
// deleted at once.
at_status at_buffer_copy_to(at_buffer *b, at_chip *c, at_memory_kind k,
                            at_buffer **out);
// To a chip of another host, which receives under the same key; a key is used
// once. *out_done: it has arrived, or why not. An error of the array reaches
// the receiver's. INVALID_ARGUMENT: no such host, or this one.
at_status at_buffer_send(at_buffer *b, uint32_t host, uint64_t key,
                         at_event **out_done);
// There is nothing to send: the receiver's array fails. why: borrowed.
at_status at_transfer_refuse(at_runtime *rt, uint32_t host, uint64_t key,
                             at_status why);
// The other end of at_buffer_send: an array on a chip of this process, with the
// sender's type and dimensions (its bytes are checked to fit). *out is one
// reference, ready when it has arrived or with why not. INVALID_ARGUMENT: no
// such host; RESOURCE_EXHAUSTED: HBM.
at_status at_buffer_receive(at_chip *c, at_memory_kind k, at_dtype t,
                            at_dims dims, uint32_t host, uint64_t key,
                            at_buffer **out);
// The same into one that at_buffer_create made and nobody has defined: it is
// defined when the bytes are there, or with why not. On failure it is not.
at_status at_buffer_receive_into(at_buffer *b, uint32_t host, uint64_t key);

// An array that another process of this machine may copy from where it lies:
// where that is in the lender's memory, which it has said to the other.
typedef struct at_loan {
  uint64_t array, mark;
} at_loan;
// Of a defined array, which the caller keeps as it is (at_buffer_acquire) until
// at_loan_end. False: the other cannot read it; those of its size that are made
// later it can, if the two share memory at all.
bool at_buffer_lend(at_buffer *b, uint32_t host, uint64_t key, at_loan *out);
// Who still copies then finds out. Once, before the runtime has other hosts.
void at_loan_end(at_runtime *rt, const at_loan *l);
// Fills an array that the caller has acquired and that is not defined yet with
// what the process has lent under that key, of as many bytes. DATA_LOSS: the
// loan has ended meanwhile; INTERNAL: nothing lies there.
at_status at_buffer_copy_lent(at_buffer *b, uint32_t host, uint64_t key,
                              const at_loan *l);

// Whether a block of executables' alignment is one that at_loaded_create would
// take: all that it names lies in it. INVALID_ARGUMENT, FAILED_PRECONDITION.
at_status at_executable_check(at_bytes block);
// ---- Executables
typedef struct at_loaded at_loaded;
// Checks every index and offset of the block (INVALID_ARGUMENT), maps its code.
// The bytes are copied. UNIMPLEMENTED: custom calls of which no handler is
// registered.
at_status at_loaded_create(at_runtime *rt, at_bytes executable,
                           at_loaded **out);
// Before the first launch: device d of the program is chips[d], and some are of
// other hosts, but not all. From then on launches name the chips of this one
// alone. UNIMPLEMENTED: SparseCores, but of all hosts, equally many of each.
at_status at_loaded_span(at_loaded *l, at_chip *const *chips);
// Bytes of values that its launches have sent to other hosts.
uint64_t at_loaded_sent_bytes(const at_loaded *l);
// What is checked while Pallas kernels run (ATOLL_CHECK), and after how many
// turns of a loop they are stopped (ATOLL_KERNEL_TURNS): this process's, unless
// somebody says otherwise before the first launch.
typedef struct at_kernel_checks {
  uint32_t checks, zero;
  uint64_t turns;
} at_kernel_checks;
// What ATOLL_CHECK and ATOLL_KERNEL_TURNS say now.
at_kernel_checks at_kernel_checks_wanted(void);
// Not thread-safe: before the first launch only.
void at_loaded_check(at_loaded *l, at_kernel_checks checks);
// One reference more, for the caller to release; returns l.
at_loaded *at_loaded_retain(at_loaded *l);
// Drops a reference; NULL is allowed. The last one unmaps the code. Launches
// that run hold a reference of their own.
void at_loaded_release(at_loaded *l);
at_bytes at_loaded_bytes(const at_loaded *l);  // the executable; borrowed
// The block's header; borrowed, constant.
const at_xheader *at_loaded_header(const at_loaded *l);
// The rows of a section, *out_count of them; borrowed from the block, constant.
// NULL and 0: no such section.
const void *at_loaded_section(const at_loaded *l, at_xsection s,
                              uint64_t *out_count);
// Ends in NUL; borrowed. "" where the offset is outside of the strings.
const char *at_loaded_string(const at_loaded *l, uint32_t offset);

// Host transfers of a launch (PJRT send/recv callbacks), which the step with
// this channel_id calls from a lane; it may block. A failure fails the launch.
typedef struct at_host_channel {
  int64_t channel_id;
  // SEND: device -> host; data dense, valid during the call. `done` after the
  // last.
  at_status (*send)(void *user, const void *data, size_t bytes, size_t total,
                    bool done);
  // RECV: host -> device; write `bytes` to dst, then fire *done (may be later).
  at_status (*recv)(void *user, void *dst, size_t bytes, at_event *done);
  void *user;
} at_host_channel;

// The channels of one device.
typedef struct at_channel_list {
  const at_host_channel *list;
  uint32_t count;
} at_channel_list;

// When a launch ran here, over its devices. Whoever launches sets `left` to
// their number and keeps it until that is 0.
typedef struct at_launch_times {
  _Atomic uint64_t start_ns, end_ns;  // at_clock_ns; the first, the last
  _Atomic uint32_t left;              // devices that have not ended
} at_launch_times;

// All of it is borrowed for the call.
typedef struct at_launch {
  at_chip *chip;          // of a program over one device
  at_chip *const *chips;  // of one over several: num_chips, by device number
  uint32_t num_chips;     // (replica * partitions + partition); 0: one, `chip`
  // `chip` alone runs a program over several devices, as their number `device`;
  // each of the others runs when somebody launches it there. UNIMPLEMENTED
  // where the program's devices exchange data or wait for each other.
  bool alone;
  uint32_t device;
  at_buffer *const *args;  // num_args of each device, one device after another
  uint32_t num_args;
  // Per argument: the caller keeps it even where the program would donate it.
  // NULL: none.
  const bool *not_donatable;
  // One list for each device, or NULL: the program must not send or receive.
  const at_channel_list *channels;
  int64_t launch_id;
  // Once it fires, nobody wants the results of what has not begun: that ends
  // with CANCELLED. NULL: they are wanted.
  at_event *unwanted;
  at_launch_times *times;  // NULL: nobody asks
  uint64_t flow;           // at_profile_span.flow; 0: none
} at_launch;
// outputs: header's output count buffers for each device, one device after
// another, each one reference, defined when the launch is done on all of them.
// *out_done (may be NULL) is one reference. Donated arguments are deleted.
// Waits for its arguments on a fiber; small programs whose arguments are ready
// run on the caller's thread. INVALID_ARGUMENT names the argument, its shape
// and what was expected.
// Order: launches of one chip run in the order of these calls; several threads
// that launch on the same chips of several devices use at_launch_begin. May
// wait where a chip's queue is full. `launch` and what it points to is read
// during the call only; arguments are held until the launch is done, so the
// caller may release or delete them at once. On failure no output is written;
// donated arguments stay deleted if their check was passed (a failure in the
// middle is not undone). What goes wrong in a kernel, or in an argument that is
// not ready yet, is no failure of the call: outputs carry it.
// RESOURCE_EXHAUSTED: no memory; FAILED_PRECONDITION: a forked child.
at_status at_loaded_execute(at_loaded *l, const at_launch *launch,
                            at_buffer **outputs, at_event **out_done);

// The launch is not made: its outputs carry `why`, which is borrowed. Arguments
// are not looked at. alone: other hosts make it, where it fails, too; else they
// refuse it as well, and it does not count.
at_status at_launch_refuse(at_loaded *l, const at_launch *launch, at_status why,
                           bool alone, at_buffer **outputs);

// The same in two halves, for whoever orders the launches of several chips:
// what waits behind what is decided by the order in which tasks enter the
// queues of chips, and it must be the same on all chips or collectives wait for
// each other for ever (which is found, and reported as ABORTED). *out_task
// NULL: the launch has run. Else each of its devices must be enqueued once, 0
// to num_chips - 1; with the last the task is exec's.
typedef struct at_task at_task;
// Outputs, failures and donated arguments are as of at_loaded_execute. A task
// whose devices are not all enqueued is never freed, and its outputs never
// become ready.
at_status at_launch_begin(at_loaded *l, const at_launch *launch,
                          at_buffer **outputs, at_event **out_done,
                          at_task **out_task);
// Puts device `device` of the task (0 to num_chips - 1, each once) into its
// chip's queue; may run other launches' work on the caller's thread for a
// moment, never this one's. Any thread.
void at_launch_enqueue(at_task *t, uint32_t device);
// A lane that is kept for the thread that launches.
typedef struct at_kept_lane at_kept_lane;
// Calls enter(arg, t), which enqueues the task's devices, now or later, on this
// thread or on another one. The caller holds no lock. A brief task runs on its
// thread, unless that is a fiber: once enter has returned it waits for a moment
// until the task has its turn, then runs it until it has to sleep, and no other
// thread is woken. The task may be gone when this returns.
void at_launch_enter(at_task *t, void (*enter)(void *arg, at_task *t),
                     void *arg);

// What the processes that run a program together call one launch of it, alike
// on all of them: the `launch`-th of the program on these processes.
typedef struct at_span {
  uint64_t group, program, launch;
  const uint32_t *hosts;  // ascending, this one among them; the runtime's
  uint32_t num_hosts;
  const char *name;  // of the program; the executable's
} at_span;
// Before the task's last device is enqueued. False: this process alone runs it.
bool at_task_span(const at_task *t, at_span *out);
// `ready` of all its outputs. Borrowed, as long as the task.
// Fires when all devices have ended, with the first failure.
at_event *at_task_done(const at_task *t);

// ---- Custom calls
// A foreign handler, by call target name and platform. ffi: XLA_FFI_Handler*.
typedef enum at_custom_kind {
  AT_CUSTOM_FFI,
  AT_CUSTOM_LEGACY,
  AT_CUSTOM_OWN  // this library's own: at_custom_fn
} at_custom_kind;
// config: the call's backend_config; args and results: dense arrays.
typedef at_status (*at_custom_fn)(at_bytes config, const void *const *args,
                                  uint32_t num_args, void *const *results,
                                  uint32_t num_results);
// From now on calls of `target` go to `handler`; a later registration of the
// name wins. The name is copied; handler stays for the life of the process.
// traits: XLA_FFI_Handler_Traits for FFI, else 0. INVALID_ARGUMENT: no name or
// no handler. Thread-safe.
at_status at_custom_register(at_str target, at_custom_kind kind, void *handler,
                             uint32_t traits);
// What the frontend's XLA_FFI_Handler is called with is built here.

#endif
