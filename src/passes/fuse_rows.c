// One kernel for reduces along rows and what else is done with the same rows:
// clusters that hand each other arrays, or read the same one, become one where
// a row at a time is enough (hlo/rows.h). The arrays between them are then no
// longer than a row.
#include "hlo/rows.h"
#include "passes/fuse_internal.h"

enum {
  // Shorter rows are better taken across; longer ones do not stay in a core's
  // cache.
  ROWS_MIN_COLUMNS = 32,
  ROWS_MAX_COLUMNS = 1 << 16,
  ROWS_MIN = 32,          // fewer do not keep all cores busy, unless
  ROWS_SMALL = 1 << 17,   // there are fewer elements than this
  ROWS_MAX_USERS = 8,     // looked at for others that read the same array
  ROWS_MAX_SEARCH = 4096  // nodes looked at for a path between two clusters
};

typedef struct rows_group {
  fuser *f;
  fuse_cluster *cl;
  int64_t rows, columns;
  at_arena *scratch;
} rows_group;

typedef struct rows_pair {
  const fuser *f;
  fuse_cluster *a, *b;
} rows_pair;

// Filter for at_rows_find: n is computed by one of the two.
static bool in_pair(const void *arg, const at_node *n) {
  const rows_pair *p = arg;
  const fuse_node *d = fuse_of(p->f, n);
  return d && (fuse_member_of(p->a, d) || fuse_member_of(p->b, d));
}

static int64_t elements(const fuse_node *d) {
  return at_type_elements(&d->n->types[0]);
}

// An array of rows * columns elements that is really stored, not a constant or
// an iota.
static bool is_whole(const rows_group *g, const fuse_node *d) {
  return d->n->num_results == 1 && at_type_is_static(&d->n->types[0]) &&
         elements(d) == g->rows * g->columns && !fuse_is_inline_const(d->n) &&
         d->n->op != AT_OP_IOTA;
}

// ---- What is a result of the two together
static bool outside(const rows_pair *p, const fuse_node *u) {
  if (!in_pair(p, u->n)) return true;
  for (size_t i = 0; i < u->in.len; i++) {
    const fuse_cluster *cl = fuse_find(u->in.ptr[i]);
    if (cl != p->a && cl != p->b) return true;
  }
  return false;
}

// Does anything outside the pair read d: the computation's results, another
// cluster, or a user that also stands by itself?
static bool is_needed(const rows_pair *p, const fuse_node *d) {
  if (d->returned) return true;
  for (size_t i = 0; i < d->users.len; i++) {
    const fuse_node *u = d->users.ptr[i];
    if (outside(p, u)) return true;
    // It also stands by itself: for whom?
    if (u->plain && is_needed(p, u)) return true;
  }
  return false;
}

// Values that the united cluster would have to store.
static at_status results_of(const rows_group *g, const rows_pair *p,
                            at_value_list *out) {
  fuse_cluster *both[2] = {p->a, p->b};
  for (int k = 0; k < 2; k++)
    for (size_t i = 0; i < both[k]->outputs.len; i++) {
      const fuse_node *d = both[k]->outputs.ptr[i];
      if (!is_needed(p, d)) continue;
      for (uint32_t r = 0; r < d->n->num_results; r++)
        if (!at_vec_push(g->scratch, out, ((at_value){d->n, r})))
          return AT_NO_MEMORY("fuse");
    }
  return AT_OK;
}

// ---- Does it fit, and is it worth it?
static bool right_space(const rows_group *g, const fuse_cluster *b) {
  int64_t n = at_type_elements(b->space);
  if (n == g->rows * g->columns) return true;
  return !b->reduce && n == g->rows;
}

// Does b use an array that the group makes or uses, or make one that it uses?
// What has one element a row costs nothing either way.
static bool shares(const rows_group *g, fuse_cluster *b) {
  if (!b->reduce && at_type_elements(b->space) == g->rows) return true;
  for (size_t i = 0; i < b->members.len; i++) {
    const fuse_node *m = b->members.ptr[i].node;
    for (size_t k = 0; k < m->users.len; k++)
      if (is_whole(g, m) && fuse_member_of(g->cl, m->users.ptr[k])) return true;
    for (size_t k = 0; k < m->deps.len; k++) {
      const fuse_node *d = m->deps.ptr[k];
      if (!is_whole(g, d)) continue;
      if (fuse_member_of(g->cl, d)) return true;
      for (size_t u = 0; u < AT_MIN(d->users.len, ROWS_MAX_USERS); u++)
        if (fuse_member_of(g->cl, d->users.ptr[u])) return true;
    }
  }
  return false;
}

