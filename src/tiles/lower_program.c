// A whole program: its plan, its advice, whether it fits, the baseline that it
// has to beat, and its values.
#include "tiles/lower_internal.h"

static at_status start(at_tiles_lowerer *w, const at_tiles_machine *m,
                       const at_tiles_lower_options *o, at_arena *a,
                       const at_module *module) {
  *w = (at_tiles_lowerer){
      .m = *m, .o = o, .arena = a, .times = 1, .highest = -1};
  w->values = at_map_in(a);
  size_t n = (size_t)m->tiles;
  AT_TRY_ALLOC(w->now, at_new(a, int64_t, 3 * n));
  w->peak = w->now + n;
  w->tile_cycles = w->now + 2 * n;
  AT_TRY_ALLOC(w->peak_step, at_new(a, const char *, n));
  if (module->num_replicas * module->num_partitions > 1)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "a program for %lld devices on a machine of tiles\nhint: "
                   "one replica, one partition",
                   (long long)(module->num_replicas * module->num_partitions));
  return at_tiles_lower_declare(w, module->entry);
}

// The highest block first.
static int by_bytes(const void *a, const void *b) {
  const at_tiles_block *x = a, *y = b;
  return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

// Bytes of the values that have homes, on one tile.
static at_status blocks_of(at_tiles_lowerer *w, const at_comp *c, uint32_t tile,
                           at_tiles_plan *p) {
  AT_VEC(at_tiles_block) list = {0};
  int64_t *bytes;
  AT_TRY_ALLOC(bytes, at_new(w->arena, int64_t, (size_t)w->m.tiles));
  int32_t at = 0;
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_results; i++) {
      at_tiles_value *v = at_tiles_value_of(w, (at_value){n, i});
      if (!v->placed || v->of.node || n->types[i].dtype == AT_TOKEN) continue;
      at_tiles_lay_elements(&v->lay, w->m.tiles, bytes);
      bool stays = n->op == AT_OP_PARAMETER || n->op == AT_OP_CONSTANT;
      at_tiles_block b = {v->name,
                          bytes[tile] * at_dtype_bytes(n->types[i].dtype),
                          0,
                          stays ? -1 : at,
                          stays ? INT32_MAX : v->last,
                          AT_TILES_MEM_VARIABLES};
      if (b.bytes && !at_vec_push(w->arena, &list, b))
        return AT_NO_MEMORY("memory plan");
    }
    at++;
  }
  if (list.len) qsort(list.ptr, list.len, sizeof *list.ptr, by_bytes);
  p->blocks = list.ptr;
  p->num_blocks = (uint32_t)list.len;
  return AT_OK;
}

static at_status advise(at_tiles_lowerer *w, at_tiles_plan *p) {
  at_strbuf b = {0};
  for (int k = 0; k < 5; k++) {  // the dearest moves
    const at_tiles_step *best = NULL;
    for (uint32_t i = 0; i < p->num_steps; i++) {
      const at_tiles_step *s = &p->steps[i];
      int64_t moving = (s->sync + s->exchange + s->pre) * s->times;
      bool told = b.ptr && strstr(b.ptr, s->name);
      if (moving * 20 < p->cycles || told) continue;
      if (!best ||
          moving > (best->sync + best->exchange + best->pre) * best->times)
        best = s;
    }
    if (!best) break;
    at_strbuf_addf(
        &b,
        "%s: moving its operands takes %lld of the program's %lld cycles (%lld "
        "bytes): where they could "
        "lie as this step uses them, these go.\n",
        best->name,
        (long long)((best->sync + best->exchange + best->pre) * best->times),
        (long long)p->cycles, (long long)best->exchange_bytes);
  }
  for (uint32_t i = 0; i < p->num_steps && i < 4096; i++) {
    const at_tiles_step *s = &p->steps[i];
    if (s->idle_tiles * 2 < (uint64_t)w->m.tiles ||
        s->execute * s->times * 20 < p->cycles)
      continue;
    at_strbuf_addf(&b,
                   "%s: %u of %lld tiles idle while tile %u works %lld cycles: "
                   "too few blocks to go round.\n",
                   s->name, s->idle_tiles, (long long)w->m.tiles, s->busiest,
                   (long long)s->execute);
  }
  at_strbuf_add(&b, at_strbuf_str(&w->notes));
  p->advice = at_arena_str(w->arena, at_strbuf_str(&b));
  at_strbuf_free(&b);
  return p->advice ? AT_OK : AT_NO_MEMORY("advice");
}

