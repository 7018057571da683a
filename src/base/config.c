// The table of knobs and the readers of their values. config_check.c judges the
// values; the readers take the default where one is not allowed, because
// whoever begins something has called at_config_check before.
#include "base/config.h"

#include <stdlib.h>

#include "base/config_internal.h"
#include "base/json.h"

// What a row of the table says of its kind, as members of at_config_info.
#define AT_KIND_FLAG .kind = AT_CONFIG_FLAG
#define AT_KIND_WORD .kind = AT_CONFIG_WORD
#define AT_KIND_WORDS .kind = AT_CONFIG_WORDS
#define AT_KIND_COUNT(low, high, things) \
  .kind = AT_CONFIG_COUNT_OF, .least = low, .most = high, .unit = things
#define AT_KIND_SIZE(low, high) \
  .kind = AT_CONFIG_SIZE, .least = low, .most = high, .unit = "bytes"
#define AT_KIND_FOLDER .kind = AT_CONFIG_FOLDER
#define AT_KIND_SCRATCH .kind = AT_CONFIG_SCRATCH
#define AT_KIND_FILE .kind = AT_CONFIG_FILE
#define AT_KIND_ADDRESSES .kind = AT_CONFIG_ADDRESSES
#define AT_KIND_ADDRESS .kind = AT_CONFIG_ADDRESS
#define AT_KIND_TARGET .kind = AT_CONFIG_TARGET_TEXT

