// Programs whose devices belong to several processes. All devices of this host
// meet at every collective; the last to arrive talks to the other hosts
// (far_run.c) after a plan (far_plan.c), or reads their memory (far_share.c).
// Bits are those of one process.
#include <stdlib.h>

#include "base/log.h"
#include "exec/far_plan.h"

enum { kAlign = 64 };

// Never of 0 bytes.
void *at_hosts_block(size_t bytes) {
  if (bytes > SIZE_MAX - kAlign) return NULL;
  return aligned_alloc(kAlign, at_align_up(AT_MAX(bytes, 1u), kAlign));
}

at_status at_far_no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to talk to other hosts");
}

uint64_t at_loaded_sent_bytes(const at_loaded *l) {
  return l->far ? atomic_load(&l->far->sent) : 0;
}

// ---- Which hosts take part
void at_far_sets_free(at_runtime *rt) {
  for (at_far_set *s = rt->far_sets, *next; s; s = next) {
    next = s->next;
    for (at_far_count *c = s->counts, *later; c; c = later) {
      later = c->next;
      free(c);
    }
    free(s);
  }
}

// Named by the hash of its hosts, alike on all of them.
static at_far_set *make_set(const uint32_t *hosts, uint32_t n) {
  at_far_set *s = calloc(1, sizeof *s + n * sizeof *hosts);
  if (!s) return NULL;
  s->name = at_hash(AT_HASH_SEED, hosts, n * sizeof *hosts);
  s->count = n;
  memcpy(s->hosts, hosts, n * sizeof *hosts);
  return s;
}

// The runtime's set of these hosts, made if it is new. INTERNAL: two sets with
// one hash.
static at_status find_set(at_runtime *rt, const uint32_t *hosts, uint32_t n,
                          at_far_set **out) {
  at_far_set *made = make_set(hosts, n);
  if (!made) return at_far_no_memory();
  at_status st = AT_OK;
  pthread_mutex_lock(&rt->lanes.lock);
  at_far_set *s = rt->far_sets;
  while (s && s->name != made->name) s = s->next;
  if (!s) {
    made->next = rt->far_sets;
    rt->far_sets = s = made;
    made = NULL;
  } else if (s->count != n || memcmp(s->hosts, hosts, n * sizeof *hosts) != 0) {
    st = AT_FAIL(AT_INTERNAL, "two sets of processes have one name");
  }
  pthread_mutex_unlock(&rt->lanes.lock);
  free(made);
  *out = s;
  return st;
}

// Counts outlive the programs that use them, so that launches of one name never
// get a number twice.
static at_status find_count(at_runtime *rt, at_far_set *s, uint64_t program,
                            at_far_count **out) {
  at_far_count *made = calloc(1, sizeof *made);
  if (!made) return at_far_no_memory();
  made->program = program;
  pthread_mutex_lock(&rt->lanes.lock);
  at_far_count *c = s->counts;
  while (c && c->program != program) c = c->next;
  if (!c) {
    made->next = s->counts;
    s->counts = c = made;
    made = NULL;
  }
  pthread_mutex_unlock(&rt->lanes.lock);
  free(made);
  *out = c;
  return AT_OK;
}

// ---- Which devices are here
void at_far_free(at_loaded *l) {
  for (uint32_t i = 0; l->far && i < l->num_colls; i++) {
    free(l->colls[i].whole);
    free(l->colls[i].plan);
    free(l->colls[i].among);
  }
  if (l->far) free(l->far->host_of);
  free(l->far);
  l->far = NULL;
}

// Tables of who has which device, and the hosts that take part, ascending.
static at_status place_devices(const at_loaded *l, at_chip *const *chips,
                               at_far *f) {
  const at_hosts *h = l->runtime->hosts;
  uint32_t n = f->num_devices = l->num_devices, places = 0, hosts = 0;
  f->all_hosts = h->count;
  f->host_of = calloc(3 * (size_t)n + 3 * (size_t)h->count, sizeof *f->host_of);
  if (!f->host_of) return at_far_no_memory();
  f->mine = f->host_of + n;
  f->place_of = f->mine + n;
  f->others = f->place_of + n;
  uint32_t *takes_part = f->others + h->count, *list = takes_part + h->count;
  for (uint32_t d = 0; d < n; d++) {
    uint32_t host = f->host_of[d] = chips[d]->info.host;
    f->place_of[d] = takes_part[host]++;
    if (host == h->me) f->mine[places++] = d;
  }
  for (uint32_t i = 0; i < h->count; i++) {
    if (!takes_part[i]) continue;
    list[hosts++] = i;
    if (i != h->me) f->others[f->num_others++] = i;
  }
  AT_ENSURE(places && f->num_others);
  return find_set(l->runtime, list, hosts, &f->set);
}

