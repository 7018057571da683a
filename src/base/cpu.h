// What this CPU can do, found at run time (CPUID, XGETBV, AMX permission),
// lowered by ATOLL_CPU (x86-64-v3, avx512, avx512_bf16, amx) for testing the
// fallback paths.
//
// Threads: any, but for at_cpu_limit, which comes before code is made.
#ifndef ATOLL_BASE_CPU_H_
#define ATOLL_BASE_CPU_H_

#include <stdint.h>

#include "base/status.h"

// Each may be there without the others; AVX2 is what everything needs.
enum {                     // bits of at_cpu_features
  AT_CPU_AVX2 = 1 << 0,    // AVX2, FMA, F16C, BMI1/2: x86-64-v3, the baseline
  AT_CPU_AVX512 = 1 << 1,  // F, BW, DQ, VL, CD: x86-64-v4
  AT_CPU_AVX512_BF16 = 1 << 2,
  AT_CPU_AVX512_FP16 = 1 << 3,
  AT_CPU_AVX512_VNNI = 1 << 4,
  AT_CPU_AVX512_VBMI = 1 << 5,
  AT_CPU_AMX_BF16 = 1 << 6,  // tile data permission granted to this process
  AT_CPU_AMX_INT8 = 1 << 7,
  AT_CPU_AVX512_VPOPCNT = 1 << 8,
};
// Sets this thread's SSE control to the default: round to nearest, exceptions
// masked, denormals kept. Threads that call us may flush them (jaxlib's do),
// and threads that we start inherit that. Returns the old control for
// at_cpu_fp_restore.
static inline uint32_t at_cpu_fp_default(void) {
  uint32_t old = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(0x1f80);
  return old;
}
static inline void at_cpu_fp_restore(uint32_t old) {
  __builtin_ia32_ldmxcsr(old);
}

uint64_t at_cpu_features(void);  // cached; thread-safe
// FAILED_PRECONDITION: the baseline is not there, and nothing of kernels or
// generated code may run.
at_status at_cpu_check(void);
// From now on at_cpu_features says none but these: code is made for others.
void at_cpu_limit(uint64_t features);
// The name of one bit, as ATOLL_CPU's levels and messages spell it; "?" for
// none of ours. Static.
const char *at_cpu_feature_name(uint64_t bit);
// LLVM's target-feature string for a set of bits ("+avx2,+fma,..."). Borrowed
// until this thread's next call.
const char *at_cpu_llvm_features(uint64_t features);
uint32_t at_cpu_count(void);  // cores this process may use (affinity, cgroup)
// Cache sizes in bytes, from sysfs or CPUID; 0 when unknown.
uint64_t at_cpu_cache_bytes(int level);

#endif
