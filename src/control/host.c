// The process of a host: its sessions with the controller and with clients, how
// it becomes one of the pod, and the thread that does what the stream says.
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "control/host_internal.h"
#include "control/record.h"
#include "device/device.h"
#include "pod/address.h"
#include "pod/join.h"

enum {
  kFormSeconds = 20,
  kTickMs = 100,
  kMs = 1000000,
  kLookUs = 500,
  // Ticks in a row that a resting host has to be idle.
  kIdleLooks = 3,
};
static const uint64_t kTellNs = 10000000000ull;

// ---- What is to be done
void at_host_post(host *h, job *j) {
  j->next = NULL;
  pthread_mutex_lock(&h->queue_lock);
  *h->end = j;
  h->end = &j->next;
  if (h->polled) at_wire_poke(h->polled);
  pthread_mutex_unlock(&h->queue_lock);
}

void at_host_wake(host *h) {
  pthread_mutex_lock(&h->queue_lock);
  if (h->polled) at_wire_poke(h->polled);
  pthread_mutex_unlock(&h->queue_lock);
}

static job *all_jobs(host *h) {
  pthread_mutex_lock(&h->queue_lock);
  job *all = h->first;
  h->first = NULL;
  h->end = &h->first;
  pthread_mutex_unlock(&h->queue_lock);
  return all;
}

// All jobs that there are; NULL: none came for a while. What the controller
// says is read by this thread, when it has nothing else to do.
static job *take_jobs(host *h) {
  job *all = all_jobs(h);
  if (all || atomic_load(&h->stops) || atomic_load(&h->some_ended)) return all;
  const uint64_t tick = at_clock_ns() + kTickMs * kMs;
  const uint64_t soon = atomic_load(&h->ends_ns);
  at_wire_poll(h->controller, soon ? AT_MIN(soon, tick) : tick);
  return all_jobs(h);
}

static void set_polled(host *h, at_wire *w) {
  pthread_mutex_lock(&h->queue_lock);
  h->polled = w;
  pthread_mutex_unlock(&h->queue_lock);
}

// The stream's thread ends after the job in hand. Any thread; consumes why.
static void stop(host *h, at_status why) {
  pthread_mutex_lock(&h->queue_lock);
  h->why = at_status_join(h->why, why);
  atomic_store(&h->stops, true);
  if (h->polled) at_wire_poke(h->polled);
  pthread_mutex_unlock(&h->queue_lock);
}

// ---- The controller's messages
// The sink of the controller's session. What people ask is answered here,
// beside the stream; everything else becomes a job, whose credits hold the
// controller back until it is done.
static bool message(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  host *h = arg;
  at_status st = at_message_check(head->kind, (at_bytes){body, head->bytes});
  job *j = st.err ? NULL : malloc(sizeof *j);
  if (!j) {
    if (!st.err)
      st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for the stream");
    free(body);
    stop(h, at_status_prefix(st, "the controller"));
    return true;
  }
  if (head->kind == AT_MSG_STOP) {  // what it said before is of no use now
    atomic_store(&h->ends, true);
    stop(h, AT_OK);
  }
  if (head->kind == AT_MSG_LOOK) {
    at_host_look(h, body);
    free(body);
    free(j);
    return true;
  }
  if (head->kind == AT_MSG_RECORD) {
    at_record_answer(h->answers, body);
    free(body);
    free(j);
    return true;
  }
  if (head->kind == AT_MSG_LEFT) at_tenant_is_gone(h, head->tag);
  if (head->kind == AT_MSG_FORM || head->kind == AT_MSG_BREAK)
    atomic_fetch_add(&h->forms, 1);
  *j = (job){
      .kind = head->kind, .client = head->tag, .head = *head, .body = body};
  if (at_spans_on()) j->heard_ns = at_clock_ns();
  at_host_post(h, j);
  return false;  // its credits go back once it is done
}

