// `atoll pod trace`: what clients, the controller and hosts did meanwhile, as
// Chrome's trace events, for Perfetto. One process of the trace for each
// process of the pod, one flow for each launch.
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "base/json.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/pod_internal.h"
#include "control/session.h"

// Threads of a process of the trace.
enum { kTransfers = 10000, kThreads = 20000, kFlush = 1 << 20 };
enum { kLeastNs = 100 };  // for arrows, which need something to end at
// Processes: clients come first, as launches do.
enum { kControllerId = 1, kHostId = 2, kClientId = 100000 };

static const struct {
  const char *text;
  bool waits;  // drawn beside the others, as many may wait at once
} kinds[AT_SPAN_KINDS] = {
    [AT_SPAN_LAUNCH] = {"launch", false},
    [AT_SPAN_REPLY] = {"reply", false},
    [AT_SPAN_READ] = {"reads", true},
    [AT_SPAN_ORDER] = {"order", false},
    [AT_SPAN_QUEUE] = {"waits in the stream", true},
    [AT_SPAN_TAKE] = {"take", false},
    [AT_SPAN_TURN] = {"waits for its turn", true},
    [AT_SPAN_ARGUMENTS] = {"waits for arguments and a core", true},
    [AT_SPAN_RUN] = {"run", false},
    [AT_SPAN_COLLECTIVE] = {"collective", false},
    [AT_SPAN_OP] = {"op", false},
    [AT_SPAN_TRANSFER] = {"transfer", false},
};

// A span of some process, on the controller's clock.
typedef struct event {
  const at_profile_span *is;
  uint32_t process;   // of the trace
  uint64_t start_ns;  // by the controller's clock
} event;

// A process of the pod: its spans come in pieces.
typedef struct source {
  uint32_t process;
  const at_msg_spans *last;  // knows the clock best
  uint64_t dropped, num_spans;
} source;

// The trace while it is written. text is flushed whenever it has kFlush bytes.
typedef struct drawing {
  source *sources;
  size_t num_sources;
  event *events;
  size_t num_events;
  uint64_t first_ns;
  uint64_t dropped;
  at_strbuf text;
  at_json_writer w;
  gzFile gz;
  FILE *plain;
  bool failed;
  uint64_t num_waits, num_flows;
} drawing;

// ---- What there is
// The number that the process has in the trace.
static uint32_t process_of(const at_msg_spans *m) {
  if (m->kind == AT_SESSION_HOST) return kHostId + m->number;
  return m->kind == AT_SESSION_CLIENT ? kClientId + m->number : kControllerId;
}

// A process that came back after its end has the same number but another pid,
// and another clock. There is room for as many as there are pieces.
static source *source_of(drawing *d, const at_msg_spans *m) {
  uint32_t process = process_of(m);
  for (size_t i = 0; i < d->num_sources; i++)
    if (d->sources[i].process == process && d->sources[i].last->pid == m->pid)
      return &d->sources[i];
  d->sources[d->num_sources] = (source){.process = process};
  return &d->sources[d->num_sources++];
}

static const at_profile_span *spans_of(const at_msg_spans *m) {
  return (const at_profile_span *)(m + 1);
}

// Takes the process's offset off its clock; first_ns becomes the earliest
// start.
static void add_events(drawing *d, const at_msg_spans *m) {
  int64_t offset = source_of(d, m)->last->offset_ns;
  for (uint32_t i = 0; i < m->count; i++) {
    const at_profile_span *s = &spans_of(m)[i];
    uint64_t start = s->start_ns - (uint64_t)offset;
    d->events[d->num_events++] = (event){s, process_of(m), start};
    d->first_ns = AT_MIN(d->first_ns, start);
  }
}

// Spans of a launch together, in the order of time; a launch's order between
// processes settles what is equal.
static int by_flow(const void *a, const void *b) {
  const event *x = a, *y = b;
  if (x->is->flow != y->is->flow) return x->is->flow < y->is->flow ? -1 : 1;
  if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
  return (x->process > y->process) - (x->process < y->process);
}

// Two walks: a clock is known best by the last piece of a process, and offsets
// are needed before events are made.
static at_status gather(drawing *d, const at_tool_spans *all) {
  size_t pieces = 0, spans = 0;
  for (const at_tool_spans *p = all; p; p = p->next, pieces++)
    spans += p->is->count;
  d->sources = calloc(pieces + 1, sizeof *d->sources);
  d->events = calloc(spans + 1, sizeof *d->events);
  if (!d->sources || !d->events) return AT_NO_MEMORY("trace");
  // Pieces come in the order of time, so the last one of a process is kept.
  for (const at_tool_spans *p = all; p; p = p->next) {
    source *s = source_of(d, p->is);
    s->last = p->is;
    s->dropped += p->is->dropped;
    s->num_spans += p->is->count;
    d->dropped += p->is->dropped;
  }
  d->first_ns = UINT64_MAX;
  for (const at_tool_spans *p = all; p; p = p->next) add_events(d, p->is);
  qsort(d->events, d->num_events, sizeof *d->events, by_flow);
  return AT_OK;
}

