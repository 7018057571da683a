// Findings as SARIF 2.1.0, for code scanning services and editors.
#include <stdio.h>
#include <unistd.h>

#include "cli/check.h"

// The report that is being written.
typedef struct sarif {
  at_json_writer w;
  const at_check_result *r;
  char here[4096];  // working folder with '/' behind it
} sarif;

// A member that is a string.
static void text(sarif *s, const char *key, const char *value) {
  at_json_put_str(&s->w, key, at_str_of(value));
}

// Opens an object that is a member; begin_list opens an array.
static void begin(sarif *s, const char *key) {
  at_json_key(&s->w, at_str_of(key));
  at_json_begin_object(&s->w);
}

// Whoever opens it closes it by the writer.
static void begin_list(sarif *s, const char *key) {
  at_json_key(&s->w, at_str_of(key));
  at_json_begin_array(&s->w);
}

// SARIF's messages are objects with a member "text".
static void put_message(sarif *s, const char *key, const char *value) {
  begin(s, key);
  text(s, "text", value);
  at_json_end_object(&s->w);
}

// All rules, also those without findings: services show them by their index.
static void rules(sarif *s) {
  uint32_t n;
  const at_check_rule *rule = at_check_rules(&n);
  begin_list(s, "rules");
  for (uint32_t i = 0; i < n; i++, rule++) {
    bool warns = !strcmp(rule->id, "warning");
    at_json_begin_object(&s->w);
    text(s, "id", rule->id);
    text(s, "name", rule->id);
    put_message(s, "shortDescription", rule->title);
    put_message(s, "fullDescription", rule->help);
    put_message(s, "help", rule->help);
    begin(s, "defaultConfiguration");
    text(s, "level", warns ? "warning" : "error");
    at_json_end_object(&s->w);
    at_json_end_object(&s->w);
  }
  at_json_end_array(&s->w);
}

// Files below the working folder are named from there, as services want it.
static void put_file(sarif *s, const char *file) {
  at_strbuf b = {0};
  size_t n = strlen(s->here);
  if (n && !strncmp(file, s->here, n)) file += n;
  if (*file == '/') at_strbuf_addz(&b, "file://");
  for (const char *p = file; *p; p++) {
    bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                 (*p >= '0' && *p <= '9') || strchr("/-_.~", *p);
    if (plain)
      at_strbuf_addc(&b, *p);
    else
      at_strbuf_addf(&b, "%%%02X", (unsigned char)*p);
  }
  begin(s, "artifactLocation");
  text(s, "uri", b.ptr ? b.ptr : "");
  if (*file != '/') text(s, "uriBaseId", "%SRCROOT%");
  at_json_end_object(&s->w);
  at_strbuf_free(&b);
}

// The members of a location.
static void put_physical(sarif *s, const at_check_place *p) {
  begin(s, "physicalLocation");
  put_file(s, p->file);
  begin(s, "region");
  at_json_put_uint(&s->w, "startLine", p->line);
  if (p->column) at_json_put_uint(&s->w, "startColumn", p->column);
  const char *line = at_check_source(s->r, p->file, p->line);
  if (line) put_message(s, "snippet", line);
  at_json_end_object(&s->w);
  at_json_end_object(&s->w);
}

// The innermost place, and the kernel as a logical location. SARIF wants the
// list even if it is empty.
static void put_locations(sarif *s, const at_check_finding *f) {
  begin_list(s, "locations");
  if (f->num_stack || *f->kernel) {
    at_json_begin_object(&s->w);
    if (f->num_stack) put_physical(s, &f->stack[0]);
    if (*f->kernel) {
      begin_list(s, "logicalLocations");
      at_json_begin_object(&s->w);
      text(s, "name", f->kernel);
      text(s, "kind", "function");
      at_json_end_object(&s->w);
      at_json_end_array(&s->w);
    }
    at_json_end_object(&s->w);
  }
  at_json_end_array(&s->w);
}

// Places that have to do with the finding: where a copy was started, and so on.
static void put_related(sarif *s, const at_check_finding *f) {
  if (!f->num_related) return;
  begin_list(s, "relatedLocations");
  for (uint32_t i = 0; i < f->num_related; i++) {
    at_json_begin_object(&s->w);
    at_json_put_uint(&s->w, "id", i + 1);
    put_physical(s, &f->related[i]);
    put_message(s, "message", f->related[i].what);
    at_json_end_object(&s->w);
  }
  at_json_end_array(&s->w);
}

// The calls that led there.
static void put_stack(sarif *s, const at_check_finding *f) {
  if (!f->num_stack) return;
  begin_list(s, "stacks");
  at_json_begin_object(&s->w);
  put_message(s, "message", "innermost call first");
  begin_list(s, "frames");
  for (uint32_t i = 0; i < f->num_stack; i++) {
    at_json_begin_object(&s->w);
    begin(s, "location");
    put_physical(s, &f->stack[i]);
    if (*f->stack[i].what) put_message(s, "message", f->stack[i].what);
    at_json_end_object(&s->w);
    at_json_end_object(&s->w);
  }
  at_json_end_array(&s->w);
  at_json_end_object(&s->w);
  at_json_end_array(&s->w);
}

// One finding.
static void put_result(sarif *s, const at_check_finding *f) {
  uint32_t n;
  const at_check_rule *rule = at_check_rules(&n) + f->rule;
  at_json_begin_object(&s->w);
  text(s, "ruleId", rule->id);
  at_json_put_uint(&s->w, "ruleIndex", f->rule);
  text(s, "level", f->warning ? "warning" : "error");
  put_message(s, "message", f->message);
  put_locations(s, f);
  put_related(s, f);
  put_stack(s, f);
  at_json_put_uint(&s->w, "occurrenceCount", f->count);
  at_json_end_object(&s->w);
}

// executionSuccessful is false where the program failed without a finding that
// would explain it.
static void put_invocation(sarif *s) {
  begin_list(s, "invocations");
  at_json_begin_object(&s->w);
  at_json_key(&s->w, AT_STR("executionSuccessful"));
  at_json_bool(&s->w, !s->r->status || s->r->errors);
  at_json_put_uint(&s->w, "exitCode", (uint64_t)s->r->status);
  at_json_end_object(&s->w);
  at_json_end_array(&s->w);
}

// One run with one tool. The working folder is what relative names are relative
// to.
void at_check_sarif(const at_check_result *r, at_strbuf *out) {
  sarif s = {.w = {out, false}, .r = r};
  if (getcwd(s.here, sizeof s.here - 1)) strcat(s.here, "/");
  at_json_begin_object(&s.w);
  text(&s, "$schema",
       "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/"
       "sarif-schema-2.1.0.json");
  text(&s, "version", "2.1.0");
  begin_list(&s, "runs");
  at_json_begin_object(&s.w);
  begin(&s, "tool");
  begin(&s, "driver");
  text(&s, "name", "atoll check");
  text(&s, "version", AT_VERSION);
  rules(&s);
  at_json_end_object(&s.w);
  at_json_end_object(&s.w);
  put_invocation(&s);
  text(&s, "columnKind", "unicodeCodePoints");
  begin_list(&s, "results");
  for (uint32_t i = 0; i < r->num; i++) put_result(&s, &r->findings[i]);
  at_json_end_array(&s.w);
  at_json_end_object(&s.w);
  at_json_end_array(&s.w);
  at_json_end_object(&s.w);
  at_strbuf_addc(out, '\n');
}
