#include "mosaic/run_test_util.h"

// head is the first member.
static rt_core *rt_of(at_core *c) { return (rt_core *)c; }

// Ends the kernel with a text. Only from functions that generated code calls,
// while `failed` is set.
__attribute__((format(printf, 2, 3), noreturn)) static void rt_end(
    at_core *c, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(rt_of(c)->why, sizeof rt_of(c)->why, format, args);
  va_end(args);
  longjmp(rt_of(c)->failed, 1);
}

// Notes an access to a whole view; those beyond the array overwrite the last
// one.
static rt_note *rt_note_of(at_core *c, const at_core_view *v, int32_t kind) {
  rt_core *r = rt_of(c);
  rt_note *n = &r->notes[AT_MIN(r->num_notes, RT_MAX_NOTES - 1)];
  r->num_notes++;
  *n = (rt_note){kind, v->base, 1};
  for (int32_t d = 0; d < v->rank; d++) n->elements *= v->size[d];
  return n;
}

// What follows is the interface of abi/core.h, which generated code is linked
// against. Exported, as the code is in a library of its own.
CK_EXPORT void at_core_out_of_bounds(at_core *c, int32_t loc, int32_t dim,
                                     int64_t index, int64_t size, int64_t limit,
                                     int32_t ref) {
  rt_end(c, "dim %d: %lld + %lld of %lld, ref %d", dim, (long long)index,
         (long long)size, (long long)limit, ref);
}

// An assertion of the kernel, or an operation that cannot go on.
CK_EXPORT void at_core_fail(at_core *c, int32_t loc, const char *text) {
  rt_end(c, "%s", text);
}

// Refills twice, then ends the kernel: endless loops end a test.
CK_EXPORT void at_core_budget(at_core *c, int32_t loc) {
  if (++rt_of(c)->refills > 2) rt_end(c, "out of budget");
  c->budget += 1000;
}

// The last turns first: nothing may rely on an order.
CK_EXPORT void at_core_share(at_core *c, at_core_turns_fn fn, void *arg,
                             int64_t n, int64_t bytes, int32_t alone) {
  char *memory = aligned_alloc(64, at_align_up((size_t)bytes + 1, 64));
  assert_non_null(memory);
  rt_of(c)->shared += n;
  // Each turn gets the same memory: turns that rely on what another left there
  // fail.
  for (int64_t i = n; i-- > 0;) fn(arg, i, i + 1, memory);
  free(memory);
}

// Sixteen bytes hold one element of any type.
CK_EXPORT const void *at_core_undefined(at_core *c, int32_t dtype,
                                        int32_t loc) {
  static const char zeros[16];
  return zeros;
}

CK_EXPORT void at_core_access(at_core *c, const at_core_view *v, int32_t kind,
                              int32_t loc) {
  rt_note_of(c, v, kind);
}

CK_EXPORT void at_core_access_masked(at_core *c, const at_core_view *v,
                                     const uint8_t *mask, int32_t loc) {
  rt_note *n = rt_note_of(c, v, AT_CORE_STORE | AT_CORE_MASKED);
  int64_t all = n->elements;
  n->elements = 0;
  for (int64_t i = 0; i < all; i++) n->elements += mask[i] != 0;
}

CK_EXPORT void at_core_access_places(at_core *c, const at_core_places *x) {
  rt_note *n = rt_note_of(c, &x->ref, x->kind);
  n->elements = 0;
  for (int64_t i = 0; i < x->n; i++) n->elements += !x->mask || x->mask[i];
}

// The real core reports the first place in the order of the vector, as this one
// does.
CK_EXPORT void at_core_check_indices(at_core *c, const int32_t *index,
                                     const uint8_t *mask, int64_t n,
                                     int64_t limit, int32_t dim, int32_t loc,
                                     int32_t ref) {
  for (int64_t i = 0; i < n; i++)
    if ((!mask || mask[i]) && (index[i] < 0 || index[i] >= limit))
      rt_end(c, "index %d of %lld", index[i], (long long)limit);
}

// Allocations nest: a scope releases what it took by the mark that it began
// with.
CK_EXPORT int64_t at_core_mark(at_core *c) { return rt_of(c)->used; }

