// What the fuzz targets of this room have in common: bytes of which messages
// are made, and checks that hold in every build.
#ifndef ATOLL_CONTROL_FUZZ_INPUT_H_
#define ATOLL_CONTROL_FUZZ_INPUT_H_

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "abi/dtype.h"
#include "control/message.h"

// A property of the fuzzed code; not an assert, which some builds leave out.
// Aborts, which the fuzzer reports with the input.
static inline void must(bool good) {
  if (!good) abort();
}

// The fuzzer's bytes, eaten from the front.
// Eaten by all helpers below; a short input is filled up with zeros.
typedef struct input {
  // Borrowed from the fuzzer.
  const uint8_t *at, *end;
} input;

// 0 once there are no more.
// Never fails, so every input is a test.
static inline uint8_t take(input *in) {
  return in->at < in->end ? *in->at++ : 0;
}

// Mostly smaller than `few`, now and then any.
// Large numbers are all there: counts near UINT64_MAX find sums that wrap.
// few > 0. Eats one byte, or nine.
static inline uint64_t number_of(input *in, uint8_t few) {
  uint8_t b = take(in);
  if (b < 0xf0) return b % few;
  uint64_t all = 0;
  for (int i = 0; i < 8; i++) all = all << 8 | take(in);
  return b < 0xf8 ? all : UINT64_MAX - all % 20;
}

// A SAVE or RESTORE of one array over two or four chips; to no folder that
// anybody has. few: names, as of number_of.
// Returns the bytes of the message behind `to`, which has room for the largest.
static inline uint32_t fill_files(input *in, bool saves, uint8_t few,
                                  uint32_t (*chip)(input *in), uint8_t *to) {
  // A folder that cannot be written, so that nothing is left behind.
  static const char path[] = "/proc/none";
  at_msg_files *m = (void *)to;
  *m = (at_msg_files){.tag = take(in),
                      .operation = 1 + take(in) % 3u,
                      .first = number_of(in, few),
                      .num_arrays = 1,
                      .path_bytes = sizeof path - 1};
  memset(m + 1, 0, 16);
  memcpy(m + 1, path, sizeof path - 1);
  at_msg_cut *c = (void *)((uint8_t *)(m + 1) + 16);
  *c = (at_msg_cut){.array = saves ? number_of(in, few) : 0,
                    .dtype = AT_F32,
                    .rank = 1,
                    .num_axes = 2,
                    .num_used = take(in) % 3,
                    .num_runs = !saves,
                    .name_bytes = 1};
  int64_t *dims = (void *)(c + 1);
  dims[0] = take(in) % 8 * 4;
  // Axes, then uses, then runs of chips, as at_msg_cut has them behind it.
  uint32_t *words = (void *)(dims + 1);
  *words++ = 1 + take(in) % 2u;
  *words++ = 2;
  for (uint32_t i = 0; i < c->num_used; i++) {
    *words++ = 0;
    *words++ = i;
  }
  if (!saves) {
    *words++ = chip(in);
    *words++ = ((uint32_t *)(dims + 1))[0] * 2;
    *words++ = 1;
  }
  memset(words, 0, 16);
  *(uint8_t *)words++ = 'a';
  return (uint32_t)at_align_up((size_t)((uint8_t *)words - 3 - to), 8);
}

#endif
