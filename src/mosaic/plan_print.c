// A plan as text: the operations in order, each with what the passes say of it
// and of its results.
#include <stdio.h>

#include "base/cpu.h"
#include "mosaic/plan_internal.h"

enum { MAX_FACTS = 512 };

typedef struct printer {
  const at_mplan *p;
  at_strbuf *out;
  at_map names;    // at_mvalue * -> 1 + its number
  uint32_t shown;  // passes, by their index in `passes`
  uint32_t depth;
  bool any;  // something is said of this operation already
  bool failed;
} printer;

// ---- lines
// Values are numbered when they are first printed.
static uint32_t number_of(printer *x, const at_mvalue *v) {
  void **n = at_map_put_ptr(&x->names, v);
  if (n && !*n) *n = (void *)(uintptr_t)x->names.len;
  x->failed |= !n;
  return n ? (uint32_t)(uintptr_t)*n - 1 : 0;
}

static void put_value(printer *x, const at_mvalue *v) {
  at_strbuf_addf(x->out, "%%%u", number_of(x, v));
}

// One thing that is said, behind the operation.
__attribute__((format(printf, 2, 3))) static void say(printer *x,
                                                      const char *fmt, ...) {
  char text[MAX_FACTS];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  at_strbuf_addf(x->out, "%s%s", x->any ? "; " : "  // ", text);
  x->any = true;
}

// "writes 3 5", or "any root".
static void say_roots(printer *x, const char *what, uint64_t roots) {
  char text[MAX_FACTS];
  int n = snprintf(text, sizeof text, "%s", what);
  for (uint32_t k = 0; k < 64; k++)
    if (roots >> k & 1)
      n += snprintf(text + n, sizeof text - (size_t)n, " %u", k);
  if (roots == ~0ull)
    say(x, "%s any root", what);
  else
    say(x, "%s", text);
}

// ---- what each pass says of a value
static void say_uses(printer *x, const at_mvalue *v, const at_mplan_fact *f) {
  say(x, "%u use%s", f->out.uses, f->out.uses == 1 ? "" : "s");
  if (f->products)
    say(x, "%u product%s", f->products, f->products == 1 ? "" : "s");
}

// What each pass says of a value or an operation; nothing where it has its
// default.
static void say_costs(printer *x, const at_mvalue *v, const at_mplan_fact *f) {
  if (!at_mosaic_is_vector(v)) return;
  say(x, "cost %.6g", f->out.cost);
  if (f->out.deep) say(x, "deep");
}

// kept: in memory. "where it is used": computed anew by each user.
static void say_sinks(printer *x, const at_mvalue *v, const at_mplan_fact *f) {
  if (!at_mosaic_is_vector(v)) return;
  if (f->out.kept)
    say(x, "kept");
  else if (f->many)
    say(x, "where it is used");
  else if (f->sink)
    say(x, "for %s", f->sink->name);
  if (f->out.spread) say(x, "spread over lanes");
}

static void say_choices(printer *x, const at_mvalue *v,
                        const at_mplan_fact *f) {
  if (f->out.uses && !f->out.counts) say(x, "may be dropped");
}

static void say_memory(printer *x, const at_mvalue *v, const at_mplan_fact *f) {
  if (f->out.root == AT_MPLAN_ANY_ROOT)
    say(x, "any root");
  else if (f->out.root)
    say(x, "root %u", f->out.root);
  if (f->packed) say(x, "packed");
}

static void say_pages(printer *x, const at_mvalue *v, const at_mplan_fact *f) {
  if (f->out.pages) say(x, "pages");
  if (f->out.feeds_product) say(x, "feeds a product");
}

// ---- and of an operation
static void say_written(printer *x, const at_mop *op, const at_mplan_op *f) {
  if (f->writes) say_roots(x, "writes", f->writes);
  if (f->allocates) say_roots(x, "allocates", f->allocates);
}

static void say_sums(printer *x, const at_mop *op, const at_mplan_op *f) {
  if (f->left_out) say(x, "left out");
  if (f->start)
    say(x, "begins where %%%u%s", number_of(x, f->start->operands[0]),
        f->may_wait ? ", product may wait" : "");
  if (f->takes) say(x, "takes sum %%%u", number_of(x, f->takes));
}

static void say_run(printer *x, const at_mop *op, const at_mplan_op *f) {
  const at_mplan_run *r = f->run;
  if (!r) return;
  say(x, "%u operations in %lld rows of %lld, %lld a turn", r->end - r->begin,
      (long long)r->rows, (long long)r->columns, (long long)r->step);
  if (r->num_products) say(x, "%u products", r->num_products);
}

static const struct {
  const char *name;
  void (*of_value)(printer *x, const at_mvalue *v, const at_mplan_fact *f);
  void (*of_op)(printer *x, const at_mop *op, const at_mplan_op *f);
} passes[] = {
    {"uses", say_uses, NULL},
    {"costs", say_costs, NULL},
    {"sinks", say_sinks, NULL},
    {"choices", say_choices, NULL},
    {"memory", say_memory, say_written},
    {"pages", say_pages, NULL},
    {"sums", NULL, say_sums},
    {"rows", NULL, say_run},
};
enum { ROWS = 7 };

static bool shows(const printer *x, size_t pass) {
  return x->shown >> pass & 1;
}

