// The checks on virtual cores: each body has one defect, which is found at its
// place, and a sound twin, which is clean.
#include "device/core_test_util.h"

// Announces an access to the first n words, as generated code does.
static void touch_ref(at_core *c, const at_core_ref *r, int64_t n,
                      int32_t kind) {
  at_core_view v = {
      .base = r->base, .rank = 1, .elem_bytes = 4, .size = {n}, .stride = {4}};
  at_core_access(c, &v, kind, 0);
}

// Which twin of a body runs.
static bool g_sound;

// refs: in (HBM), out (HBM), buffer (VMEM), semaphore.
static void forgets_to_wait(at_core *c, const int32_t *g,
                            const at_core_ref *r) {
  at_core_dma in = copy_of(r[2].base, r[0].base, 32, r[3].base);
  at_core_dma_start(c, &in);
  if (g_sound) at_core_dma_wait(c, r[3].base, 128, 0);
  touch_ref(c, &r[2], 8, AT_CORE_LOAD);
  if (!g_sound) at_core_dma_wait(c, r[3].base, 128, 0);
  at_core_dma out = copy_of(r[1].base, r[2].base, 32, r[3].base);
  at_core_dma_start(c, &out);
  at_core_dma_wait(c, r[3].base, 128, 0);
}

// Stores to the buffer while a copy still reads it; sound: after its wait.
static void overwrites_a_source(at_core *c, const int32_t *g,
                                const at_core_ref *r) {
  touch_ref(c, &r[2], 32, AT_CORE_STORE);
  at_core_dma out = copy_of(r[1].base, r[2].base, 32, r[3].base);
  at_core_dma_start(c, &out);
  if (g_sound) at_core_dma_wait(c, r[3].base, 128, 0);
  touch_ref(c, &r[2], 1, AT_CORE_STORE);
  if (!g_sound) at_core_dma_wait(c, r[3].base, 128, 0);
}

// Two copies to one place without a wait between them.
static void copies_into_one_place(at_core *c, const int32_t *g,
                                  const at_core_ref *r) {
  at_core_dma a = copy_of(r[1].base, r[0].base, 32, r[3].base);
  at_core_dma_start(c, &a);
  if (g_sound) at_core_dma_wait(c, r[3].base, 128, 0);
  at_core_dma_start(c, &a);
  at_core_dma_wait(c, r[3].base, 128, 0);
  if (!g_sound) at_core_dma_wait(c, r[3].base, 128, 0);
}

// Loads scratch that nothing has been stored to.
static void reads_scratch_first(at_core *c, const int32_t *g,
                                const at_core_ref *r) {
  if (g_sound) touch_ref(c, &r[2], 32, AT_CORE_STORE);
  touch_ref(c, &r[2], 32, AT_CORE_LOAD);
  touch_ref(c, &r[1], 32, AT_CORE_STORE);
}

// The second scope gets the memory of the first, whose values are gone.
static void reads_an_allocation(at_core *c, const int32_t *g,
                                const at_core_ref *r) {
  touch_ref(c, &r[1], 32, AT_CORE_STORE);
  for (int turn = 0; turn < 2; turn++) {
    int64_t mark = at_core_mark(c);
    at_core_ref a = {.base = at_core_alloc(c, AT_CORE_VMEM, 128, 0)};
    if (g_sound || !turn) touch_ref(c, &a, 32, AT_CORE_STORE);
    touch_ref(c, &a, 32, AT_CORE_LOAD);
    at_core_release(c, mark, 0);
  }
}

// One signal is left when the kernel ends.
static void signals_twice(at_core *c, const int32_t *g, const at_core_ref *r) {
  touch_ref(c, &r[1], 32, AT_CORE_STORE);
  at_core_sem_signal(c, r[3].base, g_sound ? 1 : 2, AT_CORE_SELF, AT_CORE_SELF,
                     AT_CORE_SELF, 0, 0);
  at_core_sem_wait(c, r[3].base, 1, 0);
}

// The same for a semaphore that the kernel allocated.
static void leaves_a_scoped_signal(at_core *c, const int32_t *g,
                                   const at_core_ref *r) {
  touch_ref(c, &r[1], 32, AT_CORE_STORE);
  int64_t mark = at_core_mark(c);
  void *s = at_core_alloc(c, AT_CORE_SEM, AT_CORE_SEM_BYTES, 0);
  at_core_sem_signal(c, s, 1, AT_CORE_SELF, AT_CORE_SELF, AT_CORE_SELF, 0, 0);
  if (g_sound) at_core_sem_wait(c, s, 1, 0);
  at_core_release(c, mark, 0);
}

