// Random programs under random shardings: the parts of every device, put
// together, are what the program gives on one device.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hlo/random.h"
#include "passes/shard.h"

static uint64_t next_random(uint64_t *s) {
  *s ^= *s << 13;
  *s ^= *s >> 7;
  return *s ^= *s << 17;
}

// ---- Shardings as text -----------------------------------------------------
typedef struct mesh_case {
  const char *text;
  int64_t devices;
  const char *axes[3];
  int64_t sizes[3];
  uint32_t n;
} mesh_case;

static const mesh_case meshes[] = {
    {"@m = #sdy.mesh<[\"x\"=2]>", 2, {"x"}, {2}, 1},
    {"@m = #sdy.mesh<[\"x\"=2, \"y\"=3]>", 6, {"x", "y"}, {2, 3}, 2},
    {"@m = #sdy.mesh<[\"x\"=2, \"y\"=2]>", 4, {"x", "y"}, {2, 2}, 2},
    {"@m = #sdy.mesh<[\"x\"=2, \"y\"=1, \"z\"=4]>",
     8,
     {"x", "y", "z"},
     {2, 1, 4},
     3},
    {"@m = #sdy.mesh<[\"x\"=2, \"y\"=2], device_ids=[3, 1, 0, 2]>",
     4,
     {"x", "y"},
     {2, 2},
     2},
    {"@m = #sdy.mesh<[\"x\"=3]>", 3, {"x"}, {3}, 1},
};

// A sharding that divides t; now and then with an open dimension or a part of
// an axis.
static const char *random_sharding(at_arena *a, const mesh_case *m,
                                   const at_type *t, uint64_t *s) {
  at_strbuf b = {0};
  bool used[3] = {0};
  at_strbuf_addz(&b, "#sdy.sharding<@m, [");
  for (uint32_t d = 0; d < t->rank; d++) {
    int64_t left = t->dims[d];
    bool any = false;
    at_strbuf_addz(&b, d ? ", {" : "{");
    for (int tries = 0; tries < 2; tries++) {
      uint32_t k = (uint32_t)(next_random(s) % m->n);
      if (used[k] || next_random(s) % 4 == 0) continue;
      int64_t size = m->sizes[k];
      bool sub = size == 4 && next_random(s) % 3 == 0;
      if (sub) size = 2;
      if (left % size) continue;
      left /= size;
      used[k] = true;
      at_strbuf_addf(&b, "%s\"%s\"", any ? ", " : "", m->axes[k]);
      if (sub) at_strbuf_addz(&b, next_random(s) % 2 ? ":(1)2" : ":(2)2");
      any = true;
    }
    if (next_random(s) % 5 == 0) at_strbuf_addz(&b, any ? ", ?" : "?");
    at_strbuf_addc(&b, '}');
  }
  at_strbuf_addz(&b, "]>");
  const char *text = at_arena_printf(a, "%.*s", (int)b.len, b.ptr);
  at_strbuf_free(&b);
  return text;
}

// ---- Whole values and parts ------------------------------------------------
// Where part element i lies in the whole: the inverse of cutting, from HLO's
// text.
typedef struct tiling {
  at_cut cut;
  at_place place;
} tiling;

static void read_tiling(at_arena *a, at_module *m, const at_type *whole,
                        const char *text, tiling *t) {
  memset(t, 0, sizeof *t);
  t->cut.m = m;
  assert_true(at_ok(at_cut_meshes(&t->cut)));
  t->place.whole = *whole;
  t->place.dims = at_new(a, at_axes, whole->rank + 1);
  assert_true(at_ok(at_place_parse(&t->cut, at_str_of(text), true, &t->place)));
}

static int64_t position_of(const at_cut *c, int64_t device) {
  if (!c->devices) return device;
  for (int64_t p = 0; p < c->m->num_partitions; p++)
    if (c->devices[p] == device) return p;
  return 0;
}

