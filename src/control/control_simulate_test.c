// Simulated hosts under a real controller and a real client: arrays have their
// shapes and no values, and virtual time depends on the charges alone.
#include "control/pod_test_util.h"
#include "control/simulate.h"

static const at_charges kFixed = {.client_message = 1000,
                                  .controller_message = 2000,
                                  .controller_host = 100,
                                  .controller_send = 10,
                                  .host_message = 300,
                                  .host_launch = 5000,
                                  .host_chip = 700,
                                  .host_copy = 900,
                                  .host_load = 20000,
                                  .host_answer = 400,
                                  .chip_launch = 50,
                                  .host_meet = 40,
                                  .chip_meet = 60};

typedef struct simulation {
  pod pod;
  at_simulated *hosts;
  guest g;
} simulation;

// Simulated hosts, a real controller and a client, all in this process.
static simulation begin(const char *target, uint32_t hosts,
                        at_simulated_options o) {
  simulation s = {.pod = {.num_hosts = 0}};
  o.target = target;
  o.num_hosts = hosts;
  o.token = POD_TOKEN;
  OK(at_simulated_create(&o, &s.hosts));
  OK(at_controller_open(&(at_controller_options){.listen = "127.0.0.1:0",
                                                 .target = target,
                                                 .num_hosts = hosts,
                                                 .token = POD_TOKEN,
                                                 .simulated = s.hosts},
                        &s.pod.controller));
  snprintf(s.pod.address, sizeof s.pod.address, "%s",
           at_controller_address(s.pod.controller));
  s.g = guest_open(&s.pod);
  return s;
}

static void end(simulation *s) {
  guest_close(&s->g);
  at_controller_close(s->pod.controller);
  at_simulated_free(s->hosts);
}

// Options with figures of the test's own, so that times can be worked out by
// hand.
static at_simulated_options fixed(void) {
  return (at_simulated_options){
      .charges = kFixed, .latency = 10000, .bytes_per_s = 1e9};
}

// Nanoseconds of so many launches in a row, the last of which is waited for.
static uint64_t chain(simulation *s, at_bytes block, uint32_t launches) {
  float v[16] = {1, 2, 3};
  run r = run_make(&s->g, block, kPodChips, 1);
  for (uint32_t d = 0; d < kPodChips; d++)
    r.args[d] = pod_array(r.chips[d], AT_F32, v, 16);
  uint64_t before = at_client_virtual_ns(s->g.client);
  for (uint32_t i = 0; i < launches; i++) {
    OK(run_try(&r, NULL));
    run_drop_args(&r);
    memcpy(r.args, r.outs, sizeof r.args);
    memset(r.outs, 0, sizeof r.outs);
  }
  OK(pod_fetch(r.args[0], v, 0, sizeof v));
  for (int i = 0; i < 16; i++) assert_float_equal(v[i], 0, 0);
  uint64_t took = at_client_virtual_ns(s->g.client) - before;
  run_drop_args(&r);
  at_loaded_release(r.l);
  return took;
}

// In a pod of its own, as virtual time goes on.
static uint64_t chain_of(at_simulated_options o, bool meets) {
  simulation s = begin("v5e:2x4", 4, o);
  at_bytes block = meets ? pod_rotates(kPodChips, 16)
                         : pod_copies(kPodChips, AT_F32, 16, 1, false);
  uint64_t took = chain(&s, block, 40);
  end(&s);
  return took;
}

// Two runs give the same time, and a dearer launch makes it longer by as much.
static void virtual_time_depends_on_charges_alone(void **state) {
  at_simulated_options o = fixed();
  uint64_t plain = chain_of(o, false), met = chain_of(o, true);
  assert_int_equal(plain, chain_of(o, false));
  assert_int_equal(met, chain_of(o, true));
  // The hosts take longest: two messages and a launch on two chips each.
  assert_in_range(plain, 40 * 6700, 40 * 7200 + 100000);
  assert_true(met >= plain);
  o.charges.host_launch *= 2;
  uint64_t slower = chain_of(o, false);
  assert_in_range(slower, plain + 40 * 4900, plain + 40 * 5100);
}

// With --dispatch=sequential hosts wait for word of each other.
static void one_after_the_other_takes_longer(void **state) {
  at_simulated_options o = fixed();
  uint64_t parallel = chain_of(o, false);
  o.sequential = true;
  // Each launch waits for word of the one before.
  assert_true(chain_of(o, false) >= parallel + 39 * o.latency / 2);
}

// Fewer cores take longer; enough of them as long as one for each.
static void processes_share_cores(void **state) {
  at_simulated_options o = fixed();
  uint64_t alone = chain_of(o, false);
  o.cores = 1;
  uint64_t one = chain_of(o, false);
  o.cores = 4;
  uint64_t four = chain_of(o, false);
  assert_true(one > four && four >= alone);
  assert_in_range(one, 40 * 4 * 6400, 100 * alone);
}

// 4,096 chips, of which arrays, copies and statistics work.
static void one_process_is_512_hosts(void **state) {
  simulation s = begin("v5p:16x16x16", 512, fixed());
  assert_int_equal(at_controller_hosts(s.pod.controller), 512);
  const float v[4] = {1, 2, 3, 4};
  float got[4];
  at_buffer *b = pod_array(guest_chip(&s.g, 4095), AT_F32, v, 4), *other;
  OK(at_buffer_copy_to(b, guest_chip(&s.g, 0), AT_MEM_DEVICE, &other));
  OK(pod_fetch(other, got, 0, sizeof got));
  for (int i = 0; i < 4; i++) assert_float_equal(got[i], 0, 0);
  assert_int_equal(at_buffer_bytes(other), 16);
  at_memory_stats stats = at_chip_memory_stats(guest_chip(&s.g, 2048));
  assert_true(stats.limit > 1u << 30);
  at_strbuf text = {0};
  at_controller_status(s.pod.controller, &text);
  assert_non_null(strstr(text.ptr, "\"simulated\""));
  at_strbuf_free(&text);
  at_buffer_release(b);
  at_buffer_release(other);
  end(&s);
}

// Their results carry UNIMPLEMENTED.
static void programs_that_call_back_are_refused(void **state) {
  simulation s = begin("v5e:1x1", 1, fixed());
  float v[4] = {0};
  run r = run_make(&s.g, pod_calls(1, 4), 1, 1);
  r.args[0] = pod_array(r.chips[0], AT_F32, v, 4);
  OK(run_try(&r, NULL));
  assert_int_equal(at_code_take(pod_ready(r.outs[0])), AT_UNIMPLEMENTED);
  run_drop_args(&r);
  run_drop_outs(&r);
  at_loaded_release(r.l);
  end(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(virtual_time_depends_on_charges_alone),
      cmocka_unit_test(one_after_the_other_takes_longer),
      cmocka_unit_test(processes_share_cores),
      cmocka_unit_test(one_process_is_512_hosts),
      cmocka_unit_test(programs_that_call_back_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