// The kernel ends with a copy on its way.
static void never_waits(at_core *c, const int32_t *g, const at_core_ref *r) {
  at_core_dma a = copy_of(r[1].base, r[0].base, 32, r[3].base);
  at_core_dma_start(c, &a);
  if (g_sound) at_core_dma_wait(c, r[3].base, 128, 0);
}

// Half of the output stays undefined.
static void writes_half(at_core *c, const int32_t *g, const at_core_ref *r) {
  touch_ref(c, &r[1], g_sound ? 32 : 16, AT_CORE_STORE);
}

// The undefined word is found through the copy.
static void copies_half(at_core *c, const int32_t *g, const at_core_ref *r) {
  touch_ref(c, &r[2], g_sound ? 32 : 31, AT_CORE_STORE);
  at_core_dma out = copy_of(r[1].base, r[2].base, 32, r[3].base);
  at_core_dma_start(c, &out);
  at_core_dma_wait(c, r[3].base, 128, 0);
}

// The last word is stored where the mask's last element is set. What follows
// the mask is not of it.
static void packs_too_few(at_core *c, const int32_t *g, const at_core_ref *r) {
  uint8_t mask[33];
  memset(mask, 1, sizeof mask);
  if (!g_sound) mask[5] = 0;
  at_core_view v = {.base = r[1].base,
                    .rank = 1,
                    .elem_bytes = 4,
                    .size = {1},
                    .stride = {4}};
  at_core_access_packed(c, &v, mask, 32, AT_CORE_STORE, 0);
}

// The second half: its copy is not started, and the wait for it takes the bytes
// of the first.
static void waits_for_another(at_core *c, const int32_t *g,
                              const at_core_ref *r) {
  at_core_view half = {.base = (char *)r[1].base + 64,
                       .rank = 1,
                       .elem_bytes = 4,
                       .size = {16},
                       .stride = {4}};
  at_core_dma a = copy_of(r[1].base, r[0].base, 16, r[3].base);
  at_core_dma_start(c, &a);
  if (g_sound) {
    at_core_dma_wait(c, r[3].base, 64, 0);
    a = copy_of(half.base, (char *)r[0].base + 64, 16, r[3].base);
    at_core_dma_start(c, &a);
  }
  at_core_expect(c, &half, 0);
  at_core_dma_wait(c, r[3].base, 64, 0);
}

// Interleaved columns do not meet.
static void copies_columns(at_core *c, const int32_t *g, const at_core_ref *r) {
  at_core_dma a = copy_of(r[1].base, r[0].base, 4, r[3].base);
  a.rank = 2;
  a.size[0] = 4, a.size[1] = 4;
  a.src_stride[0] = a.dst_stride[0] = 32;
  a.src_stride[1] = a.dst_stride[1] = 4;
  at_core_dma_start(c, &a);
  a.src = (char *)r[0].base + 16;
  a.dst = (char *)r[1].base + (g_sound ? 16 : 12);
  at_core_dma_start(c, &a);
  at_core_dma_wait(c, r[3].base, 128, 0);
}

static const struct {
  at_core_body_fn body;
  const char *text;
  // What the message must say of each.
} g_defects[] = {
    {forgets_to_wait, "race: a load from memory that a copy still writes"},
    {overwrites_a_source, "race: a store to memory that a copy still reads"},
    {copies_into_one_place, "race: a copy to memory that a copy still writes"},
    {reads_scratch_first,
     "read of uninitialised memory: scratch 0 (argument 2), element (0)"},
    {reads_an_allocation, "read of uninitialised memory: an allocation"},
    {signals_twice,
     "semaphore 0 of scratch 1 (argument 3) is 1 when the kernel ends"},
    {leaves_a_scoped_signal, "is 1 where its scope ends"},
    {never_waits, "this copy is never waited for"},
    {writes_half, "output 0 (argument 1), element (16) was never written"},
    {copies_half, "output 0 (argument 1), element (31) was never written"},
    {packs_too_few, "output 0 (argument 1), element (31) was never written"},
    {waits_for_another, "the copy that this wait is for was never started"},
    {copies_columns, "race: a copy to memory that a copy still writes"}};

