#include "pjrt/far_test_util.h"

bool jobs_share;

// Under the lock.
// Wakes everybody: each looks for its own message.
static void net_tell(network *n) {
  at_event_fire(n->news, AT_OK);
  at_event_release(n->news);
  n->news = at_event_create();
}

// Under the lock, which it lets go meanwhile. Fibers leave their thread.
static void net_wait(network *n) {
  // The event is replaced, not reset, so a waiter that has looked cannot miss a
  // change.
  at_event *news = at_event_retain(n->news);
  pthread_mutex_unlock(&n->lock);
  at_status_free(at_event_wait(news));
  at_event_release(news);
  pthread_mutex_lock(&n->lock);
}

// Under the lock. The body is a copy, in a block that a receiver may keep.
static void net_send(network *n, uint32_t from, const at_hosts_tag *tag,
                     const at_hosts_mail *m) {
  // Sends never wait: there are no credits here.
  parcel *p = calloc(1, sizeof *p);
  *p = (parcel){.from = from, .to = m->host, .tag = *tag};
  for (uint32_t i = 0; i < m->num_out; i++) p->bytes += m->out[i].len;
  uint8_t *to = p->body = at_hosts_block(p->bytes);
  for (uint32_t i = 0; i < m->num_out; to += m->out[i++].len)
    memcpy(to, m->out[i].ptr, m->out[i].len);
  *n->last = p;
  n->last = &p->next;
  net_tell(n);
}

// Under the lock. The first message of that sender, receiver and tag, which is
// the caller's from here on; NULL: there is none yet.
static parcel *net_take(network *n, uint32_t from, uint32_t to,
                        const at_hosts_tag *tag) {
  for (parcel **at = &n->first; *at; at = &(*at)->next) {
    parcel *p = *at;
    if (p->from != from || p->to != to ||
        // All of the tag counts, the round included.
        memcmp(&p->tag, tag, sizeof *tag) != 0)
      continue;
    *at = p->next;
    if (n->last == &p->next) n->last = at;
    return p;
  }
  return NULL;
}

// at_hosts.exchange: sends to all, then waits for all. A receiver without
// places gets the block itself.
static at_status net_exchange(void *arg, const at_hosts_tag *tag,
                              at_hosts_mail *mails, uint32_t count) {
  host *h = arg;
  network *n = h->net;
  pthread_mutex_lock(&n->lock);
  // Everything is sent before anything is waited for, or two hosts would wait
  // for each other.
  // Failures elsewhere do not stop the sending: the others may still take it.
  for (uint32_t i = 0; i < count; i++) net_send(n, h->face.me, tag, &mails[i]);
  for (uint32_t i = 0; i < count; i++) {
    parcel *p;
    size_t want = 0;
    // A failure ends the waiting of all hosts. What has come before it is still
    // taken.
    while (!(p = net_take(n, mails[i].host, h->face.me, tag)) && !n->failed)
      net_wait(n);
    if (!p) break;
    for (uint32_t k = 0; k < mails[i].num_in; k++) want += mails[i].in[k].len;
    if (!mails[i].in) {
      mails[i].block = (at_bytes){p->body, p->bytes};
      free(p);
      continue;
    }
    // The receiver says places for all bytes of the message, or for none.
    assert_int_equal(want, p->bytes);
    const uint8_t *from = p->body;
    for (uint32_t k = 0; k < mails[i].num_in; from += mails[i].in[k++].len)
      memcpy(mails[i].in[k].ptr, from, mails[i].in[k].len);
    free(p->body);
    free(p);
  }
  bool failed = n->failed;
  pthread_mutex_unlock(&n->lock);
  return failed ? AT_FAIL(AT_ABORTED, "another host failed") : AT_OK;
}

// at_hosts.fail: one failure fails the whole network, which is all that these
// tests need.
static void net_fail(void *arg, const at_hosts_tag *tag, const uint32_t *hosts,
                     uint32_t num_hosts, at_status why) {
  network *n = ((host *)arg)->net;
  pthread_mutex_lock(&n->lock);
  // Later exchanges fail at once where their message is not there.
  n->failed = true;
  net_tell(n);
  pthread_mutex_unlock(&n->lock);
}

