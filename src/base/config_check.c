// Whether the knobs hold what the table allows, and what else the environment
// has that was meant as a knob.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config_internal.h"
#include "base/folder.h"
#include "base/log.h"

enum {
  kShown = 80,
  kMostTarget = 255,
  kMostAddresses = 1 << 16,
  kMostAddress = 280
};

extern char **environ;

// `why` is what is wrong with the value, if it is not just its kind.
static at_status bad_value(at_config id, const char *v, const char *why) {
  const at_config_info *row = at_config_info_of(id);
  at_strbuf b = {0};
  at_config_allowed(id, &b);
  size_t n = strlen(v);
  at_status st =
      AT_FAIL(AT_INVALID_ARGUMENT,
              "%s=%.*s%s: %s\nhint: %s takes %s; empty is the default%s%s",
              row->name, kShown, v, n > kShown ? "..." : "", why, row->name,
              b.ptr ? b.ptr : "other values", *row->fallback ? ", " : "",
              row->fallback);
  at_strbuf_free(&b);
  return st;
}

// ---- Words
static at_status bad_word(at_config id, const char *v, at_str word) {
  const char *names[AT_WORD_COUNT];
  at_word_range r = at_config_words_of(id);
  for (uint32_t i = 0; i < r.count; i++)
    names[i] = at_config_word_name(r.first + i);
  const char *near = at_nearest(word, names, r.count);
  char why[160];
  snprintf(why, sizeof why, "`%.*s` is none of its words%s%s%s",
           (int)AT_MIN(word.len, (size_t)40), word.ptr,
           near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
  return bad_value(id, v, why);
}

// one: the whole value is a word; else a list of them.
static at_status check_words(at_config id, const char *v, bool one) {
  uint32_t w;
  at_str rest = at_str_of(v), word = rest;
  if (one)
    return at_config_find_word(id, rest, &w) ? AT_OK : bad_word(id, v, word);
  while (at_config_next_word(&rest, &word))
    if (!at_config_find_word(id, word, &w)) return bad_word(id, v, word);
  return AT_OK;
}

// ---- Files and folders
static at_status bad_place(at_config id, const char *v, const char *what,
                           int error) {
  char why[160];
  snprintf(why, sizeof why, "%s: %s", what, strerror(error));
  return bad_value(id, v, why);
}

// Folders of the cache are private to their user; those for people's files are
// not.
static at_status check_folder(at_config id, const char *v, bool written) {
  int error = at_make_folders(v, written ? 0777 : 0700);
  if (error) return bad_place(id, v, "no such folder can be made", error);
  if (access(v, written ? W_OK | X_OK : X_OK))
    return bad_place(
        id, v,
        written ? "cannot write to the folder" : "cannot enter the folder",
        errno);
  return AT_OK;
}

// A regular file that this process may read.
static at_status check_file(at_config id, const char *v) {
  struct stat st;
  if (stat(v, &st)) return bad_place(id, v, "cannot be opened", errno);
  if (!S_ISREG(st.st_mode)) return bad_value(id, v, "not a file");
  if (access(v, R_OK)) return bad_place(id, v, "cannot be read", errno);
  return AT_OK;
}

// ---- Other kinds
static bool is_address(at_str a, uint32_t least_port) {
  size_t colon = a.len;
  while (colon && a.ptr[colon - 1] != ':') colon--;
  uint32_t port = 0;
  for (size_t i = colon; i < a.len; i++) {
    if (a.ptr[i] < '0' || a.ptr[i] > '9' || port > 65535) return false;
    port = port * 10 + (uint32_t)(a.ptr[i] - '0');
  }
  return colon > 1 && colon < a.len && port >= least_port && port <= 65535;
}

// `one`: port 0 is allowed, which asks the system for one.
static at_status check_addresses(at_config id, const char *v, bool one) {
  for (const char *p = v;; p++) {
    at_str a = {p, one ? strlen(p) : strcspn(p, ",")};
    if (!is_address(a, !one) || memchr(a.ptr, ',', a.len)) {
      char why[120];
      snprintf(why, sizeof why, "`%.*s` is not host:port",
               (int)AT_MIN(a.len, (size_t)60), a.ptr);
      return bad_value(id, v, why);
    }
    p += a.len;
    if (!*p) return AT_OK;
  }
}

// Values over it are refused before anything looks at them.
static size_t longest(at_config_kind kind) {
  return kind == AT_CONFIG_TARGET_TEXT ? kMostTarget
         : kind == AT_CONFIG_ADDRESSES ? kMostAddresses
         : kind == AT_CONFIG_ADDRESS   ? kMostAddress
                                       : PATH_MAX - 1;
}

// An empty value is the default and always allowed. Without `places` nothing of
// the file system is touched.
at_status at_config_check_value(at_config id, const char *v, bool places) {
  const at_config_info *row = at_config_info_of(id);
  bool flag;
  uint64_t n;
  if (!*v) return AT_OK;
  if (strlen(v) > longest(row->kind)) return bad_value(id, v, "too long");
  switch (row->kind) {
    case AT_CONFIG_FLAG:
      return at_config_parse_flag(v, &flag) ? AT_OK
                                            : bad_value(id, v, "not a flag");
    case AT_CONFIG_WORD:
    case AT_CONFIG_WORDS:
      return check_words(id, v, row->kind == AT_CONFIG_WORD);
    case AT_CONFIG_COUNT_OF:
    case AT_CONFIG_SIZE:
      return at_config_parse_number(row, v, &n)
                 ? AT_OK
                 : bad_value(id, v, "not such a number");
    case AT_CONFIG_FOLDER:
    case AT_CONFIG_SCRATCH:
      return places ? check_folder(id, v, row->kind == AT_CONFIG_SCRATCH)
                    : AT_OK;
    case AT_CONFIG_FILE:
      return places ? check_file(id, v) : AT_OK;
    case AT_CONFIG_ADDRESSES:
    case AT_CONFIG_ADDRESS:
      return check_addresses(id, v, row->kind == AT_CONFIG_ADDRESS);
    case AT_CONFIG_TARGET_TEXT:
      break;
  }
  return AT_OK;
}

// ---- The environment
// Exactly, as the environment has it.
static bool known(at_str name) {
  for (int i = 0; i < AT_CONFIG_COUNT; i++)
    if (at_str_is(name, at_config_info_of((at_config)i)->name)) return true;
  return false;
}

// ATOLL_ is ours; another name only counts when it is almost one of the
// table's.
static void look_at_unknown(at_str name) {
  const char *names[AT_CONFIG_COUNT], *near = NULL;
  for (int i = 0; i < AT_CONFIG_COUNT; i++) {
    names[i] = at_config_info_of((at_config)i)->name;
    if (at_edits(name, at_str_of(names[i]), 2) <= 2) near = names[i];
  }
  bool ours = at_str_starts(name, "ATOLL_");
  if ((!ours && !near) || known(name)) return;
  if (!near) near = at_nearest(name, names, AT_CONFIG_COUNT);
  at_log_once(AT_LOG_WARNING,
              "the environment has %.*s, which is no knob of Atoll%s%s%s",
              (int)AT_MIN(name.len, (size_t)100), name.ptr,
              near ? ": did you mean " : " (docs/config.md lists them)",
              near ? near : "", near ? "?" : "");
}

// Unknown names first: a misspelt knob explains a value that is missing.
at_status at_config_check(void) {
  for (char **e = environ; e && *e; e++)
    look_at_unknown((at_str){*e, strcspn(*e, "=")});
  for (int i = 0; i < AT_CONFIG_COUNT; i++)
    AT_TRY(at_config_check_value((at_config)i, at_config_text((at_config)i),
                                 true));
  return AT_OK;
}
