// A session from start to both of its formats.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/json.h"
#include "base/protobuf.h"
#include "profile/profile.h"

// An event of launch 9 with a detail and a source.
static void record(uint32_t chip, uint32_t kind, uint64_t start, uint64_t end,
                   const char *name) {
  at_profile_record(&(at_profile_event){.start_ns = start,
                                        .end_ns = end,
                                        .kind = kind,
                                        .chip = chip,
                                        .launch_id = 9,
                                        .name = name,
                                        .detail = "add.1",
                                        .source = "f.py:3"});
}

// Checks the nesting of a message and counts the fields with number `field`.
static size_t count_fields(at_str m, uint32_t field, at_str *first) {
  const uint8_t *p = (const uint8_t *)m.ptr, *end = p + m.len;
  size_t n = 0;
  while (p < end) {
    uint64_t v[2] = {0, 0};
    for (int k = 0; k < 2; k++)
      for (int shift = 0;; shift += 7) {
        assert_true(p < end && shift < 64);
        v[k] |= (uint64_t)(*p & 127) << shift;
        if (!(*p++ & 128)) break;
      }
    bool bytes = (v[0] & 7) == 2;
    assert_true(bytes || (v[0] & 7) == 0);
    if (v[0] >> 3 == field && n++ == 0 && first)
      *first = (at_str){(const char *)p, bytes ? v[1] : 0};
    if (bytes) {
      assert_true(v[1] <= (size_t)(end - p));
      p += v[1];
    }
  }
  return n;
}

// Before, during and after a session; one event too many; both formats.
static void sessions_record_and_export(void **state) {
  at_profile *p;
  record(0, AT_PROFILE_OP, 1, 2, "ignored");
  assert_int_equal(at_code_take(at_profile_stop(&p)), AT_FAILED_PRECONDITION);
  assert_false(at_profile_on());
  assert_int_equal(at_code_take(at_profile_start(3)), 0);
  assert_int_equal(at_code_take(at_profile_start(3)), AT_FAILED_PRECONDITION);
  char name[] = "jit_f \"q\"";
  record(0, AT_PROFILE_MODULE, 1000, 5000, name);
  name[0] = 'X';  // the text was copied
  record(0, AT_PROFILE_OP, 2000, 3500, "add");
  record(2, AT_PROFILE_TRANSFER, 100, 200, "copy");
  record(2, AT_PROFILE_TRANSFER, 100, 200, "too many");
  assert_int_equal(at_code_take(at_profile_stop(&p)), 0);
  size_t n;
  const at_profile_event *e = at_profile_events(p, &n);
  assert_int_equal(n, 3);
  assert_int_equal(at_profile_dropped(p), 1);
  assert_string_equal(e[0].name, "jit_f \"q\"");
  assert_ptr_equal(e[0].detail, e[1].detail);
  at_strbuf x = {0}, t = {0};
  assert_int_equal(at_code_take(at_profile_xspace(p, NULL, &x)), 0);
  at_str plane, line, event;
  assert_int_equal(count_fields(at_strbuf_str(&x), 1, &plane), 2);
  assert_int_equal(count_fields(plane, 3, &line), 2);  // modules, ops
  assert_int_equal(count_fields(plane, 4, NULL), 2);   // two names
  assert_int_equal(count_fields(line, 4, &event), 1);
  assert_int_equal(count_fields(event, 4, NULL), 3);  // stats
  assert_int_equal(at_code_take(at_profile_trace(p, &t)), 0);
  at_arena *a = at_arena_create();
  const at_json *j;
  assert_int_equal(
      at_code_take(at_json_parse((at_bytes){(uint8_t *)t.ptr, t.len}, a, &j)),
      0);
  const at_json *events = at_json_get(j, "traceEvents");
  assert_int_equal(events->len, 3);
  assert_true(at_json_get_num(&events->items[1], "dur", 0) == 1.5);
  at_arena_destroy(a);
  at_strbuf_free(&x);
  at_strbuf_free(&t);
  at_profile_destroy(p);
}

// Each SparseCore of a chip has a line of its own, and each core of a kernel.
static void cores_have_lines(void **state) {
  at_profile *p;
  at_profile_event e[4] = {{.start_ns = 10,
                            .end_ns = 20,
                            .kind = AT_PROFILE_SPARSE,
                            .chip = 1,
                            .name = "lookup",
                            .detail = "",
                            .source = ""}};
  e[1] = e[2] = e[3] = e[0];
  e[1].core = 1, e[2].kind = AT_PROFILE_OP;
  e[3].kind = AT_PROFILE_KERNEL, e[3].core = 1;
  assert_int_equal(at_code_take(at_profile_of(e, 4, &p)), 0);
  at_strbuf x = {0};
  assert_int_equal(at_code_take(at_profile_xspace(p, NULL, &x)), 0);
  at_str plane;
  assert_int_equal(count_fields(at_strbuf_str(&x), 1, &plane), 1);
  assert_int_equal(count_fields(plane, 3, NULL), 4);
  assert_non_null(memmem(x.ptr, x.len, "Kernel core 1", 13));
  assert_non_null(memmem(x.ptr, x.len, "SparseCore 0", 12));
  assert_non_null(memmem(x.ptr, x.len, "SparseCore 1", 12));
  at_strbuf_free(&x);
  at_profile_destroy(p);
}

