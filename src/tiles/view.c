// Views: boxes of strided elements, so that slices, transposes and
// concatenations of large tensors cost as many pieces as they have, not as many
// elements.
// A piece covers the box [lo, lo + size) of the view's positions; the element
// at position x is number offset + sum of (x - lo) * stride of its variable, or
// of the view below it (`of`) where a reshape could not be said by strides. The
// boxes of a view are disjoint and cover it (is_covered). Operations make a new
// view from the pieces of the old one; pieces of a flat view are sorted by
// position, for runs.c to search in.
#include "base/verify.h"
#include "tiles/tiles_internal.h"

at_dtype at_tiles_view_dtype(const at_tiles_view *v) { return v->dtype; }
at_dims at_tiles_view_dims(const at_tiles_view *v) {
  return (at_dims){v->dims, v->rank};
}
int64_t at_tiles_view_elements(const at_tiles_view *v) { return v->elements; }

// Room for n pieces, their boxes in one block; none is there yet.
at_status at_tiles_view_new(at_tiles_graph *g, at_dtype t, at_dims dims,
                            uint32_t n, at_tiles_view **out) {
  at_arena *a = g->arena;
  at_tiles_view *v;
  int64_t *own, *boxes;
  AT_TRY_ALLOC(v, at_new(a, at_tiles_view, 1));
  AT_TRY_ALLOC(own, at_new(a, int64_t, dims.rank + 1));
  AT_TRY_ALLOC(v->pieces, at_new(a, at_tiles_piece, (size_t)n + 1));
  AT_TRY_ALLOC(boxes, at_new(a, int64_t, at_mul(3 * (size_t)dims.rank, n) + 1));
  v->graph = g;
  v->dtype = t;
  v->rank = dims.rank;
  v->dims = own;
  v->elements = 1;
  for (uint32_t d = 0; d < dims.rank; d++) {
    own[d] = dims.ptr[d];
    if (__builtin_mul_overflow(v->elements, dims.ptr[d], &v->elements) ||
        v->elements > 1ll << 46)
      return AT_FAIL(AT_INVALID_ARGUMENT, "a view of more than 2^46 elements");
  }
  for (uint32_t i = 0; i < n; i++, boxes += 3 * dims.rank) {
    v->pieces[i].lo = boxes;
    v->pieces[i].size = boxes + dims.rank;
    v->pieces[i].stride = boxes + 2 * dims.rank;
  }
  *out = v;
  return AT_OK;
}

// The pieces are boxes inside of the view, and have as many elements as it has:
// each position is in one.
static bool is_covered(const at_tiles_view *v) {
  int64_t all = 0;
  for (uint32_t i = 0; i < v->num_pieces; i++) {
    const at_tiles_piece *p = &v->pieces[i];
    int64_t n = 1;
    for (uint32_t d = 0; d < v->rank; d++) {
      if (p->lo[d] < 0 || p->size[d] < 0 || p->lo[d] + p->size[d] > v->dims[d])
        return false;
      n *= p->size[d];
    }
    all += n;
  }
  return all == v->elements;
}

// All of a piece but its arrays, which are `to`'s own.
static void piece_copy(at_tiles_piece *to, const at_tiles_piece *from,
                       uint32_t rank) {
  to->of = from->of;
  to->var = from->var;
  to->offset = from->offset;
  for (uint32_t d = 0; d < rank; d++) {
    to->lo[d] = from->lo[d];
    to->size[d] = from->size[d];
    to->stride[d] = from->stride[d];
  }
}

// Appends a copy of p, a piece of the same rank; returns it.
static at_tiles_piece *add_piece(at_tiles_view *v, const at_tiles_piece *p) {
  at_tiles_piece *q = &v->pieces[v->num_pieces++];
  piece_copy(q, p, v->rank);
  return q;
}

// INVALID_ARGUMENT unless v has dimension `dim`; op names the caller.
static at_status need_dim(const at_tiles_view *v, uint32_t dim,
                          const char *op) {
  if (dim >= v->rank)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s: dimension %u of a view of rank %u",
                   op, dim, v->rank);
  return AT_OK;
}

