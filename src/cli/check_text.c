// Findings for people, as JSON, and for tools that read JUnit's XML.
#include <stdio.h>

#include "base/page.h"
#include "cli/check.h"

static const at_check_rule *rule_of(const at_check_finding *f) {
  uint32_t n;
  return at_check_rules(&n) + f->rule;
}

// ---- Text
// "file:line:column"; a column of 0 is not known.
static void put_where(const at_check_place *p, at_strbuf *out) {
  at_strbuf_addf(out, "%s:%u", p->file, p->line);
  if (p->column) at_strbuf_addf(out, ":%u", p->column);
}

// The line with its number, and a caret under the column. Tabs are kept in the
// caret's line, so that it stands where it should.
static void put_source(const at_check_result *r, const at_check_place *p,
                       bool caret, at_strbuf *out) {
  const char *line = at_check_source(r, p->file, p->line);
  if (!line) return;
  at_strbuf_addf(out, "%6u | %s\n", p->line, line);
  if (!caret || !p->column || p->column > strlen(line)) return;
  at_strbuf_addz(out, "       | ");
  for (uint32_t i = 0; i + 1 < p->column; i++)
    at_strbuf_addc(out, line[i] == '\t' ? '\t' : ' ');
  at_strbuf_addz(out, "^\n");
}

// As a compiler prints it: the first line says the kind, then places with their
// sources, then details that no place shows.
static void put_finding(const at_check_result *r, const at_check_finding *f,
                        at_strbuf *out) {
  at_strbuf_addf(out, "%s[%s]: %s\n", f->warning ? "warning" : "error",
                 rule_of(f)->id, f->title);
  for (uint32_t i = 0; i < f->num_stack; i++) {
    const at_check_place *p = &f->stack[i];
    at_strbuf_addf(out, "  %s ", i ? *p->what ? p->what : "at" : "-->");
    if (i) at_strbuf_addz(out, "at ");
    put_where(p, out);
    if (!i && *f->kernel) at_strbuf_addf(out, " in kernel %s", f->kernel);
    at_strbuf_addc(out, '\n');
    put_source(r, p, !i, out);
  }
  if (!f->num_stack && *f->kernel)
    at_strbuf_addf(out, "  in kernel %s\n", f->kernel);
  for (uint32_t i = 0; i < f->num_related; i++) {
    at_strbuf_addf(out, "  %s at ", f->related[i].what);
    put_where(&f->related[i], out);
    at_strbuf_addc(out, '\n');
    put_source(r, &f->related[i], false, out);
  }
  if (*f->detail && !f->num_related)
    at_strbuf_addf(out, "  detail: %s\n", f->detail);
  if (*f->hint) at_strbuf_addf(out, "  hint: %s\n", f->hint);
  if (f->count > 1) at_strbuf_addf(out, "  found %u times\n", f->count);
  at_strbuf_addc(out, '\n');
}

// Findings, then one line that counts them, then how the program ended, if not
// well.
void at_check_text(const at_check_result *r, at_strbuf *out) {
  for (uint32_t i = 0; i < r->num; i++) put_finding(r, &r->findings[i], out);
  at_strbuf_addf(out, "%s: %u error%s, %u warning%s\n", r->program, r->errors,
                 r->errors == 1 ? "" : "s", r->warnings,
                 r->warnings == 1 ? "" : "s");
  if (r->status > 128)
    at_strbuf_addf(out, "the program was ended by signal %d\n",
                   r->status - 128);
  else if (r->status)
    at_strbuf_addf(out, "the program ended with status %d\n", r->status);
}

// ---- JSON
static void put_place(at_json_writer *w, const at_check_place *p) {
  at_json_begin_object(w);
  at_json_put_str(w, "file", at_str_of(p->file));
  at_json_put_uint(w, "line", p->line);
  if (p->column) at_json_put_uint(w, "column", p->column);
  at_json_put_str(w, "what", at_str_of(p->what));
  at_json_end_object(w);
}

// A list of places; `what` says what happened there.
static void put_places(at_json_writer *w, const char *key,
                       const at_check_place *p, uint32_t n) {
  at_json_key(w, at_str_of(key));
  at_json_begin_array(w);
  for (uint32_t i = 0; i < n; i++) put_place(w, p + i);
  at_json_end_array(w);
}

