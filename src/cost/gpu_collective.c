// Collectives between GPUs: tables inside a fast domain, the S-curve between
// domains, memory traffic of the local buffers on top
// (sol_latency_estimator.cc).
#include <math.h>

#include "cost/cost_internal.h"
#include "cost/gpu.h"

// Bytes that the collective reads and writes in local memory, as XLA counts
// them.
static double local_bytes(const at_collective *c) {
  double bytes = (double)c->bytes, n = c->groups.size;
  double part = n > 0 ? floor(bytes / n) : 0;
  switch (c->op) {
    case AT_ALL_GATHER:
      return part * (2 * n - 1) + part * n;
    case AT_REDUCE_SCATTER:
      return part * n + part * (2 * n - 1);
    case AT_PERMUTE:
      return 3 * bytes;  // the start op has the operand among its results
    default:
      return 2 * bytes;
  }
}

// Arithmetic of a reducing collective on one device.
static double reduction_seconds(const at_target *t, const at_collective *c) {
  if (!t->gpu || (c->op != AT_ALL_REDUCE && c->op != AT_REDUCE_SCATTER))
    return 0;
  double elements = (double)c->bytes / fmax(1, at_dtype_bytes(c->dtype));
  if (c->op == AT_REDUCE_SCATTER) elements /= fmax(1, c->groups.size);
  double work = elements * t->gpu->cycles[AT_OP_ADD][c->dtype];
  // Whole blocks, as XLA counts them, make more elements cheaper now and then.
  if (t->mode != AT_INTERP_XLA)
    return work / (t->gpu->clock * 2 * t->gpu->fpus * t->gpu->cores);
  return at_gpu_compute(t->gpu, work, fmax(1, ceil(elements / 128)), 128);
}

// Members of the first group on the host of its first member, and the hosts it
// spans.
static void spread_of(const at_collective *c, int64_t per_host, int64_t *here,
                      int64_t *hosts) {
  const at_groups *g = &c->groups;
  int64_t last = -1;
  *here = 0, *hosts = 0;
  for (uint32_t i = 0; i < g->size; i++) {
    int64_t host = (g->ids ? g->ids[i] : i) / per_host;
    int64_t first = (g->ids ? g->ids[0] : 0) / per_host;
    *here += host == first;
    if (host != last) ++*hosts;
    last = host;
  }
}

// S-curve of a collective over several domains. XLA mode counts hosts as XLA
// does; else those of the first group are counted.
static at_status between_domains(const at_target *t, const at_collective *c,
                                 at_scheme scheme, int64_t domain,
                                 double *seconds) {
  const at_network *net = &t->network;
  int64_t hosts, communicators = c->groups.count;
  if (c->op == AT_PERMUTE)
    return at_network_ring(net, c->op, c->bytes, 2, 1, seconds);
  if (t->mode == AT_INTERP_XLA) {
    // XLA's own reading: members over domain size, or a host for each member.
    hosts = scheme == AT_SCHEME_RAIL_ALIGNED
                ? c->groups.size / AT_MAX(domain, 1)
                : c->groups.size;
  } else {
    int64_t here;
    spread_of(c, net->devices_per_host, &here, &hosts);
    communicators = AT_MAX(1, net->devices_per_host / AT_MAX(here, 1));
    while (net->devices_per_host % communicators) communicators--;
  }
  hosts = AT_MAX(hosts, 1);
  return c->op == AT_ALL_TO_ALL ? at_network_all_to_all(net, c->bytes, hosts,
                                                        communicators, seconds)
                                : at_network_ring(net, c->op, c->bytes, hosts,
                                                  communicators, seconds);
}

// No table: a ring over the links, after a launch.
static at_status over_links(const at_target *t, const at_collective *c,
                            double *seconds) {
  double links, rate, n = fmax(c->groups.size, 2);
  AT_TRY(at_machine_need(t->machine, "nvlink_links", &links));
  AT_TRY(at_machine_need(t->machine, "nvlink_link_bytes_per_second", &rate));
  double rounds = c->op == AT_ALL_REDUCE ? 2 : 1;
  double share = c->op == AT_PERMUTE || c->op == AT_BROADCAST ? 1 : (n - 1) / n;
  const double launch = 5e-6;  // of a collective kernel, as XLA takes it
  *seconds = launch + rounds * share * (double)c->bytes / (links * rate);
  return AT_OK;
}

// Inside a domain: the user's table, the built-in one, a ring over the links.
// Between domains: the S-curve and the local traffic.
at_status at_gpu_collective(const at_target *t, const at_collective *c,
                            at_cost_time *out) {
  int64_t domain =
      t->network.domain ? t->network.domain : t->network.devices_per_host;
  at_scheme scheme = at_collective_scheme(c, (uint32_t)domain);
  if (scheme == AT_SCHEME_INTRA) {
    const at_perf *tables[2] = {t->user, t->perf};
    for (int i = 0; i < 2; i++) {
      at_status st = tables[i] ? at_perf_collective(tables[i], c, out) : AT_OK;
      if (!tables[i]) continue;
      if (at_ok(st)) return st;
      if (at_status_code(st) != AT_NOT_FOUND) return st;
      at_status_free(st);
    }
    out->source = AT_COST_FROM_ROOFLINE;
    return over_links(t, c, &out->seconds);
  }
  double network;
  AT_TRY(between_domains(t, c, scheme, domain, &network));
  double hbm = t->gpu ? t->gpu->hbm : INFINITY;
  *out =
      (at_cost_time){local_bytes(c) / hbm + reduction_seconds(t, c) + network,
                     AT_COST_FROM_S_CURVE};
  return AT_OK;
}
