// Passes over traced programs (graph.h).
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "base/verify.h"
#include "control/graph.h"
#include "control/table.h"

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a traced program");
}

static bool is_made(uint64_t name) { return name & AT_MSG_MADE; }
static uint32_t number(uint64_t name) { return (uint32_t)name; }

// Of all that name an array, the shard follows the name (message.h).
static uint32_t *shard_of(uint64_t *name) { return (uint32_t *)(name + 1); }

// The flags of an argument of a launch; other uses have none.
static uint32_t flags_of(uint32_t kind, uint64_t *name) {
  return kind == AT_MSG_LAUNCH ? shard_of(name)[1] : 0;
}

// The first array that a step makes, as a name; *count of them. Steps of the
// client make none.
static uint64_t made_by(const at_graph_step *s, uint32_t *count) {
  *count = s->kind != AT_GRAPH_HOST;
  if (!*count) return 0;
  if (s->kind == AT_MSG_COPY)
    return ((const at_msg_copy *)(const void *)s->body)->array;
  if (s->kind == AT_MSG_GROUP)
    return ((const at_msg_group *)(const void *)s->body)->array;
  if (s->kind == AT_MSG_RESHARD)
    return ((const at_msg_reshard *)(const void *)s->body)->array;
  *count = ((const at_msg_launch *)(const void *)s->body)->num_outputs;
  return ((const at_msg_launch *)(const void *)s->body)->outputs;
}

// May it be done once for two, or not at all?
static bool is_pure(const at_graph_step *s) {
  return s->kind != AT_GRAPH_HOST &&
         (s->kind != AT_MSG_LAUNCH || !s->program->effects);
}

// ---- What is known of arrays
typedef struct fact {
  uint32_t maker;    // step of a made one; UINT32_MAX: none
  uint32_t donated;  // step that takes its memory; UINT32_MAX: none does
  uint64_t is;       // another name for it; 0: none
  uint32_t base;     // of that: which shard its shard 0 is
  bool copied_only;  // nobody needs it but copies of it, or of groups of it
} fact;

typedef struct facts {
  at_graph *g;
  fact *made, *inputs;
  uint32_t step;  // that is looked at
} facts;

// NULL: a constant, of which nothing is known.
static fact *fact_of(const facts *f, uint64_t name) {
  if (is_made(name)) return &f->made[number(name)];
  return name & AT_MSG_INPUT ? &f->inputs[number(name)] : NULL;
}

// Which step makes an array, which takes its memory, and whether anything but
// copies and groups reads it.
static bool note_use(void *arg, uint64_t *name, bool makes, uint32_t count) {
  facts *f = arg;
  const at_graph_step *s = &f->g->steps[f->step];
  fact *x = fact_of(f, *name);
  for (uint32_t i = 0; makes && i < count; i++) x[i].maker = f->step;
  if (makes || !x) return true;
  if (flags_of(s->kind, name) & (AT_MSG_DONATED | AT_MSG_GIVEN))
    x->donated = f->step;
  if (s->kind == AT_MSG_LAUNCH || s->kind == AT_MSG_RESHARD)
    x->copied_only = false;
  return true;
}

// An at_message_name_fn: a member of a group that is needed.
static bool note_member(void *arg, uint64_t *name, bool makes, uint32_t count) {
  facts *f = arg;
  fact *x = fact_of(f, *name);
  if (!makes && x) x->copied_only = false;
  return true;
}

// What find_facts has made.
static void free_facts(facts *f) {
  free(f->made);
  free(f->inputs);
}

// One walk over all steps in order, and one backwards for groups, as a group
// may be a member of another. free_facts afterwards.
static at_status find_facts(at_graph *g, facts *f) {
  *f = (facts){.g = g,
               .made = calloc(g->num_made + 1, sizeof *f->made),
               .inputs = calloc(g->num_inputs + 1, sizeof *f->inputs)};
  if (!f->made || !f->inputs) return free_facts(f), no_memory();
  for (uint32_t k = 0; k < g->num_made; k++)
    f->made[k] = (fact){UINT32_MAX, UINT32_MAX, 0, 0, !g->made[k].kept};
  for (uint32_t k = 0; k < g->num_inputs; k++)
    f->inputs[k] = (fact){UINT32_MAX, UINT32_MAX, 0, 0, false};
  for (f->step = 0; f->step < g->num_steps; f->step++)
    if (!g->steps[f->step].removed)
      at_message_names(g->steps[f->step].kind, g->steps[f->step].body, note_use,
                       f);
  // Members of a group that somebody needs are needed, too.
  for (f->step = g->num_steps; f->step--;) {
    at_graph_step *s = &g->steps[f->step];
    uint32_t n;
    if (!s->removed && s->kind == AT_MSG_GROUP &&
        !f->made[number(made_by(s, &n))].copied_only)
      at_message_names(s->kind, s->body, note_member, f);
  }
  return AT_OK;
}

