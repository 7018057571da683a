// Lines: a list of those that are open, and one of messages for steps that have
// not begun here. The wire's thread calls the line itself, so that a message
// needs no thread to be woken.
#include "pod/lines.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

// Messages between two hosts, as one of them counts them, and whether the other
// has left.
typedef struct count {
  uint64_t sent, received;
  uint32_t left, pad;
} count;

typedef struct member {
  uint32_t host;
  bool came, left;
  _Atomic uint64_t sent;
  uint64_t received;
  // What it said last when it waited: by its members; NULL: nothing yet.
  count *report;
} member;

struct at_hosts_line {
  at_hosts_line *next;
  at_pod_lines *all;
  at_hosts_tag tag;
  at_hosts_line_calls calls;
  _Atomic uint64_t since_ns;  // this process waits; 0: it does not
  uint64_t told_ns;           // the `since_ns` of the wait that was said
  _Atomic bool cancel;        // sends that wait give up
  bool failed;
  _Atomic bool leaves;      // the last message is on its way
  uint64_t reported_ns;     // the `since_ns` of the wait that was reported,
  uint64_t next_report_ns;  // and when that is due again
  uint32_t num_members;
  member members[];  // ascending
};

// A message for a step that has not begun here.
typedef struct early {
  struct early *next;
  uint32_t from;
  at_wire_head head;
  at_hosts_tag tag;
  uint8_t *body;
} early;

struct at_pod_lines {
  const at_hosts *hosts;
  at_wire *const *wire;
  uint32_t kind;
  pthread_mutex_t lock;  // what follows; held while a line is called
  at_hosts_line *first;
  early *early, **last;
};

// The wire may not be open yet, hence a pointer to where it will be. NULL: no
// memory.
at_pod_lines *at_pod_lines_create(const at_hosts *hosts, at_wire *const *wire,
                                  uint32_t kind) {
  at_pod_lines *a = calloc(1, sizeof *a);
  if (!a) return NULL;
  a->hosts = hosts;
  a->wire = wire;
  a->kind = kind;
  a->last = &a->early;
  pthread_mutex_init(&a->lock, NULL);
  return a;
}

static void free_early(early *e) {
  free(e->body);
  free(e);
}

// No line is open any more; messages for lines that nobody opened go with it.
void at_pod_lines_destroy(at_pod_lines *a) {
  if (!a) return;
  for (early *e = a->early, *next; e; e = next) {
    next = e->next;
    free_early(e);
  }
  pthread_mutex_destroy(&a->lock);
  free(a);
}

static bool same_step(const at_hosts_tag *a, const at_hosts_tag *b) {
  return at_hosts_same_launch(a, b) && a->step == b->step && a->turn == b->turn;
}

// ---- Under the lock
// Consumes why.
static void fail_line(at_hosts_line *l, at_status why) {
  l->failed = true;
  atomic_store(&l->cancel, true);
  at_wire_wake(*l->all->wire);
  l->calls.failed(l->calls.arg, why);
}

// Whether what a line waits for can still come.
static void look(at_hosts_line *l) {
  const at_hosts *h = l->all->hosts;
  for (uint32_t i = 0; i < l->num_members && !l->failed; i++) {
    if (l->members[i].left) continue;
    at_status st = h->check(h->arg, &l->tag, l->members[i].host, NULL);
    if (st.err) fail_line(l, st);
  }
}

// Hands a message to the line. Members that are not in it, or anything after a
// failure, are ignored.
static void give(at_hosts_line *l, uint32_t from, at_bytes message, bool last) {
  member *m = l->members, *end = m + l->num_members;
  while (m < end && m->host != from) m++;
  if (m == end || l->failed) return;
  m->came = true;
  if (message.len) l->calls.heard(l->calls.arg, message);
  m->received += message.len != 0;
  if (!last || l->failed || m->left) return;
  m->left = true;
  l->calls.left(l->calls.arg);
}

// A list: few steps with lines run at a time.
static at_hosts_line *find(const at_pod_lines *a, const at_hosts_tag *tag) {
  at_hosts_line *l = a->first;
  while (l && !same_step(&l->tag, tag)) l = l->next;
  return l;
}