// ---- JSON
// Writes what there is; a failure is kept in `failed` for the end.
static void flush(drawing *d, bool all) {
  if (!all && d->text.len < kFlush) return;
  if (d->gz)
    d->failed |=
        d->text.len && gzwrite(d->gz, d->text.ptr, (unsigned)d->text.len) <= 0;
  else
    d->failed |= fwrite(d->text.ptr, 1, d->text.len, d->plain) != d->text.len;
  d->failed |= d->text.failed;
  d->text.len = 0;
}

static void put_text(drawing *d, const char *key, const char *value) {
  at_json_key(&d->w, at_str_of(key));
  at_json_str(&d->w, at_str_of(value));
}
static void put_number(drawing *d, const char *key, uint64_t value) {
  at_json_key(&d->w, at_str_of(key));
  at_json_uint(&d->w, value);
}
// As text: numbers of 64 bits do not survive JavaScript.
static void put_id(drawing *d, const char *key, uint64_t id) {
  char text[32];
  snprintf(text, sizeof text, "0x%llx", (unsigned long long)id);
  put_text(d, key, text);
}
// Microseconds with all of their three digits behind the point.
static void put_time(drawing *d, const char *key, uint64_t ns) {
  at_json_key(&d->w, at_str_of(key));
  at_json_num(&d->w, (double)ns / 1e3);
}

// Opens an event of that phase; the caller closes it.
static void begin_event(drawing *d, const char *ph, uint32_t process,
                        uint32_t thread) {
  flush(d, false);
  at_json_begin_object(&d->w);
  put_text(d, "ph", ph);
  put_number(d, "pid", process);
  put_number(d, "tid", thread);
}

// A metadata event that names a process or a thread.
static void name_it(drawing *d, const char *what, uint32_t process,
                    uint32_t thread, const char *name) {
  begin_event(d, "M", process, thread);
  put_text(d, "name", what);
  at_json_key(&d->w, AT_STR("args"));
  at_json_begin_object(&d->w);
  put_text(d, "name", name);
  at_json_end_object(&d->w);
  at_json_end_object(&d->w);
}

// One that says where it is drawn: lower numbers come first.
static void place_it(drawing *d, const char *what, uint32_t process,
                     uint32_t thread, uint64_t place) {
  begin_event(d, "M", process, thread);
  put_text(d, "name", what);
  at_json_key(&d->w, AT_STR("args"));
  at_json_begin_object(&d->w);
  put_number(d, "sort_index", place);
  at_json_end_object(&d->w);
  at_json_end_object(&d->w);
}

// Chips have small numbers, their transfers and the streams such as cannot meet
// them.
static uint32_t thread_of(const at_profile_span *s) {
  if (s->kind == AT_SPAN_TRANSFER) return kTransfers + s->lane;
  return s->kind <= AT_SPAN_TAKE ? kThreads + s->lane : 1 + s->lane;
}

// Clients are drawn first, as launches begin there.
static void name_process(drawing *d, const source *s) {
  const at_msg_spans *m = s->last;
  char name[200];
  if (m->kind == AT_SESSION_HOST)
    snprintf(name, sizeof name, "host %u (process %u)", m->number, m->pid);
  else if (m->kind == AT_SESSION_CLIENT)
    snprintf(name, sizeof name, "client %u: %.90s (process %u)", m->number,
             m->name, m->pid);
  else
    snprintf(name, sizeof name, "controller");
  name_it(d, "process_name", s->process, 0, name);
  place_it(d, "process_sort_index", s->process, 0,
           s->process >= kClientId ? 0 : s->process);
}

// Events of one thread together.
static int by_thread(const void *a, const void *b) {
  const event *x = a, *y = b;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  uint32_t i = thread_of(x->is), k = thread_of(y->is);
  return (i > k) - (i < k);
}

// A thread has a name as soon as there is an event of it.
static void name_thread(drawing *d, const event *e) {
  char name[64];
  uint32_t thread = thread_of(e->is);
  if (thread >= kThreads && e->process >= kHostId && e->process < kClientId)
    snprintf(name, sizeof name, "stream");
  else if (thread >= kThreads)
    snprintf(name, sizeof name, "thread %u", thread - kThreads);
  else if (thread >= kTransfers)
    snprintf(name, sizeof name, "chip %u: transfers", thread - kTransfers);
  else
    snprintf(name, sizeof name, "chip %u", thread - 1);
  name_it(d, "thread_name", e->process, thread, name);
  place_it(d, "thread_sort_index", e->process, thread,
           thread >= kThreads ? thread - kThreads : thread + kThreads);
}

