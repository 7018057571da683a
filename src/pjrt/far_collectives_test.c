// All kinds of collectives over several hosts: the bits of one host, and no
// more bytes than a sum in one order needs.
#include "pjrt/far_test_util.h"

// ---- Groups
// `count` groups of `size` devices, one behind the other.
typedef struct groups {
  uint32_t count, size;
  uint32_t ids[kMostChips];
} groups;

typedef enum grouping {
  ALL,
  REVERSED,
  EVEN_ODD,
  BLOCKS,
  MIXED,
  GROUPINGS
} grouping;

// How the n devices are grouped: all in one, the same backwards, even and odd
// ones, blocks of four, and fours that are spread.
static groups make_groups(grouping how, uint32_t n) {
  groups g = {1, n, {0}};
  for (uint32_t i = 0; i < n; i++) {
    uint32_t half = n / 2;
    g.ids[i] = how == REVERSED   ? n - 1 - i
               : how == EVEN_ODD ? i % half * 2 + i / half
               : how == MIXED    ? i * 5 % n  // n: no multiple of 5
                                 : i;
  }
  if (how == EVEN_ODD) g.count = 2, g.size = n / 2;
  if (how == BLOCKS || how == MIXED) g.count = n / 4, g.size = 4;
  return g;
}

// The attribute's text, [[0,1],[2,3]].
static void print_groups(const groups *g, at_strbuf *b) {
  at_strbuf_addz(b, "[");
  for (uint32_t i = 0; i < g->count; i++)
    for (uint32_t k = 0; k < g->size; k++)
      at_strbuf_addf(b, "%s%u%s",
                     k   ? ","
                     : i ? ",["
                         : "[",
                     g->ids[i * g->size + k], k + 1 == g->size ? "]" : "");
  at_strbuf_addz(b, "]");
}

// ---- Programs
typedef enum kind {
  ALL_REDUCE,
  REDUCE_SCATTER,
  ALL_GATHER,
  ALL_TO_ALL,
  BROADCAST,
  PERMUTE
} kind;

typedef struct probe {
  kind kind;
  at_dtype dtype;
  int64_t rows, cols;
  int dim, to;       // of a split, and where its parts go
  uint32_t values;   // operands: of the first, each has a column less
  const char *body;  // of a reduction
} probe;

// Without the cache: each probe is another program.
static at_bytes compile(const char *text) {
  at_bytes out = {0};
  at_compile_options o = {.threads = 1, .no_cache = true};
  OK(at_compile((at_bytes){(const uint8_t *)text, strlen(text)}, &o, &out));
  return out;
}

static void print_type(const probe *x, int64_t rows, int64_t cols,
                       at_strbuf *b) {
  at_strbuf_addf(b, "%s[%lld,%lld]", at_dtype_of(x->dtype)->text,
                 (long long)rows, (long long)cols);
}

// Dimensions of result v: gathers grow, scatters and exchanges shrink by the
// size of the group.
static void result_dims(const probe *x, const groups *g, uint32_t v,
                        int64_t out[2]) {
  out[0] = x->rows;
  out[1] = x->cols - v;
  if (x->kind == ALL_GATHER) out[x->dim] *= g->size;
  if (x->kind == REDUCE_SCATTER || x->kind == ALL_TO_ALL)
    out[x->dim] /= g->size;
  if (x->kind == ALL_TO_ALL) out[x->to] *= g->size;
}

// Pairs of a permutation: d to the one behind it in its group, but for the last
// of each; and who has two neighbours behind gives to both.
static void print_pairs(const groups *g, at_strbuf *b) {
  at_strbuf_addz(b, "[");
  for (uint32_t i = 0; i < g->count; i++)
    for (uint32_t k = 1; k < g->size; k++)
      at_strbuf_addf(b, "%s[%u,%u]", i || k > 1 ? "," : "",
                     g->ids[i * g->size + (k - 1) / 2 * 2],
                     g->ids[i * g->size + k]);
  at_strbuf_addz(b, "]");
}

