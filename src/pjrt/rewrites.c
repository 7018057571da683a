// The extension XlaTransform: functions of the client that rewrite programs as
// they are compiled, each from an HloModuleProto to another. JAX registers what
// jax.extend.xla.register_hlo_module_transformation is given.
#include <pthread.h>
#include <stdlib.h>

#include "pjrt/pjrt_internal.h"

// The version of the extension's structs.
enum { VERSION = 1, STAGES = 2 };

// One function, as long as it is registered or runs.
typedef struct rewrite {
  struct rewrite *next;  // registered after it
  PJRT_XlaTransform_PipelineStage stage;
  PJRT_XlaTransform_Callbacks *callbacks;  // the client's, until their dtor
  uint32_t calls;                          // that run now
  bool cleared;
  size_t name_size;
  char name[];
} rewrite;

static struct {
  pthread_mutex_t lock;
  rewrite *first;
} g_rewrites = {.lock = PTHREAD_MUTEX_INITIALIZER};

// Frees what is cleared and does not run. Called by who registers and clears:
// destructors may need what only such threads hold (Python's lock).
static void sweep(void) {
  rewrite *gone = NULL;
  pthread_mutex_lock(&g_rewrites.lock);
  for (rewrite **at = &g_rewrites.first; *at;) {
    rewrite *r = *at;
    if (!r->cleared || r->calls) {
      at = &r->next;
      continue;
    }
    *at = r->next;
    r->next = gone;
    gone = r;
  }
  pthread_mutex_unlock(&g_rewrites.lock);
  for (rewrite *next; gone; gone = next) {
    next = gone->next;
    if (gone->callbacks->dtor) gone->callbacks->dtor(gone->callbacks);
    free(gone);
  }
}

static at_status check_stage(PJRT_XlaTransform_PipelineStage stage) {
  return (uint32_t)stage < STAGES
             ? AT_OK
             : AT_FAIL(AT_INVALID_ARGUMENT, "unknown pipeline stage %d",
                       (int)stage);
}

// Behind those that are registered. Names need not differ.
static PJRT_Error *rewrite_register(PJRT_Register_Xla_Transform_Args *a) {
  AT_ARGS(PJRT_Register_Xla_Transform_Args);
  AT_HANDLE(a->callbacks);
  AT_HANDLE(a->callbacks->transform_hlo_module);
  AT_PTRY(check_stage(a->stage));
  if (a->callbacks->version != VERSION)
    return AT_PFAIL(AT_INVALID_ARGUMENT,
                    "callbacks of version %lld, this library calls version %d",
                    (long long)a->callbacks->version, VERSION);
  sweep();
  size_t n = a->name ? a->name_size : 0;
  rewrite *r = calloc(1, at_add(sizeof *r, n));
  if (!r) return AT_PFAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  r->stage = a->stage;
  r->callbacks = a->callbacks;
  r->name_size = n;
  if (n) memcpy(r->name, a->name, n);
  pthread_mutex_lock(&g_rewrites.lock);
  rewrite **end = &g_rewrites.first;
  while (*end) end = &(*end)->next;
  *end = r;
  pthread_mutex_unlock(&g_rewrites.lock);
  return NULL;
}

// Those of that name, or of those callbacks where no name is given.
static PJRT_Error *rewrite_clear(PJRT_Clear_Xla_Transform_Args *a) {
  AT_ARGS(PJRT_Clear_Xla_Transform_Args);
  if (!a->name) AT_HANDLE(a->callbacks);
  AT_PTRY(check_stage(a->stage));
  a->cleared = false;
  pthread_mutex_lock(&g_rewrites.lock);
  for (rewrite *r = g_rewrites.first; r; r = r->next) {
    bool same = a->name ? r->name_size == a->name_size &&
                              memcmp(r->name, a->name, a->name_size) == 0
                        : r->callbacks == a->callbacks;
    if (!same || r->stage != a->stage || r->cleared) continue;
    r->cleared = a->cleared = true;
  }
  pthread_mutex_unlock(&g_rewrites.lock);
  sweep();
  return NULL;
}

