// `atoll pod drain`: takes a host away, and says what holds it.
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size_text.h"
#include "cli/cli.h"
#include "cli/pod_internal.h"

enum { kLookUs = 200000 };

// timeout NULL: for ever.
typedef struct wishes {
  const char *timeout;
  bool undo, force, waits;
} wishes;

// `undrain` is `drain --undo`. INVALID_ARGUMENT: no host, or force and undo at
// once.
static at_status take_options(int argc, char **argv, wishes *w,
                              at_tool_options *o, at_msg_drain *m) {
  *w = (wishes){.undo = !strcmp(argv[1], "undrain"), .waits = true};
  w->undo |= at_cli_option(&argc, argv, "--undo", NULL);
  w->force = at_cli_option(&argc, argv, "--force", NULL);
  w->waits = !at_cli_option(&argc, argv, "--no-wait", NULL);
  at_cli_option(&argc, argv, "--timeout=", &w->timeout);
  AT_TRY(at_pod_which(&argc, argv, o));
  char *end = NULL;
  unsigned long host = argc == 3 ? strtoul(argv[2], &end, 10) : 0;
  if (argc != 3 || end == argv[2] || *end || host > UINT32_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "which host?\nhint: a number of `atoll pod status`: atoll "
                   "pod %s 0",
                   argv[1]);
  if (w->undo && w->force)
    return AT_FAIL(AT_INVALID_ARGUMENT, "--force and --undo: take one");
  *m = (at_msg_drain){.host = (uint32_t)host,
                      .how = w->undo    ? AT_DRAIN_UNDO
                             : w->force ? AT_DRAIN_FORCE
                                        : AT_DRAIN_START};
  return AT_OK;
}

// The row of a list whose `key` has that number; NULL: none.
static const at_json *find(const at_json *list, const char *key, int64_t n) {
  for (size_t i = 0; list && i < list->len; i++)
    if (at_json_get_int(&list->items[i], key, -1) == n) return &list->items[i];
  return NULL;
}

// "client 1 (process 77, python train.py): 12 arrays, 3.10G", one a line.
static void print_holders(const at_json *s, const at_json *host,
                          at_strbuf *out) {
  const at_json *holders = at_json_get(host, "holders");
  for (size_t i = 0; holders && i < holders->len; i++) {
    const at_json *h = &holders->items[i];
    int64_t n = at_json_get_int(h, "client", 0);
    const at_json *c = find(at_json_get(s, "clients"), "client", n);
    at_str name = at_json_get_str(c, "name", AT_STR("?"));
    char size[AT_SIZE_TEXT];
    at_strbuf_addf(out, "  client %lld (process %lld, %.*s): %lld arrays, %s\n",
                   (long long)n, (long long)at_json_get_int(c, "pid", 0),
                   (int)name.len, name.ptr,
                   (long long)at_json_get_int(h, "arrays", 0),
                   at_size_text((double)(at_json_get_int(h, "hbm_bytes", 0) +
                                         at_json_get_int(h, "host_bytes", 0)),
                                size));
  }
}

// One look. *drained: it has ended; holders: who still has something there.
static at_status look(const at_tool_options *o, uint32_t host, bool *drained,
                      at_strbuf *holders) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("pod");
  const at_json *s = NULL;
  at_status st = at_pod_ask_status(o, 0, a, &s);
  const at_json *h = find(at_json_get(s, "hosts"), "host", host);
  at_str state = at_json_get_str(h, "state", AT_STR("?"));
  *drained = at_str_is(state, "drained");
  if (!st.err && h) print_holders(s, h, holders);
  if (!st.err && !*drained && !at_str_is(state, "draining"))
    st = AT_FAIL(AT_ABORTED, "host %u is not drained any more: it is %.*s",
                 host, (int)state.len, state.ptr);
  at_arena_destroy(a);
  return st;
}

// Until the host has ended. Who holds it is printed whenever that changes.
// DEADLINE_EXCEEDED: --timeout is over; the host goes on draining. ABORTED:
// somebody took it back.
static at_status wait(const at_tool_options *o, const wishes *w,
                      uint32_t host) {
  double seconds = w->timeout ? strtod(w->timeout, NULL) : 0;
  uint64_t until = at_clock_ns() + (uint64_t)(AT_MIN(seconds, 1e9) * 1e9);
  at_strbuf told = {0};
  at_status st = AT_OK;
  bool drained = false;
  for (bool first = true; !st.err && !drained; first = false) {
    if (!first) usleep(kLookUs);
    // Who holds the host is printed when it has changed, not each time.
    at_strbuf now = {0};
    st = look(o, host, &drained, &now);
    bool news =
        !w->force && now.len &&
        (first || !at_str_eq(at_strbuf_str(&now), at_strbuf_str(&told)));
    if (!st.err && news)
      printf("host %u is draining; on it still:\n%s", host, now.ptr);
    fflush(stdout);
    at_strbuf_free(&told);
    told = now;
    if (!st.err && !drained && w->timeout && at_clock_ns() > until)
      st = AT_FAIL(AT_DEADLINE_EXCEEDED,
                   "host %u is still draining after %s s\nhint: --force takes "
                   "it away with what is on it, atoll pod undrain %u keeps it",
                   host, w->timeout, host);
  }
  at_strbuf_free(&told);
  if (!st.err) printf("host %u is drained\n", host);
  return st;
}

// What a forced drain takes away is told before it is gone.
static void tell_losses(const at_tool_options *o, uint32_t host) {
  at_arena *a = at_arena_create();
  const at_json *s = NULL;
  at_strbuf text = {0};
  if (a && !at_code_take(at_pod_ask_status(o, 0, a, &s)))
    print_holders(s, find(at_json_get(s, "hosts"), "host", host), &text);
  if (text.len) printf("host %u loses:\n%s", host, text.ptr);
  at_strbuf_free(&text);
  at_arena_destroy(a);
}

// The controller answers at once; the end is waited for here.
at_status at_pod_drain(int argc, char **argv) {
  wishes w;
  at_tool_options o;
  at_msg_drain m;
  AT_TRY(take_options(argc, argv, &w, &o, &m));
  if (w.force) tell_losses(&o, m.host);
  AT_TRY(at_tool_ask(&o, AT_MSG_DRAIN,
                     (at_bytes){(const uint8_t *)&m, sizeof m}, NULL));
  return w.undo || !w.waits ? AT_OK : wait(&o, &w, m.host);
}