// One object on one line. Its members are part of what users' tools read.
void at_check_json(const at_check_result *r, at_strbuf *out) {
  at_json_writer w = {out, false};
  at_json_begin_object(&w);
  at_json_put_str(&w, "program", at_str_of(r->program));
  at_json_put_uint(&w, "status", (uint64_t)r->status);
  at_json_key(&w, AT_STR("seconds"));
  at_json_num(&w, r->seconds);
  at_json_put_uint(&w, "errors", r->errors);
  at_json_put_uint(&w, "warnings", r->warnings);
  at_json_key(&w, AT_STR("findings"));
  at_json_begin_array(&w);
  for (uint32_t i = 0; i < r->num; i++) {
    const at_check_finding *f = &r->findings[i];
    at_json_begin_object(&w);
    at_json_put_str(&w, "rule", at_str_of(rule_of(f)->id));
    at_json_put_str(&w, "level", at_str_of(f->warning ? "warning" : "error"));
    at_json_put_str(&w, "kernel", at_str_of(f->kernel));
    at_json_put_str(&w, "title", at_str_of(f->title));
    at_json_put_str(&w, "message", at_str_of(f->message));
    at_json_put_uint(&w, "count", f->count);
    put_places(&w, "stack", f->stack, f->num_stack);
    put_places(&w, "related", f->related, f->num_related);
    at_json_end_object(&w);
  }
  at_json_end_array(&w);
  at_json_end_object(&w);
  at_strbuf_addc(out, '\n');
}

// ---- JUnit
// XML has no place for most control characters.
static void put_xml(at_strbuf *out, const char *text) {
  char one[2] = {0};
  for (; *text; text++) {
    one[0] = *text;
    if (*text == '"')
      at_strbuf_addz(out, "&quot;");
    else if ((unsigned char)*text < ' ' && *text != '\n' && *text != '\t')
      at_strbuf_addc(out, '?');
    else
      at_page_text(out, one);
  }
}

// Opens a test case and leaves its tag open for the caller to end.
static void put_case(const at_check_result *r, const char *class_name,
                     const char *name, double seconds, at_strbuf *out) {
  at_strbuf_addz(out, "    <testcase classname=\"");
  put_xml(out, *class_name ? class_name : r->program);
  at_strbuf_addz(out, "\" name=\"");
  put_xml(out, name);
  at_strbuf_addf(out, "\" time=\"%.3f\"", seconds);
}

// A finding is a test that failed. Warnings are tests that passed with output,
// unless --strict.
static void put_failure(const at_check_result *r, const at_check_finding *f,
                        at_strbuf *out) {
  at_strbuf name = {0};
  at_strbuf_addz(&name, rule_of(f)->id);
  if (f->num_stack) {
    at_strbuf_addz(&name, " at ");
    put_where(&f->stack[0], &name);
  }
  put_case(r, f->kernel, name.ptr ? name.ptr : "", 0, out);
  at_strbuf_free(&name);
  if (f->warning && !r->strict) {
    at_strbuf_addz(out, ">\n      <system-out>");
    put_xml(out, f->message);
    at_strbuf_addz(out, "</system-out>\n    </testcase>\n");
    return;
  }
  at_strbuf_addf(out, ">\n      <failure type=\"%s\" message=\"",
                 rule_of(f)->id);
  put_xml(out, f->title);
  at_strbuf_addz(out, "\">");
  put_xml(out, f->message);
  at_strbuf_addz(out, "</failure>\n    </testcase>\n");
}

// One suite: that the program runs to its end is a test, too, so that a clean
// run has one.
void at_check_junit(const at_check_result *r, at_strbuf *out) {
  bool broken = r->status && !r->errors;
  at_strbuf_addf(
      out,
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
      "  <testsuite name=\"atoll check\" tests=\"%u\" failures=\"%u\" "
      "errors=\"%d\" time=\"%.3f\">\n",
      r->num + 1, r->errors + (r->strict ? r->warnings : 0), broken,
      r->seconds);
  put_case(r, "", "runs to its end", r->seconds, out);
  if (broken)
    at_strbuf_addf(out,
                   ">\n      <error type=\"status\" message=\"ended with "
                   "status %d\"/>\n    </testcase>\n",
                   r->status);
  else
    at_strbuf_addz(out, "/>\n");
  for (uint32_t i = 0; i < r->num; i++) put_failure(r, &r->findings[i], out);
  at_strbuf_addz(out, "  </testsuite>\n</testsuites>\n");
}