// A view like v, with dimension dim of another size and room for n pieces.
static at_status resized(const at_tiles_view *v, uint32_t dim, int64_t size,
                         uint32_t n, at_tiles_view **out) {
  AT_TRY(at_tiles_view_new(v->graph, v->dtype, at_tiles_view_dims(v), n, out));
  ((int64_t *)(*out)->dims)[dim] = size;
  int64_t all = 1;
  for (uint32_t d = 0; d < v->rank; d++)
    if (__builtin_mul_overflow(all, (*out)->dims[d], &all) || all > 1ll << 46)
      return AT_FAIL(AT_INVALID_ARGUMENT, "a view of more than 2^46 elements");
  (*out)->elements = all;
  return AT_OK;
}

// The part of each box that lies in the slice, moved to its beginning.
at_status at_tiles_view_slice(const at_tiles_view *v, uint32_t dim,
                              int64_t begin, int64_t end,
                              const at_tiles_view **out) {
  AT_TRY(need_dim(v, dim, "slice"));
  if (begin < 0 || end < begin || end > v->dims[dim])
    return AT_FAIL(
        AT_OUT_OF_RANGE,
        "slice [%lld, %lld) of dimension %u, which has %lld elements",
        (long long)begin, (long long)end, dim, (long long)v->dims[dim]);
  at_tiles_view *r;
  AT_TRY(resized(v, dim, end - begin, v->num_pieces, &r));
  for (uint32_t i = 0; i < v->num_pieces; i++) {
    const at_tiles_piece *p = &v->pieces[i];
    int64_t lo = AT_MAX(p->lo[dim], begin);
    int64_t hi = AT_MIN(p->lo[dim] + p->size[dim], end);
    if (lo >= hi) continue;
    at_tiles_piece *q = add_piece(r, p);
    q->offset += (lo - p->lo[dim]) * p->stride[dim];
    q->lo[dim] = lo - begin;
    q->size[dim] = hi - lo;
  }
  AT_VERIFY(is_covered(r));
  *out = r;
  return AT_OK;
}

// A slice of one, without its first dimension.
at_status at_tiles_view_at(const at_tiles_view *v, int64_t i,
                           const at_tiles_view **out) {
  const at_tiles_view *s;
  AT_TRY(at_tiles_view_slice(v, 0, i, i + 1, &s));
  return at_tiles_view_reshape(s, (at_dims){v->dims + 1, v->rank - 1}, out);
}

// All pieces, each view's behind those before it.
at_status at_tiles_view_concat(const at_tiles_view *const *v, uint32_t n,
                               uint32_t dim, const at_tiles_view **out) {
  if (!n) return AT_FAIL(AT_INVALID_ARGUMENT, "concat of nothing");
  AT_TRY(need_dim(v[0], dim, "concat"));
  int64_t size = 0;
  size_t pieces = 0;
  for (uint32_t i = 0; i < n; i++) {
    bool same = v[i]->graph == v[0]->graph && v[i]->dtype == v[0]->dtype &&
                v[i]->rank == v[0]->rank;
    for (uint32_t d = 0; same && d < v[0]->rank; d++)
      same = d == dim || v[i]->dims[d] == v[0]->dims[d];
    if (!same)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "concat: view %u has another type or shape than view 0",
                     i);
    size += v[i]->dims[dim];
    pieces += v[i]->num_pieces;
  }
  if (pieces > UINT32_MAX / 4) return AT_NO_MEMORY("concat");
  at_tiles_view *r;
  AT_TRY(resized(v[0], dim, size, (uint32_t)pieces, &r));
  int64_t at = 0;
  for (uint32_t i = 0; i < n; i++) {
    for (uint32_t k = 0; k < v[i]->num_pieces; k++)
      add_piece(r, &v[i]->pieces[k])->lo[dim] += at;
    at += v[i]->dims[dim];
  }
  AT_VERIFY(is_covered(r));
  *out = r;
  return AT_OK;
}