// With all checks on. The message must name the line, unless nothing was
// executed that has one.
static void defects_are_found(void **state) {
  float in[32] = {0}, out[32];
  g_checks = 63;
  for (size_t i = 0; i < AT_LEN(g_defects); i++) {
    kernel k = {.record = {.num_refs = 4},
                .refs = {whole(AT_CORE_IN, AT_CORE_HBM, AT_F32, 32),
                         whole(AT_CORE_OUT, AT_CORE_HBM, AT_F32, 32),
                         whole(AT_CORE_SCRATCH, AT_CORE_VMEM, AT_F32, 32),
                         whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 1)},
                .body = g_defects[i].body,
                .bufs = {in, out}};
    g_sound = false;
    at_status st = run(&k);
    if (!strstr(at_status_message(st), g_defects[i].text))
      fail_msg("defect %zu: want \"%s\", got \"%s\"", i, g_defects[i].text,
               at_status_message(st));
    bool line = strstr(at_status_message(st), "kern.py:7") ||
                strstr(at_status_message(st), "never written");
    assert_true(line);
    at_status_free(st);
    g_sound = true;
    runs(&k);
  }
  g_checks = 0;
}

// ---- Windows
// Blocks 0 0 1 1, or 0 1 0 1 where each is left and revisited.
static void to_and_fro(at_core *c, const int32_t *g, const at_core_ref *r,
                       int32_t *o) {
  o[0] = g_sound ? g[0] / 2 : g[0] % 2;
}

// Reads the block but in its first visit.
static void add_to_output(at_core *c, const int32_t *g, const at_core_ref *r) {
  bool first = g_sound ? g[0] % 2 == 0 : g[0] < 2;
  if (!first) touch_ref(c, &r[0], 8, AT_CORE_LOAD);
  touch_ref(c, &r[0], 8, AT_CORE_STORE);
}

// Writes the block without reading it.
static void fills_output(at_core *c, const int32_t *g, const at_core_ref *r) {
  touch_ref(c, &r[0], 8, AT_CORE_STORE);
}

// Both ways to lose the first visit: its values are read, or stored over.
static void outputs_are_revisited_at_once(void **state) {
  float out[16];
  kernel k = {.record = {.num_refs = 1, .grid_rank = 1, .grid = {4}},
              .refs = {whole(AT_CORE_OUT, AT_CORE_VMEM, AT_F32, 16)},
              .index = {to_and_fro},
              .body = add_to_output,
              .bufs = {out}};
  k.refs[0].window = AT_CORE_BLOCKED;
  k.refs[0].block[0] = 8;
  g_checks = AT_CHECK_UNINIT;
  g_sound = false;
  fails(&k, AT_FAILED_PRECONDITION, "revisited on consecutive steps only");
  g_sound = true;
  runs(&k);
  // What is lost was never read.
  k.body = fills_output;
  runs(&k);
  g_sound = false;
  fails(&k, AT_FAILED_PRECONDITION, "revisited too late");
  g_checks = 0;
}

// Step i has block i.
static void straight_on(at_core *c, const int32_t *g, const at_core_ref *r,
                        int32_t *o) {
  o[0] = g[0];
}

// refs: in, out, both in blocks of two; the last block of `in` has one element.
static void adds_integers(at_core *c, const int32_t *g, const at_core_ref *r) {
  const int32_t *in = r[0].base;
  int32_t *out = r[1].base;
  touch_ref(c, &r[0], 2, AT_CORE_LOAD);
  touch_ref(c, &r[1], 2, AT_CORE_STORE);
  out[0] = in[0] + (g_sound && g[0] == 1 ? 0 : in[1]);
  out[1] = 1;
}

