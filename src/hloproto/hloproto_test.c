// Modules written by hand, field by field, and what becomes of them.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>

#include "base/protobuf.h"
#include "hloproto/hloproto.h"

// A shape by value.
typedef struct dims {
  uint32_t n;
  int64_t d[4];
} dims;

// ShapeProto of an array; order: minor to major, NULL: row-major.
static at_strbuf shape_of(int64_t type, dims s, const int64_t *order) {
  at_strbuf b = {0}, layout = {0};
  int64_t plain[4];
  for (uint32_t i = 0; i < s.n; i++) plain[i] = s.n - 1 - i;
  at_proto_write_int(&b, 2, (uint64_t)type);
  at_proto_write_ints(&b, 3, (at_dims){s.d, s.n});
  at_proto_write_ints(&layout, 1, (at_dims){order ? order : plain, s.n});
  at_proto_write_message(&b, 5, &layout);
  return b;
}

// An instruction of that opcode, which is its name as well; further fields may
// follow.
static at_strbuf inst_of(const char *opcode, int64_t id, at_strbuf shape) {
  at_strbuf b = {0};
  at_proto_write_bytes(&b, 1, at_str_of(opcode));
  at_proto_write_bytes(&b, 2, at_str_of(opcode));
  at_proto_write_message(&b, 3, &shape);
  at_proto_write_int(&b, 35, (uint64_t)id);
  return b;
}

// A parameter of that number.
static at_strbuf param_of(int64_t id, int64_t number, at_strbuf shape) {
  at_strbuf b = inst_of("parameter", id, shape);
  at_proto_write_int(&b, 9, (uint64_t)number);
  return b;
}

// Appends one operand.
static void operand(at_strbuf *inst, int64_t id) {
  at_proto_write_ints(inst, 36, (at_dims){&id, 1});
}

// Finished computations and the one at hand.
typedef struct module {
  at_strbuf comps, comp;
  int64_t num_comps;
} module;

// Appends the instruction to the computation at hand.
static void add(module *m, at_strbuf inst) {
  at_proto_write_message(&m->comp, 2, &inst);
}

// Ends the computation that instructions were added to.
static void end_comp(module *m, const char *name, int64_t root) {
  at_proto_write_bytes(&m->comp, 1, at_str_of(name));
  at_proto_write_int(&m->comp, 5, (uint64_t)++m->num_comps);
  at_proto_write_int(&m->comp, 6, (uint64_t)root);
  at_proto_write_message(&m->comps, 3, &m->comp);
  m->comp = (at_strbuf){0};
}

// The last computation is the entry.
static at_strbuf end_module(module *m) {
  at_strbuf b = {0};
  at_proto_write_bytes(&b, 1, AT_STR("m"));
  at_strbuf_add(&b, at_strbuf_str(&m->comps));
  at_proto_write_int(&b, 6, (uint64_t)m->num_comps);
  at_strbuf_free(&m->comps);
  return b;
}

// Reads it; the status's code, and the graph's text or the message.
static at_code read_text(at_strbuf *proto, char *text, size_t size) {
  at_arena *a = at_arena_create();
  at_module *m;
  at_strbuf out = {0};
  at_status s =
      at_hloproto_read((at_bytes){(const uint8_t *)proto->ptr, proto->len},
                       AT_HLOPROTO_MODULE, a, &m);
  if (at_ok(s)) s = at_hlo_print(m, &out);
  snprintf(text, size, "%s", at_ok(s) ? out.ptr : at_status_message(s));
  at_strbuf_free(&out);
  at_arena_destroy(a);
  at_strbuf_free(proto);
  return at_code_take(s);
}

#define ASSERT_HAS(text, part)                                        \
  do {                                                                \
    if (!strstr(text, part)) fail_msg("no `%s` in:\n%s", part, text); \
  } while (0)

enum {
  PRED = 1,
  S32 = 4,
  F32 = 11,
  S4 = 21,
  U4 = 22,
  S2 = 26,
  U2 = 27,
  F4 = 32
};

