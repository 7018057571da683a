// Virtual cores with bodies written in C: the grid and its windows, aliasing,
// semaphores, copies, failures.
#include "base/config.h"
#include "device/core_internal.h"
#include "device/core_test_util.h"

// Block (step of axis 0, 0).
static void at_rows(at_core *c, const int32_t *g, const at_core_ref *r,
                    int32_t *o) {
  o[0] = g[0], o[1] = 0;
}
// Block (axis 0, axis 1).
static void at_both(at_core *c, const int32_t *g, const at_core_ref *r,
                    int32_t *o) {
  o[0] = g[0], o[1] = g[1];
}

// 0, 1, 2 ... modulo 251, aligned as XLA aligns arrays. The caller frees it.
static float *iota(int64_t n) {
  float *p = aligned_alloc(64, at_align_up((size_t)n * 4 + 4, 64));
  for (int64_t i = 0; i < n; i++) p[i] = (float)(i % 251);
  return p;
}

// ---- Operands that stay
static int64_t g_reads[3];

// Notes what at_core_reads_of says of each argument, and checks that a note
// lasts from step to step.
static void ask(at_core *c, const int32_t *g, const at_core_ref *r) {
  for (int i = 0; i < 3; i++) g_reads[i] = at_core_reads_of(c, r[i].base);
  _Atomic(void *) *note = at_core_note(c);
  if (g[0] || g[1]) assert_ptr_equal(atomic_load(note), &g_reads);
  atomic_store(note, &g_reads);
}

// An operand that nobody writes: each of its blocks serves several steps.
static void operands_that_stay_are_told(void **state) {
  enum { R = 16, C = 64, ROWS = 8, COLUMNS = 16 };
  static const struct {
    uint32_t stored;
    int32_t alias;
    int64_t reads;
  } cases[] = {{0, -1, 4}, {1, -1, 0}, {0, 0, 0}};
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    kernel k = {.record = {.num_refs = 3,
                           .grid_rank = 2,
                           .grid = {2, 4},
                           .flags = AT_CORE_SEQUENTIAL},
                .refs = {windowed(AT_CORE_IN, R, C, ROWS, C),
                         windowed(AT_CORE_IN, R, C, ROWS, COLUMNS),
                         windowed(AT_CORE_OUT, R, C, ROWS, COLUMNS)},
                .index = {at_rows, at_both, at_both},
                .body = ask};
    k.refs[0].stored = cases[i].stored;
    k.refs[0].alias = cases[i].alias;
    float *in = calloc(R * C, 4), *too = calloc(R * C, 4);
    float *out = calloc(R * C, 4);
    k.bufs[0] = in, k.bufs[1] = too, k.bufs[2] = out;
    runs(&k);
    assert_int_equal(g_reads[0], cases[i].reads);
    assert_int_equal(g_reads[1], 1);
    assert_int_equal(g_reads[2], 0);
    free(in), free(too), free(out);
  }
}

// ---- Loops inside a step
enum { TURNS = 500, OWN = 300 };

// Adds 1 by way of memory of the thread's own, which another would spoil.
static void turns_of(void *arg, int64_t begin, int64_t end, void *memory) {
  const at_core_ref *r = arg;
  uint8_t *own = memory;
  bool good = (uintptr_t)memory % 64 == 0;
  for (int64_t i = begin; i < end; i++) {
    memset(own, (int)(i % 251), OWN);
    float v = *cell(&r[0], 0, (int)i);
    for (int k = 0; k < OWN; k++) good &= own[k] == i % 251;
    *cell(&r[1], 0, (int)i) = good ? v + 1 : -1;
  }
}

// Memory of the threads grows from loop to loop; one loop is empty and one runs
// alone.
static void share_loops(at_core *c, const int32_t *g, const at_core_ref *r) {
  at_core_share(c, turns_of, (void *)(uintptr_t)r, 100, OWN, 0);
  at_core_share(c, turns_of, (void *)(uintptr_t)r, 0, OWN, 0);
  at_core_share(c, turns_of, (void *)(uintptr_t)r, TURNS, 4 * OWN, 0);
  at_core_share(c, turns_of, (void *)(uintptr_t)r, 100, OWN, 1);
}

// Stops the core from inside a loop's callback.
static void failing_turns(void *arg, int64_t begin, int64_t end, void *memory) {
  at_core_fail(arg, -1, "in a turn");
}
static void share_failure(at_core *c, const int32_t *g, const at_core_ref *r) {
  at_core_share(c, failing_turns, c, 10, 0, 1);
}

