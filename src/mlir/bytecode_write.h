// The two halves of the bytecode writer: entries, and sections with operations.
//
// Operations are written first, into a buffer. Each attribute, type, location
// and string that they need is given an index when it is first needed, and its
// bytes are filed; the sections that hold those are put together at the end.
//
// Errors: functions note lack of memory in the writer or in the buffer.
// Memory: tables are the writer's arena's; buffers are freed by who fills them.
#ifndef ATOLL_MLIR_BYTECODE_WRITE_H_
#define ATOLL_MLIR_BYTECODE_WRITE_H_

#include "mlir/mlir_internal.h"

// Entries in the order of their indices; equal entries are written once.
typedef struct at_mwtable {
  at_map by_bytes;    // dialect, flag and bytes: index + 1
  at_map by_pointer;  // index + 1
  AT_VEC(struct {
    uint32_t dialect;
    bool custom;
    at_str bytes;
  })
  list;
} at_mwtable;

// A file while it is written. Indices are given in the order of first use;
// `failed` is looked at once, at the end.
typedef struct at_mwriter {
  at_arena *arena;
  at_map strings, dialects, ops;  // text: index + 1
  at_mwtable attrs, types;
  AT_VEC(const at_mattr *) resources;
  at_map values;  // index + 1
  at_map blocks;  // index in its region
  bool failed;    // no memory
} at_mwriter;

// Numbers as at_mbc_varint and its kin read them, appended.
void at_mw_varint(at_strbuf *b, uint64_t v);
// Zigzag.
void at_mw_svarint(at_strbuf *b, int64_t v);
// The flag as the lowest bit.
void at_mw_flagged(at_strbuf *b, uint64_t v, bool flag);
// The key's index in the map, a new one where it is not there. The key is
// copied.
uint32_t at_mw_index(at_mwriter *w, at_map *map, at_str key);
// The index of the entry, which is filed when first asked for, after those that
// it refers to.
uint32_t at_mw_attr(at_mwriter *w, const at_mattr *a);
// As at_mw_attr.
uint32_t at_mw_type(at_mwriter *w, const at_mtype *t);
// A location as an attribute.
uint32_t at_mw_loc(at_mwriter *w, const at_mloc *l);  // NULL: unknown
// A dictionary that is no node of the tree: an operation's attributes.
uint32_t at_mw_dict(at_mwriter *w, const at_mnamed *v, uint32_t n);

#endif