// A column-major operand is transposed before it is reshaped.
static void test_bitcast_follows_layouts(void **state) {
  module m = {0};
  char text[4096];
  const int64_t columns[] = {0, 1};
  add(&m, param_of(1, 0, shape_of(F32, (dims){2, {2, 3}}, columns)));
  at_strbuf b = inst_of("bitcast", 2, shape_of(F32, (dims){1, {6}}, NULL));
  operand(&b, 1);
  add(&m, b);
  end_comp(&m, "main", 2);
  at_strbuf proto = end_module(&m);
  assert_int_equal(read_text(&proto, text, sizeof text), AT_OK_CODE);
  // The bytes of a column-major array are those of its transpose.
  ASSERT_HAS(text, "transpose %0 {permutation=[1,0]} : f32[3,2]");
  ASSERT_HAS(text, ": f32[6]");
}

// Elements come in the order of the literal's layout and are stored row-major.
static void test_literals_follow_layouts(void **state) {
  module m = {0};
  char text[4096];
  const int64_t columns[] = {0, 1};
  at_strbuf i = inst_of("constant", 1, shape_of(S32, (dims){2, {2, 2}}, NULL));
  at_strbuf l = {0}, s = shape_of(S32, (dims){2, {2, 2}}, columns);
  at_proto_write_message(&l, 1, &s);
  at_proto_write_ints(&l, 4, (at_dims){(int64_t[]){1, 3, 2, -4}, 4});
  at_proto_write_message(&i, 8, &l);
  add(&m, i);
  end_comp(&m, "main", 1);
  at_strbuf proto = end_module(&m);
  assert_int_equal(read_text(&proto, text, sizeof text), AT_OK_CODE);
  ASSERT_HAS(text, "1,2,3,-4");
}

// A byte for each element, as jaxlib writes them; with more of them than the
// shape has, or fewer, the literal is refused.
static void test_narrow_literals(void **state) {
  static const struct {
    int64_t type, elements;
    uint32_t field;
    at_str bytes;
    at_code code;
    const char *says;
  } rows[] = {{S4, 7, 21, {"\1\16\3\4\5\12\7", 7}, 0, "1,-2,3,4,5,-6,7"},
              {U4, 5, 22, {"\1\17\0\1\1", 5}, 0, "1,15,0,1,1"},
              {S2, 5, 26, {"\1\3\0\1\1", 5}, 0, "1,-1,0,1,1"},
              {U2, 5, 27, {"\1\3\0\1\1", 5}, 0, "1,3,0,1,1"},
              {F4, 3, 32, {"\2\12\0", 3}, 0, "1,-1,0"},
              {S4, 3, 21, {"\361\16\3", 3}, 0, "1,-2,3"},
              {S4, 7, 21, {"\1\16\3\4", 4}, AT_INVALID_ARGUMENT, "4 of 7"},
              {S4, 3, 21, {"\1\2\3\4", 4}, AT_INVALID_ARGUMENT, "more than 3"}};
  char text[4096];
  for (size_t r = 0; r < AT_LEN(rows); r++) {
    const dims d = {1, {rows[r].elements}};
    module m = {0};
    at_strbuf i = inst_of("constant", 1, shape_of(rows[r].type, d, NULL));
    at_strbuf l = {0}, s = shape_of(rows[r].type, d, NULL);
    at_proto_write_message(&l, 1, &s);
    at_proto_write_bytes(&l, rows[r].field, rows[r].bytes);
    at_proto_write_message(&i, 8, &l);
    add(&m, i);
    end_comp(&m, "main", 1);
    at_strbuf proto = end_module(&m);
    assert_int_equal(read_text(&proto, text, sizeof text), rows[r].code);
    ASSERT_HAS(text, rows[r].says);
  }
}

