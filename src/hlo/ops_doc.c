// The op table as Markdown, for docs/ops.md.
#include "hlo/hlo_internal.h"

// "2", "1-3", or "1+" for variadic ops.
static void arity(at_strbuf *b, const at_op_info *o) {
  if (o->max_operands < 0)
    at_strbuf_addf(b, "%d+", o->min_operands);
  else if (o->max_operands != o->min_operands)
    at_strbuf_addf(b, "%d-%d", o->min_operands, o->max_operands);
  else
    at_strbuf_addf(b, "%d", o->min_operands);
}

// The names stand in the order of the bits in hlo.h.
static void traits(at_strbuf *b, uint32_t t) {
  static const char *const names[] = {"elementwise", "commutes",   "effect",
                                      "multi",       "collective", "indexing",
                                      "control",     "opaque"};
  bool any = false;
  for (size_t i = 0; i < AT_LEN(names); i++) {
    if (!(t & 1u << i)) continue;
    at_strbuf_addf(b, any ? ", %s" : "%s", names[i]);
    any = true;
  }
}

// Escapes what would end a table's cell.
static void doc_text(at_strbuf *b, const char *z) {
  for (; *z; z++) {
    if (*z == '|') at_strbuf_addc(b, '\\');  // a cell ends at a bare bar
    at_strbuf_addc(b, *z);
  }
}

// One row per op in the order of ops.def.
at_status at_hlo_ops_doc(at_strbuf *out) {
  static const char *const costs[] = {"none",    "vector", "transcendental",
                                      "mxu",     "memory", "control",
                                      "network", "host"};
  at_strbuf_addz(out,
                 "# Ops\n\n"
                 "Every op of the dataflow graph, from `src/hlo/ops.def`.\n\n"
                 "| op | operands | regions | attributes | traits | cost | "
                 "meaning |\n|---|---|---|---|---|---|---|\n");
  for (int i = 0; i < AT_OP_COUNT; i++) {
    const at_op_info *o = at_op_of((at_op)i);
    at_strbuf_addf(out, "| `%s` | ", o->text);
    arity(out, o);
    if (o->regions < 0)
      at_strbuf_addz(out, " | any | ");
    else
      at_strbuf_addf(out, " | %d | ", o->regions);
    for (uint32_t k = 0; k < o->attr_count; k++)
      at_strbuf_addf(out, k ? ", `%s`" : "`%s`",
                     at_attr_text((at_attr_id)o->attrs[k]));
    at_strbuf_addz(out, " | ");
    traits(out, o->traits);
    at_strbuf_addf(out, " | %s | ", costs[o->cost]);
    doc_text(out, o->doc);
    at_strbuf_addz(out, " |\n");
  }
  return at_strbuf_status(out);
}
