// Keys of kernels: the bytes of a node's structure, written so that equal bytes
// mean equal code. Operands inside a region are numbered as they are met, so
// ids and places do not count.
#include "codegen/key.h"

#include "codegen/job.h"

typedef struct at_keyer {
  at_strbuf *out;
  const at_skips *skips;
  at_map ids;  // node -> its number, from 1
  uintptr_t next;
} at_keyer;

// Bytes as they are: keys are compared, never read.
static void put(at_keyer *k, const void *p, size_t n) {
  at_strbuf_add(k->out, (at_str){p, n});
}
static void put_int(at_keyer *k, int64_t v) { put(k, &v, sizeof v); }

// Element type and shape; layouts are not codegen's.
static void put_type(at_keyer *k, const at_type *t) {
  put_int(k, t->dtype);
  put_int(k, t->rank);
  put(k, t->dims, t->rank * sizeof *t->dims);
}

// Type and bytes: equal constants are equal keys.
static void put_literal(at_keyer *k, const at_literal *l) {
  put_type(k, &l->type);
  put_int(k, l->splat);
  put(k, l->data, l->bytes);
}

// By kind; each is preceded by its id.
static void put_attr(at_keyer *k, const at_attr *a) {
  put_int(k, a->id);
  switch (at_attr_kind_of(a->id)) {
    case AT_KIND_INT:
    case AT_KIND_BOOL:
    case AT_KIND_ENUM:
      put_int(k, a->i);
      break;
    case AT_KIND_FLOAT:
      put(k, &a->f, sizeof a->f);
      break;
    case AT_KIND_INTS:
      put_int(k, a->ints.rank);
      put(k, a->ints.ptr, a->ints.rank * sizeof *a->ints.ptr);
      break;
    case AT_KIND_LITERAL:
      put_literal(k, a->literal);
      break;
    case AT_KIND_TYPE:
      put_type(k, a->type);
      break;
    case AT_KIND_STR:
    case AT_KIND_BYTES:
      put_int(k, (int64_t)a->s.len);
      put(k, a->s.ptr, a->s.len);
      break;
    default:
      break;  // names and groups do not reach generated code
  }
}

static at_status put_comp(at_keyer *k, const at_comp *c);

// A node seen for the first time gets a number; operands name numbers.
static at_status number(at_keyer *k, const at_node *n, bool *fresh) {
  void **id = at_map_put_ptr(&k->ids, n);
  if (!id) return AT_NO_MEMORY("kernel key");
  *fresh = *id == NULL;
  if (*fresh) *id = (void *)++k->next;
  put_int(k, (int64_t)(uintptr_t)*id);
  return AT_OK;
}

// -2: no node has that number.
static void put_literal_operand(at_keyer *k, at_value v) {
  put_int(k, -2);
  put_literal(k, at_node_literal(v.node));
  put_type(k, at_value_type(v));
}

// From outside of a region: constants by value, others by identity.
static void put_captured(at_keyer *k, at_value v) {
  if (at_node_literal(v.node)) return put_literal_operand(k, v);
  put_int(k, (int64_t)(uintptr_t)v.node);
  put_type(k, at_value_type(v));
}

// Attributes that change the code.
static bool counts(at_attr_id id) {
  return id != AT_ATTR_SHARDING && id != AT_ATTR_FRONTEND_ATTRIBUTES &&
         id != AT_ATTR_RESULT_ACCURACY;
}

// Slices of skipped operands: their indices less what is skipped.
static void put_attrs(at_keyer *k, const at_node *n) {
  const int64_t *skip = k->skips && n->op == AT_OP_SLICE
                            ? at_skips_of(k->skips, n->operands[0].node)
                            : NULL;
  for (uint32_t i = 0; i < n->num_attrs; i++) {
    const at_attr *a = &n->attrs[i];
    if (!skip ||
        (a->id != AT_ATTR_START_INDICES && a->id != AT_ATTR_LIMIT_INDICES)) {
      if (counts(a->id)) put_attr(k, a);
      continue;
    }
    put_int(k, a->id);
    for (uint32_t d = 0; d < a->ints.rank; d++)
      put_int(k, a->ints.ptr[d] - skip[d]);
  }
}

// top: the node itself, whose operands are memory and count by type alone.
// Inside of regions operands are numbers of nodes.
static at_status put_node(at_keyer *k, const at_node *n, bool top) {
  put_int(k, n->op);
  put_int(k, n->num_operands);
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_value v = n->operands[i];
    bool fresh;
    AT_TRY(number(k, v.node, &fresh));
    put_int(k, v.index);
    if (top && at_job_is_immediate(n, i))
      put_literal_operand(k, v);
    else if (top)
      put_type(k, at_value_type(v));
    else if (fresh)
      put_captured(k, v);
  }
  put_int(k, n->num_results);
  for (uint32_t i = 0; i < n->num_results; i++) put_type(k, &n->types[i]);
  put_attrs(k, n);
  put_int(k, n->num_regions);
  for (uint32_t i = 0; i < n->num_regions; i++)
    AT_TRY(put_comp(k, n->regions[i]));
  return AT_OK;
}

// Nodes in order, then -1, then which of them are results.
static at_status put_comp(at_keyer *k, const at_comp *c) {
  bool fresh;
  put_int(k, c->num_params);
  AT_FOR_NODES(n, c) {
    AT_TRY(put_node(k, n, false));
    AT_TRY(number(k, n, &fresh));
  }
  put_int(k, -1);
  for (uint32_t i = 0; i < c->num_results; i++) {
    AT_TRY(number(k, c->results[i].node, &fresh));
    put_int(k, c->results[i].index);
    if (fresh) put_captured(k, c->results[i]);
  }
  return AT_OK;
}

// RESOURCE_EXHAUSTED alone.
at_status at_key_node(at_arena *a, const at_node *n, const at_skips *skips,
                      at_strbuf *out) {
  at_keyer k = {.out = out, .skips = skips, .ids = at_map_in(a)};
  AT_TRY(put_node(&k, n, true));
  return at_strbuf_status(out);
}

// RESOURCE_EXHAUSTED alone.
at_status at_key_comp(at_arena *a, const at_comp *c, at_strbuf *out) {
  at_keyer k = {.out = out, .ids = at_map_in(a)};
  AT_TRY(put_comp(&k, c));
  return at_strbuf_status(out);
}
