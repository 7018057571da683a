// Programs that were compiled again because limits of their embedding tables
// changed (feedback-directed optimisation): how many, and their time.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "abi/collective.h"
#include "abi/sparsecore.h"
#include "base/clock.h"
#include "pjrt/pjrt_internal.h"
#include "profile/profile.h"

enum {
  MOST_SEEN = 4096
};  // programs and their limits; later ones do not count

// A program, whatever its limits, and limits that it was compiled with.
typedef struct seen {
  uint64_t program, limits;
} seen;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static seen *list;
static uint32_t num_seen;
static uint64_t num_recompiles, recompile_ns;

static const at_x_sparse *sparse_of(const at_xstep *s, const uint8_t *params) {
  if (s->kind != AT_STEP_COLLECTIVE && s->kind != AT_STEP_START) return NULL;
  const at_x_collective *x = (const void *)(params + s->params);
  if (x->kind != AT_COLL_SPARSE) return NULL;
  return (const void *)((const uint8_t *)x + at_x_collective_bytes(x));
}

// The first lookup or update with limits; NULL: the program has none.
static const at_x_sparse *read_limits(const at_loaded *l, seen *out) {
  uint64_t steps, bytes;
  const at_xstep *s = at_loaded_section(l, AT_XS_STEPS, &steps);
  const uint8_t *params = at_loaded_section(l, AT_XS_PARAMS, &bytes);
  const char *name = at_loaded_string(l, at_loaded_header(l)->name);
  const at_x_sparse *first = NULL;
  *out = (seen){at_hash(AT_HASH_SEED, name, strlen(name)), AT_HASH_SEED};
  for (uint64_t i = 0; i < steps; i++) {
    const at_x_sparse *x = sparse_of(&s[i], params);
    if (!x || !x->max_ids) continue;
    if (!first) first = x;
    const char *table = at_loaded_string(l, x->name);
    uint64_t is[] = {x->op,      x->num_devices, x->scs_per_device,
                     x->samples, x->width,       x->num_tables};
    uint64_t may[] = {x->max_ids, x->max_unique, x->ids};
    out->program = at_hash(out->program, table, strlen(table));
    out->program = at_hash(out->program, is, sizeof is);
    out->limits = at_hash(out->limits, may, sizeof may);
  }
  return first;
}

// Under the lock: was the program compiled before, with other limits alone?
static bool is_recompile(const seen *s) {
  bool program = false;
  for (uint32_t i = 0; i < num_seen; i++) {
    if (list[i].program != s->program) continue;
    if (list[i].limits == s->limits) return false;
    program = true;
  }
  if (!list) list = malloc(MOST_SEEN * sizeof *list);
  if (list && num_seen < MOST_SEEN) list[num_seen++] = *s;
  return program;
}

// Programs without limits of tables are passed over. A recompile also goes into
// the profile, with the table's new limits.
void at_pjrt_note_compiled(const at_loaded *l, uint64_t start_ns) {
  seen s;
  const at_x_sparse *x = read_limits(l, &s);
  if (!x) return;
  uint64_t end = at_clock_ns();
  pthread_mutex_lock(&lock);
  bool again = is_recompile(&s);
  if (again) num_recompiles++, recompile_ns += end - start_ns;
  pthread_mutex_unlock(&lock);
  if (!again) return;
  char detail[256];
  snprintf(detail, sizeof detail,
           "table %s now has max_ids_per_partition %llu, "
           "max_unique_ids_per_partition %llu",
           at_loaded_string(l, x->name), (unsigned long long)x->max_ids,
           (unsigned long long)x->max_unique);
  at_profile_record(&(at_profile_event){
      .start_ns = start_ns,
      .end_ns = end,
      .kind = AT_PROFILE_RECOMPILE,
      .name = at_loaded_string(l, at_loaded_header(l)->name),
      .detail = detail,
      .source = ""});
}

void at_pjrt_recompiles(uint64_t *count, uint64_t *ns) {
  pthread_mutex_lock(&lock);
  *count = num_recompiles;
  *ns = recompile_ns;
  pthread_mutex_unlock(&lock);
}
