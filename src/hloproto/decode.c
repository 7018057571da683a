// The module's message into computations and instructions.
#include "base/verify.h"
#include "hloproto/hloproto_internal.h"

static const at_hp_row rows[] = {
#define AT_HP_OP(opcode, op, how) {opcode, AT_OP_##op, at_hp_how_##how, #how},
#include "hloproto/opcodes.def"
#undef AT_HP_OP
};

static bool are_sorted(void) {
  bool sorted = true;
  for (size_t i = 1; i < AT_LEN(rows); i++)
    sorted &= strcmp(rows[i - 1].opcode, rows[i].opcode) < 0;
  return sorted;
}

// The rows are in the order of their opcodes.
const at_hp_row *at_hp_row_find(at_str opcode) {
  size_t lo = 0, hi = opcode.len ? AT_LEN(rows) : 0;
  AT_VERIFY(are_sorted());
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    at_str text = at_str_of(rows[mid].opcode);
    int order = memcmp(text.ptr, opcode.ptr, AT_MIN(text.len, opcode.len));
    if (order == 0) order = (text.len > opcode.len) - (text.len < opcode.len);
    if (order == 0) return &rows[mid];
    if (order < 0)
      lo = mid + 1;
    else
      hi = mid;
  }
  return NULL;
}

// In the order of opcodes.def, which is sorted by opcode.
at_status at_hloproto_ops_doc(at_strbuf *out) {
  at_strbuf_addz(
      out,
      "# HLO opcodes\n\n"
      "What programs in the formats `hlo` and `hlo_with_config` "
      "(HloModuleProto) may hold: each opcode of XLA, the hlo op it becomes, "
      "and the rewrite that does it where it is not one to one. Opcodes "
      "marked `refuse` are refused by name.\n\n"
      "| opcode | hlo | how |\n|---|---|---|\n");
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    bool plain = !strcmp(rows[i].how_text, "plain");
    at_strbuf_addf(out, "| `%s` | %s | %s |\n", rows[i].opcode,
                   rows[i].op == AT_OP_COUNT ? "" : at_op_text(rows[i].op),
                   plain ? "" : rows[i].how_text);
  }
  return at_strbuf_status(out);
}

// ---- Maps by id
static at_status id_put(at_map *m, int64_t id, void *value, bool *fresh) {
  void **slot;
  // Keys are pointers' bits; 0 is a pointer as good as others.
  AT_TRY_ALLOC(slot, at_map_put_ptr(m, (const void *)(uintptr_t)id));
  *fresh = *slot == NULL;
  *slot = value;
  return AT_OK;
}

// Ids are chosen by the writer of the proto, hence a map and not an array.
const at_hp_comp *at_hp_comp_by_id(const at_hp *x, int64_t id) {
  void **slot = at_map_find_ptr(&x->comp_by_id, (const void *)(uintptr_t)id);
  return slot ? (const at_hp_comp *)*slot : NULL;
}

// ---- Instructions
static at_status inst_lists(at_hp *x, at_hp_inst *i, at_bytes *shape) {
  at_proto_ints operands = {0}, called = {0};
  at_bytes b = i->body;
  for (at_proto_field f; b.len;) {
    if (!at_proto_next(&b, &f))
      return AT_FAIL(AT_INVALID_ARGUMENT, "an instruction is malformed");
    at_str text = {(const char *)f.bytes.ptr, f.bytes.len};
    if (f.number == 1) i->name = text;
    if (f.number == 2) i->opcode = text;
    if (f.number == 3) *shape = f.bytes;
    if (f.number == 35) i->id = (int64_t)f.value;
    if (f.number == 36)
      AT_TRY(at_proto_ints_add(&f, "operand_ids", x->a, &operands));
    if (f.number == 38)
      AT_TRY(at_proto_ints_add(&f, "called_computation_ids", x->a, &called));
  }
  if (operands.len > UINT32_MAX || called.len > UINT32_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT, "an instruction has too many operands");
  i->operands = (at_dims){operands.ptr, (uint32_t)operands.len};
  i->called = (at_dims){called.ptr, (uint32_t)called.len};
  return AT_OK;
}

// Refuses unknown opcodes and shapes that Atoll lacks; a failure of the shape
// is reported again with the instruction's name and place.
static at_status inst_decode(at_hp *x, at_bytes b, at_hp_inst *out) {
  at_bytes shape = {0};
  *out = (at_hp_inst){.body = b};
  AT_TRY(inst_lists(x, out, &shape));
  out->row = at_hp_row_find(out->opcode);
  if (!out->row)
    return AT_HP_FAIL(x, out, AT_UNIMPLEMENTED, "this opcode is not supported");
  at_status st = at_hp_shape_read(x->a, shape, &out->shape);
  if (at_ok(st)) return st;
  at_status said =
      AT_HP_FAIL(x, out, at_status_code(st), "%s", at_status_message(st));
  at_status_free(st);
  return said;
}

