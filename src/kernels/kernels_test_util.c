#include "kernels/kernels_test_util.h"

void *tu_scratch(void *owner, size_t bytes) {
  tu_owner *o = owner;
  if (o->count == TU_MAX_BLOCKS || bytes > (size_t)4 << 30) return NULL;
  char *p = aligned_alloc(64, (bytes + TU_GUARD + 63) / 64 * 64);
  if (!p) return NULL;
  memset(p, 0xa5, bytes + TU_GUARD);
  o->block[o->count] = p;
  o->bytes[o->count++] = bytes;
  return p;
}

void tu_release(tu_owner *o) {
  for (int i = 0; i < o->count; i++) {
    for (int g = 0; g < TU_GUARD; g++)
      assert_int_equal((uint8_t)o->block[i][o->bytes[i] + (size_t)g], 0xa5);
    free(o->block[i]);
  }
  o->count = 0;
}

at_pool *tu_pool(uint32_t threads) {
  static at_pool *pools[3];
  if (!pools[threads]) {
    at_status s = at_pool_create(threads, &pools[threads]);
    assert_int_equal(at_code_take(s), AT_OK_CODE);
  }
  return pools[threads];
}

at_code tu_run_cmp(at_rt_kernel id, const void *params, uint32_t nbufs,
                   void *const *bufs, uint32_t threads, at_comparator_fn cmp) {
  tu_owner o = {.count = 0};
  at_par par = {tu_pool(threads), tu_scratch, &o};
  at_k_call c = {&par, params, bufs, nbufs, cmp};
  at_status s = at_k_of(id)->run(&c);
  if (!at_ok(s)) print_message("%s\n", at_status_message(s));
  tu_release(&o);
  return at_code_take(s);
}

at_code tu_run(at_rt_kernel id, const void *params, uint32_t nbufs,
               void *const *bufs, uint32_t threads) {
  return tu_run_cmp(id, params, nbufs, bufs, threads, NULL);
}

uint64_t tu_rand(uint64_t *s) {
  uint64_t z = (*s += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t tu_below(uint64_t *s, int64_t n) {
  return (int64_t)(tu_rand(s) % (uint64_t)n);
}

int64_t tu_lay_out(const tu_slot *s, int count, bool shuffle, uint64_t *seed) {
  int order[40];
  for (int i = 0; i < count; i++) order[i] = i;
  for (int i = count - 1; shuffle && i > 0; i--) {
    int x = (int)tu_below(seed, i + 1), t = order[i];
    order[i] = order[x], order[x] = t;
  }
  int64_t step = 1;
  for (int i = count - 1; i >= 0; i--) {
    *s[order[i]].stride = step;
    step *= s[order[i]].size;
  }
  return step;
}

double tu_unit(uint64_t *s) { return (double)(int64_t)tu_rand(s) * 0x1p-63; }

void *tu_fill(uint32_t t, int64_t n, uint64_t *s) {
  int64_t es = at_dtype_bytes((at_dtype)t);
  char *p = malloc((size_t)(n * es) + 1);
  for (int64_t i = 0; i < n; i++) {
    if (at_is_complex((at_dtype)t)) {
      for (int h = 0; h < 2; h++)
        at_k_store_f64(at_real_of((at_dtype)t), p + i * es + h * (es / 2),
                       tu_unit(s));
    } else {
      bool f = at_is_float((at_dtype)t);
      double v = f ? tu_unit(s) : (double)(tu_below(s, 17) - 8);
      at_k_store_f64(t, p + i * es, v);
    }
  }
  return p;
}
