// The tables that come with Atoll: data/perf/*.perf, compiled in as bytes.
#include "base/log.h"
#include "base/once.h"
#include "cost/cost_internal.h"

extern const at_bytes at_cost_perf_files[];
extern const char *const at_cost_perf_files_names[];
extern const size_t at_cost_perf_files_count;

static at_once g_once = AT_ONCE_INIT;
static at_perf_tables g_tables;

// Reads every table, once in a process. A file that cannot be read is logged
// and left out.
static at_status load(void) {
  static at_arena *a;  // lives as long as the process
  at_perf_tables all = {0};
  AT_TRY_ALLOC(a, at_arena_create());
  for (size_t i = 0; i < at_cost_perf_files_count; i++) {
    at_perf_table *t;
    size_t n = 0;
    at_status st = at_perf_read(at_cost_perf_files[i], a, &t, &n);
    if (!at_ok(st))
      at_log(AT_LOG_ERROR, "data/perf/%s: %s", at_cost_perf_files_names[i],
             at_status_message(st));
    at_status_free(st);
    for (size_t k = 0; k < n; k++) at_vec_push(a, &all, t[k]);
  }
  at_status st = at_arena_status(a);
  if (st.err)
    at_arena_destroy(a);
  else
    g_tables = all;
  return st;
}

// INTERNAL if there is not one table.
at_status at_perf_builtin(const at_perf_table **out, size_t *count) {
  AT_TRY(at_once_do(&g_once, load));
  *out = g_tables.ptr;
  *count = g_tables.len;
  return g_tables.len ? AT_OK
                      : AT_FAIL(AT_INTERNAL,
                                "the built-in performance tables are missing");
}

// Linear: there is a handful of tables.
const at_perf_table *at_perf_find(const at_perf_table *tables, size_t count,
                                  const char *machine) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(tables[i].machine, machine) == 0) return &tables[i];
  return NULL;
}
