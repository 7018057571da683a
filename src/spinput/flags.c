#include "spinput/flags.h"

#include <stddef.h>
#include <stdlib.h>
#include <strings.h>

#include "base/log.h"
#include "base/nearest.h"
#include "base/strbuf.h"

// What a flag's text may be.
typedef enum kind { BOOL, COUNT, TEXT, LEVEL, CORES } kind;

static const struct {
  const char *name;
  kind kind;
  size_t at;
  // One row a flag, from flags.def.
} flags[] = {
#define AT_SPINPUT_FLAG(field, name, kind, help) \
  {name, kind, offsetof(at_spinput_flags, field)},
#include "spinput/flags.def"
#undef AT_SPINPUT_FLAG
};

// -1: not in the table.
static int find(at_str name) {
  for (size_t i = 0; i < AT_LEN(flags); i++)
    if (at_str_is(name, flags[i].name)) return (int)i;
  return -1;
}

// Letters by which a name may differ and still be taken for a misspelling.
enum { kSlips = 2 };

// The flag that a name may be a misspelling of; -1: none.
static int nearest(at_str name) {
  int best = -1;
  uint32_t least = kSlips + 1;
  for (size_t i = 0; i < AT_LEN(flags); i++) {
    uint32_t n = at_edits(name, at_str_of(flags[i].name), kSlips);
    if (n < least) least = n, best = (int)i;
  }
  return best;
}

bool at_spinput_flag_is_ours(at_str name) {
  return nearest(name) >= 0 || at_str_starts(name, "xla_sc_") ||
         at_str_starts(name, "xla_sparse_core_") ||
         at_str_starts(name, "tf_xla_");
}

// In any case.
static bool same_word(at_str a, const char *z) {
  return a.len == strlen(z) && !strncasecmp(a.ptr, z, a.len);
}

// true, 1, yes; false, 0, no; in any case.
static bool set_bool(bool *out, at_str v) {
  bool yes = same_word(v, "true") || same_word(v, "1") || same_word(v, "yes");
  bool no = same_word(v, "false") || same_word(v, "0") || same_word(v, "no");
  if (yes || no) *out = yes;
  return yes || no;
}

// Decimal digits only, up to UINT32_MAX.
static bool set_count(uint32_t *out, at_str v) {
  uint64_t n = 0;
  for (size_t i = 0; i < v.len; i++) {
    if (v.ptr[i] < '0' || v.ptr[i] > '9' || n > UINT32_MAX) return false;
    n = n * 10 + (uint64_t)(v.ptr[i] - '0');
  }
  if (!v.len || n > UINT32_MAX) return false;
  *out = (uint32_t)n;
  return true;
}

// False: too long, or with a NUL inside.
static bool set_text(char *out, at_str v) {
  if (v.len >= AT_SPINPUT_FLAG_TEXT || (v.len && memchr(v.ptr, 0, v.len)))
    return false;
  if (v.len) memcpy(out, v.ptr, v.len);
  // The rest too: flags are part of cache keys.
  memset(out + v.len, 0, AT_SPINPUT_FLAG_TEXT - v.len);
  return true;
}

// ---- cores_to_sanitize: [TC, SC_SCS, SC_TILE], sanitizer_mode: LOCAL_ONLY
static void skip(at_str *t, const char *chars) {
  while (t->len && strchr(chars, *t->ptr)) t->ptr++, t->len--;
}
// Up to a blank or a sign of the grammar; may be empty.
static at_str word(at_str *t) {
  skip(t, " \t");
  at_str w = {t->ptr, 0};
  while (t->len && !strchr(" \t:,[]", *t->ptr)) t->ptr++, t->len--, w.len++;
  skip(t, " \t");
  return w;
}
// Takes c, behind blanks.
static bool next_is(at_str *t, char c) {
  skip(t, " \t");
  if (!t->len || *t->ptr != c) return false;
  t->ptr++;
  t->len--;
  return true;
}

// "[TC, SC_TILE]" into bits.
static bool read_cores(at_str *t, uint32_t *cores) {
  static const struct {
    const char *name;
    uint32_t bit;
  } names[] = {{"TC", AT_SPINPUT_CORE_TC},
               {"SC_SCS", AT_SPINPUT_CORE_SC_SCS},
               {"SC_TILE", AT_SPINPUT_CORE_SC_TILE}};
  if (!next_is(t, '[')) return false;
  while (!next_is(t, ']')) {
    at_str w = word(t);
    uint32_t bit = 0;
    for (size_t i = 0; i < AT_LEN(names); i++)
      if (at_str_is(w, names[i].name)) bit = names[i].bit;
    if (!bit) return false;
    *cores |= bit;
    (void)next_is(t, ',');
  }
  return true;
}

// The text form of a protobuf message; its two fields in any order.
static bool set_cores(uint32_t *out, at_str v) {
  uint32_t cores = 0;
  while (v.len) {
    at_str name = word(&v);
    if (!next_is(&v, ':')) return false;
    if (at_str_is(name, "cores_to_sanitize")) {
      if (!read_cores(&v, &cores)) return false;
    } else if (at_str_is(name, "sanitizer_mode")) {
      if (!at_str_is(word(&v), "LOCAL_ONLY")) return false;
    } else {
      return false;
    }
    if (v.len && !next_is(&v, ',')) return false;
  }
  *out = cores;
  return true;
}