// Boxes keep their elements; dimensions change places.
at_status at_tiles_view_dimshuffle(const at_tiles_view *v, at_dims perm,
                                   const at_tiles_view **out) {
  uint64_t seen = 0;
  int64_t dims[64];
  bool good = perm.rank == v->rank && v->rank <= 64;
  for (uint32_t d = 0; good && d < v->rank; d++) {
    int64_t p = perm.ptr[d];
    good = p >= 0 && p < v->rank && !(seen >> p & 1);
    if (!good) break;
    seen |= 1ull << p;
    dims[d] = v->dims[p];
  }
  if (!good)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "dimshuffle: not a permutation of %u dimensions", v->rank);
  at_tiles_view *r;
  AT_TRY(at_tiles_view_new(v->graph, v->dtype, (at_dims){dims, v->rank},
                           v->num_pieces, &r));
  for (uint32_t i = 0; i < v->num_pieces; i++) {
    const at_tiles_piece *p = &v->pieces[i];
    at_tiles_piece *q = add_piece(r, p);
    for (uint32_t d = 0; d < v->rank; d++) {
      q->lo[d] = p->lo[perm.ptr[d]];
      q->size[d] = p->size[perm.ptr[d]];
      q->stride[d] = p->stride[perm.ptr[d]];
    }
  }
  AT_VERIFY(is_covered(r));
  *out = r;
  return AT_OK;
}

// Each box is mirrored, and runs backwards from its last element.
at_status at_tiles_view_reverse(const at_tiles_view *v, uint32_t dim,
                                const at_tiles_view **out) {
  AT_TRY(need_dim(v, dim, "reverse"));
  at_tiles_view *r;
  AT_TRY(at_tiles_view_new(v->graph, v->dtype, at_tiles_view_dims(v),
                           v->num_pieces, &r));
  for (uint32_t i = v->num_pieces; i-- > 0;) {  // keeps rank 1 sorted
    const at_tiles_piece *p = &v->pieces[i];
    at_tiles_piece *q = add_piece(r, p);
    q->lo[dim] = v->dims[dim] - p->lo[dim] - p->size[dim];
    q->offset += (p->size[dim] - 1) * p->stride[dim];
    q->stride[dim] = -p->stride[dim];
  }
  AT_VERIFY(is_covered(r));
  *out = r;
  return AT_OK;
}

// Of each box the positions that `step` divides; a box that holds none goes.
at_status at_tiles_view_subsample(const at_tiles_view *v, uint32_t dim,
                                  int64_t step, const at_tiles_view **out) {
  AT_TRY(need_dim(v, dim, "subsample"));
  if (step < 1)
    return AT_FAIL(AT_INVALID_ARGUMENT, "subsample: step %lld\nhint: from 1",
                   (long long)step);
  step =
      AT_MIN(step, AT_MAX(v->dims[dim], 1));  // beyond, only the first is left
  at_tiles_view *r;
  AT_TRY(resized(v, dim, v->dims[dim] ? (v->dims[dim] - 1) / step + 1 : 0,
                 v->num_pieces, &r));
  for (uint32_t i = 0; i < v->num_pieces; i++) {
    const at_tiles_piece *p = &v->pieces[i];
    int64_t first = (p->lo[dim] + step - 1) / step;
    int64_t last = (p->lo[dim] + p->size[dim] - 1) / step;
    if (first > last) continue;
    at_tiles_piece *q = add_piece(r, p);
    q->offset += (first * step - p->lo[dim]) * p->stride[dim];
    q->lo[dim] = first;
    q->size[dim] = last - first + 1;
    q->stride[dim] = q->size[dim] > 1 ? q->stride[dim] * step : 0;
  }
  AT_VERIFY(is_covered(r));
  *out = r;
  return AT_OK;
}

