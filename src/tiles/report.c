// A compiled program as text and as JSON. html.c draws it.
#include "base/json.h"
#include "tiles/tiles_internal.h"

// A table of steps, the fullest tile's memory, the dearest tensors, the advice.
void at_tiles_report_text(const at_tiles_plan *p, at_strbuf *b) {
  const at_tiles_machine *m = p->machine;
  at_strbuf_addf(b,
                 "%s: %lld cycles (%.1f us) in %u steps; fullest tile %u: %lld "
                 "of %lld bytes\n",
                 m->name, (long long)p->cycles,
                 (double)p->cycles / m->clock_hz * 1e6, p->num_steps,
                 p->fullest, (long long)p->peak_bytes,
                 (long long)m->bytes_per_tile);
  at_strbuf_addf(b, "%-28s %6s %10s %6s %10s %10s %10s %10s %12s %6s %6s\n",
                 "step", "times", "cycles", "sync", "exchange", "pre",
                 "execute", "post", "moved bytes", "idle", "even");
  for (uint32_t i = 0; i < p->num_steps; i++) {
    const at_tiles_step *s = &p->steps[i];
    at_strbuf_addf(b,
                   "%-28.28s %6lld %10lld %6lld %10lld %10lld %10lld %10lld "
                   "%12lld %6u %5.0f%%\n",
                   s->name, (long long)s->times, (long long)s->cycles,
                   (long long)s->sync, (long long)s->exchange,
                   (long long)s->pre, (long long)s->execute, (long long)s->post,
                   (long long)s->exchange_bytes, s->idle_tiles,
                   100 * s->balance);
  }
  at_strbuf_addf(b, "memory of tile %u:", p->fullest);
  for (int c = 0; c < AT_TILES_MEM_COUNT; c++)
    if (p->categories[p->fullest][c])
      at_strbuf_addf(b, " %s %lld",
                     at_tiles_category_text((at_tiles_category)c),
                     (long long)p->categories[p->fullest][c]);
  at_strbuf_addf(b, "\ndata %lld bytes, %lld if nothing shared space\n",
                 (long long)p->data_bytes, (long long)p->unshared_bytes);
  for (uint32_t i = 0; i < p->num_tensors && i < 8; i++) {
    const at_tiles_tensor *t = &p->tensors[i];
    if (!i)
      at_strbuf_addf(b, "%-36s %12s %14s  %s\n", "tensors that travel",
                     "cycles", "bytes", "lies in");
    at_strbuf_addf(b, "%-36.36s %12lld %14lld  %s\n", t->name,
                   (long long)t->cycles, (long long)t->bytes, t->home);
  }
  if (*p->advice) at_strbuf_addf(b, "advice\n%s", p->advice);
}

// A member "key": v.
static void number(at_json_writer *w, const char *key, int64_t v) {
  at_json_key(w, at_str_of(key));
  at_json_int(w, v);
}

// One step as an object.
static void write_step(at_json_writer *w, const at_tiles_step *s) {
  at_json_begin_object(w);
  at_json_key(w, AT_STR("name"));
  at_json_str(w, at_str_of(s->name));
  const struct {
    const char *key;
    int64_t value;
  } rows[] = {{"times", s->times},
              {"cycles", s->cycles},
              {"sync", s->sync},
              {"exchange", s->exchange},
              {"pre", s->pre},
              {"execute", s->execute},
              {"post", s->post},
              {"exchange_bytes", s->exchange_bytes},
              {"exchange_bound", s->exchange_bound},
              {"rearranged_bytes", s->rearranged_bytes},
              {"saved_cycles", s->saved_cycles},
              {"stay_cycles", s->stay_cycles},
              {"busiest", s->busiest},
              {"idle_tiles", s->idle_tiles}};
  for (size_t i = 0; i < AT_LEN(rows); i++)
    number(w, rows[i].key, rows[i].value);
  at_json_key(w, AT_STR("balance"));
  at_json_num(w, s->balance);
  at_json_end_object(w);
}

// A member "key": "z"; NULL is "".
static void text_member(at_json_writer *w, const char *key, const char *z) {
  at_json_key(w, at_str_of(key));
  at_json_str(w, at_str_of(z ? z : ""));
}

