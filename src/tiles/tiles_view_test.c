// Random views and mappings against a plain reference: an array that says,
// element by element, which variable and which position a view names.
#include "tiles/tiles_test_util.h"

enum { kMaxElements = 4096, kCases = 10000, kVars = 3 };

typedef struct model {  // what a view should be
  const at_tiles_view *v;
  int64_t dims[8], n;
  uint32_t rank;
  int32_t at[kMaxElements];  // variable * kMaxElements + position
} model;

static uint64_t g_seed;
static uint32_t below(uint32_t n) {  // xorshift*
  g_seed ^= g_seed >> 12, g_seed ^= g_seed << 25, g_seed ^= g_seed >> 27;
  return n ? (uint32_t)((g_seed * 0x2545F4914F6CDD1Dull) >> 33) % n : 0;
}

// Index of element i.
static void unravel(int64_t i, const int64_t *dims, uint32_t rank,
                    int64_t *index) {
  for (uint32_t d = rank; d-- > 0;) index[d] = i % dims[d], i /= dims[d];
}
// And back.
static int64_t ravel(const int64_t *index, const int64_t *dims, uint32_t rank) {
  int64_t i = 0;
  for (uint32_t d = 0; d < rank; d++) i = i * dims[d] + index[d];
  return i;
}

// New model of `dims`: each index maps through `from` to an index of the old
// one.
typedef void (*index_fn)(const model *old, int64_t *index, const int64_t *args);
static void rebuild(model *m, const int64_t *dims, uint32_t rank, index_fn from,
                    const int64_t *args) {
  static model old;
  old = *m;
  m->rank = rank;
  m->n = 1;
  for (uint32_t d = 0; d < rank; d++) m->dims[d] = dims[d], m->n *= dims[d];
  for (int64_t i = 0; i < m->n; i++) {
    int64_t index[8];
    unravel(i, m->dims, rank, index);
    from(&old, index, args);
    m->at[i] = old.at[ravel(index, old.dims, old.rank)];
  }
}

// The index in the old view, for each op.
static void of_slice(const model *o, int64_t *x, const int64_t *a) {
  x[a[0]] += a[1];
}
static void of_step(const model *o, int64_t *x, const int64_t *a) {
  x[a[0]] *= a[1];
}
static void of_reverse(const model *o, int64_t *x, const int64_t *a) {
  x[a[0]] = o->dims[a[0]] - 1 - x[a[0]];
}
static void of_repeat(const model *o, int64_t *x, const int64_t *a) {
  x[a[0]] %= o->dims[a[0]];
}
static void of_shuffle(const model *o, int64_t *x, const int64_t *a) {
  int64_t y[8];
  for (uint32_t d = 0; d < o->rank; d++) y[a[d]] = x[d];
  memcpy(x, y, sizeof y);
}

// Other factors of the same number.
static void random_reshape(model *m) {
  int64_t dims[8], n = m->n;
  uint32_t rank = 0;
  while (rank < 6 && n > 1) {
    int64_t f = 2 + below(6);
    if (n % f) f = below(3) ? 1 : n;
    dims[rank++] = f;
    n /= f;
  }
  dims[rank++] = n;
  for (uint32_t d = rank; d > 1; d--) {
    uint32_t k = below(d);
    int64_t t = dims[d - 1];
    dims[d - 1] = dims[k], dims[k] = t;
  }
  ok(at_tiles_view_reshape(m->v, (at_dims){dims, rank}, &m->v));
  memcpy(m->dims, dims, sizeof dims);
  m->rank = rank;
}