// Takes a message out of the list; its credits go back.
static early *take(at_pod_lines *a, early **at) {
  early *e = *at;
  *at = e->next;
  if (a->last == &e->next) a->last = at;
  at_wire_release(*a->wire, e->from, e->head.lane, e->head.bytes);
  return e;
}

static at_bytes body_of(const at_wire_head *head, const uint8_t *body) {
  return (at_bytes){body, (size_t)head->bytes - sizeof(at_hosts_tag)};
}

// What came before the step began here, in order.
static void give_early(at_hosts_line *l) {
  at_pod_lines *a = l->all;
  for (early **at = &a->early; *at;) {
    if (!same_step(&(*at)->tag, &l->tag)) {
      at = &(*at)->next;
      continue;
    }
    early *e = take(a, at);
    give(l, e->from, body_of(&e->head, e->body), e->head.kind != a->kind);
    free_early(e);
  }
}

// ---- Reports, under the lock
// A host that waits says to the others how many messages it has sent and
// received. If all that are left wait, and all that was sent has come, nothing
// will ever come: whoever could still be the first to go on would need a
// message that is not counted on both sides.
enum { kReportMs = 1000, kReportMostMs = 16000, kMs = 1000000 };

// The latest one of a member counts.
static void take_report(at_hosts_line *l, uint32_t from, at_bytes body) {
  const size_t bytes = l->num_members * sizeof(count);
  for (uint32_t i = 0; i < l->num_members; i++) {
    member *m = &l->members[i];
    if (m->host != from || body.len != bytes) continue;
    if (!m->report) m->report = malloc(bytes);  // NULL: the next one may do
    if (m->report) memcpy(m->report, body.ptr, bytes);
  }
}

// To all that have not left, without waiting for room.
static void send_report(at_hosts_line *l) {
  const uint32_t n = l->num_members;
  count *report = calloc(n, sizeof *report);
  if (!report) return;  // a deadlock is found later
  for (uint32_t i = 0; i < n; i++)
    report[i] = (count){.sent = atomic_load(&l->members[i].sent),
                        .received = l->members[i].received,
                        .left = l->members[i].left};
  const at_bytes parts[] = {{(const uint8_t *)report, n * sizeof *report},
                            {(const uint8_t *)&l->tag, sizeof l->tag}};
  const at_wire_out out = {
      .kind = l->all->kind + 2, .num_parts = AT_LEN(parts), .parts = parts};
  const at_wire_wait now = {.until_ns = 0};
  for (uint32_t i = 0; i < n; i++)
    if (!l->members[i].left)
      at_status_free(at_wire_send(*l->all->wire, l->members[i].host,
                                  AT_WIRE_BULK, &out, 1, &now, NULL));
  free(report);
}

// The first one after a second of waiting, then at longer and longer intervals
// up to 16 s.
static void report_wait(at_hosts_line *l, uint64_t since, uint64_t now) {
  const uint64_t first = (uint64_t)kReportMs * kMs;
  if (l->reported_ns != since) {
    l->reported_ns = since;
    l->next_report_ns = since + first;
  }
  if (now < l->next_report_ns) return;
  send_report(l);
  const uint64_t again = AT_MIN(now - since, (uint64_t)kReportMostMs * kMs);
  l->next_report_ns = now + AT_MAX(again, first);
}

// What member i says of member k; k == i: of this host.
static const count *said_of(const at_hosts_line *l, uint32_t i, uint32_t k) {
  const uint32_t me = l->all->hosts->me;
  const uint32_t by = l->members[i].host, of = k == i ? me : l->members[k].host;
  uint32_t at = 0;
  for (uint32_t m = 0; m < l->num_members; m++)
    at += l->members[m].host < of && l->members[m].host != by;
  return &l->members[i].report[at + (k != i && me < of)];
}

// All that one has sent the other has received, both ways.
static bool agree(const count *a, const count *b) {
  return a->sent == b->received && a->received == b->sent;
}

// Does all that member i has said fit what the others have said?
static bool fits(const at_hosts_line *l, uint32_t i) {
  const member *m = &l->members[i];
  const count mine = {.sent = atomic_load(&m->sent), .received = m->received};
  if (!m->report || !agree(said_of(l, i, i), &mine)) return false;
  for (uint32_t k = 0; k < l->num_members; k++) {
    const member *o = &l->members[k];
    if (k == i) continue;
    if (o->left ? !said_of(l, i, k)->left
                : !o->report || !agree(said_of(l, i, k), said_of(l, k, i)))
      return false;
  }
  return true;
}

