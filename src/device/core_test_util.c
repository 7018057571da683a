#include "device/core_test_util.h"

at_sched *g_sched;
at_pool *g_pool;
_Atomic int g_begun;
uint32_t g_checks;
_Atomic size_t g_taken;
_Atomic int g_num_blocks;
void *g_blocks[kMaxBlocks];

void *take(void *owner, size_t bytes) {
  atomic_fetch_add(&g_taken, bytes);
  void *p = aligned_alloc(64, at_align_up(bytes, 64));
  g_blocks[atomic_fetch_add(&g_num_blocks, 1)] = p;
  return p;
}

void give_all(void) {
  for (int i = 0; i < g_num_blocks; i++) free(g_blocks[i]);
  g_num_blocks = 0;
  g_taken = 0;
}

// Borrows from k.
static at_core_program program_of(const kernel *k) {
  return (at_core_program){.record = &k->record,
                           .name = "bench",
                           .refs = k->refs,
                           .body = k->body,
                           .index = k->index,
                           .locations = g_places,
                           .strings = g_strings};
}

at_status run_on(kernel *k, at_core_group *g, int32_t device, int32_t n) {
  const at_hw *hw;
  assert_int_equal(at_code_take(at_hw_find(AT_STR("v6e"), &hw)), 0);
  k->record.num_locations = 1;
  // Without a recorded size the core takes what allocations need as they come.
  if (!k->sized) k->record.stack_bytes = k->record.stack_sems = -1;
  at_par par = {g_pool, take, NULL};
  at_core_program p = program_of(k);
  at_core_launch l = {.programs = &p,
                      .num_programs = 1,
                      .bufs = k->bufs,
                      .num_bufs = kMaxArgs,
                      .hw = hw,
                      .par = &par,
                      .sched = g_sched,
                      .group = g,
                      .device_id = device,
                      .num_devices = n,
                      .checks = g_checks,
                      .max_turns = k->max_turns ? k->max_turns : 1 << 22};
  atomic_fetch_add(&g_begun, 1);
  return at_core_run(&l);
}

// The fiber's function. `done` fires last: run_devices frees everything then.
static void run_device(void *arg) {
  device_run *d = arg;
  d->status = run_on(&d->k, d->group, d->device, d->devices);
  at_event_fire(d->done, AT_OK);
}

void run_devices(const kernel *k, int32_t n, at_status *st) {
  at_core_group *g;
  device_run *runs = calloc((size_t)n, sizeof *runs);
  assert_non_null(runs);
  assert_int_equal(at_code_take(at_core_group_create((uint32_t)n, NULL, &g)),
                   0);
  for (int32_t i = 0; i < n; i++) {
    runs[i] = (device_run){.k = k[i],
                           .group = g,
                           .device = i,
                           .devices = n,
                           .done = at_event_create()};
    assert_int_equal(
        at_code_take(at_sched_spawn(g_sched, run_device, &runs[i])), 0);
  }
  for (int32_t i = 0; i < n; i++) {
    assert_int_equal(at_code_take(at_event_wait(runs[i].done)), 0);
    at_event_release(runs[i].done);
    st[i] = runs[i].status;
  }
  at_core_group_destroy(g);
  free(runs);
}

at_status run(kernel *k) {
  at_status st = run_on(k, NULL, 0, 1);
  give_all();
  return st;
}

void runs(kernel *k) {
  at_status st = run(k);
  if (st.err) print_message("%s\n", at_status_message(st));
  assert_int_equal(at_code_take(st), 0);
}

void fails(kernel *k, at_code code, const char *text) {
  at_status st = run(k);
  if (!strstr(at_status_message(st), text))
    fail_msg("%s", at_status_message(st));
  assert_int_equal(at_code_take(st), code);
}

at_xcore_ref windowed(at_core_role role, int64_t r, int64_t c, int64_t br,
                      int64_t bc) {
  return (at_xcore_ref){.role = role,
                        .space = AT_CORE_VMEM,
                        .window = AT_CORE_BLOCKED,
                        .dtype = AT_F32,
                        .rank = 2,
                        .alias = -1,
                        .dims = {r, c},
                        .block = {br, bc}};
}

at_xcore_ref whole(at_core_role role, at_core_space space, at_dtype t,
                   int64_t n) {
  return (at_xcore_ref){.role = role,
                        .space = space,
                        .dtype = t,
                        .rank = 1,
                        .alias = -1,
                        .dims = {n},
                        .block = {n}};
}

float *cell(const at_core_ref *r, int64_t i, int64_t j) {
  return (float *)((char *)r->base + i * r->stride[0] + j * r->stride[1]);
}

at_core_dma copy_of(void *dst, void *src, int64_t n, void *sem) {
  return (at_core_dma){.src = src,
                       .dst = dst,
                       .dst_sem = sem,
                       .device = AT_CORE_SELF,
                       .core = AT_CORE_SELF,
                       .subcore = AT_CORE_SELF,
                       .rank = 1,
                       .elem_bytes = 4,
                       .loc = 0,
                       .size = {n},
                       .src_stride = {4},
                       .dst_stride = {4}};
}
