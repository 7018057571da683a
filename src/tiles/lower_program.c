// A whole program: its plan, its advice, whether it fits, and the baseline that
// it has to beat.
#include <stdlib.h>

#include "tiles/lower_internal.h"

// ---- Constants of bodies
// Is c `outer`, or a region somewhere below it?
static bool is_inside(const at_comp *c, const at_comp *outer) {
  while (c && c != outer) c = c->owner ? c->owner->parent : NULL;
  return c != NULL;
}

// A vertex runs a comparator or a reduction's body by itself: constants that
// passes have hoisted out of it go back.
static at_status sink_constants(at_comp *body, at_comp *in) {
  AT_FOR_NODES(n, in) {
    for (uint32_t i = 0; i < n->num_operands; i++) {
      at_value v = n->operands[i], own;
      if (v.node->op != AT_OP_CONSTANT || is_inside(v.node->parent, body))
        continue;
      AT_TRY(
          at_build_constant(body, body->first, at_node_literal(v.node), &own));
      at_replace_uses(body, v, own);
    }
    for (uint32_t k = 0; k < n->num_regions; k++)
      AT_TRY(sink_constants(body, n->regions[k]));
  }
  for (uint32_t i = 0; i < in->num_results; i++) {
    at_value v = in->results[i], own;
    if (v.node->op != AT_OP_CONSTANT || is_inside(v.node->parent, body))
      continue;
    AT_TRY(at_build_constant(body, body->first, at_node_literal(v.node), &own));
    at_replace_uses(body, v, own);
  }
  return AT_OK;
}

// Comparators and reductions of c and of its control flow, each closed by
// itself.
static at_status close_bodies(at_comp *c) {
  AT_FOR_NODES(n, c)
  for (uint32_t k = 0; k < n->num_regions; k++)
    AT_TRY(at_op_is(n->op, AT_CONTROL)
               ? close_bodies(n->regions[k])
               : sink_constants(n->regions[k], n->regions[k]));
  return AT_OK;
}

// A lowerer in `a` with a value for every node. UNIMPLEMENTED: programs for
// several devices.
static at_status start(at_tiles_lowerer **out, const at_tiles_machine *m,
                       const at_tiles_lower_options *o, at_arena *a,
                       const at_module *module) {
  at_tiles_lowerer *w;
  size_t n = (size_t)m->tiles;
  if (module->num_replicas * module->num_partitions > 1)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "a program for %lld devices on a machine of tiles\nhint: "
                   "one replica, one partition",
                   (long long)(module->num_replicas * module->num_partitions));
  AT_TRY_ALLOC(w, at_new(a, at_tiles_lowerer, 1));
  *w = (at_tiles_lowerer){
      .m = *m, .arena = a, .entry = module->entry, .times = 1};
  AT_TRY_ALLOC(w->o, at_arena_copy(a, o, sizeof *o, 8));
  w->values = at_map_in(a);
  w->tasks = at_map_in(a);
  AT_TRY_ALLOC(w->tile_cycles, at_new(a, int64_t, 6 * n));
  w->vertices = w->tile_cycles + n;
  w->code = w->tile_cycles + 2 * n;
  w->exchange_code = w->tile_cycles + 3 * n;
  w->descriptors = w->tile_cycles + 4 * n;
  w->tile_received = w->tile_cycles + 5 * n;
  AT_TRY_ALLOC(w->kinds, (uint64_t(*)[4])at_arena_alloc(
                             a, at_mul(n, sizeof *w->kinds), 8));
  *out = w;
  return at_tiles_lower_declare(w, module->entry);
}

// ---- The tensors that cost the most
// Cycles of one operand's way over the program.
static int64_t way_cycles(const at_tiles_lowerer *w, const at_tiles_way *x) {
  return x->cycles * w->steps.ptr[x->step].times;
}

// Ways of one value side by side, in the order of steps.
static int by_value(const void *a, const void *b) {
  const at_tiles_way *x = a, *y = b;
  if (x->value != y->value) return x->value < y->value ? -1 : 1;
  return (x->step > y->step) - (x->step < y->step);
}

// Dearest first.
static int by_cost(const void *a, const void *b) {
  const at_tiles_tensor *x = a, *y = b;
  if (x->cycles != y->cycles) return x->cycles > y->cycles ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}

// One line of the report: the n ways of one value, added up.
static at_status tensor_of(const at_tiles_lowerer *w, const at_tiles_way *x,
                           size_t n, at_tiles_tensor *out) {
  const at_tiles_value *v = x->value;
  at_strbuf b = {0};
  int64_t dearest = -1, each = at_dtype_bytes(v->type->dtype);
  at_type_print(&b, v->type);
  *out = (at_tiles_tensor){.name = v->name, .tile_bytes = each};
  out->shape = at_strbuf_move(&b, w->arena);
  AT_TRY_ALLOC(out->home, at_tiles_lay_text(w->arena, &v->lay));
  for (uint32_t d = 0; d < v->lay.rank; d++) {
    int64_t most = 0;
    for (int64_t k = 0; k < v->lay.dim[d].cuts; k++)
      most = AT_MAX(most, v->lay.dim[d].end[k] - v->lay.dim[d].bound[k]);
    out->tile_bytes *= most;
  }
  for (size_t i = 0; i < n; i++) {
    int64_t cycles = way_cycles(w, &x[i]);
    out->bytes += x[i].bytes * w->steps.ptr[x[i].step].times;
    out->cycles += cycles;
    if (cycles <= dearest) continue;
    dearest = cycles;
    out->step = w->steps.ptr[x[i].step].name;
    out->want = x[i].want;
  }
  return out->shape ? AT_OK : AT_NO_MEMORY("report");
}