PJRT_Xla_Transform_Extension at_pjrt_rewrites_extension = {
    .base = {.struct_size = PJRT_Xla_Transform_Extension_STRUCT_SIZE,
             .type = PJRT_Extension_Type_XlaTransform},
    .register_xla_transform = rewrite_register,
    .clear_xla_transform = rewrite_clear,
};

// ---- Compiling

// The functions that are registered now, by stage and then in their order, held
// until drop_all. Freed by free().
static at_status hold_all(rewrite ***out, size_t *out_n) {
  size_t n = 0;
  pthread_mutex_lock(&g_rewrites.lock);
  for (rewrite *r = g_rewrites.first; r; r = r->next) n += !r->cleared;
  rewrite **all = n ? calloc(n, sizeof *all) : NULL;
  size_t k = 0;
  for (int stage = 0; all && stage < STAGES; stage++) {
    for (rewrite *r = g_rewrites.first; r; r = r->next) {
      if (r->cleared || (int)r->stage != stage) continue;
      r->calls++;
      all[k++] = r;
    }
  }
  pthread_mutex_unlock(&g_rewrites.lock);
  if (n && !all) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  *out = all;
  *out_n = n;
  return AT_OK;
}

static void drop_all(rewrite **all, size_t n) {
  pthread_mutex_lock(&g_rewrites.lock);
  for (size_t i = 0; i < n; i++) all[i]->calls--;
  pthread_mutex_unlock(&g_rewrites.lock);
  free(all);
}

// What the function says of the module, which takes its place where it differs.
static at_status take(const rewrite *r, const PJRT_XlaTransform_Args *a,
                      at_strbuf *module, bool *changed) {
  at_str said = a->header.error_msg.data ? (at_str){a->header.error_msg.data,
                                                    a->header.error_msg.size}
                                         : AT_STR("no reason given");
  at_str is = {a->transformed_hlo_module.data, a->transformed_hlo_module.size};
  if (a->header.has_error)
    return AT_FAIL(AT_INTERNAL, "rewrite \"%.*s\": %.*s",
                   (int)AT_MIN(r->name_size, 200u), r->name,
                   (int)AT_MIN(said.len, 4000u), said.ptr);
  if (!a->changed) return AT_OK;
  if (!is.ptr || !is.len)
    return AT_FAIL(AT_INVALID_ARGUMENT, "rewrite \"%.*s\" gives no module",
                   (int)AT_MIN(r->name_size, 200u), r->name);
  if (at_str_eq(is, at_strbuf_str(module))) return AT_OK;
  at_strbuf copy = {0};
  at_strbuf_add(&copy, is);
  at_strbuf_free(module);
  *module = copy;
  *changed = true;
  return at_strbuf_status(module);
}

static at_status call(const rewrite *r, at_strbuf *module, bool *changed) {
  PJRT_XlaTransform_Args a = {.struct_size = PJRT_XlaTransform_Args_STRUCT_SIZE,
                              .header = {.api_version = VERSION},
                              .hlo_module = {module->ptr, module->len}};
  r->callbacks->transform_hlo_module(r->callbacks, &a);
  at_status st = take(r, &a, module, changed);
  if (a.header.cleanup_fn) a.header.cleanup_fn(a.header.data);
  return st;
}

at_status at_pjrt_rewrite(at_bytes source, const at_compile_options *options,
                          at_bytes *out) {
  rewrite **all;
  size_t n;
  *out = (at_bytes){0};
  AT_TRY(hold_all(&all, &n));
  if (!n) return AT_OK;
  at_compile_options o = *options;
  o.dump_dir = "";
  at_strbuf module = {0};
  bool changed = false;
  at_status st = at_compile_dump(source, &o, AT_STAGE_PARTITIONED, &module);
  for (size_t i = 0; i < n && at_ok(st); i++)
    st = call(all[i], &module, &changed);
  drop_all(all, n);
  if (at_ok(st) && changed)
    st = at_pjrt_bytes_copy((at_bytes){(const uint8_t *)module.ptr, module.len},
                            out);
  at_strbuf_free(&module);
  return st;
}
