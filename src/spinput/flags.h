// The SparseCore's flags, from `compiler_options` of jax.jit and from
// LIBTPU_INIT_ARGS, by the names that they have on the chip.
//
// Errors: INVALID_ARGUMENT names the flag and what it may be.
// Threads: any.
#ifndef ATOLL_SPINPUT_FLAGS_H_
#define ATOLL_SPINPUT_FLAGS_H_

#include "base/span.h"
#include "base/status.h"

enum { AT_SPINPUT_FLAG_TEXT = 256 };  // bytes of a text flag, with its NUL

typedef enum at_spinput_core {  // bits of `sanitizer`
  AT_SPINPUT_CORE_TC = 1,
  AT_SPINPUT_CORE_SC_SCS = 2,  // sequencers
  AT_SPINPUT_CORE_SC_TILE = 4,
} at_spinput_core;

// All off where nothing is said. Part of cache keys, byte by byte.
typedef struct at_spinput_flags {
  bool id_bound_check, detect_nan, verify_launch_id, estimate_max_ids,
      disable_pipelining;
  bool assert_level;  // bounds
  bool force_aligned_buffers;
  uint32_t sanitizer;  // cores whose buffers are watched
  uint32_t serialized_tables;
  char minibatch_path[AT_SPINPUT_FLAG_TEXT], max_ids_file[AT_SPINPUT_FLAG_TEXT];
} at_spinput_flags;

// Is the name one that this room answers for: a flag of the table or a
// misspelling of it by two letters, or any other that begins with xla_sc_,
// xla_sparse_core_ or tf_xla_?
bool at_spinput_flag_is_ours(at_str name);
// Sets one flag from its text. INVALID_ARGUMENT: "No such compile option" for a
// name that is ours but not in the table; a value that does not parse. Names
// that are not ours are left to others: OK.
at_status at_spinput_flag_set(at_spinput_flags *f, at_str name, at_str value);
// "--name=value --name" as LIBTPU_INIT_ARGS has them; values may be quoted.
// INVALID_ARGUMENT: a flag of the table with a value that it does not take, a
// misspelling of one by two letters, a quote that does not end. The compiler
// and runtime of the chip have many flags more: they are named once, at level
// info. What is no flag is a warning.
at_status at_spinput_flags_read(at_spinput_flags *f, at_str args);
// The flags of LIBTPU_INIT_ARGS. Not thread-safe against setenv.
at_status at_spinput_flags_of_process(at_spinput_flags *f);

#endif
