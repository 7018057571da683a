// JAX's program of eigenvectors for a TPU: above 256 rows it splits the
// spectrum again and again by polar decompositions (QDWH), in a loop of small
// steps. The kernel for smaller matrices takes any size here, so that its one
// call stands for the program.
//
// The program is known by the function that jax._src.tpu.linalg.eigh traces,
// (matrix[N,N], size) -> (values[N], vectors[N,N]), by its types, and by what
// it calls: its own polar decomposition, and the kernel for small matrices.
#include "base/walk.h"
#include "passes/passes_internal.h"

// "name" or "name_12", as JAX numbers functions of one name.
static bool is_named(const char *name, const char *base) {
  size_t n = strlen(base);
  if (strncmp(name, base, n) != 0) return false;
  if (!name[n]) return true;
  const char *digits = name + n + 1;
  return name[n] == '_' && *digits &&
         strspn(digits, "0123456789") == strlen(digits);
}

// A static type of `rank` dimensions, all of them n.
static bool has_dims(const at_type *t, at_dtype dtype, uint32_t rank,
                     int64_t n) {
  bool ok = t->dtype == dtype && t->rank == rank && at_type_is_static(t);
  for (uint32_t d = 0; ok && d < rank; d++) ok = t->dims[d] == n;
  return ok;
}

// n calls f, whose types these are; the whole matrix is meant.
static bool has_types(const at_node *n) {
  if (n->num_operands != 2 || n->num_results != 2) return false;
  const at_type *matrix = at_value_type(n->operands[0]);
  const at_literal *size = at_node_literal(n->operands[1].node);
  if (matrix->rank != 2 ||
      (matrix->dtype != AT_F32 && matrix->dtype != AT_F64) || !size ||
      size->type.rank || !at_is_int(size->type.dtype))
    return false;
  int64_t side = matrix->dims[0];
  return has_dims(matrix, matrix->dtype, 2, side) &&
         has_dims(&n->types[0], matrix->dtype, 1, side) &&
         has_dims(&n->types[1], matrix->dtype, 2, side) &&
         at_literal_int(size, 0) == side;
}

typedef struct found {
  bool polar, kernel, loop;
} found;

// Notes in *has what c contains, and adds its regions and callees to the walk.
// A computation is looked at once.
static void look_at(at_walk *w, const at_module *m, const at_comp *c,
                    found *has) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_regions; i++)
      at_walk_add(w, n->regions[i], 0);
    has->loop |= n->op == AT_OP_WHILE;
    if (n->op == AT_OP_CUSTOM_CALL)
      has->kernel |=
          at_str_is(at_node_str(n, AT_ATTR_CALL_TARGET_NAME), "Eigh");
    if (n->op != AT_OP_CALL) continue;
    const at_comp *f = at_module_find(m, at_node_str(n, AT_ATTR_CALLEE));
    if (!f) continue;
    has->polar |= is_named(f->name, "qdwh");
    at_walk_add(w, f, 0);
  }
}

// *yes: f and all that it calls hold a loop, QDWH, and the kernel of small
// matrices.
static at_status is_program(const at_module *m, const at_comp *f, bool *yes) {
  found has = {0};
  at_walk w = at_walk_in(m->arena);
  at_walk_add(&w, f, 0);
  for (at_walk_step s; at_walk_next(&w, &s);) look_at(&w, m, s.item, &has);
  *yes = has.polar && has.kernel && has.loop;
  return at_walk_status(&w);
}

// The kernel gives (vectors, values); the program (values, vectors): results
// are exchanged.
at_status at_eigen_call(at_rw *r, at_node *n, const at_comp *f, bool *done) {
  *done = false;
  if (!is_named(f->name, "_eigh_work") || !has_types(n)) return AT_OK;
  bool yes;
  AT_TRY(is_program(r->m, f, &yes));
  if (!yes) return AT_OK;
  // "lower, sorted, sweeps, tolerance": JAX's own words for small ones.
  at_attr attrs[] = {
      {.id = AT_ATTR_CALL_TARGET_NAME, .s = AT_STR("Eigh")},
      {.id = AT_ATTR_HAS_SIDE_EFFECT},
      {.id = AT_ATTR_BACKEND_CONFIG, .s = AT_STR("1,1,100,1e-6")}};
  at_type types[] = {n->types[1], n->types[0]};
  at_node_desc d = {.op = AT_OP_CUSTOM_CALL,
                    .operands = n->operands,
                    .num_operands = 1,
                    .attrs = attrs,
                    .num_attrs = AT_LEN(attrs),
                    .types = types,
                    .num_types = 2,
                    .loc = n->loc};
  at_node *kernel;
  AT_TRY(at_build(n->parent, n, &d, &kernel));
  AT_TRY(at_fwd_set(r, n, 0, (at_value){kernel, 1}));
  AT_TRY(at_fwd_set(r, n, 1, (at_value){kernel, 0}));
  at_node_remove(n);
  *done = true;
  return AT_OK;
}
