// Kernels as text, and the page of operations.
#include "mosaic/mosaic_internal.h"

// The generic form of MLIR, which reads back.
at_status at_mosaic_print(const at_mosaic_kernel *k, bool locations,
                          at_strbuf *out) {
  at_mlir_print_options o = {.generic = true, .locations = locations};
  return at_mlir_print(k->module, &o, out);
}

// ---- Summary
// "f32[8,128] in vmem"; a dynamic size is '?'.
static void put_ref(at_strbuf *b, const at_mosaic_ref *r) {
  static const char *const sems[] = {"", "semaphore", "dma_semaphore",
                                     "barrier_semaphore"};
  at_strbuf_addz(
      b, r->semaphore ? sems[r->semaphore] : at_dtype_of(r->dtype)->text);
  at_strbuf_addc(b, '[');
  for (uint32_t i = 0; i < r->shape.rank; i++) {
    if (i) at_strbuf_addc(b, ',');
    if (r->shape.ptr[i] == AT_MDYN)
      at_strbuf_addc(b, '?');
    else
      at_strbuf_addf(b, "%lld", (long long)r->shape.ptr[i]);
  }
  at_strbuf_addf(b, "] in %s", at_mosaic_space_name(r->space));
}

// One line: operand or result, block, kind, buffers, whole array, alias.
static void put_window(at_strbuf *b, const at_mosaic_program *p,
                       const at_mosaic_window *w, uint32_t i) {
  static const char *const kinds[] = {"whole", "blocked", "element"};
  at_strbuf_addf(b, "//   window %u: %s %u, ", i,
                 w->is_output ? "result" : "operand", w->index);
  put_ref(b, &w->ref);
  at_strbuf_addf(b, ", %s", kinds[w->kind]);
  if (w->kind != AT_MWIN_WHOLE)
    at_strbuf_addf(b, ", %u buffer%s%s", w->buffers, w->buffers > 1 ? "s" : "",
                   w->moves ? "" : ", does not move");
  if (w->whole.dtype != AT_INVALID) {
    at_strbuf_addz(b, ", of ");
    at_type_print(b, &w->whole);
  }
  if (w->alias >= 0)
    at_strbuf_addf(b, ", aliases %s %d", w->is_output ? "operand" : "result",
                   w->alias);
  at_strbuf_addc(b, '\n');
}

// Bounds with their semantics; a dynamic bound names its operand.
static void put_grid(at_strbuf *b, const at_mosaic_program *p) {
  static const char *const names[] = {"arbitrary", "parallel", "core_parallel",
                                      "subcore_parallel"};
  at_strbuf_addz(b, "//   grid: [");
  for (uint32_t i = 0; i < p->grid_rank; i++) {
    if (i) at_strbuf_addz(b, ", ");
    if (p->grid[i].dynamic)
      at_strbuf_addf(b, "operand %u", p->grid[i].operand);
    else
      at_strbuf_addf(b, "%lld", (long long)p->grid[i].bound);
    at_strbuf_addf(b, " %s", names[p->grid[i].semantics]);
  }
  at_strbuf_addz(b, "]\n");
}

// Each line is a comment in MLIR, so the summary can stand before the kernel's
// text.
void at_mosaic_summary(const at_mosaic_kernel *k, at_strbuf *out) {
  at_strbuf_addf(out, "// kernel %s, version %lld\n", k->name,
                 (long long)k->serde_version);
  for (uint32_t n = 0; n < k->num_programs; n++) {
    const at_mosaic_program *p = &k->programs[n];
    at_strbuf_addf(out, "// program %s on %s\n", p->name,
                   at_mosaic_core_name(p->core));
    put_grid(out, p);
    for (uint32_t i = 0; i < p->num_prefetch; i++) {
      at_strbuf_addf(out, "//   prefetch %u: operand %u, ", i,
                     p->num_dynamic + i);
      put_ref(out, &p->prefetch[i]);
      at_strbuf_addc(out, '\n');
    }
    for (uint32_t i = 0; i < p->num_windows; i++)
      put_window(out, p, &p->windows[i], i);
    for (uint32_t i = 0; i < p->num_scratch; i++) {
      at_strbuf_addf(out, "//   scratch %u: ", i);
      put_ref(out, &p->scratch[i]);
      at_strbuf_addc(out, '\n');
    }
  }
}

// ---- The page
// A cell of a Markdown table, with its special characters escaped.
static void cell(at_strbuf *b, const char *z) {
  at_strbuf_addz(b, " | ");
  for (; *z; z++) {
    if (*z == '|' || *z == '<' || *z == '*') at_strbuf_addc(b, '\\');
    at_strbuf_addc(b, *z);
  }
}

// One row per operation in the order of ops.def.
at_status at_mosaic_ops_doc(at_strbuf *out) {
  static const char *const costs[] = {"none",      "scalar", "cheap", "medium",
                                      "expensive", "memory", "xlu",   "reduce",
                                      "broadcast", "mxu",    "dma",   "sync"};
  at_strbuf_addf(
      out,
      "# Operations of Pallas TPU kernels\n\n"
      "Every operation that a kernel's body may hold, from "
      "`src/mosaic/ops.def`: %d. All of them are read, upgraded from "
      "older versions, verified and printed. How an operation runs is "
      "in `docs/pallas.md`. `name?` may be absent, `name*` is any "
      "number of values.\n\n"
      "| operation | operands | results | attributes | type rule | "
      "cost | meaning |\n|---|---|---|---|---|---|---|\n",
      AT_MOSAIC_OP_COUNT - 1);
  for (int i = 1; i < AT_MOSAIC_OP_COUNT; i++) {
    const at_mosaic_op_info *o = at_mosaic_op_info_of((at_mosaic_opcode)i);
    at_strbuf_addf(out, "| `%s`", o->name);
    cell(out, o->operands);
    cell(out, o->results);
    cell(out, o->attrs);
    cell(out, strcmp(o->rule, "NONE") ? o->rule : "");
    cell(out, costs[o->cost]);
    cell(out, o->doc);
    at_strbuf_addz(out, " |\n");
  }
  return at_strbuf_status(out);
}
