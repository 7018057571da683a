#ifndef ATOLL_PROFILE_PROFILE_INTERNAL_H_
#define ATOLL_PROFILE_PROFILE_INTERNAL_H_

#include "base/map.h"
#include "profile/profile.h"

// A session, or what is left of one. While it runs, all of it is under
// profile.c's lock.
struct at_profile {
  at_arena *arena;
  at_map texts;
  AT_VEC(at_profile_event) events;
  size_t limit, dropped;
  int64_t unix_offset_ns;  // Unix time less at_clock_ns
};

// The line of a kind: its name (one word of it where each core has a line) and
// its number.
const char *at_profile_line(uint32_t kind);
static inline uint64_t at_profile_line_number(uint32_t kind, uint32_t core) {
  return kind + (uint64_t)core * AT_PROFILE_KINDS;
}

#endif
