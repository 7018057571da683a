// Collectives in the evaluator: small programs over several devices, and what
// each device gets. Parameters hold 100 * device + 10 * parameter + element, so
// that every element says where it came from.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>

#include "hlo/hlo.h"

enum { MAX_DEVICES = 4, MAX_ELEMENTS = 8 };

#define ADD                                      \
  " ((%90: i32[], %91: i32[]) { %92 = add %90, " \
  "%91 : i32[] return %92 })"

// `%9 = BODY : RESULT` over PARAMS; lists of offsets are constants in `before`.
// want: a row for each device; -1 ends it.
typedef struct program {
  int replicas, partitions;
  const char *params, *before, *body, *result;
  int64_t want[MAX_DEVICES][MAX_ELEMENTS + 1];
} program;

static const program programs[] = {
    // Groups of replicas; the sum goes to all of a group.
    {4,
     1,
     "%0: i32[2]",
     "",
     "all_reduce %0 {replica_groups=[[0,2],[1,3]]}" ADD,
     "i32[2]",
     {{200, 202, -1}, {400, 402, -1}, {200, 202, -1}, {400, 402, -1}}},
    // No groups: all replicas of one partition.
    {2,
     2,
     "%0: i32[1]",
     "",
     "all_reduce %0" ADD,
     "i32[1]",
     {{200, -1}, {400, -1}, {200, -1}, {400, -1}}},
    // A channel without global ids: replicas of the group, all partitions.
    {2,
     2,
     "%0: i32[1]",
     "",
     "all_reduce %0 {replica_groups=[[0],[1]], channel_id=1}" ADD,
     "i32[1]",
     {{100, -1}, {100, -1}, {500, -1}, {500, -1}}},
    // Global ids are devices.
    {2,
     2,
     "%0: i32[1]",
     "",
     "all_reduce %0 {replica_groups=[[0,3],[1,2]], channel_id=1, "
     "use_global_device_ids=true}" ADD,
     "i32[1]",
     {{300, -1}, {300, -1}, {300, -1}, {300, -1}}},
    // The order of a group is that of its list.
    {3,
     1,
     "%0: i32[1,2]",
     "",
     "all_gather %0 {replica_groups=[[2,0,1]], all_gather_dim=0}",
     "i32[3,2]",
     {{200, 201, 0, 1, 100, 101, -1},
      {200, 201, 0, 1, 100, 101, -1},
      {200, 201, 0, 1, 100, 101, -1}}},
    // Along the minor dimension.
    {2,
     1,
     "%0: i32[2,1]",
     "",
     "all_gather %0 {all_gather_dim=1}",
     "i32[2,2]",
     {{0, 100, 1, 101, -1}, {0, 100, 1, 101, -1}}},
    {2,
     1,
     "%0: i32[2,2]",
     "",
     "reduce_scatter %0 {scatter_dimension=0}" ADD,
     "i32[1,2]",
     {{100, 102, -1}, {104, 106, -1}}},
    {2,
     1,
     "%0: i32[2,2]",
     "",
     "reduce_scatter %0 {replica_groups=[[1,0]], scatter_dimension=1}" ADD,
     "i32[2,1]",
     {{102, 106, -1}, {100, 104, -1}}},
    {2,
     1,
     "%0: i32[2,2]",
     "",
     "all_to_all %0 {split_dimension=0, concat_dimension=0, split_count=2}",
     "i32[2,2]",
     {{0, 1, 100, 101, -1}, {2, 3, 102, 103, -1}}},
    {2,
     1,
     "%0: i32[2,2]",
     "",
     "all_to_all %0 {split_dimension=1, concat_dimension=0, split_count=2}",
     "i32[4,1]",
     {{0, 2, 100, 102, -1}, {1, 3, 101, 103, -1}}},
    // Pairs name replicas; who receives nothing has zeros.
    {3,
     1,
     "%0: i32[2]",
     "",
     "collective_permute %0 {source_target_pairs=[[0,1],[1,0]]}",
     "i32[2]",
     {{100, 101, -1}, {0, 1, -1}, {0, 0, -1}}},
    // With a channel they name partitions of one replica.
    {2,
     2,
     "%0: i32[1]",
     "",
     "collective_permute %0 {source_target_pairs=[[0,1]], channel_id=1}",
     "i32[1]",
     {{0, -1}, {0, -1}, {0, -1}, {200, -1}}},
    // The first of each group; zeros outside of them.
    {3,
     1,
     "%0: i32[1]",
     "",
     "collective_broadcast %0 {replica_groups=[[1,0]]}",
     "i32[1]",
     {{100, -1}, {100, -1}, {0, -1}}},
    // Each device sends its row 0 to device 0 and its rows 1 and 2 to device 1,
    // behind what the devices before it send there.
    {2,
     1,
     "%0: i32[3], %1: i32[5]",
     "%2 = constant {value=i32[2] [0,1]} : i32[2]\n"
     "%3 = constant {value=i32[2] [1,2]} : i32[2]\n"
     "%4 = replica_id : ui32[]\n"
     "%5 = convert %4 : i32[]\n"
     "%6 = broadcast_in_dim %5 {broadcast_dimensions=[]} : i32[2]\n"
     "%7 = multiply %6, %3 : i32[2]\n",
     "ragged_all_to_all %0, %1, %2, %3, %7, %3 {replica_groups=[[0,1]]}",
     "i32[5]",
     {{0, 100, 12, 13, 14, -1}, {1, 2, 101, 102, 114, -1}}},
    // Alone, a device sends to itself.
    {1,
     1,
     "%0: i32[3], %1: i32[5]",
     "%2 = constant {value=i32[1] [1]} : i32[1]\n"
     "%3 = constant {value=i32[1] [2]} : i32[1]\n"
     "%4 = constant {value=i32[1] [3]} : i32[1]\n",
     "ragged_all_to_all %0, %1, %2, %3, %4, %3",
     "i32[5]",
     {{10, 11, 12, 1, 2, -1}}},
};