// A bump allocator. Memory that is not semaphores is filled with a pattern, so
// that a kernel that reads it unwritten gives wrong results.
CK_EXPORT void *at_core_alloc(at_core *c, int32_t space, int64_t bytes,
                              int32_t loc) {
  rt_core *r = rt_of(c);
  char *p = r->stack + r->used;
  r->used += (int64_t)at_align_up((size_t)bytes, AT_CORE_ALLOC_ALIGN);
  r->most = AT_MAX(r->most, r->used);
  assert_true(r->used <= RT_STACK);
  memset(p, space == AT_CORE_SEM ? 0 : 0x55, (size_t)bytes);
  return p;
}

// loc is where the scope stands in the source; nothing is reported here.
CK_EXPORT void at_core_release(at_core *c, int64_t mark, int32_t loc) {
  assert_true(mark <= rt_of(c)->used);
  rt_of(c)->used = mark;
}

// Signals to other devices have no receiver in a test of one core.
CK_EXPORT void at_core_sem_signal(at_core *c, void *sem, int64_t amount,
                                  int32_t device, int32_t core_id,
                                  int32_t subcore, int32_t owner, int32_t loc) {
  assert_int_equal(device, AT_CORE_SELF);
  *(int32_t *)sem += (int32_t)amount;
}

// There is one core: a wait that is not satisfied now never will be.
CK_EXPORT void at_core_sem_wait(at_core *c, void *sem, int64_t amount,
                                int32_t loc) {
  if (*(int32_t *)sem < amount) rt_end(c, "waits for ever");
  *(int32_t *)sem -= (int32_t)amount;
}

CK_EXPORT void *at_core_sem_barrier(at_core *c, int32_t loc) {
  return &rt_of(c)->barrier;
}

CK_EXPORT void at_core_barrier(at_core *c, int32_t barrier, int32_t loc) {
  snprintf(rt_of(c)->log, sizeof rt_of(c)->log, "barrier %d", barrier);
}

// Of one core: nobody else adds meanwhile.
CK_EXPORT int32_t at_core_fetch_add(at_core *c, void *p, int32_t amount,
                                    int32_t core_id, int32_t loc) {
  int32_t old = *(int32_t *)p;
  *(int32_t *)p += amount;
  return old;
}

// Words count up from the seed, so that a test knows them.
CK_EXPORT void at_core_prng_seed(at_core *c, const int32_t *seeds, int64_t n) {
  rt_of(c)->next_random = n > 0 ? (uint32_t)seeds[0] : 0;
}

CK_EXPORT void at_core_prng_bits(at_core *c, uint32_t *out, int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = rt_of(c)->next_random++;
}

CK_EXPORT void at_core_trace(at_core *c, const char *text, int32_t begin) {
  snprintf(rt_of(c)->log, sizeof rt_of(c)->log, begin ? "begin %s" : "end",
           text);
}

CK_EXPORT void at_core_trace_value(at_core *c, const char *text,
                                   int64_t value) {
  snprintf(rt_of(c)->log, sizeof rt_of(c)->log, "%s = %lld", text,
           (long long)value);
}

CK_EXPORT void at_core_delay(at_core *c, int64_t cycles) {
  snprintf(rt_of(c)->log, sizeof rt_of(c)->log, "delay %lld",
           (long long)cycles);
}

// A kernel that relies on a multiple that it does not have is wrong.
CK_EXPORT void at_core_check_multiple(at_core *c, int32_t loc, int32_t value,
                                      int32_t multiple) {
  if (value % multiple) rt_end(c, "%d is no multiple of %d", value, multiple);
}

CK_EXPORT int32_t at_core_sem_read(at_core *c, void *sem, int32_t loc) {
  return *(int32_t *)sem;
}

// Element by element, so that strides of any kind are right.
// dim: the dimension from which on elements are copied. Calls itself once for
// each dimension.
static void rt_copy(const at_core_dma *d, int32_t dim, const char *from,
                    char *to) {
  if (dim == d->rank) {
    memcpy(to, from, (size_t)d->elem_bytes);
    return;
  }
  for (int64_t i = 0; i < d->size[dim]; i++)
    rt_copy(d, dim + 1, from + i * d->src_stride[dim],
            to + i * d->dst_stride[dim]);
}

