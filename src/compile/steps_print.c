// A readable listing of an executable: memory, inputs and outputs, steps.
#include "compile/steps.h"

typedef struct view {
  const uint8_t *base;
  const at_xheader *h;
  at_strbuf *out;
} view;

static const void *section(const view *v, at_xsection s) {
  return v->base + v->h->sections[s].offset;
}
static const char *string(const view *v, uint32_t at) {
  return (const char *)section(v, AT_XS_STRINGS) + at;
}

// In the order of abi/kernels.def.
static const char *runtime_name(uint32_t id) {
  static const char *const names[] = {
#define AT_RT_KERNEL(Id, fn, params, doc) #Id,
#include "abi/collective.h"
#include "abi/kernels.def"
#undef AT_RT_KERNEL
  };
  return id < AT_LEN(names) ? names[id] : "?";
}

// "f32[8,8]", or "raw" for a slot without a type.
static void print_type(const view *v, uint32_t index) {
  if (index == UINT32_MAX) return at_strbuf_addz(v->out, "raw");
  const at_xtype *t = (const at_xtype *)section(v, AT_XS_TYPES) + index;
  const int64_t *dims = (const int64_t *)section(v, AT_XS_DIMS) + t->dims;
  at_strbuf_addf(v->out, "%s[", at_dtype_of((at_dtype)t->dtype)->text);
  for (uint32_t i = 0; i < t->rank; i++)
    at_strbuf_addf(v->out, "%s%lld", i ? "," : "", (long long)dims[i]);
  at_strbuf_addc(v->out, ']');
}

// "temp+64:f32[8]".
static void print_slot(const view *v, uint32_t index) {
  const at_xslot *s = (const at_xslot *)section(v, AT_XS_SLOTS) + index;
  static const char *const kinds[] = {"null", "in", "out", "temp", "const"};
  at_strbuf_addz(v->out, kinds[s->kind]);
  if (s->kind == AT_SLOT_INPUT || s->kind == AT_SLOT_OUTPUT)
    at_strbuf_addf(v->out, "%u", s->index);
  else if (s->kind != AT_SLOT_NULL)
    at_strbuf_addf(v->out, "+%llu", (unsigned long long)s->offset);
  if (s->kind == AT_SLOT_NULL) return;
  at_strbuf_addc(v->out, ':');
  print_type(v, s->type);
}

// Who is in a group with whom, and of what is exchanged the strides that are
// not 0.
static void print_groups(const view *v, const at_x_collective *c,
                         const uint32_t *tables) {
  const uint32_t *group_of = tables, *begin_of = tables + 2 * c->num_devices;
  const uint32_t *size_of = begin_of + c->num_devices;
  const uint32_t *members = size_of + c->num_devices;
  const uint32_t *source_of = members + c->num_devices;
  for (uint32_t d = 0; d < c->num_devices; d++) {
    if (group_of[d] == UINT32_MAX || members[begin_of[d]] != d) continue;
    at_strbuf_addz(v->out, " [");
    for (uint32_t i = 0; i < size_of[d]; i++) {
      uint32_t m = members[begin_of[d] + i];
      at_strbuf_addf(v->out, "%s%u", i ? " " : "", m);
      if (c->kind == AT_COLL_PERMUTE && source_of[m] != UINT32_MAX)
        at_strbuf_addf(v->out, "<%u", members[begin_of[d] + source_of[m]]);
    }
    at_strbuf_addc(v->out, ']');
  }
}

// Only what is not 0.
static void print_exchange(const view *v, const at_x_exchange *x) {
  const struct {
    const char *name;
    uint64_t value;
  } parts[] = {{"rows", x->rows},
               {"lines", x->lines},
               {"run", x->run},
               {"give piece", x->give_piece},
               {"row", x->give_row},
               {"line", x->give_line},
               {"take piece", x->take_piece},
               {"row", x->take_row},
               {"line", x->take_line},
               {"block", x->block_elements},
               {"tail", x->tail_elements}};
  at_strbuf_addz(v->out, " {");
  for (size_t i = 0; i < AT_LEN(parts); i++)
    if (parts[i].value)
      at_strbuf_addf(v->out, "%s%s %llu", i ? ", " : "", parts[i].name,
                     (unsigned long long)parts[i].value);
  at_strbuf_addc(v->out, '}');
}

// SparseCore calls have other parameters and are left out.
static void print_collective(const view *v, const at_xstep *s) {
  const uint8_t *p = (const uint8_t *)section(v, AT_XS_PARAMS) + s->params;
  at_x_collective c;
  at_x_exchange x;
  memcpy(&c, p, sizeof c);
  if (c.kind == AT_COLL_SPARSE) return;
  p += sizeof c;
  const uint8_t *tables = p + c.num_values * sizeof x;
  print_groups(v, &c, (const uint32_t *)(const void *)tables);
  for (uint32_t i = 0; i < c.num_values; i++, p += sizeof x) {
    memcpy(&x, p, sizeof x);
    print_exchange(v, &x);
  }
}