// The program as a module's text.
static void say(at_strbuf *text, const program *p) {
  at_strbuf_addf(text,
                 "hlo module \"t\" replicas=%d partitions=%d entry=\"main\" "
                 "{\nfunc \"main\" (%s) -> (%s) {\n%s%%9 = %s : %s\nreturn "
                 "%%9\n}\n}\n",
                 p->replicas, p->partitions, p->params, p->result, p->before,
                 p->body, p->result);
}

// Parameter `number` of that device.
static const at_literal *argument(at_arena *a, const at_type *t, int device,
                                  int number) {
  int32_t data[MAX_ELEMENTS];
  const at_literal *l;
  int64_t n = at_type_elements(t);
  assert_true(n <= MAX_ELEMENTS);
  for (int64_t i = 0; i < n; i++)
    data[i] = (int32_t)(100 * device + 10 * number + i);
  assert_int_equal(at_code_take(at_literal_make(a, *t, data, false, false, &l)),
                   0);
  return l;
}

// Over all devices, or alone where there is one. results[d]: of device d.
static at_status evaluate(const at_module *m, int devices, at_arena *a,
                          const at_literal **results) {
  const at_literal *args[MAX_DEVICES][2], *const *lists[MAX_DEVICES];
  const at_literal **outs[MAX_DEVICES];
  const at_comp *c = m->entry;
  for (int d = 0; d < devices; d++) {
    for (uint32_t k = 0; k < c->num_params; k++)
      args[d][k] = argument(a, &c->params[k]->types[0], d, (int)k);
    lists[d] = args[d];
    outs[d] = &results[d];
  }
  return devices == 1 ? at_eval(c, lists[0], NULL, a, outs[0])
                      : at_eval_devices(c, lists, NULL, a, outs);
}