// Linear index in the whole of element i of the part that `device` holds.
static int64_t whole_index(const tiling *t, const at_type *part, int64_t device,
                           int64_t i) {
  int64_t index[64], p = position_of(&t->cut, device), out = 0;
  for (uint32_t d = part->rank; d-- > 0;) {
    index[d] = i % part->dims[d];
    i /= part->dims[d];
  }
  for (uint32_t d = 0; d < part->rank; d++) {
    int64_t block = 0;
    for (uint32_t k = 0; k < t->place.dims[d].n; k++) {
      uint8_t atom = t->place.dims[d].a[k];
      block = block * t->cut.size[atom] +
              p / t->cut.stride[atom] % t->cut.size[atom];
    }
    out = out * t->place.whole.dims[d] + block * part->dims[d] + index[d];
  }
  return out;
}

static const at_literal *part_of(at_arena *a, const tiling *t,
                                 const at_type *part, int64_t device,
                                 const at_literal *whole) {
  size_t es = at_dtype_bytes(part->dtype);
  uint8_t *data = at_arena_alloc(a, at_type_bytes(part) + 1, 16);
  const at_literal *l;
  for (int64_t i = 0; i < at_type_elements(part); i++)
    memcpy(data + (size_t)i * es,
           at_literal_at(whole, whole_index(t, part, device, i)), es);
  assert_true(at_ok(at_literal_make(a, *part, data, false, true, &l)));
  return l;
}

static bool close_enough(at_dtype t, const void *a, const void *b) {
  if (!at_is_float(t)) return at_load_int(t, a) == at_load_int(t, b);
  double x = at_load_float(t, a), y = at_load_float(t, b);
  // Sums in other orders round elsewhere: a few units of the type's last place.
  double tolerance = t == AT_F64 ? 1e-9 : t == AT_F32 ? 1e-4 : 0.06;
  if (at_dtype_bytes(t) == 1) tolerance = 0.5;
  if (x == y || (isnan(x) && isnan(y))) return true;
  return fabs(x - y) <= tolerance * (1 + fmax(fabs(x), fabs(y)));
}

static void compare(const tiling *t, const at_literal *part, int64_t device,
                    const at_literal *whole, uint64_t seed, uint32_t result) {
  at_dtype real = at_real_of(part->type.dtype);
  size_t step = at_dtype_bytes(real);
  int parts = at_is_complex(part->type.dtype) ? 2 : 1;
  for (int64_t i = 0; i < at_type_elements(&part->type); i++)
    for (int k = 0; k < parts; k++)
      if (!close_enough(
              real, (const uint8_t *)at_literal_at(part, i) + (size_t)k * step,
              (const uint8_t *)at_literal_at(
                  whole, whole_index(t, &part->type, device, i)) +
                  (size_t)k * step))
        fail_msg("seed %llu: result %u differs on device %lld at %lld",
                 (unsigned long long)seed, result, (long long)device,
                 (long long)i);
}

// ---- One program -----------------------------------------------------------
static void add_shardings(at_arena *a, at_module *m, const mesh_case *mesh,
                          uint64_t *s) {
  at_comp *e = m->entry;
  m->mesh_text = mesh->text;
  m->num_partitions = mesh->devices;
  m->num_replicas = 1;
  if (!m->params) m->params = at_new(a, at_io_info, e->num_params + 1);
  if (!m->results) m->results = at_new(a, at_io_info, e->num_results + 1);
  for (uint32_t i = 0; i < e->num_params; i++) {
    m->params[i].alias = -1;
    m->params[i].open = next_random(s) % 3 == 0;
    m->params[i].sharding = NULL;
    if (next_random(s) % 4)
      m->params[i].sharding =
          random_sharding(a, mesh, &e->params[i]->types[0], s);
  }
  for (uint32_t i = 0; i < e->num_results; i++) {
    m->results[i].alias = -1;
    m->results[i].open = next_random(s) % 2 == 0;
    m->results[i].sharding = NULL;
    if (next_random(s) % 2)
      m->results[i].sharding =
          random_sharding(a, mesh, at_value_type(e->results[i]), s);
  }
  AT_FOR_NODES(n, e)
  if (n->num_results == 1 && n->types[0].dtype != AT_TOKEN &&
      next_random(s) % 8 == 0 && n->op != AT_OP_PARAMETER) {
    at_attr x = {.id = AT_ATTR_SHARDING};
    x.s = at_str_of(random_sharding(a, mesh, &n->types[0], s));
    assert_true(at_ok(at_node_set_attr(n, x)));
  }
}