// Sorts a copy, as the events themselves are in the order of flows.
static void name_all(drawing *d) {
  for (size_t i = 0; i < d->num_sources; i++) name_process(d, &d->sources[i]);
  event *copy = malloc((d->num_events + 1) * sizeof *copy);
  if (!copy) {
    d->failed = true;
    return;
  }
  memcpy(copy, d->events, d->num_events * sizeof *copy);
  qsort(copy, d->num_events, sizeof *copy, by_thread);
  for (size_t i = 0; i < d->num_events; i++)
    if (!i || by_thread(&copy[i - 1], &copy[i])) name_thread(d, &copy[i]);
  free(copy);
}

// What Perfetto shows of a span that is selected.
static void put_args(drawing *d, const at_profile_span *s) {
  at_json_key(&d->w, AT_STR("args"));
  at_json_begin_object(&d->w);
  put_text(d, "what", kinds[s->kind].text);
  if (s->flow) put_id(d, "launch", s->flow);
  if (s->bytes) put_number(d, "bytes", s->bytes);
  at_json_end_object(&d->w);
}

// Waits of a chip say which, as all waits of a process are drawn together.
static const char *wait_name(const at_profile_span *s, char text[64]) {
  if (s->kind < AT_SPAN_TURN) return kinds[s->kind].text;
  snprintf(text, 64, "chip %u %s", s->lane, kinds[s->kind].text);
  return text;
}

// name: of the program, where the span is of a launch.
static void draw_span(drawing *d, const event *e, const char *name) {
  const at_profile_span *s = e->is;
  uint64_t start = e->start_ns - d->first_ns;
  uint64_t ns = AT_MAX(s->end_ns - s->start_ns, (uint64_t)kLeastNs);
  bool waits = kinds[s->kind].waits;
  char text[64];
  if (waits) name = wait_name(s, text);
  begin_event(d, waits ? "b" : "X", e->process, thread_of(s));
  put_text(d, "name", name);
  put_text(d, "cat", kinds[s->kind].text);
  put_time(d, "ts", start);
  if (waits)
    put_id(d, "id", ++d->num_waits);
  else
    put_time(d, "dur", ns);
  put_args(d, s);
  at_json_end_object(&d->w);
  if (!waits) return;
  begin_event(d, "e", e->process, thread_of(s));
  put_text(d, "name", name);
  put_text(d, "cat", kinds[s->kind].text);
  put_time(d, "ts", start + ns);
  put_id(d, "id", d->num_waits);
  at_json_end_object(&d->w);
}

// Spans that the launch's arrow touches.
static bool is_of_flow(const event *e) {
  uint32_t k = e->is->kind;
  return k == AT_SPAN_LAUNCH || k == AT_SPAN_ORDER || k == AT_SPAN_TAKE ||
         k == AT_SPAN_RUN || k == AT_SPAN_REPLY;
}

// ph: `s` begins it, `t` goes on, `f` ends it.
static void draw_arrow(drawing *d, const event *e, const char *ph) {
  begin_event(d, ph, e->process, thread_of(e->is));
  put_text(d, "name", "launch");
  put_text(d, "cat", "launch");
  put_id(d, "id", e->is->flow);
  put_time(d, "ts", e->start_ns - d->first_ns);
  if (*ph == 'f') put_text(d, "bp", "e");
  at_json_end_object(&d->w);
}

// The spans of one launch, in the order of their times.
static void draw_flow(drawing *d, const event *e, size_t n) {
  const char *name = NULL;
  // The name is the host's, which knows it; an arrow needs two ends at least.
  size_t points = 0, at = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t k = e[i].is->kind;
    if ((k == AT_SPAN_TAKE && !name) || k == AT_SPAN_RUN) name = e[i].is->name;
    points += is_of_flow(&e[i]);
  }
  for (size_t i = 0; i < n; i++) {
    bool own = !name || e[i].is->kind >= AT_SPAN_COLLECTIVE;
    draw_span(d, &e[i], own ? e[i].is->name : name);
    if (points < 2 || !is_of_flow(&e[i])) continue;
    at++;
    draw_arrow(d, &e[i], at == 1 ? "s" : at == points ? "f" : "t");
  }
  d->num_flows += points > 1;
}

// One JSON object, written as it grows.
static void draw(drawing *d) {
  d->w = (at_json_writer){.out = &d->text};
  at_json_begin_object(&d->w);
  put_text(d, "displayTimeUnit", "ns");
  at_json_key(&d->w, AT_STR("otherData"));
  at_json_begin_object(&d->w);
  put_number(d, "dropped", d->dropped);
  at_json_end_object(&d->w);
  at_json_key(&d->w, AT_STR("traceEvents"));
  at_json_begin_array(&d->w);
  name_all(d);
  for (size_t i = 0, n; i < d->num_events; i += n) {
    const event *e = &d->events[i];
    n = 1;
    if (!e->is->flow) {
      draw_span(d, e, e->is->name);
      continue;
    }
    while (i + n < d->num_events && e[n].is->flow == e->is->flow) n++;
    draw_flow(d, e, n);
  }
  at_json_end_array(&d->w);
  at_json_end_object(&d->w);
  flush(d, true);
}