// Element by element against the table.
static void every_device_gets_its_part(void **state) {
  for (size_t i = 0; i < AT_LEN(programs); i++) {
    const program *p = &programs[i];
    int devices = p->replicas * p->partitions;
    at_arena *a = at_arena_create();
    at_strbuf text = {0};
    at_module *m;
    const at_literal *results[MAX_DEVICES];
    say(&text, p);
    at_status st = at_hlo_parse(at_strbuf_str(&text), a, &m);
    if (at_ok(st)) st = at_verify(m, "test");
    if (at_ok(st)) st = evaluate(m, devices, a, results);
    if (!at_ok(st)) fail_msg("%s%s", text.ptr, at_status_message(st));
    for (int d = 0; d < devices; d++) {
      int64_t n = at_type_elements(&results[d]->type), k = 0;
      for (; k < n && p->want[d][k] >= 0; k++)
        if (at_literal_int(results[d], k) != p->want[d][k])
          fail_msg("%sdevice %d, element %d: %lld, not %lld", text.ptr, d,
                   (int)k, (long long)at_literal_int(results[d], k),
                   (long long)p->want[d][k]);
      assert_int_equal(k, n);
      assert_int_equal(p->want[d][k], -1);
    }
    at_strbuf_free(&text);
    at_arena_destroy(a);
  }
}

// What one device gets wrong ends all of them, with its error.
static const struct {
  program p;
  at_code code;
  const char *says;
} failing[] = {
    {{3,
      1,
      "%0: i32[1]",
      "",
      "all_reduce %0 {replica_groups=[[0,1]]}" ADD,
      "i32[1]",
      {{0}}},
     AT_INVALID_ARGUMENT,
     "leaves device 2 out"},
    {{2,
      1,
      "%0: i32[3], %1: i32[5]",
      "%2 = constant {value=i32[2] [0,2]} : i32[2]\n",
      "ragged_all_to_all %0, %1, %2, %2, %2, %2 {replica_groups=[[0,1]]}",
      "i32[5]",
      {{0}}},
     AT_INVALID_ARGUMENT,
     "out of bounds"},
    {{2,
      1,
      "%0: i32[3], %1: i32[5]",
      "%2 = constant {value=i32[1] [1]} : i32[1]\n",
      "ragged_all_to_all %0, %1, %2, %2, %2, %2 {replica_groups=[[0,1]]}",
      "i32[5]",
      {{0}}},
     AT_INVALID_ARGUMENT,
     "fewer offsets"},
};

// No device waits for one that has failed, and its error is the one that is
// told.
static void failures_end_all_devices(void **state) {
  for (size_t i = 0; i < AT_LEN(failing); i++) {
    at_arena *a = at_arena_create();
    at_strbuf text = {0};
    at_module *m;
    const at_literal *results[MAX_DEVICES];
    say(&text, &failing[i].p);
    assert_int_equal(at_code_take(at_hlo_parse(at_strbuf_str(&text), a, &m)),
                     0);
    at_status st = evaluate(m, failing[i].p.replicas, a, results);
    if (!strstr(at_status_message(st), failing[i].says))
      fail_msg("%s%s", text.ptr, at_status_message(st));
    assert_int_equal(at_code_take(st), failing[i].code);
    at_strbuf_free(&text);
    at_arena_destroy(a);
  }
}

// ---- What replica_groups name, for every op and mode
// Two replicas of two partitions; groups of numbers, reversed so that order
// shows. `numbers` is what they are of.
enum numbers { REPLICAS, PARTITIONS, REPLICAS_OF_ALL, DEVICES };

static const struct {
  const char *op, *attrs, *region;
  bool wide_in, wide_out, adds;  // a row of the group's size; sums over it
} collectives[] = {
    {"all_reduce", "", ADD, false, false, true},
    {"all_gather", "all_gather_dim=0, ", "", false, true, false},
    {"reduce_scatter", "scatter_dimension=0, ", ADD, true, false, true},
    {"all_to_all", "split_dimension=0, concat_dimension=0, split_count=%d, ",
     "", true, true, false},
    {"collective_broadcast", "", "", false, false, false},
};