// A dimension of one element repeats by a stride of 0; a longer one needs as
// many copies of its pieces.
at_status at_tiles_view_broadcast(const at_tiles_view *v, uint32_t dim,
                                  int64_t n, const at_tiles_view **out) {
  AT_TRY(need_dim(v, dim, "broadcast"));
  int64_t size;
  if (n < 0 || __builtin_mul_overflow(v->dims[dim], n, &size))
    return AT_FAIL(AT_INVALID_ARGUMENT, "broadcast: %lld times", (long long)n);
  bool one = v->dims[dim] == 1;
  int64_t copies = n == 0 || v->elements == 0 ? 0 : one ? 1 : n;
  if (copies > (1 << 24) / AT_MAX(v->num_pieces, 1u))
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "broadcast: %lld pieces\nhint: add a dimension of one "
                   "element and broadcast that",
                   (long long)copies * v->num_pieces);
  at_tiles_view *r;
  AT_TRY(resized(v, dim, size, (uint32_t)copies * v->num_pieces, &r));
  for (int64_t c = 0; c < copies; c++)
    for (uint32_t i = 0; i < v->num_pieces; i++) {
      at_tiles_piece *q = add_piece(r, &v->pieces[i]);
      q->lo[dim] += c * v->dims[dim];
      if (one) q->size[dim] = n, q->stride[dim] = 0;
    }
  AT_VERIFY(is_covered(r));
  *out = r;
  return AT_OK;
}

// ---- Reshape
// Only dimensions of one element come or go: every piece stays.
static bool same_but_ones(const at_tiles_view *v, at_dims dims) {
  uint32_t a = 0, b = 0;
  for (;;) {
    while (a < v->rank && v->dims[a] == 1) a++;
    while (b < dims.rank && dims.ptr[b] == 1) b++;
    if (a == v->rank || b == dims.rank) return a == v->rank && b == dims.rank;
    if (v->dims[a++] != dims.ptr[b++]) return false;
  }
}

// Flat pieces by position.
static int by_lo(const void *a, const void *b) {
  int64_t x = ((const at_tiles_piece *)a)->lo[0],
          y = ((const at_tiles_piece *)b)->lo[0];
  return (x > y) - (x < y);
}

// Pieces of a flat view must be in order for runs.c.
static void sort_flat(at_tiles_view *v) {
  if (v->rank == 1) qsort(v->pieces, v->num_pieces, sizeof *v->pieces, by_lo);
}

// Dimensions other than 1 are the same in both shapes, in order.
static at_status move_ones(const at_tiles_view *v, at_dims dims,
                           const at_tiles_view **out) {
  at_tiles_view *r;
  AT_TRY(at_tiles_view_new(v->graph, v->dtype, dims, v->num_pieces, &r));
  for (uint32_t i = 0; i < v->num_pieces; i++) {
    const at_tiles_piece *p = &v->pieces[i];
    at_tiles_piece *q = &r->pieces[r->num_pieces++];
    q->of = p->of, q->var = p->var, q->offset = p->offset;
    uint32_t a = 0;
    for (uint32_t b = 0; b < dims.rank; b++) {
      q->size[b] = 1;
      if (dims.ptr[b] == 1) continue;
      while (v->dims[a] == 1) a++;
      q->lo[b] = p->lo[a], q->size[b] = p->size[a], q->stride[b] = p->stride[a];
      a++;
    }
  }
  sort_flat(r);
  AT_VERIFY(is_covered(r));
  *out = r;
  return AT_OK;
}

// New strides for one piece that is all of v, where strides can say it.
static bool restride(const at_tiles_view *v, at_dims dims, int64_t *stride) {
  const int64_t *old = v->pieces[0].stride;
  uint32_t a = 0, b = 0;
  while (b < dims.rank) {
    if (dims.ptr[b] == 1) {
      stride[b++] = 0;
      continue;
    }
    while (v->dims[a] == 1) a++;
    int64_t have = v->dims[a], want = dims.ptr[b];
    uint32_t a1 = a + 1, b1 = b + 1, last = a;
    while (have != want) {
      if (have < want) {
        while (v->dims[a1] == 1) a1++;
        if (old[last] != old[a1] * v->dims[a1]) return false;
        last = a1;
        have *= v->dims[a1++];
      } else {
        want *= dims.ptr[b1++];
      }
    }
    int64_t s = old[last];
    for (uint32_t k = b1; k-- > b;) stride[k] = s, s *= dims.ptr[k];
    a = a1, b = b1;
  }
  return true;
}

