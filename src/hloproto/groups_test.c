// Replica groups along axes of meshes against a plain reading of what they
// mean: the position in the mesh is a list of numbers, one for each axis; a
// reference names a part of one of them; devices whose positions differ in such
// parts alone are one group.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>

#include "hlo/hlo.h"
#include "hloproto/hloproto_internal.h"

enum { MOST_DEVICES = 64, MOST_AXES = 3, MOST_REFS = 3 };

// A part of an axis: the numbers between `pre` major parts and what is left
// below; size 0: all of it.
typedef struct ref {
  int64_t axis, pre, size;
} ref;

typedef struct sample {
  int64_t axes[MOST_AXES];  // ends with 0
  ref refs[MOST_REFS];      // `num` of them
  uint32_t num;
  int64_t devices[MOST_DEVICES];  // of the positions; all 0: in their order
} sample;

static uint32_t num_axes(const sample *s) {
  uint32_t n = 0;
  while (n < MOST_AXES && s->axes[n]) n++;
  return n;
}

static int64_t num_positions(const sample *s) {
  int64_t n = 1;
  for (uint32_t k = 0; k < num_axes(s); k++) n *= s->axes[k];
  return n;
}

// What a group has in common, and what tells its devices apart, both in the
// order in which they sort.
typedef struct place {
  int64_t rest[MOST_AXES], own[MOST_REFS], device;
} place;

static place place_of(const sample *s, int64_t position) {
  place p = {.device = s->devices[1] || s->devices[0] ? s->devices[position]
                                                      : position};
  for (uint32_t k = num_axes(s); k-- > 0; position /= s->axes[k])
    p.rest[k] = position % s->axes[k];
  for (uint32_t r = 0; r < s->num; r++) {
    const ref *f = s->refs + r;
    int64_t size = s->axes[f->axis],
            below = f->size ? size / f->pre / f->size : 1;
    // The number of the whole axis, before other references took their parts.
    int64_t whole = p.rest[f->axis];
    p.own[r] = whole / below % (f->size ? f->size : size);
  }
  for (uint32_t r = 0; r < s->num; r++) {
    const ref *f = s->refs + r;
    p.rest[f->axis] -=
        p.own[r] * (f->size ? s->axes[f->axis] / f->pre / f->size : 1);
  }
  return p;
}

static int by_place(const void *a, const void *b) {
  const place *x = a, *y = b;
  int c = 0;
  for (int k = 0; k < MOST_AXES && !c; k++)
    c = (x->rest[k] > y->rest[k]) - (x->rest[k] < y->rest[k]);
  for (int k = 0; k < MOST_REFS && !c; k++)
    c = (x->own[k] > y->own[k]) - (x->own[k] < y->own[k]);
  return c;
}

static void expected(const sample *s, at_strbuf *out) {
  place all[MOST_DEVICES];
  int64_t n = num_positions(s);
  assert_true(n <= MOST_DEVICES);
  for (int64_t i = 0; i < n; i++) all[i] = place_of(s, i);
  qsort(all, (size_t)n, sizeof *all, by_place);
  at_strbuf_addz(out, "replica_groups=[");
  for (int64_t i = 0; i < n; i++) {
    bool begins =
        !i || memcmp(all[i].rest, all[i - 1].rest, sizeof all[i].rest) != 0;
    at_strbuf_addf(out, "%s%s%lld", begins ? (i ? "],[" : "[") : ",", "",
                   (long long)all[i].device);
  }
  at_strbuf_addz(out, "]]");
}

// ---- The message

static void put_mesh(const sample *s, at_strbuf *inst) {
  at_strbuf groups = {0}, mesh = {0};
  for (uint32_t k = 0; k < num_axes(s); k++) {
    at_strbuf axis = {0};
    at_proto_write_bytes(&axis, 1, AT_STR("a"));
    at_proto_write_int(&axis, 2, (uint64_t)s->axes[k]);
    at_proto_write_message(&mesh, 1, &axis);
  }
  if (s->devices[0] || s->devices[1])
    at_proto_write_ints(&mesh, 2,
                        (at_dims){s->devices, (uint32_t)num_positions(s)});
  at_proto_write_message(&groups, 1, &mesh);
  for (uint32_t r = 0; r < s->num; r++) {
    at_strbuf one = {0}, part = {0};
    at_proto_write_int(&one, 1, (uint64_t)s->refs[r].axis);
    if (s->refs[r].size) {
      at_proto_write_int(&part, 1, (uint64_t)s->refs[r].pre);
      at_proto_write_int(&part, 2, (uint64_t)s->refs[r].size);
      at_proto_write_message(&one, 2, &part);
    }
    at_proto_write_message(&groups, 2, &one);
  }
  at_proto_write_message(inst, 93, &groups);
}

static at_strbuf inst_of(const char *opcode, int64_t id) {
  at_strbuf b = {0}, shape = {0}, layout = {0};
  at_proto_write_bytes(&b, 1, at_str_of(opcode));
  at_proto_write_bytes(&b, 2, at_str_of(opcode));
  at_proto_write_int(&shape, 2, 11);
  at_proto_write_ints(&shape, 3, (at_dims){(int64_t[]){3}, 1});
  at_proto_write_ints(&layout, 1, (at_dims){(int64_t[]){0}, 1});
  at_proto_write_message(&shape, 5, &layout);
  at_proto_write_message(&b, 3, &shape);
  at_proto_write_int(&b, 35, (uint64_t)id);
  return b;
}

