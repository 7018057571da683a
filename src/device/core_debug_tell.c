// What a debugger is told: where a core stands, what there is on each core, and
// the values of refs.
#include <stdlib.h>

#include "base/json.h"
#include "device/core_debug.h"
#include "device/core_shadow.h"

// A member of the object that is being written.
static void put_int(at_json_writer *w, const char *key, int64_t v) {
  at_json_key(w, at_str_of(key));
  at_json_int(w, v);
}

static void put_text(at_json_writer *w, const char *key, const char *v) {
  at_json_put_str(w, key, at_str_of(v));
}

// n <= AT_CORE_MAX_RANK.
static void put_grid(at_json_writer *w, const char *key, const int32_t *v,
                     uint32_t n) {
  int64_t wide[AT_CORE_MAX_RANK];
  for (uint32_t i = 0; i < n; i++) wide[i] = v[i];
  at_json_put_ints(w, key, wide, n);
}

// "place": where it is in the source, as far as that is known.
static void put_place(at_json_writer *w, const char *key, const core_state *c,
                      int32_t loc) {
  const at_xlocation *l = debug_place(c, loc);
  at_json_key(w, at_str_of(key));
  at_json_begin_object(w);
  if (l) {
    put_text(w, "file", c->program->strings + l->file);
    put_int(w, "line", l->line);
    put_int(w, "column", l->column);
    put_text(w, "op", c->program->strings + l->op);
  }
  at_json_end_object(w);
}

// As messages call it.
static void put_sem_name(at_json_writer *w, const char *key,
                         const core_state *c, const sem *s) {
  at_strbuf b = {0};
  core_name_sem(c, s, &b);
  put_text(w, key, b.ptr ? b.ptr : "?");
  at_strbuf_free(&b);
}

// ---- Stops
void debug_tell_stop(const debug_core *d, const char *why, int64_t id,
                     const char *kernel, at_status st, at_strbuf *out) {
  at_json_writer w = {out, false};
  bool hello = !strcmp(why, "hello");
  at_json_begin_object(&w);
  put_text(&w, "event", hello ? "hello" : "stop");
  put_text(&w, "why", why);
  put_int(&w, "id", id);
  put_int(&w, "core", d ? d->id : 0);
  put_text(&w, "kernel", kernel);
  put_text(&w, "message", st.err ? at_status_message(st) : "");
  at_json_end_object(&w);
}

// ---- Refs
// A ref as it lies in memory now.
typedef struct ref_now {
  const uint8_t *base;  // NULL: it is not there yet
  at_dtype dtype;       // INVALID: semaphores
  uint32_t space, rank;
  int64_t dims[AT_CORE_MAX_RANK], stride[AT_CORE_MAX_RANK];
} ref_now;

// A block in its buffer, or the whole operand where `array` asks for it.
static ref_now argument_now(const core_state *c, uint32_t i, bool array) {
  const at_xcore_ref *x = &c->program->refs[i];
  const window *w = &c->windows[i];
  bool block = x->window != AT_CORE_WHOLE && !array;
  bool operand = array && w->operand && !w->fill;
  ref_now r = {.dtype = (at_dtype)x->dtype, .space = x->space, .rank = x->rank};
  r.base = operand ? w->operand : c->refs[i].base;
  if (array && w->fill) r.base = NULL;
  if (w->operand && !array && !w->loaded) r.base = NULL;
  if (x->space == AT_CORE_SEM) r.dtype = AT_INVALID;
  memcpy(r.dims, block ? x->block : x->dims, sizeof r.dims);
  memcpy(r.stride, operand ? w->operand_stride : c->refs[i].stride,
         sizeof r.stride);
  return r;
}

// A ref that the body made by a view or an allocation.
static ref_now made_now(const debug_made *m) {
  ref_now r = {.base = m->view.base,
               .dtype = (at_dtype)m->dtype,
               .space = (uint32_t)m->space,
               .rank = (uint32_t)m->view.rank};
  memcpy(r.dims, m->view.size, sizeof r.dims);
  memcpy(r.stride, m->view.stride, sizeof r.stride);
  return r;
}

// Words that the client shows.
static const char *space_name(uint32_t space) {
  static const char *const names[AT_CORE_SPACE_COUNT] = {
      "hbm", "vmem", "smem", "semaphore", "vmem_shared", "host"};
  return space < AT_CORE_SPACE_COUNT ? names[space] : "?";
}

