// Targets' texts: the cloud's names, shapes that there are and are not, and the
// way back to a text for every slice of every TPU.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "machine/topology.h"

// Each text prints as the form that says it in full.
static void texts_mean_what_they_say(void **state) {
  static const struct {
    const char *text, *means;
  } rows[] = {
      {"v6e", "v6e"},
      {"V6E:2X4", "v6e:2x4"},
      {"v5p:2x2x4", "v5p:2x2x4"},
      {"2*v5e:2x2", "2*v5e:2x2"},
      // Accelerator types: chips on v5e and v6e,
      {"v6e-1", "v6e:1x1"},
      {"v6e-4", "v6e:2x2"},
      {"v6e-8", "v6e:2x4"},
      {"v6e-256", "v6e:16x16"},
      {"v5litepod-16", "v5e:4x4"},
      {"v5litepod-256", "v5e:16x16"},
      {"v5e-4", "v5e:2x2"},
      {"v5e-128", "v5e:8x16"},
      {"4*v6e-16", "4*v6e:4x4"},
      // TensorCores on the others.
      {"v4-8", "v4:2x2x1"},
      {"v4-16", "v4:2x2x2"},
      {"v4-32", "v4:2x2x4"},
      {"v4-64", "v4:2x4x4"},
      {"v4-128", "v4:4x4x4"},
      {"v4-8192", "v4:16x16x16"},
      {"v5p-8", "v5p:2x2x1"},
      {"v5p-128", "v5p:4x4x4"},
      {"v5p-384", "v5p:4x4x12"},
      {"v5p-768", "v5p:4x8x12"},
      {"v5p-1536", "v5p:8x8x12"},
      {"v5p-3072", "v5p:8x12x16"},
      {"v5p-5376", "v5p:8x12x28"},
      {"v5p-10368", "v5p:12x12x36"},
      {"v5p-12288", "v5p:16x16x24"},
      {"v5p-17920", "v5p:16x20x28"},
      {"tpu7x-2", "7x:1x1x1"},
      {"tpu7x-16", "7x:2x2x2"},
      {"tpu7x-128", "7x:4x4x4"},
      // Node pools' labels, libtpu's names, device kinds.
      {"tpu-v6e-slice:4x4", "v6e:4x4"},
      {"tpu-v5-lite-podslice:2x4", "v5e:2x4"},
      {"tpu-v5p-slice:4x4x4", "v5p:4x4x4"},
      {"tpu-v4-podslice:2x2x1", "v4:2x2x1"},
      {"tpu7x:2x2x1", "7x:2x2x1"},
      {"TPU v5 lite:2x2", "v5e:2x2"},
      {"TPU7x", "7x"},
      {"v6e-8:2x4", "v6e:2x4"},
      // Chips of a host, a slice on its side, a third side of 1, other
      // machines.
      {"v5p:2x1x1", "v5p:2x1x1"},
      {"v5p:2x2", "v5p:2x2x1"},
      {"v6e:4x2", "v6e:4x2"},
      {"v6e:2x2x1", "v6e:2x2"},
      {"H100:8", "H100:8x1x1"},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    const at_machine *m;
    at_topology_text t;
    at_strbuf b = {0};
    at_status st = at_topology_read(at_str_of(rows[i].text), &m, &t);
    if (st.err) fail_msg("%s: %s", rows[i].text, at_status_message(st));
    at_topology_print(m, &t, &b);
    assert_string_equal(b.ptr, rows[i].means);
    at_strbuf_free(&b);
  }
}

// Each is refused with a hint.
static void impossible_ones_name_the_nearest(void **state) {
  static const struct {
    const char *text, *says;
  } rows[] = {
      {"v5e:4x4x4", "v5e:8x8 (v5e-64)"},
      {"v6e:2x2x2", "wired in 2 dimensions"},
      {"v5e:32x8", "v5e:16x16 (v5e-256)"},
      {"v5e:1x256", "16 by 16"},
      {"v6e:17x16", "a pod of v6e has 256 chips"},
      {"v5p:4x4", "v5p:2x2x4 (v5p-32)"},
      {"v4:16", "wired in 3 dimensions"},
      {"v5p:16x16x36", "a pod of v5p has 8960 chips"},
      {"v4:16x16x20", "v4:16x16x16 (v4-8192)"},
      {"7x:65536x65536x65536", "a pod of 7x has 9216 chips"},
      {"v6e-3", "v6e:1x1 (v6e-1), v6e:2x2 (v6e-4)"},
      {"v6e-512", "v6e:16x16 (v6e-256)"},
      {"v5p-130", "v5p:4x4x4 (v5p-128), v5p:4x4x8 (v5p-256)"},
      {"v5p-2", "v5p:2x2x1 (v5p-8)"},
      {"v5p-9", "TensorCores, two to a chip"},
      {"v6e-0", "no such accelerator type"},
      {"v6e-99999999999999999999", "no such accelerator type"},
      {"v6e-8:2x2", "other chips"},
      {"H100-8", "only TPUs"},
      {"v3-8", "one of 7x"},
      {"v2-512", "one of 7x"},
      {"v9e", "one of 7x"},
      {"", "one of 7x"},
      {"v6e:", "1..65536"},
      {"v6e:0x2", "1..65536"},
      {"v6e:-2x2", "1..65536"},
      {"v6e:2x", "1..65536"},
      {"v6e:2x2x2x2", "more than three"},
      {"v6e:99999999999999999999", "1..65536"},
      {"v6e:2y2", "text follows"},
      {"v6e:2x2 ", "text follows"},
      {"0*v6e", "1..4096"},
      {"-1*v6e", "1..4096"},
      {"x*v6e", "1..4096"},
      {"5000*v6e", "1..4096"},
      {"v6e*2", "1..4096"},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    const at_machine *m;
    at_topology_text t;
    at_status st = at_topology_read(at_str_of(rows[i].text), &m, &t);
    const char *said = at_status_message(st);
    if (!st.err || !strstr(said, rows[i].says) || !strstr(said, "hint: "))
      fail_msg("%s: %s", rows[i].text, said);
    at_status_free(st);
  }
}

