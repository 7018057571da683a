// A small writer of executable blocks for the tests of this room and of those
// above it. AT_EXEC_KERNELS: an object with kernels; without, there are none.
//
// Threads: a builder is used by one at a time; the rest as exec.h says.
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
// The code of s, printed with its message and the line of the test unless it is
// OK. Never fails by itself.
int report_(at_status s, int line);

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
// Bytes are copied. Rows must be of the section's struct; nothing is checked.
uint32_t b_add(builder *b, at_xsection s, const void *p, size_t bytes);
// Appends to a section of bytes, aligned; returns the offset. The section's
// count is its length.
// align: a power of two, of the offset within the section; sections themselves
// begin at multiples of 64.
uint32_t b_bytes(builder *b, at_xsection s, const void *p, size_t bytes,
                 size_t align);
// Appends a text with its NUL; returns its offset.
uint32_t b_string(builder *b, const char *z);

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
uint32_t b_type(builder *b, at_dtype t, uint32_t rank, const int64_t *dims);
// f32[n].
uint32_t b_f32(builder *b, int64_t n);
// A place of at_xslot_kind, untyped. The program's scratch grows to hold those
// of kind TEMP.
// Returns its index in SLOTS. offset, bytes: of the buffer that kind and index
// name; not checked here, so tests of refusals can write bad ones.
uint32_t b_slot(builder *b, uint32_t kind, uint32_t index, uint64_t offset,
                uint64_t bytes);
// The next input, or output, of that type in a place of its own; returns its
// slot.
// type: an index in TYPES. No aliases: b_alias makes them.
uint32_t b_input(builder *b, uint32_t type);
// As b_input, in a buffer of its own.
uint32_t b_output(builder *b, uint32_t type);
// Input i lives in output o's place.
// Both must have the same type.
void b_alias(builder *b, uint32_t i, uint32_t o);

// Appends a step with these slots as arguments. The row may be changed until
// the next step is added, which may move it.
// target, tasks and aux: as at_xstep_kind says of the kind.
// Borrowed from the builder.
at_xstep *b_step(builder *b, uint32_t kind, uint32_t target, uint32_t num_args,
                 const uint32_t *args);
// A count and an array, for num_args and args.
// The array lives until the end of the block that it stands in.
#define ARGS(...) \
  sizeof((uint32_t[]){__VA_ARGS__}) / 4, (const uint32_t[]) { __VA_ARGS__ }
// A step that runs that kernel over `tasks` tasks, `grain` at a time.
// symbol: a function of AT_EXEC_KERNELS. The row is borrowed, as b_step's is.
at_xstep *b_call(builder *b, const char *symbol, int64_t tasks, int64_t grain,
                 uint32_t num_args, const uint32_t *args);
// All steps from `begin` on are the program.
// The block is 64-byte aligned and the caller's to free; the builder is empty
// afterwards and must be made anew.
at_bytes b_finish(builder *b, uint32_t begin);

// ---- Running
// A runtime of this process alone; the caller destroys it.
// target: as ATOLL_TARGET has it, "v5e:2x2". threads: of the pool that runs
// kernels. Never NULL: the test fails instead.
at_runtime *test_runtime(const char *target, uint32_t threads);
// Loads and frees a block of b_finish; one reference.
// The test fails where the block is refused; refusals are tested by
// at_loaded_create itself.
at_loaded *test_load(at_runtime *rt, at_bytes block);
// A copy of v[n] on the device, which may not be there yet; one reference.
// v may change as soon as this returns.
// n: elements of one dimension. Copied before it returns.
at_buffer *test_array_of(at_chip *c, at_dtype t, const void *v, int64_t n);
// test_array_of for f32; the caller owns the reference.
at_buffer *test_array(at_chip *c, const float *v, int64_t n);
// Waits for the array and copies n floats of it.
// The test fails where the array has failed.
void test_fetch(at_buffer *b, float *out, int64_t n);

#endif
