// Launches that have failed, the last ones: what comes of them later is
// dropped, and who asks for them hears why.
#ifndef ATOLL_POD_FAILURES_H_
#define ATOLL_POD_FAILURES_H_

#include "exec/exec.h"

enum { AT_FAILURES = 1024 };  // runs of them that are remembered

// A launch that has failed on a host, and those behind it up to `last` that
// have failed for the same reason: a client that goes takes many along.
typedef struct at_failure {
  uint32_t host;
  at_hosts_tag tag;
  uint64_t last;
  at_status why;
} at_failure;

// Zero: none.
typedef struct at_failures {
  at_failure all[AT_FAILURES];
  uint32_t count;
} at_failures;

// The launch of `tag` on a host; NULL: it has not failed, or long ago. Borrowed
// until the next note.
const at_failure *at_failures_find(const at_failures *f, uint32_t host,
                                   const at_hosts_tag *tag);
// Borrows why.
void at_failures_note(at_failures *f, uint32_t host, const at_hosts_tag *tag,
                      at_status why);
// Forgets all of them.
void at_failures_free(at_failures *f);

#endif
