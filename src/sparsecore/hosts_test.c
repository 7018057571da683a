// Hosts that are processes with memory of their own, connected by sockets: the
// bits of one host, the same failure on all, and agreement.
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sparsecore/run_test_util.h"

enum { kMaxHosts = 4 };

// ---- A transport
typedef struct wire {
  uint32_t count, me;
  int fd[kMaxHosts];
  void *kept[kMaxHosts];  // of the last exchange
  const at_bytes *send;
  int spoil;  // the message of this many exchanges from now is cut short
} wire;

// All n bytes out or in; false at an error or the end.
static bool move_all(int fd, void *p, size_t n, bool out) {
  for (size_t at = 0; at < n;) {
    ssize_t k = out ? write(fd, (uint8_t *)p + at, n - at)
                    : read(fd, (uint8_t *)p + at, n - at);
    if (k <= 0) return false;
    at += (size_t)k;
  }
  return true;
}

// A thread of its own, as both sides send before they read.
static void *send_all_messages(void *arg) {
  const wire *w = arg;
  for (uint32_t h = 0; h < w->count; h++) {
    uint64_t n = w->send[h].len;
    if (h == w->me) continue;
    if (!move_all(w->fd[h], &n, sizeof n, true) ||
        !move_all(w->fd[h], (void *)w->send[h].ptr, n, true))
      return NULL;
  }
  return NULL;
}

// at_sc_hosts.exchange over sockets: the length, then the bytes.
static at_status exchange(void *arg, const at_bytes *send, at_bytes *recv) {
  wire *w = arg;
  pthread_t sender;
  w->send = send;
  if (pthread_create(&sender, NULL, send_all_messages, w))
    return AT_FAIL(AT_INTERNAL, "no thread");
  bool good = true;
  for (uint32_t h = 0; h < w->count; h++) {
    uint64_t n = 0;
    if (h == w->me) continue;
    good &= move_all(w->fd[h], &n, sizeof n, false);
    free(w->kept[h]);
    w->kept[h] = malloc(n + 1);
    good = good && move_all(w->fd[h], w->kept[h], n, false);
    if (w->spoil == 1) n -= AT_MIN(n, 4u);
    recv[h] = (at_bytes){w->kept[h], n};
  }
  if (w->spoil) w->spoil--;
  pthread_join(sender, NULL);
  return good ? AT_OK : AT_FAIL(AT_UNAVAILABLE, "a host is gone");
}

// ---- Hosts
typedef int (*host_fn)(const at_sc_hosts *h);  // 0: good

// Runs `fn` on `count` processes; true: all are good.
static bool on_hosts(uint32_t count, host_fn fn) {
  int ends[kMaxHosts][kMaxHosts] = {{0}};
  for (uint32_t a = 0; a < count; a++)
    for (uint32_t b = 0; b < a; b++) {
      int pair[2];
      assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
      ends[a][b] = pair[0];
      ends[b][a] = pair[1];
    }
  pid_t children[kMaxHosts];
  fflush(NULL);
  for (uint32_t h = 0; h < count; h++) {
    children[h] = fork();
    assert_true(children[h] >= 0);
    if (children[h]) continue;
    wire w = {.count = count, .me = h};
    for (uint32_t a = 0; a < count; a++)
      for (uint32_t b = 0; b < count; b++)
        if (a != b && a != h) close(ends[a][b]);
    memcpy(w.fd, ends[h], sizeof w.fd);
    at_sc_hosts hosts = {count, h, &w, exchange};
    int result = fn(&hosts);
    for (uint32_t i = 0; i < count; i++) free(w.kept[i]);
    fflush(NULL);
    _exit(result);
  }
  for (uint32_t a = 0; a < count; a++)
    for (uint32_t b = 0; b < count; b++)
      if (a != b) close(ends[a][b]);
  bool good = true;
  for (uint32_t h = 0; h < count; h++) {
    int how;
    assert_int_equal(waitpid(children[h], &how, 0), children[h]);
    good &= WIFEXITED(how) && !WEXITSTATUS(how);
  }
  return good;
}

