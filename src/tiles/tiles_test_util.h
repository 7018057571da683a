// What tests of tiles share.
#ifndef ATOLL_TILES_TILES_TEST_UTIL_H_
#define ATOLL_TILES_TILES_TEST_UTIL_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "tiles/tiles.h"

// A status that must be OK; says its message if not.
#define ok(e)                                              \
  do {                                                     \
    at_status s_ = (e);                                    \
    if (!at_ok(s_))                                        \
      fail_msg("%s: %s", at_code_name(at_status_code(s_)), \
               at_status_message(s_));                     \
  } while (0)

// A list of sizes as a view; lives until the block ends.
#define DIMS(...)                      \
  ((at_dims){(int64_t[]){__VA_ARGS__}, \
             sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)})

// An error of this code whose message has these words.
// Consumes s.
static inline void expect_error(at_status s, at_code code,
                                const char *const *words, size_t n) {
  assert_false(at_ok(s));
  if (at_status_code(s) != code)
    fail_msg("%s: %s", at_code_name(at_status_code(s)), at_status_message(s));
  for (size_t i = 0; i < n; i++)
    if (!strstr(at_status_message(s), words[i]))
      fail_msg("no \"%s\" in: %s", words[i], at_status_message(s));
  at_status_free(s);
}
// Words are parts of the message, in any order.
#define expect(s, code, ...)                                \
  expect_error(s, code, (const char *const[]){__VA_ARGS__}, \
               sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))

// The machine of most tests: 1,472 tiles.
// Without a description of it the test fails.
static inline at_tiles_machine mk2(void) {
  const at_machine *m;
  at_tiles_machine t;
  ok(at_machine_find(AT_STR("mk2"), &m));
  ok(at_tiles_machine_read(m, &t));
  return t;
}

// The caller destroys it.
// For graphs of the whole machine; smaller ones are made from a machine of
// their own.
static inline at_tiles_graph *graph(void) {
  at_tiles_machine m = mk2();
  at_tiles_graph *g;
  ok(at_tiles_graph_create(&m, &g));
  return g;
}

// All of a new f32 variable, without a home.
static inline const at_tiles_view *variable(at_tiles_graph *g, const char *name,
                                            at_dims dims) {
  const at_tiles_view *v;
  ok(at_tiles_variable_add(g, name, AT_F32, dims, &v));
  return v;
}

#endif
