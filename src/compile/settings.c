// What decides on an executable beside the program and its options: this build,
// the CPU, the knobs, and the files that knobs name.
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "abi/executable.h"
#include "base/config.h"
#include "base/cpu.h"
#include "codegen/codegen.h"
#include "compile/cache.h"
#include "compile/compile.h"
#include "compile/settings.h"
#include "compile/sparse.h"

// ---- The build
static at_digest g_build;
static at_code g_build_code;

// The library that holds this code, and the one that makes machine code.
static void find_build(void) {
  at_digest own, llvm;
  at_status st = at_digest_build((void *)(uintptr_t)at_compile_build, &own);
  if (!st.err) st = at_cg_build(&llvm);
  g_build_code = at_code_take(st);
  if (g_build_code) return;
  g_build = at_digest_start(AT_EXECUTABLE_VERSION);
  at_digest_add_str(&g_build, AT_STR(AT_VERSION));
  at_digest_add(&g_build, (at_bytes){(const uint8_t *)&own, sizeof own});
  at_digest_add(&g_build, (at_bytes){(const uint8_t *)&llvm, sizeof llvm});
}

// Found once in a process.
at_status at_compile_build(at_digest *out) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_build);
  if (g_build_code)
    return AT_FAIL(g_build_code,
                   "the library that holds this code is not to be found");
  return *out = g_build, AT_OK;
}

// ---- Files
// What a file holds; one that does not read counts as such.
static void add_file(at_digest *d, const char *path) {
  uint8_t *block = NULL;
  ssize_t got = -1;
  int fd =
      *path ? open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
  at_digest_add_str(d, at_str_of(path));
  if (fd >= 0 && (block = malloc(1 << 16)))
    while ((got = read(fd, block, 1 << 16)) > 0)
      at_digest_add(d, (at_bytes){block, (size_t)got});
  at_digest_add_u64(d, got == 0);
  free(block);
  if (fd >= 0) close(fd);
}

// ---- Knobs
// Those that never change what is compiled. A new knob counts until it is
// listed.
static bool is_of_the_run(at_config k) {
  switch (k) {
    case AT_CONFIG_CHECK:  // its words count, one by one
    case AT_CONFIG_PROCESSES:
    case AT_CONFIG_PROCESS:
    case AT_CONFIG_POD:
    case AT_CONFIG_POD_ADDRESS:
    case AT_CONFIG_POD_TOKEN_FILE:
    case AT_CONFIG_POD_NETWORK:
    case AT_CONFIG_POD_WIRE:
    case AT_CONFIG_POD_DEADLINE:
    case AT_CONFIG_HBM:
    case AT_CONFIG_DEBUG:  // whether it is set counts
    case AT_CONFIG_DUMP:
    case AT_CONFIG_CACHE:
    case AT_CONFIG_CACHE_DIR:
    case AT_CONFIG_CACHE_LIMIT:
    case AT_CONFIG_CPU:      // the features that follow from it count
    case AT_CONFIG_THREADS:  // their number counts, asked for or not
    case AT_CONFIG_SPARSE_THREADS:
    case AT_CONFIG_VERIFY:
    case AT_CONFIG_LOG:
    case AT_CONFIG_FINDINGS:
    case AT_CONFIG_COSTS:  // what the file says counts
    case AT_CONFIG_GANG:
    case AT_CONFIG_GUARD:
    case AT_CONFIG_SPILL_DIR:
    case AT_CONFIG_KERNEL_TURNS:
    case AT_CONFIG_LIBRARY:
      return true;
    default:
      return false;
  }
}

// Each by its name and value; words of ATOLL_CHECK one by one.
static void add_knobs(at_digest *d) {
  for (int i = 0; i < AT_CONFIG_COUNT; i++) {
    at_config k = (at_config)i;
    if (is_of_the_run(k)) continue;
    const at_config_info *info = at_config_info_of(k);
    at_digest_add_str(d, at_str_of(info->name));
    if (info->kind == AT_CONFIG_FLAG)
      at_digest_add_u64(d, at_config_flag(k));
    else if (info->kind == AT_CONFIG_WORD)
      at_digest_add_u64(d, at_config_word(k));
    else if (info->kind == AT_CONFIG_COUNT_OF || info->kind == AT_CONFIG_SIZE)
      at_digest_add_u64(d, at_config_uint(k));
    else
      at_digest_add_str(d, at_str_of(at_config_text(k)));
  }
  for (at_word w = AT_WORD_CHECK_RACES; w < AT_WORD_CHECK_ALL; w++)
    at_digest_add_u64(d, at_config_has(w));
  at_digest_add_u64(d, *at_config_text(AT_CONFIG_DEBUG) != 0);
  add_file(d, at_config_text(AT_CONFIG_COSTS));
}

// A struct is mixed in as bytes: its padding is zero.
at_status at_settings_add(uint64_t cpu, uint32_t threads,
                          const at_spinput_flags *sparse, at_digest *io) {
  at_digest build;
  AT_TRY(at_compile_build(&build));
  at_digest_add(io, (at_bytes){(const uint8_t *)&build, sizeof build});
  at_digest_add_u64(io, cpu);
  at_digest_add_u64(io, threads);
  at_digest_add_u64(io, at_cpu_cache_bytes(2));
  at_digest_add_u64(io, at_cpu_cache_bytes(3));
  add_knobs(io);
  at_digest_add(io, (at_bytes){(const uint8_t *)sparse, sizeof *sparse});
  add_file(io, sparse->max_ids_file);
  return AT_OK;
}

uint32_t at_settings_threads(uint32_t asked) {
  uint64_t n = asked ? asked : at_config_uint(AT_CONFIG_THREADS);
  return n ? (uint32_t)n : at_cpu_count();
}

// For this machine and process as they are now.
at_status at_compile_settings(at_digest *out) {
  at_spinput_flags sparse;
  AT_TRY(at_sparse_flags(NULL, 0, &sparse));
  *out = at_digest_start(0);
  return at_settings_add(at_cpu_features(), at_settings_threads(0), &sparse,
                         out);
}
