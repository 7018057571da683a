#include "codegen/check.h"

void ck_begin(ck *c, uint64_t features) {
  *c = (ck){.arena = at_arena_create(),
            .features = features & at_cpu_features(),
            .random = 88172645463325252ull,
            .ulps = 4};
  // What fails here is the machine, not the code under test.
  assert_non_null(c->arena);
  ck_ok(at_module_create(c->arena, AT_STR("test"), &c->module));
  ck_ok(at_comp_create(c->module, AT_STR("main"), NULL, &c->comp));
  c->cases = calloc(CK_MAX_CASES, sizeof *c->cases);
}

uint64_t ck_random(ck *c) {
  c->random ^= c->random << 13;
  c->random ^= c->random >> 7;
  return c->random ^= c->random << 17;
}

at_type ck_type(ck *c, at_dtype t, uint32_t rank, const int64_t *dims) {
  at_type out;
  ck_ok(at_type_make(c->arena, t, (at_dims){dims, rank}, &out));
  return out;
}

// Writes one element that suits tests: small integers, floats around zero, and
// with `specials` one in five that is not (zeros of either sign, infinities,
// NaN, denormals; powers of two for integers). p has room for t.
static void ck_fill_one(ck *c, at_dtype t, void *p, bool specials) {
  uint64_t r = ck_random(c);
  double f = ((double)(r >> 11) / 9007199254740992.0 - 0.5) * 8;
  static const double special[] = {0.0, -0.0,  1,     -1,   INFINITY, -INFINITY,
                                   NAN, 1e-40, 65504, 3e38, 1e10,     -1e-3};
  if (specials && r % 5 == 0) f = special[(r >> 8) % 12];
  if (t == AT_PRED) {
    *(uint8_t *)p = r >> 20 & 1;
  } else if (at_is_complex(t)) {
    at_dtype h = at_real_of(t);
    ck_fill_one(c, h, p, specials);
    ck_fill_one(c, h, (char *)p + at_dtype_bytes(h), specials);
  } else if (at_is_float(t)) {
    at_store_float(t, p, f);
    // Powers of two down to INT64_MIN, and random bits: shifts, wraps and ends
    // of ranges.
  } else if (specials && r % 7 == 0) {
    at_store_int(t, p, r & 64 ? INT64_MIN >> (r >> 8 & 63) : (int64_t)(r >> 9));
  } else {
    at_store_int(t, p, (int64_t)(r >> 40) % 15 - (at_is_signed_int(t) ? 7 : 0));
  }
}

const at_literal *ck_random_literal(ck *c, at_type t, bool specials) {
  // One byte more, as an array may be empty.
  size_t one = at_dtype_bytes(t.dtype), bytes = at_type_bytes(&t);
  char *data = at_arena_alloc(c->arena, bytes + 1, 16);
  assert_non_null(data);
  for (size_t i = 0; i + one <= bytes; i += one)
    ck_fill_one(c, t.dtype, data + i, specials);
  const at_literal *l;
  ck_ok(at_literal_make(c->arena, t, data, false, true, &l));
  return l;
}

at_value ck_param(ck *c, at_type t) {
  at_value v;
  ck_ok(at_build_param(c->comp, t, NULL, &v));
  return v;
}

const at_literal *ck_indices(ck *c, at_type t, int64_t limit) {
  size_t one = at_dtype_bytes(t.dtype), n = (size_t)at_type_elements(&t);
  char *data = at_arena_alloc(c->arena, one * n + 1, 16);
  for (size_t i = 0; i < n; i++)
    at_store_int(t.dtype, data + i * one,
                 // From -2 to limit + 1.
                 (int64_t)(ck_random(c) >> 33) % (limit + 4) - 2);
  const at_literal *l;
  ck_ok(at_literal_make(c->arena, t, data, false, true, &l));
  return l;
}

