// What the virtual core does for a kernel: semaphores, random bits, prints,
// traces. Calls of abi/core.h.
#include <stddef.h>

#include "mosaic/emit_memory.h"

// Memory of the function's frame, aligned to 8 bytes.
static LLVMValueRef stack(at_me *m, size_t bytes) {
  return at_em_alloca(m->e, at_em_int(m->e, 64), (int64_t)(bytes + 7) / 8 + 1);
}
// An attribute's text as a C string constant; "" if it is absent.
static LLVMValueRef text_of(at_me *m, const at_mop *op, const char *name) {
  const at_mattr *t = at_mop_attr(op, name);
  const char *s = at_arena_str(m->a, t ? t->str : (at_str){"", 0});
  return at_b_bytes(m->e, s ? s : "", s ? strlen(s) + 1 : 1);
}
// The operand of an optional group, or -1.
static LLVMValueRef optional(at_me *m, const at_mop *op, uint32_t group) {
  uint32_t at;
  return at_mosaic_op_segment(op, group, &at) == 1
             ? at_me_scalar(m, op->operands[at])
             : at_me_i32(m, AT_CORE_SELF);
}

// ---- semaphores
// ANY is a TensorCore.
at_core_type at_mosaic_core_type(at_mosaic_core c) {
  return c == AT_MCORE_SC_SCALAR   ? AT_CORE_SC_SCALAR
         : c == AT_MCORE_SC_VECTOR ? AT_CORE_SC_VECTOR
                                   : AT_CORE_TC;
}

// ref, indices, amount, core
at_status at_me_op_fetch_add(at_me *m, at_mop *op) {
  const at_me_ref *ref = at_me_memory(m, op->operands[0]);
  at_me_ref box;
  int64_t ones[AT_ME_RANK];
  if (!ref) return AT_OK;
  uint32_t n = op->num_operands;
  if (n != ref->rank + 3 || ref->bytes != 4)
    return at_me_refuse(m, op, "its operands");
  for (uint32_t d = 0; d < ref->rank; d++) ones[d] = 1;
  at_me_settle(m, at_mplan_op_of(m->plan, op)->writes, NULL);
  AT_TRY(at_me_box(m, op, ref, 1, ref->rank, ones, NULL, &box));
  LLVMValueRef args[5] = {
      m->core, box.base, at_me_scalar(m, op->operands[n - 2]),
      at_me_scalar(m, op->operands[n - 1]), at_me_loc_value(m, op)};
  at_me_set_scalar(
      m, &op->results[0],
      at_b_call(m->e, "at_core_fetch_add", at_em_int(m->e, 32), args, 5));
  return AT_OK;
}

// Device, core and subcore may be absent: this one. owner: 1 + the kind of core
// whose semaphore it is, where the type names another kind than this.
at_status at_me_op_sem_signal(at_me *m, at_mop *op) {
  const at_me_ref *sem = at_me_memory(m, op->operands[0]);
  if (!sem) return AT_OK;
  at_me_settle(m, at_mplan_op_of(m->plan, op)->writes, NULL);
  at_mosaic_ref type;
  AT_TRY(at_mosaic_ref_of(op->operands[0]->type, &type));
  int32_t owner = type.core == AT_MCORE_ANY || type.core == m->p->core
                      ? 0
                      : 1 + (int32_t)at_mosaic_core_type(type.core);
  LLVMValueRef args[8] = {m->core,
                          sem->base,
                          at_me_i64(m, at_me_scalar(m, op->operands[1])),
                          optional(m, op, 2),
                          optional(m, op, 3),
                          optional(m, op, 4),
                          at_me_i32(m, owner),
                          at_me_loc_value(m, op)};
  at_b_call(m->e, "at_core_sem_signal", NULL, args, 8);
  return AT_OK;
}

// What the wait lets others write must be read before it, so lazy values of
// such memory are computed first; the same holds for all operations here that
// synchronise.
at_status at_me_op_sem_wait(at_me *m, at_mop *op) {
  const at_me_ref *sem = at_me_memory(m, op->operands[0]);
  if (!sem) return AT_OK;
  at_me_settle(m, at_mplan_op_of(m->plan, op)->writes, NULL);
  LLVMValueRef args[4] = {m->core, sem->base,
                          at_me_i64(m, at_me_scalar(m, op->operands[1])),
                          at_me_loc_value(m, op)};
  at_b_call(m->e, "at_core_sem_wait", NULL, args, 4);
  return AT_OK;
}

// The count as it stands; it may change right after.
at_status at_me_op_sem_read(at_me *m, at_mop *op) {
  const at_me_ref *sem = at_me_memory(m, op->operands[0]);
  if (!sem) return AT_OK;
  at_me_settle(m, at_mplan_op_of(m->plan, op)->writes, NULL);
  LLVMValueRef args[3] = {m->core, sem->base, at_me_loc_value(m, op)};
  at_me_set_scalar(
      m, &op->results[0],
      at_b_call(m->e, "at_core_sem_read", at_em_int(m->e, 32), args, 3));
  return AT_OK;
}

