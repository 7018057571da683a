// The table of ops, and the page of documentation made from it.
#include <stdlib.h>

#include "import/import_internal.h"

// func, call and return belong to the func dialect outside VHLO.
#define VHLO_DIALECTS(text)                                                   \
  (!strcmp(text, "func") || !strcmp(text, "call") ? AT_IMP_VHLO | AT_IMP_FUNC \
   : !strcmp(text, "return")                                                  \
       ? AT_IMP_VHLO | AT_IMP_STABLEHLO | AT_IMP_FUNC | AT_IMP_SDY            \
       : AT_IMP_VHLO | AT_IMP_STABLEHLO)

const at_imp_row at_imp_rows[] = {
#define AT_VHLO_OP(text, version, since, until, op, how) \
  {text,  AT_IMP_VHLO, version,          since,          \
   until, AT_OP_##op,  at_imp_how_##how, #how},
#define AT_OTHER_OP(dialect, text, op, how) \
  {text, AT_IMP_##dialect, 0, "", "", AT_OP_##op, at_imp_how_##how, #how},
#include "import/vhlo_ops.def"
#undef AT_VHLO_OP
#undef AT_OTHER_OP
};
const uint32_t at_imp_num_rows = AT_LEN(at_imp_rows);

// The spellings that a row answers to.
static uint32_t row_dialects(const at_imp_row *r) {
  return r->version ? (uint32_t)(VHLO_DIALECTS(r->text)) : r->dialects;
}

// version 0 stands for any: only VHLO spells versions.
static bool row_is(const at_imp_row *r, uint32_t dialect, at_str text,
                   uint32_t version) {
  return (row_dialects(r) & dialect) && at_str_is(text, r->text) &&
         (version == 0 || r->version == version);
}

// Cuts "_v<digits>" off; 0: there is none.
static uint32_t version_cut(at_str *text) {
  size_t digits = 0, n = text->len;
  uint32_t version = 0, scale = 1;
  while (digits < n && digits < 6 && text->ptr[n - 1 - digits] >= '0' &&
         text->ptr[n - 1 - digits] <= '9') {
    version += scale * (uint32_t)(text->ptr[n - 1 - digits] - '0');
    scale *= 10;
    digits++;
  }
  if (digits == 0 || digits + 2 > n || text->ptr[n - digits - 1] != 'v' ||
      text->ptr[n - digits - 2] != '_')
    return 0;
  text->len = n - digits - 2;
  return version;
}

// Linear in the table; row_of asks once for each name, so an index would not
// pay. A VHLO name without a version has no row.
const at_imp_row *at_imp_row_find(const char *name) {
  static const struct {
    const char *prefix;
    uint32_t dialect;
  } dialects[] = {{"stablehlo.", AT_IMP_STABLEHLO},
                  {"vhlo.", AT_IMP_VHLO},
                  {"chlo.", AT_IMP_CHLO},
                  {"func.", AT_IMP_FUNC},
                  {"sdy.", AT_IMP_SDY},
                  {"builtin.", AT_IMP_BUILTIN}};
  at_str s = at_str_of(name);
  for (size_t d = 0; d < AT_LEN(dialects); d++) {
    if (!at_str_starts(s, dialects[d].prefix)) continue;
    size_t skip = strlen(dialects[d].prefix);
    at_str text = {s.ptr + skip, s.len - skip};
    uint32_t version = 0;
    if (dialects[d].dialect == AT_IMP_VHLO && !(version = version_cut(&text)))
      return NULL;
    for (uint32_t i = 0; i < at_imp_num_rows; i++)
      if (row_is(&at_imp_rows[i], dialects[d].dialect, text, version))
        return &at_imp_rows[i];
  }
  return NULL;
}

// For the documentation: the dialect of rows without a VHLO version.
static const char *dialect_text(uint32_t d) {
  return d == AT_IMP_CHLO      ? "chlo"
         : d == AT_IMP_SDY     ? "sdy"
         : d == AT_IMP_BUILTIN ? "builtin"
                               : "stablehlo";
}

// One line of the Markdown table.
static void row_doc(at_strbuf *out, const at_imp_row *r) {
  if (r->version)
    at_strbuf_addf(out, "| `vhlo.%s_v%u` | %s–%s | ", r->text,
                   (unsigned)r->version, r->since, r->until);
  else
    at_strbuf_addf(out, "| `%s.%s` | | ", dialect_text(r->dialects), r->text);
  if (r->op != AT_OP_COUNT)
    at_strbuf_addf(out, "`%s`", at_op_text(r->op));
  else
    at_strbuf_addz(out, "–");
  at_strbuf_addf(out, " | %s |\n",
                 strcmp(r->how_text, "plain") ? r->how_text : "");
}

// In the order of vhlo_ops.def; doc/ holds what this writes.
at_status at_import_ops_doc(at_strbuf *out) {
  at_strbuf_addz(
      out,
      "# Ops that programs may contain\n\n"
      "Each VHLO op and version (StableHLO's spelling is taken as well), the "
      "versions of VHLO that have it, the hlo op it becomes, and the rewrite "
      "that does it where it is not one to one. Ops marked `unsupported` are "
      "refused by name.\n\n"
      "| op | VHLO | hlo | rewrite |\n|---|---|---|---|\n");
  for (uint32_t i = 0; i < at_imp_num_rows; i++) row_doc(out, &at_imp_rows[i]);
  return at_strbuf_status(out);
}