// ---- Computations
static at_status params_find(at_hp *x, at_hp_comp *c) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < c->num_insts; k++)
    n += c->insts[k].row->op == AT_OP_PARAMETER;
  AT_TRY_ALLOC(c->params, at_new(x->a, uint32_t, (size_t)n + 1));
  bool *seen;
  AT_TRY_ALLOC(seen, at_new(x->a, bool, (size_t)n + 1));
  for (uint32_t k = 0; k < c->num_insts; k++) {
    const at_hp_inst *i = &c->insts[k];
    if (i->row->op != AT_OP_PARAMETER) continue;
    int64_t number = at_proto_int(i->body, 9);
    if (number < 0 || number >= n || seen[number])
      return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                        "parameter number %lld of %u, or it is there twice",
                        (long long)number, n);
    seen[number] = true;
    c->params[number] = k;
  }
  c->num_params = n;
  for (uint32_t p = 0; p < n; p++)
    AT_ASSERT(c->insts[c->params[p]].row->op == AT_OP_PARAMETER);
  return AT_OK;
}

typedef AT_VEC(at_hp_inst) inst_vec;

// Instructions go into one growing array, so pointers to them are taken only
// after the loop.
static at_status insts_decode(at_hp *x, at_hp_comp *c) {
  inst_vec list = {0};
  at_bytes b = c->body;
  for (at_proto_field f; b.len;) {
    if (!at_proto_next(&b, &f))
      return AT_FAIL(AT_INVALID_ARGUMENT, "computation `%.*s` is malformed",
                     (int)AT_MIN(c->name.len, 200u), c->name.ptr);
    if (f.number != 2) continue;
    at_hp_inst i;
    AT_TRY(inst_decode(x, f.bytes, &i));
    i.index = (uint32_t)list.len;
    if (!at_vec_push(x->a, &list, i)) return AT_NO_MEMORY("instructions");
  }
  c->insts = list.ptr;
  c->num_insts = (uint32_t)list.len;
  c->by_id = at_map_in(x->a);
  for (uint32_t k = 0; k < c->num_insts; k++) {
    bool fresh;
    AT_TRY(id_put(&c->by_id, c->insts[k].id, &c->insts[k], &fresh));
    if (!fresh)
      return AT_HP_FAIL(x, &c->insts[k], AT_INVALID_ARGUMENT,
                        "its id %lld is there twice",
                        (long long)c->insts[k].id);
  }
  AT_TRY(at_hp_manual_find(x, c));
  return params_find(x, c);
}

// A computation is added when it is whole; its index says where it stands,
// which orders calls.
static at_status comp_decode(at_hp *x, at_bytes b) {
  at_hp_comp *c;
  AT_TRY_ALLOC(c, at_new(x->a, at_hp_comp, 1));
  *c = (at_hp_comp){.body = b,
                    .name = at_proto_str(b, 1),
                    .id = at_proto_int(b, 5),
                    .index = (uint32_t)x->comps.len};
  AT_TRY(insts_decode(x, c));
  void **root =
      at_map_find_ptr(&c->by_id, (const void *)(uintptr_t)at_proto_int(b, 6));
  if (!root)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "computation `%.*s` has no root instruction",
                   (int)AT_MIN(c->name.len, 200u), c->name.ptr);
  c->root = ((const at_hp_inst *)*root)->index;
  AT_ASSERT(c->root < c->num_insts);
  bool fresh;
  AT_TRY(id_put(&x->comp_by_id, c->id, c, &fresh));
  if (!fresh)
    return AT_FAIL(AT_INVALID_ARGUMENT, "computation %lld is there twice",
                   (long long)c->id);
  if (!at_vec_push(x->a, &x->comps, c)) return AT_NO_MEMORY("computations");
  return AT_OK;
}

// Field 3: computations; 12 and 14: shardings that only partitioned modules
// have; 22: payloads that custom calls refer to. The entry is the computation
// with the entry's name, or else with its id.
at_status at_hp_module_decode(at_hp *x) {
  x->comp_by_id = at_map_in(x->a);
  at_bytes b = x->proto;
  for (at_proto_field f; b.len;) {
    if (!at_proto_next(&b, &f))
      return AT_FAIL(AT_INVALID_ARGUMENT, "the HloModuleProto is malformed");
    if (f.number == 3) AT_TRY(comp_decode(x, f.bytes));
    if (f.number == 12 || f.number == 14) x->partitioned = true;
    if (f.number == 22 && !at_vec_push(x->a, &x->payloads, f.bytes))
      return AT_NO_MEMORY("payloads");
  }
  int64_t entry = at_proto_int(x->proto, 6);
  at_str name = at_proto_str(x->proto, 2);
  x->entry = (at_hp_comp *)at_hp_comp_by_id(x, entry);
  // Ids of computations begin at 0 in old modules: then the name decides.
  for (size_t i = 0; name.len && i < x->comps.len; i++)
    if (at_str_eq(x->comps.ptr[i]->name, name)) x->entry = x->comps.ptr[i];
  if (!x->entry)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "the HloModuleProto has no computation %lld, its entry",
                   (long long)entry);
  return AT_OK;
}
