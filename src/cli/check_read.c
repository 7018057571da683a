// Findings from the runtime's lines. A message reads "what failed\ndetail:
// facts\nhint: what to do\nat: file:line:column (operation, called at ...)".
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/check.h"
#include "cli/cli.h"

// The first row whose word a message has, or whose code: see rule_of.
static const at_check_rule g_rules[] = {
    {"race", "Accesses that nothing orders",
     "A load, store or copy touches memory that another copy, core or chip "
     "still works on. Wait for the copy, or send a signal after the access "
     "and wait for it before the other one."},
    {"deadlock", "Cores that wait for ever",
     "Every core waits for a semaphore that nobody is left to signal. Each "
     "wait needs its signal or copy, of the same amount."},
    {"unbalanced", "Copies and signals that nobody waits for",
     "A semaphore is not zero when the kernel or its scope ends, or a copy "
     "is still under way then. Signals and waits must balance: the chip "
     "gives the semaphore to the next kernel as it is."},
    {"uninitialised", "Reads of memory that nobody wrote",
     "Scratch, outputs and the padding of blocks at the edge hold anything "
     "at first. Write them before they are read, or mask what is padding."},
    {"lost-write", "Writes that never arrive, or are overwritten",
     "An output block is left unwritten, revisited too late, written by "
     "several cores, or an input's block is written, which does not go back."},
    {"bounds", "Accesses out of bounds",
     "An index, an index map, a copy or a semaphore leaves its array. The "
     "chip reads or writes something else there."},
    {"nan", "NaN made of operands without",
     "The operation at the place made NaN of operands that had none, and it "
     "reached a result."},
    {"interpret", "Interpret mode gives another result",
     "The kernel's result differs from that of JAX's interpret mode."},
    {"memory", "More memory than the chip has",
     "VMEM, SMEM, semaphores or HBM do not suffice. Take smaller blocks or "
     "fewer buffers, delete or donate arrays, or shard over more chips."},
    {"endless", "A loop that does not end",
     "A kernel's loops took more turns than ATOLL_KERNEL_TURNS allows."},
    {"limits", "More ids than the SparseCore's limits",
     "A SparseCore call has more ids than the limits that it was compiled "
     "for; the chip drops or mixes up what is over them."},
    {"refused", "Refused by the TPU compiler",
     "The compiler of the target would refuse this program."},
    {"failed", "A compilation or launch failed", "The message says why."},
    {"warning", "A warning of the runtime",
     "Something may not be as meant; the message says what."}};

const at_check_rule *at_check_rules(uint32_t *count) {
  *count = AT_LEN(g_rules);
  return g_rules;
}

// The index of the rule; the last one, `warning`, stands for ids that no rule
// has.
static uint32_t rule_named(const char *id) {
  uint32_t i = 0;
  while (i + 1 < AT_LEN(g_rules) && strcmp(g_rules[i].id, id)) i++;
  return i;
}

// What the checks say, most telling words first.
static const struct {
  const char *words, *rule;
} g_words[] = {{"interpret mode", "interpret"},
               {"deadlock", "deadlock"},
               {"race:", "race"},
               {"never waited for", "unbalanced"},
               {"was never started", "unbalanced"},
               {"has not been waited for", "unbalanced"},
               {"when the kernel ends", "unbalanced"},
               {"signals and waits must balance", "unbalanced"},
               {"semaphore", "unbalanced"},
               {"uninitialised", "uninitialised"},
               {"undefined values", "uninitialised"},
               {"nobody wrote", "uninitialised"},
               {"revisited", "lost-write"},
               {"nobody read", "lost-write"},
               {"never written", "lost-write"},
               {"do not go back", "lost-write"},
               {"what was there is lost", "lost-write"},
               {"has gone back", "lost-write"},
               {"next blocks are fetched", "lost-write"},
               {"would write the same", "lost-write"},
               {"out of bounds", "bounds"},
               {"leaves the array", "bounds"},
               {"is no multiple of", "bounds"},
               {"does not take part", "bounds"},
               {"is NaN", "nan"},
               {"has NaN", "nan"},
               {"Ran out of memory", "memory"},
               {"turns", "endless"},
               {"ids", "limits"}};

