// The runtime: one thread pool, one scheduler, the chips of the target.
#include <stdlib.h>

#include "base/config.h"
#include "base/cpu.h"
#include "exec/exec_internal.h"

// Kernels run on fibers: LAPACK and custom calls of users need room.
enum { kFiberStackBytes = 1 << 20, kMaxServers = 64 };

// Asked for, else ATOLL_THREADS, else the cores that this process may use.
static uint32_t thread_count(const at_runtime_options *o) {
  if (o && o->threads) return o->threads;
  uint64_t n = at_config_uint(AT_CONFIG_THREADS);
  return n ? (uint32_t)AT_MIN(n, (uint64_t)4096) : at_cpu_count();
}

// Fills rt in; on failure at_runtime_destroy frees what was made.
static at_status start(at_runtime *rt, const at_runtime_options *o) {
  const char *target = o && o->target && *o->target
                           ? o->target
                           : at_config_text(AT_CONFIG_TARGET);
  AT_TRY(at_topology_parse(target, &rt->topology));
  uint32_t threads = thread_count(o);
  AT_TRY(at_pool_create(threads, &rt->pool));
  AT_TRY(at_pool_create(1, &rt->serial));
  rt->lanes.most = threads;
  // Servers wait in host callbacks and lead kernels; more of them than cores,
  // so that a callback that blocks does not stop another chip.
  uint32_t servers = AT_MIN(AT_MAX(threads, 4u), (uint32_t)kMaxServers);
  AT_TRY(at_sched_create(servers, kFiberStackBytes, &rt->sched));
  uint32_t n = rt->topology.num_devices, hosts = 1;
  uint32_t spares = o && o->proxy ? o->spares : 0;
  rt->chips = calloc(n + spares, sizeof *rt->chips);
  if (!rt->chips)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %u devices",
                   n + spares);
  if (o && o->hosts) rt->hosts = o->hosts, hosts = o->hosts->count;
  if (o && o->places > hosts) hosts = o->places;
  rt->places = hosts;
  rt->me = rt->hosts ? rt->hosts->me : 0;
  if (o) rt->proxy = o->proxy;
  const char *dir = at_config_text(AT_CONFIG_SPILL_DIR);
  if (*dir && !rt->proxy) AT_TRY(at_spill_open(dir, &rt->spill));
  if (rt->hosts && rt->hosts->share &&
      !(rt->shared = at_shared_create(rt->hosts->share)))
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for the runtime");
  if (n % hosts)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "%u devices of target %s do not divide over %u processes", n,
                   target, hosts);
  for (uint32_t i = 0; i < n; i++) {
    AT_TRY(at_chip_init(&rt->chips[i], rt, &rt->topology, i));
    rt->chips[i].info.host = i / (n / hosts);
    rt->num_chips = i + 1;
  }
  for (uint32_t i = n; i < n + spares; i++) {
    uint32_t like = at_topology_spare(&rt->topology, spares, i - n);
    AT_TRY(at_chip_init(&rt->chips[i], rt, &rt->topology, like));
    rt->chips[i].info.id = i;
    rt->num_chips = i + 1;
  }
  return AT_OK;
}

// Each process has an equal share from the beginning, also of those that come
// later.
uint32_t at_runtime_own_chips(const at_runtime *rt, uint32_t *first) {
  uint32_t own = rt->num_chips / rt->places;
  *first = rt->me * own;
  return own;
}

at_status at_runtime_prepare_beside(at_runtime *rt) {
  pthread_mutex_lock(&rt->lanes.lock);
  at_status st =
      rt->beside ? AT_OK : at_pool_create(rt->lanes.most, &rt->beside);
  pthread_mutex_unlock(&rt->lanes.lock);
  return st;
}

// Locks exist before anything that needs them.
at_status at_runtime_create(const at_runtime_options *o, at_runtime **out) {
  AT_TRY(at_cpu_check());
  at_runtime *rt = calloc(1, sizeof *rt);
  if (!rt) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for the runtime");
  pthread_mutex_init(&rt->lanes.lock, NULL);
  pthread_mutex_init(&rt->proxy_lock, NULL);
  at_status st = start(rt, o);
  if (st.err) {
    at_runtime_destroy(rt);
    return st;
  }
  *out = rt;
  return AT_OK;
}

