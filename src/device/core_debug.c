// Cores under a debugger: who runs, and where they stop.
#include "device/core_debug.h"

#include <stdlib.h>

#include "base/config.h"

debugger g_debugger = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

// Between two looks whether the debugger interrupts.
enum { kHooksOfALook = 64 };

// ---- Places
const at_xlocation *debug_place(const core_state *c, int32_t loc) {
  const at_core_program *p = c->program;
  bool known = loc >= 0 && (uint32_t)loc < p->record->num_locations;
  return known ? &p->locations[loc] : NULL;
}

static const char kCalled[] = ", called at ";

uint32_t debug_depth(const core_state *c, int32_t loc) {
  const at_xlocation *l = debug_place(c, loc);
  uint32_t n = 0;
  const char *p = l ? c->program->strings + l->op : "";
  while ((p = strstr(p, kCalled))) n++, p += strlen(kCalled);
  return n;
}

// Does `loc` go on with the line that called the function which `before` is of?
static bool is_return(const core_state *c, int32_t before, int32_t loc) {
  const at_xlocation *from = debug_place(c, before), *to = debug_place(c, loc);
  char frame[512];
  if (!from || !to) return false;
  const char *strings = c->program->strings;
  snprintf(frame, sizeof frame, "%s%s:%u:", kCalled, strings + to->file,
           to->line);
  return strstr(strings + from->op, frame) != NULL;
}

// ---- Who runs
// Is it about to come into the queue? Of a group all do, once it is complete.
static bool is_coming(const debug_core *d) {
  const at_core_group *g = d->core->group;
  if (d->state == DEBUG_NEW) return g && g->complete && !g->failed;
  return d->state == DEBUG_WAITS && g && !d->core->wait_for && !g->far;
}

// Devices, cores and programs in their order.
static int order_of(const core_state *a, const core_state *b) {
  const int64_t x[] = {a->head.device_id, a->program_index, a->head.core_index,
                       a->head.subcore_index},
                y[] = {b->head.device_id, b->program_index, b->head.core_index,
                       b->head.subcore_index};
  for (size_t i = 0; i < AT_LEN(x); i++)
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  return 0;
}

// Those that came in one turn come in no order that is the same each time.
static bool goes_before(const debug_core *a, const debug_core *b) {
  const debugger *g = &g_debugger;
  bool first = g->wanted && a->id == g->wanted;
  bool second = g->wanted && b->id == g->wanted;
  if (first != second) return first;
  if (a->came != b->came) return a->came < b->came;
  if (!a->core || !b->core) return !a->core && b->core;
  return order_of(a->core, b->core) < 0;
}

// Cores of a group are numbered when all are there, so that each has the same
// number each time.
static void give_numbers(void) {
  debugger *g = &g_debugger;
  for (debug_core *d = g->first; d; d = d->next) {
    const core_state *c = d->core;
    if (!d->id && (!c->together || (c->group && c->group->complete)))
      d->id = ++g->ids;
  }
}

// Under the lock: who is next, once nobody is about to come.
static void floor_grant(void) {
  debugger *g = &g_debugger;
  if (g->floor || !g->queue) return;
  for (const debug_core *d = g->first; d; d = d->next)
    if (is_coming(d)) return;
  give_numbers();
  debug_core **best = &g->queue;
  for (debug_core **at = best; *at; at = &(*at)->behind)
    if (goes_before(*at, *best)) best = at;
  debug_core *d = *best;
  *best = d->behind;
  g->floor = d;
  g->turns++;
  at_event_fire(d->turn, AT_OK);
}

// Waits for its turn. The caller holds no lock.
static void floor_take(debug_core *d) {
  debugger *g = &g_debugger;
  at_event *turn = at_event_create();
  pthread_mutex_lock(&g->lock);
  d->state = DEBUG_READY;
  d->turn = turn;
  d->came = g->turns;
  if (turn) {  // without memory for it two run at a time
    d->behind = g->queue;
    g->queue = d;
  }
  floor_grant();
  pthread_mutex_unlock(&g->lock);
  if (turn) at_status_free(at_event_wait(turn));
  if (turn) at_event_release(turn);
  d->state = DEBUG_RUNS;
}

