// The file of xla_sparse_core_max_ids_file: limits of tables, which a program
// compiled beside it takes in place of its own.
//
// Memory: the tables are the caller's arena's.
// Threads: any.
#ifndef ATOLL_SPINPUT_LIMITS_H_
#define ATOLL_SPINPUT_LIMITS_H_

#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"

typedef struct at_spinput_limit {
  at_str table;                 // the stack's name
  int64_t max_ids, max_unique;  // per partition, at least 1
} at_spinput_limit;

// In the order of the file; a table stands there once.
typedef struct at_spinput_limits {
  const at_spinput_limit *ptr;  // in the arena
  uint32_t count;
} at_spinput_limits;

// The text of such a file, as LimitsEstimator.save (atoll.sparsecore) writes
// it. INVALID_ARGUMENT names the table and the field.
at_status at_spinput_limits_parse(at_bytes text, at_arena *a,
                                  at_spinput_limits *out);
// The file's. INVALID_ARGUMENT names it where it does not open, unless
// `made_later`: then no file is no limits.
at_status at_spinput_limits_load(const char *path, bool made_later, at_arena *a,
                                 at_spinput_limits *out);
// The limits of what a program calls its table: the stack's name, or JAX's of
// an argument with that key (`tables['stack'].table`). NULL: it has none.
const at_spinput_limit *at_spinput_limits_of(const at_spinput_limits *l,
                                             at_str table);

#endif
