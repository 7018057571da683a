// A command's usage text is its table of options: "--name" is a flag,
// "--name=X" takes a value, and X says which: N and BYTES whole numbers, S a
// number, a|b one of these words, anything else a text that the command judges.
#include <stdlib.h>

#include "base/nearest.h"
#include "cli/cli.h"

static bool is_name(char c) { return c == '-' || (c >= 'a' && c <= 'z'); }

// Whatever begins with two dashes in the text is an option; the first place of
// each counts.
size_t at_cli_options_of(const char *usage, at_cli_shown *out) {
  size_t n = 0;
  for (const char *p = strstr(usage, "--"); p; p = strstr(p, "--")) {
    at_cli_shown o = {.value = AT_STR("")};
    size_t len = 0;
    while (is_name(p[len])) len++;
    snprintf(o.name, sizeof o.name, "%.*s", (int)len, p);
    p += len;
    if (*p == '=') o.value = (at_str){p + 1, strcspn(p + 1, " \n])")};
    bool known = false;
    for (size_t i = 0; i < n; i++) known |= !strcmp(out[i].name, o.name);
    if (!known && len > 2 && n < AT_CLI_OPTIONS) out[n++] = o;
  }
  return n;
}

// INVALID_ARGUMENT: the value is not of the kind that the usage shows.
static at_status check_value(const at_cli_shown *o, const char *v) {
  char *end;
  // Capital letters in such a list stand for kinds of values, and then anything
  // may follow.
  bool words = memchr(o->value.ptr, '|', o->value.len) != NULL;
  bool count = at_str_is(o->value, "N") || at_str_is(o->value, "BYTES");
  if (count &&
      (*v < '0' || *v > '9' || (strtoull(v, &end, 10), *end) || strlen(v) > 18))
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s=%.80s is not a whole number",
                   o->name, v);
  if (at_str_is(o->value, "S") && !(strtod(v, &end) > 0 && !*end))
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s=%.80s is not a number above 0",
                   o->name, v);
  if (!words || *o->value.ptr < 'a' || *o->value.ptr > 'z') return AT_OK;
  for (const char *p = o->value.ptr, *stop = p + o->value.len; p < stop; p++) {
    size_t len = strcspn(p, "| \n])");
    if (at_str_is((at_str){p, len}, v)) return AT_OK;
    p += len;
  }
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "%s=%.80s is none of its words\nhint: %.*s", o->name, v,
                 (int)o->value.len, o->value.ptr);
}

// With the option whose name is nearest.
static at_status unknown(const char *arg, size_t len,
                         const at_cli_shown *options, size_t n,
                         const char *command) {
  const char *names[AT_CLI_OPTIONS];
  for (size_t i = 0; i < n; i++) names[i] = options[i].name;
  const char *near = at_nearest((at_str){arg, len}, names, n);
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "unknown option %.80s\nhint: %s%s%satoll %s --help", arg,
                 near ? "did you mean " : "", near ? near : "",
                 near ? "? See " : "", command);
}

// Nothing is taken out of argv. What stands behind "--" belongs to somebody
// else.
at_status at_cli_check_options(const char *command, const char *usage, int argc,
                               char **argv) {
  at_cli_shown options[AT_CLI_OPTIONS];
  size_t n = at_cli_options_of(usage, options);
  for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
    if (argv[i][0] != '-' || !argv[i][1]) continue;
    size_t len = strcspn(argv[i], "="), k = 0;
    while (k < n && !at_str_is((at_str){argv[i], len}, options[k].name)) k++;
    if (k == n) return unknown(argv[i], len, options, n, command);
    const at_cli_shown *o = &options[k];
    const char *value = argv[i][len] ? argv[i] + len + 1 : NULL;
    if (!o->value.len && value)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "%s takes no value\nhint: atoll %s --help", o->name,
                     command);
    if (!o->value.len) continue;
    if (!value && i + 1 < argc && strncmp(argv[i + 1], "--", 2))
      value = argv[++i];
    if (!value || !*value)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "%s needs a value\nhint: %s=%.*s; atoll %s --help",
                     o->name, o->name, (int)o->value.len, o->value.ptr,
                     command);
    AT_TRY(check_value(o, value));
  }
  return AT_OK;
}