// The nth field of that number, as bytes.
static at_bytes part(at_bytes m, uint32_t number, size_t n) {
  for (at_proto_field f; at_proto_next(&m, &f);)
    if (f.number == number && n-- == 0) return f.bytes;
  fail_msg("no field %u", number);
  return m;
}
// The value of an event's stat of that name; the event is of the plane.
static uint64_t stat_of(at_bytes plane, at_bytes event, uint32_t field,
                        const char *name) {
  for (at_proto_field s; at_proto_next(&event, &s);) {
    if (s.number != field) continue;
    at_bytes names = plane;
    for (at_proto_field n; at_proto_next(&names, &n);) {
      at_bytes about = n.number == 5 ? at_proto_bytes(n.bytes, 2) : n.bytes;
      if (n.number == 5 && at_str_is(at_proto_str(about, 2), name) &&
          at_proto_uint(about, 1) == at_proto_uint(s.bytes, 1))
        return at_proto_uint(s.bytes, 3) + at_proto_uint(s.bytes, 4);
    }
  }
  return UINT64_MAX;
}

// A launch is a step that consumes the client's call; an op of two kernels is
// one event, with the costs of the op; what is not known of an op is left out.
static void programs_are_told(void **state) {
  at_profile *p;
  const at_profile_event known = {.start_ns = 1100,
                                  .end_ns = 1200,
                                  .kind = AT_PROFILE_OP,
                                  .launch_id = 5,
                                  .program = 77,
                                  .name = "fusion.1 add,multiply"};
  at_profile_event e[5] = {
      {.start_ns = 1000,
       .end_ns = 2000,
       .kind = AT_PROFILE_MODULE,
       .launch_id = 5,
       .program = 77,
       .name = "jit_f"},
      known,
      known,
      known,
      {.kind = AT_PROFILE_CALL, .launch_id = 5, .context = 123}};
  const at_profile_event last = e[4];
  e[4] = e[0], e[0] = last;  // the call comes first
  e[2].start_ns = 1210, e[2].end_ns = 1300, e[2].goes_on = true;
  e[3].start_ns = 1310, e[3].end_ns = 1320, e[3].name = "copy.9";
  at_profile_op op = {.name = "fusion.1",
                      .text = "%fusion.1 = f32[] fusion()",
                      .category = "loop fusion",
                      .scope = "jit(f)/add:",
                      .source = "f.py:1",
                      .flops = 10,
                      .bytes_read = 3,
                      .bytes_written = 4};
  at_profile_module m = {.program = 77,
                         .name = "jit_f",
                         .hlo = AT_STR("a module"),
                         .ops = &op,
                         .num_ops = 1};
  at_profile_chip chip = {.kind = "TPU v6 lite", .flops_per_second = 9e14};
  at_profile_about about = {
      .modules = &m, .chips = &chip, .num_modules = 1, .num_chips = 1};
  assert_int_equal(at_code_take(at_profile_of(e, 5, &p)), 0);
  at_strbuf x = {0};
  assert_int_equal(at_code_take(at_profile_xspace(p, &about, &x)), 0);
  at_bytes space = {(const uint8_t *)x.ptr, x.len};
  at_bytes plane = part(space, 1, 0), steps = part(plane, 3, 0);
  assert_true(at_str_is(at_proto_str(steps, 2), "Steps"));
  at_bytes step = part(steps, 4, 0);
  assert_int_equal(stat_of(plane, step, 4, "_c"), 123);
  assert_int_equal(stat_of(plane, step, 4, "_ct"), 14);
  at_bytes ops = part(plane, 3, 2);
  assert_true(at_str_is(at_proto_str(ops, 2), "XLA Ops"));
  assert_int_equal(at_proto_uint(part(ops, 4, 0), 3), 200 * 1000);
  assert_int_equal(at_proto_uint(part(ops, 4, 1), 3), 10 * 1000);
  assert_int_equal(
      count_fields((at_str){(const char *)ops.ptr, ops.len}, 4, NULL), 2);
  // Metadata: the step's, the module's, the fusion's, the copy's.
  at_bytes first = at_proto_bytes(part(plane, 4, 0), 2);
  assert_true(at_str_is(at_proto_str(first, 2), "0"));
  at_bytes module = at_proto_bytes(part(plane, 4, 1), 2);
  assert_true(at_str_is(at_proto_str(module, 2), "jit_f(77)"));
  assert_true(at_str_is(at_proto_str(module, 4), "jit_f"));
  at_bytes fusion = at_proto_bytes(part(plane, 4, 2), 2);
  assert_true(at_str_is(at_proto_str(fusion, 2), op.text));
  assert_true(at_str_is(at_proto_str(fusion, 4), "fusion.1"));
  assert_int_equal(stat_of(plane, fusion, 5, "program_id"), 77);
  static const char *const texts[] = {"hlo_category", "tf_op", "source"};
  for (size_t i = 0; i < AT_LEN(texts); i++)
    assert_int_equal(stat_of(plane, fusion, 5, texts[i]), 0);  // it is there
  assert_non_null(memmem(x.ptr, x.len, op.category, strlen(op.category)));
  assert_non_null(memmem(x.ptr, x.len, op.scope, strlen(op.scope)));
  assert_int_equal(stat_of(plane, fusion, 5, "flops"), 10);
  assert_int_equal(stat_of(plane, fusion, 5, "bytes_accessed"), 7);
  at_bytes copy = at_proto_bytes(part(plane, 4, 3), 2);
  assert_true(at_str_is(at_proto_str(copy, 4), "copy.9"));
  assert_int_equal(stat_of(plane, copy, 5, "program_id"), 77);
  assert_int_equal(stat_of(plane, copy, 5, "flops"), UINT64_MAX);
  at_bytes programs = part(space, 1, 1);
  assert_true(at_str_is(at_proto_str(programs, 2), "/host:metadata"));
  assert_non_null(memmem(programs.ptr, programs.len, "jit_f(77)", 9));
  assert_non_null(memmem(programs.ptr, programs.len, "a module", 8));
  at_strbuf t = {0};
  assert_int_equal(at_code_take(at_profile_trace(p, &t)), 0);
  assert_null(memmem(t.ptr, t.len, "Steps", 5));  // calls are no intervals
  at_strbuf_free(&t);
  at_strbuf_free(&x);
  at_profile_destroy(p);
}

