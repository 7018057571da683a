// Custom calls of the SparseCore, read and checked: what the engine is told.
#include "base/log.h"
#include "base/verify.h"
#include "machine/topology.h"
#include "sparsecore/engine.h"
#include "sparsecore/sparsecore.h"

enum {
  kPartitions = 8,   // row pointers come in blocks of at least 8
  kMinibatches = 64  // that there is room for
};

static const struct {
  const char *target;
  at_sc_kind kind;
} g_targets[] = {
    {"SparseDenseMatmulOp", AT_SC_LOOKUP},
    {"SparseDenseMatmulWithMinibatchingOp", AT_SC_LOOKUP_MINIBATCHES},
    {"SparseDenseMatmulGradOpWithOptimizerUpdate", AT_SC_UPDATE},
    {"SparseDenseMatmulGradOptimizerUpdateWithMinibatchingOp",
     AT_SC_UPDATE_MINIBATCHES},
    // What the library calls it for Adagrad with momentum; libtpu does not
    // know the name.
    {"SparseDenseMatmulGradOpWithOptimizerUpdateWithMinibatching",
     AT_SC_UPDATE_MINIBATCHES_FIRST},
    {"SparseDenseMatmulLocalOp", AT_SC_LOCAL},
    {"SparseActivationsUnstackInterleaved", AT_SC_UNSTACK},
    {"SparseGradientsStackInterleaved", AT_SC_STACK},
    {"SparseGather", AT_SC_GATHER},
    {"SparseIota", AT_SC_IOTA},
    {"SparseMapRow", AT_SC_MAP_ROW},
};

// The enum has them side by side.
bool at_sc_is_engine(at_sc_kind k) {
  return k >= AT_SC_LOOKUP && k <= AT_SC_LOCAL;
}

// By the name in the program; backend_config is not looked at.
at_sc_kind at_sc_kind_of(const at_node *n) {
  if (n->op != AT_OP_CUSTOM_CALL) return AT_SC_NONE;
  at_str t = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  for (size_t i = 0; i < AT_LEN(g_targets); i++)
    if (at_str_is(t, g_targets[i].target)) return g_targets[i].kind;
  return AT_SC_NONE;
}

// From the machine's file.
uint32_t at_sc_count(at_str target) {
  const at_machine *m = at_topology_machine(target);
  if (!m) return 0;
  return (uint32_t)at_machine_number(m, "sparse_cores_per_device", 0);
}

// ---- Operands
typedef struct reader {
  const at_node *n;
  at_sc_call *c;
  uint32_t next;  // operand of the call that is read next
} reader;

#ifndef __clang_analyzer__
#define BAD(r, ...)                                                 \
  at_status_prefix(AT_FAIL(AT_INVALID_ARGUMENT, __VA_ARGS__), "%s", \
                   target_of(r))
#else  // see AT_FAIL
#define BAD(r, ...) \
  ((void)target_of(r), AT_FAIL(AT_INVALID_ARGUMENT, __VA_ARGS__))
#endif

// For messages.
static const char *target_of(const reader *r) {
  at_sc_kind k = at_sc_kind_of(r->n);
  for (size_t i = 0; i < AT_LEN(g_targets); i++)
    if (g_targets[i].kind == k) return g_targets[i].target;
  return "custom call";
}

static const at_type *type_of(const reader *r, uint32_t operand) {
  return at_value_type(r->n->operands[operand]);
}

static bool is_static(const at_type *t) {
  for (uint32_t d = 0; d < t->rank; d++)
    if (t->dims[d] < 0) return false;
  return true;
}

// The next operand of the call becomes the next of the engine.
static at_status take(reader *r, const char *name, const at_type **out) {
  if (r->next >= r->n->num_operands)
    return BAD(r, "operand %u (%s) is missing", r->next, name);
  const at_type *t = type_of(r, r->next);
  if (!is_static(t)) return BAD(r, "%s has no static shape", name);
  r->c->operands[r->c->num_operands++] = r->next++;
  *out = t;
  return AT_OK;
}

// The next operand, s32 or f32 of rank 1.
static at_status take_list(reader *r, const char *name, at_dtype t,
                           uint64_t *count) {
  const at_type *type;
  AT_TRY(take(r, name, &type));
  if (type->dtype != t || type->rank != 1)
    return BAD(r, "%s must be a list of %s, got %s of rank %u", name,
               at_dtype_of(t)->text, at_dtype_of(type->dtype)->text,
               type->rank);
  *count = (uint64_t)type->dims[0];
  return AT_OK;
}

