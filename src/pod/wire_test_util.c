#include "pod/wire_test_util.h"

void *box_place(void *arg, uint32_t from, const at_wire_head *head) {
  (void)from;
  return ((box *)arg)->no_place ? NULL : malloc(head->bytes);
}

bool box_message(void *arg, uint32_t from, const at_wire_head *head,
                 void *body) {
  box *b = arg;
  letter *m = malloc(sizeof *m);
  // On the poller's thread, before the lock: a slow sink makes its senders
  // wait.
  *m = (letter){NULL, from, *head, body};
  if (b->slow_ns && head->lane == AT_WIRE_BULK)
    usleep((useconds_t)(b->slow_ns / 1000));
  pthread_mutex_lock(&b->lock);
  *b->last = m;
  b->last = &m->next;
  b->messages++;
  bool hold = b->hold;
  pthread_cond_broadcast(&b->news);
  pthread_mutex_unlock(&b->lock);
  return !hold;
}

void box_abandon(void *arg, uint32_t from, const at_wire_head *head,
                 void *body) {
  box *b = arg;
  (void)from, (void)head;
  free(body);
  pthread_mutex_lock(&b->lock);
  b->abandoned++;
  pthread_cond_broadcast(&b->news);
  pthread_mutex_unlock(&b->lock);
}

void box_room(void *arg, uint32_t to, at_wire_lane lane) {
  box *b = arg;
  (void)to, (void)lane;
  pthread_mutex_lock(&b->lock);
  b->rooms++;
  pthread_cond_broadcast(&b->news);
  pthread_mutex_unlock(&b->lock);
}

void box_lost(void *arg, uint32_t member, at_status why) {
  box *b = arg;
  pthread_mutex_lock(&b->lock);
  snprintf(b->lost[member], sizeof b->lost[member], "%s",
           at_status_message(why));
  b->lost_ns[member] = at_clock_ns();
  pthread_cond_broadcast(&b->news);
  pthread_mutex_unlock(&b->lock);
  at_status_free(why);
}

// By the name of the medium, "sealed": tcp, "sealed ucx": ucx, over connections
// that have been proved; "tls": encrypted, too.
static at_status meet_proved(const at_wire_options *o, bool tls,
                             at_pod_link *links) {
  // Everybody has the same token, so that all are proved.
  static const at_token token = {{7}};
  char there[256], *to = there;
  // Who takes no part has no address.
  uint32_t i = 0;
  for (const char *p = o->addresses; *p; p++) {
    i += *p == ',';
    if (*p == ',' || !(o->absent && o->absent[i])) *to++ = *p;
  }
  *to = 0;
  const at_addresses list = {there, "addresses"};
  int listener;
  AT_TRY(at_address_bind(&list, o->me, &listener));
  const at_pod_meeting about = {
      .addresses = &list,
      .token = &token,
      .card = {.me = o->me, .count = o->count, .tls = tls},
      .calls = AT_WIRE_LANES,
      .listener = listener,
      .local = true,
      .until_ns = at_clock_ns() + (uint64_t)o->meet_ms * kMs};
  uint64_t strangers;
  at_status st = at_pod_meet(&about, links, &strangers);
  // The links are the caller's, also on failure; the listener has served its
  // purpose.
  close(listener);
  return st;
}

at_status open_box(box *b, const group *g, uint32_t me) {
  // What the test does not set has defaults: beats, windows and limits are the
  // wire's own.
  at_wire_options o = g->with ? *g->with : (at_wire_options){0};
  *b = (box){.group = g};
  b->last = &b->first;
  pthread_mutex_init(&b->lock, NULL);
  at_clock_cond_init(&b->news);
  o.count = g->count;
  o.me = me;
  o.group = o.group ? o.group : g->group;
  o.addresses = g->addresses;
  o.meet_ms = o.meet_ms ? o.meet_ms : kMeetMs;
  o.sink = (at_wire_sink){b,           box_place, box_message,
                          box_abandon, box_room,  box_lost};
  // Other media find each other by name or address and have no proof.
  const bool tls = !strcmp(g->medium, "tls");
  if (!tls && strncmp(g->medium, "sealed", 6))
    return at_wire_open(g->medium, &o, &b->w);
  at_pod_link links[kMembers * AT_WIRE_LANES];
  AT_TRY(meet_proved(&o, tls, links));
  o.links = links;
  o.addresses = NULL;
  return at_wire_open(strstr(g->medium, "ucx") ? "ucx" : "tcp", &o, &b->w);
}