// Each turn runs once, on memory that no other thread touches.
static void threads_share_loops(void **state) {
  kernel k = {.record = {.num_refs = 2, .grid_rank = 1, .grid = {1}},
              .refs = {windowed(AT_CORE_IN, 1, TURNS, 1, TURNS),
                       windowed(AT_CORE_OUT, 1, TURNS, 1, TURNS)},
              .index = {at_rows, at_rows},
              .body = share_loops};
  float *in = iota(TURNS), *out = calloc(TURNS, 4);
  k.bufs[0] = in, k.bufs[1] = out;
  runs(&k);
  for (int i = 0; i < TURNS; i++) assert_true(out[i] == in[i] + 1);
  k.body = share_failure;
  fails(&k, AT_INVALID_ARGUMENT, "in a turn");
  free(in);
  free(out);
}

// ---- Windows
enum { BR = 8, BC = 16 };

// One block of 8 x 16.
static void add_one(at_core *c, const int32_t *g, const at_core_ref *r) {
  for (int i = 0; i < BR; i++)
    for (int j = 0; j < BC; j++) *cell(&r[1], i, j) = *cell(&r[0], i, j) + 1;
}

// 19 x 37 in blocks of 8 x 16: edges on both sides.
static void edge_blocks_write_only_what_is_there(void **state) {
  enum { R = 19, C = 37 };
  kernel k = {.record = {.num_refs = 2, .grid_rank = 2, .grid = {3, 3}},
              .refs = {windowed(AT_CORE_IN, R, C, BR, BC),
                       windowed(AT_CORE_OUT, R, C, BR, BC)},
              .index = {at_both, at_both},
              .body = add_one};
  float *in = iota(R * C), *out = calloc(R * C + 1, 4);
  out[R * C] = 77;
  k.bufs[0] = in, k.bufs[1] = out;
  runs(&k);
  for (int i = 0; i < R * C; i++) assert_true(out[i] == in[i] + 1);
  assert_true(out[R * C] == 77);
  free(in);
  free(out);
}

// An input that the body writes keeps the caller's data.
static void scribble(at_core *c, const int32_t *g, const at_core_ref *r) {
  for (int i = 0; i < BR; i++)
    for (int j = 0; j < BC; j++) {
      *cell(&r[0], i, j) *= 2;
      *cell(&r[1], i, j) = *cell(&r[0], i, j);
    }
}

// The windows of a read-only input may be its array; this one's may not.
static void stored_inputs_are_copies(void **state) {
  enum { R = 16, C = 32 };
  kernel k = {.record = {.num_refs = 2, .grid_rank = 2, .grid = {2, 2}},
              .refs = {windowed(AT_CORE_IN, R, C, BR, BC),
                       windowed(AT_CORE_OUT, R, C, BR, BC)},
              .index = {at_both, at_both},
              .body = scribble};
  k.refs[0].stored = 1;
  float *in = iota(R * C), *out = calloc(R * C, 4);
  k.bufs[0] = in, k.bufs[1] = out;
  runs(&k);
  for (int i = 0; i < R * C; i++)
    assert_true(in[i] == (float)(i % 251) && out[i] == 2 * in[i]);
  free(in);
  free(out);
}

// Sums rows over the second grid axis: the output block stays while it is
// revisited.
static void accumulate(at_core *c, const int32_t *g, const at_core_ref *r) {
  for (int i = 0; i < BR; i++)
    for (int j = 0; j < BC; j++) {
      if (!g[1]) *cell(&r[1], i, j) = 0;
      *cell(&r[1], i, j) += *cell(&r[0], i, j);
    }
}

// Also with a dynamic bound: 5, 0 steps, and a negative one, which is refused.
static void consecutive_visits_share_a_block(void **state) {
  enum { R = 64, C = 80 };
  for (int declared = 0; declared < 2; declared++) {
    kernel k = {.record = {.num_refs = 2,
                           .grid_rank = 2,
                           .grid = {8, -1},
                           .num_dynamic = 1},
                .refs = {windowed(AT_CORE_IN, R, C, BR, BC),
                         windowed(AT_CORE_OUT, R, BC, BR, BC)},
                .index = {at_both, at_rows},
                .body = accumulate};
    if (declared) k.record.semantics[0] = AT_CORE_PARALLEL;
    int32_t bound = 5;
    float *in = iota(R * C), *out = calloc(R * BC, 4);
    k.bufs[0] = &bound, k.bufs[1] = in, k.bufs[2] = out;
    runs(&k);
    for (int i = 0; i < R; i++)
      for (int j = 0; j < BC; j++) {
        float want = 0;
        for (int b = 0; b < 5; b++) want += in[i * C + b * BC + j];
        assert_true(out[i * BC + j] == want);
      }
    bound = 0;  // a grid without steps
    runs(&k);
    bound = -3;
    fails(&k, AT_INVALID_ARGUMENT, "bound -3");
    free(in);
    free(out);
  }
}

