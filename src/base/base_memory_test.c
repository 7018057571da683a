// Status, arena, map, strbuf: the values every room builds on.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/strbuf.h"

// ---- Status
static void status_carries_code_message_and_place(void **state) {
  at_status s = AT_FAIL(AT_NOT_FOUND, "no %s, %d of %d", "value", 3, 7);
  int line = __LINE__ - 1;
  assert_false(at_ok(s));
  assert_int_equal(at_status_code(s), AT_NOT_FOUND);
  assert_string_equal(at_status_message(s), "no value, 3 of 7");
  assert_non_null(strstr(at_status_file(s), "base_memory_test.c"));
  assert_int_equal(at_status_line(s), line);
  at_status copy = at_status_clone(s);
  at_status_free(s);
  assert_string_equal(at_status_message(copy), "no value, 3 of 7");
  assert_int_equal(at_status_line(copy), line);
  copy = at_status_prefix(copy, "while reading %s", "x");
  assert_string_equal(at_status_message(copy),
                      "while reading x: no value, 3 of 7");
  assert_int_equal(at_code_take(copy), AT_NOT_FOUND);
}

// Success has no error object, and every function takes it.
static void ok_is_nothing(void **state) {
  assert_true(at_ok(AT_OK));
  assert_int_equal(at_status_code(AT_OK), 0);
  assert_string_equal(at_status_message(AT_OK), "");
  assert_true(at_ok(at_status_clone(AT_OK)));
  assert_true(at_ok(at_status_prefix(AT_OK, "x")));
  at_status_free(AT_OK);
}

// Longer than the buffer that messages are formatted in.
static void long_messages_are_whole(void **state) {
  char text[5000];
  memset(text, 'a', sizeof text - 1);
  text[sizeof text - 1] = 0;
  at_status s = AT_FAIL(AT_INTERNAL, "%s!", text);
  assert_int_equal(strlen(at_status_message(s)), sizeof text);
  s = at_status_prefix(s, "%s", text);
  assert_int_equal(strlen(at_status_message(s)), 2 * sizeof text + 1);
  at_status_free(s);
}

// The other is freed: leak checkers see it if not.
static void join_keeps_the_first(void **state) {
  at_status a = AT_FAIL(AT_ABORTED, "a"), b = AT_FAIL(AT_CANCELLED, "b");
  assert_int_equal(at_code_take(at_status_join(a, b)), AT_ABORTED);
  assert_int_equal(
      at_code_take(at_status_join(AT_OK, AT_FAIL(AT_CANCELLED, "b"))),
      AT_CANCELLED);
  assert_true(at_ok(at_status_join(AT_OK, AT_OK)));
}

// All of them, and none for numbers that are no codes.
static void codes_have_names(void **state) {
  assert_string_equal(at_code_name(AT_OK_CODE), "OK");
  assert_string_equal(at_code_name(AT_UNAUTHENTICATED), "UNAUTHENTICATED");
  assert_string_equal(at_code_name((at_code)99), "?");
  at_status bytes = AT_FAIL(AT_INTERNAL, "a\xff%s\xc3\xa9\xe2\x82", "\xc0\x80");
  assert_string_equal(at_status_message(bytes), "a???\xc3\xa9??");
  at_status_free(bytes);
  assert_int_equal(at_code_take(AT_FAIL((at_code)99, "odd")), AT_UNKNOWN);
  assert_int_equal(at_code_take(AT_FAIL(AT_OK_CODE, "odd")), AT_UNKNOWN);
}

// AT_ENSURE in a function of its own.
static at_status ensure(bool x) {
  AT_ENSURE(x);
  return AT_OK;
}
// AT_TRY in front of a statement.
static at_status try_it(bool x, int *after) {
  AT_TRY(ensure(x));
  *after = 1;
  return AT_OK;
}
// What stands behind a failure does not run.
static void macros_return_early(void **state) {
  int after = 0;
  assert_int_equal(at_code_take(try_it(false, &after)), AT_INTERNAL);
  assert_int_equal(after, 0);
  assert_true(at_ok(try_it(true, &after)));
  assert_int_equal(after, 1);
}