// One op on the view and on its model.
static void random_op(model *m) {
  int64_t dims[8], args[8];
  memcpy(dims, m->dims, sizeof dims);
  uint32_t d = below(m->rank);
  args[0] = d;
  switch (below(8)) {
    case 0: {
      int64_t b = below((uint32_t)dims[d] + 1),
              e = b + below((uint32_t)(dims[d] - b) + 1);
      if (e == b && below(20)) return;  // mostly not empty
      ok(at_tiles_view_slice(m->v, d, b, e, &m->v));
      dims[d] = e - b, args[1] = b;
      return rebuild(m, dims, m->rank, of_slice, args);
    }
    case 1:
      args[1] = 1 + below(4);
      ok(at_tiles_view_subsample(m->v, d, args[1], &m->v));
      dims[d] = (dims[d] + args[1] - 1) / args[1];
      return rebuild(m, dims, m->rank, of_step, args);
    case 2:
      ok(at_tiles_view_reverse(m->v, d, &m->v));
      return rebuild(m, dims, m->rank, of_reverse, args);
    case 3: {
      int64_t times = 1 + below(3);
      if (m->n * times > kMaxElements) return;
      ok(at_tiles_view_broadcast(m->v, d, times, &m->v));
      dims[d] *= times;
      return rebuild(m, dims, m->rank, of_repeat, args);
    }
    case 4:
      for (uint32_t i = 0; i < m->rank; i++) args[i] = i;
      for (uint32_t i = m->rank; i > 1; i--) {
        uint32_t k = below(i);
        int64_t t = args[i - 1];
        args[i - 1] = args[k], args[k] = t;
      }
      for (uint32_t i = 0; i < m->rank; i++) dims[i] = m->dims[args[i]];
      ok(at_tiles_view_dimshuffle(m->v, (at_dims){args, m->rank}, &m->v));
      return rebuild(m, dims, m->rank, of_shuffle, args);
    case 5:
      ok(at_tiles_view_flatten(m->v, &m->v));
      m->dims[0] = m->n, m->rank = 1;
      return;
    default:
      return random_reshape(m);
  }
}

// Only where the shapes allow it.
static void random_concat(model *a, const model *b) {
  if (a->rank != b->rank || a->n + b->n > kMaxElements) return;
  uint32_t dim = below(a->rank);
  for (uint32_t d = 0; d < a->rank; d++)
    if (d != dim && a->dims[d] != b->dims[d]) return;
  static model old;
  old = *a;
  ok(at_tiles_view_concat((const at_tiles_view *[]){a->v, b->v}, 2, dim,
                          &a->v));
  a->dims[dim] += b->dims[dim];
  a->n += b->n;
  for (int64_t i = 0; i < a->n; i++) {
    int64_t x[8];
    unravel(i, a->dims, a->rank, x);
    bool first = x[dim] < old.dims[dim];
    if (!first) x[dim] -= old.dims[dim];
    const model *from = first ? &old : b;
    a->at[i] = from->at[ravel(x, from->dims, from->rank)];
  }
}

// Some ops after one another on one or two variables.
static void random_view(at_tiles_graph *g, const at_tiles_view *const *vars,
                        model *m) {
  static model other;
  model *parts[] = {m, &other};
  uint32_t both = 1 + below(2), which[2];
  for (uint32_t p = 0; p < both; p++) {
    model *x = parts[p];
    which[p] = below(kVars);
    x->v = vars[which[p]];
    at_dims d = at_tiles_view_dims(x->v);
    x->rank = d.rank;
    memcpy(x->dims, d.ptr, d.rank * sizeof *d.ptr);
    x->n = at_tiles_view_elements(x->v);
    for (int64_t i = 0; i < x->n; i++)
      x->at[i] = (int32_t)(which[p] * kMaxElements + i);
  }
  if (both == 2) {
    if (below(2)) random_op(&other);
    random_concat(m, &other);
  }
  for (uint32_t i = below(7); i > 0; i--) {
    random_op(m);
    if (below(4) == 0) {
      other = *m;
      if (below(2)) random_op(&other);
      random_concat(m, &other);
    }
  }
}

// Rank, sizes and number of elements.
static void check_dims(const model *m) {
  at_dims d = at_tiles_view_dims(m->v);
  assert_int_equal(d.rank, m->rank);
  for (uint32_t i = 0; i < d.rank; i++) assert_int_equal(d.ptr[i], m->dims[i]);
  assert_int_equal(at_tiles_view_elements(m->v), m->n);
}

