// Base-128 numbers, fields and lists. Readers take bytes off the front of a
// view and never look behind its end; what is malformed ends the message.
#include "base/protobuf.h"

// Seven bits a byte, least significant first; the highest bit says that more
// follow.
bool at_proto_varint(at_bytes *io, uint64_t *out) {
  uint64_t v = 0;
  for (unsigned shift = 0; shift < 64 && io->len; shift += 7) {
    uint8_t b = *io->ptr++;
    io->len--;
    v |= (uint64_t)(b & 0x7f) << shift;
    if (!(b & 0x80)) return *out = v, true;
  }
  return false;
}

// n little-endian bytes.
static bool fixed(at_bytes *io, size_t n, uint64_t *out) {
  if (io->len < n) return false;
  *out = 0;
  for (size_t i = 0; i < n; i++) *out |= (uint64_t)io->ptr[i] << (8 * i);
  io->ptr += n;
  io->len -= n;
  return true;
}

// Groups, which protocol buffers have given up, and field number 0 are
// malformed.
bool at_proto_next(at_bytes *io, at_proto_field *out) {
  uint64_t key, n;
  if (io->len == 0 || !at_proto_varint(io, &key)) return false;
  if (key >> 3 == 0 || key >> 3 > 0x1fffffff) return false;
  *out = (at_proto_field){.number = (uint32_t)(key >> 3),
                          .wire = (at_proto_wire)(key & 7)};
  switch (out->wire) {
    case AT_PROTO_VARINT:
      return at_proto_varint(io, &out->value);
    case AT_PROTO_64:
      return fixed(io, 8, &out->value);
    case AT_PROTO_32:
      return fixed(io, 4, &out->value);
    case AT_PROTO_BYTES:
      if (!at_proto_varint(io, &n) || n > io->len) return false;
      out->bytes = (at_bytes){io->ptr, (size_t)n};
      io->ptr += n;
      io->len -= n;
      return true;
    default:
      return false;
  }
}

// Bytes of strings and messages inside are not looked at.
bool at_proto_is_whole(at_bytes b) {
  at_proto_field f;
  while (b.len)
    if (!at_proto_next(&b, &f)) return false;
  return true;
}

// The last one counts, as protocol buffers have it.
bool at_proto_find(at_bytes b, uint32_t number, at_proto_field *out) {
  bool found = false;
  for (at_proto_field f; at_proto_next(&b, &f);)
    if (f.number == number) *out = f, found = true;
  return found;
}

uint64_t at_proto_uint(at_bytes b, uint32_t number) {
  at_proto_field f;
  return at_proto_find(b, number, &f) ? f.value : 0;
}

at_bytes at_proto_bytes(at_bytes b, uint32_t number) {
  at_proto_field f;
  return at_proto_find(b, number, &f) ? f.bytes : (at_bytes){0};
}

at_str at_proto_str(at_bytes b, uint32_t number) {
  at_bytes s = at_proto_bytes(b, number);
  return (at_str){(const char *)s.ptr, s.len};
}

bool at_proto_has(at_bytes b, uint32_t number) {
  at_proto_field f;
  return at_proto_find(b, number, &f);
}

// A packed list is numbers back to back.
at_status at_proto_ints_add(const at_proto_field *f, const char *what,
                            at_arena *a, at_proto_ints *io) {
  at_bytes b = f->bytes;
  uint64_t v = f->value;
  if (f->wire == AT_PROTO_VARINT) {
    if (!at_vec_push(a, io, (int64_t)v)) return AT_NO_MEMORY(what);
    return AT_OK;
  }
  if (f->wire != AT_PROTO_BYTES)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s is no list of integers", what);
  while (b.len) {
    if (!at_proto_varint(&b, &v))
      return AT_FAIL(AT_INVALID_ARGUMENT, "%s: a number is cut off", what);
    if (!at_vec_push(a, io, (int64_t)v)) return AT_NO_MEMORY(what);
  }
  return AT_OK;
}

// Packed and single fields may mix; their order stays.
at_status at_proto_list(at_bytes b, uint32_t number, const char *what,
                        at_arena *a, at_dims *out) {
  at_proto_ints list = {0};
  for (at_proto_field f; at_proto_next(&b, &f);)
    if (f.number == number) AT_TRY(at_proto_ints_add(&f, what, a, &list));
  if (list.len > UINT32_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s is too long", what);
  *out = (at_dims){list.ptr, (uint32_t)list.len};
  return AT_OK;
}

// ---- Writing
// The other direction of at_proto_varint.
void at_proto_write_varint(at_strbuf *b, uint64_t v) {
  for (; v >= 0x80; v >>= 7) at_strbuf_addc(b, (char)(v | 0x80));
  at_strbuf_addc(b, (char)v);
}

// A key: what a reader would refuse is a bug of the writer.
static void write_key(at_strbuf *b, uint32_t number, at_proto_wire wire) {
  AT_ASSERT(number > 0 && number <= 0x1fffffff);
  at_proto_write_varint(b, (uint64_t)number << 3 | wire);
}

void at_proto_write_int(at_strbuf *b, uint32_t number, uint64_t v) {
  write_key(b, number, AT_PROTO_VARINT);
  at_proto_write_varint(b, v);
}

void at_proto_write_bytes(at_strbuf *b, uint32_t number, at_str s) {
  write_key(b, number, AT_PROTO_BYTES);
  at_proto_write_varint(b, s.len);
  at_strbuf_add(b, s);
}

void at_proto_write_ints(at_strbuf *b, uint32_t number, at_dims v) {
  at_strbuf packed = {0};
  for (uint32_t i = 0; i < v.rank; i++)
    at_proto_write_varint(&packed, (uint64_t)v.ptr[i]);
  if (v.rank) at_proto_write_message(b, number, &packed);
}

// Its failure passes on to b.
void at_proto_write_message(at_strbuf *b, uint32_t number, at_strbuf *message) {
  at_proto_write_bytes(b, number, at_strbuf_str(message));
  b->failed |= message->failed;
  at_strbuf_free(message);
}
