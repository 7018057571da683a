// The disk cache of compiled programs: where it is, what it holds, clearing it.
#include "base/json.h"
#include "base/size_text.h"
#include "cli/cli.h"
#include "compile/compile.h"

// One line that scripts can read. Where the folder cannot be told, the status
// says why.
static at_status print_path(void) {
  char folder[4000];
  AT_TRY(at_cache_folder(folder, sizeof folder));
  puts(folder);
  return AT_OK;
}

// Bytes are plain numbers; a cache without a limit has limit 0.
static at_status print_json(const at_cache_state *s) {
  at_strbuf b = {0};
  at_json_writer w = {&b, false};
  at_json_begin_object(&w);
  at_json_key(&w, AT_STR("path")), at_json_str(&w, at_str_of(s->folder));
  at_json_key(&w, AT_STR("entries")), at_json_uint(&w, s->entries);
  at_json_key(&w, AT_STR("bytes")), at_json_uint(&w, s->bytes);
  at_json_key(&w, AT_STR("limit"));
  at_json_uint(&w, s->limit_bytes == UINT64_MAX ? 0 : s->limit_bytes);
  at_json_end_object(&w);
  at_status st = at_strbuf_status(&b);
  if (at_ok(st)) puts(b.ptr);
  at_strbuf_free(&b);
  return st;
}

// What is in the folder now, and how much of its limit that is.
static at_status print_stats(bool json) {
  at_cache_state s;
  AT_TRY(at_cache_look(&s));
  if (json) return print_json(&s);
  char bytes[AT_SIZE_TEXT], limit[AT_SIZE_TEXT];
  bool endless = s.limit_bytes == UINT64_MAX;
  printf("%s: %llu programs, %s%s%s\n", s.folder, (unsigned long long)s.entries,
         at_size_text((double)s.bytes, bytes), endless ? ", no limit" : " of ",
         endless ? "" : at_size_text((double)s.limit_bytes, limit));
  return AT_OK;
}

// FAILED_PRECONDITION: a program could not be removed.
static at_status clear(void) {
  uint64_t entries;
  AT_TRY(at_cache_clear(&entries));
  printf("%llu programs removed\n", (unsigned long long)entries);
  return AT_OK;
}

// Without a word it is `stats`; --json is for that word alone.
at_status at_cli_cache(int argc, char **argv) {
  bool json = at_cli_option(&argc, argv, "--json", NULL);
  AT_TRY(at_cli_no_more_options(argc, argv, "cache"));
  const char *what = argc > 1 ? argv[1] : "stats";
  if (argc > 2 || (json && strcmp(what, "stats")))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "takes one word\nhint: atoll cache --help");
  if (!strcmp(what, "path")) return print_path();
  if (!strcmp(what, "stats")) return print_stats(json);
  if (!strcmp(what, "clear")) return clear();
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "unknown word '%s'\nhint: path, stats or clear", what);
}