// state: why it gives up its turn.
static void floor_give(debug_core *d, debug_state state) {
  debugger *g = &g_debugger;
  pthread_mutex_lock(&g->lock);
  d->state = state;
  if (g->floor == d) g->floor = NULL;
  floor_grant();
  pthread_mutex_unlock(&g->lock);
}

void core_debug_enter(core_state *c) {
  if (c->debug) floor_take(c->debug);
}

// At a failure inside a wait the core still counts as waiting.
void core_debug_leave(core_state *c) {
  debug_core *d = c->debug;
  if (d) floor_give(d, d->wait_for ? DEBUG_WAITS : DEBUG_ENDED);
}

// Others that are ready come first.
static void give_and_take(debug_core *d) {
  debugger *g = &g_debugger;
  at_event *turn = at_event_create();
  if (!turn) return;
  pthread_mutex_lock(&g->lock);
  d->state = DEBUG_READY;
  d->turn = turn;
  d->came = g->turns;
  d->behind = g->queue;
  g->queue = d;
  if (g->floor == d) g->floor = NULL;
  floor_grant();
  pthread_mutex_unlock(&g->lock);
  at_status_free(at_event_wait(turn));
  at_event_release(turn);
  d->state = DEBUG_RUNS;
}

void core_debug_yield(core_state *c) {
  if (c->debug) give_and_take(c->debug);
}

void core_debug_ended(core_state *c) {
  if (c->debug) floor_give(c->debug, DEBUG_ENDED);
}

// ---- Beginning and end
// Once for each debugger; one that has gone is not looked for again.
static at_status find_debugger(const char *folder) {
  debugger *g = &g_debugger;
  debug_core nobody = {.loc = -1};
  uint64_t name = at_hash(AT_HASH_SEED, folder, strlen(folder));
  at_status st = AT_OK;
  floor_take(&nobody);
  if (g->asked != name) {
    st = debug_connect(folder);
    if (!st.err) {
      g->asked = name;
      debug_stop(NULL, "hello", 0, "", AT_OK);
    }
  }
  floor_give(&nobody, DEBUG_ENDED);
  return st;
}

at_status core_debug_begin(void) {
  const char *folder = at_config_text(AT_CONFIG_DEBUG);
  return *folder ? find_debugger(folder) : AT_OK;
}

void core_debug_join(core_state *c) {
  debugger *g = &g_debugger;
  // A second run tells of results, not of steps.
  if (!*at_config_text(AT_CONFIG_DEBUG) || core_runs_again(c)) return;
  debug_core *d = calloc(1, sizeof *d);
  if (!d) core_stop(c, AT_RESOURCE_EXHAUSTED, -1, "no memory for the debugger");
  d->core = c;
  d->loc = d->before = -1;
  pthread_mutex_lock(&g->lock);
  debug_core **at = &g->first;
  while (*at && order_of((*at)->core, c) <= 0) at = &(*at)->next;
  d->next = *at;
  *at = d;
  pthread_mutex_unlock(&g->lock);
  c->debug = d;
}

// Afterwards nobody can stop at it.
void core_debug_part(core_state *c) {
  debugger *g = &g_debugger;
  debug_core *d = c->debug;
  if (!d) return;
  pthread_mutex_lock(&g->lock);
  debug_core **at = &g->first;
  while (*at != d) at = &(*at)->next;
  *at = d->next;
  floor_grant();
  // Whoever runs next is stepped on.
  if (g->stepped == d->id) g->stepped = 0;
  if (g->wanted == d->id) g->wanted = 0;
  pthread_mutex_unlock(&g->lock);
  c->debug = NULL;
  free(d);
}

// ---- Where it stops
static bool is_kernel(const core_state *c, const char *name) {
  return !*name || !strcmp(name, core_name(c));
}