// A controller that has said STOP may go; any other loss ends the host with an
// error.
static void lost(void *arg, uint32_t member, at_status why) {
  host *h = arg;
  if (!atomic_load(&h->ends))
    return stop(h, at_status_prefix(why, "the controller is lost"));
  at_status_free(why);
  stop(h, AT_OK);
}

// ---- Clients
// at_listener_calls.ask: a visitor, who has to say IAM first.
static at_status ask(void *arg, const at_session_hello *hello,
                     at_wire_sink *sink, void **out) {
  host *h = arg;
  if (hello->kind != AT_SESSION_CLIENT)
    return AT_FAIL(AT_INVALID_ARGUMENT, "this is a host of a pod");
  visitor *v = calloc(1, sizeof *v);
  if (!v) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a client");
  v->host = h;
  *sink = at_visitor_sink;
  sink->arg = v;
  pthread_mutex_lock(&h->lock);
  v->next = h->visitors;
  h->visitors = v;
  pthread_mutex_unlock(&h->lock);
  *out = v;
  return AT_OK;
}

// Sessions are closed by the stream's thread, in the order in which it looks at
// them.
static void post_gone(visitor *v) {
  job *j = calloc(1, sizeof *j);
  if (!j) return;
  j->kind = kVisitorGone;
  j->visitor = v;
  at_host_post(v->host, j);
}

// at_listener_calls.opened. The session may have been lost meanwhile: then
// nobody else posts that.
static void opened(void *arg, void *peer, at_wire *w) {
  host *h = arg;
  visitor *v = peer;
  pthread_mutex_lock(&h->lock);
  v->wire = w;
  if (v->tenant) at_outbox_open(v->tenant->outbox, w, 1);
  bool gone = v->gone;
  pthread_mutex_unlock(&h->lock);
  if (gone) post_gone(v);
}

// A visitor whose wire did not open.
static void broken(void *arg, void *peer, at_status why) {
  at_status_free(why);
  at_visitor_free(peer);
}

// A tenant that the stream never spoke of has nobody else who would remove it.
static void visitor_gone(host *h, visitor *v) {
  pthread_mutex_lock(&h->lock);
  v->gone = true;
  bool open = v->wire != NULL;  // else `opened` says so
  tenant *t = v->tenant;
  // It may have left before it called, and the stream says so once.
  bool leaves = open && t && !t->left && !t->streamed;
  pthread_mutex_unlock(&h->lock);
  if (open) at_visitor_free(v);
  if (leaves) at_tenant_leave(t);
}

// ---- Becoming one of the pod
static at_status open_listener(host *h) {
  return at_listener_open(
      &(at_listener_options){
          .address = h->options->listen,
          .source = "--listen",
          .token = h->options->token,
          .calls = {.arg = h, .ask = ask, .opened = opened, .broken = broken}},
      &h->listener);
}

// Waits up to two minutes: hosts may be started before their controller.
static at_status call_controller(host *h) {
  at_session_options o = {
      .address = h->options->controller,
      .source = "--controller",
      .token = h->options->token,
      .hello = {.kind = AT_SESSION_HOST},
      .timeout_ms = h->options->timeout_ms ? h->options->timeout_ms : 120000,
      .interrupted = h->options->interrupted,
      .sink = {.arg = h,
               .place = at_session_block,
               .message = message,
               .abandon = at_session_unblock,
               .lost = lost}};
  snprintf(o.hello.name, sizeof o.hello.name, "host (process %d)",
           (int)getpid());
  return at_session_open(&o, &h->controller);
}

// To the controller, on the stream's thread. Waits for room.
static at_status say(host *h, uint32_t kind, const at_bytes *parts,
                     uint32_t num_parts) {
  const at_wire_out m = {.kind = kind, .num_parts = num_parts, .parts = parts};
  const at_wire_wait wait = {.until_ns = UINT64_MAX, .cancel = &h->stops};
  return at_wire_send(h->controller, 0, AT_WIRE_BULK, &m, 1, &wait, NULL);
}