// Somebody's own description may hold any numbers: shapes are judged all the
// same, in no time and without a sum that wraps.
static void any_figures_are_judged(void **state) {
  static const char *const figures[] = {"1e300", "9223372036854775807", "0",
                                        "0.5", "1"};
  for (size_t i = 0; i < AT_LEN(figures); i++) {
    at_arena *a = at_arena_create();
    at_strbuf b = {0};
    at_machine m;
    at_topology_text t;
    at_strbuf_addz(&b, "{\"name\":\"x\",\"platform\":\"tpu\"");
    static const char *const names[] = {"topology_dims", "pod_chips",
                                        "slice_cube_chips_per_side",
                                        "accelerator_type_cores_per_chip"};
    for (size_t k = 0; k < AT_LEN(names); k++)
      at_strbuf_addf(&b, ",\"%s\":{\"value\":%s,\"source\":\"s\"}", names[k],
                     figures[i]);
    at_strbuf_addz(&b,
                   ",\"host_shape\":{\"value\":\"2x2\",\"source\":\"s\"},"
                   "\"pod_shape\":{\"value\":\"99999999999999999999x4\","
                   "\"source\":\"s\"}}");
    at_bytes text = {(const uint8_t *)b.ptr, b.len};
    assert_int_equal(at_code_take(at_machine_read(text, a, &m)), 0);
    static const char *const targets[] = {"x:4x4", "x-8",
                                          "x:65536x65536x65536"};
    for (size_t k = 0; k < AT_LEN(targets); k++) {
      at_str target = at_str_of(targets[k]);
      assert_int_equal(at_code_take(at_topology_split(target, &t)), 0);
      at_code code = at_code_take(at_topology_settle(target, &m, &t));
      assert_true(code == AT_OK_CODE || code == AT_INVALID_ARGUMENT);
    }
    at_strbuf_free(&b);
    at_arena_destroy(a);
  }
}

// Reads a text, prints it and reads that: the same machine, shape and slices.
static void check_round_trip(const at_machine *m, const char *text) {
  const at_machine *found;
  at_topology_text t, u;
  at_strbuf b = {0};
  at_status st = at_topology_read(at_str_of(text), &found, &t);
  if (st.err) fail_msg("%s: %s", text, at_status_message(st));
  assert_ptr_equal(found, m);
  at_topology_print(m, &t, &b);
  assert_int_equal(
      at_code_take(at_topology_read(at_strbuf_str(&b), &found, &u)), 0);
  assert_ptr_equal(found, m);
  assert_memory_equal(t.shape, u.shape, sizeof t.shape);
  assert_int_equal(t.slices, u.slices);
  at_strbuf_free(&b);
}

// Every name of every machine; every slice of every TPU as a shape and, where
// it has the shortest sides of its size, as an accelerator type.
static void every_slice_has_a_way_back(void **state) {
  char text[128];
  uint32_t tpus = 0;
  for (size_t i = 0; i < at_machine_count(); i++) {
    const at_machine *m = at_machine_at(i);
    const at_json *aliases = at_json_get(m->tree, "aliases");
    check_round_trip(m, m->name);
    for (size_t k = 0; aliases && k < aliases->len; k++) {
      at_str a = aliases->items[k].string;
      snprintf(text, sizeof text, "3*%.*s", (int)a.len, a.ptr);
      check_round_trip(m, text);
    }
    at_figure listed;
    if (strcmp(m->platform, "tpu")) continue;
    tpus++;
    assert_true(at_machine_figure(m, "slice_shapes", &listed));
    for (const char *p = listed.text.ptr; *p;) {
      size_t n = strcspn(p, " ");
      snprintf(text, sizeof text, "2*%s:%.*s", m->name, (int)n, p);
      check_round_trip(m, text);
      p += n + (p[n] == ' ');
    }
    uint64_t pod = (uint64_t)at_machine_number(m, "pod_chips", 0), sizes = 0;
    double per = at_machine_number(m, "accelerator_type_cores_per_chip", 0);
    for (uint64_t chips = 1; chips <= pod; chips++) {
      const at_machine *found;
      at_topology_text t;
      snprintf(text, sizeof text, "%s-%llu", m->name,
               (unsigned long long)(chips * (uint64_t)per));
      if (at_code_take(at_topology_read(at_str_of(text), &found, &t))) continue;
      assert_true((uint64_t)(t.shape[0] * t.shape[1] * t.shape[2]) == chips);
      check_round_trip(m, text);
      sizes++;
    }
    assert_true(sizes >= 8);
  }
  assert_int_equal(tpus, 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(texts_mean_what_they_say),
      cmocka_unit_test(impossible_ones_name_the_nearest),
      cmocka_unit_test(every_slice_has_a_way_back),
      cmocka_unit_test(any_figures_are_judged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