// The last parts of a path.
static bool is_file(const char *path, const char *tail) {
  size_t n = strlen(path), k = strlen(tail);
  return k && n >= k && !strcmp(path + n - k, tail) &&
         (n == k || path[n - k - 1] == '/' || *tail == '/');
}

// The first line with code that the breakpoint may stand for.
static uint32_t line_with_code(debug_break *b, const at_core_program *p) {
  if (b->program == p) return b->found;
  b->program = p;
  b->found = 0;
  for (uint32_t i = 0; i < p->record->num_locations; i++) {
    const at_xlocation *l = &p->locations[i];
    if (l->line >= b->line && l->line <= b->last &&
        (!b->found || l->line < b->found) &&
        is_file(p->strings + l->file, b->file))
      b->found = l->line;
  }
  return b->found;
}

// The line must be one with code; a range of lines stands for its first.
static bool stops_at_line(const debug_core *d, debug_break *b) {
  const core_state *c = d->core;
  const at_xlocation *l = debug_place(c, d->loc);
  return b->kind == DEBUG_AT_LINE && l && is_kernel(c, b->kernel) &&
         l->line == line_with_code(b, c->program) &&
         is_file(c->program->strings + l->file, b->file);
}

static bool stops_at_step(const core_state *c, const debug_break *b) {
  if (!is_kernel(c, b->kernel)) return false;
  if (b->kind == DEBUG_AT_KERNEL) return c->step == 0;
  if (b->kind != DEBUG_AT_GRID || b->rank != c->program->record->grid_rank)
    return false;
  bool same = true;
  for (uint32_t i = 0; i < b->rank; i++)
    same &= b->grid[i] < 0 || b->grid[i] == c->grid[i];
  return same;
}

// A window that has moved is another memory, not a change.
static bool has_changed(debug_break *b) {
  const void *base;
  if (b->kind != DEBUG_AT_CHANGE) return false;
  uint64_t now = debug_digest(&b->box, &base);
  bool changed = now && now != b->digest && base == b->base;
  b->digest = now;
  b->base = base;
  return changed;
}

// Is the line of the text that `next` does not step over?
static bool is_same_function(const debug_core *d) {
  const debugger *g = &g_debugger;
  const at_xlocation *l = debug_place(d->core, d->loc);
  return l && *g->file && l->line >= g->first_line && l->line <= g->last_line &&
         is_file(d->core->program->strings + l->file, g->file);
}

// By the mode in which the debugger let go.
static bool steps_here(const debug_core *d) {
  const debugger *g = &g_debugger;
  if (g->mode == DEBUG_RUN || g->mode == DEBUG_GRID ||
      (g->stepped && g->stepped != d->id))
    return false;
  uint32_t depth = debug_depth(d->core, d->loc);
  if (g->mode == DEBUG_FINISH) return depth < g->depth;
  bool begins = !is_return(d->core, d->before, d->loc);
  return begins &&
         (g->mode == DEBUG_STEP || depth <= g->depth || is_same_function(d));
}

// Changes are looked at even where another reason was found: their digests must
// follow.
static void stop_at_line(debug_core *d) {
  debugger *g = &g_debugger;
  const char *why = d->pending;
  int64_t id = d->pending_id;
  d->pending = NULL;
  bool begins = !is_return(d->core, d->before, d->loc);
  for (uint32_t i = 0; i < g->num_breaks; i++) {
    debug_break *b = &g->breaks[i];
    bool changes = has_changed(b);  // each is looked at each time
    bool hits = changes || (begins && stops_at_line(d, b));
    if (hits && !why) why = changes ? "change" : "break", id = b->id;
  }
  if (!why && steps_here(d)) why = "step";
  if (++g->hooks % kHooksOfALook == 0 && g->fd >= 0 && debug_is_interrupted())
    why = why ? why : "interrupt";
  if (!why) return;
  debug_stop(d, why, id, core_name(d->core), AT_OK);
  // The debugger may want another core to go on first.
  if (g->wanted && g->wanted != d->id) give_and_take(d);
}