// Every element once, in order, of any stretch.
static void check_runs(const model *m) {
  at_tiles_runs r = {0};
  int64_t b = below((uint32_t)m->n + 1),
          e = b + below((uint32_t)(m->n - b) + 1);
  if (below(2)) b = 0, e = m->n;
  ok(at_tiles_view_runs(m->v, b, e, &r));
  int64_t at = b;
  for (size_t i = 0; i < r.len; i++)
    for (int64_t k = 0; k < r.ptr[i].count; k++, at++)
      if (m->at[at] !=
          r.ptr[i].var * kMaxElements + r.ptr[i].begin + k * r.ptr[i].step)
        fail_msg("element %lld is variable %u[%lld], not %d", (long long)at,
                 r.ptr[i].var, (long long)(r.ptr[i].begin + k * r.ptr[i].step),
                 m->at[at]);
  assert_int_equal(at, e);
  free(r.ptr);
}

// Values through the view, read and written.
static void check_values(const at_tiles_view *const *vars, const model *m) {
  static float all[kVars][kMaxElements], got[kMaxElements];
  for (int v = 0; v < kVars; v++) {
    for (int i = 0; i < kMaxElements; i++) all[v][i] = (float)below(1 << 20);
    ok(at_tiles_write(vars[v], all[v],
                      (size_t)at_tiles_view_elements(vars[v]) * 4));
  }
  ok(at_tiles_read(m->v, got, (size_t)m->n * 4));
  for (int64_t i = 0; i < m->n; i++)
    assert_true(got[i] ==
                all[m->at[i] / kMaxElements][m->at[i] % kMaxElements]);
}

// Homes in a plain array; the library must agree on every element, whatever
// order and view they were set through.
static void check_mapping(const at_tiles_graph *g, const model *m) {
  static uint32_t home[kVars][kMaxElements];
  memset(home, 0xff, sizeof home);
  int64_t at = 0;
  while (at <
         m->n) {  // pieces of the view, each on a tile, where nothing is yet
    const at_tiles_view *flat, *piece;
    int64_t end = at + 1 + below(200);
    end = AT_MIN(m->n, end);
    uint32_t tile = below(1472);
    bool clash = false;
    for (int64_t i = at; i < end; i++) {
      uint32_t h = home[m->at[i] / kMaxElements][m->at[i] % kMaxElements];
      clash |= h != AT_TILES_NOWHERE && h != tile;
    }
    ok(at_tiles_view_flatten(m->v, &flat));
    ok(at_tiles_view_slice(flat, 0, at, end, &piece));
    at_status st = at_tiles_mapping_set(piece, tile);
    if (clash) {
      assert_int_equal(at_code_take(st), AT_FAILED_PRECONDITION);
    } else {
      ok(st);
      for (int64_t i = at; i < end; i++)
        home[m->at[i] / kMaxElements][m->at[i] % kMaxElements] = tile;
    }
    at = end;
  }
  at_tiles_mapping map = {0};
  ok(at_tiles_mapping_get(m->v, &map));
  at = 0;
  for (size_t i = 0; i < map.len; i++) {
    assert_int_equal(map.ptr[i].begin, at);
    if (i) assert_true(map.ptr[i].tile != map.ptr[i - 1].tile);
    for (; at < map.ptr[i].end; at++)
      assert_int_equal(home[m->at[at] / kMaxElements][m->at[at] % kMaxElements],
                       map.ptr[i].tile);
  }
  assert_int_equal(at, m->n);
  // The sum of the parts is the whole: bytes by tile, regions by tile.
  static int64_t bytes[1472];
  int64_t sum = 0, count = 0;
  at_tiles_mapping_bytes(g, bytes);
  for (int t = 0; t < 1472; t++) sum += bytes[t];
  for (int v = 0; v < kVars; v++)
    for (int i = 0; i < kMaxElements; i++)
      count += home[v][i] != AT_TILES_NOWHERE;
  assert_int_equal(sum, 4 * count);
  if (map.len) {
    at_tiles_regions r = {0};
    uint32_t tile = map.ptr[below((uint32_t)map.len)].tile;
    ok(at_tiles_regions_of(m->v, tile, &r));
    int64_t in = 0, want = 0;
    for (size_t i = 0; i < r.len; i++) in += r.ptr[i].end - r.ptr[i].begin;
    for (size_t i = 0; i < map.len; i++)
      want += map.ptr[i].tile == tile ? map.ptr[i].end - map.ptr[i].begin : 0;
    assert_int_equal(in, want);
    free(r.ptr);
  }
  free(map.ptr);
}

