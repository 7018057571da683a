// Programs that say themselves what each device does: an entry whose values
// only pass between parameters, manual computations over every axis of their
// mesh, and results. The bodies replace the calls, and the entry takes and
// gives what one device holds. A program that also leaves work to the compiler
// is not touched.
#include "passes/passes_internal.h"

// ---- Text of shardings -----------------------------------------------------
// Item i of "...[<...>, <...>]...": "<...>" with its brackets. len 0: none.
static at_str list_item(at_str list, uint32_t i) {
  uint32_t depth = 0, item = 0;
  size_t begin = 0, at = 0;
  while (at < list.len && list.ptr[at] != '[') at++;
  for (at++; at < list.len; at++) {
    char c = list.ptr[at];
    if (c == '<' && depth++ == 0) begin = at;
    if (c == '>' && depth && --depth == 0 && item++ == i)
      return (at_str){list.ptr + begin, at + 1 - begin};
  }
  return (at_str){0};
}

// The next character that tells where data lives: blanks and the marks of open
// dimensions do not.
static int next_char(at_str s, size_t *at) {
  while (*at < s.len) {
    char c = s.ptr[(*at)++];
    if (c == ' ' || c == '?') continue;
    size_t k = *at;
    while (k < s.len && (s.ptr[k] == ' ' || s.ptr[k] == '?')) k++;
    if (c == ',' && k < s.len && s.ptr[k] == '}') continue;  // "x", ?}
    return (unsigned char)c;
  }
  return -1;
}

static bool same_place(at_str a, at_str b) {
  const char prefix[] = "#sdy.sharding";
  at_str *const both[] = {&a, &b};
  for (int i = 0; i < 2; i++)
    if (at_str_starts(*both[i], prefix)) {
      both[i]->ptr += sizeof prefix - 1;
      both[i]->len -= sizeof prefix - 1;
    }
  size_t i = 0, k = 0;
  for (;;) {
    int x = next_char(a, &i), y = next_char(b, &k);
    if (x != y) return false;
    if (x < 0) return true;
  }
}

// The number of devices that the axes named in `axes` ({"x", "y"}) span,
// among the sizes of every mesh in `meshes` ("x"=4); 0: an axis is not there.
static int64_t axes_span(at_str axes, const char *meshes) {
  int64_t n = 1;
  const char *end = axes.ptr + axes.len;
  for (const char *p = axes.ptr; p < end; p++) {
    if (*p != '"') continue;
    const char *close = memchr(p + 1, '"', (size_t)(end - p - 1));
    if (!close) return 0;
    size_t len = (size_t)(close + 1 - p);
    const char *found = meshes;
    while (found && (strncmp(found, p, len) != 0 || found[len] != '='))
      found = strchr(found + 1, '"');
    if (!found) return 0;
    int64_t size = 0;
    for (found += len + 1; *found >= '0' && *found <= '9'; found++)
      size = AT_MIN(size * 10 + (*found - '0'), (int64_t)1 << 30);
    n *= size;
    if (n > (int64_t)1 << 30) return 0;
    p = close;
  }
  return n;
}

// ---- Recognising -----------------------------------------------------------
// What is known of where a value of the entry lives: the text, and the type of
// what one device holds.
typedef struct placed {
  at_str text;
  const at_type *local;
} placed;

typedef struct manual {
  at_module *m;
  placed *values;  // by parameter, then by results of manual computations
  uint32_t count;
} manual;

static placed *place_of(const manual *w, at_value v) {
  uint32_t i = v.node->mark;  // 1 + index of the node's first value
  return i ? &w->values[i - 1 + v.index] : NULL;
}

// The value lives as `text` says; false: it is known to live elsewhere.
static bool agree(const manual *w, at_value v, at_str text,
                  const at_type *local) {
  placed *p = place_of(w, v);
  if (!p || !text.len) return false;
  if (!p->text.len) p->text = text;
  if (!p->local) p->local = local;
  return same_place(p->text, text) && at_type_eq(p->local, local);
}

static bool manual_everywhere(const at_module *m, const at_node *n) {
  return m->mesh_text && axes_span(at_node_str(n, AT_ATTR_MANUAL_AXES),
                                   m->mesh_text) == m->num_partitions;
}

