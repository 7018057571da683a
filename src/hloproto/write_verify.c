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

// ---- The form, whatever it means

// Where an instruction stands, and what it is.
typedef struct inst {
  uint64_t comp;
  at_str opcode;
} inst;

// What was met so far: computations by number, with how many instructions they
// have; instructions by number.
typedef struct form {
  at_arena *a;
  at_map fused, plain, insts;
  bool full;  // no memory: nothing is said
} form;

static const void *key(uint64_t id) { return (const void *)(uintptr_t)id; }

// False: that number was taken.
static bool put(form *f, at_map *m, uint64_t id, void *x) {
  if (at_map_find_ptr(m, key(id))) return false;
  void **place = at_map_put_ptr(m, key(id));
  f->full |= !place;
  if (place) *place = x;
  return true;
}

// Empty where it does not read.
static at_dims numbers(form *f, at_bytes b, uint32_t number) {
  at_dims d = {0};
  at_status_free(at_proto_list(b, number, "ids", f->a, &d));
  return d;
}

// Takes `end` off s; false: it ends otherwise.
static bool cut(at_str *s, at_str end) {
  if (s->len < end.len) return false;
  at_str last = {s->ptr + s->len - end.len, end.len};
  if (!at_str_eq(last, end)) return false;
  s->len -= end.len;
  return true;
}

// Operands come first and are of the same computation; what ends an operation
// under way takes what begins it; a fusion, and nothing else, calls what is
// fused.
static bool inst_holds(form *f, at_bytes b, uint64_t comp) {
  inst *x = at_new(f->a, inst, 1);
  f->full |= !x;
  if (f->full) return true;
  *x = (inst){comp, at_proto_str(b, 2)};
  at_dims operands = numbers(f, b, 36), calls = numbers(f, b, 38);
  for (uint32_t i = 0; i < operands.rank; i++) {
    void **o = at_map_find_ptr(&f->insts, key((uint64_t)operands.ptr[i]));
    if (!o || ((inst *)*o)->comp != comp) return false;
    at_str from = ((inst *)*o)->opcode, to = x->opcode;
    if (cut(&from, AT_STR("-start")) && cut(&to, AT_STR("-done")) &&
        !at_str_eq(from, to))
      return false;
  }
  at_map *callees =
      at_str_eq(x->opcode, AT_STR("fusion")) ? &f->fused : &f->plain;
  for (uint32_t i = 0; i < calls.rank; i++)
    if (!at_map_find_ptr(callees, key((uint64_t)calls.ptr[i]))) return false;
  return put(f, &f->insts, at_proto_uint(b, 35), x);
}

// Its root is one of its own. A computation is fused or has a schedule.
static bool comp_holds(form *f, at_bytes b) {
  uint64_t id = at_proto_uint(b, 5);
  uintptr_t count = 0;
  at_proto_field field;
  for (at_bytes rest = b; at_proto_next(&rest, &field);) {
    if (field.number != 2) continue;
    if (!inst_holds(f, field.bytes, id)) return false;
    count++;
  }
  void **root = at_map_find_ptr(&f->insts, key(at_proto_uint(b, 6)));
  if (!f->full && (!root || ((inst *)*root)->comp != id)) return false;
  at_map *other = at_proto_uint(b, 7) ? &f->plain : &f->fused;
  if (at_map_find_ptr(other, key(id))) return false;
  return put(f, at_proto_uint(b, 7) ? &f->fused : &f->plain, id,
             (void *)count);  // NOLINT: a number
}

// It names each instruction of its computation, and no others.
static bool schedule_holds(form *f, at_bytes b) {
  uint64_t comp = at_proto_uint(b, 1);
  void **count = at_map_find_ptr(&f->plain, key(comp));
  at_dims order = numbers(f, at_proto_bytes(b, 2), 1);
  if (!count || (uintptr_t)*count != order.rank) return false;
  for (uint32_t i = 0; i < order.rank; i++) {
    void **x = at_map_find_ptr(&f->insts, key((uint64_t)order.ptr[i]));
    if (!x || ((inst *)*x)->comp != comp) return false;
    if (i && order.ptr[i] == order.ptr[i - 1]) return false;
  }
  return true;
}

// An arena of its own; what finds no memory is taken to hold.
bool at_hp_is_formed(at_str written) {
  at_arena *a = at_arena_create();
  if (!a) return true;
  form f = {a, at_map_in(a), at_map_in(a), at_map_in(a), false};
  at_bytes all = {(const uint8_t *)written.ptr, written.len};
  at_bytes module = at_proto_bytes(all, 1), plan = at_proto_bytes(module, 7);
  at_proto_field field;
  size_t schedules = 0;
  bool holds = true;
  for (at_bytes b = module; holds && at_proto_next(&b, &field);)
    if (field.number == 3) holds = comp_holds(&f, field.bytes);
  for (; holds && at_proto_next(&plan, &field); schedules++)
    holds = schedule_holds(&f, field.bytes);
  holds = holds && schedules == f.plain.len &&
          at_map_find_ptr(&f.plain, key(at_proto_uint(module, 6)));
  holds |= f.full || at_code_take(at_arena_status(a)) != AT_OK_CODE;
  at_arena_destroy(a);
  return holds;
}