// ids, samples, gains.
static at_status take_ids(reader *r) {
  at_x_sparse *x = &r->c->x;
  uint64_t samples, gains;
  AT_TRY(take_list(r, "ids", AT_S32, &x->ids));
  AT_TRY(take_list(r, "samples", AT_S32, &samples));
  AT_TRY(take_list(r, "gains", AT_F32, &gains));
  if (samples != x->ids || gains != x->ids)
    return BAD(r, "ids, samples and gains differ in length: %llu, %llu, %llu",
               (unsigned long long)x->ids, (unsigned long long)samples,
               (unsigned long long)gains);
  return AT_OK;
}

// Row pointers of s SparseCores on each device, one minibatch.
static uint64_t pointers_of(uint32_t devices, uint64_t scs) {
  return AT_MAX(scs * devices, (uint64_t)kPartitions) * scs;
}

// Input may have been made for another number of SparseCores than the target
// has; the row pointers tell. Where the number of minibatches does, it is found
// out when that is known (engine.c).
static uint32_t infer_scs(const at_x_sparse *x, uint32_t scs) {
  // As chips have them.
  static const uint32_t others[] = {1, 2, 4};
  uint64_t batches = x->minibatching ? kMinibatches : 1;
  if (x->pointers == pointers_of(x->num_devices, scs) * batches) return scs;
  for (size_t i = 0; i < AT_LEN(others); i++)
    if (x->pointers == pointers_of(x->num_devices, others[i]) * batches)
      return others[i];
  return x->minibatching ? 0 : scs;
}

// Row pointers decide how many SparseCores a device has, which may differ from
// the target's with a warning.
static at_status take_pointers(reader *r) {
  at_x_sparse *x = &r->c->x;
  uint32_t scs = x->scs_per_device;
  AT_TRY(take_list(r, "row pointers", AT_S32, &x->pointers));
  x->scs_per_device = infer_scs(x, scs);
  uint64_t one = pointers_of(x->num_devices, AT_MAX(x->scs_per_device, 1u));
  if (x->pointers == 0 || x->pointers % one ||
      (!x->minibatching && x->pointers != one))
    return BAD(r,
               "row_ptrs should be aligned to HBM granularity!\ndetail: %llu "
               "row pointers; %u devices of %u SparseCores take %llu\nhint: is "
               "the input made for this number of devices and SparseCores?",
               (unsigned long long)x->pointers, x->num_devices, scs,
               (unsigned long long)pointers_of(x->num_devices, scs));
  if (x->scs_per_device != scs && x->scs_per_device)
    at_log(AT_LOG_WARNING,
           "%s: the row pointers are those of %u SparseCores on a device; the "
           "target has %u",
           target_of(r), x->scs_per_device, scs);
  return AT_OK;
}

// Only calls that have some take the operand.
static at_status take_minibatches(reader *r) {
  const at_type *t;
  if (!r->c->x.minibatching) return AT_OK;
  AT_TRY(take(r, "number of minibatches", &t));
  if (t->dtype != AT_S32 || at_type_elements(t) != 1)
    return BAD(r, "the number of minibatches must be one s32");
  return AT_OK;
}

// A table of rank 1 has rows of one element.
static uint64_t width_of(const at_type *t) {
  return t->rank == 2 ? (uint64_t)t->dims[1] : 1;
}

// Sets the table's size and type in x.
static at_status take_table(reader *r) {
  at_x_sparse *x = &r->c->x;
  const at_type *t;
  AT_TRY(take(r, "table", &t));
  if (t->rank != 1 && t->rank != 2)
    return BAD(r, "a table has rank 1 or 2, got %u", t->rank);
  x->dtype = t->dtype;
  x->rows = (uint64_t)t->dims[0];
  x->width = width_of(t);
  bool integer = t->dtype == AT_S8 || t->dtype == AT_U8;
  bool update = x->op == AT_SPARSE_UPDATE;
  if (t->dtype != AT_F32 && (update || (t->dtype != AT_BF16 && !integer)))
    return AT_FAIL(AT_UNIMPLEMENTED, "%s of a table of %s", target_of(r),
                   at_dtype_of(t->dtype)->text);
  if (integer && !r->c->config.quantised)
    return BAD(r,
               "a table of %s needs a quantization_config\nhint: min_value, "
               "max_value and num_buckets say what its levels mean",
               at_dtype_of(t->dtype)->text);
  uint64_t bytes = at_type_bytes(t);
  // A limit of the chip's compiler, in its words.
  if (bytes > 16ull << 30)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "SparseCore only supports 16 GiB of HBM per tensor, got "
                   "%llu in %s",
                   (unsigned long long)bytes, target_of(r));
  if (x->op != AT_SPARSE_LOCAL && x->scs_per_device &&
      x->rows % x->scs_per_device)
    return BAD(r, "%llu rows do not divide over %u SparseCores",
               (unsigned long long)x->rows, x->scs_per_device);
  return AT_OK;
}