static bool node_fits(const manual *w, at_node *n) {
  if (n->op == AT_OP_PARAMETER) return true;
  if (n->op != AT_OP_MANUAL_COMPUTATION || !manual_everywhere(w->m, n))
    return false;
  const at_comp *body = n->regions[0];
  at_str in = at_node_str(n, AT_ATTR_IN_SHARDINGS);
  at_str out = at_node_str(n, AT_ATTR_OUT_SHARDINGS);
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (!agree(w, n->operands[i], list_item(in, i), &body->params[i]->types[0]))
      return false;
  for (uint32_t i = 0; i < n->num_results; i++)
    if (!agree(w, (at_value){n, i}, list_item(out, i),
               at_value_type(body->results[i])))
      return false;
  return true;
}

static bool returns_fit(const manual *w) {
  const at_comp *c = w->m->entry;
  for (uint32_t i = 0; i < c->num_results; i++) {
    placed *p = place_of(w, c->results[i]);
    const char *said = w->m->results ? w->m->results[i].sharding : NULL;
    if (!p || !p->local) return false;
    if (said && !same_place(at_str_of(said), p->text)) return false;
  }
  return true;
}

static at_status recognise(manual *w, bool *out) {
  at_comp *c = w->m->entry;
  bool any = false;
  AT_FOR_NODES(n, c) {
    n->mark = 0;
    if (n->op != AT_OP_PARAMETER && n->op != AT_OP_MANUAL_COMPUTATION) continue;
    any |= n->op == AT_OP_MANUAL_COMPUTATION;
    n->mark = 1 + w->count;
    w->count += n->num_results;
  }
  *out = false;
  if (!any) return AT_OK;
  AT_TRY_ALLOC(w->values, at_new(w->m->arena, placed, w->count));
  for (uint32_t i = 0; w->m->params && i < c->num_params; i++)
    if (w->m->params[i].sharding)
      w->values[c->params[i]->mark - 1].text =
          at_str_of(w->m->params[i].sharding);
  AT_FOR_NODES(n, c) if (!node_fits(w, n)) return AT_OK;
  *out = returns_fit(w);
  return AT_OK;
}

// ---- Rewriting -------------------------------------------------------------
static at_status say(at_module *m, at_str text, const char **out) {
  bool whole = at_str_starts(text, "#sdy.sharding");
  AT_TRY_ALLOC(*out,
               at_arena_printf(m->arena, "%s%.*s", whole ? "" : "#sdy.sharding",
                               (int)text.len, text.ptr));
  return AT_OK;
}

static at_status localise(manual *w) {
  at_module *m = w->m;
  at_comp *c = m->entry;
  for (uint32_t i = 0; i < c->num_results; i++)
    if (m->results)
      AT_TRY(say(m, place_of(w, c->results[i])->text, &m->results[i].sharding));
  for (uint32_t i = 0; i < c->num_params; i++) {
    const placed *p = &w->values[c->params[i]->mark - 1];
    if (p->local) c->params[i]->types[0] = *p->local;
    if (m->params && p->text.len)
      AT_TRY(say(m, p->text, &m->params[i].sharding));
  }
  at_rw r = {.m = m};
  at_aux_clear(m);
  for (at_node *n = c->first, *next; n; n = next) {
    next = n->next;
    at_fwd_operands(n);
    if (n->op != AT_OP_MANUAL_COMPUTATION) continue;
    at_value *out;
    AT_TRY_ALLOC(out, at_new(m->arena, at_value, (size_t)n->num_results + 1));
    at_comp_splice(n->regions[0], n->operands, n, out);
    for (uint32_t i = 0; i < n->num_results; i++) {
      n->types[i] = *at_value_type(out[i]);
      AT_TRY(at_fwd_set(&r, n, i, out[i]));
    }
    n->num_regions = 0;
    at_node_remove(n);
  }
  at_fwd_results(c);
  return AT_OK;
}

// An unused parameter that nobody cuts is whole on every device; one that is
// cut by its own sharding alone is left to who partitions.
static bool unused_params_whole(const manual *w) {
  const at_comp *c = w->m->entry;
  for (uint32_t i = 0; i < c->num_params; i++) {
    const placed *p = &w->values[c->params[i]->mark - 1];
    if (!p->local && p->text.len && memchr(p->text.ptr, '"', p->text.len))
      return false;
  }
  return true;
}

at_status at_pass_manual(at_module *m, const at_pass_options *o) {
  if (m->num_partitions == 1) return AT_OK;
  manual w = {.m = m};
  bool fits;
  at_aux_clear(m);
  AT_TRY(recognise(&w, &fits));
  if (fits && unused_params_whole(&w)) AT_TRY(localise(&w));
  at_aux_clear(m);
  return AT_OK;
}