// By at_config.
static const at_config_info g_rows[AT_CONFIG_COUNT] = {
#define AT_CONFIG(Id, name, fallback, kind, good, bad, help) \
  [AT_CONFIG_##Id] = {name, fallback, help, good, bad, AT_KIND_##kind},
#define AT_CONFIG_WORD(...)
#include "base/config.def"
#undef AT_CONFIG
#undef AT_CONFIG_WORD
};

#define AT_CONFIG(Id, name, fallback, kind, good, bad, help) \
  _Static_assert(sizeof(good "") > 1 && sizeof(bad "") > 1,  \
                 "examples of good and bad values of " name  \
                 " are for its test");
#define AT_CONFIG_WORD(...)
#include "base/config.def"
#undef AT_CONFIG
#undef AT_CONFIG_WORD

static const struct {
  at_config knob;
  const char *name, *help;
} g_words[AT_WORD_COUNT] = {
#define AT_CONFIG(...)
#define AT_CONFIG_WORD(Knob, Id, name, help) {AT_CONFIG_##Knob, name, help},
#include "base/config.def"
#undef AT_CONFIG
#undef AT_CONFIG_WORD
};

// NULL: none.
static char *g_override[AT_CONFIG_COUNT];  // owned

const at_config_info *at_config_info_of(at_config id) {
  AT_ASSERT((unsigned)id < AT_CONFIG_COUNT);
  return &g_rows[id];
}

// Read anew each time: tests and clients change the environment.
const char *at_config_text(at_config id) {
  const char *v = g_override[id] ? g_override[id] : getenv(g_rows[id].name);
  return v && *v ? v : g_rows[id].fallback;
}

// ---- Values
at_word_range at_config_words_of(at_config id) {
  at_word_range r = {0, 0};
  for (uint32_t i = 0; i < AT_WORD_COUNT; i++)
    if (g_words[i].knob == id)
      r = (at_word_range){r.count ? r.first : i, r.count + 1};
  return r;
}

const char *at_config_word_name(uint32_t word) {
  AT_ASSERT(word < AT_WORD_COUNT);
  return g_words[word].name;
}

// In either case of letters, but not shortened.
bool at_config_find_word(at_config id, at_str v, uint32_t *out) {
  at_word_range r = at_config_words_of(id);
  for (uint32_t i = r.first; i < r.first + r.count; i++)
    if (at_edits(v, at_str_of(g_words[i].name), 0) == 0) return *out = i, true;
  return false;
}

// Commas and blanks separate; empty words are passed over.
bool at_config_next_word(at_str *rest, at_str *out) {
  while (rest->len && strchr(", ", *rest->ptr)) rest->ptr++, rest->len--;
  *out = (at_str){rest->ptr, 0};
  while (rest->len && !strchr(", ", *rest->ptr))
    rest->ptr++, rest->len--, out->len++;
  return out->len > 0;
}

// The first four words mean yes.
bool at_config_parse_flag(const char *v, bool *out) {
  static const char *const words[] = {"1", "on",  "true",  "yes",
                                      "0", "off", "false", "no"};
  for (size_t i = 0; i < AT_LEN(words); i++)
    if (at_edits(at_str_of(v), at_str_of(words[i]), 0) == 0)
      return *out = i < 4, true;
  return false;
}

// Digits, then for sizes one of K, M, G, T; no sign, no blanks, nothing behind
// it.
bool at_config_parse_number(const at_config_info *row, const char *v,
                            uint64_t *out) {
  static const char units[] = "KMGT";
  uint64_t n = 0;
  if (*v < '0' || *v > '9') return false;
  for (; *v >= '0' && *v <= '9'; v++)
    if (__builtin_mul_overflow(n, 10u, &n) ||
        __builtin_add_overflow(n, (uint64_t)(*v - '0'), &n))
      return false;
  const char *unit = *v ? strchr(units, *v & ~32) : NULL;
  if (unit && row->kind == AT_CONFIG_SIZE) {
    if (__builtin_mul_overflow(n, 1ull << (10 * (unit - units + 1)), &n))
      return false;
    v++;
  }
  if (*v || n < row->least || n > row->most) return false;
  return *out = n, true;
}

// A value that is not allowed counts as the default; at_config_check has said
// so.
bool at_config_flag(at_config id) {
  AT_ASSERT(g_rows[id].kind == AT_CONFIG_FLAG);
  bool b = false;
  if (!at_config_parse_flag(at_config_text(id), &b))
    at_config_parse_flag(g_rows[id].fallback, &b);
  return b;
}

// As at_config_flag.
uint64_t at_config_uint(at_config id) {
  AT_ASSERT(g_rows[id].kind == AT_CONFIG_COUNT_OF ||
            g_rows[id].kind == AT_CONFIG_SIZE);
  uint64_t n = 0;
  if (!at_config_parse_number(&g_rows[id], at_config_text(id), &n))
    at_config_parse_number(&g_rows[id], g_rows[id].fallback, &n);
  return n;
}

// As at_config_flag.
at_word at_config_word(at_config id) {
  uint32_t w = 0;
  if (!at_config_find_word(id, at_str_of(at_config_text(id)), &w))
    at_config_find_word(id, at_str_of(g_rows[id].fallback), &w);
  return (at_word)w;
}

// `all` stands in front of a knob's other words in the table and holds for
// those behind it.
bool at_config_has(at_word word) {
  at_config id = g_words[word].knob;
  at_str rest = at_str_of(at_config_text(id)), name;
  uint32_t w;
  while (at_config_next_word(&rest, &name))
    if (at_config_find_word(id, name, &w) &&
        (w == word || (word < w && !strcmp(g_words[w].name, "all"))))
      return true;
  return false;
}

// Linear in the number of words.
bool at_config_has_any(at_word first, at_word last) {
  for (at_word w = first; w <= last; w++)
    if (at_config_has(w)) return true;
  return false;
}

// The old override is freed: texts that were borrowed from it end here.
at_status at_config_set(at_config id, const char *value) {
  char *copy = NULL;
  if (value) {
    AT_TRY(at_config_check_value(id, value, false));
    copy = strdup(value);
    if (!copy) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a knob");
  }
  free(g_override[id]);
  g_override[id] = copy;
  return AT_OK;
}

// ---- The table for people and programs
void at_config_allowed(at_config id, at_strbuf *out) {
  const at_config_info *row = &g_rows[id];
  at_word_range r = at_config_words_of(id);
  switch (row->kind) {
    case AT_CONFIG_FLAG:
      at_strbuf_addz(out, "1, on, true, yes, 0, off, false or no");
      break;
    case AT_CONFIG_WORD:
    case AT_CONFIG_WORDS:
      at_strbuf_addz(out, row->kind == AT_CONFIG_WORD
                              ? "one of "
                              : "a comma-separated list of ");
      for (uint32_t i = 0; i < r.count; i++)
        at_strbuf_addf(out, "%s%s", i ? ", " : "", g_words[r.first + i].name);
      break;
    case AT_CONFIG_COUNT_OF:
    case AT_CONFIG_SIZE:
      at_strbuf_addf(out, "a whole number of %s, %llu to %llu", row->unit,
                     (unsigned long long)row->least,
                     (unsigned long long)row->most);
      if (row->kind == AT_CONFIG_SIZE)
        at_strbuf_addz(out, "; K, M, G or T behind it count in 1,024s");
      break;
    case AT_CONFIG_FOLDER:
      at_strbuf_addz(out, "a folder, made where it is not there");
      break;
    case AT_CONFIG_SCRATCH:
      at_strbuf_addz(out, "a folder to write to, made where it is not there");
      break;
    case AT_CONFIG_FILE:
      at_strbuf_addz(out, "a file that is there and can be read");
      break;
    case AT_CONFIG_ADDRESSES:
      at_strbuf_addz(out, "host:port, comma-separated, ports 1 to 65535");
      break;
    case AT_CONFIG_ADDRESS:
      at_strbuf_addz(out, "host:port, port 0 to 65535");
      break;
    case AT_CONFIG_TARGET_TEXT:
      at_strbuf_addz(out, "[slices*]chip[:XxYxZ] or [slices*]chip-N");
      break;
  }
}

// Words with their meaning follow the help.
static void doc_row(at_config id, at_strbuf *out) {
  const at_config_info *row = &g_rows[id];
  at_word_range r = at_config_words_of(id);
  const char *tick = *row->fallback ? "`" : "";
  at_strbuf_addf(out, "| `%s` | %s%s%s | ", row->name, tick, row->fallback,
                 tick);
  at_config_allowed(id, out);
  at_strbuf_addf(out, " | %s", row->help);
  for (uint32_t i = 0; i < r.count; i++)
    at_strbuf_addf(out, "%s `%s`: %s", i ? ";" : ".", g_words[r.first + i].name,
                   g_words[r.first + i].help);
  at_strbuf_addz(out, " |\n");
}

// A row per knob, and what holds for all of them.
void at_config_doc(at_strbuf *out) {
  at_strbuf_addz(
      out,
      "# Environment variables\n\n"
      "Generated from `src/base/config.def`.\n\n"
      "An empty value is the default. A value that is not allowed is an error "
      "wherever Atoll begins (a client, a\ncompilation, a command): it names "
      "the variable, the value and what is allowed, and nothing runs. Words "
      "count\nin either case. A folder that is not there is made, with those "
      "above it; a file has to be there. A variable\n`ATOLL_...` that is not "
      "listed here is a warning, once, that names the nearest one. `atoll "
      "config` says what holds now.\n\n"
      "The PJRT client option `target` takes the place of `ATOLL_TARGET`, for "
      "devices and compilations alike; the first\nclient settles it for the "
      "process, and a later one that asks for another is refused.\n\n"
      "| variable | default | allowed | what it does |\n|---|---|---|---|\n");
  for (int i = 0; i < AT_CONFIG_COUNT; i++) doc_row((at_config)i, out);
  at_strbuf_addz(
      out,
      "\n## Flags of XLA and libtpu\n\n"
      "`LIBTPU_INIT_ARGS`: Atoll acts on the SparseCore's flags (the table in "
      "`docs/sparsecore.md`). A value that one of\nthem does not take, a name "
      "that misses one by two letters and a quote that does not end are "
      "errors. "
      "Other flags\nof the chip's compiler and runtime change nothing here; "
      "`ATOLL_LOG=info` lists them, once. What is no flag\n(`name=value` "
      "without dashes, blanks around `=`) is a warning and passed over.\n\n"
      "`XLA_FLAGS`: read by jaxlib, which ends the process at an unknown one. "
      "Atoll itself reads\n`--xla_gpu_analytical_latency_estimator_options`, "
      "in "
      "`atoll estimate` and `atoll cost` for GPUs; an unknown key in it\nis an "
      "error.\n");
}

// An array of objects, in the table's order.
void at_config_json(at_strbuf *out) {
  at_json_writer w = {out, false};
  at_strbuf allowed = {0};
  at_json_begin_array(&w);
  for (int i = 0; i < AT_CONFIG_COUNT; i++) {
    const at_config_info *row = &g_rows[i];
    allowed.len = 0;
    at_config_allowed((at_config)i, &allowed);
    const struct {
      at_str key, value;
    } members[] = {{AT_STR("name"), at_str_of(row->name)},
                   {AT_STR("value"), at_str_of(at_config_text((at_config)i))},
                   {AT_STR("default"), at_str_of(row->fallback)},
                   {AT_STR("allowed"), at_strbuf_str(&allowed)},
                   {AT_STR("good"), at_str_of(row->good)},
                   {AT_STR("bad"), at_str_of(row->bad)},
                   {AT_STR("help"), at_str_of(row->help)}};
    at_json_begin_object(&w);
    for (size_t k = 0; k < AT_LEN(members); k++)
      at_json_key(&w, members[k].key), at_json_str(&w, members[k].value);
    at_json_end_object(&w);
  }
  at_json_end_array(&w);
  out->failed |= allowed.failed;
  at_strbuf_free(&allowed);
}
