// Hosts that people take away and back, and what they are told of a pod.
#include "control/files.h"
#include "control/pod_test_util.h"
#include "control/tool.h"

// A tool's question or order, by a connection of its own.
static at_status ask(const pod *p, at_message_kind kind, at_bytes body,
                     at_strbuf *out) {
  return at_tool_ask(
      &(at_tool_options){
          .address = p->address, .source = "a test", .token = POD_TOKEN},
      kind, body, out);
}

static at_status drain(const pod *p, uint32_t host, at_drain_how how) {
  const at_msg_drain m = {host, how};
  return ask(p, AT_MSG_DRAIN, (at_bytes){(const uint8_t *)&m, sizeof m}, NULL);
}

// Does the status contain that text now?
static bool says(const pod *p, const char *what) {
  at_strbuf text = {0};
  OK(ask(p, AT_MSG_STATUS, (at_bytes){0}, &text));
  bool found = strstr(text.ptr, what) != NULL;
  at_strbuf_free(&text);
  return found;
}

// The controller's status, for up to 20 s.
static void until_it_says(const pod *p, const char *what) {
  uint64_t until = at_clock_ns() + 20000000000ull;
  while (!says(p, what)) {
    assert_true(at_clock_ns() < until);
    usleep(20000);
  }
}

// Hosts take places as they come: the process that has one.
static uint32_t process_of(const pod *p, uint32_t host) {
  char key[64], *at;
  at_strbuf text = {0};
  OK(ask(p, AT_MSG_STATUS, (at_bytes){0}, &text));
  snprintf(key, sizeof key, "{\"host\":%u,\"name\":\"host (process ", host);
  at = strstr(text.ptr, key);
  assert_non_null(at);
  pid_t pid = (pid_t)strtol(at + strlen(key), NULL, 10);
  at_strbuf_free(&text);
  uint32_t i = 0;
  while (p->hosts[i] != pid) i++;
  return i;
}

// The client hears of it by a message, a moment later.
static void until_drains(const guest *g, uint32_t chip, bool drains) {
  uint64_t until = at_clock_ns() + 20000000000ull;
  while (at_client_drains(g->client, chip) != drains) {
    assert_true(at_clock_ns() < until);
    usleep(2000);
  }
}

// Draining waits for the last array of any client; then the process ends, new
// clients do without it, and nobody takes its place before it is undrained.
static void it_ends_once_it_holds_nothing(void **state) {
  pod p;
  float v[4] = {1, 2, 3, 4}, got[4];
  pod_open(&p, "v5e:2x2", 2, 4);
  guest g = guest_open(&p);
  uint32_t process = process_of(&p, 1);
  at_buffer *here = pod_array(guest_chip(&g, 0), AT_F32, v, 4);
  at_buffer *there = pod_array(guest_chip(&g, 3), AT_F32, v, 4);
  OK(pod_ready(there));
  assert_int_equal(at_code_take(drain(&p, 2, AT_DRAIN_START)),
                   AT_INVALID_ARGUMENT);
  OK(drain(&p, 1, AT_DRAIN_UNDO));
  OK(drain(&p, 1, AT_DRAIN_START));
  until_drains(&g, 3, true);
  assert_false(at_client_drains(g.client, 0));
  // A client that comes later knows, too, and may use it where it wants to.
  guest late = guest_open(&p);
  until_drains(&late, 2, true);
  at_buffer *more = pod_array(guest_chip(&late, 2), AT_F32, v, 4);
  OK(pod_fetch(more, got, 0, sizeof got));
  until_it_says(&p, "\"state\":\"draining\"");
  assert_true(says(&p, "\"holders\":[{"));
  usleep(500000);
  OK(pod_fetch(there, got, 0, sizeof got));
  assert_memory_equal(got, v, sizeof v);
  at_buffer_release(more);
  guest_close(&late);  // nothing of it holds the host any more
  at_buffer_release(there);
  assert_int_equal(pod_join(p.hosts[process]), 0);
  until_it_says(&p, "\"state\":\"drained\"");
  // The rest goes on, for new clients as well; what comes there is lost.
  late = guest_open(&p);
  OK(pod_fetch(here, got, 0, sizeof got));
  at_buffer *lost = pod_array(guest_chip(&late, 3), AT_F32, v, 4);
  assert_int_equal(at_code_take(pod_fetch(lost, got, 0, sizeof got)),
                   AT_DATA_LOSS);
  at_buffer_release(lost);
  // Nobody takes its place before it is wanted back.
  pid_t other = pod_spawn("--host", p.address, NULL);
  assert_int_equal(pod_join(other), AT_FAILED_PRECONDITION);
  OK(drain(&p, 1, AT_DRAIN_UNDO));
  until_drains(&late, 3, false);
  p.hosts[process] = pod_spawn("--host", p.address, NULL);
  uint64_t until = at_clock_ns() + 20000000000ull;
  for (at_code code = 1; code;) {
    at_buffer *b = pod_array(guest_chip(&late, 3), AT_F32, v, 4);
    code = at_code_take(pod_fetch(b, got, 0, sizeof got));
    at_buffer_release(b);
    assert_true(at_clock_ns() < until);
  }
  at_buffer_release(here);
  guest_close(&late);
  guest_close(&g);
  pod_close(&p);
}