// The kernel's barrier semaphore: a ref of rank 0 to the core's memory.
at_status at_me_op_sem_barrier(at_me *m, at_mop *op) {
  LLVMValueRef args[2] = {m->core, at_me_loc_value(m, op)};
  LLVMValueRef p =
      at_b_call(m->e, "at_core_sem_barrier", at_b_ptr(m->e), args, 2);
  at_me_ref r;
  at_me_dense(m, &r, p, AT_INVALID, 0, NULL);
  r.bytes = AT_CORE_SEM_BYTES;
  at_me_rehome(m, &r)->space = AT_MSPACE_SEMAPHORE;
  at_me_set_ref(m, &op->results[0], &r);
  return AT_OK;
}

// Values that read memory others may write are computed first.
at_status at_me_op_barrier(at_me *m, at_mop *op) {
  at_me_settle(m, at_mplan_op_of(m->plan, op)->writes, NULL);
  LLVMValueRef args[3] = {m->core, at_me_scalar(m, op->operands[0]),
                          at_me_loc_value(m, op)};
  at_b_call(m->e, "at_core_barrier", NULL, args, 3);
  return AT_OK;
}

// ---- who and where
LLVMValueRef at_me_core_field(at_me *m, size_t at) {
  LLVMValueRef p =
      at_b_gep(m->e, at_em_int(m->e, 8), m->core, at_em_i64(m->e, (int64_t)at));
  return at_b_load(m->e, at_em_int(m->e, 32), p, 4);
}

// at: offset in at_core.
static at_status emit_field(at_me *m, at_mop *op, size_t at) {
  at_me_set_scalar(m, &op->results[0], at_me_core_field(m, at));
  return AT_OK;
}

at_status at_me_op_device_id(at_me *m, at_mop *op) {
  return emit_field(m, op, offsetof(at_core, device_id));
}
at_status at_me_op_core_id(at_me *m, at_mop *op) {
  return emit_field(m, op, offsetof(at_core, core_index));
}
at_status at_me_op_subcore_id(at_me *m, at_mop *op) {
  return emit_field(m, op, offsetof(at_core, subcore_index));
}

// Read from the core at run time, as dynamic bounds are only known then.
at_status at_me_op_iteration_bound(at_me *m, at_mop *op) {
  at_em *e = m->e;
  int64_t d = at_mosaic_op_int(op, "dim", 0);
  if (d < 0 || d >= m->p->grid_rank)
    return at_me_refuse(m, op, "its dimension");
  LLVMValueRef p = at_b_gep(e, at_em_int(e, 8), m->core,
                            at_em_i64(e, offsetof(at_core, bounds)));
  p = at_b_load(e, at_b_ptr(e), p, 8);
  p = at_b_gep(e, at_em_int(e, 32), p, at_em_i64(e, d));
  at_me_set_scalar(m, &op->results[0], at_b_load(e, at_em_int(e, 32), p, 4));
  return AT_OK;
}

// ---- random bits
// Any number of 32-bit seeds, handed over as an array.
at_status at_me_op_prng_seed(at_me *m, at_mop *op) {
  LLVMValueRef s = stack(m, 4 * (size_t)op->num_operands);
  for (uint32_t i = 0; i < op->num_operands; i++)
    at_me_put(m, s, 4 * (size_t)i, at_me_scalar(m, op->operands[i]));
  LLVMValueRef args[3] = {m->core, s, at_em_i64(m->e, op->num_operands)};
  at_b_call(m->e, "at_core_prng_seed", NULL, args, 3);
  return AT_OK;
}

// Fills a buffer at once: the order of draws is that of the operations.
at_status at_me_op_prng_bits(at_me *m, at_mop *op) {
  const at_mtype *t = op->results[0].type;
  at_dtype type = at_mosaic_dtype_of(t);
  if (at_dtype_bytes(type) != 4) return at_me_refuse(m, op, "narrow elements");
  at_me_node *b = at_me_buffer(m, op, type, t->shape.rank, t->shape.ptr);
  if (!b) return AT_OK;
  LLVMValueRef args[3] = {m->core, b->ref->base,
                          at_em_i64(m->e, at_me_elements(b))};
  at_b_call(m->e, "at_core_prng_bits", NULL, args, 3);
  return at_me_set_node(m, &op->results[0], b);
}

// ---- prints, traces

static bool on_sparse_core(const at_me *m) {
  return at_mosaic_core_type(m->p->core) != AT_CORE_TC;
}

// What is printed; SparseCores say where the values begin.
static LLVMValueRef tag_of(at_me *m, const at_mop *op, uint32_t values) {
  const at_mattr *t = at_mop_attr(op, "tag");
  if (!t || !values || !on_sparse_core(m)) return text_of(m, op, "tag");
  const char *s =
      at_arena_printf(m->a, "%.*s, data:", (int)t->str.len, t->str.ptr);
  return at_b_bytes(m->e, s ? s : "", s ? strlen(s) + 1 : 1);
}