// Groups the ways by value and sorts by cost.
static at_status rank_tensors(at_tiles_lowerer *w, at_tiles_plan *p) {
  at_tiles_tensor *list;
  size_t n = w->ways.len, k = 0;
  AT_TRY_ALLOC(list, at_new(w->arena, at_tiles_tensor, n + 1));
  // Values lie in the order in which they were declared: the same every time.
  if (n) qsort(w->ways.ptr, n, sizeof *w->ways.ptr, by_value);
  for (size_t i = 0; i < n;) {
    size_t e = i;
    while (e < n && w->ways.ptr[e].value == w->ways.ptr[i].value) e++;
    AT_TRY(tensor_of(w, &w->ways.ptr[i], e - i, &list[k++]));
    i = e;
  }
  if (k) qsort(list, k, sizeof *list, by_cost);
  p->tensors = list;
  p->num_tensors = (uint32_t)k;
  return AT_OK;
}

// ---- Advice
// The five dearest tensors that take 2 % of the cycles each.
static void advise_tensors(const at_tiles_plan *p, at_strbuf *b) {
  for (uint32_t i = 0; i < p->num_tensors && i < 5; i++) {
    const at_tiles_tensor *t = &p->tensors[i];
    if (t->cycles * 50 < p->cycles) break;
    at_strbuf_addf(b,
                   "%s (%s) lies in %s; bringing it where it is used takes "
                   "%lld of %lld cycles (%.1f%%). Map it like %s wants it, in "
                   "%s, and that step receives nothing of it.\n",
                   t->name, t->shape, t->home, (long long)t->cycles,
                   (long long)p->cycles,
                   100 * (double)t->cycles / (double)AT_MAX(p->cycles, 1),
                   t->step, t->want);
  }
}

// Steps in which most tiles idle, and what is rearranged inside tiles.
static void advise_steps(const at_tiles_lowerer *w, const at_tiles_plan *p,
                         at_strbuf *b) {
  int64_t turned = 0;
  const at_tiles_step *worst = NULL;
  int told = 0;
  for (uint32_t i = 0; i < p->num_steps; i++) {
    const at_tiles_step *s = &p->steps[i];
    turned += s->pre * s->times;
    if (!worst || s->pre * s->times > worst->pre * worst->times) worst = s;
    if (s->idle_tiles * 2 < (uint64_t)w->m.tiles ||
        s->execute * s->times * 50 < p->cycles || told >= 5)
      continue;
    told++;
    at_strbuf_addf(b,
                   "%s: %u of %lld tiles idle while tile %u works %lld cycles: "
                   "too few blocks to go round.\n",
                   s->name, s->idle_tiles, (long long)w->m.tiles, s->busiest,
                   (long long)s->execute);
  }
  if (worst && turned * 50 > p->cycles)
    at_strbuf_addf(b,
                   "Rearranging inside tiles takes %lld of %lld cycles, most "
                   "of it in %s (%lld each time): an operand whose summed or "
                   "last dimension is the one that is read along needs none.\n",
                   (long long)turned, (long long)p->cycles, worst->name,
                   (long long)worst->pre);
}

// Tensors, steps, then what lowering noted on its way.
static at_status advise(at_tiles_lowerer *w, at_tiles_plan *p) {
  at_strbuf b = {0};
  advise_tensors(p, &b);
  advise_steps(w, p, &b);
  at_strbuf_add(&b, at_strbuf_str(&w->notes));
  p->advice = at_strbuf_move(&b, w->arena);
  return p->advice ? AT_OK : AT_NO_MEMORY("advice");
}

// ---- Plans
// The plan of what was lowered: memory, tensors, advice.
static at_status finish(at_tiles_lowerer *w, at_tiles_plan **out, bool *fits) {
  at_tiles_plan *p;
  AT_TRY_ALLOC(p, at_new(w->arena, at_tiles_plan, 1));
  *p = (at_tiles_plan){.machine = &w->m,
                       .steps = w->steps.ptr,
                       .num_steps = (uint32_t)w->steps.len,
                       .cycles = w->cycles,
                       .tile_cycles = w->tile_cycles,
                       .tile_received = w->tile_received,
                       .lowered = w};
  AT_TRY(at_tiles_lower_memory(w, p, fits));
  AT_TRY(rank_tensors(w, p));
  AT_TRY(advise(w, p));
  *out = p;
  return AT_OK;
}