static at_bytes bytes_of(const char *text) {
  return (at_bytes){(const uint8_t *)text, strlen(text)};
}

// By the outbox: it may be called from any thread, also from a poller's.
void at_host_acted(host *h, uint64_t number, at_status st, at_bytes result) {
  at_msg_answer m = {.code = (uint64_t)at_status_code(st)};
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            st.err ? at_message_text(st) : result};
  at_outbox_send(h->answers, &(at_outbox_post){
                                 .lane = AT_WIRE_BULK,
                                 .message = {AT_MSG_ACTED, number, 2, parts}});
}

// Who this is and where it is found.
static at_status introduce(host *h) {
  const at_addresses pod = {h->options->pod, "--pod"};
  const char *colon = strrchr(h->options->pod, ':');
  at_strbuf address = {0};
  uint32_t port = 0;
  AT_TRY(at_address_bind(&pod, 0, &h->pod_listener));
  at_status st = at_address_port(h->pod_listener, &port);
  at_strbuf_addf(&address, "%.*s:%u", (int)(colon - pod.text), pod.text, port);
  if (!st.err) st = at_strbuf_status(&address);
  if (!st.err) {
    const char *session = at_listener_address(h->listener);
    at_msg_host m = {.cpu = at_cpu_features(),
                     .place = h->options->place,
                     .session_bytes = strlen(session),
                     .pod_bytes = address.len};
    const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                              bytes_of(session),
                              {(const uint8_t *)address.ptr, address.len}};
    st = say(h, AT_MSG_HOST, parts, 3);
  }
  at_strbuf_free(&address);
  return st;
}

// A group that is forming is not waited for when another one is to be formed.
static _Thread_local const host *joining;
// Asked while this host meets the others: a newer FORM ends that.
static bool join_is_over(void) {
  const host *h = joining;
  return atomic_load(&h->stops) || atomic_load(&h->forms) != h->formed ||
         (h->options->interrupted && h->options->interrupted());
}

// Forms the group with the other hosts; each attempt gets a duplicate of the
// bound descriptor, since joining closes it.
static at_status join(host *h, const at_msg_form *m, const char *addresses,
                      const char *target, at_pod_hosts **out) {
  at_strbuf what = {0};
  int fd = fcntl(h->pod_listener, F_DUPFD_CLOEXEC, 0);
  if (fd < 0)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no descriptor: %s", strerror(errno));
  at_strbuf_addf(&what, "Atoll " AT_VERSION " %s, hosts of one controller",
                 target);
  const at_pod_roll roll = {.count = m->count,
                            .me = m->me,
                            .addresses = addresses,
                            .listener = fd,
                            .token = h->options->token,
                            .of_user = h->options->token_of_user,
                            .job = what.ptr,
                            .epoch = (uint32_t)m->epoch,
                            .one_user = true,
                            .timeout_s = kFormSeconds,
                            .interrupted = join_is_over};
  joining = h;
  at_status st = at_strbuf_status(&what);
  if (st.err)
    close(fd);
  else
    st = at_pod_join_roll(&roll, out);
  at_strbuf_free(&what);
  return st;
}

// What this process is asked about its target is asked about its own chips'.
static at_status set_target(const char *target, uint32_t chip) {
  at_topology t;
  AT_TRY(at_topology_parse(target, &t));
  at_str own = at_topology_part_text(target, at_topology_place(&t, chip).part);
  char *text = strndup(own.ptr, own.len);
  at_status st = text ? at_config_set(AT_CONFIG_TARGET, text)
                      : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a host");
  free(text);
  return st;
}

