// Collectives on a torus of chips: rings along each axis that a group spans,
// both directions where the axis closes, the slower network between slices.
//
// A group is read as a box of coordinates. Along an axis it holds n chips,
// `stride` apart; the groups between them share its links, so that a link
// carries `stride` flows. An all-gather or reduce-scatter uses every axis at
// once; an all-reduce is one of each; an all-to-all is limited by the links
// that cut the longest axis in two. Permutes are routed, axis after axis on the
// shortest way, and the fullest link decides.
#include <math.h>
#include <stdlib.h>

#include "cost/cost_internal.h"

// What a group has of one axis.
typedef struct axis {
  double chips, stride;
  bool ring;
} axis;

typedef struct box {
  axis axes[3];
  double slices, chips;  // that the group spans; chips per slice
  double cores;          // of each chip, in the group
} box;

typedef struct fabric {
  double link, hop;  // bytes per second of a link one way; seconds
  double dcn, dcn_latency;
  int64_t wrap;  // axes of a multiple of it are rings
  double hbm;
} fabric;

// Figures of links and networks, scaled by the target's bandwidth.
static at_status fabric_of(const at_target *t, fabric *f) {
  const at_machine *m = t->machine;
  AT_TRY(at_machine_need(m, "ici_link_bytes_per_second", &f->link));
  f->link *= at_machine_number(m, "ici_efficiency", 1);
  f->hop = at_machine_number(m, "ici_hop_seconds", 0);
  f->wrap = (int64_t)at_machine_number(m, "ici_wrap_multiple", 0);
  f->dcn = at_machine_number(m, "dcn_bytes_per_second_per_chip", 0);
  f->dcn_latency = at_machine_number(m, "dcn_latency_seconds", 0);
  f->hbm = at_machine_number(m, "hbm_bytes_per_second_per_chip", INFINITY);
  if (t->slices > 1)
    AT_TRY(at_machine_need(m, "dcn_bytes_per_second_per_chip", &f->dcn));
  if (t->bandwidth > 0) {
    f->link *= t->bandwidth;
    f->dcn *= t->bandwidth;
  }
  return AT_OK;
}

// Coordinates of a device.
typedef struct place {
  int64_t slice, core, at[3];
} place;

// Devices count cores first, then x, y, z, then slices.
static place place_of(const at_target *t, uint32_t device) {
  place p = {.core = device % t->devices_per_chip};
  int64_t chip = device / t->devices_per_chip;
  for (int i = 0; i < 3; i++) p.at[i] = chip % t->shape[i], chip /= t->shape[i];
  p.slice = chip;
  AT_ASSERT(device >= t->num_devices || p.slice < t->slices);
  return p;
}

// ---- Groups as boxes
// As many as a target has devices: one axis may hold them all.
enum { kMostOnAxis = 1 << 16 };
typedef struct marks {
  uint64_t bits[kMostOnAxis / 64];
} marks;

static void mark(marks *m, int64_t v) {
  AT_ASSERT(v >= 0 && v < kMostOnAxis);
  m->bits[v >> 6] |= 1ull << (v & 63);
}

// The chips marked along an axis of `length`: a ring if they are all of it and
// it wraps.
static axis axis_of(const marks *m, int64_t length, int64_t wrap) {
  int64_t n = 0, first = -1, last = -1;
  AT_ASSERT(length <= kMostOnAxis);
  for (int64_t v = 0; v < length; v++)
    if (m->bits[v >> 6] >> (v & 63) & 1) {
      if (first < 0) first = v;
      last = v, n++;
    }
  axis a = {.chips = (double)AT_MAX(n, 1), .stride = 1};
  if (n > 1) a.stride = (double)(last - first) / (double)(n - 1);
  bool whole = a.chips * a.stride > (double)length - 0.5;
  // The chips that it holds lie inside of it.
  AT_ASSERT(a.stride >= 1 && (a.chips - 1) * a.stride < (double)length);
  a.ring = n > 2 && whole && wrap > 0 && length % wrap == 0;
  return a;
}

