// How members of a wire find each other: each listens, calls those before it
// and is called by those behind it. Both sides say who they are, and hand over
// descriptors where the medium has some.
#ifndef ATOLL_POD_WIRE_MEET_H_
#define ATOLL_POD_WIRE_MEET_H_

#include "base/digest.h"
#include "pod/wire.h"

enum { AT_MEET_FDS = 2 };  // descriptors of a greeting, at most

typedef struct at_meeting {
  const at_wire_options *options;  // with defaults
  void *arg;
  uint32_t calls;  // connections between any two members
  at_status (*listen)(void *arg, int *out);
  // *out stays -1 while the member does not answer.
  at_status (*call)(void *arg, uint32_t member, uint64_t until_ns, int *out);
  // May be NULL. OK: whoever is at the other end may be in the group.
  at_status (*trust)(void *arg, int fd);
  // May be NULL. What a greeting carries: the caller's (answer: false), or the
  // answer to a member. The descriptors stay the medium's.
  at_status (*offer)(void *arg, uint32_t member, bool answer,
                     int fds[AT_MEET_FDS], int *out_count);
  // Takes the connection and the descriptors of the greeting, also on failure.
  at_status (*met)(void *arg, uint32_t member, uint32_t call, int fd,
                   const int *fds, int count);
} at_meeting;

// The status is at_wire_open's.
at_status at_wire_meet(const at_meeting *m);

// The group by its name.
at_digest at_meet_group(const at_wire_options *o);

#endif
