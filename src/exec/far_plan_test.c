// Plans of collectives between hosts, without any host: what one sends is what
// the other expects, piece by piece, and nothing lies on anything else.
#include "exec/far_plan.h"

#include "exec/exec_test_util.h"

enum { kDevices = 8, kHosts = 3, kValues = 2 };

// Who has which device: side by side, dealt out, and all but one on one host.
static const uint32_t k_hosts[][kDevices] = {{0, 0, 0, 1, 1, 1, 2, 2},
                                             {2, 1, 0, 2, 1, 0, 2, 1},
                                             {0, 0, 0, 0, 0, 2, 0, 0}};
// Groups by device; UINT32_MAX: in none.
static const uint32_t k_groups[][kDevices] = {
    {0, 0, 0, 0, 0, 0, 0, 0},
    {0, 1, 0, 1, 0, 1, 0, 1},
    {0, 1, 1, 0, UINT32_MAX, 1, 0, UINT32_MAX}};

typedef struct sample {
  struct {
    at_x_collective c;
    at_x_exchange x[kValues];
    uint32_t tables[AT_COLL_TABLES][kDevices];
  } all;
  at_coll coll;
  at_far far;
  uint32_t host_of[kDevices];
} sample;

// An exchange of `run` bytes, or rows of them, for a group of n.
static at_x_exchange exchange_of(uint32_t kind, uint64_t run, uint64_t rows,
                                 uint64_t n) {
  at_x_exchange x = {.rows = rows, .lines = 1, .run = run, .element_bytes = 4};
  uint64_t piece = rows * run, whole = piece * n;
  bool gives = kind == AT_COLL_ALL_TO_ALL || kind == AT_COLL_REDUCE_SCATTER;
  bool takes = kind == AT_COLL_ALL_TO_ALL || kind == AT_COLL_ALL_GATHER;
  x.operand_bytes = gives ? whole : piece;
  x.result_bytes = takes ? whole : piece;
  if (gives) x.give_piece = run, x.give_row = run * n;
  if (takes) x.take_piece = piece, x.take_row = run;
  if (kind == AT_COLL_REDUCE_SCATTER) x.take_row = run;
  if (kind == AT_COLL_ALL_GATHER) x.give_row = run;
  x.block_elements = 2048;
  return x;
}

static void make_sample(sample *s, uint32_t kind, const uint32_t *groups,
                        const uint32_t *hosts, uint64_t run, uint64_t rows) {
  *s = (sample){.all.c = {.kind = kind,
                          .num_values = kValues,
                          .num_devices = kDevices,
                          .num_groups = 2}};
  uint32_t size[2] = {0}, begin[2], at[2] = {0};
  for (uint32_t d = 0; d < kDevices; d++)
    if (groups[d] < 2) size[groups[d]]++;
  begin[0] = 0;
  begin[1] = size[0];
  // Members from the last device down: ranks are no numbers.
  for (uint32_t d = kDevices; d-- > 0;) {
    uint32_t g = groups[d];
    s->all.tables[0][d] = g;
    s->all.tables[5][d] = UINT32_MAX;
    if (g > 1) continue;
    s->all.tables[1][d] = at[g];
    s->all.tables[2][d] = begin[g];
    s->all.tables[3][d] = size[g];
    s->all.tables[4][begin[g] + at[g]++] = d;
    // Everybody from the next rank; the first from nobody.
    if (at[g] > 1) s->all.tables[5][d] = at[g] % size[g];
  }
  for (uint32_t v = 0; v < kValues; v++)
    s->all.x[v] = exchange_of(kind, run << v, rows, size[0]);
  memcpy(s->host_of, hosts, sizeof s->host_of);
  at_coll_prepare(&s->all.c, &s->coll);
  OK(at_coll_order(&s->coll));
  s->far = (at_far){
      .num_devices = kDevices, .all_hosts = kHosts, .host_of = s->host_of};
}

static const at_far_mail *mail_of(const at_far_plan *p, uint32_t round,
                                  uint32_t host) {
  for (uint32_t i = 0; i < p->num_mails[round]; i++)
    if (p->mails[round][i].host == host) return &p->mails[round][i];
  return NULL;
}

// Pieces lie where they may: in the room, or in an operand or result of a
// device of that host.
static void check_spot(const sample *s, const at_far_plan *p, uint32_t me,
                       const at_far_piece *x, bool comes) {
  if (x->at.where == AT_FAR_BLOCK) {  // all that comes from that host
    assert_true(comes && x->at.device != me && x->at.device < kHosts &&
                !x->at.offset);
    const at_far_mail *m = mail_of(p, 0, x->at.device);
    assert_true(m && m->num_in == 1 && &p->pieces[m->in] == x);
    return;
  }
  if (x->at.where == AT_FAR_ROOM) {
    assert_true(x->at.offset + x->bytes <= p->room_bytes);
    return;
  }
  assert_true(x->at.slot < kValues && x->at.device < kDevices);
  assert_int_equal(s->host_of[x->at.device], me);
  const at_x_exchange *v = &s->all.x[x->at.slot];
  bool operand = x->at.where == AT_FAR_OPERAND;
  assert_false(operand && comes);
  assert_true(x->at.offset + x->bytes <=
              (operand ? v->operand_bytes : v->result_bytes));
}

