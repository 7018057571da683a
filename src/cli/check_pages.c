// Which kernels have pages: those of the programs that the run has dumped as
// they came in.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/folder.h"
#include "base/page.h"
#include "cli/check.h"
#include "cli/cli.h"

enum { kMostKernels = 500, kMostName = 80 };

// The pages to write, found before any is written, as they link to each other.
typedef struct pages {
  const at_check_result *r;
  at_arena *arena;
  const char *target;
  const at_machine *machine;  // NULL: no TPU
  const at_mosaic_chip *chip;
  at_check_kernel kernels[kMostKernels];
  uint64_t meaning[kMostKernels];  // of their calls
  uint32_t num;
} pages;

// The chip of a target: "2*v5e:2x2" and "v5e-8" are of v5e.
static at_status find_target(pages *p) {
  const char *text = at_config_text(AT_CONFIG_TARGET),
             *star = strchr(text, '*');
  if (star) text = star + 1;
  at_str name = {text, strcspn(text, ":-")};
  AT_TRY_ALLOC(p->target, at_arena_str(p->arena, name));
  p->chip = at_mosaic_chip_find(name);
  at_status st = at_machine_find(name, &p->machine);
  if (at_status_code(st) != AT_NOT_FOUND) return st;
  at_status_free(st);  // a machine without a table of costs: no timing
  return AT_OK;
}

// A file name that no other page has.
static const char *file_for(const pages *p, const char *name) {
  char plain[kMostName + 1];
  size_t n = 0;
  uint32_t same = 1;
  for (; name[n] && n < kMostName; n++) {
    char c = name[n];
    bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                (c >= '0' && c <= '9') || c == '_' || c == '-';
    plain[n] = c;
    if (!kept) plain[n] = '_';
  }
  plain[n] = 0;
  for (uint32_t i = 0; i < p->num; i++)
    same += !strncmp(p->kernels[i].file, plain, n) &&
            strchr(".~", p->kernels[i].file[n]);
  return same > 1 ? at_arena_printf(p->arena, "%s~%u.html", plain, same)
                  : at_arena_printf(p->arena, "%s.html", plain);
}

// A page that has only its name yet; NULL: no memory. The caller has checked
// that there is room.
static at_check_kernel *add_page(pages *p, const char *name) {
  at_check_kernel *k = &p->kernels[p->num];
  *k = (at_check_kernel){
      .name = name, .target = p->target, .chip = p->chip, .why = ""};
  // '~' stands in no kernel's page but behind its name.
  k->file = *name ? file_for(p, name) : "outside~kernels.html";
  p->num += k->file != NULL;
  return k->file ? k : NULL;
}

// Where bounds of the grid come as operands: as many steps as shapes allow, and
// the cycles as a formula.
static at_status time_kernel(const pages *p, at_check_kernel *k,
                             const at_mosaic_kernel *m) {
  at_mosaic_timing *t;
  at_mosaic_formula f;
  at_mosaic_given most = {
      .bounds = m->call.values,
      .num_bounds = m->call.values ? m->call.num_operands : 0};
  uint32_t found;
  AT_TRY(at_mosaic_formula_of(m, 0, p->machine, &most, p->arena, &f));
  AT_TRY(at_mosaic_bounds_at_most(m->programs, &most, p->arena, &found));
  AT_TRY(at_mosaic_timing_of(m, 0, p->machine, &most, p->arena, &t));
  k->timing = t;
  if (!f.num_bounds) return AT_OK;
  at_strbuf sum = {0};
  at_mosaic_formula_sum(&f, &sum);
  AT_TRY_ALLOC(k->formula, at_strbuf_move(&sum, p->arena));
  return AT_OK;
}

// A page for the call's kernel, unless a call of the same body has one. Why it
// has no timing is told on the page instead of failing.
static at_status add_kernel(pages *p, const at_node *n) {
  at_mosaic_call call;
  at_mosaic_kernel *m;
  AT_TRY(at_mosaic_call_of(n, p->arena, &call));
  uint64_t h = at_hash(AT_HASH_SEED, call.config.ptr, call.config.len);
  for (uint32_t i = 0; i < p->num; i++)
    if (p->meaning[i] == h) return AT_OK;
  if (p->num + 1 >= kMostKernels) return AT_OK;  // one stays for the rest
  AT_TRY(at_mosaic_read(&call, p->arena, &m));
  p->meaning[p->num] = h;
  at_check_kernel *k;
  AT_TRY_ALLOC(k, add_page(p, m->name));
  // Why there is no timing goes to the page; the kernel is shown all the same.
  k->kernel = m;
  at_status st = p->machine ? time_kernel(p, k, m)
                            : AT_FAIL(AT_NOT_FOUND, "%s is no TPU", p->target);
  if (!at_ok(st))
    k->why = at_arena_printf(p->arena, "%s", at_status_message(st));
  at_status_free(st);
  return AT_OK;
}

