// What a client has on a host: the stream and the session bring their parts in
// any order, and either may end first.
#include "control/host_internal.h"
#include "control/pod_test_util.h"

enum { kBytes = 4096, kFloats = kBytes / 4 };

static host the;
static uint64_t clients;

// A host without sessions, controller and pod.
static int begin(void **state) {
  the.end = &the.first;
  pthread_mutex_init(&the.queue_lock, NULL);
  pthread_mutex_init(&the.lock, NULL);
  the.count = 1;
  the.runtime = test_runtime("v5e:1x1", 2);
  OK(at_island_create(NULL, &the.island));
  return 0;
}

static int end(void **state) {
  at_island_destroy(the.island);
  at_runtime_destroy(the.runtime);
  return 0;
}

// One message of the stream, of the client `clients`.
static void stream(uint32_t kind, const void *body, size_t n) {
  void *copy = malloc(n + 1);
  if (n) memcpy(copy, body, n);
  OK(at_message_check(kind, (at_bytes){copy, n}));
  const job j = {
      .kind = kind, .client = clients, .head = {.bytes = n}, .body = copy};
  at_stream_do(&the, &j);
  free(copy);
}

// An array of kFloats whose bytes come by WRITE.
static void create(uint64_t array) {
  struct {
    at_msg_create m;
    int64_t dims[1];
  } c = {{array, 0, 0, AT_F32, 1, 0}, {kFloats}};
  stream(AT_MSG_CREATE, &c, sizeof c);
}

static void drop(uint64_t array) {
  const uint64_t d[] = {1, array};
  stream(AT_MSG_DROP, d, sizeof d);
}

// Frees the block.
static void load(uint64_t program, at_bytes block) {
  uint8_t *m = calloc(1, 32 + block.len);
  *(at_msg_load *)(void *)m = (at_msg_load){.program = program, .num_chips = 1};
  memcpy(m + 32, block.ptr, block.len);
  stream(AT_MSG_LOAD, m, 32 + block.len);
  free(m);
  free((void *)block.ptr);
}

// By the stream: one argument, one result.
static void launch(uint64_t program, uint64_t array, uint64_t output) {
  struct {
    at_msg_launch m;
    at_msg_arg arg;
  } l = {
      {.program = program, .outputs = output, .num_args = 1, .num_outputs = 1},
      {array, 0, 0}};
  stream(AT_MSG_LAUNCH, &l, sizeof l);
}

// ---- The session
static bool deliver(visitor *v, uint32_t kind, uint64_t tag, const void *bytes,
                    size_t n) {
  const at_wire_head head = {n, tag, kind, AT_WIRE_BULK};
  void *body = n ? at_visitor_sink.place(v, 1, &head) : NULL;
  if (n) memcpy(body, bytes, n);
  return at_visitor_sink.message(v, 1, &head, body);
}

static visitor *come_since(uint64_t since) {
  visitor *v = calloc(1, sizeof *v);
  v->host = &the;
  v->next = the.visitors;
  the.visitors = v;
  at_msg_iam m = {.client = clients, .since = since};
  at_control_key(the.secret, clients, m.key);
  deliver(v, AT_MSG_IAM, 0, &m, sizeof m);
  return v;
}

static visitor *come(void) { return come_since(0); }

// The session is over, and the jobs that it has posted are dropped.
static void go(visitor *v) {
  at_visitor_free(v);
  for (job *j; (j = the.first); free(j)) the.first = j->next;
  the.end = &the.first;
}

// A WRITE and its bytes.
static void piece_of(visitor *v, uint64_t array, size_t from, size_t to,
                     const float *v4) {
  const at_msg_write m = {{array, 0, 0}, from, to - from, kBytes};
  deliver(v, AT_MSG_WRITE, 1000 + from, &m, sizeof m);
  deliver(v, AT_MSG_DATA, 1000 + from, (const uint8_t *)v4 + from, to - from);
}