// An array whose bytes no number counts is refused, not computed with.
static void test_huge(void **state) {
  module m = {0};
  char text[4096];
  const int64_t most = INT64_MAX;
  add(&m, param_of(1, 0, shape_of(F32, (dims){2, {most, most}}, NULL)));
  end_comp(&m, "main", 1);
  at_strbuf proto = end_module(&m);
  assert_int_equal(read_text(&proto, text, sizeof text), AT_INVALID_ARGUMENT);
  ASSERT_HAS(text, "too large");
}

// Code and message of what a single instruction can get wrong.
static void test_refusals(void **state) {
  static const struct {
    const char *opcode;
    int64_t operand, type;
    at_code code;
    const char *says;
  } cases[] = {{"infeed", 1, F32, AT_UNIMPLEMENTED, "\"infeed\""},
               {"no-such-thing", 1, F32, AT_UNIMPLEMENTED, "no-such-thing"},
               {"negate", 7, F32, AT_INVALID_ARGUMENT, "id 7"},
               {"negate", 2, F32, AT_INVALID_ARGUMENT, "before its definition"},
               {"negate", 1, S32, AT_INVALID_ARGUMENT, "negate"},
               {"negate", 1, 14, AT_UNIMPLEMENTED, "opaque"},
               {"negate", 1, 99, AT_UNIMPLEMENTED, "99"},
               {"call", 1, F32, AT_INVALID_ARGUMENT, "called computation 0"}};
  for (size_t k = 0; k < AT_LEN(cases); k++) {
    module m = {0};
    char text[4096];
    add(&m, param_of(1, 0, shape_of(F32, (dims){1, {3}}, NULL)));
    at_strbuf i = inst_of(cases[k].opcode, 2,
                          shape_of(cases[k].type, (dims){1, {3}}, NULL));
    operand(&i, cases[k].operand);
    add(&m, i);
    end_comp(&m, "main", 2);
    at_strbuf proto = end_module(&m);
    assert_int_equal(read_text(&proto, text, sizeof text), cases[k].code);
    ASSERT_HAS(text, cases[k].says);
  }
}

// The start indices of both dynamic slices as one vector.
static void test_index_vectors(void **state) {
  char text[8192];
  for (int update = 0; update < 2; update++)
    for (int64_t have = 1; have <= 3; have++) {
      module m = {0};
      const int64_t sizes[] = {2, 3};
      add(&m, param_of(1, 0, shape_of(F32, (dims){2, {8, 9}}, NULL)));
      add(&m, param_of(2, 1, shape_of(F32, (dims){2, {2, 3}}, NULL)));
      add(&m, param_of(3, 2, shape_of(S32, (dims){1, {have}}, NULL)));
      at_strbuf i = update ? inst_of("dynamic-update-slice", 4,
                                     shape_of(F32, (dims){2, {8, 9}}, NULL))
                           : inst_of("dynamic-slice", 4,
                                     shape_of(F32, (dims){2, {2, 3}}, NULL));
      operand(&i, 1);
      if (update) operand(&i, 2);
      operand(&i, 3);
      if (!update) at_proto_write_ints(&i, 20, (at_dims){sizes, 2});
      add(&m, i);
      end_comp(&m, "main", 4);
      at_strbuf proto = end_module(&m);
      at_code code = read_text(&proto, text, sizeof text);
      assert_int_equal(code, have == 2 ? AT_OK_CODE : AT_INVALID_ARGUMENT);
      if (have == 2) {
        ASSERT_HAS(text, "start_indices=[1], limit_indices=[2]");
        ASSERT_HAS(text, update ? "dynamic_update_slice" : "dynamic_slice");
      } else {
        ASSERT_HAS(text, "start indices, the operand's rank is 2");
      }
    }
}