// By the stage that the line is of, then by words: those of the title count
// before those of the detail, as a detail may quote another kind. Failed
// compilations are refusals unless they are INTERNAL.
static uint32_t rule_of(const char *stage, const char *code, const char *title,
                        const char *detail) {
  if (!strcmp(stage, "log")) return rule_named("warning");
  bool compiled = !strcmp(stage, "compile");
  for (size_t i = 0; i < AT_LEN(g_words) && !compiled; i++)
    if (strstr(title, g_words[i].words)) return rule_named(g_words[i].rule);
  for (size_t i = 0; i < AT_LEN(g_words) && !compiled; i++)
    if (strstr(detail, g_words[i].words)) return rule_named(g_words[i].rule);
  if (!strcmp(code, "RESOURCE_EXHAUSTED")) return rule_named("memory");
  if (!strcmp(code, "OUT_OF_RANGE")) return rule_named("bounds");
  bool refused = compiled && strcmp(code, "INTERNAL");
  return rule_named(refused ? "refused" : "failed");
}

// ---- Places
// A copy in the arena, with a zero behind it; "" without memory, which the
// arena's status tells at the end.
static const char *text_of(at_arena *a, const char *p, size_t n) {
  char *out = at_arena_alloc(a, n + 1, 1);
  if (!out) return "";
  memcpy(out, p, n);
  out[n] = 0;
  return out;
}

// "file:line:column" or "file:line" at the start of [p, end). Returns what
// follows; NULL: none is there. Columns of the runtime count from 0.
static const char *read_place(at_arena *a, const char *p, const char *end,
                              at_check_place *out) {
  const char *colon = p;
  while (colon < end && !(*colon == ':' && isdigit((unsigned char)colon[1])))
    colon++;
  if (colon >= end || colon == p) return NULL;
  for (const char *c = colon; c > p; c--)
    if (c[-1] == '(') {  // "name (file:line)"
      p = c;
      break;
    }
  char *after;
  *out = (at_check_place){text_of(a, p, (size_t)(colon - p)), 0, 0, ""};
  out->line = (uint32_t)strtoul(colon + 1, &after, 10);
  if (*after == ':' && isdigit((unsigned char)after[1]))
    out->column = (uint32_t)strtoul(after + 1, &after, 10) + 1;
  return after <= end && out->line ? after : NULL;
}

// Those beyond AT_CHECK_PLACES are dropped: nobody reads so deep a stack.
static void add_place(at_check_place *list, uint32_t *n, at_check_place p,
                      const char *what) {
  p.what = what;
  if (*n < AT_CHECK_PLACES) list[(*n)++] = p;
}

// The newline, or the text's end.
static const char *end_of_line(const char *p) { return p + strcspn(p, "\n"); }

// The line after "\nkey: "; "" where there is none.
static const char *part(at_arena *a, const char *message, const char *key) {
  const char *p = strstr(message, key);
  if (!p) return "";
  p += strlen(key);
  return text_of(a, p, (size_t)(end_of_line(p) - p));
}

// The innermost place and who called it.
static void read_stack(at_arena *a, const char *at, at_check_finding *f) {
  const char *p = at, *end = end_of_line(at);
  at_check_place place;
  const char *what = "";
  while (p && (p = read_place(a, p, end, &place))) {
    add_place(f->stack, &f->num_stack, place, what);
    what = "called";
    p = strstr(p, ", called at ");
    if (p) p += strlen(", called at ");
  }
}

// Places inside a sentence: "the copy was started at FILE:LINE:COLUMN (op)".
static void read_related(at_arena *a, const char *text, at_check_finding *f) {
  const char *start = text, *p = text;
  at_check_place place;
  while ((p = strstr(p, " at "))) {
    const char *from = p + 4, *end = from + strcspn(from, " ;\n");
    const char *after = read_place(a, from, end, &place);
    if (after) {
      while (*start == ' ' || *start == ';' || *start == ',') start++;
      add_place(f->related, &f->num_related, place,
                text_of(a, start, (size_t)(p - start)));
      start = after;
      if (*start == ' ' && start[1] == '(') {
        start += strcspn(start, ")");
        start += *start == ')';
      }
    }
    p = AT_MAX(from, start);
  }
}

// ---- Messages
// What stands before "kernel NAME: " says which call it was: a frame.
static const char *read_kernel(at_arena *a, const char *message,
                               at_check_finding *f) {
  const char *p = message, *end = end_of_line(message);
  while ((p = strstr(p, "kernel ")) && p < end && p != message &&
         (p < message + 2 || strncmp(p - 2, ": ", 2)))
    p++;
  bool named = p && p < end;
  const char *name = named ? p + 7 : NULL,
             *colon = named ? strstr(name, ": ") : NULL;
  if (colon && colon < end && !memchr(name, ' ', (size_t)(colon - name))) {
    f->kernel = text_of(a, name, (size_t)(colon - name));
    return colon + 2;
  }
  const char *told = strstr(message, "\ndetail: kernel ");
  if (told) {
    told += strlen("\ndetail: kernel ");
    f->kernel = text_of(a, told, strcspn(told, ",\n"));
  }
  return message;
}