// The first time.
static at_status start(host *h, const char *target) {
  AT_TRY(at_runtime_create(
      &(at_runtime_options){.target = target,
                            .hosts = h->pod ? at_pod_hosts_of(h->pod) : NULL,
                            .places = h->places},
      &h->runtime));
  AT_TRY(at_island_create(NULL, &h->island));
  at_copies_listen(h);
  atomic_store(&h->there, true);
  uint32_t first, n = at_runtime_own_chips(h->runtime, &first);
  AT_TRY(set_target(target, first));
  at_log(AT_LOG_INFO, "host %u of %u: chips %u to %u of %s", h->me, h->count,
         first, first + n - 1, target);
  return AT_OK;
}

// What runs over several hosts ends first, or has failed with those that were
// lost.
static void wait_for_far_work(const host *h) {
  uint64_t begin = at_clock_ns();
  bool told = false;
  while ((at_runtime_far_work(h->runtime) || atomic_load(&h->copies)) &&
         !atomic_load(&h->stops)) {
    usleep(kLookUs);
    if (told || at_clock_ns() - begin < kTellNs) continue;
    told = true;
    at_log(AT_LOG_WARNING,
           "host %u: a host that comes back waits until launches over several "
           "hosts end",
           h->me);
  }
}

// The runtime changes over to the new group. The former one is kept until the
// process ends, for threads may still hold it.
static at_status replace_hosts(host *h, at_pod_hosts *now) {
  if (h->num_formers == AT_HOST_FORMERS)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "hosts were replaced %u times",
                   h->num_formers);
  AT_TRY(at_runtime_rehost(h->runtime, at_pod_hosts_of(now)));
  if (h->pod) {  // else it was alone
    at_pod_hosts_listen(h->pod, NULL);
    at_pod_hosts_leave(h->pod);
    h->formers[h->num_formers++] = h->pod;
  }
  h->pod = now;
  h->count = at_pod_hosts_of(now)->count;
  at_copies_listen(h);
  return AT_OK;
}

// The controller knows of those that take no part in this epoch.
static void begin_missing(host *h, const char *addresses) {
  for (uint32_t i = 0; i < h->count; i++)
    h->missed[i] = !at_address_is_there(addresses, i);
}

// A host keeps its number for life; the pod may only have grown. A pod of one
// host has nobody to meet.
static at_status join_again(host *h, const at_msg_form *m,
                            const char *addresses, const char *target) {
  at_pod_hosts *now = NULL;
  if (m->me != h->me || m->count < h->count || m->places != h->places)
    return AT_FAIL(AT_INVALID_ARGUMENT, "host %u cannot become host %u", h->me,
                   m->me);
  if (m->count == 1) return AT_OK;
  wait_for_far_work(h);
  AT_TRY(join(h, m, addresses, target, &now));
  at_status st = replace_hosts(h, now);
  if (st.err)
    at_pod_hosts_close(now);
  else
    begin_missing(h, addresses);
  return st;
}

// What the first FORM says stays: number, places, secret. A second attempt
// after a failure comes here, too.
static at_status join_first(host *h, const at_msg_form *m,
                            const char *addresses, const char *target) {
  h->me = m->me;
  h->count = m->count;
  h->places = m->places;
  h->born = m->epoch;
  memcpy(h->secret, m->secret, sizeof h->secret);
  free(h->missed);
  h->missed = calloc(m->places, sizeof *h->missed);
  if (!h->missed) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a host");
  begin_missing(h, addresses);
  if (m->count > 1) AT_TRY(join(h, m, addresses, target, &h->pod));
  return start(h, target);
}

// Copies the texts of FORM, with zeros behind them, and forms.
static at_status take_part(host *h, const job *j) {
  const at_msg_form *m = (const void *)j->body;
  char *texts = malloc(m->target_bytes + m->addresses_bytes + 2);
  if (!texts) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a host");
  char *target = texts, *addresses = texts + m->target_bytes + 1;
  memcpy(target, m + 1, m->target_bytes);
  target[m->target_bytes] = 0;
  memcpy(addresses, (const char *)(m + 1) + m->target_bytes,
         m->addresses_bytes);
  addresses[m->addresses_bytes] = 0;
  at_status st = h->runtime ? join_again(h, m, addresses, target)
                            : join_first(h, m, addresses, target);
  if (!st.err) h->epoch = m->epoch;
  free(texts);
  return st;
}

