// libatoll_input.so: what atoll_input.h declares, and what only the Python
// package calls.
#include <pthread.h>
#include <stdio.h>

#include "base/cpu.h"
#include "base/locale.h"
#include "spinput/atoll_input.h"
#include "spinput/flags.h"
#include "spinput/objects.h"
#include "spinput/size.h"
#include "spinput/spinput.h"

#define EXPORT __attribute__((visibility("default")))

// One pool for all, made at the first call; a forked child makes its own.
static at_pool *pool;
static pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER;

// threads 0: one per core of the machine. The pool lives as long as the
// process.
static at_status open_pool(int32_t threads) {
  at_status st = AT_OK;
  pthread_mutex_lock(&pool_mutex);
  // The parent's pool leaks in the child, which may not free what threads hold.
  if (pool && at_pool_forked(pool)) pool = NULL;  // its threads are not here
  if (!pool)
    st =
        at_pool_create(threads > 0 ? (uint32_t)threads : at_cpu_count(), &pool);
  pthread_mutex_unlock(&pool_mutex);
  return st;
}

// Takes st; its code and text for C.
static int finish(at_status st, char *message, size_t size) {
  if (size) snprintf(message, size, "%s", at_status_message(st));
  return (int)at_code_take(st);
}

int atoll_input_start(int32_t threads, char *message, size_t size) {
  return finish(open_pool(threads), message, size);
}

int atoll_input_sizes(const at_spinput_options *o,
                      const at_spinput_stack *stack, at_spinput_sizes *out,
                      char *message, size_t size) {
  return finish(at_spinput_sizes_of(o, stack, out), message, size);
}

int atoll_input_run(const at_spinput_options *o, const at_spinput_stack *stacks,
                    int32_t stack_count, const at_spinput_batch *batches,
                    int32_t batch_count, at_spinput_out *outs,
                    int32_t *num_minibatches, char *message, size_t size) {
  at_status st = open_pool(0);
  if (at_ok(st))
    st = at_spinput_run(pool, o, stacks, stack_count, batches, batch_count,
                        outs, num_minibatches);
  return finish(st, message, size);
}

// See at_spinput_rows_of. Without threads the answer is 0: the first object is
// not taken.
EXPORT int64_t atoll_input_rows(const at_spinput_layout *layout,
                                const void *const *objects, int64_t n,
                                at_spinput_row *rows, int32_t *bytes) {
  at_status st = open_pool(0);
  if (!at_ok(st)) {  // the caller converts, and the run reports it
    at_status_free(st);
    return 0;
  }
  return at_spinput_rows_of(pool, layout, objects, n, rows, bytes);
}

int atoll_input_read(const at_spinput_coo *c, const char *table, int32_t ids,
                     char *message, size_t size) {
  return finish(at_spinput_read(c, table, ids, NULL, NULL), message, size);
}

int atoll_input_skew(const at_spinput_options *o, const at_spinput_feature *f,
                     const at_spinput_batch *batch, int64_t *histogram,
                     at_spinput_hot *hot, int32_t hot_len, int32_t *hot_found,
                     char *message, size_t size) {
  return finish(
      at_spinput_skew(o, f, batch, histogram, hot, hot_len, hot_found), message,
      size);
}

void atoll_input_buckets(const uint32_t *cols, size_t n, uint8_t *out) {
  at_spinput_buckets(cols, n, out);
}

EXPORT int atoll_input_flags(const char *args, at_spinput_flags *out,
                             char *message, size_t size) {
  memset(out, 0, sizeof *out);
  return finish(at_spinput_flags_read(out, at_str_of(args)), message, size);
}

// p->chip is filled in by name; `report` (NULL: none) receives the text.
EXPORT int atoll_input_size(const char *target, at_spinput_program *p,
                            at_spinput_table_size *tables, at_spinput_size *out,
                            char *report, size_t report_size, char *message,
                            size_t size) {
  locale_t before = at_locale_enter();  // JSON is read, figures are printed
  at_status st = at_spinput_chip_find(at_str_of(target), &p->chip);
  bool found = at_ok(st);
  if (found) st = at_spinput_size_of(p, tables, out);
  if (found && report && report_size) {
    at_strbuf b = {0};
    at_spinput_size_print(p, tables, out, &b);
    snprintf(report, report_size, "%s", b.ptr ? b.ptr : "");
    at_strbuf_free(&b);
  }
  at_locale_leave(before);
  return finish(st, message, size);
}

EXPORT int32_t atoll_input_optimizer(const char *name) {
  return at_spinput_optimizer_of(at_str_of(name));
}