static at_buffer *find(uint64_t name) {
  tenant *t = at_tenant_find(&the, clients, false);
  const array *a = t ? at_tenant_array(t, name) : NULL;
  const piece *p = a ? at_array_piece(a, 0) : NULL;
  return p ? p->buffer : NULL;
}

// The array is there with these values.
static void expect_numbers(uint64_t name, const float *v) {
  at_buffer *b = find(name);
  assert_non_null(b);
  OK(pod_ready(b));
  assert_memory_equal(at_buffer_data(b), v, kBytes);
}

// The client is gone: nothing of it is left, in tables or in memory.
static void leave(visitor *v) {
  if (v) go(v);
  stream(AT_MSG_LEFT, NULL, 0);
  at_chip *c = at_runtime_chip(the.runtime, 0);
  for (int i = 0; i < 20000 && (the.tenants || at_chip_memory_stats(c).in_use);
       i++)
    usleep(500);
  assert_null(the.tenants);
  assert_int_equal(at_chip_memory_stats(c).in_use, 0);
}

// What arrays of this test hold.
static const float *numbers(void) {
  static float v[kFloats];
  for (int i = 0; i < kFloats; i++) v[i] = (float)(i + (int)clients);
  return v;
}

// ---- Tests
// WRITEs that overtake the stream wait for it.
static void bytes_come_before_their_array(void **state) {
  clients++;
  visitor *v = come();
  const float *n = numbers();
  for (size_t at = 0; at < kBytes; at += kBytes / 4)
    piece_of(v, 1, at, at + kBytes / 4, n);
  create(1);
  expect_numbers(1, n);
  // Some before, some behind it.
  piece_of(v, 2, 0, 1024, n);
  piece_of(v, 2, 1024, 2048, n);
  create(2);
  assert_false(at_buffer_is_ready(find(2)));
  piece_of(v, 2, 2048, 3072, n);
  piece_of(v, 2, 3072, 4096, n);
  expect_numbers(2, n);
  // Refused before it is there.
  const at_msg_refuse no = {{3, 0, 0}, AT_OUT_OF_RANGE};
  deliver(v, AT_MSG_REFUSE, 9, &no, sizeof no);
  create(3);
  assert_int_equal(at_code_take(pod_ready(find(3))), AT_OUT_OF_RANGE);
  leave(v);
}

// A launch that was before the drop gets them still.
static void bytes_come_behind_the_drop(void **state) {
  clients++;
  visitor *v = come();
  const float *n = numbers();
  load(1, pod_copies(1, AT_F32, kFloats, 1, false));
  create(1);
  launch(1, 1, 5);
  piece_of(v, 1, 0, 2048, n);
  drop(1);
  launch(1, 1, 6);  // of nothing, which is an error of this one
  assert_false(at_buffer_is_ready(find(5)));
  piece_of(v, 1, 2048, 4096, n);
  expect_numbers(5, n);
  assert_int_equal(at_code_take(pod_ready(find(6))), AT_INVALID_ARGUMENT);
  drop(5);
  drop(6);
  // Nothing is kept for it.
  assert_int_equal(at_tenant_find(&the, clients, false)->filling.count, 0);
  assert_int_equal(at_tenant_find(&the, clients, false)->parked.count, 0);
  leave(v);
}

// The stream makes arrays of before, whose bytes another process has had.
static void bytes_of_before_are_lost(void **state) {
  clients++;
  create(1);
  create(7);
  visitor *v = come_since(5);
  create(2);
  create(8);
  for (uint64_t name = 1; name <= 8; name++) {
    at_buffer *b = find(name);
    if (b && name < 5)
      assert_int_equal(at_code_take(pod_ready(b)), AT_DATA_LOSS);
    else if (b)
      assert_false(at_buffer_is_ready(b));
  }
  const float *n = numbers();
  piece_of(v, 8, 0, kBytes, n);
  expect_numbers(8, n);
  drop(1);
  drop(2);
  drop(8);
  at_chip *c = at_runtime_chip(the.runtime, 0);
  assert_int_equal(at_chip_memory_stats(c).in_use, kBytes);  // array 7
  leave(v);
}