// The box around a group. INVALID_ARGUMENT: a device that the target does not
// have.
static at_status box_of(const at_target *t, const fabric *f, const at_groups *g,
                        uint32_t group, box *out) {
  marks axes[3] = {0}, slices = {0}, cores = {0};
  for (uint32_t i = 0; i < g->size; i++) {
    uint32_t id = g->ids ? g->ids[group * g->size + i] : group * g->size + i;
    if (id >= t->num_devices)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "collective: device %u of a target with %u", id,
                     t->num_devices);
    place p = place_of(t, id);
    for (int k = 0; k < 3; k++) mark(&axes[k], p.at[k]);
    mark(&slices, p.slice);
    mark(&cores, p.core);
  }
  *out = (box){.chips = 1};
  for (int k = 0; k < 3; k++) {
    out->axes[k] = axis_of(&axes[k], t->shape[k], f->wrap);
    out->chips *= out->axes[k].chips;
  }
  out->slices = axis_of(&slices, t->slices, 0).chips;
  out->cores = axis_of(&cores, t->devices_per_chip, 0).chips;
  AT_ASSERT(out->chips >= 1 && out->slices >= 1 && out->cores >= 1);
  // Not a box: one ring through the members, without the links of the other
  // axes.
  if (out->chips * out->slices * out->cores > g->size + 0.5) {
    double members = fmax(1, ceil(g->size / out->slices / out->cores));
    double stride = fmax(1, out->chips / members);
    out->axes[0] = (axis){.chips = members, .stride = stride};
    out->axes[1] = out->axes[2] = (axis){.chips = 1, .stride = 1};
    out->chips = members;
  }
  return AT_OK;
}

// ---- Inside a slice
static double link_rate(const at_target *t, const fabric *f, const box *b) {
  // Cores of a chip that are in other groups take their share of its links.
  return f->link * b->cores / t->devices_per_chip;
}

// Every axis works at once; each link carries `stride` flows.
static double gather_seconds(const at_target *t, const fabric *f, const box *b,
                             double bytes) {
  double rate = 0, hops = 0, link = link_rate(t, f, b);
  for (int k = 0; k < 3; k++) {
    const axis *a = &b->axes[k];
    if (a->chips < 2) continue;
    rate += link * (a->ring ? 2 : 1) / a->stride;
    hops += (a->ring ? floor(a->chips / 2) : a->chips - 1) * a->stride;
  }
  double seconds = hops * f->hop;
  if (rate > 0) seconds += bytes * (b->chips - 1) / b->chips / rate;
  if (b->cores > 1) seconds += bytes / f->hbm;  // the cores meet in memory
  return seconds;
}

static double all_to_all_seconds(const at_target *t, const fabric *f,
                                 const box *b, double bytes) {
  double worst = 0, hops = 0, link = link_rate(t, f, b);
  for (int k = 0; k < 3; k++) {
    const axis *a = &b->axes[k];
    if (a->chips < 2) continue;
    // Half of the group sends half of its bytes over the cut: both ways around
    // a ring.
    double cut =
        bytes * b->cores * a->chips * a->stride / (a->ring ? 8 : 4) / link;
    worst = fmax(worst, cut);
    hops += (a->ring ? floor(a->chips / 2) : a->chips - 1) * a->stride;
  }
  if (b->cores > 1) worst += bytes / f->hbm;
  return worst + hops * f->hop;
}

// ---- Between slices
// Every slice sends its share to the others over its NICs.
static double dcn_seconds(const at_target *t, const fabric *f, const box *b,
                          double share) {
  double nic = f->dcn / t->devices_per_chip, others = b->slices - 1;
  if (others < 1) return 0;
  return share * others / b->slices / nic + others * f->dcn_latency;
}

// Inside the slice and between slices, one after the other.
static double grouped_seconds(const at_target *t, const fabric *f, const box *b,
                              at_collective_op op, double bytes) {
  double members = b->chips * b->cores;  // of one slice
  double gather = gather_seconds(t, f, b, bytes);
  double across = dcn_seconds(t, f, b, bytes / members);
  switch (op) {
    case AT_ALL_REDUCE:
      return 2 * (gather + across);
    case AT_ALL_TO_ALL:
      return all_to_all_seconds(t, f, b, bytes) + dcn_seconds(t, f, b, bytes);
    default:
      return gather + across;
  }
}