// The devices of d's group, in its order. split: two groups of one number.
static int members_of(int d, enum numbers of, bool split, int *out) {
  int replica = d / 2, partition = d % 2, n = 0;
  if (of == DEVICES) {
    static const int pairs[2][2] = {{3, 1}, {0, 2}};
    for (int k = 0; k < (split ? 2 : 4); k++)
      out[n++] = split ? pairs[d != 3 && d != 1][k] : 3 - k;
    return n;
  }
  int own = of == PARTITIONS ? partition : replica;
  for (int k = 0; k < (of == REPLICAS_OF_ALL ? 2 : 1); k++)
    for (int i = 1; i >= 0; i--) {
      if (split && i != own) continue;
      out[n++] = of == PARTITIONS        ? replica * 2 + i
                 : of == REPLICAS_OF_ALL ? i * 2 + k
                                         : i * 2 + partition;
    }
  return n;
}

// Element j of device d's result; its rank in the group is that of its list.
static int64_t element_of(size_t op, const int *group, int n, int d, int j) {
  int rank = 0;
  int64_t sum = 0;
  while (group[rank] != d) rank++;
  for (int k = 0; k < n; k++)
    sum += 100 * group[k] + (collectives[op].wide_in ? rank : 0);
  if (collectives[op].adds) return sum;
  if (!collectives[op].wide_out) return 100 * group[0];
  return 100 * group[j] + (collectives[op].wide_in ? rank : 0);
}

static void check_mode(size_t op, enum numbers of, bool split) {
  static const char *const lists[2][2] = {{"[[1,0]]", "[[0],[1]]"},
                                          {"[[3,2,1,0]]", "[[3,1],[0,2]]"}};
  int group[4], n = members_of(0, of, split, group);
  char attrs[80], body[400], params[32], result[32];
  snprintf(attrs, sizeof attrs, collectives[op].attrs, n);
  snprintf(body, sizeof body, "%s %%0 {%sreplica_groups=%s%s%s}%s",
           collectives[op].op, attrs, lists[of == DEVICES][split],
           of == REPLICAS ? "" : ", channel_id=1",
           of == DEVICES ? ", use_global_device_ids=true" : "",
           collectives[op].region);
  snprintf(params, sizeof params, "%%0: i32[%d]",
           collectives[op].wide_in ? n : 1);
  snprintf(result, sizeof result, "i32[%d]", collectives[op].wide_out ? n : 1);
  program p = {2, 2, params, "", body, result, {{0}}};
  at_arena *a = at_arena_create();
  at_strbuf text = {0};
  at_module *m;
  const at_literal *results[MAX_DEVICES];
  say(&text, &p);
  at_status st = at_hlo_parse(at_strbuf_str(&text), a, &m);
  if (at_ok(st)) st = at_verify(m, "test");
  if (at_ok(st)) st = evaluate(m, 4, a, results);
  if (!at_ok(st)) fail_msg("%s%s", text.ptr, at_status_message(st));
  for (int d = 0; d < 4; d++) {
    members_of(d, of, split, group);
    for (int j = 0; j < (collectives[op].wide_out ? n : 1); j++)
      if (at_literal_int(results[d], j) != element_of(op, group, n, d, j))
        fail_msg("%sdevice %d, element %d: %lld, not %lld", text.ptr, d, j,
                 (long long)at_literal_int(results[d], j),
                 (long long)element_of(op, group, n, d, j));
  }
  at_strbuf_free(&text);
  at_arena_destroy(a);
}

// all_reduce, all_gather and reduce_scatter name replicas, with a channel those
// of all partitions, or devices; the others replicas, with a channel
// partitions.
static void groups_name_devices(void **state) {
  for (size_t op = 0; op < AT_LEN(collectives); op++)
    for (int split = 0; split < 2; split++) {
      check_mode(op, REPLICAS, split);
      check_mode(op, op < 3 ? REPLICAS_OF_ALL : PARTITIONS, split);
      if (op < 3) check_mode(op, DEVICES, split);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_device_gets_its_part),
      cmocka_unit_test(failures_end_all_devices),
      cmocka_unit_test(groups_name_devices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