// Of another size than the array; and too many that are never brought.
static void odd_pieces_define_nothing(void **state) {
  clients++;
  visitor *v = come();
  const float *n = numbers();
  create(1);
  at_msg_write m = {{1, 0, 0}, 0, 64, 64};  // it is larger
  deliver(v, AT_MSG_WRITE, 1, &m, sizeof m);
  deliver(v, AT_MSG_DATA, 1, n, 64);
  assert_false(at_buffer_is_ready(find(1)));
  // More WRITEs than anybody has under way, without their bytes: it ends.
  for (uint64_t i = 0; i < 5000; i++) {
    m.shard.array = 2;
    deliver(v, AT_MSG_WRITE, 10 + i, &m, sizeof m);
  }
  assert_true(v->ended);
  assert_null(v->expected);
  leave(v);
}

// Bytes and callbacks that are missing when the session is lost, freed or left
// fail the launch.
static void launches_do_not_wait_for_the_dead(void **state) {
  for (int how = 0; how < 3; how++) {
    clients++;
    visitor *v = come();
    load(1, pod_copies(1, AT_F32, kFloats, 1, false));
    load(2, pod_calls(1, kFloats));
    create(1);
    piece_of(v, 1, 0, 2048, numbers());
    launch(1, 1, 5);
    struct {
      at_msg_launch m;
      at_msg_arg arg;
      at_msg_channel x[2];
    } call = {{.program = 2,
               .outputs = 6,
               .number = 3,
               .num_args = 1,
               .num_outputs = 1,
               .num_channels = 2},
              {7, 0, 0},
              {{7, 0, 1, 0, 0}, {8, 0, 0, 1, 0}}};
    create(7);
    piece_of(v, 7, 0, 4096, numbers());
    stream(AT_MSG_LAUNCH, &call, sizeof call);
    at_buffer *b = at_buffer_retain(find(5)), *d = at_buffer_retain(find(6));
    assert_false(at_buffer_is_ready(b));
    if (how == 0) at_visitor_sink.lost(v, 1, AT_OK);
    if (how == 1) go(v);
    if (how == 2) stream(AT_MSG_LEFT, NULL, 0);
    assert_int_equal(at_code_take(pod_ready(b)), AT_CANCELLED);
    assert_int_equal(at_code_take(pod_ready(d)), AT_CANCELLED);
    at_buffer_release(b);
    at_buffer_release(d);
    if (how == 2) {
      go(v);
      continue;
    }
    // What it still asks for has ended, too.
    create(9);
    assert_int_equal(at_code_take(pod_ready(find(9))), AT_CANCELLED);
    leave(how == 1 ? NULL : v);
  }
}

// One session per client.
static void who_has_the_name_comes_first(void **state) {
  clients++;
  visitor *v = come(), *w = come();
  assert_non_null(v->tenant);
  assert_null(w->tenant);
  const at_msg_iam wrong = {.client = clients};
  clients++;
  visitor *x = come();
  x->tenant = x->tenant;
  deliver(w, AT_MSG_IAM, 0, &wrong, sizeof wrong);
  assert_null(w->tenant);
  go(w);
  go(x);
  stream(AT_MSG_LEFT, NULL, 0);
  clients--;
  leave(v);
}

// The stream makes the array while its pieces come.
typedef struct race {
  visitor *v;
  const float *numbers;
  _Atomic int turn;
} race;

// Pieces of array after array, from another thread.
static void *bring(void *arg) {
  race *r = arg;
  for (uint64_t i = 1; i <= 3000; i++) {
    atomic_store(&r->turn, (int)i);
    for (size_t at = 0; at < kBytes; at += kBytes / 8)
      piece_of(r->v, i, at, at + kBytes / 8, r->numbers);
  }
  return NULL;
}

