// What people ask of a pod that is there: status, top, down; and its logs.
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/config.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/pod_internal.h"
#include "compile/compile.h"
#include "control/token.h"
#include "control/tool.h"

at_status at_pod_token(at_token *out) {
  char file[4000];
  at_cache_file("pod.token", file, sizeof file);
  return at_control_token(file, out, NULL);
}

static at_status which_pod(int *argc, char **argv, at_tool_options *o) {
  *o = (at_tool_options){.address = at_config_text(AT_CONFIG_POD),
                         .source = "ATOLL_POD"};
  if (at_cli_option(argc, argv, "--pod=", &o->address)) o->source = "--pod";
  AT_TRY(at_cli_no_more_options(*argc, argv, "pod"));
  if (!*o->address)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "which pod?\nhint: --pod=HOST:PORT, or ATOLL_POD");
  return at_pod_token(&o->token);
}

static void print_status(const at_json *s) {
  at_str target = at_json_get_str(s, "target", AT_STR("?"));
  at_str state = at_json_get_str(s, "state", AT_STR("?"));
  printf("%.*s, %lld chips, %.*s\n", (int)target.len, target.ptr,
         (long long)at_json_get_int(s, "num_chips", 0), (int)state.len,
         state.ptr);
  const at_json *hosts = at_json_get(s, "hosts");
  for (size_t i = 0; hosts && i < hosts->len; i++) {
    const at_json *h = &hosts->items[i];
    at_str is = at_json_get_str(h, "state", AT_STR("?"));
    at_str at = at_json_get_str(h, "address", AT_STR("?"));
    at_str why = at_json_get_str(h, "why", AT_STR(""));
    printf("  host %-4lld %-8.*s process %-8lld %lld chips  %.*s  %.*s\n",
           (long long)at_json_get_int(h, "host", 0), (int)is.len, is.ptr,
           (long long)at_json_get_int(h, "pid", 0),
           (long long)at_json_get_int(h, "chips", 0), (int)at.len, at.ptr,
           (int)why.len, why.ptr);
  }
  const at_json *clients = at_json_get(s, "clients");
  for (size_t i = 0; clients && i < clients->len; i++) {
    const at_json *c = &clients->items[i];
    at_str name = at_json_get_str(c, "name", AT_STR("?"));
    printf(
        "  client %-2lld process %-8lld %lld arrays, %lld programs, %lld "
        "launches  %.*s\n",
        (long long)at_json_get_int(c, "client", 0),
        (long long)at_json_get_int(c, "pid", 0),
        (long long)at_json_get_int(c, "arrays", 0),
        (long long)at_json_get_int(c, "programs", 0),
        (long long)at_json_get_int(c, "launches", 0), (int)name.len, name.ptr);
  }
}

static at_status print_text(const at_strbuf *text) {
  at_arena *a = at_arena_create();
  const at_json *s = NULL;
  at_status st =
      at_json_parse((at_bytes){(const uint8_t *)text->ptr, text->len}, a, &s);
  if (s) print_status(s);
  at_arena_destroy(a);
  return st;
}

static at_status show(const at_tool_options *o, bool json, bool clear) {
  at_strbuf text = {0};
  at_status st = at_tool_ask(o, AT_MSG_STATUS, &text);
  if (!st.err) st = at_strbuf_status(&text);
  if (!st.err && clear) fputs("\033[H\033[J", stdout);
  if (!st.err && json) puts(text.ptr);
  if (!st.err && !json) st = print_text(&text);
  fflush(stdout);
  at_strbuf_free(&text);
  return st;
}

at_status at_pod_status(int argc, char **argv) {
  bool json = at_cli_option(&argc, argv, "--json", NULL);
  at_tool_options o;
  AT_TRY(which_pod(&argc, argv, &o));
  return show(&o, json, false);
}

at_status at_pod_top(int argc, char **argv) {
  const char *every = "1";
  bool json = at_cli_option(&argc, argv, "--json", NULL);
  at_cli_option(&argc, argv, "--every=", &every);
  at_tool_options o;
  AT_TRY(which_pod(&argc, argv, &o));
  bool clear = !json && isatty(1);
  for (;;) {
    AT_TRY(show(&o, json, clear));
    if (!json && !clear) puts("");
    usleep((useconds_t)(AT_MIN(strtod(every, NULL), 3600.0) * 1e6));
  }
}

