// Arrays between hosts outside of programs: they find each other by their keys,
// in any order, and an error goes along.
#include "pjrt/far_test_util.h"

// The host's first device.
static at_chip *own_chip(const job *j, uint32_t host) {
  uint32_t first;
  at_runtime_own_chips(j->hosts[host].rt, &first);
  return at_runtime_chip(j->hosts[host].rt, first);
}

// An array of n floats that host 0 sends under that key.
static at_buffer *receive(const job *j, uint64_t key, int64_t n) {
  at_buffer *b;
  OK(at_buffer_receive(own_chip(j, 1), AT_MEM_DEVICE, AT_F32, (at_dims){&n, 1},
                       0, key, &b));
  return b;
}

// Sent in the opposite order, one of them empty.
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

// ---- Memory that both map
static at_hosts g_real;
static _Atomic uint64_t g_said;  // bytes, by the sender
static _Atomic bool g_gives_up, g_gave_up;

// Counts what goes by messages. The second step is the sender's waiting for the
// reader to be through.
static at_status sender_says(void *arg, const at_hosts_tag *tag,
                             at_hosts_mail *mails, uint32_t n) {
  for (uint32_t i = 0; i < mails->num_out; i++) g_said += mails->out[i].len;
  if (g_gives_up && tag->step)
    return AT_FAIL(AT_DEADLINE_EXCEEDED, "no more patience");
  return g_real.exchange(arg, tag, mails, n);
}

// Reads the array late.
static at_status receiver_hears(void *arg, const at_hosts_tag *tag,
                                at_hosts_mail *mails, uint32_t n) {
  at_status st = g_real.exchange(arg, tag, mails, n);
  while (g_gives_up && !g_gave_up) usleep(1000);
  return st;
}

// One array from host 0 to host 1; the receiver's code. *said: bytes that went
// by messages.
static at_code send_one(const job *j, uint64_t key, const float *v, int64_t n,
                        uint64_t *said, bool *equal) {
  at_buffer *to = receive(j, key, n), *from = test_array(own_chip(j, 0), v, n);
  at_event *sent;
  g_said = 0;
  OK(at_buffer_send(from, 1, key, &sent));
  at_status_free(at_event_wait(sent));
  g_gave_up = true;
  at_code code = at_code_take(at_event_wait(at_buffer_ready(to)));
  *said = g_said;
  *equal = !code && !memcmp(at_buffer_data(to), v, (size_t)n * sizeof *v);
  at_event_release(sent);
  at_buffer_release(from);
  at_buffer_release(to);
  return code;
}

// From the second array of a size on only its place is said. A sender that
// gives up makes the transfer fail, as its memory may have changed under the
// reader.
static void large_arrays_are_read_where_they_lie(void **state) {
  enum { kSmall = 1000, kLarge = 300000 };
  static float v[kLarge];
  uint64_t said;
  bool equal;
  job j;
  for (uint32_t i = 0; i < kLarge; i++) v[i] = (float)i;
  jobs_share = true;
  job_open(&j, "v5e:1x2", 2);
  jobs_share = false;
  g_real = j.hosts[0].face;
  j.hosts[0].face.exchange = sender_says;
  j.hosts[1].face.exchange = receiver_hears;
  g_gives_up = false;
  // The first tells which sizes are to be made in shared memory.
  for (uint64_t key = 1; key <= 3; key++) {
    assert_int_equal(send_one(&j, key, v, kLarge, &said, &equal), 0);
    assert_true(equal && (key == 1 ? said > sizeof v : said <= 64));
  }
  assert_int_equal(send_one(&j, 4, v, kSmall, &said, &equal), 0);
  assert_true(equal && said > kSmall * sizeof *v);
  // The sender may use its memory again before the receiver has read it.
  g_gives_up = true;
  g_gave_up = false;
  assert_int_equal(send_one(&j, 5, v, kLarge, &said, &equal), AT_DATA_LOSS);
  g_gives_up = false;
  assert_int_equal(send_one(&j, 6, v, kLarge, &said, &equal), 0);
  assert_true(equal && said <= 64);
  job_close(&j);
}

// An array that fails to be made fails its transfer, at both ends.
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
      cmocka_unit_test(large_arrays_are_read_where_they_lie),
      cmocka_unit_test(errors_go_along),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
