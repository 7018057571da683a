// The loader and the validator: what is refused, and how it is named.
#include "exec/exec_internal.h"
#include "exec/exec_test_util.h"

// The test's kernels, as compiled; their size.
static size_t read_object(uint8_t *to, size_t cap) {
  FILE *f = fopen(AT_EXEC_KERNELS, "rb");
  assert_non_null(f);
  size_t n = fread(to, 1, cap, f);
  fclose(f);
  return n;
}

static uint8_t g_elf[1 << 16];

// Loads at every alignment of the source bytes; code runs, symbols that are not
// defined in the object (expf) are none of its own.
static void objects_map_and_resolve(void **state) {
  size_t n = read_object(g_elf, sizeof g_elf);
  at_object *o = NULL;
  // Wherever the bytes lie.
  for (size_t shift = 0; shift < 9; shift++) {
    uint8_t *p = malloc(n + shift);
    memcpy(p + shift, g_elf, n);
    OK(at_object_load((at_bytes){p + shift, n}, &o));
    free(p);
    at_kernel_fn inc = (at_kernel_fn)at_object_symbol(o, "k_inc");
    float x[3] = {1, 2, 3}, y[3] = {0};
    inc((void *[]){x, y}, 1, 3);
    assert_true(y[0] == 0 && y[1] == 3 && y[2] == 4);
    assert_null(at_object_symbol(o, "nothing"));
    assert_null(at_object_symbol(o, "expf"));
    assert_true(at_object_mapped_bytes(o) >= 4096);
    at_object_unload(o);
  }
  at_object_unload(NULL);
}

// Another name of the same length in place of expf, which the runtime does not
// offer: INVALID_ARGUMENT names it.
static void undefined_symbols_are_named(void **state) {
  size_t n = read_object(g_elf, sizeof g_elf);
  bool patched = false;
  for (size_t i = 0; i + 6 <= n; i++)
    if (!memcmp(g_elf + i, "\0expf", 6)) {
      memcpy(g_elf + i, "\0exit", 6);
      patched = true;
    }
  assert_true(patched);
  at_object *o;
  at_status st = at_object_load((at_bytes){g_elf, n}, &o);
  assert_non_null(strstr(at_status_message(st), "undefined symbol exit"));
  assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
}

static void damaged_objects_are_refused(void **state) {
  size_t n = read_object(g_elf, sizeof g_elf);
  at_object *o;
  for (size_t k = 0; k < n; k += k < 64 ? 1 : 61) {  // cut short
    uint8_t *p = malloc(k + 1);
    memcpy(p, g_elf, k);
    assert_int_equal(at_code_take(at_object_load((at_bytes){p, k}, &o)),
                     AT_INVALID_ARGUMENT);
    free(p);
  }
  static const size_t words[] = {0, 4, 16, 18, 40, 58, 60};  // of the header
  for (size_t i = 0; i < AT_LEN(words); i++) {
    uint8_t saved[2];
    memcpy(saved, g_elf + words[i], 2);
    memset(g_elf + words[i], 0xee, 2);
    at_code code = at_code_take(at_object_load((at_bytes){g_elf, n}, &o));
    assert_int_equal(code, AT_INVALID_ARGUMENT);
    memcpy(g_elf + words[i], saved, 2);
  }
  for (size_t i = 0; i < n; i++) {  // any byte: a status, or an object
    uint8_t saved = g_elf[i];
    g_elf[i] = 0xff;
    if (!at_code_take(at_object_load((at_bytes){g_elf, n}, &o)))
      at_object_unload(o);
    g_elf[i] = saved;
  }
}

// ---- Executables
static at_bytes sample(void) {
  builder b = b_new();
  uint32_t t = b_f32(&b, 8), x = b_input(&b, t), y = b_output(&b, t);
  uint32_t temp = b_slot(&b, AT_SLOT_TEMP, 0, 64, 32);
  b_alias(&b, 0, 0);
  b_call(&b, "k_inc", 8, 8, ARGS(x, temp));  // 0: a branch
  b_call(&b, "k_inc", 8, 8, ARGS(temp, y));  // 1
  b_step(&b, AT_STEP_CASE, 1, ARGS(temp, 0, 1, 0, 0));
  at_xstep *s = b_step(&b, AT_STEP_RUNTIME, AT_RT_COPY, ARGS(temp, y));
  at_k_copy_params copy = {32};
  s->params = b_bytes(&b, AT_XS_PARAMS, &copy, sizeof copy, 16);
  s->params_bytes = sizeof copy;
  return b_finish(&b, 1);
}

// Runs `edit` on a good block and gives the code and message of the check.
static at_code check_edited(void (*edit)(uint8_t *p, at_xheader *h), char *m) {
  at_bytes b = sample();
  edit((uint8_t *)b.ptr, (at_xheader *)(void *)b.ptr);
  at_status st = at_executable_check(b);
  snprintf(m, 200, "%s", at_status_message(st));
  free((void *)b.ptr);
  return at_code_take(st);
}

#define AT(T, s, i) ((T *)(void *)(p + h->sections[s].offset))[i]
#define EDIT(name, ...) \
  static void name(uint8_t *p, at_xheader *h) { __VA_ARGS__; }
