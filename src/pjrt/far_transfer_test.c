// Arrays between hosts outside of programs: they find each other by their keys,
// in any order, and an error goes along.
#include "pjrt/far_test_util.h"

static at_chip *own_chip(const job *j, uint32_t host) {
  uint32_t first;
  at_runtime_own_chips(j->hosts[host].rt, &first);
  return at_runtime_chip(j->hosts[host].rt, first);
}

static at_buffer *receive(const job *j, uint64_t key, int64_t n) {
  at_buffer *b;
  OK(at_buffer_receive(own_chip(j, 1), AT_MEM_DEVICE, AT_F32, (at_dims){&n, 1},
                       0, key, &b));
  return b;
}

static void keys_tell_transfers_apart(void **state) {
  enum { kCount = 20, kLong = 300000 };
  job j;
  job_open(&j, "v5e:1x2", 2);
  at_buffer *to[kCount], *from[kCount];
  at_event *sent[kCount];
  float *v = malloc(kLong * sizeof *v);
  for (uint32_t i = 0; i < kCount; i++) to[i] = receive(&j, i, i ? kLong : 0);
  for (uint32_t i = kCount; i-- > 0;) {
    for (uint32_t k = 0; k < kLong; k++) v[k] = (float)(i * kLong + k);
    from[i] = test_array(own_chip(&j, 0), v, i ? kLong : 0);
    OK(at_buffer_send(from[i], 1, i, &sent[i]));
  }
  for (uint32_t i = 0; i < kCount; i++) {
    OK(at_event_wait(sent[i]));
    OK(at_event_wait(at_buffer_ready(to[i])));
    assert_true(at_buffer_bytes(to[i]) == at_buffer_bytes(from[i]));
    if (i)
      assert_memory_equal(at_buffer_data(to[i]), at_buffer_data(from[i]),
                          at_buffer_bytes(to[i]));
    at_event_release(sent[i]);
    at_buffer_release(from[i]);
    at_buffer_release(to[i]);
  }
  free(v);
  job_close(&j);
}

static void errors_go_along(void **state) {
  job j;
  job_open(&j, "v5e:1x2", 2);
  const int64_t n = 4;
  at_buffer *from, *to = receive(&j, 3, n);
  at_event *sent;
  OK(at_buffer_create(own_chip(&j, 0), AT_MEM_DEVICE, AT_F32, (at_dims){&n, 1},
                      &from));
  OK(at_buffer_send(from, 1, 3, &sent));
  assert_false(at_buffer_is_ready(to));
  at_buffer_define(from, AT_FAIL(AT_INVALID_ARGUMENT, "no such rows"));
  assert_int_equal(at_code_take(at_event_wait(sent)), AT_INVALID_ARGUMENT);
  assert_int_equal(at_code_take(at_event_wait(at_buffer_ready(to))),
                   AT_ABORTED);
  at_event_release(sent);
  // To nobody, and to oneself.
  assert_int_equal(at_code_take(at_buffer_send(from, 2, 4, &sent)),
                   AT_INVALID_ARGUMENT);
  assert_int_equal(at_code_take(at_buffer_send(from, 0, 4, &sent)),
                   AT_INVALID_ARGUMENT);
  at_buffer_release(from);
  at_buffer_release(to);
  job_close(&j);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(keys_tell_transfers_apart),
      cmocka_unit_test(errors_go_along),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
