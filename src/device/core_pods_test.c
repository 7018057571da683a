// Kernels on many cores and devices: what a core takes follows what its kernel
// uses, and the checks end at no number.
#include <stdio.h>

#include "device/core_test_util.h"

enum { kDevices = 256, kWords = 32 };

// refs: in, out (HBM), semaphores. Each device sends its input to the right, by
// way of memory that it allocates.
static void send_by_scope(at_core *c, const int32_t *g, const at_core_ref *r) {
  int64_t mark = at_core_mark(c);
  void *room = at_core_alloc(c, AT_CORE_VMEM, 4 * kWords, 0);
  at_core_dma in = copy_of(room, r[0].base, kWords, r[2].base);
  at_core_dma_start(c, &in);
  at_core_dma_wait(c, r[2].base, 4 * kWords, 0);
  at_core_dma d =
      copy_of(r[1].base, room, kWords, (char *)r[2].base + AT_CORE_SEM_BYTES);
  d.src_sem = (char *)r[2].base + 2 * AT_CORE_SEM_BYTES;
  d.device = (c->device_id + 1) % kDevices;
  at_core_dma_start(c, &d);
  at_core_dma_wait(c, d.src_sem, 4 * kWords, 0);
  at_core_dma_wait(c, d.dst_sem, 4 * kWords, 0);
  at_core_release(c, mark, 0);
}

// The record says how much the body allocates.
static kernel ring(float *in, float *out) {
  return (kernel){.record = {.num_refs = 3, .stack_bytes = 4 * kWords},
                  .sized = true,
                  .refs = {whole(AT_CORE_IN, AT_CORE_HBM, AT_F32, kWords),
                           whole(AT_CORE_OUT, AT_CORE_HBM, AT_F32, kWords),
                           whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 3)},
                  .body = send_by_scope,
                  .bufs = {in, out}};
}

// 256 devices: g_taken, what launches took, may grow by no more than 8 KiB a
// device.
static void memory_follows_the_kernel(void **state) {
  static float in[kDevices][kWords], out[kDevices][kWords];
  static kernel k[kDevices];
  static at_status st[kDevices];
  for (uint32_t checks = 0; checks < 64; checks += 63) {
    g_checks = checks;
    for (int i = 0; i < kDevices; i++) {
      in[i][0] = (float)i;
      out[i][0] = -1;
      k[i] = ring(in[i], out[i]);
    }
    run_devices(k, kDevices, st);
    for (int i = 0; i < kDevices; i++) {
      if (st[i].err) print_message("%s\n", at_status_message(st[i]));
      assert_int_equal(at_code_take(st[i]), 0);
      assert_int_equal((int)out[(i + 1) % kDevices][0], i);
    }
    assert_in_range(g_taken, kDevices * 4 * kWords, kDevices * 8192);
    give_all();
  }
}

// ---- Many cores
// refs: out (HBM), buffer (VMEM), semaphores. All cores but the last use `out`;
// the last does so when all, or all but one, have told it.
static int g_silent;  // core that does not tell; -1: none
static bool g_adds;   // they add, and the last reads; else read and write
static int g_last;    // number of the last core

static void use_and_tell(at_core *c, const int32_t *g, const at_core_ref *r) {
  at_core_view v = {.base = r[0].base,
                    .rank = 1,
                    .elem_bytes = 4,
                    .size = {kWords},
                    .stride = {4}};
  if (c->core_index == g_last) {
    at_core_sem_wait(c, r[2].base, g_silent < 0 ? g_last : g_last - 1, 0);
    at_core_access(c, &v, g_adds ? AT_CORE_LOAD : AT_CORE_STORE, 0);
    if (g_silent >= 0) at_core_sem_wait(c, r[2].base, 1, 0);
    return;
  }
  if (g_adds) {
    at_core_view own = v;
    own.base = r[1].base;
    at_core_access(c, &own, AT_CORE_STORE, 0);
    memset(r[1].base, 0, 4 * kWords);
    char *sem = (char *)r[2].base + AT_CORE_SEM_BYTES;
    at_core_dma d = copy_of(r[0].base, r[1].base, kWords, sem);
    d.add = AT_F32;
    at_core_dma_start(c, &d);
    at_core_dma_wait(c, sem, 4 * kWords, 0);
  } else {
    at_core_access(c, &v, AT_CORE_LOAD, 0);
  }
  if (c->core_index != g_silent)
    at_core_sem_signal(c, r[2].base, 1, AT_CORE_SELF, g_last, AT_CORE_SELF, 0,
                       0);
}