// Pieces that follow each other in row-major order, each a plain progression.
static bool progression(const at_tiles_view *v, const at_tiles_piece *p,
                        int64_t *step, int64_t *begin, int64_t *count) {
  uint32_t d = 0;
  *begin = 0, *count = 1, *step = 1;
  while (d < v->rank && p->size[d] == 1) d++;
  int64_t inner = 1, expect = 0;
  for (uint32_t k = v->rank; k-- > 0;) {
    *begin += p->lo[k] * inner;
    inner *= v->dims[k];
    *count *= p->size[k];
    if (k > d && p->size[k] != v->dims[k]) return false;
    if (p->size[k] == 1) continue;
    if (expect && p->stride[k] != expect) return false;
    if (!expect) *step = p->stride[k];
    expect = p->stride[k] * p->size[k];
    if (!p->stride[k]) return false;
  }
  return true;
}

// *out NULL: a piece is no progression, and the view cannot be flattened by
// pieces.
static at_status flatten_pieces(const at_tiles_view *v,
                                const at_tiles_view **out) {
  int64_t step, begin, count;
  *out = NULL;
  for (uint32_t i = 0; i < v->num_pieces; i++)
    if (!progression(v, &v->pieces[i], &step, &begin, &count)) return AT_OK;
  at_tiles_view *r;
  AT_TRY(at_tiles_view_new(v->graph, v->dtype, (at_dims){&v->elements, 1},
                           v->num_pieces, &r));
  for (uint32_t i = 0; i < v->num_pieces; i++) {
    const at_tiles_piece *p = &v->pieces[i];
    at_tiles_piece *q = &r->pieces[r->num_pieces++];
    q->of = p->of, q->var = p->var, q->offset = p->offset;
    progression(v, p, &q->stride[0], &q->lo[0], &q->size[0]);
  }
  sort_flat(r);
  AT_VERIFY(is_covered(r));
  *out = r;
  return AT_OK;
}

// From the cheapest on: dimensions of one come and go; pieces that are plain
// progressions become flat; a single piece gets other strides; at last a view
// on the view, whose elements are found by position.
at_status at_tiles_view_reshape(const at_tiles_view *v, at_dims dims,
                                const at_tiles_view **out) {
  int64_t n = 1;
  bool good = true;
  for (uint32_t d = 0; good && d < dims.rank; d++)
    good = dims.ptr[d] >= 0 && !__builtin_mul_overflow(n, dims.ptr[d], &n);
  if (!good || n != v->elements)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "reshape: %lld elements do not make that shape",
                   (long long)v->elements);
  at_tiles_view *r;
  if (!n) {
    AT_TRY(at_tiles_view_new(v->graph, v->dtype, dims, 0, &r));
    return *out = r, AT_OK;
  }
  if (same_but_ones(v, dims)) return move_ones(v, dims, out);
  if (v->num_pieces > 1 && dims.rank == 1) {
    AT_TRY(flatten_pieces(v, out));
    if (*out) return AT_OK;
  }
  AT_TRY(at_tiles_view_new(v->graph, v->dtype, dims, 1, &r));
  at_tiles_piece *q = &r->pieces[0];
  r->num_pieces = 1;
  for (uint32_t d = 0; d < dims.rank; d++) q->size[d] = dims.ptr[d];
  if (v->num_pieces == 1 && restride(v, dims, q->stride)) {
    q->of = v->pieces[0].of, q->var = v->pieces[0].var,
    q->offset = v->pieces[0].offset;
    return *out = r, AT_OK;
  }
  q->of = v;
  int64_t stride = 1;
  for (uint32_t d = dims.rank; d-- > 0;)
    q->stride[d] = stride, stride *= dims.ptr[d];
  AT_VERIFY(is_covered(r));
  *out = r;
  return AT_OK;
}

// One dimension, in row-major order.
at_status at_tiles_view_flatten(const at_tiles_view *v,
                                const at_tiles_view **out) {
  return at_tiles_view_reshape(v, (at_dims){&v->elements, 1}, out);
}
