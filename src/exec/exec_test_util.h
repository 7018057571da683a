// A small writer of executable blocks for the tests of this room and of those
// above it. AT_EXEC_KERNELS: an object with kernels; without, there are none.
#ifndef ATOLL_EXEC_EXEC_TEST_UTIL_H_
#define ATOLL_EXEC_EXEC_TEST_UTIL_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "abi/executable.h"
#include "base/strbuf.h"
#include "exec/exec.h"

// Fails the test with the status' text unless it is OK. Consumes the status.
#define OK(e) assert_int_equal(report_((e), __LINE__), 0)
static inline int report_(at_status s, int line) {
  if (s.err) print_message("line %d: %s\n", line, at_status_message(s));
  return at_code_take(s);
}

// An executable block in the making: the rows of each section, and the header.
// Sections are filled in any order; b_finish lays them out.
typedef struct builder {
  // Bytes and rows of each section.
  // Rows in a buffer each, as sections grow at the same time.
  at_strbuf s[AT_XS_COUNT];
  uint64_t n[AT_XS_COUNT];
  at_xheader h;
} builder;

// Appends a row of `bytes` bytes; returns its index.
static inline uint32_t b_add(builder *b, at_xsection s, const void *p,
                             size_t bytes) {
  at_strbuf_add(&b->s[s], (at_str){p, bytes});
  return (uint32_t)b->n[s]++;
}
// Appends to a section of bytes, aligned; returns the offset. The section's
// count is its length.
static inline uint32_t b_bytes(builder *b, at_xsection s, const void *p,
                               size_t bytes, size_t align) {
  while (b->s[s].len % align) at_strbuf_addc(&b->s[s], 0);
  uint32_t at = (uint32_t)b->s[s].len;
  at_strbuf_add(&b->s[s], (at_str){p, bytes});
  b->n[s] = b->s[s].len;
  return at;
}
// Appends a text with its NUL; returns its offset.
static inline uint32_t b_string(builder *b, const char *z) {
  return b_bytes(b, AT_XS_STRINGS, z, strlen(z) + 1, 1);
}

// A program of one device named jit_test, with the code of AT_EXEC_KERNELS as
// object 0 and slot 0 as the empty slot. b_finish frees what it holds.
static inline builder b_new(void) {
  builder b = {.h = {.magic = AT_EXECUTABLE_MAGIC,
                     // Fields of the header that a test wants otherwise are set
                     // before b_finish.
                     .version = AT_EXECUTABLE_VERSION,
                     .header_bytes = sizeof(at_xheader),
                     .num_replicas = 1,
                     .num_partitions = 1,
                     .estimated_ns = 100}};
  b_string(&b, "");
  b.h.name = b_string(&b, "jit_test");
#ifdef AT_EXEC_KERNELS
  FILE *f = fopen(AT_EXEC_KERNELS, "rb");
  assert_non_null(f);
  static char code[1 << 16];
  size_t n = fread(code, 1, sizeof code, f);
  fclose(f);
  at_xobject o = {0, n};
  b_bytes(&b, AT_XS_CODE, code, n, 64);
  b_add(&b, AT_XS_OBJECTS, &o, sizeof o);
#endif
  at_xslot nothing = {.type = UINT32_MAX};
  b_add(&b, AT_XS_SLOTS, &nothing, sizeof nothing);
  return b;
}