// Scratch lasts over the steps of a core, in their order.
static void count_steps(at_core *c, const int32_t *g, const at_core_ref *r) {
  float *sum = r[1].base;
  if (!g[0]) *sum = 0;
  *sum = *sum * 2 + (float)g[0];
  for (int i = 0; i < BR; i++) *cell(&r[0], i, 0) = *sum;
}

// A result that depends on the order of all steps.
static void scratch_lasts_in_order(void **state) {
  kernel k = {.record = {.num_refs = 2, .grid_rank = 1, .grid = {6}},
              .refs = {windowed(AT_CORE_OUT, 48, 1, BR, 1),
                       whole(AT_CORE_SCRATCH, AT_CORE_VMEM, AT_F32, 1)},
              .index = {at_rows},
              .body = count_steps};
  float out[48];
  k.bufs[0] = out;
  runs(&k);
  float sum = 0;
  for (int s = 0; s < 6; s++) {
    sum = sum * 2 + (float)s;
    assert_true(out[s * 8] == sum && out[s * 8 + 7] == sum);
  }
}

// One block too far.
static void beyond(at_core *c, const int32_t *g, const at_core_ref *r,
                   int32_t *o) {
  o[0] = g[0] + 1, o[1] = 0;
}

// The message has the argument and the block.
static void index_maps_must_stay_inside(void **state) {
  kernel k = {.record = {.num_refs = 2, .grid_rank = 1, .grid = {2}},
              .refs = {windowed(AT_CORE_IN, 16, BC, BR, BC),
                       windowed(AT_CORE_OUT, 16, BC, BR, BC)},
              .index = {beyond, at_rows},
              .body = add_one};
  float *in = iota(16 * BC), *out = calloc(16 * BC, 4);
  k.bufs[0] = in, k.bufs[1] = out;
  fails(&k, AT_OUT_OF_RANGE,
        "the index map of input 0 (argument 0) leaves the array: (2, 0)");
  free(in);
  free(out);
}

// The aliased input is the output's memory; its old values are what windows
// read.
static void aliases_share_memory(void **state) {
  kernel k = {.record = {.num_refs = 2, .grid_rank = 1, .grid = {2}},
              .refs = {windowed(AT_CORE_IN, 16, BC, BR, BC),
                       windowed(AT_CORE_OUT, 16, BC, BR, BC)},
              .index = {at_rows, at_rows},
              .body = add_one};
  k.refs[0].alias = 0;
  float *in = iota(16 * BC), *out = calloc(16 * BC, 4);
  k.bufs[0] = in, k.bufs[1] = out;
  runs(&k);
  for (int i = 0; i < 16 * BC; i++) assert_true(out[i] == in[i] + 1);
  k.bufs[0] = out;
  runs(&k);
  for (int i = 0; i < 16 * BC; i++) assert_true(out[i] == in[i] + 2);
  free(in);
  free(out);
}

// ---- Semaphores and copies
// refs: in (HBM), out (HBM), buffer (VMEM), semaphores.
static void copy_there_and_back(at_core *c, const int32_t *g,
                                const at_core_ref *r) {
  at_core_dma in = copy_of(r[2].base, r[0].base, 32, r[3].base);
  at_core_dma_start(c, &in);
  at_core_dma_wait(c, r[3].base, 128, 0);
  int64_t mark = at_core_mark(c);
  void *sem = at_core_alloc(c, AT_CORE_SEM, AT_CORE_SEM_BYTES, 0);
  at_core_dma out = copy_of(r[1].base, r[2].base, 32, sem);
  at_core_dma_start(c, &out);
  at_core_dma_wait(c, sem, 128, 0);
  at_core_release(c, mark, 0);
}

// For a copy that was never started: a deadlock.
static void wait_twice(at_core *c, const int32_t *g, const at_core_ref *r) {
  copy_there_and_back(c, g, r);
  at_core_dma_wait(c, r[3].base, 128, 0);
}

// One word beyond the source.
static void copy_too_much(at_core *c, const int32_t *g, const at_core_ref *r) {
  at_core_dma in = copy_of(r[2].base, r[0].base, 33, r[3].base);
  at_core_dma_start(c, &in);
}