static const char *dtype_name(at_dtype t) {
  return t == AT_INVALID ? "semaphore" : at_dtype_of(t)->text;
}

// "there" is false while a window is not loaded.
static void put_ref(at_json_writer *w, const ref_now *r) {
  put_text(w, "space", space_name(r->space));
  put_text(w, "dtype", dtype_name(r->dtype));
  at_json_put_ints(w, "shape", r->dims, r->rank);
  at_json_key(w, AT_STR("there"));
  at_json_bool(w, r->base != NULL);
}

// Windows with the whole array's shape and the current block.
static void put_argument(at_json_writer *w, const debug_core *d, uint32_t i) {
  static const char *const roles[] = {"prefetch", "in", "out", "scratch"};
  const core_state *c = d->core;
  const at_xcore_ref *x = &c->program->refs[i];
  ref_now r = argument_now(c, i, false);
  at_json_begin_object(w);
  put_text(w, "role", roles[x->role]);
  put_ref(w, &r);
  if (x->window != AT_CORE_WHOLE) {
    at_json_put_ints(w, "array", x->dims, x->rank);
    if (c->windows[i].loaded) put_grid(w, "window", c->windows[i].now, x->rank);
  }
  at_json_end_object(w);
}

// Arguments, then what the body allocated, in the order of their numbers.
static void put_refs(at_json_writer *w, const debug_core *d) {
  at_json_key(w, AT_STR("refs"));
  at_json_begin_array(w);
  for (uint32_t i = 0; i < d->core->program->record->num_refs; i++)
    put_argument(w, d, i);
  for (uint32_t i = 0; i < d->num_made; i++) {
    ref_now r = made_now(&d->made[i]);
    at_json_begin_object(w);
    put_text(w, "role", "scoped");
    put_ref(w, &r);
    put_place(w, "place", d->core, d->made[i].loc);
    at_json_end_object(w);
  }
  at_json_end_array(w);
}

// ---- Semaphores
// Whose it is: {"ref": 3, "index": 0}; the barriers have none.
static void put_sem_ref(at_json_writer *w, const debug_core *d, const sem *s) {
  uint32_t args = d->core->program->record->num_refs;
  for (uint32_t i = 0; i < args + d->num_made; i++) {
    ref_now r = i < args ? argument_now(d->core, i, false)
                         : made_now(&d->made[i - args]);
    int64_t n = 1;
    for (uint32_t k = 0; k < r.rank; k++) n *= r.dims[k];
    const sem *first = (const sem *)(const void *)r.base;
    if (r.dtype != AT_INVALID || !first || s < first || s >= first + n)
      continue;
    put_int(w, "ref", i);
    put_int(w, "index", s - first);
    return;
  }
}

// Without the core's own ones that nobody has used.
static void put_semaphores(at_json_writer *w, const debug_core *d) {
  const core_state *c = d->core;
  at_json_key(w, AT_STR("semaphores"));
  at_json_begin_array(w);
  for (uint32_t i = 0; i < c->num_sems; i++) {
    const sem *s = &c->sems[i];
    if (i < kFirstSem && !s->value && !s->waited) continue;
    at_json_begin_object(w);
    put_sem_name(w, "name", c, s);
    put_sem_ref(w, d, s);
    put_int(w, "value", s->value);
    bool signalled = s->value || s->waited > 0;
    if (signalled && s->loc >= 0) put_place(w, "signalled", c, s->loc);
    if (s->waited > 0) put_place(w, "waited", c, s->waited - 1);
    at_json_end_object(w);
  }
  at_json_end_array(w);
}

// ---- Copies
// The ref that a region is, arguments before allocations; -1: none that is
// known.
static int64_t ref_of_region(const debug_core *d, const region *r) {
  if (r->ref >= 0) return r->ref;
  for (uint32_t i = 0; i < d->num_made; i++)
    if (made_now(&d->made[i]).base == r->base)
      return (int64_t)d->core->program->record->num_refs + i;
  return -1;
}

// One end of a copy that is on its way.
static void put_side(at_json_writer *w, const debug_core *d, const area *box) {
  const region *r = core_region_of(d->core, box->base);
  at_json_put_ints(w, "size", box->size, box->rank);
  put_int(w, "elem_bytes", box->elem_bytes);
  if (!r) return;
  int64_t ref = ref_of_region(d, r);
  if (ref >= 0) put_int(w, "ref", ref);
  put_text(w, "space", space_name(r->space));
  put_int(w, "offset", box->base - r->base);
}

