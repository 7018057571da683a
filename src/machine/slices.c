// Shapes of slices. A description lists those that the cloud offers
// (slice_shapes), and, for chips that are wired as cubes, the side of a cube,
// of which larger slices are made up. Shapes are compared with their sides in
// ascending order, since a slice may be turned.
#include "machine/topology_internal.h"

// More chips than a pod may have, or than a side of one.
enum { kMostChips = 1 << 20 };

// Clamped as a double: the conversion of what does not fit would be undefined.
int64_t at_slices_whole(const at_machine *m, const char *figure,
                        double absent) {
  return (int64_t)AT_MIN(at_machine_number(m, figure, absent),
                         (double)kMostChips);
}

// UINT64_MAX where the product does not fit.
uint64_t at_slices_chips(const int64_t shape[3]) {
  uint64_t n = 1;
  for (int i = 0; i < 3; i++)
    if (__builtin_mul_overflow(n, (uint64_t)shape[i], &n)) return UINT64_MAX;
  return n;
}

// Three sides in ascending order.
static void sort(const int64_t shape[3], int64_t out[3]) {
  memcpy(out, shape, 3 * sizeof *out);
  for (int i = 0; i < 3; i++)
    for (int k = i + 1; k < 3; k++)
      if (out[k] < out[i]) {
        int64_t v = out[i];
        out[i] = out[k], out[k] = v;
      }
  AT_ASSERT(out[0] <= out[1] && out[1] <= out[2]);
}

// "2x4" or "2x2x4" at the start of *s, and the blank behind it.
static bool take_shape(at_str *s, int64_t shape[3]) {
  int dims = 0;
  shape[0] = shape[1] = shape[2] = 1;
  for (int64_t v = 0; dims < 3; s->ptr++, s->len--) {
    bool digit = s->len && *s->ptr >= '0' && *s->ptr <= '9';
    if (digit) {
      v = AT_MIN(v * 10 + (*s->ptr - '0'), kMostChips);
      continue;
    }
    if (v) shape[dims++] = v;
    if (!v || !s->len) return dims > 0;
    if (*s->ptr == ' ') return s->ptr++, s->len--, true;
    v = 0;
  }
  return true;
}

// Absent sides are 1.
bool at_slices_shape(const at_machine *m, const char *figure,
                     int64_t shape[3]) {
  at_figure f;
  return at_machine_figure(m, figure, &f) && take_shape(&f.text, shape);
}

// A shape fits turned in any way, so sorted sides are compared.
bool at_slices_fits(const int64_t shape[3], const int64_t within[3]) {
  int64_t a[3], b[3];
  sort(shape, a), sort(within, b);
  return a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2];
}

// Calls visit for each shape, sides in ascending order: those that are listed,
// then those of whole cubes.
static void for_each(const at_machine *m,
                     void (*visit)(void *ctx, const int64_t shape[3]),
                     void *ctx) {
  at_figure listed;
  int64_t s[3];
  at_machine_figure(m, "slice_shapes", &listed);
  while (take_shape(&listed.text, s)) {
    int64_t sorted[3];
    sort(s, sorted);
    visit(ctx, sorted);
  }
  int64_t side = at_slices_whole(m, "slice_cube_chips_per_side", 0);
  int64_t most = at_slices_whole(m, "pod_chips", 0);
  for (s[0] = side; side && s[0] * s[0] * s[0] <= most; s[0] += side)
    for (s[1] = s[0]; s[0] * s[1] * s[1] <= most; s[1] += side)
      for (s[2] = s[1]; s[0] * s[1] * s[2] <= most; s[2] += side) visit(ctx, s);
}

// What a walk over all shapes finds: the one that is wanted, one of as many
// chips, and the nearest with fewer and with more.
typedef struct search {
  uint64_t chips;
  int64_t wanted[3];
  bool offered;
  int64_t same[3], less[3], more[3];  // all 0: none
} search;

