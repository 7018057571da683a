// Builds the flat block of abi/executable.h: growing sections, interned strings
// and types, then one copy into place.
#ifndef ATOLL_COMPILE_WRITER_H_
#define ATOLL_COMPILE_WRITER_H_

#include "abi/executable.h"
#include "base/map.h"
#include "base/status.h"
#include "hlo/hlo.h"

// Errors: RESOURCE_EXHAUSTED only: no memory, or a section that 32-bit indices
// cannot address.
// Memory: sections grow in the arena until at_writer_finish copies them.
// Threads: one at a time.

// A growing array of elements of one size.
typedef struct at_section {
  uint8_t *ptr;
  size_t len, cap;  // bytes
  size_t elem_bytes;
} at_section;

// A block in the making. Elements are named by their index in a section, which
// stays as it is; pointers into sections move when they grow.
typedef struct at_writer {
  at_arena *arena;
  at_section sections[AT_XS_COUNT];
  at_map strings, types;  // what was interned -> its index
} at_writer;

// An empty block but for the empty string, at offset 0. Nothing to destroy.
at_status at_writer_init(at_writer *w, at_arena *a);
// Appends `count` elements (zeros when p is NULL); *out_index: the first one's.
at_status at_writer_append(at_writer *w, at_xsection s, const void *p,
                           size_t count, uint32_t *out_index);
// Pads a byte section (PARAMS, CODE, CONSTANTS) to `align`.
at_status at_writer_align(at_writer *w, at_xsection s, size_t align);
// *out: the offset of s in the strings, kept with a NUL; one for equal texts.
at_status at_writer_string(at_writer *w, at_str s, uint32_t *out);
// *out: the index of t's element type and shape in TYPES; one for equal types.
at_status at_writer_type(at_writer *w, const at_type *t, uint32_t *out);
// Element i of a section, which must exist; until the next append to it.
static inline void *at_writer_at(at_writer *w, at_xsection s, uint32_t i) {
  return w->sections[s].ptr + (size_t)i * w->sections[s].elem_bytes;
}
// Elements of a section so far.
static inline uint32_t at_writer_count(const at_writer *w, at_xsection s) {
  return (uint32_t)(w->sections[s].len / w->sections[s].elem_bytes);
}
// Fills in sizes and section spans of `h`, copies everything into one malloc'd,
// 64-byte aligned block.
at_status at_writer_finish(at_writer *w, const at_xheader *h, at_bytes *out);

#endif