// The devices of this host only.
static at_status run_host(const sc_case *c, const at_sc_hosts *h) {
  at_pool *pool;
  at_status st = at_pool_create(2, &pool);
  if (st.err) return st;
  uint32_t here = c->x.num_devices / h->count;
  void *const *bufs[kMaxDevices];
  for (uint32_t d = 0; d < here; d++) bufs[d] = c->bufs[h->me * here + d];
  scratch s = {.count = 0};
  at_par par = {pool, take, &s};
  at_kernel_fn kernels[1] = {momentum};
  at_sc_run r = {.x = &c->x,
                 .kernels = kernels,
                 .name = "t",
                 .bufs = bufs,
                 .hosts = h,
                 .par = &par};
  st = at_sc_run_step(&r);
  free_scratch(&s);
  at_pool_destroy(pool);
  return st;
}

// Forgets what other hosts have.
static void keep_own(sc_case *c, const at_sc_hosts *h) {
  uint32_t here = c->x.num_devices / h->count;
  for (uint32_t d = 0; d < c->x.num_devices; d++)
    for (uint32_t i = 0; i < c->num_bufs && d / here != h->me; i++) {
      free(c->bufs[d][i]);
      c->bufs[d][i] = NULL;
    }
}

// Are the results of this host's devices those of the case?
static bool right(const sc_case *c, const at_sc_hosts *h) {
  const at_x_sparse *x = &c->x;
  uint32_t here = x->num_devices / h->count, first = at_x_sparse_operands(x);
  for (uint32_t d = h->me * here; d < (h->me + 1) * here; d++)
    for (uint32_t t = 0; t < at_x_sparse_results(x); t++)
      if (memcmp(c->bufs[d][first + t], c->want[d][t],
                 at_sc_buffer_bytes(x, first + t)))
        return false;
  return true;
}

// A host_fn: each case whose devices divide over the hosts.
static int runs_all_cases(const at_sc_hosts *h) {
  FILE *f = open_cases();
  sc_case c;
  int wrong = 0, ran = 0;
  for (; next_case(f, &c); free_case(&c)) {
    if (c.x.op == AT_SPARSE_LOCAL || c.x.num_devices % h->count) continue;
    keep_own(&c, h);
    at_status st = run_host(&c, h);
    if (st.err) print_message("host %u: %s\n", h->me, at_status_message(st));
    wrong += at_code_take(st) != 0 || !right(&c, h);
    ran++;
  }
  fclose(f);
  if (!ran) print_message("no case has %u hosts\n", h->count);
  return wrong || !ran;
}

// The cases have the bits of one host.
static void bits_are_those_of_one_host(void **state) {
  assert_true(on_hosts(2, runs_all_cases));
  assert_true(on_hosts(4, runs_all_cases));
  assert_true(on_hosts(1, runs_all_cases));
}

// ---- Failures
// Reads the first case with two devices of this kind.
static void read_two(sc_case *c, at_sparse_op op) {
  FILE *f = open_cases();
  while (next_case(f, c) && !(c->x.op == (uint32_t)op && c->x.num_devices == 2))
    free_case(c);
  fclose(f);
}

// 0 if the status has this code and says so. Takes st.
static int says(at_status st, at_code code, const char *what) {
  bool found = st.err && strstr(at_status_message(st), what);
  if (!found)
    print_message("expected \"%s\", got: %s\n", what,
                  st.err ? at_status_message(st) : "OK");
  return at_code_take(st) != code || !found;
}