// A program of one collective-broadcast with those groups, read and printed.
static at_code read_groups(const sample *s, at_strbuf *text) {
  at_strbuf comp = {0}, m = {0};
  at_strbuf param = inst_of("parameter", 1);
  at_strbuf cast = inst_of("collective-broadcast", 2);
  at_proto_write_int(&param, 9, 0);
  at_proto_write_message(&comp, 2, &param);
  at_proto_write_ints(&cast, 36, (at_dims){(int64_t[]){1}, 1});
  put_mesh(s, &cast);
  at_proto_write_message(&comp, 2, &cast);
  at_proto_write_bytes(&comp, 1, AT_STR("main"));
  at_proto_write_int(&comp, 5, 1);
  at_proto_write_int(&comp, 6, 2);
  at_proto_write_bytes(&m, 1, AT_STR("m"));
  at_proto_write_message(&m, 3, &comp);
  at_proto_write_int(&m, 6, 1);
  at_arena *a = at_arena_create();
  at_module *out;
  at_status st = at_hloproto_read((at_bytes){(const uint8_t *)m.ptr, m.len},
                                  AT_HLOPROTO_MODULE, a, &out);
  if (at_ok(st)) st = at_hlo_print(out, text);
  if (!at_ok(st)) at_strbuf_addz(text, at_status_message(st));
  at_arena_destroy(a);
  at_strbuf_free(&m);
  return at_code_take(st);
}

static void check(const sample *s) {
  at_strbuf text = {0}, want = {0};
  at_code code = read_groups(s, &text);
  expected(s, &want);
  if (code || !strstr(text.ptr, want.ptr))
    fail_msg("no `%s` in\n%s", want.ptr, text.ptr);
  at_strbuf_free(&text);
  at_strbuf_free(&want);
}

// Every list of one or two whole axes, in both orders.
static void whole_axes(void **state) {
  static const int64_t meshes[][MOST_AXES] = {
      {4}, {2, 3}, {3, 1, 2}, {2, 4, 3}, {1, 5}};
  for (size_t m = 0; m < AT_LEN(meshes); m++) {
    sample s = {.num = 1};
    memcpy(s.axes, meshes[m], sizeof s.axes);
    int64_t n = num_axes(&s);
    for (int64_t a = 0; a < n; a++) {
      s.refs[0].axis = a;
      s.num = 1;
      check(&s);
      for (int64_t b = 0; b < n; b++) {
        s.refs[1].axis = b;
        s.num = 2;
        if (a != b) check(&s);
      }
    }
  }
}

// Every part of an axis of 12 between axes of 2, alone and after another axis.
static void parts_of_an_axis(void **state) {
  for (int64_t pre = 1; pre <= 12; pre++)
    for (int64_t size = 2; pre * size <= 12; size++) {
      if (12 % (pre * size)) continue;
      sample s = {.axes = {2, 12, 2}, .refs = {{1, pre, size}}, .num = 1};
      check(&s);
      s.refs[1] = (ref){.axis = 0};
      s.num = 2;
      check(&s);
    }
}

// Two parts of one axis, major and minor first, with what lies between them in
// no reference.
static void two_parts(void **state) {
  for (int64_t pre = 2; pre <= 6; pre += 2) {
    if (12 % (pre * 2)) continue;
    sample s = {.axes = {12, 2}, .refs = {{0, 1, 2}, {0, pre, 2}}, .num = 2};
    check(&s);
    s = (sample){.axes = {12, 2}, .refs = {{0, pre, 2}, {0, 1, 2}}, .num = 2};
    check(&s);
  }
}

static void listed_devices(void **state) {
  sample s = {.axes = {2, 3},
              .refs = {{.axis = 1}},
              .num = 1,
              .devices = {5, 3, 1, 0, 2, 4}};
  check(&s);
}

// Axes that are not there, parts that do not divide theirs, the same one twice.
static void refused(void **state) {
  static const sample bad[] = {
      {.axes = {4, 2}, .refs = {{.axis = 2}}, .num = 1},
      {.axes = {4, 2}, .refs = {{0, 3, 2}}, .num = 1},
      {.axes = {4, 2}, .refs = {{0, 2, 4}}, .num = 1},
      {.axes = {4, 2}, .refs = {{.axis = 1}, {.axis = 1}}, .num = 2},
      {.axes = {4, 2}, .refs = {{0, 0, 2}}, .num = 1},
  };
  for (size_t i = 0; i < AT_LEN(bad); i++) {
    at_strbuf text = {0};
    assert_int_equal(read_groups(bad + i, &text), AT_INVALID_ARGUMENT);
    if (!strstr(text.ptr, "axes that the mesh does not have"))
      fail_msg("%s", text.ptr);
    at_strbuf_free(&text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_axes), cmocka_unit_test(parts_of_an_axis),
      cmocka_unit_test(two_parts),  cmocka_unit_test(listed_devices),
      cmocka_unit_test(refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