// Where things stand in a plane: its number and name, its lines' and events'.
static void planes_are_numbered_and_timed(void **state) {
  at_profile *p;
  const at_profile_event op = {.start_ns = 5000,
                               .end_ns = 5500,
                               .kind = AT_PROFILE_OP,
                               .chip = 2,
                               .name = "b"};
  const at_profile_event call = {.kind = AT_PROFILE_CALL, .chip = 2};
  at_profile_event e[] = {op, op, op, call};  // a call is on no line
  e[1].start_ns = 4000, e[1].end_ns = 4200, e[1].name = "a";
  // Begins with the first one and holds it: comes before it.
  e[2].end_ns = 6000, e[2].holds = true, e[2].name = "loop";
  assert_int_equal(at_code_take(at_profile_of(e, 4, &p)), 0);
  const at_profile_chip chips[] = {{.chip = 1, .kind = "another"},
                                   {.chip = 2,
                                    .kind = "TPU v5 lite",
                                    .flops_per_second = 2e12,
                                    .hbm_bytes_per_second = 3e9,
                                    .hbm_bytes = 77}};
  at_profile_about about = {.chips = chips, .num_chips = 2, .plane = "chip "};
  at_strbuf x = {0};
  assert_int_equal(at_code_take(at_profile_xspace(p, &about, &x)), 0);
  at_bytes plane = part((at_bytes){(const uint8_t *)x.ptr, x.len}, 1, 0);
  assert_int_equal(at_proto_uint(plane, 1), 3);
  assert_true(at_str_is(at_proto_str(plane, 2), "chip 2"));
  assert_int_equal(stat_of(plane, plane, 6, "memory_size"), 77);
  // Texts and doubles have no integer: the stat is there and reads as 0.
  assert_int_equal(stat_of(plane, plane, 6, "device_type_string"), 0);
  assert_int_equal(stat_of(plane, plane, 6, "peak_teraflops_per_second"), 0);
  assert_null(memmem(x.ptr, x.len, "another", 7));
  assert_int_equal(
      count_fields((at_str){(const char *)plane.ptr, plane.len}, 3, NULL), 1);
  at_bytes line = part(plane, 3, 0);
  assert_int_equal(at_proto_uint(line, 1), AT_PROFILE_OP + 1);
  assert_int_equal(at_proto_uint(line, 3), 4000);  // Unix time is the clock's
  static const struct {
    const char *name;
    uint64_t start_ns, ns;
  } want[] = {{"a", 0, 200}, {"loop", 1000, 1000}, {"b", 1000, 500}};
  for (size_t i = 0; i < AT_LEN(want); i++) {
    at_bytes event = part(line, 4, i), entry = part(plane, 4, i);
    assert_int_equal(at_proto_uint(event, 2), want[i].start_ns * 1000);
    assert_int_equal(at_proto_uint(event, 3), want[i].ns * 1000);
    // The event's metadata is the map's entry of that key.
    assert_int_equal(at_proto_uint(event, 1), at_proto_uint(entry, 1));
    at_bytes about_it = at_proto_bytes(entry, 2);
    assert_int_equal(at_proto_uint(about_it, 1), at_proto_uint(entry, 1));
    assert_true(at_str_is(at_proto_str(about_it, 2), want[i].name));
  }
  at_strbuf_free(&x);
  at_profile_destroy(p);
}

