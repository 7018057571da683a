// `atoll pod status` and `atoll pod top`: hosts with their chips, clients, and
// the programs that ran last.
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/config.h"
#include "base/size_text.h"
#include "cli/cli.h"
#include "cli/pod_internal.h"

enum { kChipsInRow = 4, kTopPrograms = 10, kWatchMs = 3000 };

static int64_t number(const at_json *o, const char *key) {
  return at_json_get_int(o, key, 0);
}
static at_str text_of(const at_json *o, const char *key) {
  return at_json_get_str(o, key, AT_STR("?"));
}

// ---- Lines
// kChipsInRow chips a line.
static void add_chips(const at_json *devices, at_strbuf *b) {
  for (size_t i = 0; devices && i < devices->len; i++) {
    const at_json *c = &devices->items[i];
    char used[AT_SIZE_TEXT], limit[AT_SIZE_TEXT];
    if (i % kChipsInRow == 0) at_strbuf_addz(b, i ? "\n      " : "      ");
    at_strbuf_addf(b, "chip %-4lld%3lld queued %9s of %-9s ",
                   (long long)number(c, "chip"), (long long)number(c, "queued"),
                   at_size_text((double)number(c, "in_use"), used),
                   at_size_text((double)number(c, "limit"), limit));
  }
  if (devices && devices->len) at_strbuf_addc(b, '\n');
}

// A line for each host, then its chips.
static void add_hosts(const at_json *s, at_strbuf *b) {
  const at_json *hosts = at_json_get(s, "hosts");
  for (size_t i = 0; hosts && i < hosts->len; i++) {
    const at_json *h = &hosts->items[i];
    at_str is = text_of(h, "state"), at = text_of(h, "address");
    at_str why = at_json_get_str(h, "why", AT_STR(""));
    at_strbuf_addf(b,
                   "  host %-4lld %-8.*s process %-8lld %lld chips  %.*s  "
                   "%.*s\n",
                   (long long)number(h, "host"), (int)is.len, is.ptr,
                   (long long)number(h, "pid"), (long long)number(h, "chips"),
                   (int)at.len, at.ptr, (int)why.len, why.ptr);
    add_chips(at_json_get(h, "devices"), b);
  }
}

// Returns out.
const char *at_pod_user_text(int64_t uid, char out[64]) {
  char room[1024];
  struct passwd p, *found = NULL;
  if (!getpwuid_r((uid_t)uid, &p, room, sizeof room, &found) && found)
    snprintf(out, 64, "%s", found->pw_name);
  else
    snprintf(out, 64, "user %lld", (long long)uid);
  return out;
}

// A line for each client, with its name last, as that may be long.
static void add_clients(const at_json *s, at_strbuf *b) {
  const at_json *clients = at_json_get(s, "clients");
  for (size_t i = 0; clients && i < clients->len; i++) {
    const at_json *c = &clients->items[i];
    char hbm[AT_SIZE_TEXT], user[64];
    at_str name = text_of(c, "name");
    at_strbuf_addf(
        b,
        "  client %-2lld process %-8lld %s  %lld arrays, %s of HBM, %lld "
        "programs, %lld launches, %.0f/s  %.*s\n",
        (long long)number(c, "client"), (long long)number(c, "pid"),
        at_pod_user_text(number(c, "uid"), user),
        (long long)number(c, "arrays"),
        at_size_text((double)number(c, "hbm_bytes"), hbm),
        (long long)number(c, "programs"), (long long)number(c, "launches"),
        at_json_get_num(c, "launch_rate", 0), (int)name.len, name.ptr);
  }
}

// The last kTopPrograms of them.
static void add_programs(const at_json *s, at_strbuf *b) {
  const at_json *list = at_json_get(s, "last_programs");
  for (size_t i = 0; list && i < list->len && i < kTopPrograms; i++) {
    const at_json *p = &list->items[i];
    at_str name = text_of(p, "name");
    if (!i) at_strbuf_addz(b, "  last programs, as measured now and then\n");
    at_strbuf_addf(b, "    %-32.*s client %-4lld%9lld launches  ",
                   (int)AT_MIN(name.len, (size_t)32), name.ptr,
                   (long long)number(p, "client"),
                   (long long)number(p, "launches"));
    if (number(p, "measured"))
      at_strbuf_addf(b, "p50 %10.1f us  %.1f s ago\n",
                     at_json_get_num(p, "p50_us", 0),
                     -at_json_get_num(p, "last_us", 0) / 1e6);
    else
      at_strbuf_addz(b, "not measured\n");
  }
}

// All of it, for people.
static void add_status(const at_json *s, at_strbuf *b) {
  at_str target = text_of(s, "target"), state = text_of(s, "state");
  at_strbuf_addf(b, "%.*s, %lld chips, %.*s\n", (int)target.len, target.ptr,
                 (long long)number(s, "num_chips"), (int)state.len, state.ptr);
  add_hosts(s, b);
  add_clients(s, b);
  add_programs(s, b);
}

