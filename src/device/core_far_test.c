// Kernels whose devices belong to several processes: here to groups that send
// each other messages, with the results of one group. And what ends them.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/core_test_util.h"

enum { kDevices = 4, kWords = 64, kSems = 6, kMostGroups = 4 };

// ---- Processes
typedef struct parcel {
  struct parcel *next;
  size_t bytes;  // 0: a process has left
  _Alignas(64) uint8_t body[];
} parcel;

static _Atomic int g_waits;  // how often one was said

// One of several; device d belongs to process d % count.
typedef struct process {
  struct process *all;
  uint32_t count, me;
  at_core_far far;
  at_core_group *group;
  pthread_mutex_t lock;
  bool begun, failed;  // failed: elsewhere, before it began
  parcel *early, **last;
} process;

// What exec does with a message that arrived. Frees m.
static void hand_over(process *p, parcel *m) {
  if (m->bytes)
    at_core_group_hear(p->group, (at_bytes){m->body, m->bytes});
  else
    at_core_group_leave(p->group);
  free(m);
}

// A message waits in the list while the process has not begun.
static void post(process *to, const at_bytes *parts, uint32_t n) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < n; i++) bytes += parts[i].len;
  parcel *m = aligned_alloc(64, at_align_up(sizeof *m + bytes, 64));
  *m = (parcel){.bytes = bytes};
  uint8_t *at = m->body;
  for (uint32_t i = 0; i < n; at += parts[i++].len)
    memcpy(at, parts[i].ptr, parts[i].len);
  pthread_mutex_lock(&to->lock);
  if (to->begun)
    hand_over(to, m);
  else
    *to->last = m, to->last = &m->next;
  pthread_mutex_unlock(&to->lock);
}

// Called under no lock of the group; delivers what came early.
static at_status begin(void *arg) {
  process *p = arg;
  pthread_mutex_lock(&p->lock);
  p->begun = true;
  for (parcel *m = p->early, *next; m; m = next) {
    next = m->next;
    hand_over(p, m);
  }
  p->early = NULL;
  bool failed = p->failed;
  pthread_mutex_unlock(&p->lock);
  return failed ? AT_FAIL(AT_ABORTED, "another process failed") : AT_OK;
}

// What exec does: who fails tells the others.
static void tell_others(const process *p) {
  for (uint32_t i = 0; i < p->count; i++) {
    process *to = &p->all[i];
    if (i == p->me) continue;
    pthread_mutex_lock(&to->lock);
    if (to->begun)
      at_core_group_fail(to->group,
                         AT_FAIL(AT_ABORTED, "process %u failed", i));
    else
      to->failed = true;
    pthread_mutex_unlock(&to->lock);
  }
}

// Must name a device of another process.
static at_status send(void *arg, int32_t device, const at_bytes *parts,
                      uint32_t n) {
  process *p = arg;
  assert_in_range(n, 1, AT_CORE_FAR_PARTS);
  assert_int_not_equal((uint32_t)device % p->count, p->me);
  post(&p->all[(uint32_t)device % p->count], parts, n);
  return AT_OK;
}

// Counts how often a process said that all its cores wait.
static void waits(void *arg, bool on) {
  (void)arg;
  atomic_fetch_add(&g_waits, on);
}

// Tells every other process that this one has left.
static at_status end(void *arg) {
  process *p = arg;
  for (uint32_t i = 0; i < p->count; i++)
    if (i != p->me) post(&p->all[i], NULL, 0);
  return AT_OK;
}

// Devices are dealt out in turn; one process alone has no `far`.
static void make_processes(process *p, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    p[i] = (process){.all = p, .count = count, .me = i};
    p[i].last = &p[i].early;
    p[i].far = (at_core_far){.arg = &p[i],
                             .processes = count - 1,
                             .begin = begin,
                             .send = send,
                             .waits = waits,
                             .end = end};
    pthread_mutex_init(&p[i].lock, NULL);
    uint32_t devices = (kDevices - i + count - 1) / count;
    assert_int_equal(at_code_take(at_core_group_create(
                         devices, count > 1 ? &p[i].far : NULL, &p[i].group)),
                     0);
  }
}

// A device and the process it belongs to.
typedef struct place {
  device_run run;
  process *p;
} place;

// A device's launch on a fiber.
static void run_place(void *arg) {
  place *x = arg;
  device_run *d = &x->run;
  d->status = run_on(&d->k, d->group, d->device, d->devices);
  if (d->status.err) tell_others(x->p);
  at_event_fire(d->done, AT_OK);
}