// What lies on the fullest tile, and the tensors that travel.
static void write_lists(at_json_writer *w, const at_tiles_plan *p) {
  at_json_key(w, AT_STR("blocks"));
  at_json_begin_array(w);
  for (uint32_t i = 0; i < p->num_blocks; i++) {
    const at_tiles_block *x = &p->blocks[i];
    at_json_begin_object(w);
    text_member(w, "name", x->name);
    text_member(w, "category", at_tiles_category_text(x->category));
    number(w, "address", x->at);
    number(w, "bytes", x->bytes);
    number(w, "first_step", x->first < 0 ? -1 : x->first / 4);
    number(w, "last_step", x->last == INT32_MAX ? -1 : x->last / 4);
    number(w, "interleaved", x->interleaved);
    at_json_end_object(w);
  }
  at_json_end_array(w);
  at_json_key(w, AT_STR("tensors"));
  at_json_begin_array(w);
  for (uint32_t i = 0; i < p->num_tensors; i++) {
    const at_tiles_tensor *x = &p->tensors[i];
    at_json_begin_object(w);
    text_member(w, "name", x->name);
    text_member(w, "shape", x->shape);
    text_member(w, "home", x->home);
    text_member(w, "step", x->step);
    text_member(w, "want", x->want);
    number(w, "cycles", x->cycles);
    number(w, "bytes", x->bytes);
    number(w, "tile_bytes", x->tile_bytes);
    at_json_end_object(w);
  }
  at_json_end_array(w);
  at_json_key(w, AT_STR("tile_bytes"));
  at_json_begin_array(w);
  for (int64_t t = 0; t < p->machine->tiles; t++)
    at_json_int(w, p->tile_bytes[t]);
  at_json_end_array(w);
}

// Sizes in bytes, times in cycles; "seconds" is the one exception.
void at_tiles_report_json(const at_tiles_plan *p, at_strbuf *b) {
  at_json_writer w = {b, false};
  at_json_begin_object(&w);
  at_json_key(&w, AT_STR("machine"));
  at_json_str(&w, at_str_of(p->machine->name));
  number(&w, "cycles", p->cycles);
  at_json_key(&w, AT_STR("seconds"));
  at_json_num(&w, (double)p->cycles / p->machine->clock_hz);
  number(&w, "peak_bytes", p->peak_bytes);
  number(&w, "data_bytes", p->data_bytes);
  number(&w, "unshared_bytes", p->unshared_bytes);
  number(&w, "fullest", p->fullest);
  at_json_key(&w, AT_STR("steps"));
  at_json_begin_array(&w);
  for (uint32_t i = 0; i < p->num_steps; i++) write_step(&w, &p->steps[i]);
  at_json_end_array(&w);
  at_json_key(&w, AT_STR("memory"));
  at_json_begin_object(&w);
  for (int c = 0; c < AT_TILES_MEM_COUNT; c++)
    number(&w, at_tiles_category_text((at_tiles_category)c),
           p->categories[p->fullest][c]);
  at_json_end_object(&w);
  write_lists(&w, p);
  text_member(&w, "advice", p->advice);
  at_json_end_object(&w);
}

// Messages in order, each with what it carries.
at_status at_tiles_exchange_text(at_tiles_program *p, at_strbuf *b) {
  for (int after = 0; after < 2; after++) {
    const at_tiles_exchange *x;
    AT_TRY(at_tiles_program_exchange(p, after, &x));
    size_t k = 0;
    for (size_t i = 0; i < x->num_messages; i++) {
      const at_tiles_message *m = &x->messages[i];
      at_strbuf_addf(b, "tile %u ->", m->from);
      for (uint32_t r = 0; r < m->count; r++)
        at_strbuf_addf(b, "%s %u", r ? "," : "", x->receivers[m->first + r]);
      at_strbuf_addf(
          b, ": %sat cycle %lld, %lld bytes:", after ? "after it, " : "",
          (long long)m->start, (long long)m->bytes);
      for (; k < x->num_sent && x->sent[k].message == i; k++)
        at_strbuf_addf(b, " %s[%lld, %lld)",
                       p->graph->vars.ptr[x->sent[k].var].name,
                       (long long)x->sent[k].begin, (long long)x->sent[k].end);
      at_strbuf_addc(b, '\n');
    }
  }
  return AT_OK;
}
