#include "control/pod_test_util.h"

pid_t pod_spawn(const char *what, const char *a, const char *b) {
  pid_t parent = getpid(), pid = fork();
  assert_true(pid >= 0);
  if (pid) return pid;
  // A test that is killed leaves no hosts behind.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(9);
  execl("/proc/self/exe", "pod_test", what, a, b, (char *)NULL);
  _exit(127);
}

int pod_join(pid_t pid) {
  int how;
  // A signal of the test's own may interrupt the wait.
  while (waitpid(pid, &how, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(how) ? WEXITSTATUS(how) : 1000 + WTERMSIG(how);
}

int pod_host_main(const char *address) {
  at_status st = at_host_run(&(at_host_options){.controller = address,
                                                .listen = "127.0.0.1:0",
                                                .pod = "127.0.0.1:0",
                                                .token = POD_TOKEN,
                                                .token_of_user = true,
                                                .place = -1});
  if (st.err) fprintf(stderr, "host: %s\n", at_status_message(st));
  return at_code_take(st);
}

void pod_open(pod *p, const char *target, uint32_t hosts, uint32_t chips) {
  *p = (pod){.num_hosts = hosts, .num_chips = chips};
  // On a port of its own, so that tests may run beside each other.
  OK(at_controller_open(&(at_controller_options){.listen = "127.0.0.1:0",
                                                 .target = target,
                                                 .num_hosts = hosts,
                                                 .token = POD_TOKEN},
                        &p->controller));
  snprintf(p->address, sizeof p->address, "%s",
           at_controller_address(p->controller));
  for (uint32_t i = 0; i < hosts; i++)
    // Any place: which of them is host 0 shows only later.
    p->hosts[i] = pod_spawn("--host", p->address, NULL);
}

void pod_close(pod *p) {
  // The controller goes first: its hosts end when it says so.
  at_controller_close(p->controller);
  for (uint32_t i = 0; i < p->num_hosts; i++)
    if (p->hosts[i]) assert_int_equal(pod_join(p->hosts[i]), 0);
}

void pod_kill_host(pod *p, uint32_t i) {
  // The entry is 0 afterwards, so that pod_close does not wait for it.
  kill(p->hosts[i], SIGKILL);
  assert_int_equal(pod_join(p->hosts[i]), 1000 + SIGKILL);
  p->hosts[i] = 0;
}

at_status guest_try(const char *address, guest *g) {
  AT_TRY(at_client_open(&(at_client_options){.address = address,
                                             .source = "a test",
                                             .token = POD_TOKEN,
                                             .name = "guest",
                                             .spares = kPodSpares},
                        &g->client));
  return at_runtime_create(
      &(at_runtime_options){.target = at_client_target(g->client),
                            .threads = 2,
                            .proxy = at_client_proxy(g->client),
                            .spares = kPodSpares},
      &g->rt);
}

guest guest_open(const pod *p) {
  guest g;
  OK(guest_try(p->address, &g));
  return g;
}

void guest_close(guest *g) {
  at_runtime_destroy(g->rt);
  at_client_close(g->client);
}

at_chip *guest_chip(const guest *g, uint32_t i) {
  return at_runtime_chip(g->rt, i);
}

uint64_t guest_in_use(const guest *g, uint32_t chips) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < chips; i++) {
    at_memory_stats s = at_chip_memory_stats(guest_chip(g, i));
    assert_true(s.limit);  // it was the host that has answered
    sum += s.in_use;
  }
  return sum;
}

void guest_expect_empty(const guest *g, uint32_t chips) {
  // 20 seconds: drops are messages, and hosts may be busy.
  uint64_t until = at_clock_ns() + 20000000000ull, left;
  while ((left = guest_in_use(g, chips)) && at_clock_ns() < until) usleep(2000);
  assert_int_equal(left, 0);
}

// One user less.
static void patience_drop(patience *p) {
  if (atomic_fetch_sub(&p->users, 1) != 1) return;
  at_status_free(p->status);
  free(p);
}

// The event's callback; nobody may be waiting any more.
static void patience_fired(at_status s, void *arg) {
  patience *p = arg;
  pthread_mutex_lock(&p->lock);
  p->fired = true;
  p->status = s;
  pthread_cond_signal(&p->news);
  pthread_mutex_unlock(&p->lock);
  patience_drop(p);
}

at_status pod_wait(at_event *e) {
  patience *p = calloc(1, sizeof *p);
  struct timespec until = at_clock_timespec(at_clock_ns() + 60000000000ull);
  pthread_mutex_init(&p->lock, NULL);
  at_clock_cond_init(&p->news);
  atomic_init(&p->users, 2);
  AT_TRY(at_event_on(e, patience_fired, p));
  pthread_mutex_lock(&p->lock);
  while (!p->fired && !pthread_cond_timedwait(&p->news, &p->lock, &until)) {
  }
  at_status st =
      p->fired ? p->status : AT_FAIL(AT_DEADLINE_EXCEEDED, "it never fires");
  if (p->fired) p->status = AT_OK;
  pthread_mutex_unlock(&p->lock);
  patience_drop(p);
  return st;
}

