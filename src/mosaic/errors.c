// Where operations stand in the user's program, and errors that say so.
#include <stdarg.h>
#include <stdio.h>
#include "mosaic/mosaic_internal.h"

// Does the name end in "get/get", or "scope/get/scope/get"? Such a step is a
// function of its own, traced where it stood first.
static bool names_twice(const char *name) {
  size_t len = strlen(name);
  for (const char *at = strchr(name, '/'); at; at = strchr(at + 1, '/')) {
    size_t before = (size_t)(at - name), n = len - before - 1;
    if (before >= n && !strncmp(at - n, at + 1, n) &&
        (before == n || at[-(ptrdiff_t)n - 1] == '/'))
      return n > 0;
  }
  return false;
}

// caller: where that frame was called, NULL if nobody says.
static const at_mloc *source_of(const at_mloc *l, const char **what,
                                const at_mloc **caller) {
  bool twice = false;
  *caller = NULL;
  for (int depth = 0; l && depth < 1000; depth++) {
    if (l->kind == AT_MLOC_FILE) return l;
    if (l->kind == AT_MLOC_NAME) {
      size_t n = strlen(l->text);
      // JAX names steps "get:" and scopes "a/b"; only steps say something.
      if (n > 1 && l->text[n - 1] == ':' && !**what) *what = l->text;
      twice = names_twice(l->text);
      l = l->child;
    } else if (l->kind == AT_MLOC_CALLSITE) {
      // The callee is the innermost frame, but for a step that is traced once:
      // there it is where that was first, and the caller where it stands now.
      bool stale = twice && l->caller;
      if (!stale && !*caller) *caller = l->caller;
      l = stale ? l->caller : l->child;
      twice = false;
    } else if (l->kind == AT_MLOC_FUSED && l->num_locs) {
      l = l->locs[0];
    } else {
      return NULL;
    }
  }
  return NULL;
}

// Line and column are 0 where the file is unknown.
at_mosaic_place at_mosaic_place_of(const at_mloc *loc) {
  at_mosaic_place p = {.file = "", .what = ""};
  const at_mloc *f = source_of(loc, &p.what, &p.caller);
  if (f) {
    p.file = f->text;
    p.line = f->line;
    p.column = f->column;
  }
  return p;
}

// Only frames with a file are written.
void at_mosaic_callers_put(at_strbuf *b, const at_mloc *loc) {
  enum { kFrames = 4 };
  at_mosaic_place p = at_mosaic_place_of(loc);
  for (int i = 0; i < kFrames && p.caller; i++) {
    p = at_mosaic_place_of(p.caller);
    if (*p.file)
      at_strbuf_addf(b, ", called at %s:%u:%u", p.file, p.line, p.column);
  }
}

// What JAX makes by itself, the copies of its pipelines, has no place: the last
// operation before it, or around it, that has one.
static const at_mop *placed_near(const at_mop *op) {
  while (op && op->block && !*at_mosaic_place_of(op->loc).file) {
    const at_mblock *b = op->block;
    uint32_t i = 0;
    while (i < b->num_ops && b->ops[i] != op) i++;
    const at_mop *before = NULL;
    while (i-- > 0 && !before)
      if (*at_mosaic_place_of(b->ops[i]->loc).file) before = b->ops[i];
    op = before ? before : b->region ? b->region->op : NULL;
  }
  return op;
}

// `"tpu.matmul" : (vector<8x128xf32>, ...) -> (...)`.
void at_mosaic_op_put(at_strbuf *b, const at_mop *op) {
  at_strbuf_addf(b, "\"%s\" : (", op->name);
  for (uint32_t i = 0; i < op->num_operands; i++) {
    if (i) at_strbuf_addz(b, ", ");
    at_mtype_print(b, op->operands[i]->type);
  }
  at_strbuf_addz(b, ") -> (");
  for (uint32_t i = 0; i < op->num_results; i++) {
    if (i) at_strbuf_addz(b, ", ");
    at_mtype_print(b, op->results[i].type);
  }
  at_strbuf_addz(b, ")");
}

// The message is cut at 1,023 bytes.
at_status at_mosaic_fail(const at_mosaic_kernel *k, const at_mop *op,
                         at_code code, const char *fmt, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (!op) return AT_FAIL(code, "kernel %s: %s", k->name, text);
  const at_mop *near = placed_near(op);
  at_mosaic_place p = at_mosaic_place_of(near ? near->loc : NULL);
  at_strbuf b = {0};
  at_strbuf_addf(&b, "kernel %s: %s\nat: ", k->name, text);
  if (*p.file)
    at_strbuf_addf(&b, "%s%s:%u:%u (%s)", near == op ? "" : "near ", p.file,
                   p.line, p.column, op->name);
  else
    at_strbuf_addf(&b, "an unknown place (%s)", op->name);
  if (code == AT_UNIMPLEMENTED) {
    at_strbuf_addz(&b, "\ndetail: the operation is ");
    at_mosaic_op_put(&b, op);
  }
  at_status s = AT_FAIL(code, "%s", b.failed ? text : b.ptr);
  at_strbuf_free(&b);
  return s;
}