// Three variables of one to four dimensions.
static at_tiles_graph *random_graph(const at_tiles_view **vars) {
  at_tiles_graph *g = graph();
  static const char *const names[kVars] = {"a", "b", "c"};
  for (int i = 0; i < kVars; i++) {
    int64_t dims[4];
    uint32_t rank = 1 + below(4);
    for (uint32_t d = 0; d < rank; d++)
      dims[d] = 1 + below(rank == 1 ? 900 : rank == 2 ? 30 : 8);
    vars[i] = variable(g, names[i], (at_dims){dims, rank});
  }
  return g;
}

// Dimensions, runs, values and mappings of each.
static void random_views_are_element_exact(void **state) {
  static model m;
  for (int c = 0; c < kCases; c++) {
    g_seed = 0x9e3779b97f4a7c15ull * (uint64_t)(c + 1);
    const at_tiles_view *vars[kVars];
    at_tiles_graph *g = random_graph(vars);
    random_view(g, vars, &m);
    check_dims(&m);
    check_runs(&m);
    if (c % 4 == 0) check_values(vars, &m);
    if (m.n) check_mapping(g, &m);
    at_tiles_graph_destroy(g);
  }
}

static int by_int(const void *a, const void *b) {
  return (*(const int32_t *)a > *(const int32_t *)b) -
         (*(const int32_t *)a < *(const int32_t *)b);
}

// Reordering keeps pairs together and every element once.
static void reordering_keeps_pairs(void **state) {
  static model m;
  static int32_t want[kMaxElements];
  for (int c = 0; c < 500; c++) {
    g_seed = 0xda942042e4dd58b5ull * (uint64_t)(c + 1);
    const at_tiles_view *vars[kVars], *out[2], *other;
    at_tiles_graph *g = random_graph(vars);
    random_view(g, vars, &m);
    if (m.n) {
      other = variable(g, "other", (at_dims){m.dims, m.rank});
      ok(at_tiles_view_reorder((const at_tiles_view *[]){m.v, other}, 2, out));
      at_tiles_runs a = {0}, b = {0};
      ok(at_tiles_view_runs(out[0], 0, m.n, &a));
      int64_t k = 0, last = -1;
      for (size_t i = 0; i < a.len; i++)
        for (int64_t j = 0; j < a.ptr[i].count; j++)
          want[k++] = (int32_t)(a.ptr[i].var * kMaxElements + a.ptr[i].begin +
                                j * a.ptr[i].step);
      ok(at_tiles_view_runs(out[1], 0, m.n, &b));
      k = 0;
      for (size_t i = 0; i < b.len; i++)
        for (int64_t j = 0; j < b.ptr[i].count; j++, k++)
          assert_int_equal(want[k], m.at[b.ptr[i].begin + j * b.ptr[i].step]);
      assert_int_equal(k, m.n);
      for (size_t i = 0; i < a.len; i++) {
        assert_true((int64_t)a.ptr[i].var >= last || i == 0);
        last = a.ptr[i].var;
      }
      qsort(want, (size_t)m.n, sizeof *want, by_int);
      free(a.ptr);
      free(b.ptr);
    }
    at_tiles_graph_destroy(g);
  }
}