// A kernel on that many cores of one device; sets g_last.
static kernel crowd(int cores, float *memory) {
  g_last = cores - 1;
  kernel k = {.record = {.num_refs = 4,
                         .grid_rank = 1,
                         .grid = {cores},
                         .semantics = {AT_CORE_CORE_PARALLEL}},
              .refs = {whole(AT_CORE_OUT, AT_CORE_HBM, AT_F32, kWords),
                       whole(AT_CORE_SCRATCH, AT_CORE_VMEM, AT_F32, kWords),
                       whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 2),
                       whole(AT_CORE_IN, AT_CORE_HBM, AT_F32, kWords)},
              .body = use_and_tell,
              .bufs = {memory, memory}};
  k.refs[3].alias = 0;
  return k;
}

// A race with any one of those who came before, however many there are.
static void every_earlier_access_counts(void **state) {
  static const int cores[] = {2, 3, 4, 33, 66, 130, 300};
  static float memory[kWords];
  g_checks = AT_CHECK_RACES | AT_CHECK_UNINIT;
  for (int adds = 0; adds < 2; adds++)
    for (size_t i = 0; i < AT_LEN(cores); i++) {
      kernel k = crowd(cores[i], memory);
      g_adds = adds;
      g_silent = -1;
      runs(&k);
      int silent[] = {0, g_last / 2, g_last - 1};
      for (size_t s = 0; s < AT_LEN(silent); s++) {
        // Whichever of the two it is; or the copy is still under way.
        char first[96], second[96], third[96];
        g_silent = silent[s];
        snprintf(first, sizeof first, "which core %d %s without a signal",
                 g_silent, adds ? "wrote" : "read");
        snprintf(second, sizeof second, "race: core %d ", g_silent);
        snprintf(third, sizeof third, "which a copy of core %d still writes",
                 g_silent);
        at_status st = run(&k);
        const char *text = at_status_message(st);
        if (!strstr(text, first) && !strstr(text, second) &&
            !(adds && strstr(text, third)))
          fail_msg("%d cores: want \"%s\", have \"%s\"", cores[i], first, text);
        assert_int_equal(at_code_take(st), AT_FAILED_PRECONDITION);
      }
    }
}

// ---- Many copies on their way
// refs: memory (HBM, in and out), semaphores. Device 0 sends its words one by
// one and waits for none; device 1, which has received them all, or all but the
// last, writes over them.
enum { kCopies = 600 };
static bool g_sound;

static void send_and_be_overwritten(at_core *c, const int32_t *g,
                                    const at_core_ref *r) {
  char *sems = r[1].base, *words = r[0].base;
  int64_t half = 4 * kCopies;
  if (c->device_id) {
    at_core_dma_wait(c, sems, g_sound ? half : half - 4, 0);
    at_core_dma back =
        copy_of(words, words, kCopies, sems + 2 * AT_CORE_SEM_BYTES);
    back.device = 0;
    back.src_sem = sems + 3 * AT_CORE_SEM_BYTES;
    at_core_dma_start(c, &back);
    at_core_dma_wait(c, back.src_sem, half, 0);
    if (!g_sound) at_core_dma_wait(c, sems, 4, 0);
    return;
  }
  for (int i = 0; i < kCopies; i++) {
    at_core_dma d = copy_of(words + half + 4 * i, words + 4 * i, 1, sems);
    d.device = 1;
    d.src_sem = sems + AT_CORE_SEM_BYTES;
    at_core_dma_start(c, &d);
  }
  at_core_dma_wait(c, sems + 2 * AT_CORE_SEM_BYTES, half, 0);
  at_core_dma_wait(c, sems + AT_CORE_SEM_BYTES, half, 0);
}