// The batch, from the result of a lookup or the gradient of an update.
static at_status check_samples(reader *r, const char *name, const at_type *t) {
  at_x_sparse *x = &r->c->x;
  if (t->dtype != AT_F32 || (t->rank != 1 && t->rank != 2))
    return BAD(r, "%s must be f32 of rank 1 or 2", name);
  x->samples = (uint64_t)t->dims[0];
  if (x->op != AT_SPARSE_LOCAL && x->scs_per_device &&
      x->samples % x->scs_per_device)
    return BAD(r, "a batch of %llu does not divide over %u SparseCores",
               (unsigned long long)x->samples, x->scs_per_device);
  return AT_OK;
}

// What the batch and the table must share.
static at_status check_width(const reader *r, const char *name,
                             const at_type *t) {
  if (width_of(t) == r->c->x.width) return AT_OK;
  return BAD(r, "%s is %llu wide, the table %llu", name,
             (unsigned long long)width_of(t),
             (unsigned long long)r->c->x.width);
}

// LOCAL has its table first; the others have it behind the lists.
static at_status read_lookup(reader *r) {
  at_x_sparse *x = &r->c->x;
  const at_type *t;
  if (r->n->num_results != 1) return BAD(r, "one result is expected");
  if (x->op == AT_SPARSE_LOCAL) {
    r->next = 1;
    AT_TRY(take_ids(r));
    r->next = 0;
    AT_TRY(take_table(r));
    r->next = 4;
  } else {
    AT_TRY(take_pointers(r));
    AT_TRY(take_ids(r));
    AT_TRY(take_minibatches(r));
    AT_TRY(take_table(r));
  }
  x->num_tables = 1;
  x->has_init = r->next < r->n->num_operands;
  AT_TRY(check_samples(r, "the result", &r->n->types[0]));
  AT_TRY(check_width(r, "the result", &r->n->types[0]));
  if (!x->has_init) return AT_OK;
  AT_TRY(take(r, "initial value", &t));
  if (!at_type_eq(t, &r->n->types[0]))
    return BAD(r, "the initial value and the result differ in type");
  return AT_OK;
}

// The table and its slots, of one type.
static at_status take_tables(reader *r) {
  at_x_sparse *x = &r->c->x;
  const at_type *t;
  AT_TRY(take_table(r));
  for (uint32_t i = 1; i < x->num_tables; i++) {
    AT_TRY(take(r, "slot variable", &t));
    if (!at_type_eq(t, type_of(r, r->next - 1 - i)))
      return BAD(r, "slot variable %u and the table differ in type", i - 1);
  }
  return AT_OK;
}

// All operands that are left: scalars of any type.
static at_status take_hypers(reader *r) {
  at_x_sparse *x = &r->c->x;
  int64_t said = r->c->config.num_hypers;
  uint32_t left = r->n->num_operands - r->next;
  if (left > AT_SPARSE_MAX_HYPERS)
    return AT_FAIL(AT_UNIMPLEMENTED, "%s with %u hyperparameters", target_of(r),
                   left);
  if (said >= 0 && said != left)
    return BAD(r, "num_hyperparameters is %lld, but %u operands are left",
               (long long)said, left);
  for (; x->num_hypers < left; x->num_hypers++) {
    const at_type *t;
    AT_TRY(take(r, "hyperparameter", &t));
    if (at_type_elements(t) != 1)
      return BAD(r, "hyperparameter %u is not a scalar", x->num_hypers);
    x->hyper_bytes[x->num_hypers] = (uint32_t)at_type_bytes(t);
  }
  return AT_OK;
}