// 16 bytes of `in` to 32 elements of four bits and back, which lie in pairs of
// rows: element k of a byte is 16 bytes after element 0.
static void unpack_and_pack(at_core *c, const int32_t *g,
                            const at_core_ref *r) {
  at_core_dma d = copy_of(r[2].base, r[0].base, 16, r[3].base);
  d.elem_bytes = 1;
  d.src_stride[0] = d.dst_stride[0] = 1;
  d.packed_bits = 4;
  d.packed_step = 16;
  d.packed_signed = 1;
  d.unpack = 1;
  at_core_dma_start(c, &d);
  at_core_dma_wait(c, r[3].base, 32, 0);
  d.unpack = 0;
  d.src = d.dst;
  d.dst = r[1].base;
  at_core_dma_start(c, &d);
  at_core_dma_wait(c, r[3].base, 16, 0);
  memcpy((uint8_t *)r[1].base + 32, r[2].base, 32);
}

// refs: in, out, buffer, semaphore.
static kernel copying(at_core_body_fn body, float *in, float *out) {
  return (kernel){.record = {.num_refs = 4},
                  .refs = {whole(AT_CORE_IN, AT_CORE_HBM, AT_F32, 32),
                           whole(AT_CORE_OUT, AT_CORE_HBM, AT_F32, 32),
                           whole(AT_CORE_SCRATCH, AT_CORE_VMEM, AT_F32, 32),
                           whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 1)},
                  .body = body,
                  .bufs = {in, out}};
}

// Nibbles are sign-extended on their way and packed again on the way back.
static void packed_elements_are_copied(void **state) {
  float in[32] = {0}, out[32] = {0};
  uint8_t *from = (uint8_t *)in, *to = (uint8_t *)out;
  for (int i = 0; i < 16; i++) from[i] = (uint8_t)(37 * i + 5);
  kernel k = copying(unpack_and_pack, in, out);
  runs(&k);
  assert_memory_equal(from, to, 16);
  for (int i = 0; i < 32; i++) {
    int v = from[i % 16] >> (i < 16 ? 0 : 4) & 15;
    assert_int_equal((int8_t)to[32 + i], v < 8 ? v : v - 16);
  }
}

// Results, the deadlock's text and place, and the bounds of a copy.
static void copies_and_waits(void **state) {
  float in[32], out[32] = {0};
  for (int i = 0; i < 32; i++) in[i] = (float)i;
  kernel k = copying(copy_there_and_back, in, out);
  runs(&k);
  assert_memory_equal(in, out, sizeof in);
  k.body = wait_twice;
  fails(&k, AT_FAILED_PRECONDITION,
        "deadlock: nobody is left who could signal");
  fails(&k, AT_FAILED_PRECONDITION,
        "semaphore 0 of scratch 1 (argument 3) (value 0, needs 128) at "
        "kern.py:7:3 (get)");
  k.body = copy_too_much;
  fails(&k, AT_OUT_OF_RANGE, "DMA source out of bounds");
}

// A loop as generated code counts its turns.
static void forever(at_core *c, const int32_t *g, const at_core_ref *r) {
  for (;;)
    if (--c->budget < 0) at_core_budget(c, 0);
}

// Stopped at the default limit, with the place of the loop.
static void loops_must_end(void **state) {
  kernel k = {.body = forever};
  fails(&k, AT_RESOURCE_EXHAUSTED, "at: kern.py:7:3 (get)");
}

// As many as the limit of the test below allows.
static void seven_turns(at_core *c, const int32_t *g, const at_core_ref *r) {
  for (int i = 0; i < 7; i++)
    if (--c->budget < 0) at_core_budget(c, 0);
}

// A limit of 7 grants exactly 7.
static void few_turns_are_counted(void **state) {
  kernel k = {.body = seven_turns, .max_turns = 7};
  runs(&k);
  k.max_turns = 6;
  fails(&k, AT_RESOURCE_EXHAUSTED, "stopped after 6 turns");
}

// Two cores of one device pass a token round; refs: out (HBM), semaphore.
static void pass_token(at_core *c, const int32_t *g, const at_core_ref *r) {
  int32_t *out = r[0].base;
  for (int turn = 0; turn < 100; turn++) {
    if (c->core_index || turn) at_core_sem_wait(c, r[1].base, 1, 0);
    out[0] += 1;
    at_core_sem_signal(c, r[1].base, 1, AT_CORE_SELF, 1 - c->core_index,
                       AT_CORE_SELF, 0, 0);
  }
  if (!c->core_index) at_core_sem_wait(c, r[1].base, 1, 0);
}