ck_case *ck_add(ck *c, at_node *n, const at_literal *const *args) {
  assert_true(c->num_cases < CK_MAX_CASES);
  assert_true(n->num_operands <= CK_MAX_ARGS && n->num_results <= CK_MAX_ARGS);
  ck_case *k = &c->cases[c->num_cases++];
  *k = (ck_case){.node = n, .ulps = c->ulps, .absolute = c->absolute};
  for (uint32_t i = 0; i < n->num_operands; i++) k->args[i] = args[i];
  for (uint32_t i = 0; i < n->num_results; i++) k->alias[i] = -1;
  // The node alone: its operands are these literals.
  at_eval_options o = {0};
  ck_ok(at_eval_node(n, args, &o, c->arena, k->want));
  return k;
}

// A buffer of `bytes` whose end is the end of its mapping: what reads or writes
// beyond it faults. *map, *map_bytes: to unmap.
// The start need not be aligned: kernels may not rely on more than the
// element's size.
static void *ck_guarded(size_t bytes, void **map, size_t *map_bytes) {
  size_t page = 4096, body = (bytes + page - 1) / page * page;
  *map_bytes = body + page;
  char *p = mmap(NULL, *map_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(p != MAP_FAILED);
  // The page behind the end.
  assert_int_equal(mprotect(p + body, page, PROT_NONE), 0);
  *map = p;
  return p + body - bytes;
}

// Writes the literal's elements densely to dst, also those of a splat.
// dst has room for all elements.
static void ck_unpack(const at_literal *l, void *dst) {
  size_t bytes = at_type_bytes(&l->type), one = at_dtype_bytes(l->type.dtype);
  for (size_t i = 0; i < bytes; i += one)
    memcpy((char *)dst + i, at_literal_at(l, (int64_t)(i / one)), one);
}

// Are two floats of type t as near as the case allows? NaN equals NaN,
// infinities only themselves. Distance in units in the last place of the wider
// value, a denormal's at least. *g, *w: both as doubles, for the message.
static bool ck_float_close(const ck_case *k, at_dtype t, const void *got,
                           const void *want, double *g, double *w) {
  // NaN payloads and signs do not count, nor does the sign of zero.
  *g = at_load_float(t, got);
  *w = at_load_float(t, want);
  if (isnan(*g) || isnan(*w)) return isnan(*g) && isnan(*w);
  if (*g == *w || fabs(*g - *w) <= k->absolute) return true;
  if (isinf(*g) || isinf(*w)) return false;
  // Bits behind the point; two for the types of a byte and less.
  static const int mantissa[AT_DTYPE_COUNT] = {
      [AT_F64] = 52, [AT_F32] = 23, [AT_F16] = 10, [AT_BF16] = 7};
  int m = mantissa[t] ? mantissa[t] : 2, e;
  frexp(AT_MAX(fabs(*g), fabs(*w)), &e);
  double ulp = ldexp(1, e - 1 - m);
  // Denormals are evenly spaced.
  double tiny = t == AT_F16 ? 0x1p-24 : t == AT_F64 ? 0x1p-1074 : 0x1p-149;
  // Narrow types are computed in f32: one rounding may differ.
  double ulps = t == AT_F64 || t == AT_F32 ? k->ulps : AT_MIN(k->ulps, 1);
  return fabs(*g - *w) <= ulps * AT_MAX(ulp, tiny);
}

// Compares result r, dense at `got`, with what is wanted. Fails the test at the
// first element that differs, with the node, its types, and the operands'
// elements there.
static void ck_compare(const ck *c, const ck_case *k, uint32_t r,
                       const void *got) {
  const at_literal *want = k->want[r];
  at_dtype t = want->type.dtype, h = at_real_of(t);
  size_t one = at_dtype_bytes(t), n = (size_t)at_type_elements(&want->type);
  for (size_t i = 0; i < n; i++) {
    const char *g = (const char *)got + i * one;
    const char *w = at_literal_at(want, (int64_t)i);
    double a = 0, b = 0;
    bool same;
    // Parts are compared by themselves.
    if (at_is_complex(t))
      same = ck_float_close(k, h, g, w, &a, &b) &&
             ck_float_close(k, h, g + one / 2, w + one / 2, &a, &b);
    else if (at_is_float(t))
      same = ck_float_close(k, t, g, w, &a, &b);
    else {
      same = memcmp(g, w, one) == 0;
      a = (double)at_load_int(t, g);
      b = (double)at_load_int(t, w);
    }
    if (same) continue;
    // The message: the node, its operands' types, and where operand elements
    // have the result's place, what they were.
    at_strbuf s = {0};
    at_node_describe(&s, k->node);
    for (uint32_t o = 0; o < k->node->num_operands; o++) {
      at_strbuf_addz(&s, " ");
      at_type_print(&s, at_value_type(k->node->operands[o]));
      at_dtype ot = k->args[o]->type.dtype;
      if ((size_t)at_type_elements(&k->args[o]->type) == n && at_is_float(ot))
        at_strbuf_addf(
            &s, "=%.9g",
            at_load_float(ot, at_literal_at(k->args[o], (int64_t)i)));
    }
    fail_msg(
        "%scase %d features %llx: %s\nresult %u element %zu: got %.17g want "
        "%.17g",
        c->title, (int)(k - c->cases), (unsigned long long)c->features, s.ptr,
        r, i, a, b);
  }
}

// Runs a launch in three chunks or so, the last first, as threads might:
// nothing may depend on the order of tasks.
static void ck_launch(const ck_case *k, const at_cg_launch *l, at_kernel_fn fn,
                      void *const *operands, void *const *results,
                      void *scratch) {
  void *bufs[2 * CK_MAX_ARGS + 1];
  for (uint32_t i = 0; i < l->num_args; i++) {
    const at_cg_arg *a = &l->args[i];
    // In the order of the plan, which says where in an operand the address is.
    bufs[i] = a->kind == AT_CG_OPERAND  ? (char *)operands[a->index] + a->skip
              : a->kind == AT_CG_RESULT ? results[a->index]
                                        : (char *)scratch + a->index;
  }
  // Chunks in an order of their own: the last first.
  // At least three chunks, where there are as many tasks.
  int64_t chunk = AT_MAX(1, AT_MIN(l->grain, at_ceil_div(l->tasks, 3)));
  for (int64_t b = (l->tasks - 1) / chunk * chunk; b >= 0; b -= chunk)
    fn(bufs, b, AT_MIN(b + chunk, l->tasks));
}

// Runs all launches of a case on fresh guarded buffers and compares its
// results. fns: by kernel.
static void ck_run_case(ck *c, ck_case *k, void *const *fns) {
  const at_node *n = k->node;
  void *maps[2 * CK_MAX_ARGS], *operands[CK_MAX_ARGS], *results[CK_MAX_ARGS];
  size_t map_bytes[2 * CK_MAX_ARGS];
  uint32_t maps_n = 0;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    // An operand's mapping ends with it: vectors that reach over an end fault.
    operands[i] = ck_guarded(at_type_bytes(&k->args[i]->type), &maps[maps_n],
                             &map_bytes[maps_n]);
    maps_n++;
    ck_unpack(k->args[i], operands[i]);
  }
  for (uint32_t r = 0; r < n->num_results; r++) {
    // In place: the operand is overwritten.
    if (k->alias[r] >= 0) {
      results[r] = operands[k->alias[r]];
      continue;
    }
    results[r] = ck_guarded(at_type_bytes(&n->types[r]), &maps[maps_n],
                            &map_bytes[maps_n]);
    maps_n++;
  }
  // Not zeroed: kernels must write what they read.
  void *scratch = aligned_alloc(64, at_align_up(k->plan.scratch_bytes + 1, 64));
  // In order: later launches read what earlier ones have written.
  for (uint32_t i = 0; i < k->plan.num_launches; i++) {
    const at_cg_launch *l = &k->plan.launches[i];
    ck_launch(k, l, (at_kernel_fn)fns[l->kernel], operands, results, scratch);
  }
  for (uint32_t r = 0; r < n->num_results; r++) ck_compare(c, k, r, results[r]);
  for (uint32_t i = 0; i < maps_n; i++) munmap(maps[i], map_bytes[i]);
  free(scratch);
}

