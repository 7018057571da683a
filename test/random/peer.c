#include "peer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile/stablehlo.h"
#include "piece.h"
#include "run.h"

typedef struct keeper {
  AT_VEC(at_str) without;
  bool apart;
  uint32_t only;  // ordinal of the node, when apart
} keeper;

// One program for the peer.
typedef struct part {
  at_arena *a;
  at_module *m;
  piece_source *sources;
  char name[64];
  const peer_options *o;
} part;

// ---- Files

static at_status put(const part *p, const char *end, const void *data,
                     size_t bytes) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.%s", p->o->folder, p->name, end);
  FILE *f = fopen(path, "wb");
  bool good = f && fwrite(data, 1, bytes, f) == bytes;
  if (f && fclose(f)) good = false;
  return good ? AT_OK : AT_FAIL(AT_UNAVAILABLE, "cannot write %s", path);
}

// *out.ptr is NULL when there is no such file.
static at_status get(at_arena *a, const char *path, at_str *out) {
  FILE *f = fopen(path, "rb");
  *out = (at_str){0};
  if (!f) return AT_OK;
  fseek(f, 0, SEEK_END);
  long size = ftell(f);
  char *data = at_arena_alloc(a, (size_t)size + 1, 64);
  rewind(f);
  bool good = data && fread(data, 1, (size_t)size, f) == (size_t)size;
  fclose(f);
  if (!good) return AT_FAIL(AT_UNAVAILABLE, "cannot read %s", path);
  *out = (at_str){data, (size_t)size};
  return AT_OK;
}

static at_status get_part(const part *p, uint32_t set, const char *end,
                          at_str *out) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.%u.%s", p->o->folder, p->name, set, end);
  return get(p->a, path, out);
}

static at_status read_without(at_arena *a, const char *path, keeper *k) {
  at_str all;
  AT_TRY(get(a, path, &all));
  if (!all.ptr) return AT_FAIL(AT_NOT_FOUND, "cannot read %s", path);
  for (size_t from = 0, to; from < all.len; from = to + 1) {
    for (to = from; to < all.len && all.ptr[to] != '\n';) to++;
    if (!at_vec_push(a, &k->without, ((at_str){all.ptr + from, to - from})))
      return AT_NO_MEMORY("peer");
  }
  return AT_OK;
}

// ---- Programs

static void add_types(at_strbuf *b, const at_type *t, bool first) {
  at_strbuf_addf(b, "%s%s", first ? "" : ",", at_dtype_of(t->dtype)->text);
}

static void add_key(at_strbuf *b, const at_node *n) {
  at_str target = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  at_strbuf_addz(b, at_op_text(n->op));
  if (target.len) at_strbuf_addf(b, " %.*s", (int)target.len, target.ptr);
  // Collectives of one body and not another run.
  if (n->num_regions && at_op_is(n->op, AT_COLLECTIVE))
    at_strbuf_addf(b, " %s", at_op_text(n->regions[0]->results[0].node->op));
  at_strbuf_addc(b, '(');
  for (uint32_t i = 0; i < n->num_operands; i++)
    add_types(b, at_value_type(n->operands[i]), !i);
  at_strbuf_addc(b, ')');
  for (uint32_t i = 0; i < n->num_results; i++) add_types(b, &n->types[i], !i);
}

// A pattern that ends in * stands for all keys that begin so.
static bool matches(at_str pattern, const at_strbuf *key) {
  bool begin = pattern.len && pattern.ptr[pattern.len - 1] == '*';
  size_t n = pattern.len - begin;
  return (begin ? n <= key->len : n == key->len) &&
         !memcmp(pattern.ptr, key->ptr, n);
}

static bool keeps(void *user, const at_node *n, uint32_t ordinal) {
  const keeper *k = user;
  at_strbuf key = {0};
  if (k->apart && ordinal != k->only) return false;
  add_key(&key, n);
  bool keep = true;
  for (size_t i = 0; i < k->without.len && keep; i++)
    keep = !matches(k->without.ptr[i], &key);
  at_strbuf_free(&key);
  return keep;
}

static void add_shape(at_strbuf *b, const char *what, const at_type *t) {
  at_strbuf_addf(b, "// %s %s ", what, at_dtype_of(t->dtype)->text);
  for (uint32_t d = 0; d < t->rank; d++)
    at_strbuf_addf(b, "%lld,", (long long)t->dims[d]);
  at_strbuf_addc(b, '\n');
}

static bool is_leaf(const at_node *n) {
  return n->op == AT_OP_PARAMETER || n->op == AT_OP_CONSTANT;
}