#define FIELD(f) offsetof(at_core_log_arg, f)
// Values go over as records of pointer, type and shape; vectors are put into
// memory first. SparseCores print a scalar as an array of one.
at_status at_me_op_log(at_me *m, at_mop *op) {
  at_em *e = m->e;
  uint32_t n = op->num_operands;
  size_t one = sizeof(at_core_log_arg);
  LLVMValueRef list = stack(m, one * n);
  at_me_node *held[32] = {0};
  if (n > AT_LEN(held)) return at_me_refuse(m, op, "%u values", n);
  for (uint32_t i = 0; i < n; i++) {
    at_mvalue *v = op->operands[i];
    at_dtype t = at_mosaic_dtype_of(v->type);
    LLVMValueRef data;
    uint32_t rank = 0;
    if (at_mosaic_is_vector(v)) {
      at_me_node *a = at_me_vector(m, v);
      held[i] = a ? at_me_materialise(m, a) : NULL;
      if (!held[i]) return AT_OK;
      data = held[i]->ref->base;
      rank = held[i]->rank;
      for (uint32_t d = 0; d < rank; d++)
        at_me_put(m, list, one * i + FIELD(size) + 8 * d,
                  at_em_i64(e, held[i]->dim[d]));
    } else {
      data = stack(m, 8);
      at_em_store(e, data, t, at_ix_const(0),
                  (at_val){at_me_scalar(m, v), NULL});
      rank = on_sparse_core(m);  // an array of one
      at_me_put(m, list, one * i + FIELD(size), at_em_i64(e, 1));
    }
    at_me_put(m, list, one * i + FIELD(data), data);
    at_me_put(m, list, one * i + FIELD(dtype), at_me_i32(m, t));
    at_me_put(m, list, one * i + FIELD(rank), at_me_i32(m, rank));
  }
  LLVMValueRef args[5] = {m->core, tag_of(m, op, n), list, at_em_i64(e, n),
                          at_me_loc_value(m, op)};
  at_b_call(e, "at_core_log", NULL, args, 5);
  for (uint32_t i = 0; i < n; i++) at_me_node_drop(m, held[i]);
  return AT_OK;
}

// Prints a ref as memory has it, in the shape that the attribute says.
at_status at_me_op_log_buffer(at_me *m, at_mop *op) {
  const at_me_ref *r = at_me_memory(m, op->operands[0]);
  int64_t dim[AT_CORE_MAX_RANK];
  uint32_t n;
  if (!r) return AT_OK;
  if (!at_mosaic_op_ints(op, "shape", dim, AT_CORE_MAX_RANK, &n))
    return at_me_refuse(m, op, "its shape");
  LLVMValueRef list = stack(m, sizeof(at_core_log_arg));
  at_me_put(m, list, FIELD(data), at_me_whole(m, op, r).base);
  at_me_put(m, list, FIELD(dtype), at_me_i32(m, r->storage));
  at_me_put(m, list, FIELD(rank), at_me_i32(m, n));
  for (uint32_t d = 0; d < n; d++)
    at_me_put(m, list, FIELD(size) + 8 * d, at_em_i64(m->e, dim[d]));
  LLVMValueRef args[5] = {m->core, tag_of(m, op, 1), list, at_em_i64(m->e, 1),
                          at_me_loc_value(m, op)};
  at_b_call(m->e, "at_core_log", NULL, args, 5);
  return AT_OK;
}
#undef FIELD

// Only the begin has a message; at_core_trace keeps it for the end.
static at_status emit_trace(at_me *m, at_mop *op, bool begin) {
  LLVMValueRef args[3] = {
      m->core, begin ? text_of(m, op, "message") : at_b_null(at_b_ptr(m->e)),
      at_me_i32(m, begin)};
  at_b_call(m->e, "at_core_trace", NULL, args, 3);
  return AT_OK;
}

at_status at_me_op_trace_start(at_me *m, at_mop *op) {
  return emit_trace(m, op, true);
}
at_status at_me_op_trace_stop(at_me *m, at_mop *op) {
  return emit_trace(m, op, false);
}

// A labelled number on the kernel's timeline, as 64 bits.
at_status at_me_op_trace_value(at_me *m, at_mop *op) {
  at_mvalue *v = op->operands[0];
  at_dtype t = at_mosaic_dtype_of(v->type);
  at_val x = at_em_convert(m->e, t, AT_S64, (at_val){at_me_scalar(m, v), NULL});
  LLVMValueRef args[3] = {m->core, text_of(m, op, "label"), x.re};
  at_b_call(m->e, "at_core_trace_value", NULL, args, 3);
  return AT_OK;
}

// Cycles, extended to 64 bits.
at_status at_me_op_delay(at_me *m, at_mop *op) {
  LLVMValueRef args[2] = {m->core,
                          at_me_i64(m, at_me_scalar(m, op->operands[0]))};
  at_b_call(m->e, "at_core_delay", NULL, args, 2);
  return AT_OK;
}
