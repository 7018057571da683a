// One collective by its plan: acts, a round of messages, acts, perhaps another
// round. Memory of a run is the first chip's, whose blocks stay warm.
#include "exec/far_plan.h"

typedef struct run {
  at_task *task;
  const at_op *op;
  const at_coll *k;  // by the tables of all hosts
  const at_far_plan *plan;
  at_pool *pool;
  uint32_t operands, values;
  uint8_t *room;
  at_bytes *out;        // by piece of the plan
  at_hosts_into *into;  // likewise
  at_hosts_mail *mails;
  at_summand *parts;
  // By device, and those of the group in hand: operands, then results; NULL: of
  // another host, and not here.
  void *const **bufs, *const **members;
  void **landed;     // tables of devices of other hosts
  uint8_t **blocks;  // by host: what came in the first round, in one piece
} run;

// One array behind the other, each at 64 bytes.
static void *lay(uint8_t *base, uint64_t *at, uint64_t bytes) {
  void *p = base ? base + *at : NULL;
  *at = at_add(*at, at_align_up(bytes, 64));
  return p;
}

// Where everything lies in a block at `base`, which may be NULL; its size.
static uint64_t lay_out(run *r, uint8_t *base) {
  const at_far_plan *p = r->plan;
  uint64_t at = 0, devices = r->k->x->num_devices;
  uint64_t row = r->operands + r->values;
  r->room = lay(base, &at, p->room_bytes);
  r->out = lay(base, &at, p->num_pieces * sizeof *r->out);
  r->into = lay(base, &at, p->num_pieces * sizeof *r->into);
  r->mails = lay(base, &at,
                 AT_MAX(p->num_mails[0], p->num_mails[1]) * sizeof *r->mails);
  r->parts = lay(base, &at, p->most_parts * sizeof *r->parts);
  r->bufs = lay(base, &at, devices * sizeof *r->bufs);
  r->members = lay(base, &at, devices * sizeof *r->members);
  r->landed = lay(base, &at, p->num_lands * row * sizeof *r->landed);
  r->blocks =
      lay(base, &at, r->task->loaded->far->all_hosts * sizeof *r->blocks);
  return at;
}

// Where a spot of the plan is in this run.
static uint8_t *address(const run *r, const at_far_spot *s) {
  if (s->where == AT_FAR_ROOM) return r->room + s->offset;
  if (s->where == AT_FAR_BLOCK) return r->blocks[s->device];
  uint32_t slot = s->slot + (s->where == AT_FAR_RESULT ? r->operands : 0);
  return (uint8_t *)r->bufs[s->device][slot] + s->offset;
}

// ---- Messages
// Does what comes by it stay where it is?
static bool stays(const at_far_plan *p, const at_far_mail *m) {
  return m->num_in == 1 && p->pieces[m->in].at.where == AT_FAR_BLOCK;
}

// Blocks that came, which must be as long as the plan says; st: of the
// exchange.
static at_status keep_blocks(run *r, uint32_t round, at_status st) {
  const at_far_plan *p = r->plan;
  for (uint32_t i = 0; i < p->num_mails[round]; i++) {
    const at_far_mail *m = &p->mails[round][i];
    if (!stays(p, m)) continue;
    const at_bytes b = r->mails[i].block;
    r->blocks[m->host] = (uint8_t *)b.ptr;
    if (b.len != p->pieces[m->in].bytes && !st.err)
      st = AT_FAIL(AT_INTERNAL,
                   "process %u sent %zu bytes for a collective, not %llu",
                   m->host, b.len, (unsigned long long)p->pieces[m->in].bytes);
  }
  return st;
}

static at_status talk(run *r, at_hosts_tag *tag, uint32_t round) {
  const at_far_plan *p = r->plan;
  uint32_t n = p->num_mails[round];
  tag->round = round;
  if (!n) return AT_OK;
  for (uint32_t i = 0; i < n; i++) {
    const at_far_mail *m = &p->mails[round][i];
    const uint32_t num_in = stays(p, m) ? 0 : m->num_in;
    for (uint32_t k = m->out; k < m->out + m->num_out; k++)
      r->out[k] = (at_bytes){address(r, &p->pieces[k].at), p->pieces[k].bytes};
    for (uint32_t k = m->in; k < m->in + num_in; k++)
      r->into[k] =
          (at_hosts_into){address(r, &p->pieces[k].at), p->pieces[k].bytes};
    r->mails[i] = (at_hosts_mail){.host = m->host,
                                  .num_out = m->num_out,
                                  .num_in = num_in,
                                  .out = r->out + m->out,
                                  .in = stays(p, m) ? NULL : r->into + m->in};
  }
  return keep_blocks(r, round, at_far_swap(r->task, tag, r->mails, n));
}

// ---- Acts
static void enter_group(run *r, const at_far_act *a) {
  for (uint32_t i = 0; i < a->size; i++)
    r->members[i] = r->bufs[r->k->members[a->group + i]];
}

// A sum of the plan, to all results here or to one place.
static void add_up(run *r, const at_far_act *a) {
  const at_far_part *parts = r->plan->parts + a->parts;
  const at_x_exchange *x = &r->k->values[a->value];
  for (uint32_t i = 0; i < a->num_parts; i++)
    r->parts[i] =
        (at_summand){address(r, &parts[i].at), parts[i].first, parts[i].device};
  at_sum s = {.c = r->k,
              .value = a->value,
              .parts = r->parts,
              .num_parts = a->num_parts,
              .bufs = r->members,
              .size = a->size,
              .begin = a->begin,
              .end = a->end,
              .out = a->kept ? address(r, &a->to) : NULL,
              .stream = x->result_bytes * r->task->loaded->num_devices >=
                        AT_EXCHANGE_STREAM};
  at_sum_run(&s, r->pool);
}