// Grains stay whole, tiles get their least, and the load is even.
static void linear_mapping_follows_the_rule(void **state) {
  for (int c = 0; c < 300; c++) {
    g_seed = 77 * (uint64_t)(c + 1);
    at_tiles_graph *g = graph();
    int64_t n = 1 + below(c % 3 ? 3000 : 400000), grain = 1 + below(9),
            least = 4 * (1 + below(60));
    const at_tiles_view *v = variable(g, "v", DIMS(n));
    ok(at_tiles_mapping_linear(v, grain, least));
    at_tiles_mapping m = {0};
    ok(at_tiles_mapping_get(v, &m));
    int64_t most = 0, fewest = INT64_MAX;
    for (size_t i = 0; i < m.len; i++) {
      int64_t k = m.ptr[i].end - m.ptr[i].begin;
      assert_int_equal(m.ptr[i].tile, i);
      assert_true(m.ptr[i].begin % grain == 0);
      most = AT_MAX(most, k);
      if (i + 1 < m.len) fewest = AT_MIN(fewest, k);
      if (m.len > 1 && i + 1 < m.len) assert_true(k * 4 >= least);
    }
    if (m.len > 1) assert_true(most - fewest <= grain);
    assert_true(m.len <= 1472);
    free(m.ptr);
    at_tiles_graph_destroy(g);
  }
}

// By hand.
static void regions_are_split_for_workers(void **state) {
  at_tiles_graph *g = graph();
  const at_tiles_view *v = variable(g, "v", DIMS(1000)), *a, *b, *c;
  ok(at_tiles_view_slice(v, 0, 0, 301, &a));
  ok(at_tiles_view_slice(v, 0, 500, 1000, &b));
  ok(at_tiles_view_concat((const at_tiles_view *[]){b, a}, 2, 0, &c));
  ok(at_tiles_mapping_set(c, 9));
  at_tiles_regions r = {0}, s = {0};
  ok(at_tiles_regions_of(c, 9, &r));
  assert_int_equal(r.groups, 2);
  assert_int_equal(r.ptr[0].begin, 500);  // memory's order, not the view's
  for (int64_t most = 0; most <= 40; most += 40) {
    ok(at_tiles_regions_split(&r, 6, 4, most, &s));
    int64_t sum = 0, size[64] = {0};
    for (size_t i = 0; i < s.len; i++)
      size[s.ptr[i].group] += s.ptr[i].end - s.ptr[i].begin;
    for (uint32_t i = 0; i < s.groups; i++) {
      sum += size[i];
      if (i + 1 < s.groups) assert_true(size[i] % 4 == 0);
      if (most) assert_true(size[i] <= most);
    }
    assert_int_equal(sum, 801);
    if (!most) assert_int_equal(s.groups, 6);
    free(s.ptr);
  }
  free(r.ptr);
  expect(at_tiles_regions_split(&r, 0, 4, 0, &s), AT_INVALID_ARGUMENT,
         "0 parts");
  at_tiles_graph_destroy(g);
}

// A dimension of one element may be subsampled for ever.
static void steps_do_not_add_up(void **state) {
  at_tiles_graph *g = graph();
  const at_tiles_view *v = variable(g, "v", DIMS(3, 5));
  float in[15], out[5];
  for (int i = 0; i < 15; i++) in[i] = (float)i;
  ok(at_tiles_write(v, in, sizeof in));
  ok(at_tiles_view_slice(v, 0, 2, 3, &v));
  for (int i = 0; i < 40; i++)
    ok(at_tiles_view_subsample(v, 0, i % 2 ? 250 : INT64_MAX, &v));
  ok(at_tiles_read(v, out, sizeof out));
  for (int i = 0; i < 5; i++) assert_true(out[i] == (float)(10 + i));
  at_tiles_graph_destroy(g);
}

// Padding is there, and no element of the logical view.
static void layouts_pad_channels(void **state) {
  for (int form = 0; form < 2; form++) {
    at_tiles_graph *g = graph();
    const at_tiles_view *v, *padded;
    ok(at_tiles_layout_add(g, "x", AT_F32,
                           form ? AT_TILES_NHC4W4 : AT_TILES_NC4HW4, 2, 3, 5, 6,
                           &v, &padded));
    assert_int_equal(at_tiles_view_elements(padded), 2 * 3 * 5 * 8);
    static float in[2 * 3 * 5 * 6], raw[2 * 3 * 5 * 8];
    for (int i = 0; i < 180; i++) in[i] = (float)(i + 1);
    ok(at_tiles_write(v, in, sizeof in));
    ok(at_tiles_read(padded, raw, sizeof raw));
    for (int n = 0; n < 2; n++)
      for (int h = 0; h < 3; h++)
        for (int w = 0; w < 5; w++)
          for (int c = 0; c < 8; c++) {
            int at = form ? (((n * 3 + h) * 2 + c / 4) * 5 + w) * 4 + c % 4
                          : (((n * 2 + c / 4) * 3 + h) * 5 + w) * 4 + c % 4;
            float want = c < 6 ? in[((n * 3 + h) * 5 + w) * 6 + c] : 0;
            assert_true(raw[at] == want);
          }
    at_tiles_graph_destroy(g);
  }
}