// Means something else on several devices: draws, and groups of one device.
static bool is_alone(const at_comp *c) {
  AT_FOR_NODES(n, c) {
    if (n->op == AT_OP_RNG || at_op_is(n->op, AT_COLLECTIVE)) return true;
    for (uint32_t i = 0; i < n->num_regions; i++)
      if (is_alone(n->regions[i])) return true;
  }
  return false;
}

static uint64_t collectives, programs;

static void check(uint64_t seed, uint32_t nodes, uint32_t families) {
  at_arena *a = at_arena_create();
  uint64_t s = seed * 0x9e3779b97f4a7c15ull + 1;
  const mesh_case *mesh = &meshes[next_random(&s) % AT_LEN(meshes)];
  at_random_options ro = {
      .seed = seed, .nodes = nodes, .max_elements = 400, .families = families};
  at_module *before, *after;
  at_pass_options o = {.fuse = true, .fold_budget = 1 << 16};
  assert_true(at_ok(at_random_module(a, &ro, &before)));
  assert_true(at_ok(at_random_module(a, &ro, &after)));
  assert_true(at_ok(at_pass_inline(before, &o)));
  assert_true(at_ok(at_pass_inline(after, &o)));
  if (is_alone(before->entry)) {
    at_arena_destroy(a);
    return;
  }
  add_shardings(a, after, mesh, &s);
  at_status st = at_pass_partition(after, &o);
  if (at_ok(st)) st = at_pass_combine(after, &o);
  if (!st.err) st = at_verify(after, "partition");
  if (st.err)
    fail_msg("seed %llu: %s", (unsigned long long)seed, at_status_message(st));
  AT_FOR_NODES(n, after->entry) collectives += at_op_is(n->op, AT_COLLECTIVE);
  programs++;

  uint32_t np = before->entry->num_params, nr = before->entry->num_results;
  const at_literal **whole_args,
      **whole_out = at_new(a, const at_literal *, nr + 1);
  assert_true(
      at_ok(at_random_args(a, before->entry, seed, false, &whole_args)));
  at_eval_options opt = {.custom = at_eval_linalg_custom};
  st = at_eval(before->entry, whole_args, &opt, a, whole_out);
  if (st.err)
    fail_msg("seed %llu: %s", (unsigned long long)seed, at_status_message(st));
  const at_literal *const *args[8];
  const at_literal **out[8];
  tiling t;
  for (int64_t d = 0; d < mesh->devices; d++) {
    const at_literal **mine = at_new(a, const at_literal *, np + 1);
    for (uint32_t i = 0; i < np; i++) {
      read_tiling(a, after, &before->entry->params[i]->types[0],
                  after->params[i].sharding, &t);
      mine[i] =
          part_of(a, &t, &after->entry->params[i]->types[0], d, whole_args[i]);
    }
    args[d] = mine;
    out[d] = at_new(a, const at_literal *, nr + 1);
  }
  st = at_eval_devices(after->entry, args, &opt, a, out);
  if (st.err)
    fail_msg("seed %llu: %s", (unsigned long long)seed, at_status_message(st));
  for (uint32_t i = 0; i < nr; i++) {
    if (whole_out[i]->type.dtype == AT_TOKEN) continue;
    read_tiling(a, after, &whole_out[i]->type, after->results[i].sharding, &t);
    for (int64_t d = 0; d < mesh->devices; d++)
      compare(&t, out[d][i], d, whole_out[i], seed, i);
  }
  at_arena_destroy(a);
}

static void test_random(void **state) {
  (void)state;
  const char *from = getenv("ATOLL_TEST_SEED");
  uint64_t first = from ? strtoull(from, NULL, 10) : 1, count = from ? 1 : 500;
  for (uint64_t seed = first; seed < first + count; seed++) {
    // Each family in turn, then everything.
    uint32_t families = seed % 8 < 7 ? 1u << (seed % 8) | AT_RANDOM_MOVE : 0;
    check(seed, 4 + (uint32_t)(seed % 12), families);
  }
  print_message("%llu programs, %llu collectives\n",
                (unsigned long long)programs, (unsigned long long)collectives);
  if (!from) assert_true(collectives > programs);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
