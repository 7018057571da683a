#include "exec/exec_test_util.h"

int report_(at_status s, int line) {
  if (s.err) print_message("line %d: %s\n", line, at_status_message(s));
  return at_code_take(s);
}

uint32_t b_add(builder *b, at_xsection s, const void *p, size_t bytes) {
  at_strbuf_add(&b->s[s], (at_str){p, bytes});
  return (uint32_t)b->n[s]++;
}

uint32_t b_bytes(builder *b, at_xsection s, const void *p, size_t bytes,
                 size_t align) {
  while (b->s[s].len % align) at_strbuf_addc(&b->s[s], 0);
  uint32_t at = (uint32_t)b->s[s].len;
  at_strbuf_add(&b->s[s], (at_str){p, bytes});
  b->n[s] = b->s[s].len;
  return at;
}

uint32_t b_string(builder *b, const char *z) {
  return b_bytes(b, AT_XS_STRINGS, z, strlen(z) + 1, 1);
}

uint32_t b_type(builder *b, at_dtype t, uint32_t rank, const int64_t *dims) {
  at_xtype x = {.dtype = t,
                .rank = rank,
                .dims = (uint32_t)b->n[AT_XS_DIMS],
                .bytes = at_dtype_bytes(t)};
  for (uint32_t i = 0; i < rank; i++) {
    b_add(b, AT_XS_DIMS, &dims[i], sizeof dims[i]);
    x.bytes *= (uint64_t)dims[i];
  }
  return b_add(b, AT_XS_TYPES, &x, sizeof x);
}

uint32_t b_f32(builder *b, int64_t n) { return b_type(b, AT_F32, 1, &n); }

// Dense size of a type that was added.
static uint64_t b_type_bytes(builder *b, uint32_t t) {
  return ((const at_xtype *)(void *)b->s[AT_XS_TYPES].ptr)[t].bytes;
}

uint32_t b_slot(builder *b, uint32_t kind, uint32_t index, uint64_t offset,
                uint64_t bytes) {
  at_xslot s = {kind, index, offset, bytes, UINT32_MAX, 0};
  if (kind == AT_SLOT_TEMP && b->h.temp_bytes < offset + bytes)
    b->h.temp_bytes = at_align_up(offset + bytes, 64);
  return b_add(b, AT_XS_SLOTS, &s, sizeof s);
}

uint32_t b_input(builder *b, uint32_t type) {
  uint32_t i = (uint32_t)b->n[AT_XS_INPUTS];
  at_xio io = {.type = type, .alias = -1};
  io.slot = b_slot(b, AT_SLOT_INPUT, i, 0, b_type_bytes(b, type));
  b_add(b, AT_XS_INPUTS, &io, sizeof io);
  return io.slot;
}

uint32_t b_output(builder *b, uint32_t type) {
  uint32_t i = (uint32_t)b->n[AT_XS_OUTPUTS];
  at_xio io = {.type = type, .alias = -1};
  io.slot = b_slot(b, AT_SLOT_OUTPUT, i, 0, b_type_bytes(b, type));
  b_add(b, AT_XS_OUTPUTS, &io, sizeof io);
  return io.slot;
}

void b_alias(builder *b, uint32_t i, uint32_t o) {
  at_xio *in = &((at_xio *)(void *)b->s[AT_XS_INPUTS].ptr)[i];
  at_xio *out = &((at_xio *)(void *)b->s[AT_XS_OUTPUTS].ptr)[o];
  in->alias = (int32_t)o;
  out->alias = (int32_t)i;
  in->slot = out->slot;
}

at_xstep *b_step(builder *b, uint32_t kind, uint32_t target, uint32_t num_args,
                 const uint32_t *args) {
  at_xstep s = {.kind = kind,
                .target = target,
                .args = (uint32_t)b->n[AT_XS_ARGS],
                .num_args = num_args,
                .grain = 1};
  for (uint32_t i = 0; i < num_args; i++)
    b_add(b, AT_XS_ARGS, &args[i], sizeof args[i]);
  uint32_t at = b_add(b, AT_XS_STEPS, &s, sizeof s);
  return &((at_xstep *)(void *)b->s[AT_XS_STEPS].ptr)[at];
}

// A kernel of object 0, which runs over ranges of tasks.
static uint32_t b_kernel(builder *b, const char *symbol) {
  at_xkernel k = {.kind = AT_XK_RANGE, .symbol = b_string(b, symbol)};
  return b_add(b, AT_XS_KERNELS, &k, sizeof k);
}

at_xstep *b_call(builder *b, const char *symbol, int64_t tasks, int64_t grain,
                 uint32_t num_args, const uint32_t *args) {
  at_xstep *s = b_step(b, AT_STEP_KERNEL, b_kernel(b, symbol), num_args, args);
  s->tasks = tasks;
  s->grain = grain;
  return s;
}

at_bytes b_finish(builder *b, uint32_t begin) {
  // Ranges of control steps lie before `begin`.
  b->h.main_begin = begin;
  b->h.main_end = (uint32_t)b->n[AT_XS_STEPS];
  uint64_t at = at_align_up(sizeof b->h, 64);
  for (int i = 0; i < AT_XS_COUNT; i++) {
    b->h.sections[i] = (at_xspan){at, b->n[i]};
    at = at_align_up(at + b->s[i].len, 64);
  }
  b->h.total_bytes = at;
  uint8_t *p = aligned_alloc(64, at);
  memset(p, 0, at);
  memcpy(p, &b->h, sizeof b->h);
  for (int i = 0; i < AT_XS_COUNT; i++) {
    if (b->s[i].len)
      memcpy(p + b->h.sections[i].offset, b->s[i].ptr, b->s[i].len);
    at_strbuf_free(&b->s[i]);
  }
  // The builder is empty afterwards, and must be made anew. The caller frees
  // ptr.
  return (at_bytes){p, at};
}

at_runtime *test_runtime(const char *target, uint32_t threads) {
  at_runtime *rt = NULL;
  OK(at_runtime_create(
      &(at_runtime_options){.target = target, .threads = threads}, &rt));
  return rt;
}

at_loaded *test_load(at_runtime *rt, at_bytes block) {
  at_loaded *l = NULL;
  OK(at_loaded_create(rt, block, &l));
  free((void *)block.ptr);
  return l;
}

at_buffer *test_array_of(at_chip *c, at_dtype t, const void *v, int64_t n) {
  at_host_array a = {t, {&n, 1}, NULL, v};
  at_buffer *b = NULL;
  at_event *done = NULL;
  OK(at_buffer_from_host(c, AT_MEM_DEVICE, &a,
                         AT_HOST_IMMUTABLE_ONLY_DURING_CALL, &b, &done));
  at_event_release(done);
  return b;
}

at_buffer *test_array(at_chip *c, const float *v, int64_t n) {
  return test_array_of(c, AT_F32, v, n);
}

void test_fetch(at_buffer *b, float *out, int64_t n) {
  at_event *done = NULL;
  OK(at_buffer_to_host(b, out, 0, (size_t)n * 4, &done));
  OK(at_event_wait(done));
  at_event_release(done);
}