// Compressed where the name ends with .gz. DATA_LOSS: it could not be written
// whole.
static at_status write_file(drawing *d, const char *path) {
  bool zipped = strlen(path) > 3 && !strcmp(path + strlen(path) - 3, ".gz");
  if (zipped)
    d->gz = gzopen(path, "wb6");
  else
    d->plain = fopen(path, "wbe");
  if (!d->gz && !d->plain)
    return AT_FAIL(AT_NOT_FOUND, "--out=%s: %s", path, strerror(errno));
  draw(d);
  d->failed |= zipped ? gzclose(d->gz) != Z_OK : fclose(d->plain) != 0;
  return d->failed ? AT_FAIL(AT_DATA_LOSS, "--out=%s: %s", path,
                             strerror(errno ? errno : ENOSPC))
                   : AT_OK;
}

// What the file has, how well clocks are known, and what is missing in it.
static void tell(const drawing *d, const char *path) {
  fprintf(stderr,
          "%s: %zu processes, %zu spans, %llu launches\nhint: open it at "
          "https://ui.perfetto.dev\n",
          path, d->num_sources, d->num_events,
          (unsigned long long)d->num_flows);
  for (size_t i = 0; i < d->num_sources; i++) {
    const at_msg_spans *m = d->sources[i].last;
    if (m->error_ns)
      fprintf(stderr, "%s: its clock is known to %.1f us\n", m->name,
              (double)m->error_ns / 1e3);
    if (d->sources[i].dropped)
      at_log(AT_LOG_WARNING,
             "%s: %llu spans were dropped, as they came faster than they could "
             "be collected",
             *m->name ? m->name : "controller",
             (unsigned long long)d->sources[i].dropped);
  }
}

// ---- The command
static volatile sig_atomic_t ended;
static void end(int signal) {
  (void)signal;
  ended = 1;
}

// *status: the command's.
static at_status run_command(char **command, const at_tool_options *o,
                             int *status) {
  pid_t pid;
  int how = 0;
  setenv("ATOLL_POD", o->address, 1);
  AT_TRY(at_pod_start(command, NULL, &pid));
  while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {
  }
  *status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
  return AT_OK;
}

// Less, where a signal comes: then the trace ends there.
static void wait_for(double seconds) {
  for (double t = 0; t < seconds && !ended; t += 0.02) usleep(20000);
}

// Finds "--" before options are read, as the command has its own.
static at_status take_options(int *argc, char **argv, const char **out,
                              double *seconds, char ***command,
                              at_tool_options *o) {
  const char *text = NULL;
  for (int i = 2; i < *argc && !*command; i++) {
    if (strcmp(argv[i], "--")) continue;
    *command = argv + i + 1;
    *argc = i;
    if (!argv[i + 1])
      return AT_FAIL(AT_INVALID_ARGUMENT, "no command behind --");
  }
  at_cli_option(argc, argv, "--out=", out);
  at_cli_option(argc, argv, "--seconds=", &text);
  AT_TRY(at_pod_which(argc, argv, o));
  if (*argc > 2)
    return AT_FAIL(AT_INVALID_ARGUMENT, "'%s'\nhint: -- before a command",
                   argv[2]);
  if (text && *command)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "--seconds and a command: the trace ends with the command");
  *seconds = text ? AT_MIN(strtod(text, NULL), 3600.0) : 1;
  return AT_OK;
}

// The exit status is the command's, once the trace is written.
at_status at_pod_trace(int argc, char **argv) {
  const char *out = "trace.json";
  double seconds = 1;
  char **command = NULL;
  int status = 0;
  at_tool_options o;
  at_tool_trace *trace;
  const at_tool_spans *all = NULL;
  drawing d = {0};
  AT_TRY(take_options(&argc, argv, &out, &seconds, &command, &o));
  AT_TRY(at_tool_trace_begin(&o, &trace));
  signal(SIGINT, end);
  signal(SIGTERM, end);
  at_status st = AT_OK;
  if (command)
    st = run_command(command, &o, &status);
  else
    wait_for(seconds);
  if (!st.err) st = at_tool_trace_end(trace, &all);
  if (!st.err) st = gather(&d, all);
  if (!st.err) st = write_file(&d, out);
  if (!st.err) tell(&d, out);
  at_tool_trace_free(trace);
  at_strbuf_free(&d.text);
  free(d.sources);
  free(d.events);
  if (!st.err && command) exit(status);
  return st;
}