// Events of several kernels of an op are one only within a launch, and while
// they go on; each kind and core has its own line and nothing else.
static void lines_have_their_own_events(void **state) {
  at_profile *p;
  at_profile_event e[8];
  for (uint32_t i = 0; i < AT_LEN(e); i++)
    e[i] = (at_profile_event){.start_ns = 10 * i + 1,
                              .end_ns = 10 * i + 8,
                              .kind = AT_PROFILE_OP,
                              .launch_id = 1,
                              .name = "f"};
  e[1].goes_on = true;                      // with e[0]
  e[2].goes_on = true, e[2].launch_id = 2;  // another launch
  e[4].goes_on = true;                      // with e[3]
  e[5].kind = AT_PROFILE_TRANSFER, e[5].bytes = 64;
  e[6].kind = AT_PROFILE_SPARSE, e[6].core = 3;
  e[7].kind = AT_PROFILE_MODULE;
  assert_int_equal(at_code_take(at_profile_of(e, AT_LEN(e), &p)), 0);
  at_strbuf x = {0};
  assert_int_equal(at_code_take(at_profile_xspace(p, NULL, &x)), 0);
  at_bytes space = {(const uint8_t *)x.ptr, x.len}, plane = part(space, 1, 0);
  static const struct {
    const char *name;
    size_t events;
  } want[] = {{"XLA Modules", 1},
              {"XLA Ops", 3},
              {"Transfers", 1},
              {"SparseCore 3", 1}};
  assert_int_equal(
      count_fields((at_str){(const char *)plane.ptr, plane.len}, 3, NULL),
      AT_LEN(want));
  for (size_t i = 0; i < AT_LEN(want); i++) {
    at_bytes line = part(plane, 3, i);
    assert_true(at_str_is(at_proto_str(line, 2), want[i].name));
    assert_int_equal(
        count_fields((at_str){(const char *)line.ptr, line.len}, 4, NULL),
        want[i].events);
  }
  at_bytes ops = part(plane, 3, 1), moved = part(part(plane, 3, 2), 4, 0);
  assert_int_equal(at_proto_uint(part(ops, 4, 0), 3), 17 * 1000);  // 1 to 18
  assert_int_equal(at_proto_uint(part(ops, 4, 1), 3), 7 * 1000);
  assert_int_equal(stat_of(plane, moved, 4, "bytes_transferred"), 64);
  assert_int_equal(stat_of(plane, part(ops, 4, 1), 4, "run_id"), 2);
  at_strbuf_free(&x);
  at_profile_destroy(p);
}

// An event whose end is before its start lasts nothing.
static void intervals_are_never_negative(void **state) {
  at_profile *p;
  const at_profile_event e = {
      .start_ns = 5000, .end_ns = 4000, .kind = AT_PROFILE_OP, .name = "f"};
  assert_int_equal(at_code_take(at_profile_of(&e, 1, &p)), 0);
  at_strbuf t = {0};
  assert_int_equal(at_code_take(at_profile_trace(p, &t)), 0);
  assert_non_null(memmem(t.ptr, t.len, "\"dur\":0,", 8));
  at_strbuf_free(&t);
  at_profile_destroy(p);
}

// 1,000 events of one thread.
static void *record_many(void *arg) {
  for (int i = 0; i < 1000; i++) record(0, AT_PROFILE_OP, 1, 2, "op");
  return NULL;
}
// None is lost.
static void threads_record_together(void **state) {
  at_profile *p;
  pthread_t t[4];
  assert_int_equal(at_code_take(at_profile_start(0)), 0);
  for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, record_many, NULL);
  for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
  assert_int_equal(at_code_take(at_profile_stop(&p)), 0);
  size_t n;
  at_profile_events(p, &n);
  assert_int_equal(n, 4000);
  at_profile_destroy(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sessions_record_and_export),
      cmocka_unit_test(cores_have_lines),
      cmocka_unit_test(programs_are_told),
      cmocka_unit_test(planes_are_numbered_and_timed),
      cmocka_unit_test(lines_have_their_own_events),
      cmocka_unit_test(intervals_are_never_negative),
      cmocka_unit_test(threads_record_together),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
