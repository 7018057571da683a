// The two halves of the bytecode writer: entries, and sections with operations.
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

typedef struct at_mwriter {
  at_arena *arena;
  at_map strings, dialects, ops;  // text: index + 1
  at_mwtable attrs, types;
  AT_VEC(const at_mattr *) resources;
  at_map values;  // index + 1
  at_map blocks;  // index in its region
  bool failed;    // no memory
} at_mwriter;

void at_mw_varint(at_strbuf *b, uint64_t v);
void at_mw_svarint(at_strbuf *b, int64_t v);
void at_mw_flagged(at_strbuf *b, uint64_t v, bool flag);
uint32_t at_mw_index(at_mwriter *w, at_map *map, at_str key);
uint32_t at_mw_attr(at_mwriter *w, const at_mattr *a);
uint32_t at_mw_type(at_mwriter *w, const at_mtype *t);
uint32_t at_mw_loc(at_mwriter *w, const at_mloc *l);  // NULL: unknown
uint32_t at_mw_dict(at_mwriter *w, const at_mnamed *v, uint32_t n);

#endif
