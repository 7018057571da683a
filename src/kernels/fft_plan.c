// Plans: factors, twiddles and chirps of a length. The process keeps them, as
// they take longer to make than most transforms, in a table of bounded size
// that only grows.
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "kernels/fft_internal.h"

// Four buffers, real and imaginary parts of two, of vectors of 64 bytes each.
size_t at_fft_work_bytes(const at_fft_plan *plan) {
  int64_t n = plan->conv ? plan->conv->n : plan->n;
  return (size_t)(n + 1) * 4 * 64;  // one more: unravelled lines
}

// In the order in which stages are tried.
static const int radices[] = {8, 4, 2, 3, 5, 7, 11, 13};

// Tests 2, 3, 5, 7, 11 and 13; 8 and 4 are no primes.
bool at_fft_smooth(int64_t n) {
  for (size_t i = 2; i < AT_LEN(radices); i++)
    while (n % radices[i] == 0) n /= radices[i];
  return n == 1;
}

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "fft: no memory for a plan");
}

// Where a plan goes: an arena, or scratch memory of the call.
typedef struct maker {
  const at_par *par;  // to transform chirps, and for scratch memory
  at_arena *arena;    // NULL: scratch
  bool dbl;
} maker;

// Memory for `count` times `each` bytes of the plan, aligned for vectors. NULL:
// none left.
static void *room_for(const maker *mk, int64_t count, int64_t each) {
  size_t bytes = at_mul((size_t)count, (size_t)each);
  return mk->arena ? at_arena_alloc(mk->arena, bytes, 64)
                   : at_par_scratch(mk->par, bytes);
}
static void *pairs(const maker *mk, int64_t count) {
  return room_for(mk, count, mk->dbl ? 16 : 8);
}

// table[i] = v in the precision of the plan.
static void put_real(void *table, int64_t i, bool dbl, double v) {
  if (dbl)
    ((double *)table)[i] = v;
  else
    ((float *)table)[i] = (float)v;
}
static void put(void *table, int64_t i, bool dbl, double re, double im) {
  put_real(table, 2 * i, dbl, re), put_real(table, 2 * i + 1, dbl, im);
}

// exp(-2 pi i e / n); e < n. Angles stay within an eighth of a turn, where sine
// and cosine are exact to the last place.
static void root(int64_t e, int64_t n, double w[2]) {
  int64_t octant = 8 * e / n;
  int64_t quarter = (octant + 1) / 2 % 4;
  double a =
      2 * M_PI * ((double)(4 * e - ((octant + 1) / 2) * n) / (4 * (double)n));
  double c = cos(a), s = sin(a);
  double re = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
  double im = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
  w[0] = re, w[1] = -im;
}

// ---- Short lines
// Appends the stage of radix r, with its twiddles and, if r is odd, the roots
// of unity. m: what is left of n behind it; s: what came before.
static at_status add_stage(const maker *mk, at_fft_plan *p, int r, int64_t m,
                           int64_t s) {
  void *tw = pairs(mk, m * (r - 1)), *roots = NULL;
  if (r % 2 && !(roots = pairs(mk, r))) return no_memory();
  if (!tw) return no_memory();
  double w[2];
  for (int64_t q = 0; q < m; q++)
    for (int j = 1; j < r; j++) {
      root(q * j, m * r, w);
      put(tw, q * (r - 1) + j - 1, mk->dbl, w[0], w[1]);
    }
  for (int k = 0; roots && k < r; k++) {
    root(k, r, w);
    put_real(roots, k, mk->dbl, w[0]), put_real(roots, r + k, mk->dbl, -w[1]);
  }
  AT_ASSERT(m * r * s == p->n && (size_t)p->count < AT_LEN(p->stage));
  p->stage[p->count++] = (at_fft_stage){r, m, s, tw, roots};
  return AT_OK;
}

// Factors n into stages; n has only factors up to 13.
static at_status plan_stages(const maker *mk, at_fft_plan *p) {
  int64_t left = p->n, s = 1;
  for (size_t i = 0; i < AT_LEN(radices); i++)
    while (left % radices[i] == 0) {
      int r = radices[i];
      // 16 is two fours: an eight and a two read and write as often and turn
      // less well.
      if (r == 8 && left % 16 == 0 && left % 32 != 0) r = 4;
      AT_TRY(add_stage(mk, p, r, left / r, s));
      left /= r, s *= r;
    }
  AT_ASSERT(left == 1 && s == p->n);
  return AT_OK;
}

// exp(-pi i k / n) for k <= n / 2.
static at_status plan_half(const maker *mk, at_fft_plan *p) {
  void *half = pairs(mk, p->n / 2 + 1);
  if (!half) return no_memory();
  for (int64_t k = 0; k <= p->n / 2; k++) {
    double w[2];
    root(k, 2 * p->n, w);
    put(half, k, mk->dbl, w[0], w[1]);
  }
  p->half = half;
  return AT_OK;
}