// A copy under way whose shape claims many arrays, each with a sharding, gives
// one value: what is kept of results must not follow the claim.
static void test_claims_of_futures(void **state) {
  enum { CLAIMED = 3000 };
  for (int tuple = 0; tuple < 2; tuple++) {
    module m = {0};
    char text[4096];
    at_strbuf shape = {0}, sharding = {0};
    add(&m, param_of(1, 0, shape_of(F32, (dims){1, {3}}, NULL)));
    at_proto_write_int(&shape, 2, 13);
    for (int k = 0; k < CLAIMED; k++) {
      at_strbuf one = shape_of(F32, (dims){1, {3}}, NULL);
      at_proto_write_message(&shape, 4, &one);
    }
    at_strbuf i = inst_of("copy-start", 2, shape);
    operand(&i, 1);
    at_proto_write_int(&sharding, 2, 1);  // replicated, not empty
    at_proto_write_message(&i, 40, &sharding);
    add(&m, i);
    at_strbuf whole = {0}, one = shape_of(F32, (dims){1, {3}}, NULL);
    at_proto_write_int(&whole, 2, 13);
    at_proto_write_message(&whole, 4, &one);
    i = inst_of("tuple", 3, whole);
    operand(&i, 2);
    add(&m, i);
    end_comp(&m, "main", tuple ? 3 : 2);
    at_strbuf proto = end_module(&m);
    at_code code = read_text(&proto, text, sizeof text);
    assert_int_equal(code, tuple ? AT_OK_CODE : AT_INVALID_ARGUMENT);
    if (!tuple) ASSERT_HAS(text, "declares 3000 arrays");
  }
}

// Calls that XLA's compilers make for themselves are refused by name.
static void test_private_calls_are_named(void **state) {
  module m = {0};
  char text[4096];
  add(&m, param_of(1, 0, shape_of(F32, (dims){1, {3}}, NULL)));
  at_strbuf i = inst_of("custom-call", 2, shape_of(F32, (dims){1, {3}}, NULL));
  operand(&i, 1);
  at_proto_write_bytes(&i, 28, AT_STR("__onednn$matmul"));
  add(&m, i);
  end_comp(&m, "main", 2);
  at_strbuf proto = end_module(&m);
  assert_int_equal(read_text(&proto, text, sizeof text), AT_UNIMPLEMENTED);
  ASSERT_HAS(text, "`__onednn$matmul` is private");
}

// Devices 0..7 as [4,2], groups along the first axis.
static void test_iota_groups(void **state) {
  module m = {0};
  char text[4096];
  add(&m, param_of(1, 0, shape_of(F32, (dims){1, {3}}, NULL)));
  at_strbuf i = inst_of("all-gather", 2, shape_of(F32, (dims){1, {12}}, NULL));
  at_strbuf groups = {0};
  operand(&i, 1);
  at_proto_write_int(&groups, 1, 2);
  at_proto_write_int(&groups, 2, 4);
  at_proto_write_ints(&groups, 3, (at_dims){(int64_t[]){4, 2}, 2});
  at_proto_write_ints(&groups, 4, (at_dims){(int64_t[]){1, 0}, 2});
  at_proto_write_message(&i, 92, &groups);
  at_proto_write_ints(&i, 14, (at_dims){(int64_t[]){0}, 1});
  at_proto_write_int(&i, 26, 1);
  at_proto_write_int(&i, 71, 1);
  add(&m, i);
  end_comp(&m, "main", 2);
  at_strbuf proto = end_module(&m);
  assert_int_equal(read_text(&proto, text, sizeof text), AT_OK_CODE);
  ASSERT_HAS(text, "replica_groups=[[0,2,4,6],[1,3,5,7]]");
}

// The seeds of the fuzz target are modules of jaxlib's: cut anywhere, they are
// refused or read, and never anything else.
static void test_cut_anywhere(void **state) {
  module m = {0};
  add(&m, param_of(1, 0, shape_of(F32, (dims){2, {2, 3}}, NULL)));
  at_strbuf i = inst_of("negate", 2, shape_of(F32, (dims){2, {2, 3}}, NULL));
  operand(&i, 1);
  add(&m, i);
  end_comp(&m, "main", 2);
  at_strbuf proto = end_module(&m);
  at_bytes whole = {(const uint8_t *)proto.ptr, proto.len};
  assert_true(at_hloproto_is(whole));
  for (size_t n = 0; n < whole.len; n++) {
    at_arena *a = at_arena_create();
    at_module *out;
    at_status s =
        at_hloproto_read((at_bytes){whole.ptr, n}, AT_HLOPROTO_MODULE, a, &out);
    assert_int_not_equal(at_code_take(s), AT_INTERNAL);
    at_arena_destroy(a);
  }
  at_strbuf_free(&proto);
}