static at_status write_program(const part *p) {
  const at_comp *c = p->m->entry;
  at_strbuf b = {0};
  AT_FOR_NODES(n, c) {
    if (is_leaf(n)) continue;
    at_strbuf_addz(&b, "// op ");
    add_key(&b, n);
    at_strbuf_addc(&b, '\n');
  }
  for (uint32_t i = 0; i < c->num_params; i++)
    add_shape(&b, "arg", &c->params[i]->types[0]);
  for (uint32_t i = 0; i < c->num_results; i++)
    add_shape(&b, "result", at_value_type(c->results[i]));
  at_status st = at_stablehlo_print(p->m, &b);
  // An op without a form there is refused by name, as the peer refuses others.
  if (at_status_code(st) == AT_UNIMPLEMENTED) {
    at_strbuf_addf(&b, "// refused %s\n", at_status_message(st));
    at_status_free(st);
    st = AT_OK;
  }
  if (at_ok(st)) st = put(p, "mlir", b.ptr, b.len);
  at_strbuf_free(&b);
  return st;
}

static at_status write_args(const part *p, uint32_t set,
                            const piece_run *whole) {
  const at_comp *c = p->m->entry;
  at_strbuf b = {0};
  char end[32];
  for (uint32_t i = 0; i < c->num_params; i++) {
    piece_source s = p->sources[i];
    const at_literal *l = (s.made ? whole->got : whole->args)[s.index];
    int64_t count = at_type_elements(&l->type);
    for (int64_t e = 0; e < count; e++)
      at_strbuf_add(
          &b, (at_str){at_literal_at(l, e), at_dtype_bytes(l->type.dtype)});
  }
  snprintf(end, sizeof end, "%u.in", set);
  at_status st = at_strbuf_status(&b);
  if (at_ok(st)) st = put(p, end, b.ptr, b.len);
  at_strbuf_free(&b);
  return st;
}

// The seed's program, whole; every value is returned.
static at_status make(at_arena *a, const at_random_options *ro,
                      at_module **out) {
  AT_TRY(at_random_module(a, ro, out));
  return piece_return_all(*out);
}

static at_status cut(part *p, const at_random_options *ro, keeper *k) {
  AT_TRY(make(p->a, ro, &p->m));
  AT_TRY(piece_cut(p->a, p->m, keeps, k, &p->sources));
  snprintf(p->name, sizeof p->name, k->apart ? "%llu-%u" : "%llu",
           (unsigned long long)ro->seed, k->only);
  return piece_return_all(p->m);
}

typedef at_status (*each_part)(part *p, const at_random_options *ro,
                               void *user);

static at_status for_parts(const peer_options *o, const at_random_options *ro,
                           at_arena *a, each_part f, void *user) {
  keeper k = {.apart = o->apart};
  uint32_t nodes = 0;
  at_module *m;
  if (o->without) AT_TRY(read_without(a, o->without, &k));
  AT_TRY(make(a, ro, &m));
  AT_FOR_NODES(n, m->entry) nodes++;
  for (k.only = 0; k.only < (o->apart ? nodes : 1); k.only++) {
    part p = {.a = at_arena_create(), .o = o};
    at_status st = p.a ? cut(&p, ro, &k) : AT_NO_MEMORY("peer");
    if (at_ok(st) && p.m->entry->num_results) st = f(&p, ro, user);
    at_arena_destroy(p.a);
    AT_TRY(st);
  }
  return AT_OK;
}

static at_status args_of(at_arena *a, const at_comp *c, uint64_t seed,
                         uint32_t set, const at_literal ***out) {
  uint64_t start = seed + (uint64_t)(set / 2) * 0x9e3779b97f4a7c15ull;
  return at_random_args(a, c, start, set & 1, out);
}

static at_status write_part(part *p, const at_random_options *ro, void *user) {
  const piece_run *whole = user;
  (void)ro;
  AT_TRY(write_program(p));
  for (uint32_t set = 0; set < p->o->sets; set++)
    AT_TRY(write_args(p, set, &whole[set]));
  return AT_OK;
}

static at_status write_all(const peer_options *o, const at_random_options *ro,
                           at_arena *a) {
  at_eval_options eo = {.custom = at_eval_linalg_custom};
  at_module *m;
  piece_run *whole;
  AT_TRY(make(a, ro, &m));
  AT_TRY_ALLOC(whole, at_new(a, piece_run, o->sets + 1));
  for (uint32_t set = 0; set < o->sets; set++) {
    AT_TRY_ALLOC(whole[set].got,
                 at_new(a, const at_literal *, m->entry->num_results + 1));
    AT_TRY(args_of(a, m->entry, ro->seed, set, &whole[set].args));
    AT_TRY(at_eval(m->entry, whole[set].args, &eo, a, whole[set].got));
  }
  return for_parts(o, ro, a, write_part, whole);
}

at_status peer_write(const peer_options *o, const at_random_options *ro) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("peer");
  at_status st = write_all(o, ro, a);
  at_arena_destroy(a);
  return st;
}

// ---- Verdicts

enum { ATOLL, PEER, SIDES };
typedef struct count {
  uint64_t judged, beyond[SIDES];
  double worst[SIDES];
} count;
static count g_counts[AT_OP_COUNT][AT_DTYPE_COUNT];

typedef struct session {
  at_loaded *l;
  uint64_t *farther;
} session;