// Until the host has that state, and is another process than that one.
static void until_it_is(const pod *p, uint32_t host, const char *state,
                        pid_t before) {
  char named[64], was[64], wanted[32];
  uint64_t until = at_clock_ns() + 30000000000ull;
  snprintf(named, sizeof named, "{\"host\":%u,\"name\":\"host (process ", host);
  snprintf(was, sizeof was, "%s%d)", named, (int)before);
  snprintf(wanted, sizeof wanted, "\"state\":\"%s\"", state);
  for (bool is = false; !is; usleep(20000)) {
    at_strbuf text = {0};
    OK(ask(p, AT_MSG_STATUS, (at_bytes){0}, &text));
    const char *at = strstr(text.ptr, named),
               *has = at ? strstr(at, "\"state\":") : NULL;
    is = has && !strstr(text.ptr, was) && !strncmp(has, wanted, strlen(wanted));
    at_strbuf_free(&text);
    assert_true(at_clock_ns() < until);
  }
}

// A collective over the first chips, with arrays of now.
static void rotates_over(const guest *g, uint32_t chips) {
  enum { kNumber = 1000 };
  float v[kNumber], got[kNumber];
  run r = run_make(g, pod_rotates(chips, kNumber), chips, 1);
  for (uint32_t d = 0; d < chips; d++) {
    for (int i = 0; i < kNumber; i++) v[i] = (float)(1000 * d + (uint32_t)i);
    r.args[d] = pod_array(r.chips[d], AT_F32, v, kNumber);
  }
  OK(run_try(&r, NULL));
  for (uint32_t d = 0; d < chips; d++) {
    OK(pod_fetch(r.outs[d], got, 0, sizeof got));
    for (int i = 0; i < kNumber; i++)
      assert_float_equal(got[i],
                         (float)(1000 * ((d + 1) % chips) + (uint32_t)i), 0);
  }
  run_drop_outs(&r);
  run_drop_args(&r);
  at_loaded_release(r.l);
}

// Without a host that is drained the others form anew: the one that is lost
// comes back, programs run over those that are there, and over all of them once
// it is wanted back.
static void others_come_back_without_it(void **state) {
  pod p;
  pod_open(&p, "v5e:2x2", 4, 4);
  guest g = guest_open(&p);
  rotates_over(&g, 4);
  const uint32_t drained = process_of(&p, 3), lost = process_of(&p, 1);
  const pid_t before = p.hosts[lost];
  OK(drain(&p, 3, AT_DRAIN_FORCE));
  assert_int_equal(pod_join(p.hosts[drained]), 0);
  until_it_says(&p, "\"state\":\"drained\"");
  pod_kill_host(&p, lost);
  until_it_is(&p, 1, "lost", 0);
  p.hosts[lost] = pod_spawn("--host", p.address, NULL);
  until_it_is(&p, 1, "up", before);
  guest late = guest_open(&p);
  rotates_over(&late, 3);
  rotates_over(&g, 3);
  OK(drain(&p, 3, AT_DRAIN_UNDO));
  p.hosts[drained] = pod_spawn("--host", p.address, NULL);
  until_drains(&g, 3, false);
  until_it_is(&p, 3, "up", 0);
  rotates_over(&g, 4);
  guest_close(&late);
  guest_close(&g);
  pod_close(&p);
}

