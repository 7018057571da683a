#include "tpu/rules_test_util.h"

const char *spelled(at_arena *a, const char *text) {
  at_strbuf b = {0};
  while (*text) {
    size_t i = 0;
    while (i < AT_LEN(shorts) &&
           strncmp(text, shorts[i].name, strlen(shorts[i].name)))
      i++;
    if (i == AT_LEN(shorts)) {
      at_strbuf_addf(&b, "%c", *text == '\'' ? '"' : *text);
      text++;
      continue;
    }
    text += strlen(shorts[i].name);
    int word = 0;
    while (isalnum((unsigned char)text[word])) word++;
    at_strbuf_addf(&b, "%s%.*s%s", shorts[i].before, word, text,
                   shorts[i].after);
    text += word;
  }
  const char *s = at_arena_printf(a, "%s", b.ptr ? b.ptr : "");
  at_strbuf_free(&b);
  assert_non_null(s);
  return s;
}

const at_mosaic_kernel *read_call(at_arena *a, at_mosaic_call *call,
                                  const char *text) {
  call->payload = (at_bytes){(const uint8_t *)text, strlen(text)};
  at_mosaic_kernel *k = NULL;
  at_status s = at_mosaic_read(call, a, &k);
  if (!at_ok(s)) fail_msg("%s\nof %s", at_status_message(s), text);
  return k;
}

const at_mosaic_kernel *kernel_of(at_arena *a, const refused *r) {
  at_strbuf args = {0}, types = {0};
  for (int i = 0; i < 4 && r->args[i]; i++) {
    at_strbuf_addf(&args, "%s%%%c: %s", i ? ", " : "", 'a' + i, r->args[i]);
    at_strbuf_addf(&types, "%s%s", i ? ", " : "", r->args[i]);
  }
  const char *text = at_arena_printf(
      a,
      "'builtin.module'() ({\n'func.func'() ({\n^bb0(%s):\n"
      "%%i = 'arith.constant'() {value = 0 : index} : () -> index\n"
      "%%far = 'arith.constant'() {value = 64 : index} : () -> index\n"
      "%%n = 'arith.constant'() {value = 7 : i32} : () -> i32\n"
      "%s'func.return'() : () -> ()\n}) {dimension_semantics = [], "
      "function_type = (%s) -> (), scalar_prefetch = 0 : i64, "
      "scratch_operands = 0 : i64, sym_name = 'k', tpu.core_type = "
      "#tpu.core_type<tc>} : () -> ()\n}) : () -> ()\n",
      args.ptr, r->body, types.ptr);
  at_strbuf_free(&args);
  at_strbuf_free(&types);
  return read_call(a, &(at_mosaic_call){0}, spelled(a, text));
}

void expect_refusal(const at_mosaic_kernel *k, const char *chip,
                    const char *says) {
  at_status s = at_mosaic_check(k, at_mosaic_chip_find(at_str_of(chip)), 4);
  if (!says && at_ok(s)) return;
  if (!says) fail_msg("%s: refused: %s", chip, at_status_message(s));
  if (at_ok(s) || !strstr(at_status_message(s), says))
    fail_msg("want \"%s\", have \"%s\"", says, at_status_message(s));
  at_status_free(s);
}

void refuse_all(const refused *rows, size_t n) {
  at_arena *a = at_arena_create();
  for (size_t i = 0; i < n; i++)
    expect_refusal(kernel_of(a, &rows[i]), rows[i].chip, rows[i].says);
  at_arena_destroy(a);
}

void expect_block_refused(const blocked *b, const char *chip,
                          const char *config) {
  static const char *const ids[] = {"", "%i", "%i, %i"};
  static const char *const types[] = {"", "i32", "i32, i32"};
  at_arena *a = at_arena_create();
  const char *text = at_arena_printf(
      a,
      "'builtin.module'() ({\n'func.func'() ({\n^bb0(%%i: i32, %%x: %s):\n"
      "'func.return'() : () -> ()\n}) {dimension_semantics = "
      "[#tpu.dimension_semantics<%s>], function_type = (i32, %s) -> (), "
      "iteration_bounds = array<i64: 2>, scalar_prefetch = 0 : i64, "
      "scratch_operands = 0 : i64, sym_name = 'k', tpu.core_type = "
      "#tpu.core_type<tc>, window_params = [{transform_indices = @map, "
      "window_bounds = array<i64%s>}]} : () -> ()\n"
      "'func.func'() ({\n^bb0(%%i: i32):\n'func.return'(%s) : (%s) -> "
      "()\n}) {function_type = (i32) -> (%s), sym_name = 'map'} : () -> "
      "()\n}) : () -> ()\n",
      b->ref, b->semantics, b->ref, b->bounds, ids[b->rank], types[b->rank],
      types[b->rank]);
  at_type whole = {.dtype = b->dtype, .rank = b->rank, .dims = b->whole};
  at_mosaic_call call = {
      .operands = &whole, .num_operands = 1, .config = at_str_of(config)};
  expect_refusal(read_call(a, &call, spelled(a, text)), chip, b->says);
  at_arena_destroy(a);
}