// 600 copies that nobody waits for are all kept for the check.
static void no_copy_is_forgotten(void **state) {
  static float memory[2][2 * kCopies];
  kernel k[2];
  at_status st[2];
  g_checks = 63;
  for (int i = 0; i < 2; i++) {
    k[i] =
        (kernel){.record = {.num_refs = 3},
                 .refs = {whole(AT_CORE_OUT, AT_CORE_HBM, AT_F32, 2 * kCopies),
                          whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 4),
                          whole(AT_CORE_IN, AT_CORE_HBM, AT_F32, 2 * kCopies)},
                 .body = send_and_be_overwritten,
                 .bufs = {memory[i], memory[i]}};
    k[i].refs[2].alias = 0;
  }
  // The two copies that race start on two threads: where they start at the very
  // same time, each may miss the other, so the defect has several tries.
  bool ever = false;
  for (int turn = 0; turn < 16; turn++) {
    bool sound = ever || turn == 15;
    g_sound = sound;
    run_devices(k, 2, st);
    give_all();
    bool found = false;  // by whichever of the two comes second
    for (int i = 0; i < 2; i++) {
      const char *text = at_status_message(st[i]);
      found |= strstr(text, "race: a copy ") != NULL;
      if (sound && st[i].err) fail_msg("%s", text);
      at_status_free(st[i]);
    }
    if (sound) {
      assert_true(ever);
      assert_false(found);
      break;
    }
    ever = found;
  }
}

// ---- No memory
// Once all devices have begun, an allocation fails: the first, the second, ...
// until all have got through. Each failure is a status, and nobody waits for
// ever. Sanitizers own malloc: there is nothing to do there.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWN_MALLOC 0
#endif
#endif
#ifndef OWN_MALLOC
#define OWN_MALLOC 1
#endif

enum { kFew = 4 };
static _Atomic long g_countdown;  // 1: the next one fails, 0 and less: none

#if OWN_MALLOC
// glibc's own, behind the replacements below.
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
static bool refuse(void) {
  return atomic_load(&g_begun) == kFew && atomic_load(&g_countdown) > 0 &&
         atomic_fetch_sub(&g_countdown, 1) == 1;
}
void *calloc(size_t n, size_t k) {
  return refuse() ? NULL : __libc_calloc(n, k);
}
void *realloc(void *p, size_t n) {
  return refuse() ? NULL : __libc_realloc(p, n);
}
#endif

// refs as of send_by_scope. To the next of kFew, word by word.
static void send_words(at_core *c, const int32_t *g, const at_core_ref *r) {
  char *sems = r[2].base;
  for (int i = 0; i < kWords; i++) {
    at_core_dma d = copy_of((float *)r[1].base + i, (float *)r[0].base + i, 1,
                            sems + AT_CORE_SEM_BYTES);
    d.src_sem = sems;
    d.device = (c->device_id + 1) % kFew;
    at_core_dma_start(c, &d);
    at_core_dma_wait(c, d.src_sem, 4, 0);
    at_core_dma_wait(c, d.dst_sem, 4, 0);
  }
}

// Fails allocation number 1, 2, 3 and so on, until a run gets through.
static void checks_that_cannot_be_made_are_errors(void **state) {
  static float in[kFew][kWords], out[kFew][kWords];
  kernel k[kFew];
  at_status st[kFew];
  int failures = 0;
  g_checks = 63;
  for (long at = 1;; at++) {
    bool failed = false;
    for (int i = 0; i < kFew; i++) {
      k[i] = ring(in[i], out[i]);
      k[i].body = send_words;
    }
    atomic_store(&g_begun, 0);
    atomic_store(&g_countdown, at);
    run_devices(k, kFew, st);
    bool through = atomic_exchange(&g_countdown, 0) > 0;
    give_all();
    for (int i = 0; i < kFew; i++) {
      at_code code = at_code_take(st[i]);
      failed |= code == AT_RESOURCE_EXHAUSTED;
      assert_true(!code || code == AT_RESOURCE_EXHAUSTED ||
                  code == AT_CANCELLED);
    }
    assert_int_equal(failed, !through);
    if (through) break;
    failures++;
  }
  assert_true(failures > 20 || !OWN_MALLOC);
}

int main(void) {
  if (at_code_take(at_pool_create(2, &g_pool)) ||
      at_code_take(at_sched_create(3, 1 << 18, &g_sched)))
    return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_follows_the_kernel),
      cmocka_unit_test(every_earlier_access_counts),
      cmocka_unit_test(no_copy_is_forgotten),
      cmocka_unit_test(checks_that_cannot_be_made_are_errors)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  at_sched_destroy(g_sched);
  at_pool_destroy(g_pool);
  return failed;
}