// An integer has no poison value: a second run with other padding shows that
// the result depends on it.
static void padding_of_integers_is_found(void **state) {
  int32_t in[3] = {1, 2, 3}, out[4];
  kernel k = {.record = {.num_refs = 2, .grid_rank = 1, .grid = {2}},
              .refs = {whole(AT_CORE_IN, AT_CORE_VMEM, AT_S32, 3),
                       whole(AT_CORE_OUT, AT_CORE_VMEM, AT_S32, 4)},
              .index = {straight_on, straight_on},
              .body = adds_integers,
              .bufs = {in, out}};
  for (int i = 0; i < 2; i++)
    k.refs[i].window = AT_CORE_BLOCKED, k.refs[i].block[0] = 2;
  g_checks = AT_CHECK_UNINIT;
  g_sound = false;
  fails(&k, AT_FAILED_PRECONDITION,
        "element (2) of output 0 (argument 1) follows from");
  g_sound = true;
  runs(&k);
  assert_int_equal(out[0], 3);
  assert_int_equal(out[2], 3);
  g_checks = 0;
}

// refs: in, out. Adds to its input, and may read that before it moves.
static void adds_to_input(at_core *c, const int32_t *g, const at_core_ref *r) {
  touch_ref(c, &r[0], 8, AT_CORE_LOAD);
  touch_ref(c, &r[0], 8, AT_CORE_STORE);
  touch_ref(c, &r[0], g_sound ? 8 : 7, AT_CORE_LOAD);
  touch_ref(c, &r[1], 8, AT_CORE_STORE);
}

// A store to an input's block is lost when the window moves; not so where the
// block is an output's too.
static void stores_to_inputs_are_read(void **state) {
  float in[16] = {0}, out[16];
  kernel k = {.record = {.num_refs = 2, .grid_rank = 1, .grid = {2}},
              .refs = {whole(AT_CORE_IN, AT_CORE_VMEM, AT_F32, 16),
                       whole(AT_CORE_OUT, AT_CORE_VMEM, AT_F32, 16)},
              .index = {straight_on, straight_on},
              .body = adds_to_input,
              .bufs = {in, out}};
  for (int i = 0; i < 2; i++)
    k.refs[i].window = AT_CORE_BLOCKED, k.refs[i].block[0] = 8;
  g_checks = AT_CHECK_UNINIT;
  g_sound = false;
  fails(&k, AT_FAILED_PRECONDITION,
        "input 0 (argument 0), element (7) was written");
  g_sound = true;
  runs(&k);
  // Where an output shares its memory, the value is not lost.
  g_sound = false;
  k.refs[0].alias = 0;
  runs(&k);
  // Without windows the whole operand is a copy.
  for (int i = 0; i < 2; i++)
    k.refs[i] = whole(i ? AT_CORE_OUT : AT_CORE_IN, AT_CORE_VMEM, AT_F32, 8);
  k.record.grid[0] = 1;
  fails(&k, AT_FAILED_PRECONDITION, "nobody read it before the kernel ended");
  k.refs[0].space = AT_CORE_HBM;
  runs(&k);
  g_checks = 0;
}

// ---- Cores
// refs: out (HBM), semaphore. Core 0 writes, core 1 reads.
static void hands_over(at_core *c, const int32_t *g, const at_core_ref *r) {
  at_core_ref half = {.base = r[0].base};
  if (c->core_index) {
    at_core_sem_wait(c, r[1].base, 1, 0);
    touch_ref(c, &half, 4, AT_CORE_LOAD);
  } else {
    if (g_sound) touch_ref(c, &half, 4, AT_CORE_STORE);
    at_core_sem_signal(c, r[1].base, 1, AT_CORE_SELF, 1, AT_CORE_SELF, 0, 0);
    if (!g_sound) touch_ref(c, &half, 4, AT_CORE_STORE);
    at_core_sem_wait(c, r[1].base, 1, 0);
    return;
  }
  at_core_sem_signal(c, r[1].base, 1, AT_CORE_SELF, 0, AT_CORE_SELF, 0, 0);
}

// When core 0 tells core 1, which then touches what the copy moves.
typedef enum { AFTER_WAIT, BEFORE_WAIT, WAITS_FOR_THE_OTHER } order;
static order g_order;
static bool g_of_source;  // core 1 stores to what the copy reads

static void tell(at_core *c, const at_core_ref *sem, int32_t core) {
  at_core_sem_signal(c, sem->base, 1, AT_CORE_SELF, core, AT_CORE_SELF, 0, 0);
}