// A misspelling is an error with the right name as a hint, as it would be
// without effect otherwise.
at_status at_spinput_flag_set(at_spinput_flags *f, at_str name, at_str value) {
  if (!at_spinput_flag_is_ours(name)) return AT_OK;
  int i = find(name), shown = (int)AT_MIN(name.len, 200u);
  int near = i < 0 ? nearest(name) : i;
  if (near < 0)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "No such compile option: '%.*s'\n"
                   "hint: docs/sparsecore.md lists the SparseCore's flags",
                   shown, name.ptr);
  if (i < 0)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "No such compile option: '%.*s'\nhint: did you mean %s?",
                   shown, name.ptr, flags[near].name);
  // The field that the table names, of the type that the kind says.
  void *at = (char *)f + flags[i].at;
  static const char *const kinds[] = {
      "bool", "int", "text", "level (none, bounds)", "sanitizer configuration"};
  bool ok = false;
  switch (flags[i].kind) {
    case BOOL:
      ok = set_bool(at, value);
      break;
    case COUNT:
      ok = set_count(at, value);
      break;
    case TEXT:
      ok = set_text(at, value);
      break;
    case CORES:
      ok = set_cores(at, value);
      break;
    case LEVEL:
      ok = same_word(value, "bounds") || same_word(value, "none");
      *(bool *)at = same_word(value, "bounds");
      break;
  }
  if (ok) return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "While setting option %.*s, '%.*s' is not a valid %s value.",
                 shown, name.ptr, (int)AT_MIN(value.len, 200u),
                 value.ptr ? value.ptr : "", kinds[flags[i].kind]);
}

// Takes "--name" or "-name", "--name=value" or "--name='a value'" off *args.
// False: what was taken is no flag. INVALID_ARGUMENT: a quote that does not
// end.
static at_status take_flag(at_str *args, at_str *name, at_str *value,
                           bool *is_flag) {
  at_str text = {args->ptr, 0};
  while (args->len && !strchr("= \t\n", *args->ptr))
    args->ptr++, args->len--, text.len++;
  // One dash or two, and a name behind them.
  size_t dashes = 0;
  while (dashes < text.len && dashes < 2 && text.ptr[dashes] == '-') dashes++;
  *is_flag = dashes && text.len > dashes;
  *name = (at_str){text.ptr + dashes, text.len - dashes};
  *value = AT_STR("true");
  if (!args->len || *args->ptr != '=') return AT_OK;
  args->ptr++, args->len--;
  char quote =
      args->len && (*args->ptr == '\'' || *args->ptr == '"') ? *args->ptr : 0;
  if (quote) args->ptr++, args->len--;
  *value = (at_str){args->ptr, 0};
  while (args->len &&
         (quote ? *args->ptr != quote : !strchr(" \t\n", *args->ptr)))
    args->ptr++, args->len--, value->len++;
  if (quote && !args->len)
    return AT_FAIL(AT_INVALID_ARGUMENT, "the value of '%.*s' has no end",
                   (int)AT_MIN(name->len, 200u), name->ptr);
  if (quote) args->ptr++, args->len--;
  return AT_OK;
}

// Once per text.
static void say_malformed(at_str text) {
  at_log_once(AT_LOG_WARNING,
              "LIBTPU_INIT_ARGS: '%.*s' is no flag and is passed over\n"
              "hint: --name=value, without blanks around =; values with blanks "
              "in quotes",
              (int)AT_MIN(text.len, 200u), text.ptr ? text.ptr : "");
}

// Flags of others are collected and named in one line.
at_status at_spinput_flags_read(at_spinput_flags *f, at_str args) {
  at_strbuf others = {0};
  at_status st = AT_OK;
  skip(&args, " \t\n");
  while (at_ok(st) && args.len) {
    at_str name, value, whole = args;
    bool is_flag;
    st = take_flag(&args, &name, &value, &is_flag);
    if (!at_ok(st)) break;
    if (!is_flag) {
      say_malformed((at_str){whole.ptr, whole.len - args.len});
      // A flag of the chip's other parts: named once, with the others.
    } else if (find(name) < 0 && nearest(name) < 0) {
      at_strbuf_addf(&others, " %.*s", (int)AT_MIN(name.len, 200u), name.ptr);
    } else {
      st = at_spinput_flag_set(f, name, value);
    }
    skip(&args, " \t\n");
  }
  if (at_ok(st) && others.len)
    at_log_once(
        AT_LOG_INFO,
        "LIBTPU_INIT_ARGS: flags of the chip's compiler and runtime that "
        "change nothing here:%.*s",
        (int)others.len, others.ptr);
  at_strbuf_free(&others);
  return st;
}

at_status at_spinput_flags_of_process(at_spinput_flags *f) {
  memset(f, 0, sizeof *f);  // padding too: it is part of cache keys
  // Unset is no flags.
  const char *args = getenv("LIBTPU_INIT_ARGS");
  return at_status_prefix(at_spinput_flags_read(f, at_str_of(args)),
                          "LIBTPU_INIT_ARGS");
}