// One of two that are lost is not wanted back: the other one does not wait for
// it, and is a pod alone.
static void who_waits_for_it_goes_on(void **state) {
  pod p;
  float v[4] = {1, 2, 3, 4}, got[4];
  pod_open(&p, "v5e:2x2", 2, 4);
  guest g = guest_open(&p);
  const uint32_t first = process_of(&p, 0), second = process_of(&p, 1);
  pod_kill_host(&p, first);
  pod_kill_host(&p, second);
  until_it_is(&p, 0, "lost", 0);
  until_it_is(&p, 1, "lost", 0);
  p.hosts[first] = pod_spawn("--host", p.address, NULL);
  until_it_is(&p, 0, "joining", 0);
  OK(drain(&p, 1, AT_DRAIN_START));
  until_it_says(&p, "\"state\":\"drained\"");
  guest late = guest_open(&p);
  at_buffer *b = pod_array(guest_chip(&late, 1), AT_F32, v, 4);
  OK(pod_fetch(b, got, 0, sizeof got));
  assert_memory_equal(got, v, sizeof v);
  at_buffer_release(b);
  guest_close(&late);
  guest_close(&g);
  pod_close(&p);
}

// Launches that were sent before the order are done, also those that the
// controller still holds; those behind it fail.
static void by_force_it_ends_what_it_was_asked(void **state) {
  pod p;
  enum { kNumber = 100000, kLaunches = 1000 };
  float *v = calloc(kNumber, sizeof *v), *got = malloc(kNumber * sizeof *got);
  for (int i = 0; i < kNumber; i++) v[i] = (float)(i % 1000);
  pod_open(&p, "v5e:2x2", 2, 4);
  guest g = guest_open(&p);
  uint32_t process = process_of(&p, 1);
  run r = run_make(&g, pod_rotates(4, kNumber), 4, 1);
  for (uint32_t d = 0; d < 4; d++)
    r.args[d] = pod_array(r.chips[d], AT_F32, v, kNumber);
  for (int i = 0; i < kLaunches; i++) {
    OK(run_try(&r, NULL));
    if (i + 1 < kLaunches) run_drop_outs(&r);
  }
  at_event *done;
  OK(at_buffer_to_host(r.outs[3], got, 0, kNumber * sizeof *got, &done));
  OK(drain(&p, 1, AT_DRAIN_FORCE));
  OK(pod_wait(done));
  assert_memory_equal(got, v, kNumber * sizeof *got);
  at_event_release(done);
  assert_int_equal(pod_join(p.hosts[process]), 0);
  p.hosts[process] = 0;
  until_it_says(&p, "\"state\":\"drained\"");
  run_drop_outs(&r);
  OK(run_try(&r, NULL));
  for (uint32_t d = 0; d < 4; d++)
    assert_int_equal(at_code_take(pod_ready(r.outs[d])), AT_DATA_LOSS);
  OK(pod_ready(r.args[0]));  // on the host that is left
  run_drop_outs(&r);
  run_drop_args(&r);
  at_loaded_release(r.l);
  guest_close(&g);
  pod_close(&p);
  free(v);
  free(got);
}

// Launches 1, 2 and 4 of five are measured; all of them while somebody looks
// on.
static void what_is_said_of_a_pod(void **state) {
  pod p;
  float v[4] = {1, 2, 3, 4};
  pod_open(&p, "v5e:2x2", 2, 4);
  guest g = guest_open(&p);
  run r = run_make(&g, pod_copies(2, AT_F32, 4, 1, false), 2, 1);
  for (uint32_t d = 0; d < 2; d++)
    r.args[d] = pod_array(r.chips[d], AT_F32, v, 4);
  for (int i = 0; i < 5; i++) {
    OK(run_try(&r, NULL));
    for (uint32_t d = 0; d < 2; d++) OK(pod_ready(r.outs[d]));
    run_drop_outs(&r);
  }
  until_it_says(&p, "\"launches\":5,\"hosts\":1,\"measured\":3,\"p50_us\":");
  assert_true(says(&p, "\"chip\":3,\"slice\":0,\"queued\":0,\"in_use\":0,"));
  assert_true(says(&p, "\"start_us\":-"));
  // Who looks on has every launch measured.
  const at_msg_status watch = {.watch_ms = 10000};
  at_strbuf text = {0};
  OK(ask(&p, AT_MSG_STATUS, (at_bytes){(const uint8_t *)&watch, sizeof watch},
         &text));
  at_strbuf_free(&text);
  for (int i = 0; i < 6; i++) {
    OK(run_try(&r, NULL));
    for (uint32_t d = 0; d < 2; d++) OK(pod_ready(r.outs[d]));
    run_drop_outs(&r);
  }
  until_it_says(&p, "\"launches\":11,\"hosts\":1,\"measured\":9,");
  run_drop_args(&r);
  at_loaded_release(r.l);
  guest_close(&g);
  pod_close(&p);
}