at_status at_pod_down(int argc, char **argv) {
  at_tool_options o;
  AT_TRY(which_pod(&argc, argv, &o));
  return at_tool_ask(&o, AT_MSG_STOP, NULL);
}

// ---- Named objects
static at_status print_objects(const at_strbuf *text) {
  at_arena *a = at_arena_create();
  const at_json *s = NULL;
  at_status st =
      at_json_parse((at_bytes){(const uint8_t *)text->ptr, text->len}, a, &s);
  const at_json *objects = st.err ? NULL : at_json_get(s, "objects");
  for (size_t i = 0; objects && i < objects->len; i++) {
    const at_json *o = &objects->items[i];
    at_str name = at_json_get_str(o, "name", AT_STR("?"));
    at_str label = at_json_get_str(o, "label", AT_STR(""));
    at_str owner = at_json_get_str(o, "owner", AT_STR("?"));
    at_str is = at_json_get_str(o, "state", AT_STR("?"));
    printf(
        "%.*s  %.*s  %lld arrays, %lld bytes, %lld hosts  process %lld: "
        "%.*s%s%.*s\n",
        (int)name.len, name.ptr, (int)is.len, is.ptr,
        (long long)at_json_get_int(o, "arrays", 0),
        (long long)at_json_get_int(o, "bytes", 0),
        (long long)at_json_get_int(o, "hosts", 0),
        (long long)at_json_get_int(o, "pid", 0), (int)owner.len, owner.ptr,
        label.len ? "  " : "", (int)label.len, label.ptr);
  }
  at_arena_destroy(a);
  return st;
}

at_status at_pod_objects(int argc, char **argv) {
  const char *name = NULL;
  at_tool_options o;
  at_strbuf text = {0};
  at_cli_option(&argc, argv, "--delete=", &name);
  AT_TRY(which_pod(&argc, argv, &o));
  if (name) {
    at_bytes b = {(const uint8_t *)name, strlen(name)};
    if (!at_message_name_is_good(b))
      return AT_FAIL(AT_INVALID_ARGUMENT, "--delete=%s is no object's name",
                     name);
    return at_tool_ask_about(&o, AT_MSG_ERASE, at_str_of(name), NULL);
  }
  at_status st = at_tool_ask(&o, AT_MSG_STATUS, &text);
  if (!st.err) st = at_strbuf_status(&text);
  if (!st.err) st = print_objects(&text);
  at_strbuf_free(&text);
  return st;
}

// ---- Logs
// The last lines of a file, each with the name of the host.
static at_status print_log(const char *path, const char *name, size_t lines) {
  at_bytes b;
  AT_TRY(at_cli_read_file(path, &b));
  const char *text = (const char *)b.ptr, *end = text + b.len, *p = end;
  for (size_t n = 0; p > text; p--)
    if (p < end && p[-1] == '\n' && ++n == lines) break;
  while (p < end) {
    const char *stop = memchr(p, '\n', (size_t)(end - p));
    if (!stop) stop = end;
    printf("%s: %.*s\n", name, (int)(stop - p), p);
    p = stop + 1;
  }
  free((void *)b.ptr);
  return AT_OK;
}

at_status at_pod_logs(int argc, char **argv) {
  const char *dir = NULL, *host = NULL, *lines = "20";
  at_cli_option(&argc, argv, "--log-dir=", &dir);
  at_cli_option(&argc, argv, "--place=", &host);
  at_cli_option(&argc, argv, "--lines=", &lines);
  AT_TRY(at_cli_no_more_options(argc, argv, "pod"));
  if (!dir)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "which logs?\nhint: --log-dir=DIR, as of `atoll pod up`; "
                   "without it hosts write to its stderr");
  size_t n = strtoul(lines, NULL, 10), found = 0;
  for (unsigned i = 0; i < AT_POD_MOST_HOSTS; i++) {
    char path[4200], name[32];
    if (host && strtoul(host, NULL, 10) != i) continue;
    snprintf(path, sizeof path, "%.4000s/host-%u.log", dir, i);
    snprintf(name, sizeof name, "host %u", i);
    if (access(path, R_OK)) continue;
    found++;
    AT_TRY(print_log(path, name, n));
  }
  return found ? AT_OK
               : AT_FAIL(AT_NOT_FOUND, "no host-%s.log in %s",
                         host ? host : "N", dir);
}
