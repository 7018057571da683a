// The objects behind PJRT's opaque pointers, and the helpers every file of the
// room uses. The first word of each object stays NULL: from API minor 105 on a
// client reads it as a pointer to a table of functions.
//
// A file of the room begins with what its objects need of exec, and then has
// one function for each call of the API, written with AT_API: checks first
// (AT_ARGS, AT_HANDLE, AT_CLIENT), work by helpers that return statuses
// (AT_PTRY), and outputs in the args struct last, so that a call that fails has
// written nothing.
// Errors: functions of the API return a PJRT_Error, which the client owns;
// helpers return statuses. Nothing that a client passes ends the process.
// Memory: objects are the client's until it destroys them.
// Threads: any, unless a line says otherwise.
#ifndef ATOLL_PJRT_PJRT_INTERNAL_H_
#define ATOLL_PJRT_PJRT_INTERNAL_H_

#include <stdatomic.h>

#include "base/span.h"
#include "base/status.h"
#include "compile/compile.h"
#include "control/client.h"
#include "exec/exec.h"
#include "pjrt/cross_host_abi.h"
#include "pjrt/own.h"
#include "pjrt/pjrt.h"
#include "pjrt/pjrt_abi.h"
#include "pod/hosts.h"
#include "pod/pod.h"

// Dimensions that an array may have at this edge. Lists of that length lie on
// stacks, and a set of dimensions fits 64 bits.
enum { AT_PJRT_MAX_RANK = 64 };

// Structs of arguments begin with their size, by which versions differ. A check
// that fails returns from the function that uses it.
// ---- Checks on what clients pass
// Every function starts with AT_ARGS; handles are checked with AT_HANDLE.
// INVALID_ARGUMENT: an args struct is missing, or has `have` bytes where the
// function needs `want`. The caller owns the error, as of all that return one.
PJRT_Error *at_pjrt_bad_args(const char *what, const void *args, size_t have,
                             size_t want);
// INVALID_ARGUMENT: a handle that must be there is NULL.
PJRT_Error *at_pjrt_null_handle(const char *function, const char *what);
PJRT_Error *at_pjrt_error_make(at_status s);  // consumes s, which is not OK
// A client has read why something failed (borrowed).
void at_pjrt_note_read(at_status s);