// Sum of `field` over the messages in field `number` that have field `where`.
static uint64_t sum_of(at_bytes list, uint32_t number, uint32_t field,
                       uint32_t where) {
  uint64_t sum = 0;
  for (at_proto_field f; at_proto_next(&list, &f);)
    if (f.number == number && at_proto_has(f.bytes, where))
      sum += at_proto_uint(f.bytes, field);
  return sum;
}

// Buffers of arguments, results and temporaries; what these leave of their
// memory is a buffer, too.
static void test_buffers(void **state) {
  static const char text[] =
      "hlo module \"m\" entry=\"main\" {\n"
      "func \"main\" (%0: f32[4], %1: f32[4]) -> (f32[4]) {\n"
      "  %2 = add %0, %1 : f32[4]\n  %3 = multiply %2, %1 : f32[4]\n"
      "  return %3\n}\n}\n";
  at_arena *a = at_arena_create();
  at_module *m;
  assert_int_equal(at_code_take(at_hlo_parse(at_str_of(text), a, &m)), 0);
  at_node *add = m->entry->results[0].node->operands[0].node;
  at_hloproto_temp temp = {
      .value = {add, 0}, .name = "add", .bytes = 16, .begin = 1, .end = 2};
  at_hloproto_memory memory = {
      .temps = &temp, .num_temps = 1, .temp_bytes = 80};
  at_hloproto_write_options o = {.memory = &memory};
  at_strbuf b = {0}, name = {0};
  assert_int_equal(at_code_take(at_hloproto_write(m, &o, &b)), 0);
  at_bytes all = {(const uint8_t *)b.ptr, b.len};
  at_bytes buffers = at_proto_bytes(all, 3);
  assert_int_equal(sum_of(buffers, 3, 2, 5), 32);  // arguments
  assert_int_equal(sum_of(buffers, 3, 2, 7), 16);  // the result
  // 16 + 80 beside them: the temporary and 64 bytes of scratch fill theirs.
  assert_int_equal(sum_of(buffers, 3, 2, 2), 32 + 16 + 80);
  assert_int_equal(sum_of(buffers, 1, 2, 2), 32 + 16 + 80);
  // When each lives: of the whole module, in the last allocation.
  at_bytes trace = at_proto_bytes(buffers, 4);
  assert_int_equal(at_proto_uint(trace, 2), 1);
  assert_int_equal(at_proto_uint(trace, 3), 3);
  at_hloproto_name(add, &name);
  assert_non_null(memmem(b.ptr, b.len, name.ptr, name.len));
  assert_non_null(memmem(b.ptr, b.len, "kernel_scratch", 14));
  // In a target's layout.
  static const uint64_t params[] = {512, 1024}, results[] = {2048};
  memory.param_bytes = params;
  memory.result_bytes = results;
  at_strbuf padded = {0};
  assert_int_equal(at_code_take(at_hloproto_write(m, &o, &padded)), 0);
  all = (at_bytes){(const uint8_t *)padded.ptr, padded.len};
  buffers = at_proto_bytes(all, 3);
  assert_int_equal(sum_of(buffers, 3, 2, 5), 512 + 1024);
  assert_int_equal(sum_of(buffers, 3, 2, 7), 2048);
  at_strbuf_free(&padded);
  at_strbuf_free(&name);
  at_strbuf_free(&b);
  at_arena_destroy(a);
}