bool box_wait(box *b, box_fn done, uint64_t n, uint32_t ms) {
  uint64_t until = at_clock_ns() + (uint64_t)ms * kMs;
  const struct timespec t = at_clock_timespec(until);
  pthread_mutex_lock(&b->lock);
  // Spurious wake-ups do no harm: `done` is asked again. ms: from now on.
  bool good = done(b, n);
  while (!good && at_clock_ns() < until) {
    pthread_cond_timedwait(&b->news, &b->lock, &t);
    good = done(b, n);
  }
  pthread_mutex_unlock(&b->lock);
  return good;
}

bool has_messages(box *b, uint64_t n) { return b->messages >= n; }

static bool has_letter(box *b, uint64_t n) { return (void)n, b->first; }

bool has_abandoned(box *b, uint64_t n) { return b->abandoned >= n; }

bool has_rooms(box *b, uint64_t n) { return b->rooms >= n; }

bool has_lost(box *b, uint64_t n) { return *b->lost[n]; }

letter *take(box *b) {
  if (!box_wait(b, has_letter, 0, kWaitMs)) return NULL;
  pthread_mutex_lock(&b->lock);
  letter *m = b->first;
  b->first = m->next;
  if (!b->first) b->last = &b->first;
  pthread_mutex_unlock(&b->lock);
  return m;
}

void free_letter(letter *m) {
  if (m) free(m->body);
  free(m);
}

void close_box(box *b) {
  at_wire_close(b->w);
  while (b->first) free_letter(take(b));
  pthread_mutex_destroy(&b->lock);
  pthread_cond_destroy(&b->news);
}

// The exit status: 100, or what fn returns.
static int be_member(const group *g, uint32_t me, member_fn fn) {
  box b = {0};
  at_status st = open_box(&b, g, me);
  if (st.err) fprintf(stderr, "process %u: %s\n", me, at_status_message(st));
  if (at_code_take(st)) return 100;
  int bad = fn(&b, me);
  close_box(&b);
  return bad;
}

group make_group(const char *medium, char addresses[256],
                 const at_wire_options *with, uint32_t count) {
  static uint32_t number;
  static char name[64];
  snprintf(name, sizeof name, "test %d %u", getpid(), number++);
  assert_true(at_free_addresses(count, addresses, 256));
  void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(shared != MAP_FAILED);
  return (group){medium, addresses, name, with, count, shared};
}

void start(const group *g, member_fn fn, pid_t pids[]) {
  fflush(NULL);
  for (uint32_t i = 0; i < g->count; i++) {
    pids[i] = fork();
    if (pids[i]) continue;
    signal(SIGSEGV, SIG_DFL);  // cmocka's would go on with the next test
    if (g->with && g->with->absent && g->with->absent[i]) exit(0);
    exit(be_member(g, i, fn));
  }
}

void finish(const group *g, const pid_t pids[], uint32_t killed) {
  for (uint32_t i = 0; i < g->count; i++) {
    int status;
    assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
    if (i == killed) continue;
    if (status) print_message("process %u: status %x\n", i, status);
    assert_int_equal(status, 0);
  }
  munmap((void *)g->shared, 4096);
}

void run(const char *medium, const at_wire_options *with, uint32_t count,
         member_fn fn) {
  char addresses[256];
  pid_t pids[kMembers];
  group g = make_group(medium, addresses, with, count);
  start(&g, fn, pids);
  finish(&g, pids, UINT32_MAX);
}

void meet(box *b, uint32_t word) {
  atomic_fetch_add(&b->group->shared[word], 1);
  while (atomic_load(&b->group->shared[word]) < b->w->count) usleep(500);
}

at_code send_one(box *b, uint32_t to, at_wire_lane lane, uint64_t tag,
                 const void *p, size_t n, uint64_t until_ns) {
  const at_bytes body = {p, n};
  const at_wire_out m = {.kind = 7, .tag = tag, .num_parts = 1, .parts = &body};
  const at_wire_wait wait = {.until_ns = until_ns};
  return at_code_take(at_wire_send(b->w, to, lane, &m, 1, &wait, NULL));
}

uint8_t byte_of(uint32_t from, uint64_t tag, size_t i) {
  return (uint8_t)(from * 91 + tag * 31 + i * 7 + (i >> 12));
}

uint8_t *make_body(uint32_t from, uint64_t tag, size_t n) {
  uint8_t *p = malloc(n + 1);
  for (size_t i = 0; i < n; i++) p[i] = byte_of(from, tag, i);
  return p;
}

bool has_ucx(void) {
  int status;
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    at_carrier *c;
    at_status st = at_ucx_open(2, 0, true, true, &c);
    if (st.err) print_message("no UCX: %s\n", at_status_message(st));
    if (at_code_take(st)) exit(1);
    c->vtable->close(c);
    exit(0);
  }
  return waitpid(pid, &status, 0) == pid && !status;
}