// Of the collective: who takes part, and along which dimension it works.
static void print_attributes(const probe *x, const groups *g, at_strbuf *b) {
  at_strbuf_addz(
      b, x->kind == PERMUTE ? "{source_target_pairs=" : "{replica_groups=");
  if (x->kind == PERMUTE)
    print_pairs(g, b);
  else
    print_groups(g, b);
  if (x->kind == ALL_GATHER) at_strbuf_addf(b, ", all_gather_dim=%d", x->dim);
  if (x->kind == REDUCE_SCATTER)
    at_strbuf_addf(b, ", scatter_dimension=%d", x->dim);
  if (x->kind == ALL_TO_ALL)
    at_strbuf_addf(b,
                   ", split_dimension=%d, concat_dimension=%d, split_count=%u",
                   x->dim, x->to, g->size);
  at_strbuf_addz(b, "}");
}

// Types of all operands or results, each after `before`, a format for its
// number.
static void print_list(const probe *x, const groups *g, bool results,
                       const char *before, at_strbuf *b) {
  for (uint32_t v = 0; v < x->values; v++) {
    int64_t dims[2] = {x->rows, x->cols - v};
    if (results) result_dims(x, g, v, dims);
    at_strbuf_addz(b, v ? ", " : "");
    if (before) at_strbuf_addf(b, before, v);
    print_type(x, dims[0], dims[1], b);
  }
}

static const char *const names[] = {
    "all_reduce",           "reduce_scatter",     "all_gather", "all_to_all",
    "collective_broadcast", "collective_permute", NULL};

// A program of one collective over n replicas.
static at_bytes make_block(const probe *x, const groups *g, uint32_t n) {
  at_strbuf b = {0};
  const char *t = at_dtype_of(x->dtype)->text;
  at_strbuf_addf(&b,
                 "hlo module \"m\" replicas=%u entry=\"main\" {\nfunc "
                 "\"main\" (",
                 n);
  print_list(x, g, false, "%%%u: ", &b);
  at_strbuf_addz(&b, ") -> (");
  print_list(x, g, true, NULL, &b);
  at_strbuf_addz(&b, ") {\n%100");
  if (x->values > 1) at_strbuf_addf(&b, ":%u", x->values);
  at_strbuf_addf(&b, " = %s ", names[x->kind]);
  for (uint32_t v = 0; v < x->values; v++)
    at_strbuf_addf(&b, "%s%%%u", v ? ", " : "", v);
  at_strbuf_addz(&b, " ");
  print_attributes(x, g, &b);
  if (x->kind <= REDUCE_SCATTER)
    at_strbuf_addf(&b,
                   " ((%%201: %s[], %%202: %s[]) {\n%%203 = %s %%201, %%202 : "
                   "%s[]\nreturn %%203\n})",
                   t, t, x->body, t);
  at_strbuf_addz(&b, " : ");
  print_list(x, g, true, NULL, &b);
  at_strbuf_addz(&b, "\nreturn ");
  for (uint32_t v = 0; v < x->values; v++)
    at_strbuf_addf(&b, x->values > 1 ? "%s%%100.%u" : "%s%%100", v ? ", " : "",
                   v);
  at_strbuf_addz(&b, "\n}\n}\n");
  at_bytes block = compile(b.ptr);
  at_strbuf_free(&b);
  return block;
}

// ---- Values
static uint64_t next(uint64_t *state) {
  uint64_t x = *state += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// Any bits but those of NaNs and infinities, which have no one sum.
static void fill(uint8_t *p, size_t bytes, at_dtype t, uint64_t seed) {
  for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)next(&seed);
  bool real = at_is_float(t) || at_is_complex(t);
  size_t each = at_dtype_bytes(t) / (at_is_complex(t) ? 2 : 1);
  for (size_t i = each; real && each && i <= bytes; i += each) {
    p[i - 1] &= (uint8_t)(at_dtype_of(t)->bits < 8 ? 7 : 0xbf);
    if (each == 1 && p[i - 1] == 0x80) p[i - 1] = 0;
  }
  if (!real) at_settle_bits(t, p, bytes);
}