// Of as many chips, the shape with the shorter sides.
static void keep_shorter(int64_t kept[3], const int64_t s[3]) {
  int64_t was = kept[0] + kept[1] + kept[2], now = s[0] + s[1] + s[2];
  if (!was || now < was) memcpy(kept, s, 3 * sizeof *kept);
}

// One shape of the walk; `ctx` is the search.
static void look(void *ctx, const int64_t s[3]) {
  search *f = ctx;
  uint64_t n = at_slices_chips(s), least = at_slices_chips(f->more),
           most = at_slices_chips(f->less);
  f->offered |= !memcmp(s, f->wanted, sizeof f->wanted);
  if (n == f->chips) keep_shorter(f->same, s);
  if (n < f->chips && n >= most) {
    if (n > most) memset(f->less, 0, sizeof f->less);
    keep_shorter(f->less, s);
  }
  if (n > f->chips && (!least || n <= least)) {
    if (n < least) memset(f->more, 0, sizeof f->more);
    keep_shorter(f->more, s);
  }
}

// One walk over all shapes, which are some hundred for the largest pods.
static search search_for(const at_machine *m, const int64_t shape[3]) {
  search f = {.chips = at_slices_chips(shape)};
  sort(shape, f.wanted);
  for_each(m, look, &f);
  AT_ASSERT(!f.same[0] || at_slices_chips(f.same) == f.chips);
  AT_ASSERT(!f.less[0] || at_slices_chips(f.less) < f.chips);
  AT_ASSERT(!f.more[0] || at_slices_chips(f.more) > f.chips);
  return f;
}

// By a walk over all shapes of the pod.
bool at_slices_offered(const at_machine *m, const int64_t shape[3]) {
  return search_for(m, shape).offered;
}

// The order in which the cloud writes a shape's sides: the plane of a host
// first ("2x2x1"), ascending otherwise.
static void in_order(const at_machine *m, int64_t s[3]) {
  bool flat = at_machine_number(m, "topology_dims", 3) < 3;
  if (s[0] == 1 && (flat || s[1] * s[2] <= 4)) {
    s[0] = s[1], s[1] = s[2], s[2] = 1;
  }
}

// Looks for a shape of so many chips, whatever its sides.
bool at_slices_find(const at_machine *m, uint64_t chips, int64_t shape[3]) {
  if (chips > INT64_MAX) return false;
  search f = search_for(m, (int64_t[3]){(int64_t)chips, 1, 1});
  if (!f.same[0]) return false;
  memcpy(shape, f.same, sizeof f.same);
  in_order(m, shape);
  AT_ASSERT(at_slices_chips(shape) == chips);
  return true;
}

// Two dimensions for chips that are wired in two, else three.
void at_slices_print(const at_machine *m, const int64_t shape[3],
                     at_strbuf *out) {
  bool flat = at_machine_number(m, "topology_dims", 3) < 3 && shape[2] == 1;
  at_strbuf_addf(out, ":%lldx%lld", (long long)shape[0], (long long)shape[1]);
  if (!flat) at_strbuf_addf(out, "x%lld", (long long)shape[2]);
}

// Appends one shape with its accelerator type; nothing for the empty shape.
static void put(const at_machine *m, int64_t s[3], at_strbuf *out) {
  int64_t per = at_slices_whole(m, "accelerator_type_cores_per_chip", 1);
  if (!s[0]) return;
  in_order(m, s);
  at_strbuf_addf(out, "%s%s", out->len ? ", " : "", m->name);
  at_slices_print(m, s, out);
  unsigned long long count = at_slices_chips(s) * (unsigned long long)per;
  at_strbuf_addf(out, " (%s-%llu)", m->name, count);
}

// Shapes of the same size go first; only where there are none, the next smaller
// and larger.
void at_slices_nearest(const at_machine *m, const at_topology_text *t,
                       at_strbuf *out) {
  search f = search_for(m, t->shape);
  put(m, f.same, out);
  if (f.same[0]) return;
  put(m, f.less, out);
  put(m, f.more, out);
}
