// The byte form of an attribute dictionary (a custom call's backend_config, a
// composite's attributes), written by `import`, read by whoever serves the
// call. Little endian, packed:
//   dict  = u32 count, count times (text key, value)
//   text  = u32 bytes, the bytes
//   value = u8 tag, payload
//     UNIT    nothing              BOOL  u8
//     INT     u8 bits, u8 unsigned, i64
//     FLOAT   u8 at_dtype, f64     TEXT  text       DICT  dict
//     ARRAY   u32 count, values
//     DENSE   u8 at_dtype, u8 splat, u32 rank, i64 dims[rank], u32 bytes, data
//     OTHER   text: the attribute as MLIR prints it
#ifndef ATOLL_ABI_ATTRDICT_H_
#define ATOLL_ABI_ATTRDICT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Tags of values. Numbers are part of the format.
enum {
  // The key alone says all.
  AT_DICT_UNIT,
  // 0 or 1 in `i`.
  AT_DICT_BOOL,
  // An integer of `bits` bits; `i` holds it extended as its sign says.
  AT_DICT_INT,
  // Any float type, widened to a double: exact, as none is wider.
  AT_DICT_FLOAT,
  // Any bytes, NUL among them; not terminated.
  AT_DICT_TEXT,
  // Values of any tags, one behind the other.
  AT_DICT_ARRAY,
  // Keys in the order of the attribute that was imported.
  AT_DICT_DICT,
  // Row-major elements; with `splat` one that stands for all.
  AT_DICT_DENSE,
  // What has no form of its own here, such as a type or a dialect's attribute.
  AT_DICT_OTHER
};

// A cursor that refuses to leave its bytes; `bad` is sticky.
typedef struct at_dict_cursor {
  const uint8_t *p, *end;
  bool bad;
} at_dict_cursor;

// One value, as read. Pointers go into the dictionary's bytes, which must
// outlive it; fields that the tag does not name are zero.
typedef struct at_dict_value {
  uint8_t tag;
  uint8_t dtype;        // FLOAT, DENSE: at_dtype
  uint8_t bits;         // INT
  bool is_unsigned;     // INT
  bool splat;           // DENSE
  int64_t i;            // BOOL, INT
  double f;             // FLOAT
  const char *text;     // TEXT, OTHER: `bytes` long
  const uint8_t *data;  // DENSE: elements; ARRAY, DICT: the entries
  uint32_t bytes;       // TEXT, OTHER, DENSE
  uint32_t count;       // ARRAY, DICT: entries; DENSE: rank
  const uint8_t *dims;  // DENSE: count times i64, unaligned
} at_dict_value;

// The next n bytes, or NULL where there are fewer: the cursor is bad from then
// on and every later read gives zeros.
static inline const uint8_t *at_dict_take(at_dict_cursor *c, size_t n) {
  if (c->bad || n > (size_t)(c->end - c->p))
    return c->bad = true, (const uint8_t *)0;
  c->p += n;
  return c->p - n;
}
// An unsigned number of n <= 8 bytes, little endian; 0 from a bad cursor.
static inline uint64_t at_dict_word(at_dict_cursor *c, size_t n) {
  const uint8_t *p = at_dict_take(c, n);
  uint64_t v = 0;
  for (size_t i = 0; p && i < n; i++) v |= (uint64_t)p[i] << (8 * i);
  return v;
}
// A length and that many bytes, without a NUL behind them; NULL from a bad
// cursor.
static inline const char *at_dict_text(at_dict_cursor *c, uint32_t *bytes) {
  *bytes = (uint32_t)at_dict_word(c, 4);
  return (const char *)at_dict_take(c, *bytes);
}
// A cursor behind the count of a dictionary of n bytes at p. *count: its
// entries, 0 where it is malformed.
static inline at_dict_cursor at_dict_open(const void *p, size_t n,
                                          uint32_t *count) {
  at_dict_cursor c = {(const uint8_t *)p, (const uint8_t *)p + n, false};
  *count = (uint32_t)at_dict_word(&c, 4);
  return c;
}

// Reads one value; ARRAY and DICT are skipped over, their entries left in
// `data` (open them with a cursor of their own). false: malformed, or nested
// over 32.
static inline bool at_dict_read(at_dict_cursor *c, at_dict_value *v,
                                // `depth`: 0 at the top. *v is zero where
                                // false is returned early; the cursor is bad
                                // then.
                                int depth) {
  memset(v, 0, sizeof *v);
  v->tag = (uint8_t)at_dict_word(c, 1);
  uint64_t f;
  at_dict_value inner;
  uint32_t key;
  switch (v->tag) {
    case AT_DICT_UNIT:
      break;
    case AT_DICT_BOOL:
      v->i = (int64_t)at_dict_word(c, 1);
      break;
    case AT_DICT_INT:
      v->bits = (uint8_t)at_dict_word(c, 1);
      v->is_unsigned = at_dict_word(c, 1) != 0;
      v->i = (int64_t)at_dict_word(c, 8);
      break;
    case AT_DICT_FLOAT:
      v->dtype = (uint8_t)at_dict_word(c, 1);
      f = at_dict_word(c, 8);
      memcpy(&v->f, &f, sizeof f);
      break;
    case AT_DICT_TEXT:
    case AT_DICT_OTHER:
      v->text = at_dict_text(c, &v->bytes);
      break;
    case AT_DICT_ARRAY:
    case AT_DICT_DICT:
      v->count = (uint32_t)at_dict_word(c, 4);
      v->data = c->p;
      // Entries are walked to find the end of the array; a count that the bytes
      // cannot hold ends with a bad cursor.
      for (uint32_t i = 0; i < v->count && !c->bad && depth < 32; i++) {
        if (v->tag == AT_DICT_DICT) at_dict_text(c, &key);
        at_dict_read(c, &inner, depth + 1);
      }
      if (v->count && depth >= 32) c->bad = true;
      break;
    case AT_DICT_DENSE:
      v->dtype = (uint8_t)at_dict_word(c, 1);
      v->splat = at_dict_word(c, 1) != 0;
      v->count = (uint32_t)at_dict_word(c, 4);
      v->dims = at_dict_take(c, (size_t)v->count * 8);
      v->data = (const uint8_t *)at_dict_text(c, &v->bytes);
      break;
    default:
      c->bad = true;
  }
  return !c->bad;
}

// The value of a key; false: absent or malformed.
// Of several with one key the first. *out holds some other entry where it
// returns false. Linear in the dictionary.
static inline bool at_dict_find(const void *p, size_t n, const char *key,
                                at_dict_value *out) {
  uint32_t count, bytes;
  at_dict_cursor c = at_dict_open(p, n, &count);
  for (uint32_t i = 0; i < count && !c.bad; i++) {
    const char *k = at_dict_text(&c, &bytes);
    bool hit = k && bytes == strlen(key) && memcmp(k, key, bytes) == 0;
    if (!at_dict_read(&c, out, 0)) return false;
    if (hit) return true;
  }
  return false;
}

#endif