// Copies that nobody has waited for, as the checks see them from each side.
static void put_copies(at_json_writer *w, const debug_core *d) {
  const core_state *c = d->core;
  at_json_key(w, AT_STR("copies"));
  at_json_begin_array(w);
  for (uint32_t i = 0; c->shadow && i < c->shadow->num_flights; i++) {
    const flight *f = &c->shadow->flights[i];
    char who[64];
    at_json_begin_object(w);
    at_json_key(w, AT_STR("writes"));
    at_json_bool(w, f->writes);
    put_side(w, d, &f->box);
    put_text(w, "by", core_who(f->by, who, sizeof who));
    put_place(w, "started", f->by, f->loc);
    put_int(w, "bytes", f->bytes);
    if (f->sem < c->cap_sems) put_sem_name(w, "semaphore", c, &c->sems[f->sem]);
    at_json_end_object(w);
  }
  at_json_end_array(w);
}

// ---- Cores
static void put_loops(at_json_writer *w, const debug_core *d) {
  at_json_key(w, AT_STR("loops"));
  at_json_begin_array(w);
  for (uint32_t i = 0; i < d->num_loops; i++) {
    at_json_begin_object(w);
    put_place(w, "place", d->core, d->loops[i].loc);
    put_int(w, "turn", d->loops[i].turn);
    at_json_end_object(w);
  }
  at_json_end_array(w);
}

// Whose semaphore, its value, and what is needed.
static void put_wait(at_json_writer *w, const debug_core *d) {
  if (!d->wait_for) return;
  at_json_key(w, AT_STR("waits"));
  at_json_begin_object(w);
  put_sem_name(w, "name", d->core, d->wait_for);
  put_sem_ref(w, d, d->wait_for);
  put_int(w, "value", d->wait_for->value);
  put_int(w, "amount", d->wait_amount);
  put_place(w, "place", d->core, d->wait_loc);
  at_json_end_object(w);
}

// Everything that is known of a core, as one object.
static void put_core(at_json_writer *w, const debug_core *d) {
  static const char *const states[] = {"ready", "ready", "stopped", "waits",
                                       "ended"};
  static const char *const types[] = {"TensorCore", "SparseCore scalar",
                                      "SparseCore vector"};
  const core_state *c = d->core;
  const at_xcore *r = c->program->record;
  char who[64];
  at_json_begin_object(w);
  put_int(w, "id", d->id);
  put_text(w, "name", core_who(c, who, sizeof who));
  put_text(w, "kernel", core_name(c));
  put_text(w, "type", r->type < AT_LEN(types) ? types[r->type] : "?");
  put_int(w, "device", c->head.device_id);
  put_int(w, "core", c->head.core_index);
  put_int(w, "subcore", c->head.subcore_index);
  put_text(w, "state", states[d->state]);
  put_grid(w, "grid", c->grid, r->grid_rank);
  put_grid(w, "bounds", c->bounds, r->grid_rank);
  put_int(w, "step", c->step);
  put_int(w, "steps", core_grid_steps(c));
  put_place(w, "place", c, d->loc >= 0 ? d->loc : d->before);
  put_loops(w, d);
  put_wait(w, d);
  put_refs(w, d);
  put_semaphores(w, d);
  put_copies(w, d);
  at_json_end_object(w);
}

void debug_tell_state(at_strbuf *out) {
  debugger *g = &g_debugger;
  at_json_writer w = {out, false};
  at_json_begin_object(&w);
  at_json_key(&w, AT_STR("cores"));
  at_json_begin_array(&w);
  pthread_mutex_lock(&g->lock);
  for (const debug_core *d = g->first; d; d = d->next) put_core(&w, d);
  pthread_mutex_unlock(&g->lock);
  at_json_end_array(&w);
  at_json_end_object(&w);
}

// ---- Values
// Under the lock.
static at_status find_ref(const debug_box *b, ref_now *out) {
  const debug_core *d = g_debugger.first;
  while (d && d->id != b->core) d = d->next;
  if (!d) return AT_FAIL(AT_NOT_FOUND, "core %u has ended", b->core);
  uint32_t args = d->core->program->record->num_refs;
  if (b->ref >= args + d->num_made)
    return AT_FAIL(AT_NOT_FOUND, "core %u has no ref %u", b->core, b->ref);
  *out = b->ref < args ? argument_now(d->core, b->ref, b->array)
                       : made_now(&d->made[b->ref - args]);
  if (!out->base)
    return AT_FAIL(AT_FAILED_PRECONDITION, "its memory is not there now");
  return AT_OK;
}