// Compiles all cases in one generator, links them and runs them. stream_bytes:
// results of so many bytes go past the caches; 0: the default.
static void ck_compile_and_run(ck *c, ck_tier tier, size_t stream_bytes) {
  at_cg_target t = {.cpu_features = c->features,
                    .threads = 2,
                    .opt_level = 2,
                    .stream_bytes = stream_bytes,
                    .verify = true,
                    .quick = tier == CK_QUICK,
                    .plain = tier == CK_PLAIN};
  at_cg *cg;
  ck_ok(at_cg_create(&t, &cg));
  for (uint32_t i = 0; i < c->num_cases; i++) {
    ck_case *k = &c->cases[i];
    // As the compiler asks: operands may be passed from inside.
    ck_ok(at_cg_node_skipping(cg, k->node, k->alias, c->arena, &k->plan));
  }
  at_cg_output out;
  at_status st = at_cg_finish(cg, c->arena, &out);
  // With the test's title, as LLVM's verifier names no node.
  if (st.err) fail_msg("%s%s", c->title, at_status_message(st));
  // Nodes of empty arrays have no kernels.
  void *h = out.num_objects ? ck_link(&out) : NULL;
  void **fns = calloc(out.num_kernels + 1, sizeof *fns);
  for (uint32_t i = 0; i < out.num_kernels; i++) fns[i] = ck_symbol(h, &out, i);
  for (uint32_t i = 0; i < c->num_cases; i++) ck_run_case(c, &c->cases[i], fns);
  if (h) dlclose(h);
  free(fns);
  at_cg_destroy(cg);
}