// ---- Arena
static void arena_aligns_and_zeroes(void **state) {
  at_arena *a = at_arena_create();
  for (size_t i = 0; i < 3000; i++) {
    size_t align = (size_t)1 << (i % 13), bytes = i * 7 % 501;
    uint8_t *p = at_arena_alloc(a, bytes, align);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % align, 0);
    for (size_t k = 0; k < bytes; k++) assert_int_equal(p[k], 0);
    memset(p, 0xff, bytes);
  }
  uint8_t *big = at_arena_alloc(a, 20 << 20, 64);
  assert_non_null(big);
  assert_int_equal(big[(20 << 20) - 1], 0);
  assert_true(at_arena_used_bytes(a) >= 20u << 20);
  at_arena_reset(a);
  assert_int_equal(at_arena_used_bytes(a), 0);
  assert_non_null(at_arena_alloc(a, 1, 1));
  at_arena_destroy(a);
  at_arena_destroy(NULL);
}

// Over the limit, and sizes that have overflowed.
static void arena_refuses_what_is_too_large(void **state) {
  at_arena *a = at_arena_create_limited(1000);
  assert_non_null(at_arena_alloc(a, 600, 1));
  assert_null(at_arena_alloc(a, 401, 1));
  assert_non_null(at_arena_alloc(a, 400, 1));
  assert_null(at_arena_alloc(a, 1, 1));
  assert_non_null(at_arena_alloc(a, 0, 1));
  at_arena_destroy(a);
  a = at_arena_create();
  assert_null(at_arena_alloc(a, SIZE_MAX, 8));
  assert_null(at_new(a, uint64_t, SIZE_MAX / 4));
  assert_null(at_arena_alloc(a, SIZE_MAX - 100, 4096));
  at_arena_destroy(a);
}

// Empty texts too.
static void arena_copies_and_prints(void **state) {
  at_arena *a = at_arena_create();
  const char *z = at_arena_str(a, (at_str){"hello world", 5});
  assert_string_equal(z, "hello");
  assert_string_equal(at_arena_str(a, (at_str){NULL, 0}), "");
  assert_string_equal(at_arena_printf(a, "%s-%04d", z, 42), "hello-0042");
  int64_t n[3] = {1, 2, 3};
  int64_t *m = at_arena_copy(a, n, sizeof n, 8);
  assert_memory_equal(n, m, sizeof n);
  AT_VEC(int) v = {0};
  for (int i = 0; i < 1000; i++) assert_true(at_vec_push(a, &v, i));
  assert_int_equal(v.len, 1000);
  for (int i = 0; i < 1000; i++) assert_int_equal(v.ptr[i], i);
  at_arena_destroy(a);
}

// ---- Map
// Also where nobody looks at the NULL, and for text that was cut on the heap.
static void arena_remembers_a_refusal(void **state) {
  at_arena *a = at_arena_create_limited(64);
  assert_true(at_ok(at_arena_status(a)));
  assert_null(at_arena_printf(a, "%100d", 1));
  assert_non_null(at_arena_alloc(a, 8, 8));
  assert_int_equal(at_code_take(at_arena_status(a)), AT_RESOURCE_EXHAUSTED);
  at_arena_reset(a);
  assert_true(at_ok(at_arena_status(a)));

  at_strbuf b = {0};
  at_strbuf_addz(&b, "whole");
  assert_string_equal(at_strbuf_move(&b, a), "whole");
  assert_true(!b.ptr && at_ok(at_arena_status(a)));
  at_strbuf_addz(&b, "half");
  b.failed = true;
  assert_null(at_strbuf_move(&b, a));
  assert_true(!b.ptr && !b.failed);
  assert_int_equal(at_code_take(at_arena_status(a)), AT_RESOURCE_EXHAUSTED);
  at_arena_destroy(a);
}

// Through several doublings, in the order of insertion.
static void map_finds_what_was_put(void **state) {
  enum { N = 5000 };
  at_arena *a = at_arena_create();
  at_map m = at_map_in(a);
  assert_null(at_map_find(&m, AT_STR("x")));
  for (size_t i = 0; i < N; i++) {
    char *key = at_arena_printf(a, "key%zu", i);
    void **v = at_map_put(&m, at_str_of(key));
    assert_non_null(v);
    assert_null(*v);
    *v = (void *)(i + 1);
    assert_ptr_equal(at_map_put(&m, at_str_of(key)), v);
  }
  assert_int_equal(m.len, N);
  for (size_t i = 0; i < N; i++) {
    char key[16];
    snprintf(key, sizeof key, "key%zu", i);
    assert_ptr_equal(*at_map_find(&m, at_str_of(key)), (void *)(i + 1));
    assert_ptr_equal(m.entries[i].value, (void *)(i + 1));  // insertion order
  }
  assert_null(at_map_find(&m, AT_STR("key5000")));
  assert_null(at_map_find(&m, AT_STR("")));
  assert_non_null(at_map_put(&m, AT_STR("")));
  assert_non_null(at_map_find(&m, AT_STR("")));
  at_arena_destroy(a);
}