// FORM: does it, and tells the controller how it went. The error is returned as
// well.
static at_status form(host *h, const job *j) {
  at_status st = take_part(h, j);
  at_msg_formed m = {
      .epoch = ((const at_msg_form *)(const void *)j->body)->epoch,
      .code = (uint64_t)at_status_code(st)};
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            at_message_text(st)};
  at_status said = say(h, AT_MSG_FORMED, parts, 2);
  return at_status_join(st, said);
}

// The controller tries again where others have not come; a host that cannot be
// one ends. Consumes st.
static void not_formed(host *h, at_status st) {
  if (!st.err) return;
  at_code code = at_status_code(st);
  bool missed = code == AT_CANCELLED || code == AT_DEADLINE_EXCEEDED ||
                code == AT_UNAVAILABLE || code == AT_DATA_LOSS;
  if (!h->island && (h->pod || h->count <= 1 || !missed)) return stop(h, st);
  at_log(AT_LOG_WARNING, "host %u: %s", h->me, at_status_message(st));
  at_status_free(st);
}

// ---- Life
// One message of the stream. Its credits go back when it is done, so a slow
// host slows the controller, and through it the clients.
static void do_job(host *h, job *j) {
  if (atomic_load(&h->stops)) {
    // it and all that there is goes with the host
  } else if (j->kind == kVisitorGone) {
    visitor_gone(h, j->visitor);
  } else {
    h->formed += j->kind == AT_MSG_FORM || j->kind == AT_MSG_BREAK;
    if (j->kind == AT_MSG_FORM) {
      not_formed(h, form(h, j));
    } else if (j->kind == AT_MSG_REST) {
      h->rests = true;
    } else if (j->kind == AT_MSG_STOP) {
      atomic_store(&h->stops, true);
    } else if (h->runtime) {
      at_stream_do(h, j);
    }
    at_wire_release(h->controller, 0, j->head.lane, j->head.bytes);
  }
  free(j->body);
  free(j);
}

// Hosts lose each other by themselves: where the controller still has both, the
// pod forms anew.
static void tell_misses(host *h) {
  for (uint32_t i = 0; h->pod && h->island && i < h->count; i++) {
    if (i == h->me || h->missed[i] || at_pod_hosts_has(h->pod, i)) continue;
    at_msg_misses m = {i};
    const at_bytes part = {(const uint8_t *)&m, sizeof m};
    h->missed[i] = true;
    at_status_free(say(h, AT_MSG_MISSES, &part, 1));
  }
}

// DID for each client of which a group of launches has ended.
static void tell_ended(host *h) {
  enum { kClients = 64 };
  at_msg_did did[kClients];
  uint32_t n = at_pace_take(h, did, kClients);
  for (uint32_t i = 0; i < n; i++) {
    const at_bytes part = {(const uint8_t *)&did[i], sizeof did[i]};
    at_status_free(say(h, AT_MSG_DID, &part, 1));
  }
}

// Nothing that the stream has asked for is under way.
static bool is_idle(host *h) {
  if (!h->runtime) return true;
  if (at_runtime_far_work(h->runtime) || atomic_load(&h->copies)) return false;
  uint32_t first, n = at_runtime_own_chips(h->runtime, &first);
  for (uint32_t i = 0; i < n; i++)
    if (at_chip_queued(at_runtime_chip(h->runtime, first + i))) return false;
  bool answers = false;
  pthread_mutex_lock(&h->lock);
  for (const tenant *t = h->tenants; t; t = t->next) {
    uint32_t visits = 0;
    for (const visitor *v = h->visitors; v; v = v->next)
      visits += v->tenant == t;
    answers |= t->users > visits;
  }
  pthread_mutex_unlock(&h->lock);
  return !answers;
}