// The called computation: a row of gradient, the tables' rows and the
// hyperparameters in; the tables' rows out.
static at_status check_optimizer(reader *r) {
  const at_x_sparse *x = &r->c->x;
  if (r->n->num_regions != 1)
    return BAD(r, "one called computation is expected, got %u",
               r->n->num_regions);
  const at_comp *o = r->c->optimizer = r->n->regions[0];
  uint32_t want = 1 + x->num_tables + x->num_hypers;
  if (o->num_params != want || o->num_results != x->num_tables)
    return BAD(r,
               "the optimizer takes %u rows and gives %u; gradient, %u tables "
               "and %u hyperparameters make %u",
               o->num_params, o->num_results, x->num_tables, x->num_hypers,
               want);
  for (uint32_t i = 0; i < 1 + x->num_tables; i++)
    if ((uint64_t)at_type_elements(&o->params[i]->types[0]) != x->width ||
        o->params[i]->types[0].dtype != AT_F32)
      return BAD(r, "parameter %u of the optimizer is not a row of %llu f32", i,
                 (unsigned long long)x->width);
  for (uint32_t i = 0; i < o->num_results; i++)
    if ((uint64_t)at_type_elements(at_value_type(o->results[i])) != x->width ||
        at_value_type(o->results[i])->dtype != AT_F32)
      return BAD(r, "result %u of the optimizer is not a row of %llu f32", i,
                 (unsigned long long)x->width);
  return AT_OK;
}

// Calls differ in whether the gradient stands before the tables or behind.
static at_status read_update(reader *r) {
  at_x_sparse *x = &r->c->x;
  const at_type *gradient;
  x->num_tables = r->n->num_results;
  if (x->num_tables < 1 || x->num_tables > AT_SPARSE_MAX_TABLES)
    return AT_FAIL(AT_UNIMPLEMENTED, "%s of %u tables", target_of(r),
                   x->num_tables);
  if (r->c->config.num_slots >= 0 &&
      r->c->config.num_slots + 1 != x->num_tables)
    return BAD(r, "num_slot_variables is %lld, but there are %u results",
               (long long)r->c->config.num_slots, x->num_tables);
  AT_TRY(take_pointers(r));
  AT_TRY(take_ids(r));
  AT_TRY(take_minibatches(r));
  if (r->c->kind != AT_SC_UPDATE_MINIBATCHES) {
    AT_TRY(take(r, "gradient", &gradient));
    AT_TRY(take_tables(r));
  } else {  // here the gradient comes behind the tables
    uint32_t at = r->next;
    if (at + x->num_tables >= r->n->num_operands)
      return BAD(r, "%u operands are too few", r->n->num_operands);
    r->next += x->num_tables;
    AT_TRY(take(r, "gradient", &gradient));
    uint32_t after = r->next;
    r->next = at;
    AT_TRY(take_tables(r));
    r->next = after;
  }
  AT_TRY(check_samples(r, "the gradient", gradient));
  AT_TRY(check_width(r, "the gradient", gradient));
  AT_TRY(take_hypers(r));
  for (uint32_t i = 0; i < x->num_tables; i++)
    if (!at_type_eq(&r->n->types[i],
                    type_of(r, r->c->operands[at_x_sparse_table(x) + i])))
      return BAD(r, "result %u and its table differ in type", i);
  return check_optimizer(r);
}

// Is each operand and result as long as the engine will take it to be? Types
// were checked one by one; this holds the order of the operands against them.
static bool buffers_fit(const at_node *n, const at_sc_call *c) {
  const at_x_sparse *x = &c->x;
  uint32_t operands = at_x_sparse_operands(x);
  bool fit =
      operands == n->num_operands && at_x_sparse_results(x) == n->num_results;
  for (uint32_t i = 0; fit && i < operands; i++)
    fit = c->operands[i] < n->num_operands &&
          at_type_bytes(at_value_type(n->operands[c->operands[i]])) ==
              at_sc_buffer_bytes(x, i);
  for (uint32_t i = 0; fit && i < n->num_results; i++)
    fit = at_type_bytes(&n->types[i]) == at_sc_buffer_bytes(x, operands + i);
  return fit;
}

