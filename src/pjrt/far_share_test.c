// Hosts that share memory, when something goes wrong: one is killed, fails,
// runs something else, says that its values lie where they do not, or cannot
// share.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "pjrt/far_test_util.h"

enum { kProcesses = 3, kColumns = 50000 };

// ---- A program
// All-reduce of `columns` floats over devices of the listed chips.
static program sum_of(const uint32_t *on, uint32_t n, int64_t columns) {
  at_strbuf b = {0};
  at_strbuf_addf(&b,
                 "hlo module \"m\" replicas=%u entry=\"main\" {\nfunc \"main\" "
                 "(%%0: f32[1,%lld]) -> (f32[1,%lld]) {\n%%1 = all_reduce %%0 "
                 "{replica_groups=[[",
                 n, (long long)columns, (long long)columns);
  for (uint32_t i = 0; i < n; i++) at_strbuf_addf(&b, "%s%u", i ? "," : "", i);
  at_strbuf_addf(&b,
                 "]]} ((%%2: f32[], %%3: f32[]) {\n%%4 = add %%2, %%3 : f32[]\n"
                 "return %%4\n}) : f32[1,%lld]\nreturn %%1\n}\n}\n",
                 (long long)columns);
  program p = {.num_devices = n, .num_args = 1, .num_results = 1};
  at_compile_options o = {.threads = 1, .no_cache = true};
  OK(at_compile((at_bytes){(const uint8_t *)b.ptr, b.len}, &o, &p.block));
  at_strbuf_free(&b);
  p.dtype[0] = AT_F32;
  p.dims[0][0] = 1;
  p.dims[0][1] = columns;
  for (uint32_t d = 0; d < n; d++) {
    float *v = malloc((size_t)columns * 4);
    for (int64_t i = 0; i < columns; i++) v[i] = (float)(i % 9 + d);
    p.chip[d] = on[d];
    p.args[d][0] = (uint8_t *)v;
  }
  return p;
}

static void program_free(program *p) {
  for (uint32_t d = 0; d < p->num_devices; d++) free(p->args[d][0]);
  free((void *)p->block.ptr);
}

// What sum_of's arguments add up to, exactly: all sums are small integers.
static bool sum_is_right(const program *p, const outcome *o, uint32_t device) {
  const float *v = (const float *)o->results[device][0];
  uint32_t n = p->num_devices;
  for (int64_t i = 0; i < p->dims[0][1]; i++)
    if (v[i] != (float)(n * (uint32_t)(i % 9) + n * (n - 1) / 2)) return false;
  return true;
}

// ---- Processes
typedef struct process {
  host h;
  at_pod_hosts *pod;
} process;

typedef int (*process_fn)(process *p);  // 0: good

// A process of the job: `before` runs ahead of its connections. The code is the
// exit status.
static int be_process(const char *addresses, uint32_t me, process_fn before,
                      process_fn fn) {
  process p = {0};
  const at_pod_job j = pod_job(addresses, me);
  p.h.face.me = me;
  if (before && before(&p)) return 99;
  if (at_code_take(at_pod_hosts_open(&j, &p.pod))) return 100;
  p.h.face = *at_pod_hosts_of(p.pod);
  at_runtime_options o = {
      .target = "3*v5e:1x1", .threads = 2, .hosts = &p.h.face};
  OK(at_runtime_create(&o, &p.h.rt));
  int bad = fn(&p);
  at_runtime_destroy(p.h.rt);
  at_pod_hosts_close(p.pod);
  return bad;
}

