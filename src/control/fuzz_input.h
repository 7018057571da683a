// What the fuzz targets of this room have in common: bytes of which messages are
// made, and checks that hold in every build.
#ifndef ATOLL_CONTROL_FUZZ_INPUT_H_
#define ATOLL_CONTROL_FUZZ_INPUT_H_

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static inline void must(bool good) {
  if (!good) abort();
}

typedef struct input {
  const uint8_t *at, *end;
} input;

// 0 once there are no more.
static inline uint8_t take(input *in) {
  return in->at < in->end ? *in->at++ : 0;
}

// Mostly smaller than `few`, now and then any.
static inline uint64_t number_of(input *in, uint8_t few) {
  uint8_t b = take(in);
  if (b < 0xf0) return b % few;
  uint64_t all = 0;
  for (int i = 0; i < 8; i++) all = all << 8 | take(in);
  return b < 0xf8 ? all : UINT64_MAX - all % 20;
}

#endif