static at_status finish(at_tiles_lowerer *w, const at_comp *c,
                        at_tiles_plan **out) {
  at_tiles_plan *p;
  int64_t(*categories)[AT_TILES_MEM_COUNT];
  at_tiles_machine *m;
  AT_TRY_ALLOC(p, at_new(w->arena, at_tiles_plan, 1));
  AT_TRY_ALLOC(m, at_arena_copy(w->arena, &w->m, sizeof w->m, 8));
  AT_TRY_ALLOC(
      categories,
      (int64_t(*)[AT_TILES_MEM_COUNT])at_arena_alloc(
          w->arena, at_mul((size_t)w->m.tiles, sizeof *categories), 8));
  for (int64_t t = 0; t < w->m.tiles; t++)
    categories[t][AT_TILES_MEM_VARIABLES] = w->peak[t];
  *p = (at_tiles_plan){
      .machine = m,
      .steps = w->steps.ptr,
      .num_steps = (uint32_t)w->steps.len,
      .cycles = w->cycles,
      .peak_bytes = AT_MAX(w->highest, 0),
      .data_bytes = AT_MAX(w->highest, 0),
      .fullest = w->fullest_tile,
      .tile_bytes = w->peak,
      .tile_cycles = w->tile_cycles,
      .categories = (const int64_t(*)[AT_TILES_MEM_COUNT])categories};
  AT_TRY(blocks_of(w, c, p->fullest, p));
  for (uint32_t i = 0; i < p->num_blocks; i++)
    p->unshared_bytes += p->blocks[i].bytes;
  AT_TRY(advise(w, p));
  *out = p;
  return AT_OK;
}

static at_status over_memory(const at_tiles_lowerer *w,
                             const at_tiles_plan *p) {
  at_strbuf b = {0};
  for (uint32_t i = 0; i < p->num_blocks && i < 3; i++)
    at_strbuf_addf(&b, "%s%s %lld bytes", i ? ", " : "", p->blocks[i].name,
                   (long long)p->blocks[i].bytes);
  at_status st = AT_FAIL(
      AT_RESOURCE_EXHAUSTED,
      "tile %u needs %lld bytes of %lld at step %s\ndetail: largest values "
      "there: %s\n"
      "hint: a smaller batch, or narrower element types",
      p->fullest, (long long)p->peak_bytes, (long long)w->m.bytes_per_tile,
      w->peak_step[p->fullest] ? w->peak_step[p->fullest] : "the start",
      b.ptr ? b.ptr : "");
  at_strbuf_free(&b);
  return st;
}

static at_status lower_once(at_tiles_lowerer *w, const at_tiles_machine *m,
                            const at_module *module,
                            const at_tiles_lower_options *o, at_arena *a,
                            at_tiles_plan **out) {
  AT_TRY(start(w, m, o, a, module));
  at_status st = at_tiles_lower_comp(w, module->entry);
  // Results that are parameters or recipes have homes too.
  if (at_ok(st)) st = finish(w, module->entry, out);
  at_strbuf_free(&w->notes);
  return st;
}

at_status at_tiles_lower(const at_tiles_machine *m, at_module *module,
                         const at_tiles_lower_options *o, at_arena *a,
                         const at_tiles_plan **out) {
  at_tiles_lowerer w;
  at_tiles_plan *best = NULL, *other;
  at_tiles_lower_options linear = {.linear = true, .lenient = true};
  AT_TRY(lower_once(&w, m, module, o, a, &best));
  if (!o->linear) {
    // The baseline at its best, as far as it may win.
    at_tiles_lowerer l;
    AT_TRY(start(&l, m, &linear, a, module));
    l.quick = true;
    l.limit = best->cycles;
    at_status st = at_tiles_lower_comp(&l, module->entry);
    at_strbuf_free(&l.notes);
    AT_TRY(st);
    if (l.cycles < best->cycles) {
      AT_TRY(lower_once(&l, m, module, &linear, a, &other));
      bool fits = other->peak_bytes <= m->bytes_per_tile;
      if (other->cycles < best->cycles &&
          (fits || best->peak_bytes > m->bytes_per_tile))
        best = other, w = l;
    }
  }
  if (best->peak_bytes > m->bytes_per_tile && !o->lenient)
    return over_memory(&w, best);
  *out = best;
  return AT_OK;
}

at_status at_tiles_lower_eval(const at_tiles_machine *m, at_module *module,
                              const at_literal *const *args, at_arena *a,
                              const at_literal **out_results) {
  at_tiles_lowerer w;
  at_tiles_lower_options o = {.lenient = true};
  AT_TRY(start(&w, m, &o, a, module));
  w.eval = true;
  const at_comp *c = module->entry;
  for (uint32_t i = 0; i < c->num_params; i++)
    at_tiles_value_of(&w, (at_value){c->params[i], 0})->literal = args[i];
  at_status st = at_tiles_lower_comp(&w, c);
  at_strbuf_free(&w.notes);
  AT_TRY(st);
  for (uint32_t i = 0; i < c->num_results; i++)
    out_results[i] = at_tiles_value_of(&w, c->results[i])->literal;
  return AT_OK;
}
