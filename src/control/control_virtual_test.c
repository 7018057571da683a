// Virtual devices of clients: several on a chip, their memory, and what is left
// of them when hosts are lost.
#include "control/pod_test_util.h"

enum { kFloats = 1024 };

static at_msg_slice wish(uint32_t count) {
  return (at_msg_slice){.count = count, .island = -1, .host = -1};
}

static void add(const guest *g, at_msg_slice *m, uint32_t *devices) {
  OK(at_client_add_slice(g->client, m, devices));
}

static uint32_t chip_of(const guest *g, uint32_t device, uint32_t *host) {
  uint32_t chip = UINT32_MAX;
  if (!at_client_find_chip(g->client, device, &chip, host)) *host = UINT32_MAX;
  return chip;
}

// A program on these devices.
static run on(const guest *g, at_bytes block, const uint32_t *devices,
              uint32_t n) {
  run r = run_make(g, block, n, 1);
  for (uint32_t d = 0; d < n; d++) r.chips[d] = guest_chip(g, devices[d]);
  return r;
}

// Device d gets what device d + 1 has.
static void expect_rotated(run *r) {
  float v[4], got[4];
  for (uint32_t d = 0; d < r->devices; d++) {
    for (int i = 0; i < 4; i++) v[i] = (float)(10 * d) + (float)i;
    r->args[d] = pod_array(r->chips[d], AT_F32, v, 4);
  }
  OK(run_try(r, NULL));
  for (uint32_t d = 0; d < r->devices; d++) {
    OK(pod_fetch(r->outs[d], got, 0, sizeof got));
    assert_true(got[1] == (float)(10 * ((d + 1) % r->devices)) + 1);
  }
  run_drop_args(r);
  run_drop_outs(r);
}

static uint64_t in_use(const guest *g, uint32_t device) {
  return at_chip_memory_stats(guest_chip(g, device)).in_use;
}

// Processes become hosts in the order in which they come.
static void kill_host(pod *p, uint32_t number) {
  char pid[32];
  at_strbuf text = {0};
  at_controller_status(p->controller, &text);
  for (uint32_t i = 0; i < p->num_hosts; i++) {
    snprintf(pid, sizeof pid, "(process %d)", (int)p->hosts[i]);
    const char *at = strstr(text.ptr, pid), *host = NULL;
    for (const char *h = text.ptr; (h = strstr(h, "\"host\"")) && h < at; h++)
      host = h;
    if (host && strtoul(host + strcspn(host, "0123456789"), NULL, 10) == number)
      pod_kill_host(p, i);
  }
  at_strbuf_free(&text);
}

// Each with its arrays, all with the chip's memory.
static void several_devices_share_a_chip(void **state) {
  pod p;
  pod_open(&p, "v5e:2x2", 2, 4);
  guest g = guest_open(&p);
  at_msg_slice m = wish(8);
  uint32_t devices[8], count[4] = {0}, host;
  add(&g, &m, devices);
  for (uint32_t d = 0; d < 8; d++) {
    uint32_t chip = chip_of(&g, devices[d], &host);
    assert_in_range(devices[d], 4, 4 + kPodSpares - 1);
    assert_int_equal(host, chip / 2);
    count[chip]++;
  }
  for (uint32_t i = 0; i < 4; i++) assert_int_equal(count[i], 2);
  run r = on(&g, pod_rotates(8, 4), devices, 8);
  for (int i = 0; i < 20; i++) expect_rotated(&r);
  at_loaded_release(r.l);
  // Arrays of both take the memory of the one chip.
  float v[kFloats] = {0};
  guest_expect_empty(&g, 4);
  at_buffer *a = pod_array(guest_chip(&g, devices[0]), AT_F32, v, kFloats);
  at_buffer *b = pod_array(guest_chip(&g, devices[4]), AT_F32, v, kFloats);
  assert_int_equal(chip_of(&g, devices[0], &host),
                   chip_of(&g, devices[4], &host));
  OK(pod_ready(a));
  OK(pod_ready(b));
  assert_int_equal(in_use(&g, devices[0]), 2 * sizeof v);
  assert_int_equal(in_use(&g, devices[4]), 2 * sizeof v);
  assert_int_equal(in_use(&g, chip_of(&g, devices[0], &host)), 2 * sizeof v);
  at_buffer *c;
  OK(at_buffer_copy_to(a, guest_chip(&g, devices[7]), AT_MEM_DEVICE, &c));
  OK(pod_fetch(c, v, 0, sizeof v));
  at_buffer_release(c);
  at_buffer_release(b);
  // What lies on a slice goes with it.
  at_client_close_slice(g.client, m.slice);
  assert_int_equal(at_code_take(pod_fetch(a, v, 0, sizeof v)),
                   AT_FAILED_PRECONDITION);
  at_buffer_release(a);
  guest_expect_empty(&g, 4);
  guest_close(&g);
  pod_close(&p);
}