// The scheduler first: after it nothing runs. Chips before pools and shared
// memory, from which they have blocks.
void at_runtime_destroy(at_runtime *rt) {
  if (!rt) return;
  at_proxy_end(rt);
  at_sched_destroy(rt->sched);
  for (uint32_t i = 0; i < rt->num_chips; i++) {
    at_chip *c = &rt->chips[i];
    for (at_chip *v; (v = atomic_load(&c->next_view));) {
      atomic_store(&c->next_view, atomic_load(&v->next_view));
      at_chip_fini(v);
      free(v);
    }
    at_chip_fini(c);
  }
  free(rt->chips);
  at_pool_destroy(rt->pool);
  at_pool_destroy(rt->serial);
  at_pool_destroy(rt->beside);
  at_far_sets_free(rt);
  at_far_channels_free(rt);
  at_shared_destroy(rt->shared);
  at_spill_close(rt->spill);
  pthread_mutex_destroy(&rt->lanes.lock);
  pthread_mutex_destroy(&rt->proxy_lock);
  free(rt);
}

uint32_t at_runtime_far_work(const at_runtime *rt) {
  return atomic_load(&rt->far_work);
}

// No far work, so nobody uses channels or sets.
at_status at_runtime_rehost(at_runtime *rt, const at_hosts *hosts) {
  const uint32_t count = rt->hosts ? rt->hosts->count : 1;
  AT_ENSURE(hosts->count >= count && hosts->count <= rt->places &&
            hosts->me == rt->me && !at_runtime_far_work(rt));
  at_far_channels_free(rt);
  at_far_sets_free(rt);
  rt->far_channels = NULL;
  rt->far_sets = NULL;
  rt->hosts = hosts;
  if (!hosts->share) return AT_OK;
  if (rt->shared) return at_shared_renew(rt->shared, hosts->share);
  rt->shared = at_shared_create(hosts->share);
  return rt->shared
             ? AT_OK
             : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for the runtime");
}

// Fibers that wait for events count as idle.
bool at_runtime_busy(at_runtime *rt) {
  return !at_pool_forked(rt->pool) && at_sched_busy(rt->sched);
}

uint32_t at_runtime_num_chips(const at_runtime *rt) { return rt->num_chips; }
at_chip *at_runtime_chip(const at_runtime *rt, uint32_t i) {
  return i < rt->num_chips ? &rt->chips[i] : NULL;
}

// Views of a chip follow it in its list.
at_chip *at_runtime_next_chip(const at_runtime *rt, at_chip *after) {
  at_chip *next = after ? atomic_load(&after->next_view) : NULL;
  if (next) return next;
  uint32_t i = after ? (uint32_t)(after->body - rt->chips) + 1 : 0;
  return i < rt->num_chips ? &rt->chips[i] : NULL;
}

// Without the lock: views are only added, each complete before it is linked.
static at_chip *find_view(at_chip *c, uint32_t number) {
  while (c && c->info.id != number) c = atomic_load(&c->next_view);
  return c;
}

// Looks again under the lock, then adds.
at_chip *at_runtime_view(at_runtime *rt, uint32_t number) {
  at_chip *body = at_runtime_chip(rt, number & ((1u << AT_CHIP_VIEW) - 1));
  if (!body || number >> AT_CHIP_VIEW >= AT_CHIP_VIEWS) return NULL;
  at_chip *c = find_view(body, number);
  if (c) return c;
  pthread_mutex_lock(&body->lock);
  c = find_view(body, number);
  if (!c && (c = calloc(1, sizeof *c))) {
    c->runtime = rt;
    c->info = body->info;
    c->info.id = number;
    c->body = body;
    c->hw = body->hw;
    pthread_mutex_init(&c->lock, NULL);
    atomic_store(&c->next_view, atomic_load(&body->next_view));
    atomic_fetch_add(&rt->num_views, 1);
    atomic_store(&body->next_view, c);
  }
  pthread_mutex_unlock(&body->lock);
  return c;
}

at_pool *at_runtime_pool(const at_runtime *rt) { return rt->pool; }

// FAILED_PRECONDITION in a forked child, whose threads are gone.
at_status at_runtime_check(const at_runtime *rt) {
  if (AT_LIKELY(!at_pool_forked(rt->pool))) return AT_OK;
  return AT_FAIL(AT_FAILED_PRECONDITION,
                 "Atoll was started in a parent process and cannot be used in "
                 "its forked child: a fork copies no threads\n"
                 "hint: multiprocessing.set_start_method(\"spawn\"), or fork "
                 "before the first use of JAX");
}