static void print_range(const view *v, uint32_t begin, uint32_t end, int depth);

// A line, then the regions of control flow, indented.
static void print_step(const view *v, uint32_t index, int depth) {
  const at_xstep *s = (const at_xstep *)section(v, AT_XS_STEPS) + index;
  const uint32_t *args = (const uint32_t *)section(v, AT_XS_ARGS) + s->args;
  static const char *const kinds[] = {
      "kernel", "runtime", "while", "case",       "custom", "send", "recv",
      "infeed", "outfeed", "core",  "collective", "start",  "done"};
  at_strbuf_addf(v->out, "%*s#%u %s", depth * 2, "", index, kinds[s->kind]);
  if (s->kind == AT_STEP_RUNTIME)
    at_strbuf_addf(v->out, " %s", runtime_name(s->target));
  if (s->kind == AT_STEP_KERNEL) {
    const at_xkernel *k =
        (const at_xkernel *)section(v, AT_XS_KERNELS) + s->target;
    at_strbuf_addf(v->out, " %s tasks=%lld grain=%lld", string(v, k->symbol),
                   (long long)s->tasks, (long long)s->grain);
  }
  if (s->kind == AT_STEP_CORE) {
    const at_xcore *k = (const at_xcore *)section(v, AT_XS_CORES) + s->target;
    at_strbuf_addf(v->out, " %s", string(v, k->name));
  }
  if (s->kind == AT_STEP_CUSTOM)
    at_strbuf_addf(v->out, " %s", string(v, s->target));
  bool control = s->kind == AT_STEP_WHILE || s->kind == AT_STEP_CASE;
  at_strbuf_addz(v->out, " (");
  for (uint32_t i = 0; i < (control ? 1 : s->num_args); i++) {
    if (i) at_strbuf_addz(v->out, ", ");
    print_slot(v, args[i]);
  }
  at_strbuf_addf(v->out, ") %.1f us  ; %s", s->estimated_ns / 1e3,
                 string(v, s->hlo));
  if (s->kind == AT_STEP_COLLECTIVE || s->kind == AT_STEP_START)
    print_collective(v, s);
  if (s->file) at_strbuf_addf(v->out, " at %s:%u", string(v, s->file), s->line);
  at_strbuf_addc(v->out, '\n');
  for (uint32_t i = 1; control && i + 1 < s->num_args; i += 2) {
    const char *name = s->kind == AT_STEP_CASE ? "branch"
                       : i == 1                ? "cond"
                                               : "body";
    at_strbuf_addf(v->out, "%*s%s:\n", depth * 2 + 1, "", name);
    print_range(v, args[i], args[i + 1], depth + 1);
  }
}

static void print_range(const view *v, uint32_t begin, uint32_t end,
                        int depth) {
  for (uint32_t i = begin; i < end; i++) print_step(v, i, depth);
}

// A line for each argument or result.
static void print_ios(const view *v, at_xsection s, const char *what) {
  const at_xio *io = section(v, s);
  for (uint64_t i = 0; i < v->h->sections[s].count; i++) {
    at_strbuf_addf(v->out, "%s %llu: ", what, (unsigned long long)i);
    print_type(v, io[i].type);
    if (io[i].alias >= 0)
      at_strbuf_addf(v->out, " shares memory with %d", io[i].alias);
    if (io[i].name) at_strbuf_addf(v->out, "  ; %s", string(v, io[i].name));
    at_strbuf_addc(v->out, '\n');
  }
}

// For blocks that at_writer_finish made: offsets are not checked again.
at_status at_steps_print(at_bytes x, at_strbuf *out) {
  view v = {x.ptr, (const at_xheader *)(const void *)x.ptr, out};
  if (x.len < sizeof *v.h || v.h->magic != AT_EXECUTABLE_MAGIC)
    return AT_FAIL(AT_INVALID_ARGUMENT, "not an executable");
  at_strbuf_addf(
      out,
      "program %s: arguments %llu B, outputs %llu B (%llu B shared), "
      "scratch %llu B, code %llu B, estimate %.1f us on one thread\n",
      string(&v, v.h->name), (unsigned long long)v.h->host_argument_bytes,
      (unsigned long long)v.h->output_bytes,
      (unsigned long long)v.h->alias_bytes, (unsigned long long)v.h->temp_bytes,
      (unsigned long long)v.h->code_bytes, v.h->estimated_ns / 1e3);
  print_ios(&v, AT_XS_INPUTS, "input");
  print_ios(&v, AT_XS_OUTPUTS, "output");
  print_range(&v, v.h->main_begin, v.h->main_end, 0);
  return at_strbuf_status(out);
}
