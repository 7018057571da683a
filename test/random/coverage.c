#include "coverage.h"

#include <stdio.h>
#include <string.h>

#include "judge.h"

enum { kMostPaths = 256 };

enum { kMostRows = 256 };

static uint64_t g_ops[AT_OP_COUNT][AT_DTYPE_COUNT];
static double g_worst[AT_OP_COUNT][AT_DTYPE_COUNT];
static uint64_t g_rows[kMostRows][AT_DTYPE_COUNT];
static struct {
  char name[64];
  uint64_t count;
} g_paths[kMostPaths];
static uint32_t g_num_paths;

static const char *const runtime_names[] = {
#define AT_RT_KERNEL(Id, ...) #Id,
#include "abi/kernels.def"
#undef AT_RT_KERNEL
};
static uint64_t g_runtime[AT_LEN(runtime_names)];

void coverage_judged(const at_node *n, double worst) {
  at_dtype t = at_random_dtype_of(n);
  g_ops[n->op][t]++;
  if (worst > g_worst[n->op][t]) g_worst[n->op][t] = worst;
}

void coverage_pair(at_random_pair p, uint32_t sets) {
  g_rows[p.row][p.dtype] += sets;
}

static void count_path(const char *kind, const char *text) {
  char name[64];
  int length = (int)strcspn(text, ". ");
  snprintf(name, sizeof name, "%s %.*s", kind, length, text);
  uint32_t i = 0;
  while (i < g_num_paths && strcmp(g_paths[i].name, name)) i++;
  if (i == kMostPaths) return;
  if (i == g_num_paths) memcpy(g_paths[g_num_paths++].name, name, sizeof name);
  g_paths[i].count++;
}

void coverage_count_steps(const at_loaded *l) {
  static const char *const kinds[] = {"kernel",  "runtime",   "while", "case",
                                      "custom",  "send",      "recv",  "infeed",
                                      "outfeed", "collective"};
  uint64_t n;
  const at_xstep *steps = at_loaded_section(l, AT_XS_STEPS, &n);
  for (uint64_t i = 0; i < n; i++) {
    const at_xstep *s = &steps[i];
    count_path(s->kind < AT_LEN(kinds) ? kinds[s->kind] : "?",
               at_loaded_string(l, s->hlo));
    if (s->kind == AT_STEP_RUNTIME && s->target < AT_LEN(g_runtime))
      g_runtime[s->target]++;
    if (s->kind == AT_STEP_KERNEL && s->tasks > s->grain)
      count_path("split", "kernel");
  }
}

void coverage_print(void) {
  uint64_t pairs = 0, ops = 0, never = 0;
  for (uint32_t o = 0; o < AT_OP_COUNT; o++) {
    uint64_t sum = 0;
    printf("%-26s", at_op_text((at_op)o));
    for (uint32_t t = 0; t < AT_DTYPE_COUNT; t++) {
      if (!g_ops[o][t]) continue;
      pairs++;
      sum += g_ops[o][t];
      printf(" %s:%llu", at_dtype_of((at_dtype)t)->text,
             (unsigned long long)g_ops[o][t]);
    }
    ops += sum > 0;
    printf("\n");
  }
  for (uint32_t i = 0; i < g_num_paths; i++)
    printf("path %-36s %llu\n", g_paths[i].name,
           (unsigned long long)g_paths[i].count);
  printf("never: ops");
  for (uint32_t o = 0; o < AT_OP_COUNT; o++) {
    uint64_t sum = 0;
    for (uint32_t t = 0; t < AT_DTYPE_COUNT; t++) sum += g_ops[o][t];
    if (!sum) printf(" %s", at_op_text((at_op)o));
  }
  printf("\nnever: runtime kernels");
  for (uint32_t i = 0; i < AT_LEN(g_runtime); i++)
    if (!g_runtime[i]) never++, printf(" %s", runtime_names[i]);
  printf(
      "\n%llu of %d ops, %llu pairs of op and type, %llu of %zu runtime "
      "kernels, %u paths\n",
      (unsigned long long)ops, (int)AT_OP_COUNT, (unsigned long long)pairs,
      (unsigned long long)(AT_LEN(g_runtime) - never), AT_LEN(g_runtime),
      g_num_paths);
}

// For tools/random_table.py: one line a count.
void coverage_table(void) {
  for (uint32_t o = 0; o < AT_OP_COUNT; o++)
    for (uint32_t t = 0; t < AT_DTYPE_COUNT; t++)
      if (g_ops[o][t])
        printf("op\t%s\t%s\t%llu\t%.3g\n", at_op_text((at_op)o),
               at_dtype_of((at_dtype)t)->text, (unsigned long long)g_ops[o][t],
               g_worst[o][t]);
  for (uint32_t r = 0; r < at_random_num_rows(); r++)
    for (uint32_t t = 0; t < AT_DTYPE_COUNT; t++)
      if (at_random_row_types(r) >> t & 1)
        printf("pair\t%s %s\t%s\t%llu\n", at_op_text(at_random_row_op(r)),
               at_random_row_variant(r), at_dtype_of((at_dtype)t)->text,
               (unsigned long long)g_rows[r][t]);
  for (uint32_t o = 0; o < AT_OP_COUNT; o++)
    if (at_random_reason((at_op)o))
      printf("without\t%s\t%s\n", at_op_text((at_op)o),
             at_random_reason((at_op)o));
  for (excuse_id i = 0; i < EXCUSE_COUNT; i++) {
    const excuse *x = judge_excuse(i);
    printf("excuse\t%s\t%llu\t%s\t%s\n", x->name, (unsigned long long)x->times,
           x->what, x->why);
  }
  for (uint32_t i = 0; i < AT_LEN(g_runtime); i++)
    printf("kernel\t%s\t%llu\n", runtime_names[i],
           (unsigned long long)g_runtime[i]);
  for (uint32_t i = 0; i < g_num_paths; i++)
    printf("path\t%s\t%llu\n", g_paths[i].name,
           (unsigned long long)g_paths[i].count);
}
