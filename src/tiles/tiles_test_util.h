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
// n: words. Fails the test with the message otherwise.
void expect_error(at_status s, at_code code, const char *const *words,
                  size_t n);
// Words are parts of the message, in any order.
#define expect(s, code, ...)                                \
  expect_error(s, code, (const char *const[]){__VA_ARGS__}, \
               sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))

// The machine of most tests: 1,472 tiles.
// Without a description of it the test fails.
// By value: tests change what they need.
at_tiles_machine mk2(void);

// The caller destroys it.
// For graphs of the whole machine; smaller ones are made from a machine of
// their own.
// On mk2().
at_tiles_graph *graph(void);

// All of a new f32 variable, without a home.
// Borrowed from the graph. Placing it on tiles is the test's business.
const at_tiles_view *variable(at_tiles_graph *g, const char *name,
                              at_dims dims);

#endif