// A result that takes an argument's buffer has no allocation of its own: the
// argument's lives on. What lies in the host's memory is told apart, and
// without temporaries nothing is said of when they live.
static void test_donated(void **state) {
  static const char text[] =
      "hlo module \"m\" entry=\"main\" {\n"
      "func \"main\" (%0: f32[4], %1: f32[4]) -> (f32[4]) {\n"
      "  %2 = add %0, %1 : f32[4]\n  return %2\n}\n}\n";
  at_arena *a = at_arena_create();
  at_module *m, *again;
  assert_int_equal(at_code_take(at_hlo_parse(at_str_of(text), a, &m)), 0);
  at_io_info params[2] = {{.alias = 0},
                          {.alias = -1,
                           .donor = true,
                           .memory_kind = "pinned_host"}},
             results[1] = {{.alias = 0}};
  at_loc where = {.name = "x", .file = "a.py", .line = 7};
  m->params = params;
  m->results = results;
  m->entry->params[0]->loc = &where;
  at_hloproto_memory memory = {0};
  at_hloproto_write_options o = {.memory = &memory};
  at_strbuf b = {0}, whole = {0};
  assert_int_equal(at_code_take(at_hloproto_write(m, &o, &b)), 0);
  at_bytes buffers = at_proto_bytes((at_bytes){(uint8_t *)b.ptr, b.len}, 3);
  assert_int_equal(sum_of(buffers, 3, 2, 5), 32);  // arguments
  assert_int_equal(sum_of(buffers, 3, 2, 7), 16);  // what lives on
  assert_int_equal(sum_of(buffers, 3, 2, 2), 32);  // all
  assert_false(at_proto_has(buffers, 4));
  // The reader is told of both.
  o.memory = NULL;
  assert_int_equal(at_code_take(at_hloproto_write(m, &o, &whole)), 0);
  assert_int_equal(
      at_code_take(at_hloproto_read((at_bytes){(uint8_t *)whole.ptr, whole.len},
                                    AT_HLOPROTO_UNKNOWN, a, &again)),
      0);
  assert_int_equal(again->params[0].alias, 0);
  assert_int_equal(again->params[1].alias, -1);
  assert_true(again->params[1].donor);
  const at_loc *source = at_loc_source(again->entry->params[0]->loc);
  assert_non_null(source);
  assert_string_equal(source->file, "a.py");
  assert_int_equal(source->line, 7);
  assert_null(again->params[0].memory_kind);
  assert_string_equal(again->params[1].memory_kind, "pinned_host");
  // The other way round: numbers are those of the parameters.
  params[0] = (at_io_info){.alias = -1, .donor = true};
  params[1] = (at_io_info){.alias = 0};
  at_strbuf_free(&whole);
  whole = (at_strbuf){0};
  assert_int_equal(at_code_take(at_hloproto_write(m, &o, &whole)), 0);
  assert_int_equal(
      at_code_take(at_hloproto_read((at_bytes){(uint8_t *)whole.ptr, whole.len},
                                    AT_HLOPROTO_UNKNOWN, a, &again)),
      0);
  assert_int_equal(again->params[0].alias, -1);
  assert_true(again->params[0].donor);
  assert_int_equal(again->params[1].alias, 0);
  at_strbuf_free(&whole);
  at_strbuf_free(&b);
  at_arena_destroy(a);
}

// The computation, or the instruction, that is of a thread; no bytes: none.
static at_bytes of_thread(at_bytes list, uint32_t number, uint32_t field) {
  for (at_proto_field f; at_proto_next(&list, &f);)
    if (f.number == number && at_proto_has(f.bytes, field)) return f.bytes;
  return (at_bytes){0};
}