// The statuses of devices, then what is left of groups; the caller frees them.
static void run_processes(kernel *k, uint32_t count, at_status *st,
                          at_status *left) {
  process p[kMostGroups];
  static place places[kDevices];
  make_processes(p, count);
  for (int32_t d = 0; d < kDevices; d++) {
    process *of = &p[(uint32_t)d % count];
    places[d] = (place){.p = of,
                        .run = {.k = k[d],
                                .group = of->group,
                                .device = d,
                                .devices = kDevices,
                                .done = at_event_create()}};
    assert_int_equal(
        at_code_take(at_sched_spawn(g_sched, run_place, &places[d])), 0);
  }
  for (int32_t d = 0; d < kDevices; d++) {
    at_status_free(at_event_wait(places[d].run.done));
    at_event_release(places[d].run.done);
    st[d] = places[d].run.status;
  }
  for (uint32_t i = 0; i < count; i++) {
    left[i] = at_core_group_failure(p[i].group);
    for (parcel *m = p[i].early, *next; m; m = next) next = m->next, free(m);
    at_core_group_destroy(p[i].group);
    pthread_mutex_destroy(&p[i].lock);
  }
  give_all();
}

// Frees statuses that a test does not look at.
static void forget(at_status *st, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) at_status_free(st[i]);
}

// ---- What kernels do to each other
// refs: in, out (HBM), scratch (VMEM), semaphores.
static kernel bench(at_core_body_fn body, float *in, float *out) {
  return (kernel){
      .record = {.num_refs = 4},
      .refs = {whole(AT_CORE_IN, AT_CORE_HBM, AT_F32, kWords),
               whole(AT_CORE_OUT, AT_CORE_HBM, AT_F32, kWords),
               whole(AT_CORE_SCRATCH, AT_CORE_VMEM, AT_F32, kWords),
               whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, kSems)},
      .body = body,
      .bufs = {in, out}};
}

// Semaphore i of argument 3.
static void *sem_of(const at_core_ref *r, int i) {
  return (char *)r[3].base + i * AT_CORE_SEM_BYTES;
}

static void signal_to(at_core *c, const at_core_ref *r, int i, int32_t device) {
  at_core_sem_signal(c, sem_of(r, i), 1, device, AT_CORE_SELF, AT_CORE_SELF, 0,
                     0);
}

// A barrier of all devices by signals.
static void meet(at_core *c, const at_core_ref *r) {
  for (int32_t d = 0; d < kDevices; d++) signal_to(c, r, 0, d);
  at_core_sem_wait(c, sem_of(r, 0), kDevices, 0);
}

// Waits for both sides in the bytes that each counts: packed elements count
// unpacked on one of them.
static void copy_and_wait(at_core *c, const at_core_ref *r, at_core_dma d) {
  d.src_sem = sem_of(r, 1);
  d.dst_sem = sem_of(r, 2);
  at_core_dma_start(c, &d);
  int64_t bytes = d.elem_bytes;
  for (int32_t k = 0; k < d.rank; k++) bytes *= d.size[k];
  bytes += d.padding;
  int64_t more = d.packed_bits ? 8 / d.packed_bits : 1;
  at_core_dma_wait(c, d.src_sem, d.unpack ? bytes : bytes * more, 0);
  at_core_dma_wait(c, d.dst_sem, d.unpack ? bytes * more : bytes, 0);
}

