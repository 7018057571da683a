// Which pod is meant, the end of one, and the logs of its hosts.
#include <stdlib.h>
#include <unistd.h>

#include "base/config.h"
#include "cli/cli.h"
#include "cli/pod_internal.h"
#include "compile/compile.h"
#include "control/token.h"
#include "control/tool.h"

// The token of ATOLL_POD_TOKEN_FILE, or of this user on this machine.
at_status at_pod_token(at_token *out) {
  char file[4000];
  at_cache_file("pod.token", file, sizeof file);
  return at_control_token(file, out, NULL);
}

// --pod wins over ATOLL_POD; o borrows either. The token is read, too, as every
// question needs it.
at_status at_pod_which(int *argc, char **argv, at_tool_options *o) {
  *o = (at_tool_options){.address = at_config_text(AT_CONFIG_POD),
                         .source = "ATOLL_POD"};
  if (at_cli_option(argc, argv, "--pod=", &o->address)) o->source = "--pod";
  AT_TRY(at_cli_no_more_options(*argc, argv, "pod"));
  if (!*o->address)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "which pod?\nhint: --pod=HOST:PORT, or ATOLL_POD");
  return at_pod_token(&o->token);
}

// The controller answers and then ends, with its hosts.
at_status at_pod_down(int argc, char **argv) {
  at_tool_options o;
  AT_TRY(at_pod_which(&argc, argv, &o));
  return at_tool_ask(&o, AT_MSG_STOP, (at_bytes){0}, NULL);
}

// ---- Named objects
// A line for each named object.
static void print_objects(const at_json *status) {
  const at_json *objects = at_json_get(status, "objects");
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
}

// Lists them, or deletes one for good.
at_status at_pod_objects(int argc, char **argv) {
  const char *name = NULL;
  at_tool_options o;
  at_cli_option(&argc, argv, "--delete=", &name);
  AT_TRY(at_pod_which(&argc, argv, &o));
  if (name) {
    at_bytes b = {(const uint8_t *)name, strlen(name)};
    if (!at_message_name_is_good(b))
      return AT_FAIL(AT_INVALID_ARGUMENT, "--delete=%s is no object's name",
                     name);
    return at_tool_ask(&o, AT_MSG_ERASE, b, NULL);
  }
  at_arena *a = at_arena_create();
  if (!a) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory");
  const at_json *s;
  at_status st = at_pod_ask_status(&o, 0, a, &s);
  if (!st.err) print_objects(s);
  at_arena_destroy(a);
  return st;
}

// ---- Logs
// The last lines of a file, each with the name of the host.
static at_status print_log(const char *path, const char *name, size_t lines) {
  at_bytes b;
  AT_TRY(at_cli_read_file(path, &b));
  const char *text = (const char *)b.ptr, *end = text + b.len, *p = end;
  for (size_t n = 0; lines && p > text; p--)
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

// Files of --log-dir that are there, one after another, whether or not the pod
// still is.
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