// Bytes of an array come while the stream makes it, at every moment of it.
static void pieces_and_the_stream_meet_anywhere(void **state) {
  clients++;
  race r = {come(), numbers(), 0};
  pthread_t thread;
  pthread_create(&thread, NULL, bring, &r);
  for (uint64_t i = 1; i <= 3000; i++) {
    while (atomic_load(&r.turn) < (int)i) sched_yield();
    for (volatile uint64_t k = 0; k < i * 37 % 4000; k++) {
    }
    create(i);
    expect_numbers(i, r.numbers);
    drop(i);
  }
  pthread_join(thread, NULL);
  leave(r.v);
}

// ---- What the client is told of its launches
static void begin_launches(tenant *t, int n) {
  pthread_mutex_lock(&the.lock);
  while (n--) at_ends_begin(t);
  pthread_mutex_unlock(&the.lock);
}

// Until something goes wrong, the message is full, or nothing runs any more.
static void ends_are_told_together(void **state) {
  clients++;
  visitor *v = come();
  tenant *t = at_tenant_find(&the, clients, false);
  begin_launches(t, 4);
  at_ends_add(t, 1, false);
  at_ends_add(t, 2, false);
  assert_int_equal(t->num_ends, 2);
  assert_int_equal(t->ends[1], 2);
  assert_true(atomic_load(&the.ends_ns) != 0);
  at_ends_add(t, 0, true);  // of one that has failed
  assert_int_equal(t->num_ends, 0);
  begin_launches(t, 1);
  at_ends_add(t, 3, false);
  assert_int_equal(t->num_ends, 1);
  at_ends_add(t, 4, false);  // the last one
  assert_int_equal(t->num_ends, 0);
  // As many as a message holds.
  begin_launches(t, AT_MESSAGE_ENDS + 1);
  for (int i = 0; i < AT_MESSAGE_ENDS; i++) {
    assert_int_equal(t->num_ends, i);
    at_ends_add(t, 100 + (uint64_t)i, false);
  }
  assert_int_equal(t->num_ends, 0);
  at_ends_add(t, 200, false);
  leave(v);
  atomic_store(&the.ends_ns, 0);
}

// Told at the latest when ends_ns has passed, but not in between two launches.
static void ends_wait_a_moment_only(void **state) {
  clients++;
  visitor *v = come();
  tenant *t = at_tenant_find(&the, clients, false);
  begin_launches(t, 2);
  at_ends_add(t, 1, false);
  atomic_store(&the.ends_ns, UINT64_MAX);
  at_ends_tell(&the);
  assert_int_equal(t->num_ends, 1);
  atomic_store(&the.ends_ns, 1);  // long ago
  at_ends_tell(&the);
  assert_int_equal(t->num_ends, 0);
  assert_true(atomic_load(&the.ends_ns) == 0);
  // The stream has the next launch in its hands.
  atomic_store(&the.launches_more, true);
  at_ends_add(t, 2, false);
  atomic_store(&the.ends_ns, UINT64_MAX);
  at_ends_tell(&the);
  assert_int_equal(t->num_ends, 1);
  atomic_store(&the.launches_more, false);
  at_ends_tell(&the);
  assert_int_equal(t->num_ends, 0);
  assert_true(atomic_load(&the.ends_ns) == 0);
  leave(v);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_come_before_their_array),
      cmocka_unit_test(bytes_come_behind_the_drop),
      cmocka_unit_test(bytes_of_before_are_lost),
      cmocka_unit_test(odd_pieces_define_nothing),
      cmocka_unit_test(launches_do_not_wait_for_the_dead),
      cmocka_unit_test(who_has_the_name_comes_first),
      cmocka_unit_test(pieces_and_the_stream_meet_anywhere),
      cmocka_unit_test(ends_are_told_together),
      cmocka_unit_test(ends_wait_a_moment_only),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