// Questions that clients have asked before may still be under way: it waits for
// a few looks more.
static void tell_rested(host *h) {
  if (!h->rests) return;
  h->idle_looks = is_idle(h) ? h->idle_looks + 1 : 0;
  if (h->idle_looks < kIdleLooks) return;
  h->rests = false;
  h->idle_looks = 0;
  at_status_free(say(h, AT_MSG_RESTED, NULL, 0));
}

// The stream's thread. Jobs are taken in batches; ends of launches are told
// between two of them.
static void work(host *h) {
  uint64_t looked = 0;
  set_polled(h, h->controller);
  while (!atomic_load(&h->stops)) {
    for (job *j = take_jobs(h), *next; j; j = next) {
      next = j->next;
      atomic_store(&h->launches_more, next && next->kind == AT_MSG_LAUNCH);
      do_job(h, j);
      at_ends_tell(h);
      if (atomic_load_explicit(&h->some_ended, memory_order_relaxed))
        tell_ended(h);
    }
    at_ends_tell(h);
    tell_ended(h);
    if (at_clock_ns() - looked > (uint64_t)kTickMs * kMs) {
      looked = at_clock_ns();
      tell_misses(h);
      tell_rested(h);
      at_look_tick(h);
    }
    if (h->options->interrupted && h->options->interrupted())
      atomic_store(&h->stops, true);
  }
  set_polled(h, NULL);
  at_wire_poll_end(h->controller);
}

// What had come and is not done any more.
static void drop_jobs(host *h) {
  for (job *j = h->first, *next; j; j = next) {
    next = j->next;
    free(j->body);
    free(j);
  }
  h->first = NULL;
}

// One that has not left, and so stays.
static tenant *somebody(host *h) {
  pthread_mutex_lock(&h->lock);
  tenant *t = h->tenants;
  while (t && t->left) t = t->next;
  pthread_mutex_unlock(&h->lock);
  return t;
}

// Nothing new comes, then what is there goes.
static void close_host(host *h) {
  at_listener_close(h->listener);
  while (h->visitors) at_visitor_free(h->visitors);
  for (tenant *t; (t = somebody(h));) at_tenant_leave(t);
  if (h->answers) at_outbox_stop(h->answers);
  at_wire_close(h->controller);
  drop_jobs(h);
  at_named_close(h);
  at_copies_end(h);
  at_files_close(h);
  at_island_destroy(h->island);
  at_runtime_destroy(h->runtime);  // waits: answers under way end
  at_outbox_free(h->answers);
  at_pod_hosts_close(h->pod);
  while (h->num_formers) at_pod_hosts_close(h->formers[--h->num_formers]);
  if (h->pod_listener >= 0) close(h->pod_listener);
  free(h->missed);
}

// Everything that was begun is ended by close_host, however far it came.
at_status at_host_run(const at_host_options *o) {
  host h = {.options = o, .pod_listener = -1};
  h.end = &h.first;
  pthread_mutex_init(&h.queue_lock, NULL);
  pthread_mutex_init(&h.lock, NULL);
  pthread_mutex_init(&h.copies_lock, NULL);
  pthread_mutex_init(&h.samples_lock, NULL);
  at_status st = at_outbox_create(&h.answers);
  if (!st.err) st = open_listener(&h);
  if (!st.err) st = call_controller(&h);
  if (!st.err) at_outbox_open(h.answers, h.controller, 0);
  if (!st.err) st = introduce(&h);
  if (!st.err) work(&h);
  close_host(&h);
  pthread_mutex_destroy(&h.queue_lock);
  pthread_mutex_destroy(&h.lock);
  pthread_mutex_destroy(&h.copies_lock);
  pthread_mutex_destroy(&h.samples_lock);
  return at_status_join(st, h.why);
}
