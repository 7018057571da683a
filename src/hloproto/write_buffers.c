// Where the values of a program lie, as XLA's BufferAssignmentProto (hlo.proto;
// its fields are named beside their numbers).
#include <stdlib.h>

#include "hloproto/write_internal.h"

// The message's three lists as they grow, and the next free numbers.
typedef struct buffers {
  at_strbuf logical, allocations, trace;
  int64_t next_id, next_allocation;
} buffers;

enum { COLOR_DEVICE = 0, COLOR_HOST = 5 };  // XLA's memory spaces
// Appends a LogicalBuffer that the value at `where` fills; returns its id.
static int64_t put_logical(buffers *b, at_hp_place_of where, uint64_t bytes,
                           int color) {
  at_strbuf one = {0}, location = {0};
  int64_t id = b->next_id++;
  at_proto_write_int(&location, 4, (uint64_t)where.id);  // instruction_id
  if (where.index >= 0)                                  // shape_index
    at_proto_write_ints(&location, 3, (at_dims){&where.index, 1});
  at_proto_write_int(&one, 1, (uint64_t)id);     // LogicalBufferProto.id
  at_proto_write_int(&one, 2, bytes);            // size
  at_proto_write_message(&one, 3, &location);    // defined_at
  at_proto_write_int(&one, 4, (uint64_t)color);  // color
  at_proto_write_message(&b->logical, 1, &one);
  return id;
}

// Says that a logical buffer lies at this offset of the allocation.
static void put_assigned(at_strbuf *allocation, int64_t id, uint64_t offset,
                         uint64_t bytes) {
  at_strbuf one = {0};
  at_proto_write_int(&one, 1, (uint64_t)id);  // logical_buffer_id
  at_proto_write_int(&one, 2, offset);        // offset
  at_proto_write_int(&one, 3, bytes);         // size
  at_proto_write_message(allocation, 9, &one);
}

// Ends an allocation of that size; `fields` holds what is special about it and
// is freed.
static void put_allocation(buffers *b, uint64_t bytes, int color,
                           at_strbuf *fields) {
  at_strbuf one = {0};
  at_proto_write_int(&one, 1, (uint64_t)b->next_allocation++);  // index
  at_proto_write_int(&one, 2, bytes);                           // size
  at_proto_write_int(&one, 8, (uint64_t)color);                 // color
  at_strbuf_add(&one, at_strbuf_str(fields));
  one.failed |= fields->failed;
  at_strbuf_free(fields);
  at_proto_write_message(&b->allocations, 3, &one);
}

// An argument or result, alone in its allocation. on_device: its bytes there;
// NULL: dense.
static void put_io(buffers *b, const at_hp_defined *d, at_value v,
                   const at_io_info *info, const uint64_t *on_device,
                   int64_t param, bool live_out) {
  at_hp_place_of where;
  if (!at_hp_defined_at(d, v, &where)) return;
  int color = at_hp_is_host(info ? info->memory_kind : NULL) ? COLOR_HOST
                                                             : COLOR_DEVICE;
  uint64_t bytes = on_device && color == COLOR_DEVICE
                       ? *on_device
                       : at_type_bytes(at_value_type(v));
  at_strbuf fields = {0};
  if (param >= 0) {
    at_proto_write_int(&fields, 5, 1);  // is_entry_computation_parameter
    at_proto_write_int(&fields, 6, (uint64_t)param);  // parameter_number
  }
  if (live_out) at_proto_write_int(&fields, 7, 1);  // maybe_live_out
  put_assigned(&fields, put_logical(b, where, bytes, color), 0, bytes);
  put_allocation(b, bytes, color, &fields);
}

// One allocation for each argument; results that an argument was donated for
// lie there and get none of their own.
static at_status put_ios(buffers *b, const at_hp_defined *d, const at_module *m,
                         const at_hloproto_memory *memory, at_arena *a) {
  const at_comp *e = m->entry;
  bool *given;  // of each result: it lies in an argument
  AT_TRY_ALLOC(given, at_new(a, bool, (size_t)e->num_results + 1));
  for (uint32_t k = 0; k < e->num_params; k++) {
    const at_io_info *info = m->params ? &m->params[k] : NULL;
    const uint64_t *bytes = memory->param_bytes;
    put_io(b, d, (at_value){e->params[k], 0}, info, bytes ? bytes + k : NULL, k,
           info && info->alias >= 0);
    if (info && info->alias >= 0 && (uint32_t)info->alias < e->num_results)
      given[info->alias] = true;
  }
  for (uint32_t r = 0; r < e->num_results; r++) {
    const uint64_t *bytes = memory->result_bytes;
    if (!given[r])
      put_io(b, d, e->results[r], m->results ? &m->results[r] : NULL,
             bytes ? bytes + r : NULL, -1, true);
  }
  return AT_OK;
}