// Only passes that were asked for.
static void say_of_value(printer *x, const at_mvalue *v) {
  void **f = at_map_find_ptr(&x->p->values, v);
  static const at_mplan_fact none;
  for (size_t i = 0; i < AT_LEN(passes); i++)
    if (shows(x, i) && passes[i].of_value)
      passes[i].of_value(x, v, f ? *f : &none);
}

// ---- the walk
static void put_block(printer *x, const at_mblock *b);

static void indent(printer *x) {
  for (uint32_t i = 0; i < x->depth; i++) at_strbuf_addz(x->out, "  ");
}

// One line per argument, with what passes say of it.
static void put_arguments(printer *x, const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_args; i++) {
    indent(x);
    at_strbuf_addz(x->out, "argument ");
    put_value(x, &b->args[i]);
    x->any = false;
    say_of_value(x, &b->args[i]);
    at_strbuf_addc(x->out, '\n');
  }
}

// run: the run that the operation is in; NULL: none.
static void say_part(printer *x, const at_mplan_run *run, uint32_t i) {
  uint8_t flags = run->flags[i - run->begin];
  say(x, flags & AT_MPLAN_IN_LOOP ? "in the loop" : "before the loop");
  if (flags & AT_MPLAN_WITHIN) say(x, "only there");
  if (flags & AT_MPLAN_FEEDS) say(x, "for a product behind it");
}

// "%2 = name %0 %1  // facts", then the blocks inside, indented.
static void put_op(printer *x, const at_mop *op, const at_mplan_run *run,
                   uint32_t at) {
  indent(x);
  for (uint32_t i = 0; i < op->num_results; i++) {
    at_strbuf_addz(x->out, i ? ", " : "");
    put_value(x, &op->results[i]);
  }
  at_strbuf_addf(x->out, "%s%s", op->num_results ? " = " : "", op->name);
  for (uint32_t i = 0; i < op->num_operands; i++) {
    at_strbuf_addc(x->out, ' ');
    put_value(x, op->operands[i]);
  }
  x->any = false;
  for (uint32_t i = 0; i < op->num_results; i++)
    say_of_value(x, &op->results[i]);
  for (size_t i = 0; i < AT_LEN(passes); i++)
    if (shows(x, i) && passes[i].of_op)
      passes[i].of_op(x, op, at_mplan_op_of(x->p, op));
  if (run && shows(x, ROWS)) say_part(x, run, at);
  at_strbuf_addc(x->out, '\n');
  x->depth++;
  for (uint32_t r = 0; r < op->num_regions; r++)
    for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++) {
      indent(x);
      at_strbuf_addf(x->out, "region %u\n", r);
      put_block(x, op->regions[r]->blocks[k]);
    }
  x->depth--;
}

// Operations of a run say whether they are in its loop.
static void put_block(printer *x, const at_mblock *b) {
  const at_mplan_run *run = NULL;
  put_arguments(x, b);
  if (at_mplan_finishes(x->p, b)) {
    indent(x);
    at_strbuf_addz(x->out, "// sums that wait are finished\n");
  }
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mplan_run *begins = at_mplan_op_of(x->p, b->ops[i])->run;
    if (begins) run = begins;
    if (run && i >= run->end) run = NULL;
    put_op(x, b->ops[i], run, i);
  }
}

// The passes that a list names.
static at_status parse(const char *names, uint32_t *shown) {
  *shown = 0;
  while (*names) {
    size_t n = strcspn(names, ","), i = 0;
    while (i < AT_LEN(passes) && !at_str_is((at_str){names, n}, passes[i].name))
      i++;
    if (i == AT_LEN(passes))
      return AT_FAIL(AT_INVALID_ARGUMENT, "no pass '%.*s' plans a kernel",
                     (int)n, names);
    *shown |= 1u << i;
    names += n + (names[n] == ',');
  }
  return AT_OK;
}

// Numbers of values are those of this text alone.
at_status at_mplan_print(const at_mplan *p, const char *names, at_strbuf *out) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("the text of a plan");
  printer x = {.p = p, .out = out, .names = at_map_in(a), .shown = ~0u};
  at_status s = names ? parse(names, &x.shown) : AT_OK;
  for (size_t i = 0; at_ok(s) && i < p->blocks.len; i++) {
    at_strbuf_addf(out, i ? "function %zu\n" : "body\n", i);
    x.depth = 1;
    put_block(&x, p->blocks.ptr[i]);
  }
  if (at_ok(s) && x.failed) s = AT_NO_MEMORY("the text of a plan");
  if (at_ok(s)) s = at_strbuf_status(out);
  at_arena_destroy(a);
  return s;
}

// The plan is made for this CPU's features, as code would be.
at_status at_mosaic_plan_print(const at_mosaic_kernel *k, uint32_t program,
                               const at_mosaic_code_options *o,
                               const char *passes, at_arena *a,
                               at_strbuf *out) {
  const at_mosaic_program *p = &k->programs[program];
  at_mplan_input in = {k, p, o, p->body, at_cpu_features()};
  const at_mplan *plan;
  AT_TRY(at_mplan_make(&in, a, &plan));
  at_strbuf_addf(out, "// kernel %s, program %s\n", k->name, p->name);
  return at_mplan_print(plan, passes, out);
}