static uint32_t element_bytes(const ref_now *r) {
  return r->dtype == AT_INVALID ? (uint32_t)sizeof(int64_t)
                                : at_dtype_bytes(r->dtype);
}

// The part of a ref that is wanted, as a copy to dense memory.
static at_status box_of(const debug_box *b, const ref_now *r, box *out,
                        int64_t *size, int64_t *from, int64_t *to,
                        int64_t *total) {
  const uint8_t *at = r->base;
  uint32_t elem = element_bytes(r);
  if (b->rank && b->rank != r->rank)
    return AT_FAIL(AT_INVALID_ARGUMENT, "it has %u dimensions", r->rank);
  *total = elem;
  for (uint32_t d = 0; d < r->rank; d++) {
    int64_t start = b->rank ? b->start[d] : 0, step = b->rank ? b->step[d] : 1;
    size[d] = b->rank ? b->count[d] : r->dims[d];
    // A step of 0 would take one element as often as it likes.
    if (size[d] > r->dims[d])
      return AT_FAIL(AT_OUT_OF_RANGE,
                     "dimension %u has %lld elements, not %lld", d,
                     (long long)r->dims[d], (long long)size[d]);
    int64_t last = start + step * (size[d] - 1);
    if (size[d] && (start >= r->dims[d] || last < 0 || last >= r->dims[d]))
      return AT_FAIL(AT_OUT_OF_RANGE,
                     "dimension %u has %lld elements; %lld to %lld leave it", d,
                     (long long)r->dims[d], (long long)start, (long long)last);
    at += start * r->stride[d];
    from[d] = step * r->stride[d];
  }
  for (uint32_t d = r->rank; d-- > 0;) {
    to[d] = *total;
    *total *= size[d];
  }
  *out = (box){.src = at,
               .rank = r->rank,
               .elem_bytes = elem,
               .size = size,
               .dst_stride = to,
               .src_stride = from};
  return AT_OK;
}

typedef struct strides {
  int64_t size[AT_CORE_MAX_RANK], from[AT_CORE_MAX_RANK], to[AT_CORE_MAX_RANK];
} strides;

// Copies into memory of the caller's, which it frees.
static at_status read_ref(const debug_box *b, const ref_now *r, strides *s,
                          uint8_t **data, size_t *bytes) {
  box copy;
  int64_t total;
  AT_TRY(box_of(b, r, &copy, s->size, s->from, s->to, &total));
  *data = malloc((size_t)total + 1);
  if (!*data)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %lld bytes",
                   (long long)total);
  copy.dst = *data;
  *bytes = (size_t)total;
  if (total) core_copy_box(&copy);
  return AT_OK;
}

at_status debug_read_box(const debug_box *b, at_strbuf *header, uint8_t **data,
                         size_t *bytes) {
  ref_now r = {0};
  strides s;
  pthread_mutex_lock(&g_debugger.lock);
  at_status st = find_ref(b, &r);
  if (!st.err) st = read_ref(b, &r, &s, data, bytes);
  pthread_mutex_unlock(&g_debugger.lock);
  if (st.err) return st;
  at_json_writer w = {header, false};
  at_json_begin_object(&w);
  put_text(&w, "dtype", dtype_name(r.dtype));
  at_json_put_ints(&w, "shape", s.size, r.rank);
  put_int(&w, "bytes", (int64_t)*bytes);
  at_json_end_object(&w);
  return at_strbuf_status(header);
}

uint64_t debug_digest(const debug_box *b, const void **base) {
  ref_now r = {0};
  strides s;
  uint8_t *data = NULL;
  size_t bytes = 0;
  pthread_mutex_lock(&g_debugger.lock);
  at_status st = find_ref(b, &r);
  if (!st.err) st = read_ref(b, &r, &s, &data, &bytes);
  pthread_mutex_unlock(&g_debugger.lock);
  uint64_t h = st.err ? 0 : at_hash(AT_HASH_SEED, data, bytes) | 1;
  *base = st.err ? NULL : r.base;
  at_status_free(st);
  free(data);
  return h;
}