at_pod_job pod_job(const char *addresses, uint32_t me) {
  return (at_pod_job){.addresses = {addresses, "TPU_PROCESS_ADDRESSES"},
                      .me = me,
                      .listener = -1,
                      .local = true,
                      .share = true,
                      .token = {{1, 2, 3}},
                      .job = "job",
                      .timeout_s = 60};
}

// Meets the others, which do the same in their threads.
static void *meet_thread(void *arg) {
  meeting *m = arg;
  const at_pod_job j = pod_job(m->addresses, m->me);
  OK(at_pod_hosts_open(&j, &m->out));
  return NULL;
}

void open_pods(uint32_t hosts, at_pod_hosts **out) {
  char addresses[256];
  pthread_t threads[kMostHosts];
  meeting m[kMostHosts];
  assert_true(at_free_addresses(hosts, addresses, sizeof addresses));
  for (uint32_t i = 0; i < hosts; i++) {
    m[i] = (meeting){addresses, i, NULL};
    pthread_create(&threads[i], NULL, meet_thread, &m[i]);
  }
  for (uint32_t i = 0; i < hosts; i++) {
    pthread_join(threads[i], NULL);
    out[i] = m[i].out;
    assert_non_null(at_pod_hosts_of(out[i])->share);
  }
}

void job_open(job *j, const char *target, uint32_t hosts) {
  // Must stay where it is: the runtimes borrow from it.
  *j = (job){.num_hosts = hosts};
  j->net.last = &j->net.first;
  pthread_mutex_init(&j->net.lock, NULL);
  j->net.news = at_event_create();
  bool shares = jobs_share && hosts > 1;
  if (shares) open_pods(hosts, j->pods);
  for (uint32_t i = 0; i < hosts; i++) {
    host *h = &j->hosts[i];
    *h = (host){.net = &j->net,
                .face = {.count = hosts,
                         .me = i,
                         .arg = h,
                         .exchange = net_exchange,
                         .fail = net_fail}};
    // The pod's functions, so the runtime finds that memory is shared.
    if (shares) h->face = *at_pod_hosts_of(j->pods[i]);
    at_runtime_options o = {
        .target = target, .threads = 2, .hosts = hosts > 1 ? &h->face : NULL};
    OK(at_runtime_create(&o, &h->rt));
  }
  // Every host knows all chips of the job.
  j->num_chips = at_runtime_num_chips(j->hosts[0].rt);
}

void job_close(job *j) {
  for (uint32_t i = 0; i < j->num_hosts; i++)
    at_runtime_destroy(j->hosts[i].rt);
  // Runtimes are gone before the connections that they used.
  for (uint32_t i = 0; i < j->num_hosts; i++) at_pod_hosts_close(j->pods[i]);
  // What nobody takes after a failure.
  for (parcel *m = j->net.first, *after; m && j->net.failed; m = after) {
    after = m->next;
    j->net.first = after;
    free(m->body);
    free(m);
  }
  assert_null(j->net.first);
  pthread_mutex_destroy(&j->net.lock);
  at_event_release(j->net.news);
}

// Argument a of device d, on that chip. The caller's to release.
// Fails the test where there is no memory.
static at_buffer *job_argument(at_chip *c, const program *p, uint32_t d,
                               uint32_t a) {
  at_buffer *b;
  OK(at_buffer_create(c, AT_MEM_DEVICE, p->dtype[a],
                      (at_dims){p->dims[a], p->rank[a] ? p->rank[a] : 2}, &b));
  // Arguments are copied for each launch, as a launch may be given their
  // memory.
  if (at_buffer_bytes(b))
    memcpy(at_buffer_data_mut(b), p->args[d][a], at_buffer_bytes(b));
  at_buffer_define(b, AT_OK);
  return b;
}