// The ends of all: exit codes, or signals + 1000.
static void run_processes(process_fn before, process_fn fn,
                          int ends[kProcesses]) {
  char addresses[256];
  pid_t pids[kProcesses];
  assert_true(at_free_addresses(kProcesses, addresses, sizeof addresses));
  for (uint32_t i = 0; i < kProcesses; i++) {
    pids[i] = fork();
    if (!pids[i]) {
      alarm(60);
      _exit(be_process(addresses, i, before, fn));
    }
  }
  for (uint32_t i = 0; i < kProcesses; i++) {
    int status;
    waitpid(pids[i], &status, 0);
    ends[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
}

// The program on this process's device; launches as often as p says.
static at_code launch_sum(process *me, program *p, outcome *out,
                          char why[300]) {
  errand e = {.h = &me->h, .p = p, .out = out};
  errand_thread(&e);
  memcpy(why, e.why, 300);
  return e.code;
}

// Does a sum over `n` chips (process i has chip i) go well?
static bool sums_well(process *me, const uint32_t *on, uint32_t n,
                      int64_t columns) {
  char why[300];
  outcome out = {0};
  program p = sum_of(on, n, columns);
  bool good = !launch_sum(me, &p, &out, why);
  for (uint32_t d = 0; d < n && good; d++)
    if (on[d] == me->h.face.me) good = sum_is_right(&p, &out, d);
  outcome_free(&out);
  program_free(&p);
  return good;
}

static const uint32_t all_of[] = {0, 1, 2}, ends_of[] = {0, 2};

// ---- Ends
static void *kill_later(void *arg) {
  usleep(30000);
  kill(getpid(), SIGKILL);
  return arg;
}

// Process 1 launches until it is killed, wherever it is then.
static int killed(process *me) {
  char why[300] = "";
  outcome out = {0};
  program p = sum_of(all_of, 3, kColumns);
  pthread_t thread;
  p.launches = 1000000;
  if (me->h.face.me == 1) pthread_create(&thread, NULL, kill_later, NULL);
  at_code code = launch_sum(me, &p, &out, why);
  if (code != AT_DATA_LOSS) return 1;
  if (!strstr(why, "process 1 is lost")) return 2;
  // The others go on without it, over memory it had mapped.
  for (int i = 0; i < 20; i++)
    if (!sums_well(me, ends_of, 2, i % 2 ? 10 : kColumns)) return 3;
  // It is never waited for again.
  uint64_t start = at_clock_ns();
  if (sums_well(me, all_of, 3, 10)) return 4;
  outcome_free(&out);
  program_free(&p);
  return at_clock_ns() - start < 5000000000u ? 0 : 5;
}

// Three times, since the kill meets the others in different states.
static void a_killed_process_is_told(void **state) {
  int ends[kProcesses];
  for (int turn = 0; turn < 3; turn++) {
    run_processes(NULL, killed, ends);
    assert_int_equal(ends[1], 1000 + SIGKILL);
    assert_int_equal(ends[0], 0);
    assert_int_equal(ends[2], 0);
  }
}

// Process 1 launches a sum whose argument has failed, in the middle of others.
static int fails(process *me) {
  uint32_t self = me->h.face.me;
  at_loaded *l;
  at_chip *all[kProcesses], *own = at_runtime_chip(me->h.rt, self);
  program p = sum_of(all_of, 3, kColumns);
  for (uint32_t i = 0; i < 3; i++) all[i] = at_runtime_chip(me->h.rt, i);
  OK(at_loaded_create(me->h.rt, p.block, &l));
  OK(at_loaded_span(l, all));
  int bad = 0;
  for (int i = 0; i < 30 && !bad; i++) {
    bool fails_now = i % 3 == 1;
    at_buffer *arg, *out;
    at_event *done;
    OK(at_buffer_create(own, AT_MEM_DEVICE, AT_F32, (at_dims){p.dims[0], 2},
                        &arg));
    memcpy(at_buffer_data_mut(arg), p.args[self][0], at_buffer_bytes(arg));
    at_launch in = {.chip = own, .chips = &own, .args = &arg, .num_args = 1};
    OK(at_loaded_execute(l, &in, &out, &done));
    at_buffer_define(arg, fails_now && self == 1
                              ? AT_FAIL(AT_DATA_LOSS, "no argument")
                              : AT_OK);
    at_status st = at_event_wait(done);
    if (fails_now != (st.err != NULL)) bad = 1;
    if (st.err && !strstr(at_status_message(st), "no argument")) bad = 2;
    if (st.err && self != 1 && !strstr(at_status_message(st), "process 1"))
      bad = 3;
    float last = 0;
    size_t at = at_buffer_bytes(arg) - 4;
    if (!st.err) memcpy(&last, (char *)at_buffer_data(out) + at, 4);
    if (!st.err && last != 3 * ((kColumns - 1) % 9) + 3) bad = 4;
    at_status_free(st);
    at_event_release(done);
    at_buffer_release(arg);
    at_buffer_release(out);
  }
  at_loaded_release(l);
  program_free(&p);
  return bad;
}

static void a_failure_is_told_and_what_follows_is_right(void **state) {
  int ends[kProcesses];
  run_processes(NULL, fails, ends);
  for (int i = 0; i < kProcesses; i++) assert_int_equal(ends[i], 0);
}

// ---- One that lies
// Host 1 of two says its operands, or its part of a sum, elsewhere than they
// are.
static struct {
  const at_hosts_share *honest;
  at_hosts_phase phase;
  uint64_t where, entry;  // 0: as it is
} lie;

// As the honest one, but for the phase of the lie: another place, or another
// entry in the list at that place.
static void lying_say(at_hosts_channel *c, at_hosts_phase phase, uint64_t where,
                      const uint32_t *hosts, uint32_t n) {
  if (phase == lie.phase && lie.entry)
    memcpy(lie.honest->own + where, &lie.entry, sizeof lie.entry);
  if (phase == lie.phase && lie.where) where = lie.where;
  lie.honest->say(c, phase, where, hosts, n);
}

// Addresses outside of the shared memory, at its end, and unaligned: the reader
// says so, and reads nothing there.
static void lies_are_found(void **state) {
  static const uint64_t places[] = {
      1,         8, UINT64_MAX, UINT64_MAX - 63, 1ull << 63, (1ull << 63) + 64,
      1ull << 46};
  jobs_share = true;
  for (at_hosts_phase phase = AT_HOSTS_READY; phase <= AT_HOSTS_SUMMED; phase++)
    for (size_t i = 0; i < 2 * (AT_LEN(places) + 2); i++) {
      char why[300] = "";
      job j;
      outcome out;
      program p = sum_of(all_of, 2, kColumns);
      job_open(&j, "2*v5e:1x1", 2);
      lie.honest = j.hosts[1].face.share;
      at_hosts_share liar = *lie.honest;
      liar.say = lying_say;
      // The runtime is made with the liar's face.
      at_runtime_destroy(j.hosts[1].rt);
      j.hosts[1].face.share = &liar;
      at_runtime_options o = {
          .target = "2*v5e:1x1", .threads = 2, .hosts = &j.hosts[1].face};
      OK(at_runtime_create(&o, &j.hosts[1].rt));
      size_t k = i / 2;
      uint64_t to = k < AT_LEN(places)    ? places[k]
                    : k == AT_LEN(places) ? liar.bytes
                                          : liar.bytes - 64;
      lie.phase = phase;
      lie.where = i % 2 ? to : 0;
      lie.entry = i % 2 ? 0 : to;
      at_code code = job_run(&j, &p, &out, why);
      // A list in the last 64 bytes is there, and all zero: its entries, too.
      bool zeros = i % 2 && to == liar.bytes - 64;
      if (!zeros && (code != AT_INTERNAL || !strstr(why, "shares no memory")))
        fail_msg("phase %d, case %zu: %d %s", phase, i, code, why);
      outcome_free(&out);
      program_free(&p);
      job_close(&j);
    }
  jobs_share = false;
}

// ---- Rubbish on a board
typedef struct listener {
  at_hosts_channel *c;
  const at_hosts_share *s;
  at_code code;
} listener;

static at_hosts_tag rubbish_tag = {.group = 5, .program = 7, .step = 8};

// Waits for the other one's word in a collective that it does not begin.
static void *hear_one(void *arg) {
  listener *l = arg;
  const uint32_t other = 1;
  uint32_t slot;
  uint64_t where;
  OK(l->s->begin(l->c, &rubbish_tag, &slot));
  l->s->say(l->c, AT_HOSTS_READY, 0, &other, 1);
  l->code = at_code_take(l->s->hear(l->c, AT_HOSTS_READY, &other, 1, &where));
  l->s->end(l->c);
  return NULL;
}

// Whatever another process writes into its own memory, this one reads it, finds
// nothing, and hears of the failure that ends it.
static void rubbish_is_harmless(void **state) {
  at_pod_hosts *pods[kMostHosts];
  open_pods(2, pods);
  const at_hosts *h[2] = {at_pod_hosts_of(pods[0]), at_pod_hosts_of(pods[1])};
  const uint32_t zero = 0;
  uint64_t random = 88172645463325252u;
  for (uint32_t turn = 0; turn < 20; turn++) {
    listener l = {.s = h[0]->share};
    rubbish_tag.launch = turn;
    OK(l.s->open(l.s->arg, 1000 + turn, &l.c));
    pthread_t thread;
    pthread_create(&thread, NULL, hear_one, &l);
    uint64_t until = at_clock_ns() + 30000000;
    while (at_clock_ns() < until) {
      for (uint64_t at = 0; at + 8 <= h[1]->share->first; at += 8) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        // Names of channels and tags of this launch are among it.
        uint64_t v = random % 8 == 0   ? 1000 + turn
                     : random % 8 == 1 ? random % 16
                                       : random;
        memcpy(h[1]->share->own + at, &v, sizeof v);
      }
    }
    at_hosts_tag tag = rubbish_tag;
    at_status why = AT_FAIL(AT_INTERNAL, "rubbish");
    (h[1]->fail)(h[1]->arg, &tag, &zero, 1, why);
    at_status_free(why);
    pthread_join(thread, NULL);
    assert_true(l.code == AT_ABORTED || l.code == AT_FAILED_PRECONDITION);
    memset(h[1]->share->own, 0, h[1]->share->first);
  }
  at_pod_hosts_close(pods[0]);
  at_pod_hosts_close(pods[1]);
}

// ---- One that was given up
static at_status finish_one(const at_hosts_share *s, at_hosts_channel *c,
                            uint32_t other) {
  at_status st = s->finish(c, &other, 1, true);
  s->end(c);
  return st;
}

// Process 1 is through with a collective and waits for process 0, which stands
// still; it gives up, and what it told of may change. Process 0, which goes on
// then, must not take what it has read for the other's operands.
static void who_was_given_up_has_no_result(void **state) {
  at_pod_hosts *pods[kMostHosts];
  open_pods(2, pods);
  const at_hosts_tag tag = {.group = 5, .program = 9};
  const at_hosts *h[2] = {at_pod_hosts_of(pods[0]), at_pod_hosts_of(pods[1])};
  at_hosts_channel *c[2];
  const uint32_t zero = 0;
  for (uint32_t i = 0; i < 2; i++) {
    uint32_t slot, other = !i;
    OK(h[i]->share->open(h[i]->share->arg, 77, &c[i]));
    OK(h[i]->share->begin(c[i], &tag, &slot));
    h[i]->share->say(c[i], AT_HOSTS_READY, 0, &other, 1);
  }
  at_status why = AT_FAIL(AT_DATA_LOSS, "it stands still");
  (h[1]->fail)(h[1]->arg, &tag, &zero, 1, why);
  at_status_free(why);
  assert_int_equal(at_code_take(finish_one(h[1]->share, c[1], 0)),
                   AT_DATA_LOSS);
  assert_int_equal(at_code_take(finish_one(h[0]->share, c[0], 1)),
                   AT_DATA_LOSS);
  at_pod_hosts_close(pods[0]);
  at_pod_hosts_close(pods[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      // Before others start threads that a fork does not copy.
      cmocka_unit_test(a_killed_process_is_told),
      cmocka_unit_test(a_failure_is_told_and_what_follows_is_right),
      cmocka_unit_test(lies_are_found),
      cmocka_unit_test(rubbish_is_harmless),
      cmocka_unit_test(who_was_given_up_has_no_result),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