// Copies at once: there is nothing that a wait would have to wait for.
CK_EXPORT void at_core_dma_start(at_core *c, const at_core_dma *d) {
  int64_t bytes = d->elem_bytes;
  for (int32_t i = 0; i < d->rank; i++) bytes *= d->size[i];
  rt_copy(d, 0, d->src, d->dst);
  // A DMA semaphore counts bytes.
  *(int32_t *)d->dst_sem += (int32_t)bytes;
}

// A row at a time; offsets are right in these tests.
CK_EXPORT void at_core_indirect_start(at_core *c, const at_core_indirect *x) {
  at_core_dma row = x->rows;
  row.size[0] = 1;
  for (int64_t i = 0; i < x->rows.size[0]; i++) {
    int32_t at;
    memcpy(&at, (const char *)x->offsets + i * x->offset_step, sizeof at);
    assert_in_range(at, 0, x->table_rows - 1);
    if (x->has_filter && at == x->filter) continue;
    row.src =
        (char *)x->rows.src + (x->scatter ? i : at) * x->rows.src_stride[0];
    row.dst =
        (char *)x->rows.dst + (x->scatter ? at : i) * x->rows.dst_stride[0];
    row.dst_sem = x->rows.dst_sem;
    at_core_dma_start(c, &row);
  }
}

CK_EXPORT void at_core_dma_wait(at_core *c, void *sem, int64_t bytes,
                                int32_t loc) {
  at_core_sem_wait(c, sem, bytes, loc);
}

// Where a kernel expects memory to be written before it goes on; only checkers
// use it.
CK_EXPORT void at_core_expect(at_core *c, const at_core_view *v, int32_t loc) {}

// n: arguments; kernels of these tests log at least one.
CK_EXPORT void at_core_log(at_core *c, const char *text,
                           const at_core_log_arg *args, int64_t n,
                           int32_t loc) {
  int32_t first;
  memcpy(&first, args[0].data, sizeof first);
  snprintf(rt_of(c)->log, sizeof rt_of(c)->log, "%s %d", text, first);
}

// An element of an operand as a double, rounded to bf16 on request.
// at: bytes from p. type: an at_dtype, a float or an integer.
static double rt_dot_value(const void *p, int64_t at, int32_t type,
                           bool round) {
  const char *x = (const char *)p + at;
  double v = at_is_float((at_dtype)type)
                 ? at_load_float((at_dtype)type, x)
                 : (double)at_load_int((at_dtype)type, x);
  if (!round) return v;
  uint16_t narrow;
  at_store_float(AT_BF16, &narrow, v);
  return at_load_float(AT_BF16, &narrow);
}

// The definition of a product: three loops and a sum in double.
CK_EXPORT void at_core_dot_run(at_core *c, const at_core_dot *d) {
  for (int64_t b = 0; b < d->batch; b++)
    for (int64_t i = 0; i < d->m; i++)
      for (int64_t j = 0; j < d->n; j++) {
        // Types of C are F32 and S32: others are not asked for by kernels under
        // test.
        char *to = (char *)d->c + b * d->c_batch + i * d->c_m + j * d->c_n;
        double sum = d->accumulate ? rt_dot_value(to, 0, d->c_type, false) : 0;
        for (int64_t k = 0; k < d->k; k++)
          sum += rt_dot_value(d->a, b * d->a_batch + i * d->a_m + k * d->a_k,
                              d->a_type, d->round_bf16) *
                 rt_dot_value(d->b, b * d->b_batch + k * d->b_k + j * d->b_n,
                              d->b_type, d->round_bf16);
        if (d->c_type == AT_F32)
          *(float *)to = (float)sum;
        else
          *(int32_t *)to = (int32_t)sum;
      }
}

// Products are done at once: there is nothing to wait for.
CK_EXPORT void at_core_dot_finish(at_core *c) {}