// What comes in one round is nowhere on top of anything else that comes.
static void check_apart(const at_far_plan *p, uint32_t round) {
  for (uint32_t i = 0; i < p->num_mails[round]; i++)
    for (uint32_t k = 0; k < p->num_mails[round]; k++) {
      const at_far_mail *m = &p->mails[round][i], *n = &p->mails[round][k];
      for (uint32_t a = m->in; a < m->in + m->num_in; a++)
        for (uint32_t b = n->in; b < n->in + n->num_in; b++) {
          const at_far_piece *x = &p->pieces[a], *y = &p->pieces[b];
          bool alike =
              x->at.where == y->at.where &&
              (x->at.where == AT_FAR_ROOM ||
               (x->at.device == y->at.device && x->at.slot == y->at.slot));
          assert_true(a == b || !alike ||
                      x->at.offset + x->bytes <= y->at.offset ||
                      y->at.offset + y->bytes <= x->at.offset);
        }
    }
}

static void check_pair(at_far_plan *const *plans, uint32_t a, uint32_t b,
                       uint32_t round) {
  const at_far_mail *out = mail_of(plans[a], round, b),
                    *in = mail_of(plans[b], round, a);
  assert_int_equal(out ? out->num_out : 0, in ? in->num_in : 0);
  for (uint32_t i = 0; out && in && i < out->num_out; i++)
    assert_int_equal(plans[a]->pieces[out->out + i].bytes,
                     plans[b]->pieces[in->in + i].bytes);
}

// Sums name parts that there are, and those of a sum have ascending devices.
static void check_acts(const at_far_plan *p) {
  for (uint32_t f = 0; f < AT_FAR_PHASES; f++)
    for (uint32_t i = 0; i < p->num_acts[f]; i++) {
      const at_far_act *a = &p->acts[f][i];
      assert_true(a->value < kValues && a->begin <= a->end);
      assert_true(a->num_parts <= p->most_parts &&
                  a->parts + a->num_parts <= p->num_parts);
      assert_true((a->kind == AT_FAR_SUM) == (a->num_parts > 0));
      for (uint32_t k = 1; k < a->num_parts; k++)
        assert_true(p->parts[a->parts + k - 1].device <
                    p->parts[a->parts + k].device);
    }
}

static void check_sample(const sample *s) {
  at_far_plan *plans[kHosts];
  for (uint32_t h = 0; h < kHosts; h++) {
    OK(at_far_plan_make(&s->coll, &s->far, h, &plans[h]));
    check_acts(plans[h]);
    for (uint32_t r = 0; r < AT_FAR_ROUNDS; r++) {
      check_apart(plans[h], r);
      for (uint32_t i = 0; i < plans[h]->num_mails[r]; i++) {
        const at_far_mail *m = &plans[h]->mails[r][i];
        assert_true(m->host != h && m->host < kHosts);
        for (uint32_t k = 0; k < m->num_out; k++)
          check_spot(s, plans[h], h, &plans[h]->pieces[m->out + k], false);
        for (uint32_t k = 0; k < m->num_in; k++)
          check_spot(s, plans[h], h, &plans[h]->pieces[m->in + k], true);
      }
    }
  }
  for (uint32_t a = 0; a < kHosts; a++)
    for (uint32_t b = 0; b < kHosts; b++)
      for (uint32_t r = 0; r < AT_FAR_ROUNDS; r++)
        if (a != b) check_pair(plans, a, b, r);
  for (uint32_t h = 0; h < kHosts; h++) free(plans[h]);
}

static void hosts_agree(void **state) {
  static const uint64_t runs[] = {4, 400, 40000};
  for (uint32_t kind = 0; kind <= AT_COLL_PERMUTE; kind++)
    for (size_t g = 0; g < AT_LEN(k_groups); g++)
      for (size_t h = 0; h < AT_LEN(k_hosts); h++)
        for (size_t r = 0; r < AT_LEN(runs); r++)
          for (uint64_t rows = 1; rows <= 3; rows += 2) {
            sample *s = malloc(sizeof *s);
            make_sample(s, kind, k_groups[g], k_hosts[h], runs[r], rows);
            check_sample(s);
            free(s->coll.order);
            free(s);
          }
}

// The owners of ranges share out every byte of every value, in order.
static void ranges_share_out_all_bytes(void **state) {
  sample *s = malloc(sizeof *s);
  make_sample(s, AT_COLL_ALL_REDUCE, k_groups[0], k_hosts[0], 100004, 1);
  for (uint32_t hosts = 1; hosts <= 40; hosts++)
    for (uint32_t v = 0; v < kValues; v++) {
      uint64_t at = 0, begin, end;
      for (uint32_t g = 0; g < hosts; g++) {
        at_far_range(&s->coll, v, g, hosts, &begin, &end);
        if (begin == end) continue;
        assert_int_equal(begin, at);
        assert_int_equal(begin % 8192, 0);
        at = end;
      }
      assert_int_equal(at, s->all.x[v].operand_bytes);
    }
  free(s->coll.order);
  free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hosts_agree),
      cmocka_unit_test(ranges_share_out_all_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
