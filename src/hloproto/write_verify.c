// What has been written is read again and compared with what it was made of,
// where checks are on (base/verify.h).
#include "hloproto/write_internal.h"

// In the host's memory, or given up, for a result or as it is: the same before
// and after?
static bool same_info(const at_io_info *a, const at_io_info *b) {
  static const at_io_info none = {.alias = -1};
  if (!a) a = &none;
  if (!b) b = &none;
  return a->alias == b->alias && (a->alias >= 0 || a->donor == b->donor) &&
         at_hp_is_host(a->memory_kind) == at_hp_is_host(b->memory_kind);
}

// The same line of the same file, where the first names one.
static bool same_place(const at_loc *a, const at_loc *b) {
  a = at_loc_source(a), b = at_loc_source(b);
  if (!a || !a->file) return true;
  return b && b->file && !strcmp(a->file, b->file) && a->line == b->line;
}

// As many elementwise nodes of each op that XLA has.
static bool same_ops(const at_comp *a, const at_comp *b) {
  int32_t more[AT_OP_COUNT] = {0};
  AT_FOR_NODES(n, a) more[n->op]++;
  AT_FOR_NODES(n, b) more[n->op]--;
  for (int op = 0; op < AT_OP_COUNT; op++)
    if (more[op] && at_hloproto_opcode((at_op)op) &&
        at_op_is((at_op)op, AT_ELEMENTWISE))
      return false;
  return true;
}

// An arena of its own; what finds no memory is taken for the same.
bool at_hp_reads_as(const at_module *m, at_str written, bool infos) {
  at_module *n;
  at_arena *a = at_arena_create();
  if (!a) return true;
  at_bytes b = {(const uint8_t *)written.ptr, written.len};
  at_code code = at_code_take(at_hloproto_read(b, AT_HLOPROTO_UNKNOWN, a, &n));
  bool same = code != AT_INTERNAL && code != AT_INVALID_ARGUMENT;
  if (code == AT_OK_CODE) {
    const at_comp *x = m->entry, *y = n->entry;
    same = x->num_params == y->num_params && x->num_results == y->num_results &&
           same_ops(x, y);
    for (uint32_t k = 0; same && k < x->num_params; k++)
      same = at_type_eq(&x->params[k]->types[0], &y->params[k]->types[0]) &&
             same_place(x->params[k]->loc, y->params[k]->loc) &&
             (!infos || same_info(m->params ? m->params + k : NULL,
                                  n->params ? n->params + k : NULL));
    for (uint32_t k = 0; same && k < x->num_results; k++)
      same = at_type_eq(at_value_type(x->results[k]),
                        at_value_type(y->results[k]));
  }
  at_arena_destroy(a);
  return same;
}