// Regions are at most AT_MOST_NESTED deep.
static at_status walk(pages *p, const at_comp *c) {
  AT_FOR_NODES(n, c) {
    // A kernel that cannot be read is a finding, not a page.
    if (at_mosaic_is_call(n)) at_status_free(add_kernel(p, n));
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(walk(p, n->regions[i]));
  }
  return at_arena_status(p->arena);
}

// Kernels of one dumped program. The text may go after parsing, as kernels are
// read into the arena.
static at_status read_dump(pages *p, const char *path) {
  at_bytes text;
  at_module *m;
  AT_TRY(at_cli_read_file(path, &text));
  at_status st =
      at_hlo_parse((at_str){(const char *)text.ptr, text.len}, p->arena, &m);
  free((void *)text.ptr);
  AT_TRY(st);
  for (uint32_t i = 0; i < m->num_funcs; i++) AT_TRY(walk(p, m->funcs[i]));
  return AT_OK;
}

// scandir's filter: programs as they were imported, before passes.
static int as_it_came(const struct dirent *e) {
  return strstr(e->d_name, ".00.import.hlo") != NULL;
}

// All of them in the order of their names. A folder that is not there has none.
static at_status read_dumps(pages *p, const char *folder) {
  struct dirent **files;
  at_status st = AT_OK;
  int n = scandir(folder, &files, as_it_came, alphasort);
  for (int i = 0; i < n; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, files[i]->d_name);
    if (at_ok(st)) st = read_dump(p, path);
    free(files[i]);
  }
  if (n >= 0) free(files);
  return st;
}

// Findings of kernels that have no page, and of none.
static at_status add_rest(pages *p) {
  for (uint32_t i = 0; i < p->r->num && p->num < kMostKernels; i++) {
    const char *name = p->r->findings[i].kernel;
    bool has = false;
    for (uint32_t k = 0; k < p->num; k++)
      has |= !strcmp(p->kernels[k].name, name);
    if (!has && !add_page(p, name)) return AT_NO_MEMORY("the pages");
  }
  return AT_OK;
}

// Into the folder, replacing a page of an earlier run.
static at_status write_page(const char *folder, const char *file,
                            const at_strbuf *page) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  return at_cli_write_file(path, page);
}

// A table of all pages with what is worst in each.
static at_status write_index(const pages *p, const char *folder) {
  at_strbuf b = {0};
  at_page_begin(&b, p->r->program);
  at_strbuf_addz(&b, "<h1>");
  at_page_text(&b, p->r->program);
  at_strbuf_addf(&b, "</h1><p>%u errors, %u warnings</p><table><thead><tr>",
                 p->r->errors, p->r->warnings);
  at_strbuf_addz(&b,
                 "<th>kernel<th class=n>findings<th class=n>time"
                 "<th>bound by</tr></thead><tbody>");
  for (uint32_t i = 0; i < p->num; i++) {
    const at_check_kernel *k = &p->kernels[i];
    uint32_t found = 0;
    for (uint32_t f = 0; f < p->r->num; f++)
      found += !strcmp(p->r->findings[f].kernel, k->name);
    at_strbuf_addf(&b, "<tr><td><a href=\"%s\">", k->file);
    at_page_text(&b, *k->name ? k->name : "outside kernels");
    at_strbuf_addf(&b, "</a><td class=n>%u<td class=n>", found);
    if (k->timing)
      at_strbuf_addf(&b, "%.3f us<td>%s", k->timing->seconds * 1e6,
                     at_mosaic_timing_bound(k->timing));
    at_strbuf_addz(&b, "</tr>");
  }
  at_strbuf_addz(&b, "</tbody></table>");
  at_page_end(&b);
  at_status st = write_page(folder, "index.html", &b);
  at_strbuf_free(&b);
  return st;
}

// The folder is made, with those above it.
static at_status write_all(const pages *p, const char *folder) {
  int error = at_make_folders(folder, 0777);
  if (error)
    return AT_FAIL(AT_NOT_FOUND, "cannot make the folder %s: %s", folder,
                   strerror(error));
  for (uint32_t i = 0; i < p->num; i++) {
    at_strbuf b = {0};
    at_check_page(p->r, &p->kernels[i], &b);
    at_status st = write_page(folder, p->kernels[i].file, &b);
    at_strbuf_free(&b);
    AT_TRY(st);
  }
  return write_index(p, folder);
}

// Pages of kernels first, then findings that no page would show.
at_status at_check_pages(const at_check_result *r, const char *dump,
                         const char *folder) {
  pages *p;
  AT_TRY_ALLOC(p, at_new(r->arena, pages, 1));
  p->r = r;
  p->arena = r->arena;
  AT_TRY(find_target(p));
  AT_TRY(read_dumps(p, dump));
  AT_TRY(add_rest(p));
  return write_all(p, folder);
}