// The type after a mark of a short form ends where no dimension goes on.
// Letters and digits: "8x128xf32" up to the first other character.
static size_t rt_type_length(const char *p) {
  size_t n = 0;
  while ((p[n] >= '0' && p[n] <= '9') || (p[n] >= 'a' && p[n] <= 'z')) n++;
  return n;
}

// Writes out the short forms of the head of this file.
static void rt_add_short(at_strbuf *b, const char *text) {
  for (const char *p = text; *p; p++) {
    size_t n = strchr("!&$", *p) ? rt_type_length(p + 1) : 0;
    if (!n || p[1] < '0' || p[1] > '9') {
      at_strbuf_addc(b, *p == '\'' ? '"' : *p);
      continue;
    }
    if (*p == '!')
      at_strbuf_addf(b, "vector<%.*s>", (int)n, p + 1);
    else
      at_strbuf_addf(b, "memref<%.*s, #tpu.memory_space<%s>>", (int)n, p + 1,
                     *p == '&' ? "vmem" : "smem");
    p += n;
  }
}

// The list ends at the first argument without a name.
static uint32_t rt_num_args(const rt_kernel *k) {
  uint32_t n = 0;
  while (n < RT_MAX_ARGS && k->args[n].name) n++;
  return n;
}

// The whole module: a function of the arguments around the body, with the
// constants %c0 to %c9.
static void rt_text(const rt_kernel *k, at_strbuf *b) {
  // types: of the arguments, for function_type; raw: all of it with the short
  // forms.
  uint32_t n = rt_num_args(k);
  at_strbuf types = {0}, raw = {0}, grid = {0};
  if (k->bound)
    at_strbuf_addf(&grid,
                   "dimension_semantics = [#tpu.dimension_semantics<"
                   "arbitrary>], iteration_bounds = array<i64: %d>",
                   k->bound);
  else
    at_strbuf_addz(&grid, "dimension_semantics = []");
  for (uint32_t i = 0; i < n; i++)
    at_strbuf_addf(&types, "%s%c%s", i ? ", " : "", k->args[i].smem ? '$' : '&',
                   k->args[i].type);
  at_strbuf_addz(&raw, "'builtin.module'() ({\n'func.func'() ({\n^bb0(");
  if (k->bound) at_strbuf_addf(&raw, "%%step: i32%s", n ? ", " : "");
  for (uint32_t i = 0; i < n; i++)
    at_strbuf_addf(&raw, "%s%%%s: %c%s", i ? ", " : "", k->args[i].name,
                   k->args[i].smem ? '$' : '&', k->args[i].type);
  at_strbuf_addz(&raw, "):\n");
  for (int i = 0; i < 10; i++)
    at_strbuf_addf(
        &raw, "%%c%d = 'arith.constant'() {value = %d : index} : () -> index\n",
        i, i);
  at_strbuf_addf(
      &raw,
      "%s\n'func.return'() : () -> ()\n}) {%s, function_type = (%s%s) -> (), "
      "scalar_prefetch = 0 : i64, scratch_operands = 0 : i64, sym_name = 'k', "
      "tpu.core_type = #tpu.core_type<tc>} : () -> ()\n%s}) : () -> ()\n",
      k->body, at_strbuf_str(&grid).ptr, k->bound ? "i32, " : "", types.ptr,
      k->functions ? k->functions : "");
  rt_add_short(b, raw.ptr);
  ck_ok(at_strbuf_status(b));
  at_strbuf_free(&types);
  at_strbuf_free(&raw);
  at_strbuf_free(&grid);
}

// Bytes of the element that a type like 8x128xbf16 ends in.
// Floats and integers of four bytes are what is left: f32, i32.
static uint32_t rt_element_bytes(const char *type) {
  const char *t = strrchr(type, 'x');
  t = t ? t + 1 : type;
  return !strcmp(t, "bf16") || !strcmp(t, "f16") || !strcmp(t, "i16") ? 2
         : !strcmp(t, "i8") || !strcmp(t, "i1")                       ? 1
                                                                      : 4;
}