// The place in brackets before the kernel's name: who launched it.
static void read_call(at_arena *a, const char *message, const char *title,
                      at_check_finding *f) {
  const char *open = NULL;
  at_check_place place;
  for (const char *p = message; p + 1 < title; p++)
    if (p[0] == ' ' && p[1] == '(') open = p + 2;
  if (open && read_place(a, open, title, &place))
    add_place(f->stack, &f->num_stack, place, "launched");
}

// Takes a message apart into the finding's fields. Strings are the arena's.
static void read_message(at_arena *a, const char *stage, const char *code,
                         const char *message, at_check_finding *f) {
  *f = (at_check_finding){.kernel = "", .message = message, .count = 1};
  const char *title = read_kernel(a, message, f),
             *at = strstr(message, "\nat: ");
  f->title = text_of(a, title, (size_t)(end_of_line(title) - title));
  f->detail = part(a, message, "\ndetail: ");
  f->hint = part(a, message, "\nhint: ");
  if (at) read_stack(a, at + 5, f);
  if (title != message) read_call(a, message, title, f);
  read_related(a, f->title, f);
  read_related(a, f->detail, f);
  f->rule = rule_of(stage, code, f->title, f->detail);
  // "race: a load ..." says its rule, which reports say before it.
  const char *id = g_rules[f->rule].id;
  size_t n = strlen(id);
  if (!strncmp(f->title, id, n) && !strncmp(f->title + n, ": ", 2))
    f->title += n + 2;
}

// Of the same rule, in the same kernel, at the same innermost place; without a
// place the titles decide.
static bool is_same(const at_check_finding *a, const at_check_finding *b) {
  if (a->rule != b->rule || strcmp(a->kernel, b->kernel)) return false;
  if (!a->num_stack || !b->num_stack)
    return a->num_stack == b->num_stack && !strcmp(a->title, b->title);
  return a->stack[0].line == b->stack[0].line &&
         a->stack[0].column == b->stack[0].column &&
         !strcmp(a->stack[0].file, b->stack[0].file);
}

// One more finding, or one more count of a known one.
static void add(at_check_result *r, const at_check_finding *f) {
  for (uint32_t i = 0; i < r->num; i++)
    if (is_same(&r->findings[i], f)) {
      r->findings[i].count++;
      return;
    }
  r->findings[r->num++] = *f;
  r->errors += !f->warning;
  r->warnings += f->warning;
}

// A line is one object of JSON, as base/finding.h writes it.
static at_status read_line(at_bytes line, at_check_result *r) {
  const at_json *j;
  AT_TRY(at_json_parse(line, r->arena, &j));
  at_str message = at_json_get_str(j, "message", AT_STR("")),
         code = at_json_get_str(j, "code", AT_STR("")),
         stage = at_json_get_str(j, "stage", AT_STR(""));
  at_check_finding f;
  read_message(r->arena, text_of(r->arena, stage.ptr, stage.len),
               text_of(r->arena, code.ptr, code.len),
               text_of(r->arena, message.ptr, message.len), &f);
  f.warning = at_str_is(at_json_get_str(j, "level", AT_STR("")), "warning");
  add(r, &f);
  return at_arena_status(r->arena);
}

// There can be no more findings than lines, so the list is made once.
at_status at_check_read(at_bytes lines, at_check_result *r) {
  size_t most = 0;
  for (size_t i = 0; i < lines.len; i++) most += lines.ptr[i] == '\n';
  AT_TRY_ALLOC(r->findings, at_new(r->arena, at_check_finding, most + 1));
  while (lines.len) {
    const uint8_t *end = memchr(lines.ptr, '\n', lines.len);
    if (!end) break;  // the process ended while it wrote
    size_t n = (size_t)(end - lines.ptr);
    AT_TRY(read_line((at_bytes){lines.ptr, n}, r));
    lines.ptr += n + 1;
    lines.len -= n + 1;
  }
  return AT_OK;
}

// ---- Sources
// Reads the file anew for each line; files are small and findings few. The
// caller owns nothing: the line is the arena's.
const char *at_check_source(const at_check_result *r, const char *file,
                            uint32_t line) {
  at_bytes text;
  if (!*file || at_code_take(at_cli_read_file(file, &text))) return NULL;
  const uint8_t *p = text.ptr, *end = text.ptr + text.len;
  for (uint32_t i = 1; p && i < line; i++) {
    p = memchr(p, '\n', (size_t)(end - p));
    if (p) p++;
  }
  const char *out = NULL;
  if (p && p < end) {
    const uint8_t *stop = memchr(p, '\n', (size_t)(end - p));
    out = text_of(r->arena, (const char *)p, (size_t)((stop ? stop : end) - p));
  }
  free((void *)text.ptr);
  return out;
}
