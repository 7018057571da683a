// Custom calls: a registry of foreign handlers by target name.
#include <stdlib.h>

#include "exec/custom_internal.h"

typedef struct handler {
  struct handler *next;
  at_custom_kind kind;
  uint32_t traits;
  void *fn;
  char target[];
} handler;

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static handler *g_handlers;  // never freed: a launch may be using one

// Does nothing: the operand was computed, that is all.
static at_status keep(at_bytes config, const void *const *args,
                      uint32_t num_args, void *const *results,
                      uint32_t num_results) {
  return AT_OK;
}
// jax.lax.dce_sink: its operand is computed, and that is all.
static const handler kSink = {.kind = AT_CUSTOM_OWN,
                              .fn = (void *)(uintptr_t)keep};

// The newest handler of that name. Handlers are never freed, so the pointer
// stays good.
static const handler *find(const char *target) {
  pthread_mutex_lock(&g_lock);
  const handler *h = g_handlers;
  while (h && strcmp(h->target, target)) h = h->next;
  pthread_mutex_unlock(&g_lock);
  return h || strcmp(target, "dce_sink") ? h : &kSink;
}

// When a program is loaded, so that no launch finds out.
at_status at_custom_check(const char *target) {
  if (find(target)) return AT_OK;
  return AT_FAIL(
      AT_UNIMPLEMENTED,
      "no handler is registered for the custom call \"%s\"\n"
      "hint: jax.ffi.register_ffi_target(\"%s\", ..., platform=\"tpu\"), in "
      "the process that has the chip: hosts of a pod (ATOLL_POD) do not have "
      "their clients' functions",
      target, target);
}

// In front of the list: the newest wins.
at_status at_custom_register(at_str target, at_custom_kind kind, void *fn,
                             uint32_t traits) {
  if (!fn || !target.len)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "a custom call needs a name and a handler");
  handler *h = malloc(sizeof *h + target.len + 1);
  if (!h) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a handler");
  *h = (handler){.kind = kind, .traits = traits, .fn = fn};
  memcpy(h->target, target.ptr, target.len);
  h->target[target.len] = 0;
  pthread_mutex_lock(&g_lock);
  h->next = g_handlers;  // a later registration wins
  g_handlers = h;
  pthread_mutex_unlock(&g_lock);
  return AT_OK;
}

// ---- Calling
// API versions of stablehlo.custom_call.
enum { kOriginal = 1, kTypedFfi = 4 };

typedef struct foreign_call {
  const handler *handler;
  ffi_call_frame *frame;  // typed
  void *results;          // original
  const void **operands;
  ffi_error *error;
  const at_op *op;  // our own
  at_status st;
} foreign_call;

// Results follow the operands in the table.
static void call_own(void *arg) {
  foreign_call *c = arg;
  const at_op *op = c->op;
  uint32_t operands = (uint32_t)op->aux;
  c->st = ((at_custom_fn)c->handler->fn)(
      (at_bytes){op->params, op->params_bytes}, c->operands, operands,
      (void *const *)(c->operands + operands), op->num_args - operands);
}

// On a thread's own stack (at_fiber_call_on_thread).
static void call_foreign(void *arg) {
  foreign_call *c = arg;
  if (c->handler->kind == AT_CUSTOM_FFI)
    c->error = ((ffi_handler)c->handler->fn)(c->frame);
  else
    ((void (*)(void *, const void **))c->handler->fn)(c->results, c->operands);
}

const at_xslot *at_arg_slot(const at_loaded *l, const at_op *op, uint32_t i) {
  const at_xslot *slots =
      (const void *)(l->block + l->header->sections[AT_XS_SLOTS].offset);
  return &slots[l->args[op->args + i]];
}

// A foreign function may leave anything in the high bits.
void at_arg_settle(const at_frame *f, const at_op *op, uint32_t i) {
  const at_xslot *s = at_arg_slot(f->loaded, op, i);
  if (s->type != UINT32_MAX)
    at_settle_bits((at_dtype)f->loaded->types[s->type].dtype,
                   f->bufs[op->args + i], s->bytes);
}