// Each waits for the other: a deadlock.
static void wait_both(at_core *c, const int32_t *g, const at_core_ref *r) {
  at_core_sem_wait(c, r[1].base, 1, 0);
}

// Each reads its semaphore until the other has signalled it so often.
static int32_t g_signals_wanted;
// By reads instead of waits.
static void poll_until_signalled(at_core *c, const int32_t *g,
                                 const at_core_ref *r) {
  for (int turn = 0; turn < 5000; turn++) {
    at_core_sem_signal(c, r[1].base, 1, AT_CORE_SELF, 1 - c->core_index,
                       AT_CORE_SELF, 0, 0);
    while (at_core_sem_read(c, r[1].base, 0) < g_signals_wanted)
      if (--c->budget < 0) at_core_budget(c, 0);
    at_core_sem_wait(c, r[1].base, 1, 0);
  }
}

// The product of the bounds is 0 in 64 bits.
static void cores_are_counted_without_overflow(void **state) {
  int32_t out = 0;
  kernel k = {
      .record = {.num_refs = 1,
                 .grid_rank = 4,
                 .grid = {1 << 16, 1 << 16, 1 << 16, 1 << 16},
                 .semantics = {AT_CORE_CORE_PARALLEL, AT_CORE_CORE_PARALLEL,
                               AT_CORE_CORE_PARALLEL, AT_CORE_CORE_PARALLEL}},
      .refs = {whole(AT_CORE_OUT, AT_CORE_HBM, AT_S32, 1)},
      .body = wait_both,
      .bufs = {&out}};
  fails(&k, AT_INVALID_ARGUMENT, "cores at the same time");
}

// 200 hand-overs by waits, 10,000 by reads; then a read loop that nobody ends
// must not run for hours.
static void cores_signal_each_other(void **state) {
  int32_t out = 0;
  kernel k = {.record = {.num_refs = 2,
                         .grid_rank = 1,
                         .grid = {2},
                         .semantics = {AT_CORE_CORE_PARALLEL}},
              .refs = {whole(AT_CORE_OUT, AT_CORE_HBM, AT_S32, 1),
                       whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 1)},
              .body = pass_token,
              .bufs = {&out}};
  runs(&k);
  assert_int_equal(out, 200);
  k.body = wait_both;
  fails(&k, AT_FAILED_PRECONDITION,
        "core 1 waits for semaphore 0 of scratch 0 (argument 1)");
  k.body = poll_until_signalled;
  g_signals_wanted = 1;
  k.max_turns = 1ull << 40;
  runs(&k);
  k.max_turns = 1ull << 30;
  g_signals_wanted = 3;  // nobody has signalled more than twice by then
  fails(&k, AT_RESOURCE_EXHAUSTED, "turns of its loops");
}

// ---- Several devices
// refs: in, out (HBM), semaphores. Each device sends its input to the right.
static void send_right(at_core *c, const int32_t *g, const at_core_ref *r) {
  at_core_dma d = copy_of(r[1].base, r[0].base, 4, r[2].base);
  d.src_sem = (char *)r[2].base + AT_CORE_SEM_BYTES;
  d.device = (c->device_id + 1) % 3;
  at_core_dma_start(c, &d);
  at_core_dma_wait(c, d.src_sem, 16, 0);
  at_core_dma_wait(c, r[2].base, 16, 0);
}

// Devices 1 and 2 wait for copies that are not sent.
static void left_alone(at_core *c, const int32_t *g, const at_core_ref *r) {
  if (c->device_id) at_core_dma_wait(c, r[2].base, 16, 0);
}

// body on three devices; in[i] and out[i] are those of device i. The caller
// takes st.
static void run_ring(at_core_body_fn body, float in[3][4], float out[3][4],
                     at_status st[3]) {
  kernel k[3];
  for (int i = 0; i < 3; i++)
    k[i] =
        (kernel){.record = {.num_refs = 3},
                 .refs = {whole(AT_CORE_IN, AT_CORE_HBM, AT_F32, 4),
                          whole(AT_CORE_OUT, AT_CORE_HBM, AT_F32, 4),
                          whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 2)},
                 .body = body,
                 .bufs = {in[i], out[i]}};
  run_devices(k, 3, st);
  give_all();
}

