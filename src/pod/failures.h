// Launches that have failed, the last ones: what comes of them later is
// dropped, and who asks for them hears why.
#ifndef ATOLL_POD_FAILURES_H_
#define ATOLL_POD_FAILURES_H_

#include "exec/exec.h"

enum {
  AT_FAILURES = 1024,      // runs of them that are remembered
  AT_FAILURE_TEXT = 4096,  // bytes of it that others are told, at most
};

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
// What one process tells another of a failure: its code and text.
typedef struct at_unsaid {
  struct at_unsaid *next;
  uint32_t to;
  at_hosts_tag tag;
  size_t bytes;
  uint8_t said[];
} at_unsaid;
// Borrows why; free with free(). NULL: no memory.
at_unsaid *at_unsaid_make(uint32_t to, const at_hosts_tag *tag, at_status why);
// Why it failed on `host`, of what that said, which has a code. one_user: of
// all processes, who hears which other one failed by its own words; else the
// loss of a process keeps its code, whoever tells of it.
at_status at_failure_read(uint32_t host, at_bytes said, bool one_user);
// Forgets all of them.
void at_failures_free(at_failures *f);

#endif