// ---- Permutes
typedef struct router {
  const at_target *t;
  const fabric *f;
  double *load;  // [chip][axis][direction]
  double hops;   // of the longest way
  bool between_slices;
} router;

// The link that leaves a chip along an axis, up or down.
static size_t link_index(const at_target *t, const int64_t *at, int64_t slice,
                         int axis, bool up) {
  int64_t chip =
      ((slice * t->shape[2] + at[2]) * t->shape[1] + at[1]) * t->shape[0] +
      at[0];
  return ((size_t)chip * 3 + (size_t)axis) * 2 + up;
}

// Loads every link on the way, x before y before z.
static void route(router *r, uint32_t from, uint32_t to) {
  place a = place_of(r->t, from), b = place_of(r->t, to);
  if (a.slice != b.slice) {
    r->between_slices = true;
    return;
  }
  double hops = 0;
  for (int k = 0; k < 3; k++) {
    int64_t n = r->t->shape[k], ahead = b.at[k] - a.at[k];
    bool ring = r->f->wrap > 0 && n % r->f->wrap == 0 && n > 2;
    if (ring && ahead > n / 2) ahead -= n;
    if (ring && ahead < -(n / 2)) ahead += n;
    bool up = ahead > 0;
    for (int64_t s = 0; s < (up ? ahead : -ahead); s++, hops++) {
      r->load[link_index(r->t, a.at, a.slice, k, up)] += 1;
      a.at[k] = (a.at[k] + (up ? 1 : n - 1)) % n;
    }
    AT_ASSERT(a.at[k] == b.at[k]);  // it is there, on the shorter way
    AT_ASSERT(!ring || 2 * llabs(ahead) <= n);
  }
  r->hops = fmax(r->hops, hops);
}

// The fullest link decides, or the network between slices.
static at_status permute_seconds(const at_target *t, const fabric *f,
                                 const at_collective *c, double *out) {
  size_t links = (size_t)t->num_devices / t->devices_per_chip * 6;
  at_arena *a = at_arena_create();
  router r = {.t = t, .f = f, .load = a ? at_new(a, double, links) : NULL};
  at_status st = r.load ? AT_OK : AT_NO_MEMORY("link loads");
  double most = 0;
  for (uint32_t i = 0; i < c->num_pairs && at_ok(st); i++) {
    uint32_t from = c->pairs[i][0], to = c->pairs[i][1];
    if (from >= t->num_devices || to >= t->num_devices)
      st =
          AT_FAIL(AT_INVALID_ARGUMENT, "permute: device %u of a target with %u",
                  AT_MAX(from, to), t->num_devices);
    else if (from != to)
      route(&r, from, to);
  }
  for (size_t i = 0; i < links && at_ok(st); i++) most = fmax(most, r.load[i]);
  at_arena_destroy(a);
  AT_TRY(st);
  double bytes = (double)c->bytes;
  double inside =
      fmax(bytes * most / f->link, bytes / f->hbm) + r.hops * f->hop;
  double across = r.between_slices
                      ? bytes / (f->dcn / t->devices_per_chip) + f->dcn_latency
                      : 0;
  *out = fmax(inside, across);
  AT_ASSERT(*out >= 0);
  return AT_OK;
}

at_status at_torus_collective(const at_target *t, const at_collective *c,
                              double *seconds) {
  fabric f;
  AT_TRY(fabric_of(t, &f));
  if (c->op == AT_PERMUTE) return permute_seconds(t, &f, c, seconds);
  double worst = 0;
  // Groups of one collective are translations of each other in what compilers
  // write; the first, the last and a middle one stand for all.
  uint32_t looked_at[3] = {0, c->groups.count / 2, c->groups.count - 1};
  for (int i = 0; i < 3; i++) {
    box b;
    AT_TRY(box_of(t, &f, &c->groups, looked_at[i], &b));
    double s = grouped_seconds(t, &f, &b, c->op, (double)c->bytes);
    AT_ASSERT(s >= 0);
    worst = fmax(worst, s);
  }
  *seconds = worst;
  return AT_OK;
}