// One copy of each kind that a message must carry: strided, two-dimensional,
// adding, to scratch, padded, packed, unpacked and empty.
static void mix(at_core *c, const int32_t *g, const at_core_ref *r) {
  float *in = r[0].base, *out = r[1].base, *scratch = r[2].base;
  const int32_t right = (c->device_id + 1) % kDevices;
  for (int i = 0; i < kWords; i++) out[i] = 0, scratch[i] = -1;
  meet(c, r);
  // A row of every second word to every third; two dimensions, one of them one.
  at_core_dma d = copy_of(out, in, 5, NULL);
  d.device = right;
  d.src_stride[0] = 8, d.dst_stride[0] = 12;
  copy_and_wait(c, r, d);
  d = copy_of(out + 16, in + 1, 1, NULL);
  d.device = (right + 1) % kDevices;
  d.rank = 2;
  d.size[1] = 7, d.src_stride[1] = 4, d.dst_stride[1] = 4;
  copy_and_wait(c, r, d);
  // Everybody adds to everybody.
  meet(c, r);
  for (int32_t to = 0; to < kDevices; to++) {
    d = copy_of(out + 24, in, 8, sem_of(r, 3));
    d.device = to;
    d.add = AT_F32;
    at_core_dma_start(c, &d);
  }
  at_core_dma_wait(c, sem_of(r, 3), 32 * kDevices, 0);
  // Through the scratch of the right, by way of memory that is allocated.
  int64_t mark = at_core_mark(c);
  float *room = at_core_alloc(c, AT_CORE_VMEM, 4 * kWords, 0);
  for (int i = 0; i < kWords; i++) room[i] = in[i] * 2;
  d = copy_of(scratch, room, 8, NULL);
  d.device = right;
  d.padding = 8;
  d.asked[0] = 10;
  copy_and_wait(c, r, d);
  memcpy(out + 32, scratch, 12 * sizeof *out);
  meet(c, r);
  at_core_release(c, mark, 0);
  // Four bits each, packed on the way and unpacked again.
  uint8_t *nibbles = (uint8_t *)(scratch + 16), *bytes = nibbles + 32;
  for (int i = 0; i < 16; i++) nibbles[i] = (uint8_t)(i + c->device_id) & 15;
  d = copy_of(bytes, nibbles, 8, NULL);
  d.device = right;
  d.elem_bytes = 1, d.src_stride[0] = 2, d.dst_stride[0] = 1;
  d.packed_bits = 4, d.packed_step = 1;
  copy_and_wait(c, r, d);
  memcpy(out + 44, bytes, 8);
  meet(c, r);
  d = copy_of(out + 48, bytes, 8, NULL);
  d.device = right;
  d.elem_bytes = 1, d.src_stride[0] = 1, d.dst_stride[0] = 2;
  d.packed_bits = 4, d.packed_step = 1, d.unpack = 1;
  copy_and_wait(c, r, d);
  // Nothing, whose semaphores count nothing either.
  d = copy_of(out, in, 0, NULL);
  d.device = right;
  copy_and_wait(c, r, d);
  meet(c, r);
}

// The memory after it must be the same bytes however devices are split into
// processes.
static void one_group_or_several_are_alike(void **state) {
  static float in[kDevices][kWords], out[2][kDevices][kWords];
  kernel k[kDevices];
  at_status st[kDevices], left[kMostGroups];
  g_checks = 0;
  for (int d = 0; d < kDevices; d++)
    for (int i = 0; i < kWords; i++) in[d][i] = (float)(100 * d + i);
  for (uint32_t count = 1; count <= kMostGroups; count++) {
    float(*to)[kWords] = out[count > 1];
    for (int d = 0; d < kDevices; d++) k[d] = bench(mix, in[d], to[d]);
    run_processes(k, count, st, left);
    for (int d = 0; d < kDevices; d++) {
      if (st[d].err) print_message("%s\n", at_status_message(st[d]));
      assert_int_equal(at_code_take(st[d]), 0);
    }
    for (uint32_t i = 0; i < count; i++)
      assert_int_equal(at_code_take(left[i]), 0);
    assert_memory_equal(to, out[0], sizeof out[0]);
  }
  assert_int_equal((int)out[0][1][3], 2);  // of in[0][2]
}

// Rows of 1,000 of 1,024, then planes of 5 MB each: the pieces of a copy are
// parts of rows, rows, or planes.
enum { kRow = 1024, kRows = 1300, kPlanes = 3 };
static const int64_t kSizes[][3] = {
    {kPlanes, kRows, 1000}, {1, kRows, 1000}, {kPlanes, 7, 1000}, {2, 1, 1000}};

// Each box of kSizes to the right-hand device.
static void copy_planes(at_core *c, const int32_t *g, const at_core_ref *r) {
  meet(c, r);
  for (size_t i = 0; i < AT_LEN(kSizes); i++) {
    at_core_dma d =
        copy_of((float *)r[1].base + i, (float *)r[0].base + 2 * i, 1, NULL);
    d.device = (c->device_id + 1) % kDevices;
    d.rank = 3;
    memcpy(d.size, kSizes[i], sizeof kSizes[i]);
    for (int k = 0; k < 3; k++)
      d.src_stride[k] = d.dst_stride[k] = k == 2   ? 4
                                          : k == 1 ? 4 * kRow
                                                   : 4 * kRow * kRows;
    copy_and_wait(c, r, d);
    meet(c, r);
  }
}