// Arguments [first, first + n) as the FFI's buffers; types and dims are
// borrowed from the executable.
static at_status describe_buffers(const at_frame *f, const at_op *op,
                                  uint32_t first, uint32_t n, at_arena *a,
                                  ffi_args *out) {
  const at_loaded *l = f->loaded;
  ffi_buffer *b;
  AT_TRY_ALLOC(b, at_new(a, ffi_buffer, n + 1));
  *out = (ffi_args){.struct_size = sizeof *out, .size = n};
  AT_TRY_ALLOC(out->types, at_new(a, int32_t, n + 1));
  AT_TRY_ALLOC(out->args, at_new(a, void *, n + 1));
  for (uint32_t i = 0; i < n; i++) {
    const at_xslot *s = at_arg_slot(l, op, first + i);
    const at_xtype *t = s->type == UINT32_MAX ? NULL : &l->types[s->type];
    int32_t dtype = t ? at_ffi_dtype((at_dtype)t->dtype) : 17;  // a token
    if (dtype < 0)
      return AT_FAIL(AT_UNIMPLEMENTED, "a custom call of element type %s",
                     at_dtype_of((at_dtype)t->dtype)->text);
    b[i] = (ffi_buffer){.struct_size = sizeof b[i],
                        .dtype = dtype,
                        .data = f->bufs[op->args + first + i],
                        .rank = t ? t->rank : 0,
                        .dims = t ? (int64_t *)l->dims + t->dims : NULL};
    out->types[i] = FFI_BUFFER;
    out->args[i] = &b[i];
  }
  return AT_OK;
}

// Builds the call frame, calls, waits for the future if one was set.
static at_status call_typed(at_frame *f, const at_op *op, const handler *h,
                            at_arena *a) {
  ffi_context context = {f};
  ffi_call_frame frame = {.struct_size = sizeof frame,
                          .api = &at_ffi_api,
                          .ctx = &context,
                          .stage = FFI_STAGE_EXECUTE};
  uint32_t operands = (uint32_t)op->aux;
  AT_TRY(describe_buffers(f, op, 0, operands, a, &frame.args));
  AT_TRY(describe_buffers(f, op, operands, op->num_args - operands, a,
                          &frame.rets));
  at_bytes config = {op->params, op->params_bytes};
  AT_TRY(at_ffi_attrs(config, a, &frame.attrs));
  foreign_call call = {.handler = h, .frame = &frame};
  at_fiber_call_on_thread(call_foreign, &call);
  at_status st = at_ffi_take_error(call.error);
  if (frame.future) {
    at_event *e = at_ffi_future_event(frame.future);
    st = at_status_join(st, at_event_wait(e));
    at_event_release(e);
  }
  for (uint32_t i = operands; !st.err && i < op->num_args; i++)
    at_arg_settle(f, op, i);
  return st;
}

// void (result or results[], operands[])
static at_status call_original(at_frame *f, const at_op *op, const handler *h) {
  uint32_t operands = (uint32_t)op->aux;
  void **bufs = f->bufs + op->args;
  foreign_call call = {.handler = h,
                       .results = op->num_args - operands == 1
                                      ? bufs[operands]
                                      : (void *)(bufs + operands),
                       .operands = (const void **)bufs};
  at_fiber_call_on_thread(call_foreign, &call);
  return AT_OK;
}

// The handler's kind and the version that the program asks for must agree.
at_status at_custom_run(at_frame *f, const at_op *op, const at_xstep *step) {
  const char *target = at_loaded_string(f->loaded, step->target);
  const handler *h = find(target);  // there since the program was loaded
  if (h->kind == AT_CUSTOM_OWN) {
    foreign_call call = {.handler = h,
                         .operands = (const void **)(f->bufs + op->args),
                         .op = op};
    at_fiber_call_on_thread(call_own, &call);
    return call.st;
  }
  int64_t version = op->tasks;
  bool typed = h->kind == AT_CUSTOM_FFI;
  if (typed != (version == kTypedFfi) || (!typed && version > kOriginal))
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "custom call \"%s\": the program asks for API version %lld, "
                   "the handler is of the %s kind\n"
                   "hint: versions 4 (typed FFI) and 1 (original) are served",
                   target, (long long)version,
                   typed ? "typed FFI" : "original");
  if (!typed) return call_original(f, op, h);
  at_arena *a = at_arena_create();
  if (!a) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a custom call");
  at_status st = call_typed(f, op, h, a);
  at_arena_destroy(a);
  return at_status_prefix(st, "custom call \"%s\"", target);
}