at_status pod_ready(at_buffer *b) { return pod_wait(at_buffer_ready(b)); }

at_status pod_fetch(at_buffer *b, void *out, size_t offset, size_t bytes) {
  at_event *done = NULL;
  AT_TRY(at_buffer_to_host(b, out, offset, bytes, &done));
  at_status st = pod_wait(done);
  at_event_release(done);
  return st;
}

at_buffer *pod_array(at_chip *c, at_dtype t, const void *v, int64_t n) {
  return test_array_of(c, t, v, n);
}

at_bytes pod_copies(uint32_t devices, at_dtype t, int64_t n, uint32_t values,
                    bool aliased) {
  builder b = b_new();
  b.h.num_partitions = devices;
  uint32_t type = b_type(&b, t, 1, &n), in[8];
  for (uint32_t i = 0; i < values; i++) in[i] = b_input(&b, type);
  for (uint32_t i = 0; i < values; i++) {
    const at_xio passed = {.type = type, .slot = in[i], .alias = -1};
    if (aliased) {
      b_output(&b, type);
      b_alias(&b, i, i);
    } else {
      b_add(&b, AT_XS_OUTPUTS, &passed, sizeof passed);
    }
  }
  return b_finish(&b, 0);
}

at_bytes pod_rotates(uint32_t devices, int64_t n) {
  builder b = b_new();
  b.h.num_partitions = devices;
  uint32_t type = b_f32(&b, n), in = b_input(&b, type),
           out = b_output(&b, type);
  // The tables of a permute in the executable's own form, as no compiler writes
  // them here.
  struct {
    at_x_collective head;
    at_x_exchange value;
    uint32_t tables[AT_COLL_TABLES][kPodChips];
  } x = {{AT_COLL_PERMUTE, 1, devices, 1},
         {.operand_bytes = (uint64_t)n * 4,
          .result_bytes = (uint64_t)n * 4,
          .rows = 1,
          .lines = 1,
          .run = (uint64_t)n * 4,
          .give_row = (uint64_t)n * 4,
          .take_row = (uint64_t)n * 4,
          .element_bytes = 4,
          .block = UINT32_MAX,
          .tail = UINT32_MAX},
         {{0}}};
  uint32_t *to = x.tables[0];
  for (uint32_t d = 0; d < devices; d++) {
    to[0 * devices + d] = 0;                  // group_of
    to[1 * devices + d] = d;                  // rank_of
    to[2 * devices + d] = 0;                  // begin_of
    to[3 * devices + d] = devices;            // size_of
    to[4 * devices + d] = d;                  // members
    to[5 * devices + d] = (d + 1) % devices;  // source_of
  }
  at_xstep *s = b_step(&b, AT_STEP_COLLECTIVE, 0, ARGS(in, out));
  s->aux = 1;
  s->params_bytes = (uint32_t)at_x_collective_bytes(&x.head);
  s->params = b_bytes(&b, AT_XS_PARAMS, &x, s->params_bytes, 16);
  return b_finish(&b, 0);
}

at_bytes pod_calls(uint32_t devices, int64_t n) {
  builder b = b_new();
  b.h.num_partitions = devices;
  uint32_t type = b_f32(&b, n), x = b_input(&b, type), y = b_output(&b, type);
  b_step(&b, AT_STEP_SEND, 0, ARGS(x))->aux = 7;
  b_step(&b, AT_STEP_RECV, 0, ARGS(y))->aux = 8;
  b.h.has_effects = 1;
  return b_finish(&b, 0);
}

run run_make(const guest *g, at_bytes block, uint32_t devices,
             uint32_t values) {
  run r = {.devices = devices, .num_args = values, .num_outs = values};
  r.l = test_load(g->rt, block);
  // Device d runs on chip d.
  for (uint32_t d = 0; d < devices; d++) r.chips[d] = guest_chip(g, d);
  for (uint32_t i = 0; i < values; i++) r.keeps[i] = true;
  return r;
}

at_status run_try(run *r, at_event **done) {
  const at_launch in = {.chip = r->chips[0],
                        .chips = r->chips,
                        .num_chips = r->devices > 1 ? r->devices : 0,
                        .args = r->args,
                        .num_args = r->num_args,
                        .not_donatable = r->keeps,
                        .channels = r->channels};
  return at_loaded_execute(r->l, &in, r->outs, done);
}

void run_drop(at_buffer **b, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    at_buffer_release(b[i]);
    b[i] = NULL;
  }
}

void run_drop_args(run *r) { run_drop(r->args, r->devices * r->num_args); }

void run_drop_outs(run *r) { run_drop(r->outs, r->devices * r->num_outs); }