// out = exp(-pi i j^2 / n): j^2 mod 2n keeps the angle exact.
static void chirp_at(int64_t n, int64_t j, double out[2]) {
  uint64_t e =
      (uint64_t)((unsigned __int128)j * (uint64_t)j % (uint64_t)(2 * n));
  root((int64_t)e, 2 * n, out);
}

// The shortest convenient length of a convolution: 1, 3, 5, 9 or 15 times a
// power of two.
static int64_t convolution_length(int64_t n) {
  static const int64_t odd[] = {1, 3, 5, 9, 15};
  int64_t best = 0;
  for (size_t i = 0; i < AT_LEN(odd); i++) {
    int64_t c = odd[i];
    while (c < 2 * n - 1) c *= 2;
    if (!best || c < best) best = c;
  }
  AT_ASSERT(best >= 2 * n - 1 && best < 4 * n && at_fft_smooth(best));
  return best;
}

static at_status make(const maker *mk, int64_t n, at_fft_form form,
                      at_fft_plan **out);

// chirp[j] = exp(-pi i j^2 / n); its conjugate, wrapped and divided by the
// length of the convolution, will be transformed in place.
static at_status plan_chirp(const maker *mk, at_fft_plan *p, at_fft_form form) {
  int64_t c = convolution_length(p->n);
  at_fft_plan *conv;
  AT_TRY(make(mk, c, form, &conv));
  p->conv = conv;
  char *chirp = pairs(mk, p->n), *ft = pairs(mk, c);
  if (!chirp || !ft) return no_memory();
  memset(ft, 0, (size_t)c * (mk->dbl ? 16 : 8));
  for (int64_t j = 0; j < p->n; j++) {
    double w[2];
    chirp_at(p->n, j, w);
    put(chirp, j, mk->dbl, w[0], w[1]);
    put(ft, j, mk->dbl, w[0] / (double)c, -w[1] / (double)c);
    if (j) put(ft, c - j, mk->dbl, w[0] / (double)c, -w[1] / (double)c);
  }
  p->chirp = chirp, p->chirp_ft = ft;
  return AT_OK;
}

// ---- Long lines
// Cuts n as evenly as its factors allow into n1 and n2 and makes the turns
// between the two passes: a turn by k is one of TURNS fine ones times a coarse
// one.
static at_status plan_matrix(const maker *mk, at_fft_plan *p) {
  int64_t n = p->n, n1 = (int64_t)sqrt((double)n) + 1;
  while (n % n1) n1--;
  at_fft_plan *p1, *p2;
  AT_TRY(make(mk, n1, AT_FFT_SHORT, &p1));
  p2 = p1;
  if (n / n1 != n1) AT_TRY(make(mk, n / n1, AT_FFT_SHORT, &p2));
  p->p1 = p1, p->p2 = p2;
  AT_ASSERT(p1->n * p2->n == n);
  int64_t lanes = mk->dbl ? 8 : 16, groups = at_k_ceil_div(p2->n, lanes);
  int64_t fine = AT_FFT_TURNS, each = fine + at_k_ceil_div(n1, fine);
  char *turns = pairs(mk, groups * each * lanes);
  if (!turns) return no_memory();
  for (int64_t g = 0; g < groups; g++)
    for (int64_t k = 0; k < each; k++)
      for (int64_t l = 0; l < lanes; l++) {
        int64_t by = k < fine ? k : (k - fine) * fine;
        double w[2];
        root((g * lanes + l) * by % n, n, w);
        int64_t at = (g * each + k) * 2 * lanes + l;
        put_real(turns, at, mk->dbl, w[0]),
            put_real(turns, at + lanes, mk->dbl, w[1]);
      }
  p->turns = turns;
  return AT_OK;
}

// A plan of length n. Recursion ends after two steps: a convolution's length is
// smooth, and so are n1 and n2.
static at_status make(const maker *mk, int64_t n, at_fft_form form,
                      at_fft_plan **out) {
  at_fft_plan *p = room_for(mk, 1, sizeof *p);
  if (!p) return no_memory();
  *p = (at_fft_plan){.n = n};
  *out = p;
  AT_TRY(plan_half(mk, p));
  if (!at_fft_smooth(n)) return plan_chirp(mk, p, form);
  return form == AT_FFT_LONG ? plan_matrix(mk, p) : plan_stages(mk, p);
}