// The error of a status that a client reads now (consumes s); NULL for OK.
// Almost every call ends with it.
static inline PJRT_Error *at_pjrt_error(at_status s) {
  if (AT_LIKELY(at_ok(s))) return NULL;
  at_pjrt_note_read(s);
  return at_pjrt_error_make(s);
}
// The args struct must be there and at least `bytes` long.
#define AT_ARGS_MIN(type, bytes)                                        \
  do {                                                                  \
    if (AT_UNLIKELY(!a || a->struct_size < (bytes)))                    \
      return at_pjrt_bad_args(#type, a, a ? a->struct_size : 0, bytes); \
  } while (0)
// The usual case: the whole struct of our version. What a newer client has
// behind it is not looked at.
#define AT_ARGS(type) AT_ARGS_MIN(type, type##_STRUCT_SIZE)
// Args that grew: the caller must know at least `last`.
#define AT_ARGS_UP_TO(type, last) \
  AT_ARGS_MIN(type, offsetof(type, last) + sizeof(((type *)0)->last))
// Does the caller's struct reach to the end of that field? What is behind that
// is not ours to read or to write.
#define AT_HAS(type, field) \
  (a->struct_size >= offsetof(type, field) + sizeof(a->field))
// A handle that must not be NULL; the error names the field. Handles are not
// checked further: a wrong one is undefined behaviour in PJRT.
#define AT_HANDLE(ptr)                                                       \
  do {                                                                       \
    if (AT_UNLIKELY(!(ptr))) return at_pjrt_null_handle(__func__ + 3, #ptr); \
  } while (0)
// A client must be there, and must not have been destroyed.
#define AT_CLIENT(ptr)                                \
  do {                                                \
    AT_HANDLE(ptr);                                   \
    AT_PTRY(at_pjrt_client_check(ptr, __func__ + 3)); \
  } while (0)
// Inside a function of the API: a status that is not OK becomes its error.
#define AT_PTRY(expr)                                        \
  do {                                                       \
    at_status ptry_ = (expr);                                \
    if (AT_UNLIKELY(ptry_.err)) return at_pjrt_error(ptry_); \
  } while (0)
// An error from a code, a format and its arguments.
#define AT_PFAIL(...) at_pjrt_error_make(AT_FAIL(__VA_ARGS__))

// AT_API(Client_Create) { ... } defines the function behind PJRT_Client_Create;
// its argument is called `a`.
#define AT_API(name) PJRT_Error *at_PJRT_##name(PJRT_##name##_Args *a)
// NULL is allowed.
void at_PJRT_Error_Destroy(PJRT_Error_Destroy_Args *a);
// A NULL error has the empty message.
// Borrowed from the error.
void at_PJRT_Error_Message(PJRT_Error_Message_Args *a);

// ---- Objects
// What a client holds of a status; at_PJRT_Error_Destroy frees both.
struct PJRT_Error {
  void *vtable;
  at_status status;
};
// Hands the status over and frees the error; NULL gives OK.
at_status at_pjrt_error_take(PJRT_Error *e);
// A status from a code and a message that a client passed (code 0: OK).
at_status at_pjrt_status_of(PJRT_Error_Code code, const char *message,
                            size_t message_size);
// What clients pass to callbacks so that they can make an error.
// A code of 0 counts as UNKNOWN: an error is never OK.
extern PJRT_CallbackError at_pjrt_callback_error;

// A client's handle of an event of the runtime. Many handles may be of one
// event, and the shared one of none.
struct PJRT_Event {
  void *vtable;
  // No handle but the shared one has NULL.
  at_event *event;  // one reference; NULL: the shared event that is ready
  bool of_launch;   // clients hear of it, whether or not somebody looks
};
// Consumes one reference. An event that fired without an error costs nothing.
// NULL: no memory (the reference is released).
PJRT_Event *at_pjrt_event_take(at_event *e);
// A new handle of the shared event that has fired; NULL: no memory.
// All such handles are one object, so it is never freed.
PJRT_Event *at_pjrt_event_ready(void);
// Makes an event that has fired with `s` (consumed).
// RESOURCE_EXHAUSTED; *out is the client's to destroy.
at_status at_pjrt_event_fired(at_status s, PJRT_Event **out);

// coords, core_on_chip, num_cores, slice_index, and `virtual` of spare ones.
enum { AT_PJRT_ATTRIBUTES = 5 };
// A kind of memory, without a device: static, one for each kind.
struct PJRT_MemoryDescription {
  void *vtable;
  at_memory_kind kind;
};
// What can be said of a device without a client. It lies in its topology, and
// its strings and attributes lie in it, so it does not move.
struct PJRT_DeviceDescription {
  void *vtable;
  at_chip_info info;  // its strings point below
  // "TPU v5 lite", "v5e".
  char kind[64], target[32];
  // What JAX prints of it: str() and repr().
  char debug_string[160], to_string[96];
  uint32_t num_attributes;
  PJRT_NamedValue attributes[AT_PJRT_ATTRIBUTES];
};

// The devices of a target and how they are arranged: of a client, or of a name
// alone. Clients compile for one without having its devices.
struct PJRT_TopologyDescription {
  void *vtable;
  uint32_t num_devices;
  PJRT_DeviceDescription *devices;  // num_devices, and a client's spare ones
  // The first num_devices of them, as clients want lists.
  PJRT_DeviceDescription **device_pointers;
  PJRT_NamedValue attributes[2];
  // The box that holds all coordinates.
  int64_t shape[3];  // chips along x, y, z
  // What Serialize hands out, made once; the fingerprint is its hash.
  at_strbuf serialized;
  uint64_t fingerprint;
};
// The last `spares` chips are none of the topology, but have descriptions.
// Copies what it needs, so the runtime may go. RESOURCE_EXHAUSTED.
at_status at_pjrt_topology_create(at_runtime *rt, uint32_t spares,
                                  PJRT_TopologyDescription **out);
// NULL is allowed. Descriptions that clients hold die with it.
void at_pjrt_topology_destroy(PJRT_TopologyDescription *t);
// The kind of its devices ("TPU v5 lite"); "" when it has none.
// Borrowed from t.
const char *at_pjrt_topology_chip(const PJRT_TopologyDescription *t);

// A memory of a device. It lives in the device.
struct PJRT_Memory {
  void *vtable;
  // Unique among all memories of the client.
  int32_t id;
  at_memory_kind kind;
  PJRT_Device *device;
  // "device memory 0 of device 0", "device(id=0)": made once, as clients borrow
  // them.
  char debug_string[96], to_string[64];
};
// A device of a client, in the client's list, for as long as the client's shell
// is there.
struct PJRT_Device {
  void *vtable;
  PJRT_Client *client;
  // The runtime's; not to be used once that has ended.
  at_chip *chip;
  PJRT_DeviceDescription *description;
  // By at_memory_kind; the first one is where arrays go by default.
  PJRT_Memory memories[AT_MEM_KINDS];
  // The same as a list of pointers, by at_memory_kind.
  PJRT_Memory *memory_pointers[AT_MEM_KINDS];
};
// See "Processes that come back" below.
typedef struct at_pjrt_epochs at_pjrt_epochs;
// A client owns everything here but the devices' chips, which are the
// runtime's. Fields are set before the client is handed out and do not change,
// but for `next` (under client.c's lock), holds and destroyed.
struct PJRT_Client {
  void *vtable;
  // NULL once the last hold is gone; nobody may use it then.
  at_runtime *runtime;
  // Launches over several devices go through it, so that processes agree on
  // their order.
  at_island *island;       // all its devices
  at_pod_hosts *hosts;     // NULL: one process has all devices
  at_pjrt_epochs *epochs;  // with `hosts`: those after them
  // A client of a pod has all its devices as own ones: the hosts behind them
  // are the controller's business.
  at_client *pod;        // NULL: they are of this process, or of its equals
  uint32_t num_devices;  // spare ones included
  uint32_t first_own, num_own;  // devices of this process
  // [num_devices], in the order of the runtime's chips.
  PJRT_Device *devices;
  // Lists of pointers to the devices and their memories, which calls hand out.
  PJRT_Device **device_pointers;
  PJRT_Memory **memory_pointers;  // num_devices * AT_MEM_KINDS
  // Owned; it goes with the shell.
  PJRT_TopologyDescription *topology;
  PJRT_Client *next;       // in the list of all
  _Atomic uint64_t holds;  // its own until it is destroyed, and one per object
  // Set by PJRT_Client_Destroy: from here on calls fail.
  _Atomic bool destroyed;
};
// ---- Objects that outlive their client
// Buffers, loaded executables and whatever else uses the runtime hold their
// client. Destroying it drops the hold that the client has on itself: it takes
// no more work, and its runtime goes with the last hold. Its devices, memories
// and topology answer for as long as there are objects, and after that until
// AT_PJRT_ENDED other clients have ended.
enum { AT_PJRT_ENDED = 16 };
// One hold more, for the caller to release; returns c. Any thread, no lock.
PJRT_Client *at_pjrt_client_hold(PJRT_Client *c);
// Drops a hold; NULL is allowed. The last one waits for all work, as
// PJRT_Client_Destroy does, and ends the runtime; in a callback of the runtime
// another thread does that.
void at_pjrt_client_release(PJRT_Client *c);
// FAILED_PRECONDITION, with the name of the call: the client was destroyed.
// Costs one load.
at_status at_pjrt_client_check(const PJRT_Client *c, const char *call);
// Around a call of the client's code by a thread that may be the runtime's.
// They nest; both are this thread's.
void at_pjrt_callback_enter(void);
void at_pjrt_callback_leave(void);
// ---- Processes that come back (pod/again.h)
// Begins for c->hosts, with the runtime and the island there.
// RESOURCE_EXHAUSTED.
// From here on a thread of the pod's may change who the other processes are, at
// moments when nobody holds the epoch.
at_status at_pjrt_epochs_begin(PJRT_Client *c);
// No process comes back from here on. Before the island and the runtime go.
void at_pjrt_epochs_stop(PJRT_Client *c);
// Behind them: the pods that took the place of c->hosts, too.
void at_pjrt_epochs_free(PJRT_Client *c);
// Around whatever has to do with other processes: they stay who they are.
// Without other processes it costs nothing. Not twice in one thread.
// A hold is short: a launch, a transfer, a load. While one lasts a process that
// has come back waits to be let in.
void at_pjrt_epoch_hold(PJRT_Client *c);
void at_pjrt_epoch_release(PJRT_Client *c);
uint32_t at_pjrt_epoch(const PJRT_Client *c);  // held; 0 at the beginning
// Of a program of several processes, loaded and held: it is for those that
// there are now. at_loaded_create's failures, at_loaded_span's.
// Loads it again where processes have come back since; other launches of it
// wait meanwhile.
at_status at_pjrt_epoch_span(PJRT_LoadedExecutable *l);
// Held. Is there a process among those of the program that was lost and is
// back, and has nobody here read yet that it was lost? Launches fail until
// somebody has, so that no process goes on beside others that begin anew. *why:
// the caller's.
// False costs one comparison where no process has ever come back.
bool at_pjrt_epoch_owes(const PJRT_LoadedExecutable *l, at_status *why);
void at_pjrt_epochs_heard(PJRT_Client *c);  // DATA_LOSS has been read

// *out NULL: ATOLL_POD names no pod.
// Fails as at_control_token and at_client_open do; the client is the caller's.
// Called once for a client, before its runtime: the pod decides on target and
// devices.
at_status at_pjrt_pod_open(at_client **out);
// Is the host of that device being drained? False where there is no pod.
// Any thread; as of the controller's last word.
bool at_pjrt_pod_drains(uint32_t device);
// Launches that wait or run on a device of any client; 0: it is nobody's.
// device: the id that JAX shows. Any thread.
uint32_t at_pjrt_queued(uint32_t device);
// Says once, where somebody reads it, what the client's devices pose as.
// ATOLL_BANNER; to stderr.
void at_pjrt_banner(const PJRT_Client *c);
// Not held: the caller must know that it stays.
PJRT_Client *at_pjrt_pod_client(void);  // whose it is; NULL: none
// Where a pod's hosts are simulated: from here on the executable of the program
// says what that takes on them.
// Writes to the executable's header. Nothing where hosts are real.
at_status at_pjrt_pod_predict(at_bytes program, at_bytes executable);
// Is work of any client under way?
// Any thread.
bool at_pjrt_clients_busy(void);
// The pod of a client that there is; NULL: none. Borrowed.
// As at_pjrt_pod_client: the caller knows that it stays.
at_client *at_pjrt_pod_now(void);
extern const char at_pjrt_platform_name[];
// Names this build and the settings that decide on executables, so that caches
// of clients (JAX's) keep those of others apart. Made once, on the first call.
const char *at_pjrt_platform_version(void);
// Others can be looked at and be part of programs, but hold no arrays of this
// process.
bool at_pjrt_is_own(const PJRT_Device *d);  // of this process
// The client's device of that chip (or view of it); NULL: it has none.
// Borrowed from c, as its memories.
PJRT_Device *at_pjrt_device_of(const PJRT_Client *c, const at_chip *chip);
// The client's memory that the buffer is in; NULL: its chip is of no device.
PJRT_Memory *at_pjrt_memory_of(const PJRT_Client *c, const at_buffer *b);

// A client's handle of an array. The client destroys it; launches and copies
// that use the array hold the at_buffer for themselves.
struct PJRT_Buffer {
  void *vtable;
  at_buffer *buffer;  // one reference
  // Whose device's client the handle holds.
  PJRT_Memory *memory;
  // Given back when the handle goes, if the framework has not.
  _Atomic(uint32_t) external;  // references of other frameworks
  _Atomic(bool) donated;       // given away outside a launch
  // What a program has asked for; the memory is dense all the same.
  const char *layout;  // at_pjrt_layout_keep, or NULL
};
// Wraps one reference (consumed, released when there is no memory).
// RESOURCE_EXHAUSTED. Takes a hold on the memory's client.
at_status at_pjrt_buffer_wrap(PJRT_Memory *m, at_buffer *b, PJRT_Buffer **out);
// Releases its reference and the handle.
void at_pjrt_buffer_free(PJRT_Buffer *b);
// Deleted, or donated to a launch or by DonateWithControlDependency.
static inline bool at_pjrt_buffer_gone(const PJRT_Buffer *b) {
  return atomic_load_explicit(&b->donated, memory_order_relaxed) ||
         at_buffer_is_deleted(b->buffer);
}
// INVALID_ARGUMENT, in the words by which JAX knows it.
at_status at_pjrt_buffer_deleted(const char *call);  // the error for it

// PJRT counts dimensions from the slowest one on, as Atoll does, and strides in
// bytes. Every array of a device is dense and row-major; a host's may have any
// strides.
// ---- Types, shapes, layouts
// INVALID_ARGUMENT: no type of PJRT's has that number, or Atoll lacks it.
// Types of PJRT and of Atoll differ in number and order.
at_status at_pjrt_dtype(PJRT_Buffer_Type t, at_dtype *out);
static inline PJRT_Buffer_Type at_pjrt_type(at_dtype t) {
  return (PJRT_Buffer_Type)at_dtype_of(t)->pjrt;
}
// An array's type as a client has spelled it, checked.
typedef struct at_pjrt_shape {
  at_dtype dtype;
  // Borrowed from the client's args.
  at_dims dims;
  // Of the dense array; 0: a dimension is 0.
  size_t bytes;
} at_pjrt_shape;
// Checks type, rank, sizes, and that the layout, if any, is dense row-major.
// INVALID_ARGUMENT, or UNIMPLEMENTED for layouts that devices here do not have.
at_status at_pjrt_shape_check(PJRT_Buffer_Type t, const int64_t *dims,
                              size_t num_dims,
                              const PJRT_Buffer_MemoryLayout *layout,
                              at_pjrt_shape *out);
// rank entries: rank - 1, ..., 0; static.
// A rank above AT_PJRT_MAX_RANK counts as that.
const int64_t *at_pjrt_minor_to_major(uint32_t rank);
// Byte strides of a host array with the given layout; *dense when they are
// those of a dense row-major array.
// layout NULL: dense. strides has room for dims.rank entries. INVALID_ARGUMENT:
// no layout of such an array; UNIMPLEMENTED: tiles.
at_status at_pjrt_host_strides(const PJRT_Buffer_MemoryLayout *layout,
                               at_dtype dtype, at_dims dims, int64_t *strides,
                               bool *dense);
// Writes a dense row-major array to strided memory.
// The strided side may be anything, dst's memory is the caller's to check.
void at_pjrt_copy_strided(at_dtype dtype, at_dims dims, const void *src,
                          void *dst, const int64_t *strides);
// And the other way.
void at_pjrt_gather_strided(at_dtype dtype, at_dims dims, const void *src,
                            const int64_t *strides, void *dst);
// A layout as the layouts extension hands it out. Those of executables are the
// program's, all others the client's to destroy.
struct PJRT_Layouts_MemoryLayout {
  void *vtable;
  uint32_t rank;
  const char *text;  // as a program asked for it; NULL: dense row-major
};
// A layout that a program asked for ("{1,0:T(8)}"), kept for the life of the
// process. Memory stays dense; whoever asked is told that it got what it
// wanted. NULL: not a layout (default, auto), or no memory.
const char *at_pjrt_layout_keep(const char *text);
// The device of client c that a call names, by device or memory (one may be
// NULL). INVALID_ARGUMENT: none is given, or it is another client's or another
// process's; FAILED_PRECONDITION: its client was destroyed.
at_status at_pjrt_place(const PJRT_Client *c, PJRT_Device *device,
                        PJRT_Memory *memory, PJRT_Memory **out);

// A program is compiled once and may then be handed out, serialised and loaded
// any number of times: all handles share one at_pjrt_program.
// ---- Programs
// What a CompileOptionsProto says that the edge must know.
typedef struct at_pjrt_options {
  // For any one device, which each launch names.
  bool portable;
  // Without one the devices are the client's first, or device_ordinal.
  bool has_assignment;
  // Of the assignment where there is one.
  uint32_t num_replicas, num_partitions;  // >= 1
  int64_t device_ordinal;                 // -1: not set
  int64_t *assignment;  // owned; replica-major, num_replicas * num_partitions
} at_pjrt_options;
// INVALID_ARGUMENT: malformed, or counts that cannot be. On success the caller
// frees out's assignment (at_pjrt_options_free).
at_status at_pjrt_options_parse(at_bytes proto, at_pjrt_options *out);
// Of zeroed options nothing.
// Once or more often.
void at_pjrt_options_free(at_pjrt_options *o);
// DeviceAssignmentProto bytes.
// ids: replica-major, as in at_pjrt_options. Appended; without memory out is
// failed.
void at_pjrt_assignment_write(uint32_t replicas, uint32_t partitions,
                              const int64_t *ids, at_strbuf *out);
// OpSharding bytes of HLO's text form. INVALID_ARGUMENT quotes it.
at_status at_pjrt_sharding_write(const char *text, at_strbuf *out);
// ShapeProto bytes of an array.
// With the layout that it has here; appended.
void at_pjrt_shape_write(at_dtype t, at_dims dims, at_strbuf *out);

// An owned block that is handed out with a deleter.
// Bytes with their size in one block, so that the deleter that a client gets is
// free() itself.
typedef struct at_pjrt_blob {
  // Of the bytes, without the zero behind them.
  size_t size;
  char bytes[];
} at_pjrt_blob;
// NULL: no memory; else freed by free().
at_pjrt_blob *at_pjrt_blob_copy(const void *p, size_t n);

// A compiled program with everything that PJRT asks about it. Immutable once
// made.
typedef struct at_pjrt_program {
  _Atomic(uint32_t) references;
  // These blocks are what serial.c writes and reads.
  at_bytes executable;  // owned (free): the block of abi/executable.h
  at_bytes options;     // owned: CompileOptionsProto as it came
  // Empty in a program that was serialised without it: then nothing can be
  // shown or estimated of it.
  at_bytes source;                // owned: the program as it came (MLIR)
  at_bytes rewritten;             // owned: of at_pjrt_rewrite
  _Atomic(at_pjrt_blob *) shown;  // owned: what at_pjrt_program_text made
  // Of `options`.
  at_pjrt_options parsed;
  // Borrowed from `executable`.
  const at_xheader *header;
  // Of the executable, in hexadecimal.
  char fingerprint[33];
  char chip[64];  // that it was compiled for: the kind of its devices
  uint32_t num_inputs, num_outputs, num_properties;
  // What a launch needs at most, aliased results counted once.
  size_t device_bytes;  // arguments, results and temporaries in device memory
  // Arguments and results that the program has in pinned or unpinned memory.
  size_t host_input_bytes, host_output_bytes;  // of the host's memory kinds
  // [num_outputs] each: the results of one device. output_dims has the
  // dimensions of all of them, one behind the other, output_ranks[i] of result
  // i.
  PJRT_Buffer_Type *output_types;
  int64_t *output_dims;
  size_t *output_ranks;
  // Names of memory kinds, borrowed from the executable or static, and their
  // lengths. The inputs' lists are the ends of the outputs'.
  const char **output_kinds, **input_kinds;
  size_t *output_kind_sizes, *input_kind_sizes;
  // Cost analysis: figures that the compiler has counted.
  PJRT_NamedValue *properties;
  // Serialised, as the shardings extension hands them out.
  const char **shardings;  // OpSharding of inputs, then outputs, each owned;
  size_t *sharding_sizes;  // NULL: a program of one device
  PJRT_Layouts_MemoryLayout *layouts;  // inputs, then outputs
  // To each of them, as clients want lists.
  PJRT_Layouts_MemoryLayout **layout_pointers;
} at_pjrt_program;
// Consumes nothing on failure; on success owns the three blocks.
// INVALID_ARGUMENT: a block that is none, or malformed options;
// RESOURCE_EXHAUSTED. *out is one reference; `chip` is left for the caller to
// set.
at_status at_pjrt_program_create(at_bytes executable, at_bytes options,
                                 at_bytes source, at_pjrt_program **out);
// One reference more, for the caller to release; returns p. Any thread.
at_pjrt_program *at_pjrt_program_retain(at_pjrt_program *p);
// Drops a reference; NULL is allowed. The last one frees all blocks.
void at_pjrt_program_release(at_pjrt_program *p);
// Shardings of n arguments or results, as protos[] (owned) and sizes[].
// Entries that were filled before a failure are owned as well.
at_status at_pjrt_shardings_fill(at_pjrt_program *p, const at_xio *io,
                                 uint32_t n, const char **protos,
                                 size_t *sizes);
// A string of its executable; "" when the offset is bad.
// Borrowed from p.
const char *at_pjrt_program_string(const at_pjrt_program *p, uint32_t offset);
// What clients show as the optimized program: that of one device, optimised and
// in order, as an HloModuleProtoWithConfig, made on the first question. MLIR
// where that has no form. *format: which it is, as PJRT calls it.
// Borrowed from p. Any thread; the first question takes as long as compiling.
at_str at_pjrt_program_text(at_pjrt_program *p, const char **format);
// A copy that is 64-byte aligned and freed by free().
// RESOURCE_EXHAUSTED.
at_status at_pjrt_bytes_copy(at_bytes b, at_bytes *out);
// Has the user interrupted what this thread waits for (Python's signal handlers
// are asked)? Then the handler's exception is raised once the interpreter runs
// again.
// A callback for whoever waits or computes for long: true means that it should
// stop with CANCELLED.
bool at_pjrt_interrupted(void);
// Is Python's interpreter being taken down? jaxlib frees its devices before it
// waits for its threads that compile, so none of them may be handed a program
// any more. False where there is no Python. Any thread; takes no lock.
bool at_pjrt_python_ends(void);
// When Python ends, compiles that run return CANCELLED, and launches that run
// are waited for (Ctrl-C ends that), before the interpreter and the client go.
// Nothing where there is no Python, and after the first time.
void at_pjrt_watch_end(void);
// For a topology's devices, without a client. at_compile's failures; *out is
// one reference. The program's bytes are copied.
at_status at_pjrt_compile(const PJRT_Program *program, at_bytes options,
                          const PJRT_TopologyDescription *t,
                          at_pjrt_program **out);
// The same for a client's devices, which may be of several kinds (targets.c).
// INVALID_ARGUMENT, too: its devices are of two kinds.
at_status at_pjrt_compile_for(PJRT_Client *c, const PJRT_Program *program,
                              at_bytes options, at_pjrt_program **out);
// Reads what PJRT_Executable_Serialize wrote, for chips of kind `chip` (NULL:
// of any). It holds native code, which runs as it stands: the checksum finds
// damage, not malice. INVALID_ARGUMENT: no such thing; DATA_LOSS: damaged;
// FAILED_PRECONDITION: of another format, build or chip, or for a CPU that this
// one is not.
at_status at_pjrt_program_read(at_bytes serialized, at_bytes options_override,
                               const char *chip, at_pjrt_program **out);

// A handle of a program; two of them may share one.
struct PJRT_Executable {
  void *vtable;
  at_pjrt_program *program;
};
// A program on devices of a client, ready to be launched. It holds the client.
struct PJRT_LoadedExecutable {
  void *vtable;
  PJRT_Client *client;
  at_pjrt_program *program;
  // One reference. With `spans` it is replaced when processes have come back,
  // under the epochs' lock.
  at_loaded *loaded;
  // By LoadedExecutable_Delete: launches fail, the code stays until Destroy.
  _Atomic(bool) deleted;
  // An executable whose devices are all of other processes has none here, and
  // its launches are no work.
  uint32_t num_devices;   // of this process
  PJRT_Device **devices;  // replica-major; empty when portable
  at_chip **chips;        // theirs
  // Replica and partition of each device of this process.
  PJRT_LogicalDeviceIds *logical_ids;
  uint32_t num_assigned;  // of all processes
  // [num_assigned], replica-major.
  int64_t *assigned;       // their ids
  bool spans;              // several processes, this one among them
  _Atomic uint32_t epoch;  // with `spans`: in which it was loaded
};
// For the client's devices, by the program's assignment. Takes over one
// reference to p, also where it fails. INVALID_ARGUMENT: devices that the
// client does not have; at_loaded_create's failures.
at_status at_pjrt_load(PJRT_Client *c, at_pjrt_program *p,
                       PJRT_LoadedExecutable **out);

// JAX's host callbacks (io_callback, debug prints) are sends and receives of a
// program over numbered channels; the launch brings a function for each.
// ---- Callbacks of a launch
// Channels for one device of a launch; freed when `done` fires.
// A zeroed one has no channels.
typedef struct at_pjrt_channels {
  // Into `block`, which holds what they call, too.
  at_host_channel *channels;
  uint32_t count;
  // A launch that has no callbacks allocates nothing.
  void *block;  // owned; NULL when there are none
} at_pjrt_channels;
// The callbacks that the options give device number `device` of the launch.
// INVALID_ARGUMENT: a list is missing or too long; RESOURCE_EXHAUSTED.
// Lists of the options are copied, so they may go when the launch returns; the
// callbacks' user_arg may not.
at_status at_pjrt_channels_create(const PJRT_ExecuteOptions *o, size_t device,
                                  at_pjrt_channels *out);
// Frees the channels once `done` fires (NULL: now).
void at_pjrt_channels_release(at_pjrt_channels *c, at_event *done);

// Nothing here uses it: launches take contexts and pass them to nobody.
struct PJRT_ExecuteContext {
  void *vtable;
  size_t count, capacity;
  PJRT_FFI_UserData *data;
};

// The extensions, which at_pjrt_api chains. Each is one struct of functions,
// defined in the file of its subject.
extern PJRT_Layouts_Extension at_pjrt_layouts_extension;
extern PJRT_FFI_Extension at_pjrt_ffi_extension;
extern PJRT_MemoryDescriptions_Extension at_pjrt_memory_extension;
extern PJRT_RawBuffer_Extension at_pjrt_raw_buffer_extension;
extern PJRT_Profiler_Extension at_pjrt_profiler_extension;
// While a session runs: the call's program and devices are kept for its end,
// and the call in the client's trace is tied to the launch. Any thread.
// Only called while at_profile_on().
void at_pjrt_profiled_call(const PJRT_LoadedExecutable_Execute_Args *a);
// RESOURCE_EXHAUSTED. One session at a time (profile.h).
at_status at_pjrt_profiled_start(void);
// The session's XSpace, with what its programs and chips are.
typedef struct at_profile at_profile;
// Appended. RESOURCE_EXHAUSTED: something of it could not be kept. The session
// is over in any case.
at_status at_pjrt_profiled_stop(const at_profile *p, at_strbuf *out);
extern PJRT_Shardings_Extension at_pjrt_shardings_extension;
extern PJRT_Xla_Transform_Extension at_pjrt_rewrites_extension;
// What the functions that the client has registered make of the program, as
// at_compile_options.rewritten; freed by free(). Empty: none is registered, or
// they change nothing. INTERNAL: what one of them says. They run on the calling
// thread.
at_status at_pjrt_rewrite(at_bytes source, const at_compile_options *options,
                          at_bytes *out);

// The functions of own.h's structs follow, by subject.
extern at_pjrt_cross_host at_pjrt_cross_host_extension;

// Traced programs of a pod (graph.c), for the Python package; codes and texts
// as at_pjrt_own's. Arrays are their PJRT_Buffers, shard by shard, counts[i] of
// array i.
// Shards of one shape: the devices they are to be on, by number, and where in
// the array each begins.
typedef struct at_pjrt_shards {
  // How many shards, and of how many dimensions each.
  uint32_t count, rank;
  const uint32_t *devices;  // [count]
  const int64_t *dims;      // [rank], of a shard
  const int64_t *at;        // [count][rank]
} at_pjrt_shards;

// Its functions are called through ctypes: they take plain pointers, return a
// code of at_code (0: good) and write up to why_bytes of a text. A trace and a
// graph are of one client and are used by one thread at a time.
typedef struct at_pjrt_graph_calls {
  // at_trace_begin: the thread's calls are kept from here on. *out is freed by
  // trace_end or trace_abandon.
  int (*trace_begin)(PJRT_Buffer *const *shards, const uint32_t *counts,
                     uint32_t num_arrays, const at_bytes *hosts,
                     uint32_t num_hosts, void **out, char *why,
                     size_t why_bytes);
  // What is asked of the pod meanwhile happens, but is not kept.
  void (*trace_pause)(void *trace, bool on);
  // what[i]: a number from 0 on: array i is made, by that number; -1 - k: it is
  // input k, of which the arguments are the first; INT64_MIN: from before.
  int (*trace_find)(void *trace, PJRT_Buffer *const *shards,
                    const uint32_t *counts, uint32_t num_arrays, int64_t *what,
                    char *why, size_t why_bytes);
  // at_trace_host; these are what it has made.
  int (*trace_host)(void *trace, const char *text, uint32_t num_taken,
                    PJRT_Buffer *const *shards, const uint32_t *counts,
                    uint32_t num_arrays, uint32_t *first_input, char *why,
                    size_t why_bytes);
  // what: as trace_find's. passes: control/graph.h's. The trace is gone.
  int (*trace_end)(void *trace, PJRT_Buffer *const *shards,
                   const uint32_t *counts, uint32_t num_arrays, bool passes,
                   int64_t *what, void **out_graph, char *why,
                   size_t why_bytes);
  // Frees a trace that trace_end has not consumed.
  void (*trace_abandon)(void *trace);
  // What it makes is returned by the next launches of this thread that
  // graph_adopt announces. *out_late: what functions of the client are to
  // write, by late_define or late_fail, each once; NULL: nothing.
  // As many arrays as the trace had inputs, and bytes for each of its `hosts`.
  // Arrays that the function donates are deleted.
  int (*graph_run)(void *graph, PJRT_Buffer *const *shards,
                   const uint32_t *counts, uint32_t num_arrays,
                   const at_bytes *hosts, void **out_late, char *why,
                   size_t why_bytes);
  // at_traced_relower.
  int (*graph_relower)(void *graph, char *why, size_t why_bytes);
  // results: numbers of `what`, for the outputs of the next launch.
  void (*graph_adopt)(void *graph, const uint32_t *results, uint32_t count);
  // As snprintf: writes what fits with a zero behind it, returns the length of
  // all.
  size_t (*graph_print)(void *graph, char *out, size_t bytes);
  // What runs have made and nobody has taken stays until its thread runs or
  // takes something else.
  void (*graph_free)(void *graph);
  // Any thread. late_free: what was not written fails.
  // shards: dense bytes, one entry for each shard of that array.
  int (*late_define)(void *late, uint32_t array, const at_bytes *shards,
                     char *why, size_t why_bytes);
  void (*late_fail)(void *late, uint32_t array, int code, const char *text);
  void (*late_free)(void *late);
  // How an array of such shards, which begin at at[count][rank], gets to others
  // (control/plan.h). A graph of one result, 0, which plan_run makes of shards
  // at the same places.
  int (*plan_make)(PJRT_Buffer *const *shards, uint32_t count,
                   const int64_t *at, const at_pjrt_shards *to, uint32_t kind,
                   void **out_graph, char *why, size_t why_bytes);
  // As graph_run, for a graph of plan_make.
  int (*plan_run)(void *graph, PJRT_Buffer *const *shards, uint32_t count,
                  char *why, size_t why_bytes);
  // Bytes between hosts; 0 without a pod.
  uint64_t (*plan_wire_bytes)(void *graph);
  // While it is on, PJRT_Buffer_UnsafePointer of this thread says which
  // PJRT_Buffer it was asked for.
  void (*identify)(bool on);
} at_pjrt_graph_calls;
// at_pjrt_identifies: see `identify`, of this thread.
extern const at_pjrt_graph_calls at_pjrt_graphs;
extern _Thread_local bool at_pjrt_identifies;
// Names of arrays, as at_pjrt_graph_calls has them.
// names: [n]. INVALID_ARGUMENT: an array without shards, or one that was
// deleted.
at_status at_pjrt_name_arrays(PJRT_Buffer *const *shards,
                              const uint32_t *counts, uint32_t n,
                              uint64_t *names);
// Arrays `first`, `first + 1`, ... of the pod, which are this thread's until
// launches hand them out.
// An array of a pod that this process has no buffers of yet.
typedef struct at_pjrt_made {
  // All shards are alike but for their chip.
  uint32_t num_shards, kind, dtype, rank;  // at_memory_kind, at_dtype
  const uint32_t *chips;                   // by shard
  const int64_t *dims;                     // of a shard
} at_pjrt_made;
// INVALID_ARGUMENT: a chip or a memory that there is not. On failure nothing is
// kept; the arrays stay the pod's.
at_status at_pjrt_made_begin(PJRT_Client *c, const at_pjrt_made *list,
                             uint32_t n, uint64_t first);
// They are the outputs of the next launch, by their numbers; borrowed until
// then.
void at_pjrt_made_adopt(const uint32_t *numbers, uint32_t count);

// Named objects of a pod (named.c), for the Python package; codes and texts as
// at_pjrt_own's, arrays as at_pjrt_graph_calls'.
// They ask the controller and wait for its answer, except where they give out
// something to be waited for (*out_asked), which `wait` consumes.
typedef struct at_pjrt_named_calls {
  // at_named_keep_ask, and waits: the object is there when it returns 0.
  int (*keep)(const char *name, const char *label, at_bytes about,
              PJRT_Buffer *const *shards, const uint32_t *counts,
              uint32_t num_arrays, bool moves, char *why, size_t why_bytes);
  // *out_text: what was said with it; free_text. *out_first: of its arrays.
  // at_named_fetch_ask, and waits. The arrays are to be taken by `made`, or
  // given back by `drop`.
  int (*fetch)(const char *name, bool takes, char **out_text, size_t *out_bytes,
               uint64_t *out_first, uint32_t *out_count, char *why,
               size_t why_bytes);
  // Removes the object on all hosts.
  int (*discard)(const char *name, char *why, size_t why_bytes);
  // All objects of the pod as JSON; free_text.
  int (*list)(char **out_text, size_t *out_bytes, char *why, size_t why_bytes);
  // NULL is allowed.
  void (*free_text)(char *text);
  // Of a text of abi/dtype.def; 0: there is none such.
  uint32_t (*dtype)(const char *text);
  // Arrays from `first` on are the outputs of the launches that `adopt` tells
  // of.
  // at_pjrt_made_begin.
  int (*made)(uint64_t first, const at_pjrt_made *list, uint32_t num_arrays,
              char *why, size_t why_bytes);
  // at_pjrt_made_adopt.
  void (*adopt)(const uint32_t *numbers, uint32_t count);
  void (*drop)(uint64_t first, uint32_t count);  // instead of `made`
  // Checkpoints (control/files.h). *out_asked: to be waited for, once.
  // at_files_save_ask.
  int (*save)(const char *path, const char *folder, at_bytes about,
              at_bytes cuts, PJRT_Buffer *const *shards, const uint32_t *counts,
              uint32_t num_arrays, void **out_asked, char *why,
              size_t why_bytes);
  // at_files_restore_ask: the arrays are named from *out_first on.
  int (*restore)(const char *path, at_bytes cuts, uint32_t num_arrays,
                 uint64_t *out_first, void **out_asked, char *why,
                 size_t why_bytes);
  // What a checkpoint has, as the text of `wait`.
  int (*peek)(const char *path, void **out_asked, char *why, size_t why_bytes);
  // Blocks. The text is the caller's (free_text), also on failure.
  int (*wait)(void *asked, char **out_text, size_t *out_bytes, char *why,
              size_t why_bytes);
} at_pjrt_named_calls;
extern const at_pjrt_named_calls at_pjrt_named;

// Does this launch hand out what a graph has made? Then it has.
// Outputs are written then; *out: what went wrong with that, or NULL.
// Asked by every launch; false at the price of one comparison where this thread
// has announced nothing.
bool at_pjrt_adopts(const PJRT_LoadedExecutable_Execute_Args *a,
                    PJRT_Error **out);

// Slices of virtual devices of a pod (slices.c), for the Python package.
// Any thread; the pod is the client's that came last.
typedef struct at_pjrt_slice_calls {
  // first, spares: ids of spare devices; islands: slices of the pod. 0: there
  // is no pod.
  void (*count)(uint32_t *first, uint32_t *spares, uint32_t *islands);
  // As at_client_add_slice; a code and a text.
  int (*add)(at_msg_slice *wish, uint32_t *devices, char *why,
             size_t why_bytes);
  // The slice's devices stand for no chips from here on.
  void (*close)(uint64_t slice);
  // Where the device is at present; false: nowhere.
  bool (*find)(uint32_t device, uint32_t *chip, uint32_t *host);
} at_pjrt_slice_calls;
extern const at_pjrt_slice_calls at_pjrt_slices;

// How many programs were compiled again, and how long that took in all, since
// the process began (recompiles.c says what counts).
// Any thread.
void at_pjrt_recompiles(uint64_t *count, uint64_t *ns);
// A program was compiled, beginning at start_ns.
void at_pjrt_note_compiled(const at_loaded *l, uint64_t start_ns);

// What a client says of the job it belongs to.
// The callbacks and their arguments are the client's, and must answer until
// at_pjrt_hosts_open returns.
typedef struct at_pjrt_job {
  uint32_t count, me;            // count 0: not said
  PJRT_KeyValueGetCallback get;  // NULL: no key-value store
  PJRT_KeyValuePutCallback put;
  void *get_arg, *put_arg;
} at_pjrt_job;
// Meets the other processes; `what` is what all have to agree on. *out NULL:
// there are none.
// at_pod_join's failures. *out is the caller's, by at_pjrt_hosts_close.
at_status at_pjrt_hosts_open(at_pjrt_job *job, const char *what,
                             at_pod_hosts **out);
// What jax.distributed.initialize was called with, where JAX runs in this
// process; else they stay as they are.
// Takes the interpreter's lock, so no lock of ours may be held.
void at_pjrt_python_job(uint32_t *count, uint32_t *me);
// NULL is allowed; waits for nobody.
// From here on at_pjrt_own.agree does not use it.
void at_pjrt_hosts_close(at_pod_hosts *h);
// `now` takes the place of `before` among those that agree on inputs.
void at_pjrt_hosts_replace(const at_pod_hosts *before, at_pod_hosts *now);
// Keeps spare devices from jax.devices(), where JAX runs in this process and
// the package `atoll` is found. False: they would be seen.
// Takes the interpreter's lock, as at_pjrt_python_job.
bool at_pjrt_python_hides_spares(void);

// Fills v; name is borrowed for good (a literal), as in the others.
// ---- Named values: attributes of the plug-in, devices and topologies
void at_pjrt_named_int(PJRT_NamedValue *v, const char *name, int64_t value);
// values are borrowed for as long as v.
void at_pjrt_named_ints(PJRT_NamedValue *v, const char *name,
                        const int64_t *values, size_t count);
// z is borrowed for as long as v.
void at_pjrt_named_str(PJRT_NamedValue *v, const char *name, const char *z);
// As at_pjrt_named_int.
void at_pjrt_named_float(PJRT_NamedValue *v, const char *name, float value);

// Registers who serves the custom calls of the compiler's own.
// Any number of times. at_custom_register's failures.
at_status at_pjrt_own_calls_serve(void);

// Every function of the table.
// For api.c, and for tests that call them without the table.
#define AT_DECLARE(name) PJRT_Error *at_##name(name##_Args *a);
PJRT_API_FUNCTIONS_RETURNING_ERROR(AT_DECLARE)
#undef AT_DECLARE

#endif
