// Compiled on its own into a relocatable object; see room.cmake. Signatures are
// those of abi/executable.h.
#include <stdbool.h>
#include <stdint.h>

float expf(float);
void *memcpy(void *, const void *, unsigned long);

static const float table[4] = {1, 10, 100, 1000};  // .rodata
int64_t calls = 5;                                 // .data
int64_t zeroed[8];                                 // .bss
const float *where = &table[2];                    // R_X86_64_64

// c = a + b
void k_add(void *const *bufs, int64_t begin, int64_t end) {
  const float *a = bufs[0], *b = bufs[1];
  float *c = bufs[2];
  for (int64_t i = begin; i < end; i++) c[i] = a[i] + b[i];
}

// b = a + 1
void k_inc(void *const *bufs, int64_t begin, int64_t end) {
  const float *a = bufs[0];
  float *b = bufs[1];
  for (int64_t i = begin; i < end; i++) b[i] = a[i] + 1;
}

// y = exp(x): a call through the import table
void k_exp(void *const *bufs, int64_t begin, int64_t end) {
  const float *x = bufs[0];
  float *y = bufs[1];
  for (int64_t i = begin; i < end; i++) y[i] = expf(x[i]);
}

// y[i] = table[i % 4] + the counters: reads every kind of section
void k_sections(void *const *bufs, int64_t begin, int64_t end) {
  float *y = bufs[0];
  zeroed[3]++;
  calls++;
  for (int64_t i = begin; i < end; i++)
    y[i] = table[i & 3] + (float)(calls - 5 - zeroed[3]) + *where - 100;
}

// pred = (*x < 10): condition of a loop
void k_below_ten(void *const *bufs, int64_t begin, int64_t end) {
  *(bool *)bufs[1] = *(const float *)bufs[0] < 10;
}

// Burns time on every element: a program that is worth a queue.
void k_slow(void *const *bufs, int64_t begin, int64_t end) {
  const float *a = bufs[0];
  float *b = bufs[1];
  for (int64_t i = begin; i < end; i++) {
    volatile float v = a[i];
    for (int k = 0; k < 1000; k++) v = v + 1;
    b[i] = v - 999;
  }
}

// As many turns as the value says.
void k_turns(void *const *bufs, int64_t begin, int64_t end) {
  volatile float v = 0;
  for (float k = *(const float *)bufs[0]; k > 0; k--) v = v + 1;
  *(float *)bufs[1] = v;
}

// Bytes, in tasks of a byte.
void k_copy(void *const *bufs, int64_t begin, int64_t end) {
  memcpy((char *)bufs[1] + begin, (const char *)bufs[0] + begin,
         (unsigned long)(end - begin));
}

// A comparator: *a < *b.
bool k_less(const void *const *ptrs) {
  return *(const float *)ptrs[0] < *(const float *)ptrs[1];
}
