// JSON (RFC 8259): a bounded reader into an arena, and a writer onto a strbuf.
//
// Errors: only what a line says, and RESOURCE_EXHAUSTED where the arena
// refuses.
// Threads: a tree is read-only once made and may be read by all; a writer is
// used by one.
#ifndef ATOLL_BASE_JSON_H_
#define ATOLL_BASE_JSON_H_

#include "base/arena.h"
#include "base/status.h"
#include "base/strbuf.h"

typedef enum at_json_kind {
  AT_JSON_NULL,
  AT_JSON_BOOL,
  AT_JSON_NUMBER,
  AT_JSON_STRING,
  AT_JSON_ARRAY,
  AT_JSON_OBJECT
} at_json_kind;

// A value and what is below it.
typedef struct at_json {
  at_json_kind kind;
  bool boolean;
  bool is_int;      // the number was written without '.', 'e', and fits int64
  int64_t integer;  // valid when is_int
  double number;
  at_str string;                // STRING: UTF-8, escapes resolved, in the arena
  const struct at_json *items;  // ARRAY and OBJECT: len values, in order
  const at_str *keys;           // OBJECT: len keys; a repeated key is an error
  size_t len;
} at_json;

// Readers and at_json_value recurse as deep.
enum { AT_JSON_MAX_DEPTH = 64 };

// Reads one value and nothing after it but white space. The tree lives in `a`;
// it does not borrow `text`. INVALID_ARGUMENT names line and column; nesting is
// at most AT_JSON_MAX_DEPTH; RESOURCE_EXHAUSTED over the arena's limit.
at_status at_json_parse(at_bytes text, at_arena *a, const at_json **out);
// The same, and commas before closing brackets are taken, as XLA does where
// JSON stands for a protocol buffer.
at_status at_json_parse_loose(at_bytes text, at_arena *a, const at_json **out);

// The member, or NULL when absent or when `object` is not an object (or NULL).
const at_json *at_json_get(const at_json *object, const char *key);
// Typed access: the fallback when absent or of another kind.
// STRING: borrowed from the tree, valid as long as its arena.
at_str at_json_get_str(const at_json *object, const char *key, at_str fallback);
// A number that is_int; 1.0 and 1e3 are not, and give the fallback.
int64_t at_json_get_int(const at_json *object, const char *key,
                        int64_t fallback);
// Any number, as a double: integers beyond 2^53 are rounded.
double at_json_get_num(const at_json *object, const char *key, double fallback);

// The writer puts the commas. Values follow each other in arrays; in objects
// each value follows its key.
typedef struct at_json_writer {
  at_strbuf *out;  // borrowed
  bool comma;      // the next value or key is not the first of its parent
} at_json_writer;

// Opens '{' as the next value. The caller balances it with at_json_end_object:
// the writer keeps no stack and checks nothing. Lack of memory is sticky in
// `out` (at_strbuf_status), here and in all that follow.
void at_json_begin_object(at_json_writer *w);
// Closes what at_json_begin_object opened; what follows is the next value of
// the parent.
void at_json_end_object(at_json_writer *w);
// Opens '[' as the next value; at_json_end_array closes it.
void at_json_begin_array(at_json_writer *w);
// Closes what at_json_begin_array opened.
void at_json_end_array(at_json_writer *w);
// The key of the member whose value is written next, escaped. That it is not
// repeated is the caller's matter.
void at_json_key(at_json_writer *w, at_str key);
// Bytes that are not UTF-8 are written as U+FFFD.
void at_json_str(at_json_writer *w, at_str s);
// A number in decimal digits; readers that hold numbers as doubles round it
// beyond 2^53.
void at_json_int(at_json_writer *w, int64_t v);
// As at_json_int, up to 2^64 - 1; at_json_parse reads numbers above INT64_MAX
// as doubles only.
void at_json_uint(at_json_writer *w, uint64_t v);
// The shortest of 15 to 17 digits that reads back as the same double; -0 is
// "-0.0".
void at_json_num(at_json_writer *w, double v);  // inf and NaN: null
// `true` or `false`.
void at_json_bool(at_json_writer *w, bool v);
// `null`.
void at_json_null(at_json_writer *w);
// Recurses as deep as the tree, which at_json_parse bounds.
void at_json_value(at_json_writer *w, const at_json *v);  // a whole tree
// A key and its value.
void at_json_put_str(at_json_writer *w, const char *key, at_str value);
// at_json_key, then at_json_uint; likewise at_json_put_str, above.
void at_json_put_uint(at_json_writer *w, const char *key, uint64_t value);
// The same of an array of n integers; v may be NULL where n is 0.
void at_json_put_ints(at_json_writer *w, const char *key, const int64_t *v,
                      uint32_t n);

#endif