// Uses of what has another name get that.
static bool use_other(void *arg, uint64_t *name, bool makes, uint32_t count) {
  const facts *f = arg;
  const fact *x = makes ? NULL : fact_of(f, *name);
  if (x && x->is) {
    *name = x->is;
    *shard_of(name) += x->base;
  }
  return true;
}

// A result that another step makes as well becomes that step's.
static void rename_results(const facts *f) {
  for (uint32_t i = 0; i < f->g->num_results; i++) {
    const fact *x = fact_of(f, f->g->results[i]);
    if (x && x->is) f->g->results[i] = x->is;
  }
}

// ---- Copies
// The memory of a result of the program, or of what is donated, is its own.
static bool may_be_other(const facts *f, uint64_t name, uint64_t other) {
  const fact *x = fact_of(f, name), *y = fact_of(f, other);
  return !f->g->made[number(name)].kept && x->donated == UINT32_MAX &&
         (!y || y->donated == UINT32_MAX);
}

// Where a shard is, of those whose chip and memory are known.
static bool is_at(const facts *f, const at_msg_shard *s, uint32_t chip,
                  uint32_t kind) {
  if (s->chip != chip || !is_made(s->array)) return false;
  const at_graph_step *by = &f->g->steps[f->made[number(s->array)].maker];
  return by->kind == AT_MSG_COPY &&
         ((const at_msg_copy *)(const void *)by->body)->kind == kind;
}

// Looks through copies, and groups, that the copy is made of.
static void find_origin(const facts *f, at_msg_copy *m) {
  at_msg_shard at = m->from;
  for (;;) {
    const fact *x = is_made(at.array) ? fact_of(f, at.array) : NULL;
    const at_graph_step *by = x ? &f->g->steps[x->maker] : NULL;
    bool copied = by && by->kind == AT_MSG_COPY && x->copied_only;
    if (copied) {
      at = ((const at_msg_copy *)(const void *)by->body)->from;
    } else if (by && by->kind == AT_MSG_GROUP) {
      const at_msg_group *g = (const void *)by->body;
      if (at.shard >= g->count) return;
      at = ((const at_msg_shard *)(const void *)(g + 1))[at.shard];
    } else {
      return;
    }
    const fact *y = fact_of(f, at.array);
    if (y && y->donated < f->step) return;
    if (copied) m->from = at;
  }
}

// The array whose shards these are, all of them and in order; 0: none.
static uint64_t whole_of(const facts *f, const at_msg_group *m) {
  const at_msg_shard *s = (const void *)(m + 1);
  for (uint64_t i = 0; i < m->count; i++)
    if (s[i].array != s[0].array || s[i].shard != i) return 0;
  if (!is_made(s->array)) return 0;
  const at_graph_step *by = &f->g->steps[f->made[number(s->array)].maker];
  if (by->kind == AT_MSG_COPY) return m->count == 1 ? s->array : 0;
  uint64_t all = by->kind == AT_MSG_GROUP
                     ? ((const at_msg_group *)(const void *)by->body)->count
                 : by->kind == AT_MSG_RESHARD
                     ? ((const at_msg_reshard *)(const void *)by->body)->num_to
                     : by->program->num_chips;
  return all == m->count ? s->array : 0;
}

// The copy of an array of the device's memory into that same memory, through
// others: the step that made it says which memory it has.
static bool returns_home(const facts *f, const at_msg_copy *m,
                         const at_msg_shard *before) {
  if (before->array == m->from.array && before->shard == m->from.shard)
    return false;
  const at_graph_step *by =
      is_made(m->from.array)
          ? &f->g->steps[f->made[number(m->from.array)].maker]
          : NULL;
  // Results of computations are in the device's memory (0), unless they say
  // otherwise.
  return by && by->kind == AT_MSG_LAUNCH && m->from.chip == m->chip &&
         !m->kind && !strchr(by->program->results, '@');
}

// The copy vanishes where it would lie where its source is already; otherwise
// its source is moved as near as possible.
static void see_copy(facts *f, at_graph_step *s) {
  at_msg_copy *m = (void *)s->body;
  const at_msg_shard before = m->from;
  find_origin(f, m);
  if (before.array != m->from.array) f->g->counts[AT_GRAPH_COPIES]++;
  if (!(is_at(f, &m->from, m->chip, m->kind) || returns_home(f, m, &before)) ||
      !may_be_other(f, m->array, m->from.array))
    return;
  fact *x = fact_of(f, m->array);
  x->is = m->from.array;
  x->base = m->from.shard;
  s->removed = true;
  f->g->counts[AT_GRAPH_COPIES] += before.array == m->from.array;
}