// Copies beyond what one message carries; each device must end with the bytes
// of the run in one process.
static void large_copies_go_in_pieces(void **state) {
  const size_t words = (size_t)kRow * kRows * kPlanes;
  float *in = malloc(words * sizeof *in), *out[kDevices + 1];
  kernel k[kDevices];
  at_status st[kDevices], left[kMostGroups];
  for (size_t i = 0; i < words; i++) in[i] = (float)(i * 7 % 1000003);
  for (int d = 0; d <= kDevices; d++) out[d] = malloc(words * sizeof *in);
  for (uint32_t count = 1; count <= 2; count++) {
    for (int d = 0; d < kDevices; d++) {
      memset(out[d], 0, words * sizeof *in);
      k[d] = bench(copy_planes, in, out[d]);
      k[d].refs[0].dims[0] = k[d].refs[0].block[0] = (int64_t)words;
      k[d].refs[1].dims[0] = k[d].refs[1].block[0] = (int64_t)words;
    }
    run_processes(k, count, st, left);
    for (int d = 0; d < kDevices; d++) assert_int_equal(at_code_take(st[d]), 0);
    forget(left, count);
    if (count == 1) memcpy(out[kDevices], out[0], words * sizeof *in);
    for (int d = 0; d < kDevices; d++)
      assert_memory_equal(out[d], out[kDevices], words * sizeof *in);
  }
  for (int d = 0; d <= kDevices; d++) free(out[d]);
  free(in);
}

// ---- What ends them
static int g_wrong;
enum wrong { NO_DEVICE, NO_CORE, ODD_ADDRESS, OUTSIDE, NUM_WRONG };
// What one of the statuses must say.
static const char *const kTold[NUM_WRONG] = {
    "device 4, core 0 does not take part",
    "device 0, core 5 does not take part", "no multiple", "out of bounds"};

// Device 3 is wrong; the others wait for it.
static void goes_wrong(at_core *c, const int32_t *g, const at_core_ref *r) {
  meet(c, r);
  if (c->device_id == 3) {
    at_core_dma d = copy_of(r[1].base, r[0].base, 2, NULL);
    d.device = 0;
    if (g_wrong == NO_DEVICE) signal_to(c, r, 0, kDevices);
    if (g_wrong == NO_CORE)
      at_core_sem_signal(c, sem_of(r, 0), 1, 0, 5, AT_CORE_SELF, 0, 0);
    if (g_wrong == ODD_ADDRESS) {
      d.dst = (char *)d.dst + 1;
      d.add = AT_F32;
      at_core_dma_start(c, &d);
    }
    if (g_wrong == OUTSIDE) {
      d.size[0] = 2 * kWords;
      at_core_dma_start(c, &d);
    }
    return;
  }
  at_core_sem_wait(c, sem_of(r, 0), 1, 0);
}

// A device that goes wrong must end kernels of all processes, and its reason
// must be told by one of them.
static void failures_end_the_others(void **state) {
  static float in[kDevices][kWords], out[kDevices][kWords];
  kernel k[kDevices];
  at_status st[kDevices], left[kMostGroups];
  for (uint32_t count = 2; count <= kMostGroups; count += 2) {
    for (g_wrong = 0; g_wrong < NUM_WRONG; g_wrong++) {
      for (int d = 0; d < kDevices; d++)
        k[d] = bench(goes_wrong, in[d], out[d]);
      run_processes(k, count, st, left);
      bool told = false;
      for (int d = 0; d < kDevices; d++)
        told |= st[d].err && strstr(at_status_message(st[d]), kTold[g_wrong]);
      for (uint32_t i = 0; i < count; i++)
        told |=
            left[i].err && strstr(at_status_message(left[i]), kTold[g_wrong]);
      assert_true(told);
      forget(st, kDevices);
      forget(left, count);
    }
  }
}

// While others may signal, nobody speaks of a deadlock: that it waits is said.
static void goes_on_alone(at_core *c, const int32_t *g, const at_core_ref *r) {
  meet(c, r);
  if (c->device_id) return;
  at_core_sem_wait(c, sem_of(r, 0), 1, 0);
}

// Once all others have left, a wait is a deadlock again.
static void the_last_process_finds_its_deadlock(void **state) {
  static float in[kDevices][kWords], out[kDevices][kWords];
  kernel k[kDevices];
  at_status st[kDevices], left[kMostGroups];
  for (int d = 0; d < kDevices; d++) k[d] = bench(goes_on_alone, in[d], out[d]);
  atomic_store(&g_waits, 0);
  run_processes(k, 4, st, left);
  assert_true(atomic_load(&g_waits) > 0);
  assert_non_null(strstr(at_status_message(st[0]),
                         "deadlock: nobody is left who could signal"));
  assert_non_null(strstr(at_status_message(st[0]), "core 0 of device 0 waits"));
  forget(st, kDevices);
  forget(left, 4);
}

int main(void) {
  if (at_code_take(at_pool_create(2, &g_pool)) ||
      at_code_take(at_sched_create(3, 1 << 18, &g_sched)))
    return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_group_or_several_are_alike),
      cmocka_unit_test(large_copies_go_in_pieces),
      cmocka_unit_test(failures_end_the_others),
      cmocka_unit_test(the_last_process_finds_its_deadlock)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  at_sched_destroy(g_sched);
  at_pool_destroy(g_pool);
  return failed;
}