// This host waits. Will nothing ever come?
static bool is_stuck(const at_hosts_line *l) {
  uint32_t others = 0;
  for (uint32_t i = 0; i < l->num_members; i++) {
    if (l->members[i].left) continue;
    if (!fits(l, i)) return false;
    others++;
  }
  return others && !atomic_load(&l->leaves);
}

// ---- What comes
// The step has not begun here: the message waits, with its credits. Takes over
// body on success.
static at_status keep(at_pod_lines *a, uint32_t from, const at_wire_head *head,
                      const at_hosts_tag *tag, void *body) {
  early *e = calloc(1, sizeof *e);
  if (!e)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no host memory for a message from process %u", from);
  *e = (early){.from = from, .head = *head, .tag = *tag, .body = body};
  *a->last = e;
  a->last = &e->next;
  return AT_OK;
}

// On the poller. The line's own code runs under the lock.
at_status at_pod_lines_hear(at_pod_lines *a, uint32_t from,
                            const at_wire_head *head, void *body, bool *kept) {
  const at_bytes message = body_of(head, body);
  at_hosts_tag tag;
  memcpy(&tag, message.ptr + message.len, sizeof tag);
  *kept = false;
  pthread_mutex_lock(&a->lock);
  at_hosts_line *l = find(a, &tag);
  at_status st = AT_OK;
  if (head->kind == a->kind + 2) {  // of use only to who waits, too
    if (l) take_report(l, from, message);
  } else if (l)
    give(l, from, message, head->kind != a->kind);
  else if (!at_code_take(a->hosts->check(a->hosts->arg, &tag, from, NULL)))
    st = keep(a, from, head, &tag, body), *kept = !st.err;
  pthread_mutex_unlock(&a->lock);
  if (!*kept) free(body);
  return st;
}

// A failure or a loss has been heard: lines that wait for it end.
void at_pod_lines_look(at_pod_lines *a) {
  pthread_mutex_lock(&a->lock);
  for (at_hosts_line *l = a->first; l; l = l->next) look(l);
  pthread_mutex_unlock(&a->lock);
}

// A launch has failed here: messages of it are of no use.
void at_pod_lines_drop(at_pod_lines *a, const at_hosts_tag *tag) {
  pthread_mutex_lock(&a->lock);
  for (early **at = &a->early; *at;) {
    if (at_hosts_same_launch(&(*at)->tag, tag))
      free_early(take(a, at));
    else
      at = &(*at)->next;
  }
  pthread_mutex_unlock(&a->lock);
  at_pod_lines_look(a);
}

// ---- Who waits
// Any thread; a store.
void at_pod_lines_waits(at_hosts_line *l, bool on) {
  atomic_store(&l->since_ns, on ? at_clock_ns() : 0);
}

// From whom nothing has come at all, and what the kernel says that it waits
// for.
static void print_wait(const at_hosts_line *l, at_strbuf *out) {
  uint32_t absent = 0;
  for (uint32_t i = 0; i < l->num_members; i++) {
    if (l->members[i].came) continue;
    at_strbuf_addf(out, "%s %u", absent++ ? "," : "nothing came from process",
                   l->members[i].host);
  }
  if (absent) at_strbuf_addz(out, "; ");
  l->calls.print(l->calls.arg, out);
}

// Reports, says, ends: whatever is due for a step that waits.
static void look_at_wait(at_hosts_line *l, uint64_t tell_ns, uint64_t end_ns) {
  const uint64_t since = atomic_load(&l->since_ns), now = at_clock_ns();
  const uint64_t ns = since && now > since ? now - since : 0;
  const bool tell = ns >= tell_ns && l->told_ns != since;
  const bool end = end_ns && ns >= end_ns;
  if (l->failed || !ns) return;
  report_wait(l, since, now);
  const bool stuck = is_stuck(l);
  if (!tell && !end && !stuck) return;
  const unsigned long long launch = l->tag.launch, s = ns / 1000000000u;
  at_strbuf b = {0};
  print_wait(l, &b);
  const char *text = b.ptr ? b.ptr : "?";
  if (stuck) {
    send_report(l);  // so that the others know as much
    fail_line(l,
              AT_FAIL(AT_FAILED_PRECONDITION,
                      "deadlock: the kernels of all processes wait for each "
                      "other\ndetail: %s\n"
                      "hint: each wait needs its signal or copy, of the same "
                      "amount",
                      text));
  }
  if (tell) {
    l->told_ns = since;
    at_log(AT_LOG_WARNING,
           "process %u has waited %llu s for other processes in a kernel "
           "(launch %llu of a program): %s",
           l->all->hosts->me, s, launch, text);
  }
  if (end && !stuck)
    fail_line(l, AT_FAIL(AT_DEADLINE_EXCEEDED,
                         "a kernel has waited %llu s for other processes "
                         "(ATOLL_POD_DEADLINE)\ndetail: %s",
                         s, text));
  at_strbuf_free(&b);
}