// A ring, then a deadlock that is told once and names its cores.
static void devices_copy_to_each_other(void **state) {
  float in[3][4], out[3][4] = {0};
  for (int i = 0; i < 12; i++) in[i / 4][i % 4] = (float)i;
  at_status st[3];
  run_ring(send_right, in, out, st);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(at_code_take(st[i]), 0);
    assert_memory_equal(out[(i + 1) % 3], in[i], sizeof in[i]);
  }
  run_ring(left_alone, in, out, st);
  int told = 0;
  for (int i = 0; i < 3; i++) {
    told += strstr(at_status_message(st[i]), "of device 2 waits") != NULL;
    at_status_free(st[i]);
  }
  assert_int_equal(told, 1);
}

// ---- Large copies
// Several threads make them, with the bytes that one would leave.
static void large_copies_are_shared(void **state) {
  enum { BYTES = 8 << 20, APART = 5 << 20 };
  static const struct {
    uint32_t rank, elem_bytes;
    int64_t size[3], to[3], from[3], at;  // of the destination, in bytes
  } cases[] = {
      {1, 4, {700001}, {4}, {4}, APART},
      {2, 2, {1031, 1000}, {2400, 2}, {2010, 2}, APART},
      {3, 4, {3, 517, 400}, {900000, 1700, 4}, {900004, 1704, 4}, APART},
      {2, 2, {3, 300000}, {1000000, 2}, {900000, 3}, APART},
      {2, 1, {2, 1200000}, {1200000, 1}, {1200000, 1}, 4096},  // overlap
      {2, 4, {0, 300000}, {1200000, 4}, {1200000, 4}, APART}};
  uint8_t *got = malloc(BYTES), *want = malloc(BYTES), *was = malloc(BYTES);
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    for (int64_t k = 0; k < BYTES; k++)
      got[k] = want[k] = was[k] = (uint8_t)(k * 7 + k / 251);
    const int64_t *n = cases[i].size, *to = cases[i].to, *from = cases[i].from;
    uint32_t rank = cases[i].rank, bytes = cases[i].elem_bytes;
    for (int64_t x = 0; x < n[0]; x++)
      for (int64_t y = 0; y < (rank > 1 ? n[1] : 1); y++)
        for (int64_t z = 0; z < (rank > 2 ? n[2] : 1); z++)
          memcpy(want + cases[i].at + x * to[0] + y * to[1] + z * to[2],
                 was + x * from[0] + y * from[1] + z * from[2], bytes);
    box b = {got + cases[i].at, got, rank, bytes, n, to, from};
    core_copy_shared(g_pool, &b);
    assert_memory_equal(got, want, BYTES);
  }
  free(got), free(want), free(was);
}

// Words of ATOLL_CHECK; `interpret` is known but no check of this room.
static void checks_have_names(void **state) {
  static const struct {
    const char *text;
    uint32_t bits;
  } rows[] = {{"races, nan", AT_CHECK_RACES | AT_CHECK_NAN},
              {"", 0},
              {"interpret", 0},
              {"all", 63}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    assert_int_equal(at_code_take(at_config_set(AT_CONFIG_CHECK, rows[i].text)),
                     0);
    assert_int_equal(at_core_checks_wanted(), rows[i].bits);
  }
  assert_int_equal(at_code_take(at_config_set(AT_CONFIG_CHECK, NULL)), 0);
}

int main(void) {
  if (at_code_take(at_pool_create(3, &g_pool)) ||
      at_code_take(at_sched_create(3, 1 << 18, &g_sched)))
    return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(operands_that_stay_are_told),
      cmocka_unit_test(threads_share_loops),
      cmocka_unit_test(edge_blocks_write_only_what_is_there),
      cmocka_unit_test(stored_inputs_are_copies),
      cmocka_unit_test(consecutive_visits_share_a_block),
      cmocka_unit_test(scratch_lasts_in_order),
      cmocka_unit_test(index_maps_must_stay_inside),
      cmocka_unit_test(aliases_share_memory),
      cmocka_unit_test(copies_and_waits),
      cmocka_unit_test(packed_elements_are_copied),
      cmocka_unit_test(loops_must_end),
      cmocka_unit_test(few_turns_are_counted),
      cmocka_unit_test(cores_are_counted_without_overflow),
      cmocka_unit_test(cores_signal_each_other),
      cmocka_unit_test(devices_copy_to_each_other),
      cmocka_unit_test(large_copies_are_shared),
      cmocka_unit_test(checks_have_names)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  at_sched_destroy(g_sched);
  at_pool_destroy(g_pool);
  return failed;
}