// A pointer and a text of the same bytes are two keys.
static void map_takes_pointers_as_keys(void **state) {
  at_arena *a = at_arena_create();
  at_map m = at_map_in(a);
  int things[300];
  for (int i = 0; i < 300; i++) *at_map_put_ptr(&m, &things[i]) = &things[i];
  for (int i = 0; i < 300; i++)
    assert_ptr_equal(*at_map_find_ptr(&m, &things[i]), &things[i]);
  assert_null(at_map_find_ptr(&m, things + 300));
  assert_null(at_map_find_ptr(&m, NULL));
  at_arena_destroy(a);
}

// NULL, and what was there stays.
static void map_says_when_the_arena_is_full(void **state) {
  at_arena *a = at_arena_create_limited(2048);
  at_map m = at_map_in(a);
  int things[1000], put = 0;
  while (put < 1000 && at_map_put_ptr(&m, &things[put])) put++;
  assert_true(put > 0 && put < 1000);
  for (int i = 0; i < put; i++)
    assert_non_null(at_map_find_ptr(&m, &things[i]));
  at_arena_destroy(a);
}

// ---- Strbuf
static void strbuf_grows(void **state) {
  at_strbuf b = {0};
  assert_int_equal(at_strbuf_str(&b).len, 0);
  for (int i = 0; i < 2000; i++) at_strbuf_addf(&b, "%d,", i);
  at_strbuf_addc(&b, '!');
  at_strbuf_addz(&b, "");
  at_strbuf_add(&b, (at_str){NULL, 0});
  at_strbuf_add(&b, (at_str){"a\0b", 3});
  assert_true(at_ok(at_strbuf_status(&b)));
  assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4 + 1000 * 5 + 4);
  assert_memory_equal(b.ptr + b.len - 4, "!a\0b", 5);
  at_strbuf_free(&b);
  assert_null(b.ptr);
}

// The text is a prefix of what was meant.
static void strbuf_failure_is_sticky(void **state) {
  at_strbuf b = {0};
  at_strbuf_add(&b, (at_str){"x", SIZE_MAX});
  at_strbuf_addz(&b, "more");
  assert_int_equal(at_code_take(at_strbuf_status(&b)), AT_RESOURCE_EXHAUSTED);
  assert_int_equal(b.len, 0);
  at_strbuf_free(&b);
}

// SIZE_MAX stands for anything too large.
static void sizes_saturate(void **state) {
  assert_true(at_mul(SIZE_MAX / 2, 3) == SIZE_MAX);
  assert_true(at_add(SIZE_MAX, 1) == SIZE_MAX);
  assert_true(at_align_up(SIZE_MAX - 3, 64) == SIZE_MAX);
  assert_int_equal(at_align_up(65, 64), 128);
  assert_int_equal(at_ceil_div(7, 3), 3);
  assert_true(at_str_starts(AT_STR("abc"), "ab"));
  assert_false(at_str_starts(AT_STR("a"), "ab"));
  at_dims x = {(int64_t[]){1, 2}, 2}, y = {(int64_t[]){1, 3}, 2}, none = {0};
  assert_false(at_dims_eq(x, y));
  assert_true(at_dims_eq(none, none));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(status_carries_code_message_and_place),
      cmocka_unit_test(ok_is_nothing),
      cmocka_unit_test(long_messages_are_whole),
      cmocka_unit_test(join_keeps_the_first),
      cmocka_unit_test(codes_have_names),
      cmocka_unit_test(macros_return_early),
      cmocka_unit_test(arena_aligns_and_zeroes),
      cmocka_unit_test(arena_refuses_what_is_too_large),
      cmocka_unit_test(arena_copies_and_prints),
      cmocka_unit_test(arena_remembers_a_refusal),
      cmocka_unit_test(map_finds_what_was_put),
      cmocka_unit_test(map_takes_pointers_as_keys),
      cmocka_unit_test(map_says_when_the_arena_is_full),
      cmocka_unit_test(strbuf_grows),
      cmocka_unit_test(strbuf_failure_is_sticky),
      cmocka_unit_test(sizes_saturate),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