// Each device's operands differ, so that a value in a wrong place is seen.
static program make_program(const probe *x, const groups *g, uint32_t n) {
  program p = {
      .num_devices = n, .num_args = x->values, .num_results = x->values};
  p.block = make_block(x, g, n);
  for (uint32_t v = 0; v < x->values; v++) {
    p.dtype[v] = x->dtype;
    p.dims[v][0] = x->rows;
    p.dims[v][1] = x->cols - v;
  }
  for (uint32_t d = 0; d < n; d++) {
    p.chip[d] = d;
    for (uint32_t v = 0; v < x->values; v++) {
      size_t bytes =
          (size_t)(p.dims[v][0] * p.dims[v][1]) * at_dtype_bytes(x->dtype);
      p.args[d][v] = malloc(bytes + 1);
      fill(p.args[d][v], bytes, x->dtype, d * 100 + v);
    }
  }
  return p;
}

static void program_free(program *p) {
  for (uint32_t d = 0; d < kMostChips; d++)
    for (uint32_t v = 0; v < kMostValues; v++) free(p->args[d][v]);
  free((void *)p->block.ptr);
}

// ---- The least that must be sent
// Aligned blocks of devices whose members are all of one host, the largest
// ones: each is one summand. Of all hosts.
static uint32_t summands(const uint32_t *ids, uint32_t size,
                         const uint32_t *host_of) {
  uint32_t count = 0;
  bool done[kMostChips] = {false};
  for (int level = 5; level >= 0; level--)
    for (uint32_t block = 0; block < kMostChips >> level; block++) {
      uint32_t host = UINT32_MAX;
      bool fits = true;
      for (uint32_t i = 0; i < size; i++) {
        if (ids[i] >> level != block) continue;
        fits &=
            !done[ids[i]] && (host == UINT32_MAX || host == host_of[ids[i]]);
        host = host_of[ids[i]];
      }
      if (!fits || host == UINT32_MAX) continue;
      count++;
      for (uint32_t i = 0; i < size; i++)
        if (ids[i] >> level == block) done[ids[i]] = true;
    }
  return count;
}

// Bytes that hosts must send for one group, whatever the order: each summand,
// row or block once to every host that needs it.
static double least_of_group(const probe *x, const uint32_t *ids, uint32_t size,
                             const uint32_t *host_of, double bytes) {
  bool has[kMostHosts] = {false};
  uint32_t hosts = 0;
  for (uint32_t i = 0; i < size; i++) {
    hosts += !has[host_of[ids[i]]];
    has[host_of[ids[i]]] = true;
  }
  double sums = summands(ids, size, host_of), others = hosts - 1, n = 0;
  switch (x->kind) {
    case ALL_REDUCE:  // a summand to who adds it up, the sum to all others
      return bytes * others * (sums / hosts + 1);
    case REDUCE_SCATTER:
      return bytes * others * sums / hosts;
    case ALL_GATHER:
      return bytes * others * size;
    case BROADCAST:
      return bytes * others;
    case ALL_TO_ALL:
      for (uint32_t a = 0; a < size; a++)
        for (uint32_t b = 0; b < size; b++)
          n += host_of[ids[a]] != host_of[ids[b]];
      return n * bytes / size;
    default:  // a pair from one host to another, but the second of two alike
      for (uint32_t k = 1; k < size; k++) {
        uint32_t from = host_of[ids[(k - 1) / 2 * 2]];
        n += from != host_of[ids[k]] &&
             (k % 2 || host_of[ids[k]] != host_of[ids[k - 1]]);
      }
      return n * bytes;
  }
}

// Of all groups and all operands.
static double least_bytes(const probe *x, const groups *g,
                          const uint32_t *host_of) {
  double bytes = 0, all = 0;
  for (uint32_t v = 0; v < x->values; v++)
    bytes += (double)x->rows * (double)(x->cols - v) *
             (double)at_dtype_bytes(x->dtype);
  for (uint32_t i = 0; i < g->count; i++)
    all += least_of_group(x, g->ids + i * g->size, g->size, host_of, bytes);
  return all;
}