EDIT(good, (void)p)
EDIT(magic, h->magic++)
EDIT(version, h->version++)
EDIT(total, h->total_bytes += 64)
EDIT(section_end, h->sections[AT_XS_CONSTANTS].count = 1ull << 40)
EDIT(section_align, h->sections[AT_XS_STEPS].offset += 8)
EDIT(section_wrap, h->sections[AT_XS_ARGS].offset = -64ull)
EDIT(string_end,
     AT(char, AT_XS_STRINGS, h->sections[AT_XS_STRINGS].count - 1) = 'x')
EDIT(name, h->name = 1 << 20)
EDIT(dtype, AT(at_xtype, AT_XS_TYPES, 0).dtype = 200)
EDIT(rank, AT(at_xtype, AT_XS_TYPES, 0).rank = 99)
EDIT(bytes, AT(at_xtype, AT_XS_TYPES, 0).bytes = 33)
EDIT(dim, AT(int64_t, AT_XS_DIMS, 0) = -8)
EDIT(slot_kind, AT(at_xslot, AT_XS_SLOTS, 1).kind = 9)
EDIT(slot_index, AT(at_xslot, AT_XS_SLOTS, 1).index = 1)
EDIT(slot_end, AT(at_xslot, AT_XS_SLOTS, 2).bytes = 33)
EDIT(slot_wrap, AT(at_xslot, AT_XS_SLOTS, 3).offset = -32ull)
EDIT(alias, AT(at_xio, AT_XS_INPUTS, 0).alias = -1)
EDIT(io_type, AT(at_xio, AT_XS_OUTPUTS, 0).type = 7)
EDIT(io_slot, AT(at_xio, AT_XS_OUTPUTS, 0).slot = 3)
EDIT(kernel, AT(at_xstep, AT_XS_STEPS, 1).target = 2)
EDIT(kernel_kind, AT(at_xkernel, AT_XS_KERNELS, 1).kind = AT_XK_COMPARATOR)
EDIT(grain, AT(at_xstep, AT_XS_STEPS, 1).grain = 0)
EDIT(arg, AT(uint32_t, AT_XS_ARGS, 0) = 99)
EDIT(args, AT(at_xstep, AT_XS_STEPS, 1).num_args = 1 << 30)
EDIT(range, AT(uint32_t, AT_XS_ARGS, 6) = 3)  // the CASE's first end: itself
EDIT(twice, h->main_begin = 0)                // step 0 is in the branch already
EDIT(main_end, h->main_end = 9)
EDIT(params, AT(at_xstep, AT_XS_STEPS, 3).params_bytes = 4)
EDIT(runtime, AT(at_xstep, AT_XS_STEPS, 3).target = AT_RT_COUNT)
EDIT(object, AT(at_xobject, AT_XS_OBJECTS, 0).bytes += 1 << 20)
EDIT(infeed, AT(at_xstep, AT_XS_STEPS, 1).kind = AT_STEP_INFEED)
EDIT(collective, AT(at_xstep, AT_XS_STEPS, 1).kind = AT_STEP_COLLECTIVE)
EDIT(cpu, h->cpu_features = 1ull << 40)

static void damaged_executables_are_named(void **state) {
  static const struct {
    void (*edit)(uint8_t *, at_xheader *);
    at_code code;
    const char *says;
  } rows[] = {
      {good, 0, ""},
      {magic, AT_INVALID_ARGUMENT, "no header"},
      {version, AT_INVALID_ARGUMENT, "compile the program again"},
      {total, AT_INVALID_ARGUMENT, "total"},
      {section_end, AT_INVALID_ARGUMENT, "section constants"},
      {section_align, AT_INVALID_ARGUMENT, "section steps"},
      {section_wrap, AT_INVALID_ARGUMENT, "section args"},
      {string_end, AT_INVALID_ARGUMENT, "strings"},
      {name, AT_INVALID_ARGUMENT, "name"},
      {dtype, AT_INVALID_ARGUMENT, "type 0"},
      {rank, AT_INVALID_ARGUMENT, "type 0"},
      {bytes, AT_INVALID_ARGUMENT, "type 0"},
      {dim, AT_INVALID_ARGUMENT, "negative"},
      {slot_kind, AT_INVALID_ARGUMENT, "slot 1"},
      {slot_index, AT_INVALID_ARGUMENT, "slot 1"},
      {slot_end, AT_INVALID_ARGUMENT, "slot 2"},
      {slot_wrap, AT_INVALID_ARGUMENT, "slot 3"},
      {alias, AT_INVALID_ARGUMENT, "input 0"},
      {io_type, AT_INVALID_ARGUMENT, "output 0"},
      {io_slot, AT_INVALID_ARGUMENT, "output 0"},
      {kernel, AT_INVALID_ARGUMENT, "step 1"},
      {kernel_kind, AT_INVALID_ARGUMENT, "step 1"},
      {grain, AT_INVALID_ARGUMENT, "step 1"},
      {arg, AT_INVALID_ARGUMENT, "step 0: argument 0"},
      {args, AT_INVALID_ARGUMENT, "step 1"},
      {range, AT_INVALID_ARGUMENT, "step 2: range"},
      {twice, AT_INVALID_ARGUMENT, "two ranges"},
      {main_end, AT_INVALID_ARGUMENT, "range"},
      {params, AT_INVALID_ARGUMENT, "step 3"},
      {runtime, AT_INVALID_ARGUMENT, "runtime kernel"},
      {object, AT_INVALID_ARGUMENT, "object 0"},
      {infeed, AT_UNIMPLEMENTED, "infeed"},
      {collective, AT_INVALID_ARGUMENT, "parameters of a collective"},
      {cpu, AT_FAILED_PRECONDITION, "compiled for a CPU"},
  };
  char m[200];
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_code code = check_edited(rows[i].edit, m);
    if (code != rows[i].code || !strstr(m, rows[i].says))
      print_message("row %zu: %d %s\n", i, code, m);
    assert_int_equal(code, rows[i].code);
    assert_non_null(strstr(m, rows[i].says));
  }
}

