// A runtime whose chips are elsewhere: other processes have them, and this one
// drives them (control/client.h). Buffers and programs here stand for those of
// the hosts, under names that this side gives out; whoever uses exec.h does not
// see a difference.
//
// An array is one name for shards, each on a chip: what a launch makes is an
// array with a shard for each device of the program. What is asked for here
// happens in the order of the calls, on each host; nobody waits for an answer.
// An error of an array comes with `watch` and `read`.
//
// Errors: RESOURCE_EXHAUSTED for stand-ins, INVALID_ARGUMENT for what does not
// fit, CANCELLED once the runtime ends; others come from the processes that
// have the chips.
// Threads: any.
#ifndef ATOLL_EXEC_PROXY_H_
#define ATOLL_EXEC_PROXY_H_

#include <stdatomic.h>

#include "exec/exec.h"

// Shard number `shard` of an array, and the chip that has it.
typedef struct at_proxy_shard {
  uint64_t array;
  uint32_t shard, chip;
} at_proxy_shard;

// A new array of one shard.
typedef struct at_proxy_spec {
  uint64_t array;  // of one shard
  uint32_t chip;
  at_memory_kind kind;
  at_dtype dtype;
  at_dims dims;
} at_proxy_spec;

// An argument of a launch: device d of the program takes shard `first + d`.
typedef struct at_proxy_arg {
  uint64_t array;
  uint32_t first;
  bool donated;
  bool given;  // donated with its name, which is gone then
} at_proxy_arg;

// A launch over chips of the hosts, which the program was loaded on. All of it
// is borrowed for the call, but for the channels.
typedef struct at_proxy_launch {
  uint64_t program;
  uint64_t outputs;  // names outputs, outputs + 1, ...
  int64_t launch_id;
  uint32_t num_args, num_outputs;
  const at_proxy_arg *args;
  uint32_t num_devices;
  const at_channel_list *channels;  // by device, until `done` fires; or NULL
  // Borrowed; NULL: nobody asks. Fires once all of it is done everywhere, with
  // its first error.
  at_event *done;
} at_proxy_launch;

// All of it thread-safe; arguments are borrowed for the call. None of the calls
// waits for an answer, but stats. at_status: what cannot even be sent.
typedef struct at_proxy {
  // Of the implementation: the first argument of each call.
  void *arg;
  uint32_t num_hosts;
  const _Atomic uint32_t *host_of;  // by chip; of spare ones it changes
  uint64_t (*names)(void *arg, uint32_t count);  // new ones, in a row
  // data: dense, of at_buffer_to_host's form; NULL: `write` or `refuse`
  // follows.
  at_status (*create)(void *arg, const at_proxy_spec *s, const at_bytes *data);
  // The bytes, or the error, of an array that was created without data. Once
  // for each.
  at_status (*write)(void *arg, const at_proxy_shard *s, at_bytes data);
  at_status (*refuse)(void *arg, const at_proxy_shard *s, at_status why);
  // A further name for these, by shard.
  at_status (*group)(void *arg, uint64_t array, const at_proxy_shard *shards,
                     uint32_t count);
  // A new array with the bytes of a shard, from host to host.
  at_status (*copy)(void *arg, const at_proxy_shard *from,
                    const at_proxy_spec *to);
  // Nobody uses the name any more. bytes: what may be free now, for who
  // collects drops.
  void (*drop)(void *arg, uint64_t array, uint64_t bytes);
  // Fetches bytes of a shard. dst is written until `done` fires, which is one
  // reference of the callee's.
  void (*read)(void *arg, const at_proxy_shard *s, void *dst, uint64_t offset,
               uint64_t bytes, at_event *done);
  // Fires `done` when the shard is defined, or with its error. done as for
  // read.
  void (*watch)(void *arg, const at_proxy_shard *s, at_event *done);
  // Sends an executable to the hosts that have these chips: device d of the
  // program is chips[d].
  at_status (*load)(void *arg, uint64_t program, at_bytes executable,
                    const uint32_t *chips, uint32_t num_chips);
  // The program's name is not used any more.
  void (*unload)(void *arg, uint64_t program);
  // It has to be loaded once more, under another name: hosts were replaced.
  bool (*is_stale)(void *arg, uint64_t program);
  // Sends a launch to all its hosts; order of calls is order of launches on
  // each.
  at_status (*launch)(void *arg, const at_proxy_launch *l);
  void (*end)(void *arg);  // what is asked fails now, and is not asked any more
  // Asks the chip's host and waits. clear: then resets the peak and the counts
  // there.
  at_status (*stats)(void *arg, uint32_t chip, bool clear,
                     at_memory_stats *out);
} at_proxy;

// ---- For traced programs (control/trace.h)
// Buffers of the chips of a runtime with a proxy, by shard, as one array: its
// name, and each of them alone. They keep that name as long as they are.
at_status at_proxy_name(at_buffer *const *shards, uint32_t count,
                        uint64_t *out_name, at_proxy_shard *out_each);
// Buffers of an array that was made without a launch of exec's.
typedef struct at_proxy_like {
  at_chip *const *chips;  // by shard
  uint32_t num_shards;
  at_memory_kind kind;
  at_dtype dtype;
  at_dims dims;
} at_proxy_like;
// Makes its stand-ins: out[num_shards], one reference each, all of one array
// `name` that other processes have; they become ready when told. On failure
// none is left. The shards' chips are of one runtime.
at_status at_proxy_adopt(uint64_t name, const at_proxy_like *like,
                         at_buffer **out);

#endif