// A dense array type; dims are copied. Returns its index in TYPES.
// A scalar has rank 0 and no dims.
static inline uint32_t b_type(builder *b, at_dtype t, uint32_t rank,
                              const int64_t *dims) {
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
// f32[n].
static inline uint32_t b_f32(builder *b, int64_t n) {
  return b_type(b, AT_F32, 1, &n);
}
// Dense size of a type that was added.
static inline uint64_t b_type_bytes(builder *b, uint32_t t) {
  return ((const at_xtype *)(void *)b->s[AT_XS_TYPES].ptr)[t].bytes;
}
// A place of at_xslot_kind, untyped. The program's scratch grows to hold those
// of kind TEMP.
static inline uint32_t b_slot(builder *b, uint32_t kind, uint32_t index,
                              uint64_t offset, uint64_t bytes) {
  at_xslot s = {kind, index, offset, bytes, UINT32_MAX, 0};
  if (kind == AT_SLOT_TEMP && b->h.temp_bytes < offset + bytes)
    b->h.temp_bytes = at_align_up(offset + bytes, 64);
  return b_add(b, AT_XS_SLOTS, &s, sizeof s);
}
// The next input, or output, of that type in a place of its own; returns its
// slot.
static inline uint32_t b_input(builder *b, uint32_t type) {
  uint32_t i = (uint32_t)b->n[AT_XS_INPUTS];
  at_xio io = {.type = type, .alias = -1};
  io.slot = b_slot(b, AT_SLOT_INPUT, i, 0, b_type_bytes(b, type));
  b_add(b, AT_XS_INPUTS, &io, sizeof io);
  return io.slot;
}
static inline uint32_t b_output(builder *b, uint32_t type) {
  uint32_t i = (uint32_t)b->n[AT_XS_OUTPUTS];
  at_xio io = {.type = type, .alias = -1};
  io.slot = b_slot(b, AT_SLOT_OUTPUT, i, 0, b_type_bytes(b, type));
  b_add(b, AT_XS_OUTPUTS, &io, sizeof io);
  return io.slot;
}
// Input i lives in output o's place.
// Both must have the same type.
static inline void b_alias(builder *b, uint32_t i, uint32_t o) {
  at_xio *in = &((at_xio *)(void *)b->s[AT_XS_INPUTS].ptr)[i];
  at_xio *out = &((at_xio *)(void *)b->s[AT_XS_OUTPUTS].ptr)[o];
  in->alias = (int32_t)o;
  out->alias = (int32_t)i;
  in->slot = out->slot;
}

// Appends a step with these slots as arguments. The row may be changed until
// the next step is added, which may move it.
// target, tasks and aux: as at_xstep_kind says of the kind.
static inline at_xstep *b_step(builder *b, uint32_t kind, uint32_t target,
                               uint32_t num_args, const uint32_t *args) {
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
// A count and an array, for num_args and args.
#define ARGS(...) \
  sizeof((uint32_t[]){__VA_ARGS__}) / 4, (const uint32_t[]) { __VA_ARGS__ }
// A kernel of object 0, which runs over ranges of tasks.
static inline uint32_t b_kernel(builder *b, const char *symbol) {
  at_xkernel k = {.kind = AT_XK_RANGE, .symbol = b_string(b, symbol)};
  return b_add(b, AT_XS_KERNELS, &k, sizeof k);
}
// A step that runs that kernel over `tasks` tasks, `grain` at a time.
static inline at_xstep *b_call(builder *b, const char *symbol, int64_t tasks,
                               int64_t grain, uint32_t num_args,
                               const uint32_t *args) {
  at_xstep *s = b_step(b, AT_STEP_KERNEL, b_kernel(b, symbol), num_args, args);
  s->tasks = tasks;
  s->grain = grain;
  return s;
}
// All steps from `begin` on are the program.
static inline at_bytes b_finish(builder *b, uint32_t begin) {
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

// ---- Running
// A runtime of this process alone; the caller destroys it.
static inline at_runtime *test_runtime(const char *target, uint32_t threads) {
  at_runtime *rt = NULL;
  OK(at_runtime_create(
      &(at_runtime_options){.target = target, .threads = threads}, &rt));
  return rt;
}
// Loads and frees a block of b_finish; one reference.
// The test fails where the block is refused; refusals are tested by
// at_loaded_create itself.
static inline at_loaded *test_load(at_runtime *rt, at_bytes block) {
  at_loaded *l = NULL;
  OK(at_loaded_create(rt, block, &l));
  free((void *)block.ptr);
  return l;
}
// A copy of v[n] on the device, which may not be there yet; one reference.
// v may change as soon as this returns.
static inline at_buffer *test_array_of(at_chip *c, at_dtype t, const void *v,
                                       int64_t n) {
  at_host_array a = {t, {&n, 1}, NULL, v};
  at_buffer *b = NULL;
  at_event *done = NULL;
  OK(at_buffer_from_host(c, AT_MEM_DEVICE, &a,
                         AT_HOST_IMMUTABLE_ONLY_DURING_CALL, &b, &done));
  at_event_release(done);
  return b;
}
static inline at_buffer *test_array(at_chip *c, const float *v, int64_t n) {
  return test_array_of(c, AT_F32, v, n);
}
// Waits for the array and copies n floats of it.
// The test fails where the array has failed.
static inline void test_fetch(at_buffer *b, float *out, int64_t n) {
  at_event *done = NULL;
  OK(at_buffer_to_host(b, out, 0, (size_t)n * 4, &done));
  OK(at_event_wait(done));
  at_event_release(done);
}

#endif
