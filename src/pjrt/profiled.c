// What a profiling session learns from calls: which programs ran and on which
// chips, so that the profile can tell what they are.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/config.h"
#include "compile/describe.h"
#include "machine/machine.h"
#include "pjrt/modelled.h"
#include "profile/profile.h"

// A device that a launch ran on, as far as profiles tell of it.
typedef struct seen_chip {
  uint32_t id;
  char kind[64], target[32];
  uint64_t hbm_bytes;
} seen_chip;

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
// What the session has met so far; under g_lock.
static struct seen {
  bool on;
  at_arena *arena;
  AT_VEC(at_pjrt_program *) programs;  // a reference each
  AT_VEC(seen_chip) chips;
  bool failed;  // for want of memory
} g_seen;

at_status at_pjrt_profiled_start(void) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("a profile");
  pthread_mutex_lock(&g_lock);
  g_seen = (struct seen){.on = true, .arena = a};
  pthread_mutex_unlock(&g_lock);
  return AT_OK;
}

// Two handles of one program are one program.
static void see_program(at_pjrt_program *p) {
  for (size_t i = g_seen.programs.len; i--;)
    if (!memcmp(g_seen.programs.ptr[i]->header->fingerprint,
                p->header->fingerprint, sizeof p->header->fingerprint))
      return;
  if (at_vec_push(g_seen.arena, &g_seen.programs, p))
    at_pjrt_program_retain(p);
  else
    g_seen.failed = true;
}

// Copies what will be told of the device, as it may be gone by the session's
// end.
static void see_device(const PJRT_Device *d) {
  const at_chip_info *info = &d->description->info;
  for (size_t i = 0; i < g_seen.chips.len; i++)
    if (g_seen.chips.ptr[i].id == info->id) return;
  seen_chip c = {.id = info->id, .hbm_bytes = info->hbm_bytes};
  snprintf(c.kind, sizeof c.kind, "%s", d->description->kind);
  snprintf(c.target, sizeof c.target, "%s", d->description->target);
  if (!at_vec_push(g_seen.arena, &g_seen.chips, c)) g_seen.failed = true;
}

// What the client's own trace calls the call that it makes; 0: nothing.
static uint64_t context_of(const PJRT_Extension_Base *e) {
  for (; e; e = e->next)
    if (e->type == PJRT_Extension_Type_Profiler &&
        e->struct_size >=
            offsetof(PJRT_Profiler_Extension, traceme_context_id) +
                sizeof(int64_t))
      return (uint64_t)((const PJRT_Profiler_Extension *)e)->traceme_context_id;
  return 0;
}

void at_pjrt_profiled_call(const PJRT_LoadedExecutable_Execute_Args *a) {
  const PJRT_LoadedExecutable *l = a->executable;
  uint64_t context = context_of(a->extension_start);
  pthread_mutex_lock(&g_lock);
  bool on = g_seen.on;
  if (on) {
    see_program(l->program);
    if (a->execute_device) see_device(a->execute_device);
    for (uint32_t i = 0; i < l->num_devices; i++) see_device(l->devices[i]);
  }
  pthread_mutex_unlock(&g_lock);
  if (on && context)
    at_profile_record(&(at_profile_event){.kind = AT_PROFILE_CALL,
                                          .launch_id = a->options->launch_id,
                                          .context = context});
}

// ---- The end
// What viewers show of the program: its ops with their costs, in the form of
// HLO that they read. One that was loaded without its source has a name only.
static at_status describe(const at_pjrt_program *p, at_arena *a,
                          at_profile_module *out) {
  const at_xheader *h = p->header;
  *out = (at_profile_module){.program = at_profile_program(h->fingerprint[0]),
                             .name = at_pjrt_program_string(p, h->name)};
  if (!p->source.len) return AT_OK;
  at_compile_options o = {.request = p->options, .dump_dir = ""};
  at_described d;
  // The session's times count even where a program cannot be told of.
  if (at_code_take(at_compile_describe(
          p->source, &o, h->hbm_temp_bytes + h->sparse_bytes, a, &d)))
    return AT_OK;
  at_profile_op *ops;
  AT_TRY_ALLOC(ops, at_new(a, at_profile_op, (size_t)d.num_ops + 1));
  for (uint32_t i = 0; i < d.num_ops; i++)
    ops[i] = (at_profile_op){.name = d.ops[i].name,
                             .text = d.ops[i].text,
                             .category = d.ops[i].category,
                             .scope = d.ops[i].scope,
                             .source = d.ops[i].source,
                             .flops = d.ops[i].flops,
                             .transcendentals = d.ops[i].transcendentals,
                             .bytes_read = d.ops[i].bytes_read,
                             .bytes_written = d.ops[i].bytes_written};
  out->hlo = d.hlo;
  out->ops = ops;
  out->num_ops = d.num_ops;
  return AT_OK;
}

// Peak figures by which viewers draw rooflines, per device of the chip; zeros
// where the machine's table has none.
static at_profile_chip figures_of(const seen_chip *c) {
  at_profile_chip out = {
      .chip = c->id, .kind = c->kind, .hbm_bytes = c->hbm_bytes};
  const at_machine *m;
  if (at_code_take(at_machine_find(at_str_of(c->target), &m))) return out;
  double cores = at_machine_number(m, "cores_per_chip", 1);
  double devices = cores / at_machine_number(m, "cores_per_device", cores);
  out.flops_per_second =
      at_machine_number(m, "bf16_flops_per_second_per_chip", 0) / devices;
  out.hbm_bytes_per_second =
      at_machine_number(m, "hbm_bytes_per_second_per_chip", 0) / devices;
  return out;
}

// Programs and chips of the session, in its arena. RESOURCE_EXHAUSTED also
// where a program could not be noted.
static at_status about_of(const struct seen *s, at_profile_about *out) {
  at_profile_module *modules;
  at_profile_chip *chips;
  AT_TRY_ALLOC(modules,
               at_new(s->arena, at_profile_module, s->programs.len + 1));
  AT_TRY_ALLOC(chips, at_new(s->arena, at_profile_chip, s->chips.len + 1));
  for (size_t i = 0; i < s->programs.len; i++)
    AT_TRY(describe(s->programs.ptr[i], s->arena, &modules[i]));
  for (size_t i = 0; i < s->chips.len; i++)
    chips[i] = figures_of(&s->chips.ptr[i]);
  *out = (at_profile_about){.modules = modules,
                            .chips = chips,
                            .num_modules = (uint32_t)s->programs.len,
                            .num_chips = (uint32_t)s->chips.len};
  return s->failed ? AT_NO_MEMORY("a profile") : AT_OK;
}

// Takes the session out under the lock and works without it: describing
// programs takes time.
at_status at_pjrt_profiled_stop(const at_profile *p, at_strbuf *out) {
  pthread_mutex_lock(&g_lock);
  struct seen s = g_seen;
  g_seen = (struct seen){0};
  pthread_mutex_unlock(&g_lock);
  at_profile_about about;
  at_status st = about_of(&s, &about);
  if (at_ok(st)) st = at_profile_xspace(p, &about, out);
  if (at_ok(st) && s.chips.len &&
      at_config_word(AT_CONFIG_PROFILE) == AT_WORD_PROFILE_CHIP)
    st = at_pjrt_modelled(p, s.programs.ptr, s.programs.len,
                          s.chips.ptr[0].target, out);
  for (size_t i = 0; i < s.programs.len; i++)
    at_pjrt_program_release(s.programs.ptr[i]);
  at_arena_destroy(s.arena);
  return st;
}