// Reduces whose steps may come in any order are taken by vectors.
static bool simple_reduce(const at_node *n) {
  uint32_t steps = 0;
  AT_FOR_NODES(b, n->regions[0]) steps += b->op != AT_OP_PARAMETER;
  return steps == 1 || n->num_results == 2;
}

static bool simple_reduces(const fuse_cluster *cl) {
  for (size_t i = 0; i < cl->members.len; i++) {
    const at_node *n = cl->members.ptr[i].node->n;
    if (n->op == AT_OP_REDUCE && !simple_reduce(n)) return false;
  }
  return true;
}

// Does either read what the other stores, or it itself, in another order than
// by rows? Every such place would make the element again.
static bool makes_again(const rows_group *g, const rows_pair *p,
                        const at_rows *rows) {
  const fuse_cluster *both[2] = {p->a, p->b};
  for (int k = 0; k < 2; k++)
    for (size_t i = 0; i < both[k]->outputs.len; i++) {
      const fuse_node *d = both[k]->outputs.ptr[i];
      if (is_whole(g, d) && at_rows_role(rows, d->n) & AT_ROW_OTHER)
        return true;
    }
  return false;
}

// Cheap conditions first; at_rows_find walks both clusters. *out: uniting them
// is correct and worth it.
static at_status fits(const rows_group *g, fuse_cluster *b, bool *out) {
  fuser *f = g->f;
  rows_pair p = {f, g->cl, b};
  at_value_list results = {0};
  at_rows rows;
  *out = false;
  if (g->cl->work + b->work > FUSE_MAX_WORK || !right_space(g, b) ||
      !simple_reduces(b) || !shares(g, b))
    return AT_OK;
  AT_TRY(results_of(g, &p, &results));
  if (results.len > FUSE_MAX_OUTPUTS || results.len == 0) return AT_OK;
  AT_TRY(at_rows_find(g->scratch, g->rows, g->columns, results.ptr,
                      (uint32_t)results.len, in_pair, &p, &rows));
  *out = rows.fits && !makes_again(g, &p, &rows) &&
         fuse_pair_operands(f, g->cl, b) <= FUSE_MAX_OPERANDS &&
         !fuse_between(f, g->cl, b, ROWS_MAX_SEARCH) &&
         !fuse_between(f, b, g->cl, ROWS_MAX_SEARCH);
  return AT_OK;
}

// ---- Growing
// Reshapes of results that stand by themselves, as views of what is stored.
static at_status take_views(const rows_group *g) {
  fuse_cluster *cl = g->cl;
  for (size_t o = 0; o < cl->outputs.len; o++) {
    const fuse_node *d = cl->outputs.ptr[o];
    for (size_t i = 0; i < AT_MIN(d->users.len, ROWS_MAX_USERS); i++) {
      fuse_node *u = d->users.ptr[i];
      if (u->n->op != AT_OP_RESHAPE || !u->plain || fuse_member_of(cl, u))
        continue;
      AT_TRY(fuse_add_member(g->f, cl, (fuse_member){.node = u}));
      if (!at_vec_push(g->f->arena, &u->in, cl)) return AT_NO_MEMORY("fuse");
    }
  }
  return AT_OK;
}

// b's members and outputs join the group; outputs that nobody outside needs are
// dropped. Heights follow, as the group now leads to what both led to.
static at_status unite(rows_group *g, fuse_cluster *b) {
  fuser *f = g->f;
  fuse_cluster *a = g->cl;
  rows_pair p = {f, a, b};
  AT_VEC(fuse_node *) outputs = {0};
  fuse_cluster *both[2] = {a, b};
  for (int k = 0; k < 2; k++)
    for (size_t i = 0; i < both[k]->outputs.len; i++) {
      fuse_node *d = both[k]->outputs.ptr[i];
      d->output = is_needed(&p, d);
      if (d->output && !at_vec_push(f->arena, &outputs, d))
        return AT_NO_MEMORY("fuse");
    }
  for (size_t i = 0; i < b->members.len; i++)
    if (!fuse_member_of(a, b->members.ptr[i].node))
      AT_TRY(fuse_add_member(f, a, b->members.ptr[i]));
  a->outputs.len = 0;
  for (size_t i = 0; i < outputs.len; i++)
    if (!at_vec_push(f->arena, &a->outputs, outputs.ptr[i]))
      return AT_NO_MEMORY("fuse");
  a->work += b->work;
  a->grown += b->grown;
  a->rows = true;
  b->into = a;
  AT_TRY(fuse_raise(f, a, b->height));
  return take_views(g);
}

