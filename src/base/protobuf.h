// The wire form of protocol buffers: one field at a time, borrowed from the
// bytes. Who reads a message asks for its fields by number and skips others;
// nothing here knows a message's definition or recurses.
//
// Errors: readers say false, or INVALID_ARGUMENT where they return a status.
// Threads: pure on what they are given.
#ifndef ATOLL_BASE_PROTOBUF_H_
#define ATOLL_BASE_PROTOBUF_H_

#include "base/arena.h"
#include "base/strbuf.h"

// How a field's value is written.
typedef enum at_proto_wire {
  AT_PROTO_VARINT = 0,
  AT_PROTO_64 = 1,
  AT_PROTO_BYTES = 2,  // strings, messages, packed lists
  AT_PROTO_32 = 5
} at_proto_wire;

// One field of a message.
typedef struct at_proto_field {
  uint32_t number;
  at_proto_wire wire;
  uint64_t value;  // VARINT, 64, 32: its bits
  at_bytes bytes;  // BYTES; borrowed
} at_proto_field;

// Takes the next field off `io`. False at the end and for malformed bytes; of
// these, `io` keeps some.
bool at_proto_next(at_bytes *io, at_proto_field *out);
// Takes one base-128 number of at most ten bytes off `io`. False: it is cut off
// or longer; `io` has then lost its bytes.
bool at_proto_varint(at_bytes *io, uint64_t *out);
// Whether the bytes are fields from beginning to end (not what is inside them).
bool at_proto_is_whole(at_bytes b);

// The last field of that number; false: there is none, or the bytes before it
// are malformed. Costs one look at every field.
bool at_proto_find(at_bytes b, uint32_t number, at_proto_field *out);
// Its value or bytes; 0, or no bytes, when it is absent or of another wire
// type.
uint64_t at_proto_uint(at_bytes b, uint32_t number);
static inline int64_t at_proto_int(at_bytes b, uint32_t number) {
  return (int64_t)at_proto_uint(b, number);
}
// Borrowed from `b`. Empty where absent or of another wire type: at_proto_has
// tells an empty field from none.
at_bytes at_proto_bytes(at_bytes b, uint32_t number);
// The same as text, which need not be UTF-8.
at_str at_proto_str(at_bytes b, uint32_t number);
// Is there a field of that number, of whatever wire type?
bool at_proto_has(at_bytes b, uint32_t number);

// Appends the numbers that a field of a repeated integer holds, packed or one.
// INVALID_ARGUMENT names `what` where the field is no list of integers.
typedef AT_VEC(int64_t) at_proto_ints;
// On failure io may have some of the field's numbers.
at_status at_proto_ints_add(const at_proto_field *f, const char *what,
                            at_arena *a, at_proto_ints *io);
// All numbers of the repeated field.
at_status at_proto_list(at_bytes b, uint32_t number, const char *what,
                        at_arena *a, at_dims *out);

// ---- Writing: fields are appended, a message within one as its bytes
// A bare base-128 number, of one to ten bytes. No field: for lengths and lists
// that the caller frames. Lack of memory is sticky in `b` (at_strbuf_status),
// as in all writers here.
void at_proto_write_varint(at_strbuf *b, uint64_t v);
// A field of wire type VARINT. Negative numbers go as their 64-bit two's
// complement, as int64 and int32 do; sint32 and sint64 are not written here.
void at_proto_write_int(at_strbuf *b, uint32_t number, uint64_t v);
// A field of wire type BYTES: a string, or the bytes of a message.
void at_proto_write_bytes(at_strbuf *b, uint32_t number, at_str s);
// A packed list; nothing where it is empty.
void at_proto_write_ints(at_strbuf *b, uint32_t number, at_dims v);
// The message as a field of `b`; frees it. What it had no memory for, b lacks.
void at_proto_write_message(at_strbuf *b, uint32_t number, at_strbuf *message);

#endif