// Borrows nothing but the optimizer's computation.
at_status at_sc_call_read(const at_node *n, uint32_t num_devices, uint32_t scs,
                          at_sc_call *out) {
  at_sc_call c = {.kind = at_sc_kind_of(n)};
  reader r = {n, &c, 0};
  if (!scs)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "Only Megachip mode is supporting mixed device type "
                   "computations.\ndetail: %s: the target has no SparseCores\n"
                   "hint: ATOLL_TARGET=v6e, v5p, v4 and 7x have some",
                   target_of(&r));
  at_status st =
      at_sc_config_read(at_node_str(n, AT_ATTR_BACKEND_CONFIG), &c.config);
  if (st.err) return at_status_prefix(st, "%s", target_of(&r));
  // The engine's parameters follow from the kind and the config; shapes are
  // read next.
  bool first = c.kind == AT_SC_UPDATE_MINIBATCHES_FIRST;
  bool update =
      first || c.kind == AT_SC_UPDATE || c.kind == AT_SC_UPDATE_MINIBATCHES;
  c.x = (at_x_sparse){.op = c.kind == AT_SC_LOCAL ? AT_SPARSE_LOCAL
                            : update              ? AT_SPARSE_UPDATE
                                                  : AT_SPARSE_LOOKUP,
                      .num_devices = num_devices,
                      .scs_per_device = scs,
                      .minibatching = first ||
                                      c.kind == AT_SC_LOOKUP_MINIBATCHES ||
                                      c.kind == AT_SC_UPDATE_MINIBATCHES,
                      .num_buckets = (uint32_t)c.config.num_buckets,
                      .low = (float)c.config.low,
                      .high = (float)c.config.high,
                      .max_ids = (uint64_t)c.config.max_ids,
                      .max_unique = (uint64_t)c.config.max_unique};
  AT_TRY(update ? read_update(&r) : read_lookup(&r));
  if (r.next != n->num_operands)
    return BAD(&r, "%u operands are too many", n->num_operands);
  if (!c.x.minibatching && c.x.op != AT_SPARSE_LOCAL &&
      c.x.ids % c.x.scs_per_device)
    return BAD(&r, "buffers of %llu ids do not divide over %u SparseCores",
               (unsigned long long)c.x.ids, c.x.scs_per_device);
  AT_VERIFY(buffers_fit(n, &c));
  *out = c;
  return AT_OK;
}

// ---- Rows of ids
static bool is_list(const at_type *t) {
  return t->dtype == AT_S32 && t->rank == 1;
}

// Of SparseGather and SparseIota.
at_status at_sc_csr_read(const at_node *n, at_k_csr_params *out) {
  at_sc_config config;
  reader r = {.n = n};
  bool gather = at_sc_kind_of(n) == AT_SC_GATHER;
  uint32_t lists = gather ? 1 : 0, operands = gather ? 3 : 1;
  AT_TRY(at_status_prefix(
      at_sc_config_read(at_node_str(n, AT_ATTR_BACKEND_CONFIG), &config), "%s",
      target_of(&r)));
  if (n->num_operands != operands || n->num_results != 1)
    return BAD(&r, "takes %u operands and gives 1 result, got %u and %u",
               operands, n->num_operands, n->num_results);
  for (uint32_t i = 0; i < operands; i++)
    if (!is_static(type_of(&r, i)))
      return BAD(&r, "operand %u has no static shape", i);
  if (!is_static(&n->types[0]))
    return BAD(&r, "its result has no static shape");
  for (uint32_t i = lists; i < operands; i++)
    if (!is_list(type_of(&r, i)))
      return BAD(&r, "operand %u must be a list of s32", i);
  const at_type *to = &n->types[0];
  if (!config.max_per_row)
    return BAD(&r, "csr_config has no max_non_zeroes_per_row");
  *out = (at_k_csr_params){.rows = type_of(&r, lists)->dims[0],
                           .entries = to->rank ? to->dims[0] : 0,
                           .max_per_row = config.max_per_row,
                           .alignment = config.max_pad,
                           .pad_value = (int32_t)config.pad_value};
  if (!gather) return is_list(to) ? AT_OK : BAD(&r, "gives a list of s32");
  const at_type *table = type_of(&r, 0);
  if (table->rank != 2 || to->rank != 2 || table->dtype != to->dtype ||
      to->dims[0] != type_of(&r, 2)->dims[0] || to->dims[1] != table->dims[1])
    return BAD(&r, "gives a row of the table for each id");
  out->table_rows = table->dims[0];
  out->row_bytes = table->dims[1] * (int64_t)at_dtype_bytes(table->dtype);
  AT_ASSERT((uint64_t)(out->row_bytes * out->table_rows) ==
                at_type_bytes(table) &&
            (uint64_t)(out->row_bytes * out->entries) == at_type_bytes(to));
  return AT_OK;
}