static void tally(const part *p, uint32_t set, const at_node *n,
                  const judgement *j, uint64_t *farther) {
  at_dtype t = at_random_dtype_of(n);
  count *c = &g_counts[n->op][t];
  bool bad[SIDES];
  c->judged++;
  for (int s = 0; s < SIDES; s++) {
    bad[s] = j[s].bad_result != UINT32_MAX;
    c->beyond[s] += bad[s];
    c->worst[s] = fmax(c->worst[s], j[s].worst);
  }
  if (!bad[ATOLL] && !bad[PEER]) return;
  *farther += bad[ATOLL] && !(bad[PEER] && j[PEER].worst >= j[ATOLL].worst);
  const judgement *show = bad[PEER] ? &j[PEER] : &j[ATOLL];
  at_str target = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  printf("differs\t%s.%u\t%s%s%.*s\t%s\t%s\t%s\t%.3g\t%.3g\t%s\n", p->name, set,
         at_op_text(n->op), target.len ? " " : "", (int)target.len,
         target.len ? target.ptr : "", at_dtype_of(t)->text,
         !bad[PEER]    ? "atoll"
         : !bad[ATOLL] ? "peer"
                       : "both",
         show->cause ? show->cause : "another value", j[ATOLL].worst,
         j[PEER].worst, show->why.ptr ? show->why.ptr : "");
}

static at_status judge_both(part *p, uint32_t set, piece_run *runs,
                            uint64_t *farther) {
  AT_FOR_NODES(n, p->m->entry) {
    judgement j[SIDES];
    if (is_leaf(n)) {
      g_counts[n->op][at_random_dtype_of(n)].judged++;
      continue;
    }
    at_status st = AT_OK;
    for (int s = 0; s < SIDES; s++) {
      j[s] = judge_nothing();
      if (at_ok(st)) st = piece_judge(p->a, n, &runs[s], &j[s]);
    }
    if (at_ok(st)) tally(p, set, n, j, farther);
    for (int s = 0; s < SIDES; s++) at_strbuf_free(&j[s].why);
    AT_TRY(st);
  }
  return AT_OK;
}

// Cuts the bytes of a file into literals of these types.
static at_status take(const part *p, at_str all, const at_type *t,
                      const at_literal **out) {
  size_t bytes = at_type_bytes(t);
  if (bytes > all.len)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s: the file is too short", p->name);
  return at_literal_make(p->a, *t, all.ptr, false, false, out);
}

static at_str rest(at_str all, const at_type *t) {
  size_t bytes = at_type_bytes(t);
  return (at_str){all.ptr + bytes, all.len - bytes};
}

static at_status judge_set(part *p, uint32_t set, session *s) {
  const at_comp *c = p->m->entry;
  at_str in, out;
  piece_run runs[SIDES];
  AT_TRY(get_part(p, set, "in", &in));
  AT_TRY(get_part(p, set, "out", &out));
  if (!in.ptr || !out.ptr) return AT_OK;  // refused
  const at_literal **args;
  AT_TRY_ALLOC(args, at_new(p->a, const at_literal *, c->num_params + 1));
  for (uint32_t i = 0; i < c->num_params; i++) {
    AT_TRY(take(p, in, &c->params[i]->types[0], &args[i]));
    in = rest(in, &c->params[i]->types[0]);
  }
  for (int k = 0; k < SIDES; k++) {
    runs[k].args = args;
    AT_TRY_ALLOC(runs[k].got,
                 at_new(p->a, const at_literal *, c->num_results + 1));
  }
  for (uint32_t i = 0; i < c->num_results; i++) {
    AT_TRY(take(p, out, at_value_type(c->results[i]), &runs[PEER].got[i]));
    out = rest(out, at_value_type(c->results[i]));
  }
  if (!s->l) AT_TRY(run_load(p->m, false, &s->l));
  AT_TRY(run_once(p->a, s->l, c, args, runs[ATOLL].got));
  return judge_both(p, set, runs, s->farther);
}

static at_status judge_part_of(part *p, const at_random_options *ro,
                               void *farther) {
  session s = {.farther = farther};
  at_status st = AT_OK;
  (void)ro;
  for (uint32_t set = 0; set < p->o->sets && at_ok(st); set++)
    st = judge_set(p, set, &s);
  run_drop(s.l);
  return at_ok(st) ? st : at_status_prefix(st, "%s", p->name);
}

at_status peer_judge(const peer_options *o, const at_random_options *ro,
                     uint64_t *farther) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("peer");
  at_status st = for_parts(o, ro, a, judge_part_of, farther);
  at_arena_destroy(a);
  return st;
}

void peer_table(void) {
  for (uint32_t o = 0; o < AT_OP_COUNT; o++)
    for (uint32_t t = 0; t < AT_DTYPE_COUNT; t++) {
      const count *c = &g_counts[o][t];
      if (!c->judged) continue;
      printf("judged\t%s\t%s\t%llu\t%llu\t%.3g\t%llu\t%.3g\n",
             at_op_text((at_op)o), at_dtype_of((at_dtype)t)->text,
             (unsigned long long)c->judged,
             (unsigned long long)c->beyond[ATOLL], c->worst[ATOLL],
             (unsigned long long)c->beyond[PEER], c->worst[PEER]);
    }
}