// SparseCores know all hosts, and devices by their order.
static at_status check_sparse(const at_loaded *l, uint32_t places) {
  const at_hosts *h = l->runtime->hosts;
  bool good = l->far->num_devices == places * h->count;
  for (uint32_t i = 0; good && i < places; i++)
    good = l->far->mine[i] == h->me * places + i;
  if (good) return AT_OK;
  return AT_FAIL(AT_UNIMPLEMENTED,
                 "%s: SparseCores of several processes, whose devices are not "
                 "all, numbered process by process and equally many of each",
                 at_loaded_string(l, l->header->name));
}

// The checks see one process: what others do to a memory is unknown to them.
static void tell_unchecked(const at_loaded *l, const at_op *op) {
  static _Atomic bool told;
  if (!(l->checks & ~(uint32_t)AT_CORE_FAR_CHECKS) ||
      atomic_exchange(&told, true))
    return;
  at_log(AT_LOG_WARNING,
         "ATOLL_CHECK: kernels that talk to devices of other processes are "
         "checked for bounds and limits only, as kernel %s of %s\n"
         "hint: one process with all devices checks everything",
         op->cores->name, at_loaded_string(l, l->header->name));
}

// Its devices here meet; those of other hosts it meets by messages.
static at_status span_kernel(at_loaded *l, const at_op *op, uint32_t places) {
  at_coll *k = &l->colls[op->target], here;
  if (!l->runtime->hosts->lines)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "%s: a Pallas kernel that talks to devices of other hosts, "
                   "to which there are no lines",
                   at_loaded_string(l, l->header->name));
  AT_TRY(at_coll_everyone(places, &here));
  here.turns = k->turns;
  here.meetings = k->meetings;
  free(k->owned);
  *k = here;
  tell_unchecked(l, op);
  return AT_OK;
}

// A meeting of all devices here replaces the step's groups, which go to
// k->whole.
static at_status span_step(at_loaded *l, at_op *op, uint32_t places) {
  if (op->kind == AT_STEP_CORE && op->meets) return span_kernel(l, op, places);
  if (op->kind != AT_STEP_COLLECTIVE && op->kind != AT_STEP_START) return AT_OK;
  at_coll *k = &l->colls[op->target], here;
  if (k->sparse) AT_TRY(check_sparse(l, places));
  k->whole = malloc(sizeof *k->whole);
  if (!k->whole) return at_far_no_memory();
  *k->whole = *k;
  AT_TRY(at_coll_everyone(places, &here));
  k->group_of = here.group_of;
  k->rank_of = here.rank_of;
  k->begin_of = here.begin_of;
  k->size_of = here.size_of;
  k->members = here.members;
  k->owned = here.owned;
  if (k->sparse || k->x->kind == AT_COLL_PARTITION_ID ||
      k->x->kind == AT_COLL_REPLICA_ID)
    return AT_OK;
  if (l->far->channel) return at_far_among_make(l, op);
  if (k->x->kind == AT_COLL_RAGGED_ALL_TO_ALL) return AT_OK;
  return at_far_plan_make(k->whole, l->far, l->runtime->hosts->me, &k->plan);
}

// What hosts call the program to each other: what it means and what it
// exchanges. Code is not part of it: hosts may have different CPUs.
static uint64_t name_program(const at_loaded *l, at_chip *const *chips) {
  const at_xstep *steps =
      (const void *)(l->block + l->header->sections[AT_XS_STEPS].offset);
  const char *name = at_loaded_string(l, l->header->name);
  uint64_t hash = at_hash(AT_HASH_SEED, name, strlen(name));
  hash = at_hash(hash, l->header->fingerprint, sizeof l->header->fingerprint);
  for (uint32_t i = 0; i < l->num_ops; i++) {
    if (!l->ops[i].meets || l->ops[i].kind == AT_STEP_DONE) continue;
    const at_x_collective *x = l->colls[l->ops[i].target].x;
    const char *texts[] = {at_loaded_string(l, steps[i].op_name),
                           at_loaded_string(l, steps[i].hlo)};
    for (size_t k = 0; k < AT_LEN(texts); k++)
      hash = at_hash(hash, texts[k], strlen(texts[k]));
    hash = at_hash(hash, x, at_x_collective_bytes(x));
  }
  for (uint32_t d = 0; d < l->far->num_devices; d++)
    hash = at_hash(hash, &chips[d]->info.id, sizeof chips[d]->info.id);
  // Plans differ where devices do.
  return at_hash(hash, l->far->host_of,
                 l->far->num_devices * sizeof *l->far->host_of);
}