// One event of the heap simulation: `instruction` begins or ends the buffer.
static void put_happening(buffers *b, bool begins, int64_t id,
                          const char *instruction) {
  at_strbuf one = {0};
  at_proto_write_int(&one, 1, !begins);                   // kind: ALLOC, FREE
  at_proto_write_int(&one, 2, (uint64_t)id);              // buffer_id
  at_proto_write_bytes(&one, 3, AT_STR("main"));          // computation_name
  at_proto_write_bytes(&one, 4, at_str_of(instruction));  // instruction_name
  at_proto_write_message(&b->trace, 1, &one);
}

// Temporaries in the order of their ends. Those that have ended before one
// begins have begun before it, as they are listed by begin.
static int by_end(const void *x, const void *y) {
  const at_hloproto_temp *a = *(const at_hloproto_temp *const *)x;
  const at_hloproto_temp *b = *(const at_hloproto_temp *const *)y;
  if (a->end != b->end) return a->end < b->end ? -1 : 1;
  return (a > b) - (a < b);
}

static at_status sort_ends(const at_hloproto_memory *m, at_arena *a,
                           const at_hloproto_temp ***out) {
  AT_TRY_ALLOC(*out,
               at_new(a, const at_hloproto_temp *, (size_t)m->num_temps + 1));
  for (uint32_t i = 0; i < m->num_temps; i++) (*out)[i] = &m->temps[i];
  qsort(*out, m->num_temps, sizeof **out, by_end);
  return AT_OK;
}

// Buffers in the order of their begins; those that end do so before.
static at_status put_temps(buffers *b, const at_hp_defined *d,
                           const at_hloproto_memory *m, at_arena *a) {
  at_strbuf fields = {0};
  int64_t *ids;
  const at_hloproto_temp **ends;
  uint32_t ended = 0;
  AT_TRY_ALLOC(ids, at_new(a, int64_t, (size_t)m->num_temps + 1));
  AT_TRY(sort_ends(m, a, &ends));
  if (d->scratch_bytes) {
    at_hp_place_of where = {d->scratch_id, -1};
    int64_t id = put_logical(b, where, d->scratch_bytes, COLOR_DEVICE);
    put_assigned(&fields, id, m->temp_bytes - d->scratch_bytes,
                 d->scratch_bytes);
    put_happening(b, true, id, d->scratch_name);
  }
  for (uint32_t i = 0; i < m->num_temps; i++) {
    const at_hloproto_temp *t = &m->temps[i];
    at_hp_place_of where;
    ids[i] = -1;
    if (!at_hp_defined_at(d, t->value, &where)) continue;
    for (; ended < m->num_temps && ends[ended]->end < t->begin; ended++) {
      int64_t id = ids[ends[ended] - m->temps];
      if (id >= 0) put_happening(b, false, id, t->name);
    }
    ids[i] = put_logical(b, where, t->bytes, COLOR_DEVICE);
    put_assigned(&fields, ids[i], t->offset, t->bytes);
    put_happening(b, true, ids[i], t->name);
  }
  if (m->temp_bytes) put_allocation(b, m->temp_bytes, COLOR_DEVICE, &fields);
  at_strbuf_free(&fields);
  return AT_OK;
}

// The largest sum of bytes over temporaries that live at the begin of one of
// them; only there can the sum grow.
at_status at_hp_peak(const at_hloproto_memory *m, at_arena *a, uint64_t *out) {
  const at_hloproto_temp **ends;
  uint64_t sum = 0;
  uint32_t ended = 0;
  *out = 0;
  AT_TRY(sort_ends(m, a, &ends));
  for (uint32_t i = 0; i < m->num_temps; i++) {
    sum += m->temps[i].bytes;
    while (ended < m->num_temps && ends[ended]->end < m->temps[i].begin)
      sum -= ends[ended++]->bytes;
    *out = AT_MAX(*out, sum);
  }
  return AT_OK;
}

// Failures of all three lists are passed on; they are freed in any case.
at_status at_hp_put_buffers(at_strbuf *out, uint32_t number,
                            const at_hp_defined *d, const at_module *m,
                            const at_hloproto_memory *memory, at_arena *a) {
  buffers b = {0};
  at_strbuf all = {0};
  at_status st = put_ios(&b, d, m, memory, a);
  if (!st.err) st = put_temps(&b, d, memory, a);
  at_strbuf_add(&all, at_strbuf_str(&b.logical));
  at_strbuf_add(&all, at_strbuf_str(&b.allocations));
  if (b.trace.len) {
    at_proto_write_int(&b.trace, 2, 1);  // whole_module_simulation
    at_proto_write_int(&b.trace, 3, (uint64_t)b.next_allocation - 1);
    at_proto_write_bytes(&all, 4, at_strbuf_str(&b.trace));
  }
  all.failed |= b.logical.failed | b.allocations.failed | b.trace.failed;
  at_strbuf_free(&b.logical);
  at_strbuf_free(&b.allocations);
  at_strbuf_free(&b.trace);
  at_proto_write_message(out, number, &all);
  return st;
}