// Each with a part of what is said.
static void wrong_views_are_refused(void **state) {
  at_tiles_graph *g = graph();
  const at_tiles_view *v = variable(g, "v", DIMS(4, 6)), *o,
                      *w = variable(g, "w", DIMS(4, 5));
  expect(at_tiles_view_slice(v, 2, 0, 1, &o), AT_INVALID_ARGUMENT,
         "dimension 2");
  expect(at_tiles_view_slice(v, 1, 3, 7, &o), AT_OUT_OF_RANGE, "[3, 7)",
         "6 elements");
  expect(at_tiles_view_slice(v, 1, 3, 2, &o), AT_OUT_OF_RANGE, "[3, 2)");
  expect(at_tiles_view_reshape(v, DIMS(5, 5), &o), AT_INVALID_ARGUMENT,
         "24 elements");
  expect(at_tiles_view_reshape(v, DIMS(-4, -6), &o), AT_INVALID_ARGUMENT,
         "24 elements");
  expect(at_tiles_view_dimshuffle(v, DIMS(0, 0), &o), AT_INVALID_ARGUMENT,
         "permutation");
  expect(at_tiles_view_dimshuffle(v, DIMS(1), &o), AT_INVALID_ARGUMENT,
         "permutation");
  expect(at_tiles_view_concat((const at_tiles_view *[]){v, w}, 2, 0, &o),
         AT_INVALID_ARGUMENT, "view 1");
  expect(at_tiles_view_concat(NULL, 0, 0, &o), AT_INVALID_ARGUMENT, "nothing");
  expect(at_tiles_view_subsample(v, 0, 0, &o), AT_INVALID_ARGUMENT, "step 0");
  expect(at_tiles_view_broadcast(v, 0, -1, &o), AT_INVALID_ARGUMENT,
         "-1 times");
  expect(at_tiles_variable_add(g, "v", AT_F32, DIMS(1), &o), AT_ALREADY_EXISTS,
         "tensor v");
  expect(at_tiles_variable_add(g, "t", AT_TOKEN, DIMS(1), &o),
         AT_INVALID_ARGUMENT, "tensor t");
  expect(at_tiles_variable_add(g, "n", AT_F32, DIMS(-1), &o),
         AT_INVALID_ARGUMENT, "tensor n", "-1");
  expect(at_tiles_variable_add(g, "h", AT_F32, DIMS(1ll << 40, 1ll << 40), &o),
         AT_INVALID_ARGUMENT, "2^46");
  expect(at_tiles_mapping_set(v, 1472), AT_OUT_OF_RANGE, "tensor v",
         "tile 1472");
  at_tiles_interval last = {24, 24, 1472};  // of nothing, behind the last
  at_tiles_mapping nowhere = {&last, 1, 1};
  expect(at_tiles_mapping_set_all(v, &nowhere), AT_OUT_OF_RANGE,
         "of no elements", "tile 1472");
  expect(at_tiles_mapping_check(v), AT_FAILED_PRECONDITION, "tensor v",
         "[0, 24)");
  float x[3];
  expect(at_tiles_read(v, x, sizeof x), AT_INVALID_ARGUMENT, "12 bytes");
  at_tiles_graph_destroy(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_views_are_element_exact),
      cmocka_unit_test(reordering_keeps_pairs),
      cmocka_unit_test(linear_mapping_follows_the_rule),
      cmocka_unit_test(regions_are_split_for_workers),
      cmocka_unit_test(steps_do_not_add_up),
      cmocka_unit_test(layouts_pad_channels),
      cmocka_unit_test(wrong_views_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
