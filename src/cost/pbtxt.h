// Text protos, as a tree: fields in order, each a scalar text or a message.
// Knows no schema.
#ifndef ATOLL_COST_PBTXT_H_
#define ATOLL_COST_PBTXT_H_

#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"

// A field, in the arena of the parse; siblings in the order of the text.
typedef struct at_pb {
  at_str name;  // of the field; extensions keep their brackets
  at_str text;  // scalars: the token, or the string with escapes resolved
  bool message;
  const struct at_pb *first, *next;  // members; the next field of the parent
  uint32_t line;
} at_pb;

// The root is a message without a name. INVALID_ARGUMENT names the line;
// nesting is at most 32. Scalars may borrow `text`.
at_status at_pb_parse(at_bytes text, at_arena *a, const at_pb **out);
// The first field of that name, or NULL (also when m is NULL).
const at_pb *at_pb_get(const at_pb *m, const char *name);
const at_pb *at_pb_next(const at_pb *field);  // the next of the same name
at_str at_pb_str(const at_pb *m, const char *name);  // empty when absent
// Integer field; `absent` when it is not there, `bad` when it is no int64.
int64_t at_pb_int(const at_pb *m, const char *name, int64_t absent,
                  int64_t bad);

#endif