// A gather that the client wants on SparseCores, where the target has any; what
// was written so is the gather again.
static void test_offloaded(void **state) {
  static const char text[] =
      "hlo module \"m\" entry=\"main\" {\n"
      "func \"main\" (%0: f32[10,4], %1: i32[3,1]) -> (f32[3,4]) {\n"
      "  %2 = gather %0, %1 {slice_sizes=[1,4], offset_dims=[1], "
      "collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1, "
      "frontend_attributes={\"_xla_compute_type\"=\"sparseoffload\"}} : "
      "f32[3,4]\n  return %2\n}\n}\n";
  at_arena *a = at_arena_create();
  at_module *m, *again;
  assert_int_equal(at_code_take(at_hlo_parse(at_str_of(text), a, &m)), 0);
  at_hloproto_write_options o = {.sparse_cores = true};
  at_strbuf b = {0}, plain = {0}, back = {0};
  assert_int_equal(at_code_take(at_hloproto_write(m, &o, &b)), 0);
  at_bytes all = {(const uint8_t *)b.ptr, b.len};
  at_bytes module = at_proto_bytes(all, 1), comp = of_thread(module, 3, 8);
  at_bytes main = {0};
  for (at_proto_field f; at_proto_next(&module, &f);)
    if (f.number == 3) main = f.bytes;  // the last
  at_bytes start = of_thread(main, 2, 79);
  assert_true(at_str_is(at_proto_str(start, 2), "async-start"));
  assert_true(at_str_is(at_proto_str(start, 79), "sparsecore"));
  assert_true(at_str_is(at_proto_str(comp, 8), "sparsecore"));
  assert_int_equal(
      at_code_take(at_hloproto_read(all, AT_HLOPROTO_WITH_CONFIG, a, &again)),
      0);
  assert_int_equal(at_code_take(at_hlo_print(again, &back)), 0);
  ASSERT_HAS(back.ptr, "= gather ");
  o.sparse_cores = false;
  assert_int_equal(at_code_take(at_hloproto_write(m, &o, &plain)), 0);
  assert_null(memmem(plain.ptr, plain.len, "async-start", 11));
  at_strbuf_free(&plain);
  at_strbuf_free(&back);
  at_strbuf_free(&b);
  at_arena_destroy(a);
}

// A kernel has its name there, of letters that names have.
static void test_kernel_name(void **state) {
  static const char text[] =
      "hlo module \"m\" entry=\"main\" {\n"
      "func \"main\" (%0: f32[4]) -> (f32[4]) {\n"
      "  %1 = custom_call %0 {call_target_name=\"tpu_custom_call\", "
      "kernel_name=\"<lambda> 7\"} : f32[4]\n"
      "  %2 = negate %1 : f32[4]\n  return %2\n}\n}\n";
  at_arena *a = at_arena_create();
  at_module *m;
  assert_int_equal(at_code_take(at_hlo_parse(at_str_of(text), a, &m)), 0);
  at_strbuf b = {0};
  assert_int_equal(
      at_code_take(at_hloproto_write(m, &(at_hloproto_write_options){0}, &b)),
      0);
  assert_non_null(memmem(b.ptr, b.len, "_lambda__7.2", 12));
  assert_non_null(memmem(b.ptr, b.len, "negate.3", 8));
  at_strbuf_free(&b);
  at_arena_destroy(a);
}

// Texts and MLIR bytecode are not taken for protos.
static void test_looks(void **state) {
  static const char *const others[] = {"",
                                       "\n",
                                       "\nmodule @m {\n}\n",
                                       "hlo module \"m\"",
                                       "ML\xefR\x06",
                                       "HloModule m\n"};
  for (size_t i = 0; i < AT_LEN(others); i++)
    assert_false(at_hloproto_is(
        (at_bytes){(const uint8_t *)others[i], strlen(others[i])}));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bitcast_follows_layouts),
      cmocka_unit_test(test_literals_follow_layouts),
      cmocka_unit_test(test_narrow_literals),
      cmocka_unit_test(test_huge),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_index_vectors),
      cmocka_unit_test(test_claims_of_futures),
      cmocka_unit_test(test_private_calls_are_named),
      cmocka_unit_test(test_iota_groups),
      cmocka_unit_test(test_cut_anywhere),
      cmocka_unit_test(test_buffers),
      cmocka_unit_test(test_donated),
      cmocka_unit_test(test_offloaded),
      cmocka_unit_test(test_kernel_name),
      cmocka_unit_test(test_looks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