// Launches on the host's own devices (n of them, numbers in `devices`) and
// keeps copies of their results. Of several launches the last one's stay.
// e->out gets malloc'ed copies by the program's device number.
static at_status job_launch(at_loaded *l, errand *e, at_chip **chips,
                            const uint32_t *devices, uint32_t n) {
  const program *p = e->p;
  at_buffer *args[kMostChips * kMostValues], *outs[kMostChips * kMostValues];
  uint32_t k = 0;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t a = 0; a < p->num_args; a++)
      args[k++] = job_argument(chips[i], p, devices[i], a);
  at_event *done = NULL;
  // One launch over all own devices of the program; chips are listed where
  // there are several.
  at_launch in = {.chip = chips[0],
                  .chips = chips,
                  .num_chips = n > 1 ? n : 0,
                  .args = args,
                  .num_args = p->num_args};
  at_status st = at_loaded_execute(l, &in, outs, &done);
  bool launched = !st.err;
  // Results have failed, too, where the launch has: they are released, not
  // read.
  if (!st.err) st = at_event_wait(done);
  if (done) at_event_release(done);
  for (uint32_t i = 0; i < n && launched; i++)
    for (uint32_t r = 0; r < p->num_results; r++) {
      at_buffer *b = outs[i * p->num_results + r];
      if (st.err) {
        at_buffer_release(b);
        continue;
      }
      // Several hosts write the same number at the same time, so the write is
      // atomic.
      const size_t bytes = at_buffer_bytes(b);  // alike on all hosts
      __atomic_store_n(&e->out->bytes[r], bytes, __ATOMIC_RELAXED);
      free(e->out->results[devices[i]][r]);
      uint8_t *copy = e->out->results[devices[i]][r] = malloc(bytes + 1);
      if (bytes) memcpy(copy, at_buffer_data(b), bytes);
      at_buffer_release(b);
    }
  while (k) at_buffer_release(args[--k]);
  return st;
}

// Loads the program, spans the hosts where it has devices of others, and
// launches it p->launches times. A host without devices of the program does
// nothing.
static at_status run_errand(errand *e) {
  const program *p = e->p;
  at_loaded *l;
  at_chip *all[kMostChips], *own[kMostChips];
  uint32_t devices[kMostChips], n = 0, first;
  uint32_t each = at_runtime_own_chips(e->h->rt, &first);
  for (uint32_t d = 0; d < p->num_devices; d++) {
    // Devices of the program in its order; those of this host also by
    // themselves.
    all[d] = at_runtime_chip(e->h->rt, p->chip[d]);
    if (p->chip[d] - first >= each) continue;
    own[n] = all[d];
    devices[n++] = d;
  }
  if (!n) return AT_OK;
  AT_TRY(at_loaded_create(e->h->rt, p->block, &l));
  // With all devices here there is nobody to talk to.
  // With devices elsewhere the program needs a plan with the other hosts.
  at_status st = n < p->num_devices ? at_loaded_span(l, all) : AT_OK;
  for (uint32_t i = 0; i < AT_MAX(p->launches, 1u) && !st.err; i++)
    st = job_launch(l, e, own, devices, n);
  e->sent = at_loaded_sent_bytes(l);
  // Also after a failure: it counts devices that were tried.
  __atomic_fetch_add(&e->out->ran, n, __ATOMIC_RELAXED);
  at_loaded_release(l);
  return st;
}

void *errand_thread(void *arg) {
  errand *e = arg;
  at_status st = run_errand(e);
  if (st.err) snprintf(e->why, sizeof e->why, "%s", at_status_message(st));
  e->code = at_code_take(st);
  return NULL;
}

at_code job_run(job *j, const program *p, outcome *out, char why[300]) {
  pthread_t threads[kMostHosts];
  errand errands[kMostHosts];
  *out = (outcome){0};
  for (uint32_t i = 0; i < j->num_hosts; i++) {
    errands[i] = (errand){.h = &j->hosts[i], .p = p, .out = out};
    pthread_create(&threads[i], NULL, errand_thread, &errands[i]);
  }
  at_code code = 0;
  for (uint32_t i = 0; i < j->num_hosts; i++) {
    pthread_join(threads[i], NULL);
    out->sent += errands[i].sent;
    if (code || !errands[i].code) continue;
    // By number of host, not by time.
    code = errands[i].code;
    memcpy(why, errands[i].why, sizeof errands[i].why);
  }
  return code;
}

void outcome_free(outcome *o) {
  for (uint32_t d = 0; d < kMostChips; d++)
    for (uint32_t r = 0; r < kMostValues; r++) free(o->results[d][r]);
}

void outcome_equal(const program *p, const outcome *a, const outcome *b) {
  for (uint32_t d = 0; d < p->num_devices; d++)
    for (uint32_t r = 0; r < p->num_results; r++) {
      assert_non_null(b->results[d][r]);
      if (memcmp(a->results[d][r], b->results[d][r], a->bytes[r]))
        fail_msg("result %u of device %u differs", r, d);
    }
}
