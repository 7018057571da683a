// The socket of a debugger: one for the process. Only the core that runs talks.
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/json.h"
#include "device/core_debug.h"

// The debugger is gone: everything runs on without it.
static void hang_up(void) {
  debugger *g = &g_debugger;
  if (g->fd >= 0) close(g->fd);
  g->fd = -1;
  g->mode = DEBUG_RUN;
  g->num_breaks = 0;
  free(g->input);
  g->input = NULL;
  g->input_len = g->input_cap = 0;
}

// Closes the connection before, if any, only once the new one stands.
at_status debug_connect(const char *folder) {
  debugger *g = &g_debugger;
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  int n = snprintf(to.sun_path, sizeof to.sun_path, "%s/socket", folder);
  if (n < 0 || (size_t)n >= sizeof to.sun_path)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "ATOLL_DEBUG names a folder whose path is too long for a "
                   "socket: %.80s...",
                   folder);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) {
    at_status st = AT_FAIL(AT_NOT_FOUND,
                           "no debugger listens at %s: %s\n"
                           "hint: `atoll debug` starts one; else unset "
                           "ATOLL_DEBUG",
                           to.sun_path, strerror(errno));
    if (fd >= 0) close(fd);
    return st;
  }
  hang_up();
  g->fd = fd;
  return AT_OK;
}

// False: the debugger is gone.
static bool send_all(const void *data, size_t n) {
  const uint8_t *p = data;
  while (n) {
    ssize_t sent = send(g_debugger.fd, p, n, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    p += sent;
    n -= (size_t)sent;
  }
  return true;
}

// One line of JSON, and bytes behind it.
static bool send_line(at_strbuf *line, const void *data, size_t bytes) {
  at_strbuf_addc(line, '\n');
  return !line->failed && send_all(line->ptr, line->len) &&
         send_all(data, bytes);
}

// More input into the buffer; false: there is none.
static bool receive(void) {
  debugger *g = &g_debugger;
  if (g->input_len == g->input_cap) {
    size_t cap = g->input_cap ? 2 * g->input_cap : 4096;
    uint8_t *grown = cap <= 2 * DEBUG_MOST_LINE ? realloc(g->input, cap) : NULL;
    if (!grown) return false;
    g->input = grown;
    g->input_cap = cap;
  }
  ssize_t got;
  do {
    got = recv(g->fd, g->input + g->input_len, g->input_cap - g->input_len, 0);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  g->input_len += (size_t)got;
  return true;
}

// The next line, in `a`; false: the debugger is gone.
static bool next_line(at_arena *a, at_bytes *out) {
  debugger *g = &g_debugger;
  size_t seen = 0;
  for (;;) {
    uint8_t *end = g->input_len > seen
                       ? memchr(g->input + seen, '\n', g->input_len - seen)
                       : NULL;
    if (end) {
      size_t n = (size_t)(end - g->input);
      *out = (at_bytes){at_arena_copy(a, g->input, n, 1), n};
      memmove(g->input, end + 1, g->input_len -= n + 1);
      return out->ptr != NULL;
    }
    seen = g->input_len;
    if (!receive()) return false;
  }
}

// Without waiting.
static bool is_readable(void) {
  struct pollfd p = {.fd = g_debugger.fd, .events = POLLIN};
  return poll(&p, 1, 0) > 0;
}

// Nothing else comes while cores run. A debugger that is gone interrupts
// nothing.
bool debug_is_interrupted(void) {
  debugger *g = &g_debugger;
  if (!is_readable()) return false;
  at_arena *a = at_arena_create();
  at_bytes line;
  bool there = a && next_line(a, &line);
  if (!there) hang_up();
  at_arena_destroy(a);
  return g->fd >= 0;
}

// ---- Answers
static bool answer_error(at_status st) {
  at_strbuf b = {0};
  at_json_writer w = {&b, false};
  at_json_begin_object(&w);
  at_json_put_str(&w, "error", at_str_of(at_status_message(st)));
  at_json_end_object(&w);
  bool good = send_line(&b, NULL, 0);
  at_strbuf_free(&b);
  at_status_free(st);
  return good;
}

static bool answer_state(void) {
  at_strbuf b = {0};
  debug_tell_state(&b);
  bool good = send_line(&b, NULL, 0);
  at_strbuf_free(&b);
  return good;
}

// The header, and behind it the elements as bytes.
static bool answer_read(const debug_box *box) {
  at_strbuf b = {0};
  uint8_t *data = NULL;
  size_t bytes = 0;
  at_status st = debug_read_box(box, &b, &data, &bytes);
  bool good = st.err ? answer_error(st) : send_line(&b, data, bytes);
  free(data);
  at_strbuf_free(&b);
  return good;
}

// Takes over the arena.
static bool answer_breaks(const debug_request *r, at_arena *a) {
  debugger *g = &g_debugger;
  at_arena_destroy(g->breaks_arena);
  g->breaks_arena = a;
  g->breaks = r->breaks;
  g->num_breaks = r->num_breaks;
  for (uint32_t i = 0; i < g->num_breaks; i++) {
    debug_break *b = &g->breaks[i];
    if (b->kind == DEBUG_AT_CHANGE) b->digest = debug_digest(&b->box, &b->base);
  }
  at_strbuf b = {0};
  at_strbuf_addz(&b, "{}");
  bool good = send_line(&b, NULL, 0);
  at_strbuf_free(&b);
  return good;
}

// Which core goes on, and how far; the depth of calls that "next" and "finish"
// compare with.
static void let_go(const debug_core *d, const debug_request *r) {
  debugger *g = &g_debugger;
  uint32_t here = d ? d->id : 0;
  g->mode = r->mode;
  g->wanted = r->box.core;
  g->stepped = r->mode == DEBUG_RUN ? 0 : r->box.core ? r->box.core : here;
  g->depth = 0;
  snprintf(g->file, sizeof g->file, "%s", r->file);
  g->first_line = r->first_line;
  g->last_line = r->last_line;
  pthread_mutex_lock(&g->lock);
  for (const debug_core *x = g->first; x; x = x->next)
    if (x->id == g->stepped) g->depth = debug_depth(x->core, x->loc);
  pthread_mutex_unlock(&g->lock);
}

// One request; false: the debugger is gone. *io: memory for it, which it may
// keep (NULL then); *gone: it lets go.
static bool serve(debug_core *d, at_arena **io, bool *gone) {
  at_bytes line;
  debug_request r;
  if (!next_line(*io, &line)) return false;
  at_status st = debug_read_request(line, *io, &r);
  if (st.err) return answer_error(st);
  switch (r.ask) {
    case DEBUG_ASK_BREAKS: {
      at_arena *a = *io;
      *io = NULL;
      return answer_breaks(&r, a);
    }
    case DEBUG_ASK_STATE:
      return answer_state();
    case DEBUG_ASK_READ:
      return answer_read(&r.box);
    case DEBUG_ASK_GO:
      let_go(d, &r);
      *gone = true;
      return true;
    default:
      return true;  // an interrupt that came late
  }
}

// The core stands still until "go" comes, or the connection ends.
void debug_stop(debug_core *d, const char *why, int64_t id, const char *kernel,
                at_status st) {
  debugger *g = &g_debugger;
  if (g->fd < 0) return;
  at_strbuf b = {0};
  debug_tell_stop(d, why, id, kernel, st, &b);
  bool there = send_line(&b, NULL, 0), gone = false;
  at_strbuf_free(&b);
  while (there && !gone) {
    at_arena *a = at_arena_create();
    there = a && serve(d, &a, &gone);
    at_arena_destroy(a);
  }
  if (!there) hang_up();
}