// refs: two arrays (HBM), two semaphores. A copy from the first to the second
// is over where the core that began it has waited, and only a signal from
// behind that hands either array over.
static void copies_over(at_core *c, const int32_t *g, const at_core_ref *r) {
  if (c->core_index) {
    at_core_sem_wait(c, r[2].base, 1, 0);
    touch_ref(c, &r[g_of_source ? 0 : 1], 4,
              g_of_source ? AT_CORE_STORE : AT_CORE_LOAD);
    if (g_order == WAITS_FOR_THE_OTHER) tell(c, &r[2], 0);
    return;
  }
  at_core_dma a = copy_of(r[1].base, r[0].base, 4, r[3].base);
  at_core_dma_start(c, &a);
  if (g_order != AFTER_WAIT) tell(c, &r[2], 1);
  if (g_order == WAITS_FOR_THE_OTHER) at_core_sem_wait(c, r[2].base, 1, 0);
  at_core_dma_wait(c, r[3].base, 16, 0);
  if (g_order == AFTER_WAIT) tell(c, &r[2], 1);
}

// Whether the copy was waited for when the other core comes, or not yet, its
// end is unknown to who heard of its start.
static void copies_are_handed_over(void **state) {
  int32_t first[4] = {0}, second[4];
  kernel k = {.record = {.num_refs = 4,
                         .grid_rank = 1,
                         .grid = {2},
                         .semantics = {AT_CORE_CORE_PARALLEL}},
              .refs = {whole(AT_CORE_OUT, AT_CORE_HBM, AT_S32, 4),
                       whole(AT_CORE_OUT, AT_CORE_HBM, AT_S32, 4),
                       whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 1),
                       whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 1)},
              .body = copies_over,
              .bufs = {first, second}};
  g_checks = AT_CHECK_RACES;
  for (int i = 0; i < 20; i++) {
    g_of_source = i % 2;
    g_order = BEFORE_WAIT;
    fails(&k, AT_FAILED_PRECONDITION, "race: core 1");
    g_order = WAITS_FOR_THE_OTHER;
    fails(&k, AT_FAILED_PRECONDITION,
          g_of_source ? "which a copy of core 0 still reads"
                      : "which a copy of core 0 still writes");
    g_order = AFTER_WAIT;
    runs(&k);
  }
  g_checks = 0;
}

// The store races with the other core's load only if it comes behind the
// signal.
static void cores_must_signal(void **state) {
  int32_t out[4];
  kernel k = {.record = {.num_refs = 2,
                         .grid_rank = 1,
                         .grid = {2},
                         .semantics = {AT_CORE_CORE_PARALLEL}},
              .refs = {whole(AT_CORE_OUT, AT_CORE_HBM, AT_S32, 4),
                       whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 1)},
              .body = hands_over,
              .bufs = {out}};
  g_checks = AT_CHECK_RACES;
  g_sound = false;
  fails(&k, AT_FAILED_PRECONDITION, "without a signal between them");
  g_sound = true;
  runs(&k);
  g_checks = 0;
}

// ---- Steps along a parallel dimension, of one core
static void touch_words(at_core *c, void *base, int64_t first, int32_t kind) {
  at_core_ref part = {.base = (float *)base + first};
  touch_ref(c, &part, 8, kind);
}

// Scratch that step 0 fills and the others read.
static void leaves_a_sum(at_core *c, const int32_t *g, const at_core_ref *r) {
  if (g_sound || !g[0]) touch_ref(c, &r[2], 32, AT_CORE_STORE);
  touch_ref(c, &r[2], 32, AT_CORE_LOAD);
  touch_words(c, r[1].base, 8 * g[0], AT_CORE_STORE);
}

// Part of what it reads was left, and a result may not follow from that part.
static void leaves_a_part(at_core *c, const int32_t *g, const at_core_ref *r) {
  float *s = r[2].base, *out = r[1].base;
  touch_words(c, s, 8 * g[0], AT_CORE_STORE);
  for (int i = 0; i < 8; i++) s[8 * g[0] + i] = 1;
  touch_ref(c, &r[2], 32, AT_CORE_LOAD);
  touch_words(c, out, 8 * g[0], AT_CORE_STORE);
  for (int i = 0; i < 8; i++) out[8 * g[0] + i] = s[g_sound ? 8 * g[0] : 0];
}

// All steps write the same words of an HBM output.
static void updates_one_place(at_core *c, const int32_t *g,
                              const at_core_ref *r) {
  touch_words(c, r[1].base, g_sound ? 8 * g[0] : 0, AT_CORE_STORE);
  if (g_sound || g[0] < 3) return;
  for (int i = 1; i < 4; i++) touch_words(c, r[1].base, 8 * i, AT_CORE_STORE);
}

