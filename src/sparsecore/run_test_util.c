#include "sparsecore/run_test_util.h"

void *take(void *owner, size_t bytes) {
  scratch *s = owner;
  if (s->count == kScratchBlocks) return NULL;
  // Exactly as many bytes as asked for: sanitizers see who goes further.
  void *p = aligned_alloc(64, at_align_up(bytes + 1, 64));
  // A pattern, so that sums that begin with what is there are wrong.
  memset(p, 0xa5, bytes);
  return s->blocks[s->count++] = p;
}

void momentum(void *const *bufs, int64_t begin, int64_t end) {
  const float *gradient = bufs[0], *rate = bufs[3];
  float *table = bufs[1], *slot = bufs[2];
  for (int64_t i = begin; i < end; i++) {
    slot[i] += gradient[i];
    table[i] -= *rate * slot[i];
  }
}

// One launch of `momentum` with its four places.
// x must be an update with two tables and room behind it for the tail.
static void set_optimizer(at_x_sparse *x) {
  x->num_launches = 1;
  x->num_places = 4;
  *(at_x_sparse_launch *)at_x_sparse_launches(x) =
      (at_x_sparse_launch){0, (uint32_t)x->width, 0, 4};
  at_x_sparse_place *p = (at_x_sparse_place *)at_x_sparse_places(x);
  p[0] = (at_x_sparse_place){AT_SPARSE_GRADIENT, 0};
  p[1] = (at_x_sparse_place){AT_SPARSE_TABLE, 0};
  p[2] = (at_x_sparse_place){AT_SPARSE_TABLE, 1};
  p[3] = (at_x_sparse_place){AT_SPARSE_HYPER, 0};
}

bool next_case(FILE *f, sc_case *c) {
  bool more = read_case(f, c);
  if (more && c->x.op == AT_SPARSE_UPDATE) set_optimizer(&c->x);
  return more;
}

void free_scratch(scratch *s) {
  for (int i = 0; i < s->count; i++) free(s->blocks[i]);
}