// On failure the program is good for nothing but its release, which frees what
// was made.
at_status at_loaded_span(at_loaded *l, at_chip *const *chips) {
  AT_ENSURE(l->runtime->hosts && !l->far);
  l->far = calloc(1, sizeof *l->far);
  if (!l->far) return at_far_no_memory();
  AT_TRY(place_devices(l, chips, l->far));
  AT_TRY(at_far_share(l, chips));
  l->far->program = name_program(l, chips);
  AT_TRY(find_count(l->runtime, l->far->set, l->far->program, &l->far->count));
  uint32_t places = 0;
  for (uint32_t d = 0; d < l->num_devices; d++)
    places += l->far->host_of[d] == l->runtime->hosts->me;
  for (uint32_t i = 0; i < l->num_ops; i++)
    AT_TRY(span_step(l, &l->ops[i], places));
  l->num_devices = places;
  return AT_OK;
}

// ---- Messages
at_hosts_tag at_far_tag(at_task *t) {
  const at_far *f = t->loaded->far;
  return (at_hosts_tag){
      .group = f->set->name, .launch = t->far_launch, .program = f->program};
}

// A step in a loop is told apart by its turn.
at_hosts_tag at_far_next_turn(at_task *t, const at_op *op) {
  at_hosts_tag tag = at_far_tag(t);
  tag.step = (uint32_t)(op - t->loaded->ops);
  tag.turn = t->meetings[t->loaded->colls[op->target].turns]++;
  return tag;
}

// The lane steps aside while this one waits.
at_status at_far_swap(at_task *t, const at_hosts_tag *tag, at_hosts_mail *mails,
                      uint32_t num_mails) {
  at_runtime *rt = t->loaded->runtime;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < num_mails; i++)
    for (uint32_t k = 0; k < mails[i].num_out; k++)
      bytes += mails[i].out[k].len;
  atomic_fetch_add(&t->loaded->far->sent, bytes);
  at_lane_block(rt);
  at_status st = rt->hosts->exchange(rt->hosts->arg, tag, mails, num_mails);
  at_lane_unblock(rt);
  return st;
}

// ---- SparseCores
static void drop(at_far_call *c) {
  for (uint32_t i = 0; i < c->task->loaded->far->num_others; i++) {
    free((void *)c->mails[i].block.ptr);
    c->mails[i].block = (at_bytes){0};
  }
}

// Blocks of the last exchange are freed first: the caller has read them.
static at_status call_exchange(void *arg, const at_bytes *send,
                               at_bytes *recv) {
  at_far_call *c = arg;
  uint32_t n = c->task->loaded->far->num_others;
  drop(c);
  for (uint32_t i = 0; i < n; i++) c->out[i] = send[c->mails[i].host];
  at_hosts_tag tag = at_far_next_turn(c->task, c->op);
  AT_TRY(at_far_swap(c->task, &tag, c->mails, n));
  for (uint32_t i = 0; i < n; i++) recv[c->mails[i].host] = c->mails[i].block;
  return AT_OK;
}

// One mail for each other host; at_far_call_end frees all.
at_status at_far_call_begin(at_cursor *c, const at_op *op, at_far_call *call,
                            at_sc_hosts *out) {
  const at_hosts *h = c->frame.loaded->runtime->hosts;
  const at_far *f = c->frame.loaded->far;
  *call = (at_far_call){
      .task = c->part->task,
      .op = op,
      .mails = calloc(f->num_others, sizeof *call->mails + sizeof *call->out)};
  if (!call->mails) return at_far_no_memory();
  call->out = (at_bytes *)(call->mails + f->num_others);
  for (uint32_t i = 0; i < f->num_others; i++)
    call->mails[i] = (at_hosts_mail){
        .host = f->others[i], .num_out = 1, .out = &call->out[i]};
  *out = (at_sc_hosts){
      .count = h->count, .me = h->me, .arg = call, .exchange = call_exchange};
  return AT_OK;
}

// Blocks that came with the last exchange go, too.
void at_far_call_end(at_far_call *call) {
  drop(call);
  free(call->mails);
}