// A group of all shards of one array in order is that array.
static void see_group(facts *f, at_graph_step *s) {
  const at_msg_group *m = (const void *)s->body;
  uint64_t whole = whole_of(f, m);
  if (!whole || !may_be_other(f, m->array, whole)) return;
  fact_of(f, m->array)->is = whole;
  s->removed = true;
  f->g->counts[AT_GRAPH_COPIES]++;
}

// In order, so that what a copy stands for is known before its uses.
at_status at_graph_drop_copies(at_graph *g) {
  facts f;
  AT_TRY(find_facts(g, &f));
  for (f.step = 0; f.step < g->num_steps; f.step++) {
    at_graph_step *s = &g->steps[f.step];
    if (s->removed) continue;
    at_message_names(s->kind, s->body, use_other, &f);
    if (s->kind == AT_MSG_COPY) see_copy(&f, s);
    if (s->kind == AT_MSG_GROUP) see_group(&f, s);
  }
  free_facts(&f);
  return AT_OK;
}

// ---- The same twice
// What a step does, without the names of what it makes and of the launch.
static void strip(const at_graph_step *s, uint8_t *out) {
  memcpy(out, s->body, s->bytes);
  if (s->kind == AT_MSG_COPY) ((at_msg_copy *)(void *)out)->array = 0;
  if (s->kind == AT_MSG_GROUP) ((at_msg_group *)(void *)out)->array = 0;
  if (s->kind == AT_MSG_RESHARD) ((at_msg_reshard *)(void *)out)->array = 0;
  if (s->kind == AT_MSG_LAUNCH) {
    at_msg_launch *m = (void *)out;
    m->outputs = 0;
    m->launch_id = 0;
  }
}

// Never 0, which tables take for a free slot. room: at least s->bytes.
static uint64_t hash_of(const at_graph_step *s, uint8_t *room) {
  strip(s, room);
  uint64_t h =
      at_hash(at_hash(AT_HASH_SEED, &s->kind, sizeof s->kind), room, s->bytes);
  return h ? h : 1;
}

// An at_message_name_fn: false for an argument whose memory is taken.
static bool takes(void *arg, uint64_t *name, bool makes, uint32_t count) {
  const at_graph_step *s = arg;
  return makes || !(flags_of(s->kind, name) & (AT_MSG_DONATED | AT_MSG_GIVEN));
}

// Every result of `s` may be that of `as`.
static bool may_merge(const facts *f, const at_graph_step *s,
                      const at_graph_step *as) {
  uint32_t n, m;
  uint64_t mine = made_by(s, &n), its = made_by(as, &m);
  bool good = n == m;
  for (uint32_t i = 0; good && i < n; i++) {
    const fact *x = fact_of(f, mine + i), *y = fact_of(f, its + i);
    good = x->donated == UINT32_MAX && y->donated == UINT32_MAX &&
           !(f->g->made[number(mine + i)].kept &&
             f->g->made[number(its + i)].kept);
  }
  return good;
}

// Uses of s's arrays go to those of `as`; a result of the program stays one.
static void merge(facts *f, at_graph_step *s, const at_graph_step *as) {
  uint32_t n;
  uint64_t mine = made_by(s, &n), its = made_by(as, &n);
  for (uint32_t i = 0; i < n; i++) {
    at_graph_made *a = &f->g->made[number(mine + i)];
    fact_of(f, mine + i)->is = its + i;
    f->g->made[number(its + i)].kept |= a->kept;
    a->kept = false;
  }
  s->removed = true;
  f->g->counts[AT_GRAPH_SAME]++;
}

// Compares with the one step of the same hash; a collision merely loses the
// optimization. rooms: two of `room` bytes.
static at_status see_same(facts *f, at_table *seen, uint8_t *rooms,
                          size_t room) {
  at_graph_step *s = &f->g->steps[f->step];
  at_message_names(s->kind, s->body, use_other, f);
  if (!is_pure(s) || !at_message_names(s->kind, s->body, takes, s))
    return AT_OK;
  uint64_t key = hash_of(s, rooms);
  at_graph_step *as = at_table_find(seen, key);
  if (!as) return at_table_put(seen, key, s) ? AT_OK : no_memory();
  strip(as, rooms + room);
  if (as->kind == s->kind && as->bytes == s->bytes &&
      !memcmp(rooms, rooms + room, s->bytes) && may_merge(f, s, as))
    merge(f, s, as);
  return AT_OK;
}

