// A window placed by an affine map of the grid ids: the map becomes a function
// of them, as Pallas writes its own.
#include "mosaic/mosaic_internal.h"

enum { MAX_DEPTH = 64 };

typedef struct printer {
  const at_mosaic_kernel *k;
  const at_mop *func;  // of the window
  at_strbuf out;
  uint32_t num_values;  // %v0, %v1...
  uint32_t num_dims;
} printer;

// UNIMPLEMENTED at the function that has the map.
static at_status refuse(const printer *p, const char *why) {
  return at_mosaic_fail(p->k, p->func, AT_UNIMPLEMENTED,
                        "transform_indices: %s in an affine map", why);
}

// Prints the ops of an expression. *at: the number of its value.
static at_status put_expr(printer *p, const at_maffine *e, int depth,
                          uint32_t *at) {
  uint32_t lhs = 0, rhs = 0;
  if (depth > MAX_DEPTH) return refuse(p, "too many levels");
  switch (e->kind) {
    case AT_AFFINE_CONST:
      at_strbuf_addf(
          &p->out,
          "%%v%u = \"arith.constant\"() {value = %lld : i32} : () -> i32\n",
          p->num_values, (long long)(int32_t)e->value);
      break;
    case AT_AFFINE_DIM:
      if (e->value < 0 || e->value >= p->num_dims)
        return refuse(p, "an unknown dimension");
      *at = (uint32_t)e->value;
      return AT_OK;
    case AT_AFFINE_ADD:
    case AT_AFFINE_MUL:
      AT_TRY(put_expr(p, e->lhs, depth + 1, &lhs));
      AT_TRY(put_expr(p, e->rhs, depth + 1, &rhs));
      at_strbuf_addf(
          &p->out, "%%v%u = \"arith.%s\"(%%v%u, %%v%u) : (i32, i32) -> i32\n",
          p->num_values, e->kind == AT_AFFINE_ADD ? "addi" : "muli", lhs, rhs);
      break;
    default:
      return refuse(p, "a quotient, remainder or symbol");
  }
  *at = p->num_values++;
  return AT_OK;
}

// `item` n times, with commas.
static void put_list(at_strbuf *out, const char *item, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    at_strbuf_addf(out, "%s%s", i ? ", " : "", item);
}

// The whole function as text: grid ids as i32 arguments, the results' ops in
// order, a return of them. `results` has room for num_elems numbers.
static at_status put_map(printer *p, const at_mattr *map, uint32_t *results) {
  at_strbuf_addz(&p->out, "\"func.func\"() ({\n^bb0(");
  for (uint32_t i = 0; i < map->num_dims; i++)
    at_strbuf_addf(&p->out, "%s%%v%u: i32", i ? ", " : "", i);
  at_strbuf_addz(&p->out, "):\n");
  p->num_dims = p->num_values = map->num_dims;
  for (uint32_t i = 0; i < map->num_elems; i++)
    AT_TRY(put_expr(p, map->exprs[i], 0, &results[i]));
  at_strbuf_addz(&p->out, "\"func.return\"(");
  for (uint32_t i = 0; i < map->num_elems; i++)
    at_strbuf_addf(&p->out, "%s%%v%u", i ? ", " : "", results[i]);
  at_strbuf_addz(&p->out, ") : (");
  put_list(&p->out, "i32", map->num_elems);
  at_strbuf_addz(&p->out, ") -> ()\n}) {function_type = (");
  put_list(&p->out, "i32", map->num_dims);
  at_strbuf_addz(&p->out, ") -> (");
  put_list(&p->out, "i32", map->num_elems);
  at_strbuf_addz(&p->out, "), sym_name = \"affine_map\"} : () -> ()\n");
  return at_strbuf_status(&p->out);
}

// The reader of text leaves no opcodes; later steps look at the tag only.
static void tag(at_mop *f) {
  at_mblock *b = f->regions[0]->blocks[0];
  f->tag = at_mosaic_opcode_find(f->name);
  for (uint32_t i = 0; i < b->num_ops; i++)
    b->ops[i]->tag = at_mosaic_opcode_find(b->ops[i]->name);
}

// Goes through text, so that the reader makes the blocks, values and uses; maps
// are rare and small.
at_status at_mosaic_map_function(const at_mosaic_kernel *k, const at_mop *func,
                                 const at_mattr *map, at_mop **out) {
  printer p = {.k = k, .func = func};
  at_mmodule *m;
  uint32_t *results;
  AT_TRY_ALLOC(results, at_new(k->arena, uint32_t, map->num_elems + 1));
  at_status st = put_map(&p, map, results);
  if (at_ok(st))
    st = at_mlir_read_text((at_str){p.out.ptr, p.out.len}, k->arena, &m);
  at_strbuf_free(&p.out);
  if (!at_ok(st)) return st;
  *out = m->op->regions[0]->blocks[0]->ops[0];
  tag(*out);
  return AT_OK;
}