// What all processes say of some launches. This one is client and controller.
static void a_trace_has_all_processes(void **state) {
  pod p;
  float v[4] = {1, 2, 3, 4};
  pod_open(&p, "v5e:2x2", 2, 4);
  guest g = guest_open(&p);
  const at_tool_options o = {
      .address = p.address, .source = "a test", .token = POD_TOKEN};
  at_tool_trace *trace, *other;
  const at_tool_spans *all = NULL;
  run r = run_make(&g, pod_rotates(4, 4), 4, 1);
  for (uint32_t d = 0; d < 4; d++)
    r.args[d] = pod_array(r.chips[d], AT_F32, v, 4);
  OK(at_tool_trace_begin(&o, &trace));
  assert_int_equal(at_code_take(at_tool_trace_begin(&o, &other)),
                   AT_FAILED_PRECONDITION);
  uint64_t begin = at_clock_ns();
  usleep(200000);  // hosts have been told
  for (int i = 0; i < 3; i++) {
    OK(run_try(&r, NULL));
    for (uint32_t d = 0; d < 4; d++) OK(pod_ready(r.outs[d]));
    run_drop_outs(&r);
  }
  OK(at_tool_trace_end(trace, &all));
  uint64_t end = at_clock_ns(), kinds[AT_SPAN_KINDS] = {0};
  for (; all; all = all->next) {
    assert_int_equal(all->is->offset_ns, 0);  // one machine has one clock
    assert_int_equal(all->is->dropped, 0);
    const at_profile_span *s = (const void *)(all->is + 1);
    for (uint32_t i = 0; i < all->is->count; i++) {
      assert_true(s[i].start_ns >= begin && s[i].end_ns <= end);
      kinds[s[i].kind]++;
    }
  }
  assert_int_equal(kinds[AT_SPAN_LAUNCH], 3);
  assert_int_equal(kinds[AT_SPAN_ORDER], 3);
  assert_int_equal(kinds[AT_SPAN_TAKE], 3 * 2);
  assert_int_equal(kinds[AT_SPAN_RUN], 3 * 4);
  at_tool_trace_free(trace);
  run_drop_args(&r);
  at_loaded_release(r.l);
  guest_close(&g);
  pod_close(&p);
}

// The only host of a save is taken away while it saves: nobody is left to write
// the manifest, so there is no checkpoint, whatever the host has said.
static void a_save_whose_host_goes_fails(void **state) {
  pod p;
  char folder[] = "/tmp/atoll_drain_XXXXXX", path[64], clean[64];
  const float v[4] = {1, 2, 3, 4};
  const struct {
    at_msg_cut m;
    int64_t dims[1];
    uint32_t axes[1];
    char name[4];
  } cut = {{.dtype = AT_F32, .rank = 1, .num_axes = 1, .name_bytes = 1},
           {4},
           {1},
           "a"};
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/saved", folder);
  pod_open(&p, "v5e:2x2", 2, 4);
  guest g = guest_open(&p);
  const pid_t host = p.hosts[process_of(&p, 1)];
  at_buffer *b = pod_array(guest_chip(&g, 3), AT_F32, v, 4);
  at_proxy_shard shard;
  uint64_t array;
  at_asked *asked;
  OK(pod_ready(b));
  OK(at_proxy_name(&b, 1, &array, &shard));
  kill(host, SIGSTOP);
  const at_files_ask f = {.path = at_str_of(path),
                          .cuts = {(const uint8_t *)&cut, sizeof cut},
                          .num_arrays = 1,
                          .arrays = &array};
  OK(at_files_save_ask(g.client, &f, &asked));
  usleep(300000);  // the controller has it
  OK(drain(&p, 1, AT_DRAIN_FORCE));
  kill(host, SIGCONT);
  assert_int_not_equal(at_code_take(at_asked_wait(asked, NULL)), 0);
  at_buffer_release(b);
  guest_close(&g);
  pod_close(&p);
  snprintf(clean, sizeof clean, "rm -r %s", folder);
  assert_int_equal(system(clean), 0);
}

int main(int argc, char **argv) {
  if (argc > 2 && !strcmp(argv[1], "--host")) return pod_host_main(argv[2]);
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_ends_once_it_holds_nothing),
      cmocka_unit_test(by_force_it_ends_what_it_was_asked),
      cmocka_unit_test(others_come_back_without_it),
      cmocka_unit_test(who_waits_for_it_goes_on),
      cmocka_unit_test(a_save_whose_host_goes_fails),
      cmocka_unit_test(what_is_said_of_a_pod),
      cmocka_unit_test(a_trace_has_all_processes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