// Steps are compared by their bodies with the names that earlier merges gave,
// in two rooms as large as the largest body.
at_status at_graph_merge_same(at_graph *g) {
  facts f;
  at_table seen = {0};
  size_t most = 0;
  for (uint32_t i = 0; i < g->num_steps; i++)
    most = AT_MAX(most, (size_t)g->steps[i].bytes);
  uint8_t *rooms = malloc(2 * most + 1);
  at_status st = rooms ? find_facts(g, &f) : no_memory();
  if (st.err) return free(rooms), st;
  for (f.step = 0; !st.err && f.step < g->num_steps; f.step++)
    if (!g->steps[f.step].removed) st = see_same(&f, &seen, rooms, most);
  // Uses of what has gone are renamed even where the pass came to no end.
  for (; f.step < g->num_steps; f.step++)
    if (!g->steps[f.step].removed)
      at_message_names(g->steps[f.step].kind, g->steps[f.step].body, use_other,
                       &f);
  rename_results(&f);
  at_table_free(&seen);
  free_facts(&f);
  free(rooms);
  return st;
}

// ---- What nobody needs
typedef struct needs {
  const at_graph *g;
  bool *made;
} needs;

// An at_message_name_fn: what a live step reads is needed.
static bool need(void *arg, uint64_t *name, bool makes, uint32_t count) {
  const needs *x = arg;
  if (!makes && is_made(*name)) x->made[number(*name)] = true;
  return true;
}

// Backwards, so a chain of dead steps goes in one walk.
at_status at_graph_drop_dead(at_graph *g) {
  needs x = {g, calloc(g->num_made + 1, sizeof *x.made)};
  if (!x.made) return no_memory();
  for (uint32_t i = g->num_steps; i--;) {
    at_graph_step *s = &g->steps[i];
    if (s->removed) continue;
    uint32_t n;
    uint64_t first = made_by(s, &n);
    bool live = !is_pure(s);
    for (uint32_t k = 0; k < n && !live; k++)
      live = g->made[number(first + k)].kept || x.made[number(first + k)];
    if (live) {
      at_message_names(s->kind, s->body, need, &x);
    } else {
      s->removed = true;
      g->counts[AT_GRAPH_DEAD]++;
    }
  }
  free(x.made);
  return AT_OK;
}

// ---- Drops
typedef struct placing {
  at_graph *g;
  uint32_t step;
} placing;

// An at_message_name_fn: the last step that mentions an array is where it ends.
static bool place(void *arg, uint64_t *name, bool makes, uint32_t count) {
  const placing *p = arg;
  if (!is_made(*name)) return true;
  at_graph_made *m = &p->g->made[number(*name)];
  for (uint32_t i = 0; i < count; i++) {
    m[i].last = p->step;
    m[i].taken |=
        !makes && (flags_of(p->g->steps[p->step].kind, name) & AT_MSG_GIVEN);
  }
  return true;
}

// An at_message_name_fn: is what a step names there, and not gone yet?
static bool is_there(void *arg, uint64_t *name, bool makes, uint32_t count) {
  const placing *p = arg;
  if (!is_made(*name)) return true;
  const uint32_t k = number(*name);
  if (k >= p->g->num_made || count > p->g->num_made - k) return false;
  for (uint32_t i = k; i < k + count; i++)
    if (p->g->made[i].last == UINT32_MAX || p->g->made[i].last < p->step)
      return false;
  return true;
}

// No step uses an array behind its last use, where its drop is.
static bool drops_are_last(at_graph *g) {
  placing p = {.g = g};
  bool good = true;
  for (; good && p.step < g->num_steps; p.step++) {
    const at_graph_step *s = &g->steps[p.step];
    good = s->removed || at_message_names(s->kind, s->body, is_there, &p);
  }
  return good;
}

// Walks forward and lets each use overwrite the one before: the last one stays.
at_status at_graph_place_drops(at_graph *g) {
  placing p = {.g = g};
  for (uint32_t k = 0; k < g->num_made; k++) {
    g->made[k].last = UINT32_MAX;  // nothing makes it
    g->made[k].taken = false;
  }
  for (; p.step < g->num_steps; p.step++) {
    at_graph_step *s = &g->steps[p.step];
    if (!s->removed) at_message_names(s->kind, s->body, place, &p);
  }
  for (uint32_t k = 0; k < g->num_made; k++) {
    const at_graph_made *m = &g->made[k];
    g->counts[AT_GRAPH_DROPS] += m->last != UINT32_MAX && !m->kept && !m->taken;
  }
  AT_VERIFY(drops_are_last(g));
  return AT_OK;
}

// Copies first, as what they hide is seen by the second pass; what both leave
// without a use goes in the third.
at_status at_graph_optimize(at_graph *g, bool all) {
  if (all) {
    AT_TRY(at_graph_drop_copies(g));
    AT_TRY(at_graph_merge_same(g));
    AT_TRY(at_graph_drop_dead(g));
  }
  return at_graph_place_drops(g);
}