// ---- Asking
// The controller's JSON as it is. watch_ms 0: hosts measure now and then, as
// always.
static at_status ask(const at_tool_options *o, uint64_t watch_ms,
                     at_strbuf *out) {
  const at_msg_status m = {.watch_ms = watch_ms};
  AT_TRY(at_tool_ask(o, AT_MSG_STATUS,
                     (at_bytes){(const uint8_t *)&m, sizeof m}, out));
  return at_strbuf_status(out);
}

// *out is in the arena.
at_status at_pod_ask_status(const at_tool_options *o, uint64_t watch_ms,
                            at_arena *a, const at_json **out) {
  at_strbuf text = {0};
  at_status st = ask(o, watch_ms, &text);
  if (!st.err)
    st = at_json_parse((at_bytes){(const uint8_t *)text.ptr, text.len}, a, out);
  at_strbuf_free(&text);
  return st;
}

// Appends the text to *out.
static at_status as_text(const at_tool_options *o, uint64_t watch_ms,
                         at_strbuf *out) {
  at_arena *a = at_arena_create();
  const at_json *s = NULL;
  if (!a) return AT_NO_MEMORY("pod");
  at_status st = at_pod_ask_status(o, watch_ms, a, &s);
  if (!st.err) add_status(s, out);
  at_arena_destroy(a);
  return st.err ? st : at_strbuf_status(out);
}

// To stdout at once, also where that is a pipe.
static at_status print(const at_tool_options *o, uint64_t watch_ms, bool json) {
  at_strbuf text = {0};
  at_status st = json ? ask(o, watch_ms, &text) : as_text(o, watch_ms, &text);
  if (!st.err) fwrite(text.ptr, 1, text.len, stdout);
  if (!st.err && json) puts("");
  fflush(stdout);
  at_strbuf_free(&text);
  return st;
}

at_status at_pod_status(int argc, char **argv) {
  bool json = at_cli_option(&argc, argv, "--json", NULL);
  at_tool_options o;
  AT_TRY(at_pod_which(&argc, argv, &o));
  return print(&o, 0, json);
}

// ---- The screen of top
static volatile sig_atomic_t ended;
static void end(int signal) {
  (void)signal;
  ended = 1;
}

static struct termios before;

// Keys come one by one and unseen, on the terminal's other screen. give_screen
// takes all of it back.
static void take_screen(void) {
  struct termios raw;
  tcgetattr(0, &before);
  raw = before;
  raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
  tcsetattr(0, TCSANOW, &raw);
  signal(SIGINT, end);
  signal(SIGTERM, end);
  fputs("\033[?1049h\033[?25l", stdout);
}

static void give_screen(void) {
  fputs("\033[?25h\033[?1049l", stdout);
  fflush(stdout);
  tcsetattr(0, TCSANOW, &before);
}

// As much of the text as there is room for.
static void draw(const at_strbuf *text) {
  struct winsize size = {0};
  if (ioctl(1, TIOCGWINSZ, &size) || !size.ws_row || !size.ws_col)
    size = (struct winsize){.ws_row = 24, .ws_col = 80};
  const char *p = text->ptr, *stop = p + text->len;
  fputs("\033[H", stdout);
  for (int row = 1; row < size.ws_row; row++) {
    const char *line = p < stop ? memchr(p, '\n', (size_t)(stop - p)) : NULL;
    if (!line) line = stop;
    size_t n = p < stop ? (size_t)(line - p) : 0;
    fwrite(p, 1, AT_MIN(n, (size_t)size.ws_col), stdout);
    fputs("\033[K\n", stdout);
    p = line < stop ? line + 1 : stop;
  }
  fputs(p < stop ? "...\033[K" : "\033[K", stdout);
  fflush(stdout);
}

// A key ends it: q.
static void wait_for_key(double seconds) {
  struct pollfd in = {.fd = 0, .events = POLLIN};
  char key = 0;
  if (poll(&in, 1, (int)(seconds * 1e3)) > 0 && read(0, &key, 1) == 1 &&
      key == 'q')
    ended = 1;
}

// Whatever ends it, the screen is given back before the error is printed.
static at_status run_screen(const at_tool_options *o, double seconds) {
  at_status st = AT_OK;
  // From here on every way out must give it back.
  take_screen();
  while (!ended && !st.err) {
    at_strbuf text = {0};
    st = as_text(o, kWatchMs, &text);
    if (!st.err) draw(&text);
    at_strbuf_free(&text);
    if (!st.err) wait_for_key(seconds);
  }
  give_screen();
  return st;
}

// Without a terminal it prints for ever.
at_status at_pod_top(int argc, char **argv) {
  const char *every = "1";
  bool json = at_cli_option(&argc, argv, "--json", NULL);
  at_cli_option(&argc, argv, "--every=", &every);
  at_tool_options o;
  AT_TRY(at_pod_which(&argc, argv, &o));
  double seconds = AT_MIN(strtod(every, NULL), 3600.0);
  if (!json && isatty(0) && isatty(1)) return run_screen(&o, seconds);
  for (;;) {
    AT_TRY(print(&o, kWatchMs, json));
    if (!json) puts("");
    usleep((useconds_t)(seconds * 1e6));
  }
}
