#ifndef ATOLL_PROFILE_PROFILE_INTERNAL_H_
#define ATOLL_PROFILE_PROFILE_INTERNAL_H_

#include "base/map.h"
#include "profile/profile.h"

struct at_profile {
  at_arena *arena;
  at_map texts;
  AT_VEC(at_profile_event) events;
  size_t limit, dropped;
  int64_t unix_offset_ns;  // Unix time less at_clock_ns
};

#endif