// With AT_SLICE_FAIR a chip counts as fuller where its clients launch more.
static void clients_are_weighed(void **state) {
  pod p;
  pod_open(&p, "v5e:2x2", 1, 4);
  guest g = guest_open(&p), busy = guest_open(&p);
  uint32_t devices[8], host;
  at_msg_slice one = wish(1), three = wish(3), four = wish(4);
  add(&busy, &one, devices);
  assert_int_equal(chip_of(&busy, devices[0], &host), 0);
  add(&g, &four, devices + 1);
  add(&g, &three, devices + 1);  // now each chip has two, one of 0 works
  run r = on(&busy, pod_copies(1, AT_F32, 4, 1, false), devices, 1);
  float v[4] = {0};
  r.args[0] = pod_array(r.chips[0], AT_F32, v, 4);
  for (int i = 0; i < 300; i++) {
    OK(run_try(&r, NULL));
    OK(pod_ready(r.outs[0]));
    run_drop_outs(&r);
  }
  at_msg_slice fair = wish(1), even = wish(1);
  fair.policy = AT_SLICE_FAIR;
  add(&g, &fair, devices);
  assert_int_equal(chip_of(&g, devices[0], &host), 1);
  at_client_close_slice(g.client, fair.slice);
  add(&g, &even, devices);
  assert_int_equal(chip_of(&g, devices[0], &host), 0);
  // A client's devices go with it.
  run_drop_args(&r);
  at_loaded_release(r.l);
  guest_close(&g);
  guest_close(&busy);
  g = guest_open(&p);
  add(&g, &one, devices);
  assert_int_equal(chip_of(&g, devices[0], &host), 0);
  guest_close(&g);
  pod_close(&p);
}

// Arrays that were there are lost, programs go on on other chips; a slice bound
// to the host stays.
static void devices_move_from_lost_hosts(void **state) {
  pod p;
  pod_open(&p, "v5e:2x2", 2, 4);
  guest g = guest_open(&p);
  uint32_t devices[4], bound[1], host;
  at_msg_slice m = wish(4), there = wish(1);
  there.host = 1;
  add(&g, &m, devices);
  add(&g, &there, bound);
  run r = on(&g, pod_rotates(4, 4), devices, 4);
  expect_rotated(&r);
  float v[kFloats] = {7}, got[kFloats];
  at_buffer *stays = pod_array(guest_chip(&g, devices[0]), AT_F32, v, kFloats);
  at_buffer *goes = pod_array(guest_chip(&g, devices[3]), AT_F32, v, kFloats);
  at_buffer *read = pod_array(guest_chip(&g, devices[3]), AT_F32, v, kFloats);
  OK(pod_ready(stays));
  OK(pod_ready(read));
  assert_int_equal((chip_of(&g, devices[3], &host), host), 1);
  kill_host(&p, 1);
  for (int i = 0; i < 5000 && (chip_of(&g, devices[3], &host), host); i++)
    usleep(2000);
  for (uint32_t d = 0; d < 4; d++) {
    chip_of(&g, devices[d], &host);
    assert_int_equal(host, 0);
  }
  // The one that wants that host stays with it.
  assert_int_equal((chip_of(&g, bound[0], &host), host), 1);
  OK(pod_fetch(stays, got, 0, sizeof got));
  assert_memory_equal(got, v, sizeof v);
  assert_int_equal(at_code_take(pod_fetch(goes, got, 0, sizeof got)),
                   AT_DATA_LOSS);
  assert_int_equal(at_code_take(pod_fetch(read, got, 0, sizeof got)),
                   AT_DATA_LOSS);
  run one = on(&g, pod_copies(1, AT_F32, kFloats, 1, false), devices + 3, 1);
  one.args[0] = goes;
  OK(run_try(&one, NULL));
  assert_int_equal(at_code_take(pod_ready(one.outs[0])), AT_DATA_LOSS);
  run_drop_outs(&one);
  // The same program, on two chips now.
  for (int i = 0; i < 3; i++) expect_rotated(&r);
  at_loaded_release(one.l);
  at_loaded_release(r.l);
  at_buffer_release(stays);
  at_buffer_release(goes);
  at_buffer_release(read);
  guest_close(&g);
  pod_close(&p);
}

// Refused slices take neither memory nor device numbers.
static void what_cannot_be_had(void **state) {
  pod p;
  pod_open(&p, "v5e:2x2", 1, 4);
  guest g = guest_open(&p);
  uint32_t devices[64];
  at_msg_slice many = wish(kPodSpares + 1), none = wish(0), large = wish(1);
  large.memory = 65 << 20;  // ATOLL_HBM is 64M
  assert_int_equal(at_code_take(at_client_add_slice(g.client, &many, devices)),
                   AT_RESOURCE_EXHAUSTED);
  assert_int_equal(at_code_take(at_client_add_slice(g.client, &none, devices)),
                   AT_INVALID_ARGUMENT);
  assert_int_equal(at_code_take(at_client_add_slice(g.client, &large, devices)),
                   AT_RESOURCE_EXHAUSTED);
  // What a slice keeps is no other's; and the numbers come back.
  at_msg_slice half = wish(4);
  half.memory = 40 << 20;
  for (int i = 0; i < 6; i++) {
    add(&g, &half, devices);
    at_msg_slice more = half;
    assert_int_equal(
        at_code_take(at_client_add_slice(g.client, &more, devices)),
        AT_RESOURCE_EXHAUSTED);
    at_client_close_slice(g.client, half.slice);
  }
  guest_close(&g);
  pod_close(&p);
}

int main(int argc, char **argv) {
  setenv("ATOLL_HBM", "64M", 1);
  if (argc > 2 && !strcmp(argv[1], "--host")) return pod_host_main(argv[2]);
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(several_devices_share_a_chip),
      cmocka_unit_test(clients_are_weighed),
      cmocka_unit_test(devices_move_from_lost_hosts),
      cmocka_unit_test(what_cannot_be_had),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