// Dense strides of a type, in bytes; returns the bytes of all of it.
// stride: room for AT_CORE_MAX_RANK. A scalar type, "f32", has rank 0 and the
// bytes of one element.
static int64_t rt_strides(const char *type, int64_t *stride) {
  int64_t dims[AT_CORE_MAX_RANK], rank = 0;
  for (char *end; *type >= '0' && *type <= '9'; type = end + 1)
    dims[rank++] = strtoll(type, &end, 10);
  int64_t bytes = rt_element_bytes(type);
  for (int64_t d = rank; d-- > 0; bytes *= dims[d]) stride[d] = bytes;
  return bytes;
}

at_status rt_compile(const rt_kernel *k, rt_mode mode, at_arena *a,
                     at_cg_output *out, at_mosaic_code **code) {
  at_strbuf text = {0};
  rt_text(k, &text);
  at_mosaic_call call = {.payload = {(const uint8_t *)text.ptr, text.len}};
  at_cg_target t = {.cpu_features = at_cpu_features(),
                    .threads = 1,
                    .opt_level = 2,
                    .verify = true,
                    .plain = mode == RT_PLAIN};
  at_mosaic_code_options o = {.check = mode == RT_CHECKED};
  at_mosaic_kernel *kernel;
  at_cg *cg = NULL;
  at_status st = at_mosaic_read(&call, a, &kernel);
  if (at_ok(st)) st = at_cg_create(&t, &cg);
  if (at_ok(st)) st = at_mosaic_code_add(cg, kernel, 0, &o, a, code);
  if (at_ok(st)) st = at_cg_finish(cg, a, out);
  at_cg_destroy(cg);
  at_strbuf_free(&text);
  return st;
}

rt_core *rt_run(const rt_kernel *k, rt_mode mode) {
  at_arena *a = at_arena_create();
  at_cg_output out;
  at_mosaic_code *code;
  at_status st = rt_compile(k, mode, a, &out, &code);
  if (st.err) fail_msg("%s\n%s", at_status_message(st), k->body);
  void *library = ck_link(&out);
  at_core_body_fn body = (at_core_body_fn)ck_symbol(library, &out, code->body);
  rt_core *c = calloc(1, sizeof *c);
  assert_non_null(c);
  const int32_t grid[] = {0};
  c->head = (at_core){.budget = 1000,
                      .device_id = 3,
                      .core_index = 4,
                      .subcore_index = 1,
                      .num_cores = 1,
                      .bounds = &k->bound};
  c->barrier = 5;
  c->head.temp = aligned_alloc(64, at_align_up(code->temp_bytes + 64, 64));
  c->stack = aligned_alloc(64, RT_STACK);
  assert_true(c->head.temp && c->stack);
  at_core_ref refs[RT_MAX_ARGS] = {{0}};
  for (uint32_t i = 0; i < rt_num_args(k); i++) {
    refs[i].base = k->args[i].data;
    rt_strides(k->args[i].type, refs[i].stride);
  }
  if (!setjmp(c->failed)) body(&c->head, grid, refs);
  free(c->head.temp);
  free(c->stack);
  dlclose(library);
  at_arena_destroy(a);
  return c;
}

void rt_each(const rt_kernel *k, void (*judge)(const rt_kernel *k)) {
  uint32_t n = rt_num_args(k);
  void *saved[RT_MAX_ARGS];
  int64_t bytes[RT_MAX_ARGS], strides[AT_CORE_MAX_RANK];
  for (uint32_t i = 0; i < n; i++) {
    bytes[i] = rt_strides(k->args[i].type, strides);
    saved[i] = malloc((size_t)bytes[i]);
    assert_non_null(saved[i]);
    memcpy(saved[i], k->args[i].data, (size_t)bytes[i]);
  }
  for (rt_mode mode = RT_FULL; mode < RT_MODES; mode++) {
    for (uint32_t i = 0; i < n; i++)
      memcpy(k->args[i].data, saved[i], (size_t)bytes[i]);
    rt_core *c = rt_run(k, mode);
    if (*c->why) fail_msg("mode %d: %s\n%s", mode, c->why, k->body);
    assert_int_equal(c->used, 0);
    free(c);
    judge(k);
  }
  for (uint32_t i = 0; i < n; i++) free(saved[i]);
}