// ---- Tests
// The same program on one host and on several: equal bits everywhere, nothing
// sent on one host, and at most 5 % more than the least where the payload
// outweighs the heads of messages.
static void check(job *one, job *several, const probe *x, grouping how) {
  char why[300];
  uint32_t n = one->num_chips, host_of[kMostChips];
  groups g = make_groups(how, n);
  program p = make_program(x, &g, n);
  outcome alone, apart;
  assert_int_equal(job_run(one, &p, &alone, why), 0);
  assert_int_equal(alone.sent, 0);
  // In the order of the chips, and so that neighbours are of different hosts.
  for (int spread = 0; spread < 2; spread++) {
    for (uint32_t d = 0; d < n; d++) {
      p.chip[d] = spread ? (d * 7 + 3) % n : d;
      host_of[d] = p.chip[d] / (n / several->num_hosts);
    }
    at_code code = job_run(several, &p, &apart, why);
    if (code) fail_msg("%s", why);
    outcome_equal(&p, &alone, &apart);
    double least = least_bytes(x, &g, host_of);
    double payload = (double)x->rows * (double)x->cols *
                     (double)at_dtype_bytes(x->dtype) * x->values;
    if (payload >= 70e3 && apart.sent > least * 1.05)
      fail_msg(
          "%s of [%lld,%lld] in groups %d over %u hosts: %llu bytes, not "
          "%.0f",
          names[x->kind], (long long)x->rows, (long long)x->cols, how,
          several->num_hosts, (unsigned long long)apart.sent, least);
    outcome_free(&apart);
  }
  outcome_free(&alone);
  program_free(&p);
}

static const probe probes[] = {
    {ALL_REDUCE, AT_F32, 24, 24, 0, 0, 1, "add"},
    {ALL_REDUCE, AT_F32, 31, 1237, 0, 0, 1, "add"},
    {ALL_REDUCE, AT_F32, 24, 700, 0, 0, 3, "add"},
    {ALL_REDUCE, AT_F32, 0, 24, 0, 0, 1, "add"},
    {ALL_REDUCE, AT_BF16, 57, 911, 0, 0, 2, "add"},
    {ALL_REDUCE, AT_PRED, 3, 65521, 0, 0, 1, "or"},
    {REDUCE_SCATTER, AT_F32, 24, 24, 0, 0, 1, "add"},
    {REDUCE_SCATTER, AT_F32, 24, 1021, 0, 0, 1, "add"},
    {REDUCE_SCATTER, AT_F32, 33, 1200, 1, 0, 1, "add"},
    {REDUCE_SCATTER, AT_S4, 24, 5001, 0, 0, 2, "maximum"},
    {REDUCE_SCATTER, AT_F32, 24, 0, 0, 0, 1, "add"},
    {ALL_GATHER, AT_F32, 5, 9, 0, 0, 1, NULL},
    {ALL_GATHER, AT_F32, 31, 733, 0, 0, 1, NULL},
    {ALL_GATHER, AT_F16, 3, 12001, 1, 0, 2, NULL},
    {ALL_GATHER, AT_F32, 0, 7, 1, 0, 1, NULL},
    {ALL_TO_ALL, AT_F32, 24, 48, 0, 0, 1, NULL},
    {ALL_TO_ALL, AT_F32, 24, 1001, 0, 1, 1, NULL},
    {ALL_TO_ALL, AT_U8, 77, 2400, 1, 0, 1, NULL},
    {ALL_TO_ALL, AT_F64, 24, 500, 0, 0, 2, NULL},
    {ALL_TO_ALL, AT_F32, 24, 4800, 1, 1, 1, NULL},
    {BROADCAST, AT_F32, 37, 733, 0, 0, 1, NULL},
    {PERMUTE, AT_F32, 37, 733, 0, 0, 1, NULL},
    {PERMUTE, AT_F32, 37, 0, 0, 0, 1, NULL},
};

static void check_probes(const char *target, uint32_t hosts) {
  job one, several;
  job_open(&one, target, 1);
  job_open(&several, target, hosts);
  for (size_t i = 0; i < AT_LEN(probes); i++)
    for (grouping how = 0; how < GROUPINGS; how++)
      check(&one, &several, &probes[i], how);
  job_close(&several);
  job_close(&one);
}

static void two_hosts_are_as_one(void **state) { check_probes("2*v5e:2x2", 2); }
static void three_hosts_are_as_one(void **state) {
  check_probes("3*v5e:2x2", 3);
}
static void four_hosts_are_as_one(void **state) {
  check_probes("2*v5e:2x2", 4);
  check_probes("3*v5e:2x2", 4);  // three devices each
}