// ---- What cores call
// Generated code calls this where a line begins.
void at_core_debug_line(at_core *core, int32_t loc, int32_t loops) {
  debug_core *d = state_of(core)->debug;
  if (!d) return;
  d->before = d->loc;
  d->loc = loc;
  d->num_loops =
      (uint32_t)AT_MIN((int64_t)d->num_loops, AT_MAX((int64_t)loops, 0));
  if (g_debugger.fd >= 0) stop_at_line(d);
}

// Loops are numbered by depth, the outermost 0.
void at_core_debug_turn(at_core *core, int32_t loc, int32_t depth,
                        int32_t turn) {
  debug_core *d = state_of(core)->debug;
  if (!d) return;
  d->loc = -1;  // the first line of a turn is none that is returned to
  if (depth < 0 || depth >= DEBUG_MOST_LOOPS) return;
  d->loops[depth].loc = loc;
  d->loops[depth].turn = turn;
  d->num_loops = (uint32_t)depth + 1;
}

void at_core_debug_made(at_core *core, const at_core_view *v, int32_t dtype,
                        int32_t space, int32_t loc) {
  debug_core *d = state_of(core)->debug;
  if (!d || d->num_made == DEBUG_MOST_MADE) return;
  d->made[d->num_made++] = (debug_made){*v, dtype, space, loc};
}

// Scopes end in turn, the innermost first.
void core_debug_released(core_state *c) {
  debug_core *d = c->debug;
  const uint8_t *sems = (const uint8_t *)(c->sems + c->num_sems);
  while (d && d->num_made) {
    const debug_made *m = &d->made[d->num_made - 1];
    const uint8_t *at = m->view.base;
    bool stays =
        m->dtype == AT_INVALID ? at < sems : at < c->stack + c->stack_used;
    if (stays) return;
    d->num_made--;
  }
}

// Stops are only noted: the core stops at its next line.
void core_debug_step(core_state *c) {
  debugger *g = &g_debugger;
  debug_core *d = c->debug;
  if (!d) return;
  d->loc = d->before = -1;
  d->num_loops = d->num_made = 0;
  bool steps = g->mode == DEBUG_GRID && (!g->stepped || g->stepped == d->id);
  if (steps) d->pending = "step";
  for (uint32_t i = 0; i < g->num_breaks; i++) {
    const debug_break *b = &g->breaks[i];
    if (!stops_at_step(c, b)) continue;
    d->pending = "break";
    d->pending_id = b->id;
  }
}

void core_debug_waits(core_state *c, const sem *s, int64_t amount,
                      int32_t loc) {
  debug_core *d = c->debug;
  if (!d) return;
  d->wait_for = s;
  d->wait_amount = amount;
  d->wait_loc = loc;
}

// ---- Failures
static uint64_t digest_of(at_status st) {
  const char *text = at_status_message(st);
  return at_hash(AT_HASH_SEED, text, strlen(text));
}

// The failing core takes the floor, if it has not got it, so that its state can
// be looked at.
void core_debug_failed(core_state *c, at_status st) {
  debug_core *d = c->debug;
  if (!d || at_status_code(st) == AT_CANCELLED) return;
  bool runs = g_debugger.floor == d;
  if (!runs) floor_take(d);
  if (!d->id) d->id = ++g_debugger.ids;
  g_debugger.told = digest_of(st);
  debug_stop(d, "failure", 0, core_name(c), st);
  if (!runs) floor_give(d, DEBUG_ENDED);
}

void core_debug_launch_failed(const at_core_launch *l, at_status st) {
  if (!*at_config_text(AT_CONFIG_DEBUG) || !st.err ||
      at_status_code(st) == AT_CANCELLED)
    return;
  debug_core nobody = {.loc = -1};
  floor_take(&nobody);
  if (g_debugger.told != digest_of(st))
    debug_stop(NULL, "failure", 0, l->programs[0].name, st);
  floor_give(&nobody, DEBUG_ENDED);
}