// When memory is fullest on the fullest tile, and by what.
static at_status over_memory(const at_tiles_plan *p) {
  int64_t most = -1;
  int32_t when = -1;
  for (uint32_t i = 0; i < p->num_blocks; i++) {
    int64_t now = 0;
    int32_t at = p->blocks[i].first;
    for (uint32_t k = 0; k < p->num_blocks && p->blocks[k].first <= at; k++)
      now += p->blocks[k].last >= at ? p->blocks[k].bytes : 0;
    if (now > most) most = now, when = at;
  }
  at_strbuf b = {0};
  const at_tiles_block *told[3] = {0};
  for (int n = 0; n < 3; n++) {
    const at_tiles_block *best = NULL;
    for (uint32_t k = 0; k < p->num_blocks; k++) {
      const at_tiles_block *x = &p->blocks[k];
      bool lives = x->first <= when && when <= x->last;
      if (lives && x != told[0] && x != told[1] &&
          (!best || x->bytes > best->bytes))
        best = x;
    }
    if (!best) break;
    told[n] = best;
    at_strbuf_addf(&b, "%s%s (%s) %lld bytes", n ? ", " : "", best->name,
                   at_tiles_category_text(best->category),
                   (long long)best->bytes);
  }
  at_status st = AT_FAIL(
      AT_RESOURCE_EXHAUSTED,
      "tile %u needs %lld bytes of %lld at step %s\ndetail: largest there: %s; "
      "%lld bytes of code and tables\n"
      "hint: a smaller batch, or narrower element types",
      p->fullest, (long long)p->peak_bytes,
      (long long)p->machine->bytes_per_tile,
      when < 0 || (uint32_t)when / 4 >= p->num_steps ? "the start"
                                                     : p->steps[when / 4].name,
      b.ptr ? b.ptr : "", (long long)(p->peak_bytes - p->data_bytes));
  at_strbuf_free(&b);
  return st;
}

// One lowering. attempt 1: less at a time on each tile; 2: also without
// interleaved memory.
static at_status lower_once(const at_tiles_machine *m, const at_module *module,
                            const at_tiles_lower_options *o, int attempt,
                            at_arena *a, at_tiles_plan **out, bool *fits) {
  at_tiles_lowerer *w;
  AT_TRY(start(&w, m, o, a, module));
  w->tight = attempt > 0;
  w->narrow = attempt > 1;
  at_status st = at_tiles_lower_comp(w, module->entry);
  if (at_ok(st)) st = finish(w, out, fits);
  at_strbuf_free(&w->notes);
  return st;
}

// The quickest; where memory is too small, with less at a time on each tile;
// last without interleaved memory.
static at_status lower_fitting(const at_tiles_machine *m,
                               const at_module *module,
                               const at_tiles_lower_options *o, at_arena *a,
                               at_tiles_plan **out, bool *fits) {
  AT_TRY(lower_once(m, module, o, 0, a, out, fits));
  // So much is not saved by other cuts.
  bool hopeless = (*out)->peak_bytes > m->bytes_per_tile / 2 * 3;
  for (int attempt = 1; attempt < 3 && !*fits && !hopeless; attempt++) {
    at_tiles_plan *other;
    bool other_fits;
    AT_TRY(lower_once(m, module, o, attempt, a, &other, &other_fits));
    if (other_fits || other->peak_bytes < (*out)->peak_bytes)
      *out = other, *fits = other_fits;
  }
  return AT_OK;
}

// The baseline at its best, as far as it may win: no order of messages, and an
// end as soon as it has lost.
static at_status baseline(const at_tiles_machine *m, const at_module *module,
                          const at_tiles_lower_options *o, at_arena *a,
                          int64_t limit, int64_t *out_cycles) {
  at_tiles_lowerer *l;
  AT_TRY(start(&l, m, o, a, module));
  l->quick = true;
  l->limit = limit;
  at_status st = at_tiles_lower_comp(l, module->entry);
  at_strbuf_free(&l->notes);
  *out_cycles = l->cycles;
  return st;
}

// See lower.h. The linear baseline is lowered in full only where its bound is
// lower.
at_status at_tiles_lower(const at_tiles_machine *m, at_module *module,
                         const at_tiles_lower_options *o, at_arena *a,
                         const at_tiles_plan **out) {
  at_tiles_plan *best = NULL, *other;
  at_tiles_lower_options linear = {.linear = true, .lenient = true};
  bool fits, other_fits;
  int64_t cycles;
  AT_TRY(close_bodies(module->entry));
  AT_TRY(lower_fitting(m, module, o, a, &best, &fits));
  if (!o->linear) {
    AT_TRY(baseline(m, module, &linear, a, best->cycles, &cycles));
    if (cycles < best->cycles) {
      AT_TRY(lower_fitting(m, module, &linear, a, &other, &other_fits));
      if (other->cycles < best->cycles && (other_fits || !fits))
        best = other, fits = other_fits;
    }
  }
  if (!fits && !o->lenient) return over_memory(best);
  *out = best;
  return at_arena_status(a);
}