typedef AT_VEC(fuse_cluster *) cluster_list;

// Clusters that compute u, once each (by stamp) and not the group's own.
static at_status add_clusters_of(const rows_group *g, const fuse_node *u,
                                 cluster_list *out) {
  for (size_t i = 0; i < u->in.len; i++) {
    fuse_cluster *cl = fuse_find(u->in.ptr[i]);
    if (cl == g->cl || cl->stamp == g->f->stamp || !cl->outputs.len) continue;
    cl->stamp = g->f->stamp;
    if (!at_vec_push(g->scratch, out, cl)) return AT_NO_MEMORY("fuse");
  }
  return AT_OK;
}

// Only the first ROWS_MAX_USERS users are looked at.
static at_status add_users(const rows_group *g, const fuse_node *d,
                           cluster_list *out) {
  for (size_t i = 0; i < AT_MIN(d->users.len, ROWS_MAX_USERS); i++)
    AT_TRY(add_clusters_of(g, d->users.ptr[i], out));
  return AT_OK;
}

// Clusters that use what the group makes, make what it uses, or use that too.
static at_status neighbours(const rows_group *g, cluster_list *out) {
  const fuse_cluster *cl = g->cl;
  g->f->stamp++;
  for (size_t i = 0; i < cl->outputs.len; i++)
    AT_TRY(add_users(g, cl->outputs.ptr[i], out));
  for (size_t i = 0; i < cl->members.len; i++) {
    const fuse_node *m = cl->members.ptr[i].node;
    if (m->plain) AT_TRY(add_users(g, m, out));
    for (size_t k = 0; k < m->deps.len; k++) {
      const fuse_node *d = m->deps.ptr[k];
      if (!is_whole(g, d)) continue;
      if (d->output) AT_TRY(add_clusters_of(g, d, out));
      AT_TRY(add_users(g, d, out));
    }
  }
  return AT_OK;
}

// Unites one neighbour at a time until none fits: every union changes who is a
// neighbour.
static at_status grow(rows_group *g) {
  for (bool grown = true; grown;) {
    at_arena_reset(g->scratch);
    cluster_list near = {0};
    AT_TRY(neighbours(g, &near));
    grown = false;
    for (size_t i = 0; i < near.len && !grown; i++) {
      AT_TRY(fits(g, near.ptr[i], &grown));
      if (grown) AT_TRY(unite(g, near.ptr[i]));
    }
  }
  return AT_OK;
}

// The first reduce of the cluster; NULL: it has none.
static const at_node *reduce_in(const fuse_cluster *cl) {
  for (size_t i = 0; i < cl->members.len; i++)
    if (cl->members.ptr[i].node->n->op == AT_OP_REDUCE)
      return cl->members.ptr[i].node->n;
  return NULL;
}

// Each cluster with a reduce along rows of a useful size is the seed of a
// group.
at_status fuse_rows(fuser *f) {
  at_arena *scratch = at_arena_create();
  if (!scratch) return AT_NO_MEMORY("fuse");
  at_status st = AT_OK;
  for (size_t i = 0; i < f->clusters.len && at_ok(st); i++) {
    rows_group g = {.f = f, .cl = f->clusters.ptr[i], .scratch = scratch};
    if (g.cl->into || !g.cl->reduce || !g.cl->outputs.len ||
        !at_rows_of_reduce(reduce_in(g.cl), &g.rows, &g.columns) ||
        g.columns < ROWS_MIN_COLUMNS || g.columns > ROWS_MAX_COLUMNS ||
        (g.rows < ROWS_MIN && g.rows * g.columns >= ROWS_SMALL) ||
        !simple_reduces(g.cl))
      continue;
    st = take_views(&g);
    if (at_ok(st)) st = grow(&g);
  }
  at_arena_destroy(scratch);
  return st;
}
