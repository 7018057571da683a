// Kernels on many devices: what a core takes follows what its kernel uses.
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

static kernel ring(float *in, float *out) {
  return (kernel){.record = {.num_refs = 3, .stack_bytes = 4 * kWords},
                  .sized = true,
                  .refs = {whole(AT_CORE_IN, AT_CORE_HBM, AT_F32, kWords),
                           whole(AT_CORE_OUT, AT_CORE_HBM, AT_F32, kWords),
                           whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 3)},
                  .body = send_by_scope,
                  .bufs = {in, out}};
}

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

int main(void) {
  if (at_code_take(at_pool_create(2, &g_pool)) ||
      at_code_take(at_sched_create(3, 1 << 18, &g_sched)))
    return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_follows_the_kernel)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  at_sched_destroy(g_sched);
  at_pool_destroy(g_pool);
  return failed;
}