// Even steps signal, odd ones wait.
static void leaves_a_signal(at_core *c, const int32_t *g,
                            const at_core_ref *r) {
  touch_words(c, r[1].base, 8 * g[0], AT_CORE_STORE);
  if (g_sound || g[0] % 2 == 0)
    at_core_sem_signal(c, r[3].base, 1, AT_CORE_SELF, AT_CORE_SELF,
                       AT_CORE_SELF, 0, 0);
  if (g_sound || g[0] % 2) at_core_sem_wait(c, r[3].base, 1, 0);
}

// The last index has the block of the one before.
static void clamp(at_core *c, const int32_t *g, const at_core_ref *r,
                  int32_t *o) {
  o[0] = g_sound ? g[0] : AT_MIN(g[0], 2);
}

// The last two indices have one block.
static void parallel_steps_have_blocks_of_their_own(void **state) {
  float out[32];
  kernel k = {.record = {.num_refs = 1,
                         .grid_rank = 1,
                         .grid = {4},
                         .semantics = {AT_CORE_PARALLEL}},
              .refs = {windowed(AT_CORE_OUT, 4, 8, 1, 8)},
              .index = {clamp},
              .body = fills_output,
              .bufs = {out}};
  g_checks = AT_CHECK_RACES;
  g_sound = true;
  runs(&k);
  g_sound = false;
  fails(&k, AT_FAILED_PRECONDITION,
        "race: the window of output 0 (argument 0) stays where it is when "
        "another index begins");
  k.record.semantics[0] = AT_CORE_ARBITRARY;
  runs(&k);
}

// Each case fails with races alone or with all checks, and is clean where the
// dimension is not declared parallel.
static void parallel_steps_leave_nothing(void **state) {
  static const struct {
    at_core_body_fn body;
    const char *text;
  } cases[] = {{leaves_a_sum,
                "race: a step reads scratch 0 (argument 2), element (0), "
                "which a step of another index left there"},
               {leaves_a_part, "follows from undefined values"},
               {updates_one_place,
                "race: a step writes output 0 (argument 1), element "
                "(0), which a step of another index wrote"},
               {leaves_a_signal,
                "race: semaphore 0 of scratch 1 (argument 3) is 1 when "
                "another index begins"}};
  float in[32] = {0}, out[32];
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    kernel k = {.record = {.num_refs = 4,
                           .grid_rank = 1,
                           .grid = {4},
                           .semantics = {AT_CORE_PARALLEL}},
                .refs = {whole(AT_CORE_IN, AT_CORE_HBM, AT_F32, 32),
                         whole(AT_CORE_OUT, AT_CORE_HBM, AT_F32, 32),
                         whole(AT_CORE_SCRATCH, AT_CORE_VMEM, AT_F32, 32),
                         whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 1)},
                .body = cases[i].body,
                .bufs = {in, out}};
    for (int all = 0; all < 2; all++) {
      g_checks = all ? 63 : AT_CHECK_RACES;
      g_sound = true;
      runs(&k);
      g_sound = false;
      bool values = cases[i].body == leaves_a_part;  // only a second run tells
      if (values && !all)
        runs(&k);
      else
        fails(&k, AT_FAILED_PRECONDITION, cases[i].text);
    }
    // Where the steps have an order they may.
    k.record.semantics[0] = AT_CORE_ARBITRARY;
    runs(&k);
  }
}

int main(void) {
  if (at_code_take(at_pool_create(2, &g_pool)) ||
      at_code_take(at_sched_create(3, 1 << 18, &g_sched)))
    return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defects_are_found),
      cmocka_unit_test(outputs_are_revisited_at_once),
      cmocka_unit_test(padding_of_integers_is_found),
      cmocka_unit_test(stores_to_inputs_are_read),
      cmocka_unit_test(cores_must_signal),
      cmocka_unit_test(copies_are_handed_over),
      cmocka_unit_test(parallel_steps_have_blocks_of_their_own),
      cmocka_unit_test(parallel_steps_leave_nothing)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  at_sched_destroy(g_sched);
  at_pool_destroy(g_pool);
  return failed;
}