// Where each host has an aligned block of devices, a sum costs what the best
// form without an order costs.
static void sums_cost_no_more_for_their_order(void **state) {
  probe x = {ALL_REDUCE, AT_F32, 64, 1024, 0, 0, 1, "add"};
  groups g = make_groups(ALL, 8);
  uint32_t host_of[8] = {0, 0, 1, 1, 2, 2, 3, 3};
  double bytes = 64 * 1024 * 4;
  assert_true(least_bytes(&x, &g, host_of) == 2 * 3 * bytes);
  x.kind = REDUCE_SCATTER;
  assert_true(least_bytes(&x, &g, host_of) == 3 * bytes);
}

// A type's width decides on how its elements are cut and copied, so every one
// goes through all kinds of collectives.
static void all_types_travel(void **state) {
  job one, several;
  job_open(&one, "v5e:2x2", 1);
  job_open(&several, "v5e:2x2", 2);
  for (at_dtype t = AT_PRED; t < AT_TOKEN; t++) {
    probe moves[] = {{PERMUTE, t, 5, 7, 0, 0, 1, NULL},
                     {ALL_GATHER, t, 5, 7, 1, 0, 1, NULL},
                     {ALL_TO_ALL, t, 8, 12, 0, 1, 1, NULL},
                     {BROADCAST, t, 5, 7, 0, 0, 1, NULL}};
    for (size_t i = 0; i < AT_LEN(moves); i++)
      check(&one, &several, &moves[i], ALL);
    if (at_dtype_of(t)->dclass == AT_CLASS_FLOAT && at_dtype_bytes(t) == 1)
      continue;  // no sums on chips
    const char *body = t == AT_PRED ? "and" : "add";
    probe sums[] = {{ALL_REDUCE, t, 17, 513, 0, 0, 1, body},
                    {REDUCE_SCATTER, t, 20, 513, 0, 0, 1, body}};
    for (size_t i = 0; i < AT_LEN(sums); i++)
      check(&one, &several, &sums[i], ALL);
  }
  job_close(&several);
  job_close(&one);
}

// Sums come together in aligned blocks of device numbers, whatever the order of
// the group: of 1e30, 1, -1e30, 1, 1, 1, 1, 1 on devices 0 to 7, the first one
// is lost, and so is the second with it.
static void sums_are_trees_over_numbers(void **state) {
  static const float values[8] = {1e30f, 1, -1e30f, 1, 1, 1, 1, 1};
  const probe x = {ALL_REDUCE, AT_F32, 1, 1, 0, 0, 1, "add"};
  char why[300];
  for (grouping how = ALL; how <= REVERSED; how++)
    for (uint32_t hosts = 1; hosts <= 4; hosts *= 2) {
      job j;
      outcome out;
      job_open(&j, "v5e:2x4", hosts);
      groups g = make_groups(how, 8);
      program p = make_program(&x, &g, 8);
      for (uint32_t d = 0; d < 8; d++) memcpy(p.args[d][0], &values[d], 4);
      assert_int_equal(job_run(&j, &p, &out, why), 0);
      for (uint32_t d = 0; d < 8; d++) {
        float v;
        memcpy(&v, out.results[d][0], 4);
        assert_true(v == 4);
      }
      outcome_free(&out);
      program_free(&p);
      job_close(&j);
    }
}

// ---- Rows of any number
enum { kRow = 40, kChips = 8 };