// Host 0 learns of it, and no table has changed.
static int bad_id_on_host_1(const at_sc_hosts *h) {
  int wrong = 0;
  for (int update = 0; update < 2; update++) {
    sc_case c;
    read_two(&c, update ? AT_SPARSE_UPDATE : AT_SPARSE_LOOKUP);
    uint32_t table = at_x_sparse_table(&c.x);
    uint64_t bytes = at_sc_buffer_bytes(&c.x, table);
    uint32_t result = at_x_sparse_operands(&c.x);
    void *before = malloc(bytes);
    memcpy(before, c.bufs[h->me][table], bytes);
    if (update) {  // in place
      free(c.bufs[h->me][result]);
      c.bufs[h->me][result] = c.bufs[h->me][table];
    }
    int32_t *ids = c.bufs[1][1];
    while (*ids == INT32_MAX) ids++;
    if (h->me == 1) *ids = -5;
    at_status st = run_host(&c, h);
    wrong += h->me == 1
                 ? says(st, AT_INVALID_ARGUMENT, "id -5 of table t is out of")
                 : says(st, AT_ABORTED, "host 1 failed: ");
    wrong += memcmp(before, c.bufs[h->me][table], bytes) != 0;
    if (update) c.bufs[h->me][result] = NULL;
    free(before);
    free_case(&c);
  }
  return wrong;
}

// Four bytes are missing of what host 0 receives first.
static int messages_cut_short(const at_sc_hosts *h) {
  int wrong = 0;
  for (int update = 0; update < 2; update++) {
    sc_case c;
    read_two(&c, update ? AT_SPARSE_UPDATE : AT_SPARSE_LOOKUP);
    if (h->me == 0) ((wire *)h->arg)->spoil = 1;
    at_status st = run_host(&c, h);
    if (h->me == 0)
      wrong += says(st, AT_INTERNAL, "host 1 sent a malformed message");
    else  // has nothing to wait for in an update
      wrong +=
          update ? at_code_take(st) : says(st, AT_ABORTED, "host 0 failed");
    free_case(&c);
  }
  return wrong;
}

// Rows without elements: there is nothing to fetch, but something to tell.
static int bad_pointer_of_an_empty_table(const at_sc_hosts *h) {
  sc_case c;
  read_two(&c, AT_SPARSE_LOOKUP);
  c.x.width = 0;
  if (h->me == 1) *(int32_t *)c.bufs[1][0] = -8;
  at_status st = run_host(&c, h);
  int n = h->me == 1 ? says(st, AT_INVALID_ARGUMENT, "run backward")
                     : says(st, AT_ABORTED, "host 1 failed: ");
  free_case(&c);
  return n;
}

// A host number that is not among them.
static int wrong_host(const at_sc_hosts *h) {
  sc_case c;
  read_two(&c, AT_SPARSE_LOOKUP);
  at_sc_hosts wrong = *h;
  wrong.me = 4;
  int n = says(run_host(&c, &wrong), AT_INVALID_ARGUMENT, "this is host 4");
  free_case(&c);
  return n;
}

// Nobody hangs, nobody succeeds alone.
static void all_hosts_fail_together(void **state) {
  assert_true(on_hosts(2, bad_id_on_host_1));
  assert_true(on_hosts(2, messages_cut_short));
  assert_true(on_hosts(2, bad_pointer_of_an_empty_table));
  assert_true(on_hosts(2, wrong_host));
}

// Three times, as mini-batches of several steps.
static int ors_bits(const at_sc_hosts *h) {
  uint64_t bits = 1ull << (h->me * 17);
  for (int i = 0; i < 3; i++)
    if (at_code_take(at_sc_hosts_agree((void *)h, &bits))) return 1;
  uint64_t want = 0;
  for (uint32_t i = 0; i < h->count; i++) want |= 1ull << (i * 17);
  return bits != want;
}

// Of one host and of three.
static void hosts_agree(void **state) {
  assert_true(on_hosts(1, ors_bits));
  assert_true(on_hosts(3, ors_bits));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bits_are_those_of_one_host),
      cmocka_unit_test(all_hosts_fail_together),
      cmocka_unit_test(hosts_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
