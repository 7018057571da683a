// CPUID says what the CPU has, XGETBV which registers the system saves, and
// Linux grants tile data on request: a feature counts only where all that it
// needs is there. Looked at once; ATOLL_CPU and at_cpu_limit take features
// away.
#include "base/cpu.h"

#include <cpuid.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/config.h"

// A bit, its name for people, and what LLVM calls it.
typedef struct feature_row {
  uint64_t bit;
  const char *name, *llvm;
} feature_row;

// In the order in which at_cpu_llvm_features lists them.
static const feature_row g_features[] = {
    {AT_CPU_AVX2, "avx2",
     "+cx16,+sahf,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2,+avx,+avx2,+fma,+f16c,"
     "+bmi,+bmi2,+lzcnt,+movbe,+xsave"},
    {AT_CPU_AVX512, "avx512",
     "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd,+evex512"},
    {AT_CPU_AVX512_BF16, "avx512_bf16", "+avx512bf16"},
    {AT_CPU_AVX512_FP16, "avx512_fp16", "+avx512fp16"},
    {AT_CPU_AVX512_VNNI, "avx512_vnni", "+avx512vnni"},
    {AT_CPU_AVX512_VBMI, "avx512_vbmi", "+avx512vbmi,+avx512vbmi2"},
    {AT_CPU_AMX_BF16, "amx_bf16", "+amx-tile,+amx-bf16"},
    {AT_CPU_AMX_INT8, "amx_int8", "+amx-tile,+amx-int8"},
    {AT_CPU_AVX512_VPOPCNT, "avx512_vpopcnt", "+avx512vpopcntdq,+avx512bitalg"},
};

// Which register states the system saves. Only where CPUID says OSXSAVE.
static uint64_t read_xcr0(void) {
  uint32_t lo, hi;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return ((uint64_t)hi << 32) | lo;
}

// Linux hands tile data out per process, on request; the call's result is the
// only proof (a small sigaltstack makes it fail).
static bool amx_permitted(void) {
  enum { kReqXcompPerm = 0x1023, kTileData = 18 };
  return syscall(SYS_arch_prctl, kReqXcompPerm, kTileData) == 0;
}

// The bit if `have`.
static uint64_t with(bool have, uint64_t bit) { return have ? bit : 0; }

// Arguments are CPUID's leaf 7 (EBX, ECX, EDX) and EAX of its sub-leaf 1. The
// five parts of the base come together or not at all.
static uint64_t detect_avx512(uint32_t b7, uint32_t c7, uint32_t d7,
                              uint32_t a71) {
  const uint32_t base =
      bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL | bit_AVX512CD;
  if ((b7 & base) != base) return 0;
  return AT_CPU_AVX512 | with(a71 & bit_AVX512BF16, AT_CPU_AVX512_BF16) |
         with(d7 & bit_AVX512FP16, AT_CPU_AVX512_FP16) |
         with(c7 & bit_AVX512VNNI, AT_CPU_AVX512_VNNI) |
         with((c7 & bit_AVX512VBMI) && (c7 & bit_AVX512VBMI2),
              AT_CPU_AVX512_VBMI) |
         with((c7 & bit_AVX512VPOPCNTDQ) && (c7 & bit_AVX512BITALG),
              AT_CPU_AVX512_VPOPCNT);
}

// What CPU and system have. 0: below the baseline.
static uint64_t detect(void) {
  uint32_t a, b, c, d, b7 = 0, c7 = 0, d7 = 0, a71 = 0, ignored;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  const uint32_t need1 = bit_FMA | bit_F16C | bit_AVX | bit_OSXSAVE | bit_MOVBE;
  if ((c & need1) != need1) return 0;
  if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return 0;
  if (a >= 1) __get_cpuid_count(7, 1, &a71, &ignored, &ignored, &ignored);
  uint64_t xcr0 = read_xcr0();
  if ((xcr0 & 0x6) != 0x6) return 0;  // XMM and YMM saved by the OS
  const uint32_t need7 = bit_AVX2 | bit_BMI | bit_BMI2;
  if ((b7 & need7) != need7) return 0;
  uint64_t f = AT_CPU_AVX2;
  if ((xcr0 & 0xe0) == 0xe0) f |= detect_avx512(b7, c7, d7, a71);
  bool tiles = (d7 & bit_AMXTILE) && (xcr0 & 0x60000) == 0x60000;
  if ((f & AT_CPU_AVX512) && tiles && amx_permitted())
    f |= with(d7 & bit_AMXBF16, AT_CPU_AMX_BF16) |
         with(d7 & bit_AMXINT8, AT_CPU_AMX_INT8);
  return f;
}

// What ATOLL_CPU allows. Levels are nested.
static uint64_t allowed(at_word level) {
  const uint64_t v3 = AT_CPU_AVX2;
  const uint64_t avx512 = v3 | AT_CPU_AVX512 | AT_CPU_AVX512_VNNI |
                          AT_CPU_AVX512_VBMI | AT_CPU_AVX512_VPOPCNT;
  if (level == AT_WORD_CPU_X86_64_V3) return v3;
  if (level == AT_WORD_CPU_AVX512) return avx512;
  if (level == AT_WORD_CPU_AVX512_BF16) return avx512 | AT_CPU_AVX512_BF16;
  return UINT64_MAX;
}

static _Atomic uint64_t cached;