// Every device sends k rows, or none, to the k-th of its group, to where those
// of lower ranks end.
static program make_ragged(grouping how) {
  at_strbuf b = {0};
  groups g = make_groups(how, kChips);
  at_strbuf_addz(
      &b,
      "hlo module \"m\" replicas=8 entry=\"main\" {\nfunc \"main\" "
      "(%0: f32[64,40], %1: f32[80,40], %2: i32[8], %3: i32[8], %4: "
      "i32[8], %5: i32[8]) -> (f32[80,40]) {\n%6 = ragged_all_to_all "
      "%0, %1, %2, %3, %4, %5 {replica_groups=");
  print_groups(&g, &b);
  at_strbuf_addz(&b, "} : f32[80,40]\nreturn %6\n}\n}\n");
  program p = {.num_devices = kChips, .num_args = 6, .num_results = 1};
  p.block = compile(b.ptr);
  at_strbuf_free(&b);
  for (uint32_t a = 0; a < 6; a++) {
    p.dtype[a] = a < 2 ? AT_F32 : AT_S32;
    p.rank[a] = a < 2 ? 2 : 1;
    p.dims[a][0] = a == 0 ? 64 : a == 1 ? 80 : 8;
    p.dims[a][1] = kRow;
  }
  uint32_t each = 8 / g.size;
  for (uint32_t i = 0; i < kChips; i++) {
    uint32_t d = g.ids[i], rank = i % g.size;
    p.chip[d] = d;
    for (uint32_t a = 0; a < 6; a++) p.args[d][a] = calloc(1, 80 * kRow * 4);
    for (uint32_t k = 0; k < 64 * kRow; k++) {
      float v = (float)(d * 10000 + k);
      memcpy(p.args[d][0] + 4 * k, &v, 4);
    }
    for (uint32_t e = 0; e < 8; e++) {
      int32_t n = (int32_t)((rank + e) % 3), from = (int32_t)(e * 8);
      int32_t to = (int32_t)(rank * 8 + e % each * 2);
      memcpy(p.args[d][2] + 4 * e, &from, 4);
      memcpy(p.args[d][3] + 4 * e, &n, 4);
      memcpy(p.args[d][4] + 4 * e, &to, 4);
    }
  }
  return p;
}

// Sizes that are known at run time only. Offsets that one device gets wrong
// fail the launch on every host.
static void rows_of_any_number_travel(void **state) {
  char why[300];
  for (uint32_t hosts = 2; hosts <= 4; hosts *= 2)
    for (grouping how = ALL; how <= BLOCKS; how++) {
      job one, several;
      outcome alone, apart;
      program p = make_ragged(how);
      job_open(&one, "v5e:2x4", 1);
      job_open(&several, "v5e:2x4", hosts);
      assert_int_equal(job_run(&one, &p, &alone, why), 0);
      assert_int_equal(job_run(&several, &p, &apart, why), 0);
      outcome_equal(&p, &alone, &apart);
      // No more than all rows, of which some stay, and where they go.
      assert_true(apart.sent <= kChips * 8 * (kRow * 4 + 16));
      outcome_free(&alone);
      outcome_free(&apart);
      // One device names rows that are not there: every host is told.
      int32_t bad = 100;
      memcpy(p.args[5][3], &bad, 4);
      assert_int_not_equal(job_run(&several, &p, &apart, why), 0);
      outcome_free(&apart);
      program_free(&p);
      job_close(&several);
      job_close(&one);
    }
}

// Launch upon launch of one program: messages of different launches, turns and
// rounds do not mix.
static void launches_do_not_mix(void **state) {
  const probe x = {ALL_REDUCE, AT_F32, 64, 512, 0, 0, 2, "add"};
  char why[300];
  job one, several;
  outcome alone, apart;
  job_open(&one, "v5e:2x4", 1);
  job_open(&several, "v5e:2x4", 4);
  groups g = make_groups(EVEN_ODD, 8);
  program p = make_program(&x, &g, 8);
  p.launches = 20;
  assert_int_equal(job_run(&one, &p, &alone, why), 0);
  assert_int_equal(job_run(&several, &p, &apart, why), 0);
  outcome_equal(&p, &alone, &apart);
  outcome_free(&alone);
  outcome_free(&apart);
  program_free(&p);
  job_close(&several);
  job_close(&one);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_hosts_are_as_one),
      cmocka_unit_test(three_hosts_are_as_one),
      cmocka_unit_test(four_hosts_are_as_one),
      cmocka_unit_test(sums_cost_no_more_for_their_order),
      cmocka_unit_test(all_types_travel),
      cmocka_unit_test(sums_are_trees_over_numbers),
      cmocka_unit_test(rows_of_any_number_travel),
      cmocka_unit_test(launches_do_not_mix),
  };
  const struct CMUnitTest copied[] = {
      cmocka_unit_test(two_hosts_are_as_one),
      cmocka_unit_test(rows_of_any_number_travel),
  };
  int bad = cmocka_run_group_tests_name("by messages", tests, NULL, NULL);
  jobs_share = true;
  bad += cmocka_run_group_tests_name("by shared memory", tests, NULL, NULL);
  // Blocks with guards are no others' to read: operands are copied.
  setenv("ATOLL_GUARD", "1", 1);
  return bad + cmocka_run_group_tests_name("copied", copied, NULL, NULL);
}