// A range of one result to the group's other results here.
static void share(run *r, const at_far_act *a) {
  const uint8_t *from = address(r, &a->from);
  for (uint32_t i = 0; i < a->size; i++) {
    uint8_t *to = r->members[i] ? r->members[i][r->operands + a->value] : NULL;
    if (to && to != from)
      at_copy_bytes(r->pool, to + a->begin, from + a->begin, a->end - a->begin);
  }
}

// All acts but the pieces, which run side by side.
static at_status act(run *r, const at_far_act *a) {
  enter_group(r, a);
  if (a->kind == AT_FAR_GROUP)
    return at_exchange(r->k, r->members, a->group, a->size, r->pool);
  if (a->kind == AT_FAR_SUM)
    add_up(r, a);
  else
    share(r, a);
  return AT_OK;
}

// Pieces next to each other know nothing of each other.
typedef struct pieces {
  const run *r;
  const at_far_act *acts;
} pieces;

// Acts that copy one member's piece, without a sum.
static bool moves_piece(const at_far_act *a) {
  return a->kind == AT_FAR_CUT || a->kind == AT_FAR_PUT;
}

// Pieces [begin, end) for one thread.
static void move_pieces(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const pieces *p = arg;
  for (int64_t i = begin; i < end; i++) {
    const at_far_act *a = &p->acts[i];
    (a->kind == AT_FAR_CUT ? at_piece_cut : at_piece_put)(
        &p->r->k->values[a->value], a->rank, address(p->r, &a->from),
        address(p->r, &a->to));
  }
}

// Acts in order; neighbouring pieces together.
static at_status do_phase(run *r, uint32_t phase) {
  const at_far_act *acts = r->plan->acts[phase];
  uint32_t n = r->plan->num_acts[phase];
  for (uint32_t i = 0, e; i < n; i = e) {
    for (e = i; e < n && moves_piece(&acts[e]); e++) continue;
    if (e == i) {
      AT_TRY(act(r, &acts[e++]));
      continue;
    }
    pieces p = {r, acts + i};
    at_pool_for(r->pool, e - i, 1, move_pieces, &p);
  }
  return AT_OK;
}

// ---- One run
// Tables of the devices here.
static void find_buffers(run *r) {
  const at_loaded *l = r->task->loaded;
  memset(r->bufs, 0, r->k->x->num_devices * sizeof *r->bufs);
  for (uint32_t i = 0; i < l->num_devices; i++)
    r->bufs[l->far->mine[i]] =
        r->task->parts[i].cursor->frame.bufs + r->op->args;
}

// And of those whose operands have come with the first round.
static void find_landed(run *r) {
  const at_far_plan *p = r->plan;
  uint64_t row = r->operands + r->values;
  memset(r->landed, 0, p->num_lands * row * sizeof *r->landed);
  void **next = r->landed;
  for (uint32_t i = 0; i < p->num_lands; i++) {
    const at_far_land *d = &p->lands[i];
    if (!r->bufs[d->device]) r->bufs[d->device] = next, next += row;
    ((void **)r->bufs[d->device])[d->slot] = address(r, &d->at);
  }
}

// Phase 0, then round and phase by turns.
static at_status run_plan(run *r) {
  at_hosts_tag tag = at_far_next_turn(r->task, r->op);
  find_buffers(r);
  at_far_write_zeros(r->task, r->op);
  AT_TRY(do_phase(r, 0));
  for (uint32_t i = 0; i < AT_FAR_ROUNDS; i++) {
    AT_TRY(talk(r, &tag, i));
    if (!i) find_landed(r);
    AT_TRY(do_phase(r, i + 1));
  }
  return AT_OK;
}

// By place: devices here whose group is none.
void at_far_write_zeros(at_task *t, const at_op *op) {
  const at_loaded *l = t->loaded;
  const at_coll *k = l->colls[op->target].whole;
  for (uint32_t i = 0; i < l->num_devices; i++) {
    if (k->group_of[l->far->mine[i]] != UINT32_MAX) continue;
    void *const *results =
        t->parts[i].cursor->frame.bufs + op->args + k->x->num_values;
    for (uint32_t v = 0; v < k->x->num_values; v++)
      memset(results[v], 0, k->values[v].result_bytes);
  }
}

// Scratch is taken from the first chip, sized by the plan.
at_status at_far_run(at_cursor *c, const at_op *op, at_pool *pool) {
  const at_coll *k = &c->frame.loaded->colls[op->target];
  at_task *t = c->part->task;
  if (k->among) return at_far_run_shared(t, op, pool);
  if (!k->plan) return at_far_run_ragged(t, op);
  run r = {.task = t,
           .op = op,
           .k = k->whole,
           .plan = k->plan,
           .pool = pool,
           .operands = k->x->num_values,
           .values = k->x->num_values};
  at_chip *chip = t->parts[0].chip;
  uint64_t bytes = lay_out(&r, NULL);
  void *block;
  AT_TRY(at_chip_take_scratch(chip, bytes, false, &block));
  lay_out(&r, block);
  const at_far_plan *p = r.plan;
  for (uint32_t i = 0; i < p->num_mails[0]; i++)
    r.blocks[p->mails[0][i].host] = NULL;
  at_status st = run_plan(&r);
  for (uint32_t i = 0; i < p->num_mails[0]; i++)
    at_hosts_give_block(t->loaded->runtime->hosts,
                        r.blocks[p->mails[0][i].host]);
  at_chip_give_scratch(chip, block, bytes, false);
  return st;
}