// ---- The chirp's own transform, once
// Transforms chirp_ft in place with the plan's own stages, on this thread: as a
// group of one line where the convolution is short, else as a matrix.
static at_status transform_chirp(const maker *mk, const at_fft_plan *p) {
  const at_fft_plan *conv = p->conv;
  const at_fft_kernels *k = &at_fft_kernel[mk->dbl][at_k_has(AT_CPU_AVX512)];
  int64_t c = conv->n, n1 = conv->p1 ? conv->p1->n : c, n2 = c / n1;
  at_fft_side ft = {(char *)(uintptr_t)p->chirp_ft, false, 0, 1, n2};
  at_fft_pass a = {.plan = conv->p1 ? conv->p1 : conv,
                   .src = ft,
                   .dst = ft,
                   .lines = n2,
                   .inner = n2,
                   .in_count = n1,
                   .out_count = n1,
                   .scale = 1,
                   .turn = conv->p1 ? conv : NULL};
  void *work = at_par_scratch(mk->par, at_fft_work_bytes(a.plan));
  if (!work) return no_memory();
  if (!conv->p1) {
    k->group(&a, 0, work);
    return AT_OK;
  }
  char *temp = at_par_scratch(mk->par, at_mul((size_t)c, mk->dbl ? 16 : 8));
  void *work2 = at_par_scratch(mk->par, at_fft_work_bytes(conv->p2));
  if (!temp || !work2) return no_memory();
  a.dst.p = temp;
  for (int64_t l = 0; l < n2; l += k->lanes) k->group(&a, l, work);
  at_fft_pass b = {.plan = conv->p2,
                   .src = {temp, false, 0, n2, 1},
                   .dst = {ft.p, false, 0, 1, n1},
                   .lines = n1,
                   .inner = n1,
                   .in_count = n2,
                   .out_count = n2,
                   .scale = 1};
  for (int64_t l = 0; l < n1; l += k->lanes) k->group(&b, l, work2);
  return AT_OK;
}

// A plan that is ready for use: make, then the chirp.
static at_status make_whole(const maker *mk, int64_t n, at_fft_form form,
                            at_fft_plan **out) {
  AT_TRY(make(mk, n, form, out));
  return (*out)->conv ? transform_chirp(mk, *out) : AT_OK;
}

// ---- What the process keeps
enum { SLOTS = 1024, MOST_PROBES = 16 };
static const size_t most_bytes = (size_t)256 << 20;

typedef struct slot {
  _Atomic(const at_fft_plan *) plan;
  uint64_t key;  // written before `plan`
} slot;
static slot g_slots[SLOTS];
static pthread_mutex_t g_adding = PTHREAD_MUTEX_INITIALIZER;
static at_arena *g_arena;  // of all plans; made and filled under the lock

// The plan under `key`, or NULL and the free slot for it in *place (-1: none
// within MOST_PROBES). Without a lock: a plan is published after its key and
// never removed.
static const at_fft_plan *find(uint64_t key, int64_t *place) {
  uint64_t at = key * 0x9e3779b97f4a7c15u >> 40;
  for (int64_t i = 0; i < MOST_PROBES; i++) {
    slot *s = &g_slots[(at + (uint64_t)i) % SLOTS];
    const at_fft_plan *p = atomic_load_explicit(&s->plan, memory_order_acquire);
    if (p && s->key != key) continue;
    *place = (int64_t)((at + (uint64_t)i) % SLOTS);
    return p;
  }
  *place = -1;
  return NULL;
}

// Makes the plan and adds it; NULL without an error where there is no room.
// Under the lock.
static at_status add(const at_par *par, uint64_t key, int64_t n, bool dbl,
                     at_fft_form form, const at_fft_plan **out) {
  enum {
    MOST_BYTES_EACH = 256
  };  // of an element: a convolution four times as long
  int64_t place;
  *out = find(key, &place);
  if (*out || place < 0) return AT_OK;
  if (!g_arena && !(g_arena = at_arena_create_limited(most_bytes)))
    return AT_OK;
  size_t left = most_bytes - AT_MIN(at_arena_used_bytes(g_arena), most_bytes);
  if (at_mul((size_t)n, MOST_BYTES_EACH) > left) return AT_OK;
  at_fft_plan *p;
  maker mk = {par, g_arena, dbl};
  AT_TRY(make_whole(&mk, n, form, &p));
  g_slots[place].key = key;
  atomic_store_explicit(&g_slots[place].plan, p, memory_order_release);
  *out = p;
  return AT_OK;
}

// See fft_internal.h. Two threads that need the same new plan make it one after
// the other; the second finds it.
at_status at_fft_plan_get(const at_par *par, int64_t n, bool dbl,
                          at_fft_form form, const at_fft_plan **out) {
  uint64_t key = (uint64_t)n * 4 + (uint64_t)dbl * 2 + (form == AT_FFT_LONG);
  int64_t place;
  if ((*out = find(key, &place))) return AT_OK;
  pthread_mutex_lock(&g_adding);
  at_status st = add(par, key, n, dbl, form, out);
  pthread_mutex_unlock(&g_adding);
  if (!at_ok(st) || *out) return st;
  at_fft_plan *p;
  maker mk = {par, NULL, dbl};
  AT_TRY(make_whole(&mk, n, form, &p));
  *out = p;
  return AT_OK;
}