void ck_end(ck *c) {
  ck_compile_and_run(c, CK_FULL, 0);
  ck_compile_and_run(c, CK_QUICK, 0);
  ck_compile_and_run(c, CK_PLAIN, 0);
  if (c->streams) ck_compile_and_run(c, CK_FULL, 1);
  free(c->cases);
  at_arena_destroy(c->arena);
}

ck_case *ck_text(ck *c, const char *params, const char *results,
                 const char *lines) {
  at_strbuf s = {0};
  at_strbuf_addf(&s,
                 "hlo module \"t\" {\nfunc \"main\" (%s) -> (%s) {\n%s\n}\n}\n",
                 params, results, lines);
  char *text = at_arena_str(c->arena, at_strbuf_str(&s));
  at_strbuf_free(&s);
  at_module *m;
  ck_ok(at_hlo_parse(at_str_of(text), c->arena, &m));
  ck_case *last = NULL;
  // Nodes that read other nodes are not cases: their operands are not known.
  AT_FOR_NODES(n, m->funcs[0]) {
    bool direct = n->op != AT_OP_PARAMETER;
    const at_literal *args[CK_MAX_ARGS];
    for (uint32_t i = 0; direct && i < n->num_operands; i++) {
      if (n->operands[i].node->op != AT_OP_PARAMETER) direct = false;
      args[i] = ck_random_literal(c, *at_value_type(n->operands[i]), false);
      for (uint32_t k = 0; k < i; k++)
        if (at_value_eq(n->operands[i], n->operands[k])) args[i] = args[k];
    }
    if (direct) last = ck_add(c, n, args);
  }
  assert_non_null(last);
  return last;
}

ck_case *ck_op(ck *c, at_op op, const at_type *types, uint32_t n,
               const at_attr *attrs, uint32_t num_attrs, const at_type *result,
               bool specials) {
  at_value v[CK_MAX_ARGS];
  const at_literal *args[CK_MAX_ARGS];
  for (uint32_t i = 0; i < n; i++) {
    v[i] = ck_param(c, types[i]);
    args[i] = ck_random_literal(c, types[i], specials);
  }
  at_node_desc d = {.op = op,
                    .operands = v,
                    .num_operands = n,
                    .attrs = attrs,
                    .num_attrs = num_attrs,
                    .types = result,
                    .num_types = result ? 1 : 0};
  at_node *node;
  ck_ok(at_build(c->comp, NULL, &d, &node));
  return ck_add(c, node, args);
}

// Of abi/imports.def, what no library of the system has.
CK_EXPORT double at_zeta64(double s, double q);
double at_zeta64(double s, double q) { return (double)at_zeta(s, q); }
CK_EXPORT double at_polygamma64(double n, double x);
double at_polygamma64(double n, double x) { return (double)at_polygamma(n, x); }