// Bit 63 says that the others are known, so that a CPU without any is not
// looked at again.
uint64_t at_cpu_features(void) {
  const uint64_t known = 1ull << 63;
  uint64_t f = atomic_load_explicit(&cached, memory_order_relaxed);
  if (!f) {
    f = (detect() & allowed(at_config_word(AT_CONFIG_CPU))) | known;
    atomic_store_explicit(&cached, f, memory_order_relaxed);
  }
  return f & ~known;
}

// For whoever is about to run code of ours.
at_status at_cpu_check(void) {
  if (at_cpu_features() & AT_CPU_AVX2) return AT_OK;
  return AT_FAIL(
      AT_FAILED_PRECONDITION,
      "Atoll needs a CPU with AVX2, FMA and BMI (Intel from Haswell, AMD "
      "from Zen on), which this one is not");
}

// Bits only go; they do not come back in this process.
void at_cpu_limit(uint64_t features) {
  (void)at_cpu_features();
  atomic_fetch_and(&cached, features | 1ull << 63);
}

// Linear in a short table.
const char *at_cpu_feature_name(uint64_t bit) {
  for (size_t i = 0; i < sizeof g_features / sizeof *g_features; i++)
    if (g_features[i].bit == bit) return g_features[i].name;
  return "?";
}

// The buffer holds all rows at once.
const char *at_cpu_llvm_features(uint64_t features) {
  static _Thread_local char text[512];
  size_t n = 0;
  text[0] = 0;
  for (size_t i = 0; i < sizeof g_features / sizeof *g_features; i++)
    if (features & g_features[i].bit)
      n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? "," : "",
                            g_features[i].llvm);
  return text;
}

// The first line without its end; false: no such file.
static bool read_line(const char *path, char *out, size_t cap) {
  FILE *f = fopen(path, "re");
  if (!f) return false;
  bool got = fgets(out, (int)cap, f) != NULL;
  fclose(f);
  if (got) out[strcspn(out, "\n")] = 0;
  return got;
}

// Cores' worth of time that the cgroup grants, rounded up; UINT32_MAX: no
// limit.
static uint32_t cgroup_cores(void) {
  char line[64], *rest;
  if (!read_line("/sys/fs/cgroup/cpu.max", line, sizeof line))
    return UINT32_MAX;
  long long quota = strtoll(line, &rest, 10);
  long long period = strtoll(rest, NULL, 10);
  if (quota <= 0 || period <= 0) return UINT32_MAX;  // "max 100000"
  long long cores = (quota + period - 1) / period;
  return cores > UINT32_MAX ? UINT32_MAX : (uint32_t)cores;
}

// The smaller of what affinity and cgroup allow, at least 1.
uint32_t at_cpu_count(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  if (n <= 0) n = (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (n <= 0) n = 1;
  uint32_t limit = cgroup_cores();
  return (uint32_t)n < limit ? (uint32_t)n : limit;
}

// Cache number `index` of CPU 0 if it is of that level and holds data; 0
// otherwise.
static uint64_t cache_size_of(int index, int level) {
  char path[96], text[64];
  const char *dir = "/sys/devices/system/cpu/cpu0/cache";
  snprintf(path, sizeof path, "%s/index%d/level", dir, index);
  if (!read_line(path, text, sizeof text) || atoi(text) != level) return 0;
  snprintf(path, sizeof path, "%s/index%d/type", dir, index);
  if (!read_line(path, text, sizeof text) || !strcmp(text, "Instruction"))
    return 0;
  snprintf(path, sizeof path, "%s/index%d/size", dir, index);
  if (!read_line(path, text, sizeof text)) return 0;
  char *unit;
  uint64_t n = strtoull(text, &unit, 10);
  return *unit == 'K' ? n << 10 : *unit == 'M' ? n << 20 : n;
}

// CPUID leaf 4 (Intel) has the same layout as 0x8000001d (AMD).
static uint64_t cache_size_cpuid(uint32_t leaf, int level) {
  uint32_t a, b, c, d;
  for (uint32_t i = 0; i < 16; i++) {
    if (!__get_cpuid_count(leaf, i, &a, &b, &c, &d) || !(a & 31)) return 0;
    if ((a & 31) == 2 || (int)((a >> 5) & 7) != level) continue;
    uint64_t ways = (b >> 22) + 1, parts = ((b >> 12) & 1023) + 1;
    return ways * parts * ((b & 4095) + 1) * ((uint64_t)c + 1);
  }
  return 0;
}

// sysfs first, which containers may hide, then CPUID.
static uint64_t find_cache(int level) {
  for (int i = 0; i < 8; i++) {
    uint64_t n = cache_size_of(i, level);
    if (n) return n;
  }
  uint64_t n = cache_size_cpuid(4, level);
  return n ? n : cache_size_cpuid(0x8000001d, level);
}

// Every compile asks. Bit 63 says that a size is known.
uint64_t at_cpu_cache_bytes(int level) {
  static _Atomic uint64_t sizes[4];
  const uint64_t known = 1ull << 63;
  if (level < 1 || level >= (int)AT_LEN(sizes)) return 0;
  uint64_t n = atomic_load_explicit(&sizes[level], memory_order_relaxed);
  if (!n) {
    n = find_cache(level) | known;
    atomic_store_explicit(&sizes[level], n, memory_order_relaxed);
  }
  return n & ~known;
}