// A ragged_all_to_all of six operands moves one value: what it says of none, or
// of a second one, would not be what is moved.
static at_code check_ragged(uint32_t num_values, char *m) {
  struct {
    at_x_collective c;
    at_x_exchange x[2];
    uint32_t tables[AT_COLL_TABLES];
  } all = {.c = {.kind = AT_COLL_RAGGED_ALL_TO_ALL,
                 .num_values = num_values,
                 .num_devices = 1,
                 .num_groups = 1}};
  const uint32_t tables[AT_COLL_TABLES] = {0, 0, 0, 1, 0, UINT32_MAX};
  for (uint32_t k = 0; k < num_values; k++)
    all.x[k] = (at_x_exchange){.operand_bytes = 32,
                               .result_bytes = 32,
                               .lines = 1,
                               .element_bytes = 4,
                               .index_bytes = 4};
  memcpy(&all.x[num_values], tables, sizeof tables);
  builder b = b_new();
  uint32_t t = b_f32(&b, 8), x = b_input(&b, t), y = b_output(&b, t);
  const uint32_t args[8] = {x, x, x, x, x, x, y, y};
  at_xstep *s = b_step(&b, AT_STEP_COLLECTIVE, 0, 6 + num_values, args);
  s->aux = 6;
  s->params_bytes = (uint32_t)at_x_collective_bytes(&all.c);
  s->params = b_bytes(&b, AT_XS_PARAMS, &all, s->params_bytes, 16);
  at_bytes block = b_finish(&b, 0);
  at_status st = at_executable_check(block);
  snprintf(m, 200, "%s", at_status_message(st));
  free((void *)block.ptr);
  return at_code_take(st);
}

static void ragged_exchanges_have_one_value(void **state) {
  char m[200];
  if (check_ragged(1, m)) fail_msg("%s", m);
  for (uint32_t n = 0; n < 3; n += 2) {
    assert_int_equal(check_ragged(n, m), AT_INVALID_ARGUMENT);
    assert_non_null(strstr(m, "arguments"));
  }
}

static void any_byte_may_be_wrong(void **state) {
  at_runtime *rt = test_runtime("v6e", 1);
  at_bytes b = sample();
  uint8_t *p = (uint8_t *)b.ptr;
  for (size_t i = 0; i < b.len; i++) {
    uint8_t saved = p[i];
    p[i] ^= 0x81;
    at_loaded *l;
    if (!at_code_take(at_loaded_create(rt, b, &l))) at_loaded_release(l);
    p[i] = saved;
  }
  for (size_t n = 0; n < b.len; n += 37) {
    at_loaded *l;
    assert_int_not_equal(
        at_code_take(at_loaded_create(rt, (at_bytes){p, n}, &l)), 0);
  }
  free(p);
  at_runtime_destroy(rt);
}

// What can never fit is refused when it is loaded, in the words of the TPU
// compiler.
static void programs_larger_than_hbm_are_refused(void **state) {
  at_runtime *rt = test_runtime("v5e", 1);
  builder b = b_new();
  uint32_t t = b_type(&b, AT_F32, 2, (int64_t[]){10 << 18, 1024});
  b_output(&b, t);
  b_output(&b, t);
  b.h.main_begin = b.h.main_end = 0;
  at_bytes x = b_finish(&b, 0);
  at_loaded *l;
  at_status st = at_loaded_create(rt, x, &l);
  assert_non_null(strstr(at_status_message(st),
                         "Ran out of memory in memory space hbm. Used 20.00G "
                         "of 15.75G hbm. Exceeded hbm capacity by 4.25G."));
  assert_int_equal(at_code_take(st), AT_RESOURCE_EXHAUSTED);
  free((void *)x.ptr);
  at_runtime_destroy(rt);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(objects_map_and_resolve),
      cmocka_unit_test(undefined_symbols_are_named),
      cmocka_unit_test(damaged_objects_are_refused),
      cmocka_unit_test(damaged_executables_are_named),
      cmocka_unit_test(ragged_exchanges_have_one_value),
      cmocka_unit_test(any_byte_may_be_wrong),
      cmocka_unit_test(programs_larger_than_hbm_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