// Looks how long each line has waited: who waits too long is told, or ended.
void at_pod_lines_tick(at_pod_lines *a, uint64_t tell_ns, uint64_t end_ns) {
  pthread_mutex_lock(&a->lock);
  for (at_hosts_line *l = a->first; l; l = l->next)
    look_at_wait(l, tell_ns, end_ns);
  pthread_mutex_unlock(&a->lock);
}

// ---- Lines
// *out is set before the line is called for what came early.
at_status at_pod_lines_open(at_pod_lines *a, const at_hosts_tag *tag,
                            const uint32_t *hosts, uint32_t num_hosts,
                            const at_hosts_line_calls *calls,
                            at_hosts_line **out) {
  at_hosts_line *l = calloc(1, sizeof *l + num_hosts * sizeof *l->members);
  if (!l)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to talk to %u processes",
                   num_hosts);
  l->all = a;
  l->tag = *tag;
  l->calls = *calls;
  l->num_members = num_hosts;
  for (uint32_t i = 0; i < num_hosts; i++) l->members[i].host = hosts[i];
  *out = l;
  pthread_mutex_lock(&a->lock);
  l->next = a->first;
  a->first = l;
  give_early(l);
  look(l);
  pthread_mutex_unlock(&a->lock);
  return AT_OK;
}

// No call of the line comes after it.
void at_pod_lines_close(at_hosts_line *l) {
  at_pod_lines *a = l->all;
  pthread_mutex_lock(&a->lock);
  at_hosts_line **at = &a->first;
  while (*at != l) at = &(*at)->next;
  *at = l->next;
  pthread_mutex_unlock(&a->lock);
  for (uint32_t i = 0; i < l->num_members; i++) free(l->members[i].report);
  free(l);
}

// Why a send failed, as an exchange would say.
static at_status blame(const at_hosts_line *l, uint32_t host, at_status st) {
  const at_hosts *h = l->all->hosts;
  at_status why = h->check(h->arg, &l->tag, host, NULL);
  if (!why.err && at_status_code(st) == AT_UNAVAILABLE)
    why = AT_FAIL(AT_DATA_LOSS, "%s", at_status_message(st));
  if (!why.err) return st;
  at_status_free(st);
  return why;
}

// Counts the message before it is sent, so that a report never counts fewer
// than can have come. Waits for credits.
at_status at_pod_lines_send(at_hosts_line *l, uint32_t host,
                            const at_bytes *parts, uint32_t num_parts,
                            bool last) {
  at_bytes all[AT_HOSTS_LINE_PARTS + 1];
  AT_ASSERT(num_parts <= AT_HOSTS_LINE_PARTS);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < num_parts; i++) bytes += parts[i].len;
  if (last) atomic_store(&l->leaves, true);
  for (uint32_t i = 0; i < l->num_members && bytes; i++)
    if (l->members[i].host == host) atomic_fetch_add(&l->members[i].sent, 1);
  for (uint32_t i = 0; i < num_parts; i++) all[i] = parts[i];
  all[num_parts] = (at_bytes){(const uint8_t *)&l->tag, sizeof l->tag};
  const at_wire_out out = {
      .kind = l->all->kind + last, .num_parts = num_parts + 1, .parts = all};
  const at_wire_wait wait = {.until_ns = UINT64_MAX, .cancel = &l->cancel};
  // One lane for all: a signal must not pass the copy before it.
  at_status st =
      at_wire_send(*l->all->wire, host, AT_WIRE_BULK, &out, 1, &wait, NULL);
  return st.err ? blame(l, host, st) : AT_OK;
}
