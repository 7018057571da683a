// Embeddings in reports.
#include "base/json.h"
#include "estimate/report_internal.h"

// One embedding with its stages, a line each.
static void add_lookup(const at_estimate_embedding *x, at_strbuf *out) {
  at_strbuf_addf(out, "  %9.2f  %s %s (%s): %.0f ids, %.0f different rows",
                 x->seconds * x->count * 1e6, x->update ? "update" : "lookup",
                 *x->table ? x->table : x->name, x->name, x->ids, x->unique);
  if (x->update) at_strbuf_addf(out, ", %.0f updated", x->touched);
  at_strbuf_addf(out, " of %g elements (%s)", x->width, x->basis);
  if (x->minibatches > 1)
    at_strbuf_addf(out, ", %g mini-batches", x->minibatches);
  at_strbuf_addc(out, '\n');
  for (uint32_t i = 0; i < x->num_stages; i++) {
    const at_estimate_stage *s = &x->stages[i];
    at_strbuf_addf(out, "  %9.2f    %-24s %-8s", s->seconds * x->count * 1e6,
                   s->name, at_bound_text(s->bound));
    at_strbuf_addz(out, "HBM ");
    at_est_bytes(out, s->hbm_bytes);
    if (s->network_bytes > 0) {
      at_strbuf_addz(out, ", network ");
      at_est_bytes(out, s->network_bytes);
    }
    at_strbuf_addc(out, '\n');
  }
}

// Embeddings, then advice.
void at_est_embeddings_text(const at_estimate *e, at_strbuf *out) {
  if (!e->num_embeddings) return;
  at_strbuf_addf(out, "\n  %9s  embeddings, of one device\n", "us");
  for (uint32_t i = 0; i < e->num_embeddings; i++)
    add_lookup(&e->embeddings[i], out);
  for (uint32_t i = 0; i < e->num_advice; i++)
    at_strbuf_addf(out, "  advice: %s\n", e->advice[i]);
}

static void add_number(at_json_writer *w, const char *key, double v) {
  at_json_key(w, at_str_of(key));
  at_json_num(w, v);
}

static void add_text(at_json_writer *w, const char *key, const char *text) {
  at_json_key(w, at_str_of(key));
  at_json_str(w, at_str_of(text));
}

// What runs one after the other.
static void add_stages(const at_estimate_embedding *x, at_json_writer *w) {
  at_json_key(w, AT_STR("stages"));
  at_json_begin_array(w);
  for (uint32_t i = 0; i < x->num_stages; i++) {
    at_json_begin_object(w);
    add_text(w, "name", x->stages[i].name);
    add_text(w, "bound", at_bound_text(x->stages[i].bound));
    add_number(w, "seconds", x->stages[i].seconds);
    add_number(w, "hbm_bytes", x->stages[i].hbm_bytes);
    add_number(w, "network_bytes", x->stages[i].network_bytes);
    at_json_end_object(w);
  }
  at_json_end_array(w);
}

// Every figure of an embedding, in bytes and seconds.
void at_est_embeddings_json(const at_estimate *e, at_json_writer *w) {
  at_json_key(w, AT_STR("embeddings"));
  at_json_begin_array(w);
  for (uint32_t i = 0; i < e->num_embeddings; i++) {
    const at_estimate_embedding *x = &e->embeddings[i];
    at_json_begin_object(w);
    add_text(w, "name", x->name);
    add_text(w, "table", x->table);
    add_text(w, "kind", x->update ? "update" : "lookup");
    add_text(w, "basis", x->basis);
    add_text(w, "refusal", x->refusal);
    const struct {
      const char *key;
      double v;
    } f[] = {{"rows", x->rows},
             {"width", x->width},
             {"padded_width", x->padded_width},
             {"slots", x->slots},
             {"samples", x->samples},
             {"ids", x->ids},
             {"unique_rows", x->unique},
             {"updated_rows", x->update ? x->touched : 0},
             {"max_ids_per_partition", x->max_ids},
             {"max_unique_ids_per_partition", x->max_unique},
             {"minibatches", x->minibatches},
             {"tile_bytes", x->tile_bytes},
             {"tile_bytes_limit", x->tile_bytes_most},
             {"stack_bytes", x->stack_bytes},
             {"seconds", x->seconds},
             {"runs", x->count}};
    for (size_t k = 0; k < AT_LEN(f); k++) add_number(w, f[k].key, f[k].v);
    add_stages(x, w);
    at_json_end_object(w);
  }
  at_json_end_array(w);
  at_json_key(w, AT_STR("advice"));
  at_json_begin_array(w);
  for (uint32_t i = 0; i < e->num_advice; i++)
    at_json_str(w, at_str_of(e->advice[i]));
  at_json_end_array(w);
}
