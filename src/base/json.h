// JSON (RFC 8259): a bounded reader into an arena, and a writer onto a strbuf.
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
at_str at_json_get_str(const at_json *object, const char *key, at_str fallback);
int64_t at_json_get_int(const at_json *object, const char *key,
                        int64_t fallback);
double at_json_get_num(const at_json *object, const char *key, double fallback);

// The writer puts the commas. Values follow each other in arrays; in objects
// each value follows its key.
typedef struct at_json_writer {
  at_strbuf *out;  // borrowed
  bool comma;      // the next value or key is not the first of its parent
} at_json_writer;

void at_json_begin_object(at_json_writer *w);
void at_json_end_object(at_json_writer *w);
void at_json_begin_array(at_json_writer *w);
void at_json_end_array(at_json_writer *w);
void at_json_key(at_json_writer *w, at_str key);
// Bytes that are not UTF-8 are written as U+FFFD.
void at_json_str(at_json_writer *w, at_str s);
void at_json_int(at_json_writer *w, int64_t v);
void at_json_uint(at_json_writer *w, uint64_t v);
void at_json_num(at_json_writer *w, double v);  // inf and NaN: null
void at_json_bool(at_json_writer *w, bool v);
void at_json_null(at_json_writer *w);
void at_json_value(at_json_writer *w, const at_json *v);  // a whole tree
// A key and its value.
void at_json_put_str(at_json_writer *w, const char *key, at_str value);
void at_json_put_uint(at_json_writer *w, const char *key, uint64_t value);

#endif
