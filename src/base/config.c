#include "base/config.h"

#include <stdlib.h>

static const at_config_info g_rows[AT_CONFIG_COUNT] = {
#define AT_CONFIG(Id, name, fallback, type, help) \
  [AT_CONFIG_##Id] = {name, fallback, help, AT_CONFIG_##type},
#include "base/config.def"
#undef AT_CONFIG
};

static char g_override[AT_CONFIG_COUNT][256];
static bool g_overridden[AT_CONFIG_COUNT];

extern char **environ;

const at_config_info *at_config_info_of(at_config id) { return &g_rows[id]; }

const char *at_config_text(at_config id) {
  if (g_overridden[id]) return g_override[id];
  const char *v = getenv(g_rows[id].name);
  return v && *v ? v : g_rows[id].fallback;
}

static bool parse_flag(const char *v, bool *out) {
  static const char *const yes[] = {"1", "on", "true", "yes"};
  static const char *const no[] = {"0", "off", "false", "no"};
  for (size_t i = 0; i < AT_LEN(yes); i++) {
    if (!strcmp(v, yes[i])) return *out = true, true;
    if (!strcmp(v, no[i])) return *out = false, true;
  }
  return false;
}

static bool parse_uint(const char *v, uint64_t *out) {
  uint64_t n = 0;
  if (!*v) return false;
  for (; *v; v++) {
    if (*v < '0' || *v > '9') return false;
    if (__builtin_mul_overflow(n, 10u, &n) ||
        __builtin_add_overflow(n, (uint64_t)(*v - '0'), &n))
      return false;
  }
  return *out = n, true;
}

static bool parses(at_config_type t, const char *v) {
  bool flag;
  uint64_t n;
  switch (t) {
    case AT_CONFIG_FLAG:
      return parse_flag(v, &flag);
    case AT_CONFIG_UINT:
      return parse_uint(v, &n);
    case AT_CONFIG_TEXT:
      break;
  }
  return true;
}

bool at_config_flag(at_config id) {
  bool b = false;
  if (!parse_flag(at_config_text(id), &b)) parse_flag(g_rows[id].fallback, &b);
  return b;
}

uint64_t at_config_uint(at_config id) {
  uint64_t n = 0;
  if (!parse_uint(at_config_text(id), &n)) parse_uint(g_rows[id].fallback, &n);
  return n;
}

static const char *type_hint(at_config_type t) {
  return t == AT_CONFIG_FLAG   ? "1, on, true, yes, 0, off, false or no"
         : t == AT_CONFIG_UINT ? "a whole number"
                               : "text";
}

static at_status bad_value(at_config id, const char *v) {
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "%s=%s does not parse\nhint: give %s (%s)", g_rows[id].name, v,
                 type_hint(g_rows[id].type), g_rows[id].help);
}

at_status at_config_set(at_config id, const char *value) {
  if (!value) return g_overridden[id] = false, AT_OK;
  size_t n = strlen(value);
  if (n >= sizeof g_override[id])
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s: value of %zu bytes, at most %zu",
                   g_rows[id].name, n, sizeof g_override[id] - 1);
  if (!parses(g_rows[id].type, value)) return bad_value(id, value);
  memcpy(g_override[id], value, n + 1);
  g_overridden[id] = true;
  return AT_OK;
}

static bool known(const char *entry) {
  for (int i = 0; i < AT_CONFIG_COUNT; i++) {
    size_t n = strlen(g_rows[i].name);
    if (!strncmp(entry, g_rows[i].name, n) && entry[n] == '=') return true;
  }
  return false;
}

at_status at_config_check(void) {
  for (int i = 0; i < AT_CONFIG_COUNT; i++) {
    const char *v = at_config_text((at_config)i);
    if (!parses(g_rows[i].type, v)) return bad_value((at_config)i, v);
  }
  for (char **e = environ; e && *e; e++)
    if (!strncmp(*e, "ATOLL_", 6) && !known(*e))
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "unknown variable in the environment: %.*s\n"
                     "hint: the known ones are listed in docs/config.md",
                     (int)strcspn(*e, "="), *e);
  return AT_OK;
}

void at_config_doc(at_strbuf *out) {
  at_strbuf_addz(out,
                 "# Environment variables\n\n"
                 "Generated from `src/base/config.def`.\n\n"
                 "| variable | default | what it does |\n|---|---|---|\n");
  for (int i = 0; i < AT_CONFIG_COUNT; i++)
    at_strbuf_addf(out, "| `%s` | %s%s%s | %s |\n", g_rows[i].name,
                   *g_rows[i].fallback ? "`" : "", g_rows[i].fallback,
                   *g_rows[i].fallback ? "`" : "", g_rows[i].help);
}
