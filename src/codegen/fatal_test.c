// What LLVM gives up on ends one compile: it has a status, others that run
// beside it are right, and so is the next one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <llvm-c/Core.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/guard.h"
#include "base/interrupt.h"
#include "base/thread.h"
#include "codegen/codegen.h"
#include "codegen/emit.h"

// An abandoned compile leaks what LLVM had allocated, by contract: no leak
// check here, whatever ASAN_OPTIONS says.
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return 1; }

static void ck_ok(at_status st) {
  if (st.err) fail_msg("%s", at_status_message(st));
}

// A function that compiles: stores a 1.
static at_status store_one(at_em *e, void *arg) {
  LLVMBuildStore(e->b, LLVMConstInt(LLVMInt64TypeInContext(e->ctx), 1, false),
                 LLVMGetParam(e->fn, 0));
  LLVMBuildRetVoid(e->b);
  return AT_OK;
}

// An intrinsic of another processor: "Cannot select".
static at_status other_processor(at_em *e, void *arg) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
  LLVMTypeRef ft = LLVMFunctionType(i32, NULL, 0, false);
  LLVMValueRef f = LLVMAddFunction(e->module, "llvm.amdgcn.workitem.id.x", ft);
  LLVMValueRef v = LLVMBuildCall2(e->b, ft, f, NULL, 0, "");
  LLVMBuildStore(e->b, v, LLVMGetParam(e->fn, 1));
  return store_one(e, arg);
}

// A diagnostic: by default LLVM prints it and calls exit().
static at_status no_such_register(at_em *e, void *arg) {
  LLVMTypeRef ft =
      LLVMFunctionType(LLVMVoidTypeInContext(e->ctx), NULL, 0, false);
  static char text[] = "no_such_instruction %nowhere", none[] = "";
  LLVMValueRef v = LLVMGetInlineAsm(ft, text, strlen(text), none, 0, true,
                                    false, LLVMInlineAsmDialectATT, false);
  LLVMBuildCall2(e->b, ft, v, NULL, 0, "");
  return store_one(e, arg);
}

// What operator new does without memory.
static at_status throws(at_em *e, void *arg) {
  void (*f)(void);
  void *p = dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv");
  memcpy(&f, &p, sizeof p);
  f();
  return AT_OK;
}

#ifndef AT_HOST_SEES_FAULTS
static at_status aborts(at_em *e, void *arg) { abort(); }

// Hands LLVM a value that is none.
static at_status wild_pointer(at_em *e, void *arg) {
  LLVMBuildStore(e->b, (LLVMValueRef)arg, LLVMGetParam(e->fn, 0));
  return store_one(e, arg);
}

__attribute__((noinline)) static int deep(at_em *e, volatile int *p) {
  volatile int here[64] = {*p};
  return LLVMGetBasicBlockParent(e->entry) ? deep(e, here) + here[1] : 0;
}
// Until the compile thread's stack is used up.
static at_status recurses(at_em *e, void *arg) {
  volatile int one = 1;
  return deep(e, &one) ? AT_OK : AT_OK;
}
#endif

typedef struct way {
  at_status (*emit)(at_em *e, void *arg);
  at_code code;
  const char *text;
} way;
static const way ways[] = {
    {other_processor, AT_INTERNAL,
     "LLVM cannot compile a kernel: Cannot select"},
    {no_such_register, AT_INTERNAL, "LLVM cannot compile a kernel: "},
    {throws, AT_RESOURCE_EXHAUSTED,
     "LLVM cannot compile a kernel: out of host memory"},
#ifndef AT_HOST_SEES_FAULTS
    {aborts, AT_INTERNAL, "LLVM cannot compile a kernel: abort()"},
    {wild_pointer, AT_INTERNAL,
     "LLVM cannot compile a kernel: Segmentation fault"},
    {recurses, AT_RESOURCE_EXHAUSTED,
     "LLVM cannot compile a kernel: out of stack"},
#endif
};

// One function by itself, in a generator of its own.
static at_status compile_one(at_status (*emit)(at_em *, void *), at_arena *a,
                             at_cg_output *out) {
  at_cg_target t = {.cpu_features = 0, .threads = 2, .opt_level = 2};
  at_cg *cg;
  AT_TRY(at_cg_create(&t, &cg));
  at_cg_function f = {.emit = emit, .kind = AT_XK_CORE_INDEX, .num_params = 3};
  uint32_t kernel;
  at_status st = at_cg_external(cg, &f, &kernel);
  if (!st.err) st = at_cg_finish(cg, a, out);
  at_cg_destroy(cg);
  return st;
}

static _Atomic int g_wrong, g_right;
static _Atomic bool g_stop;

// Compiles the same again and again: it comes out the same.
static void compile_beside(void *arg) {
  at_arena *a = at_arena_create();
  at_cg_output first, again;
  at_status st = compile_one(store_one, a, &first);
  while (!st.err && !atomic_load(&g_stop)) {
    at_arena *b = at_arena_create();
    st = compile_one(store_one, b, &again);
    if (st.err || again.objects[0].len != first.objects[0].len ||
        memcmp(again.objects[0].ptr, first.objects[0].ptr,
               first.objects[0].len))
      atomic_fetch_add(&g_wrong, 1);
    atomic_fetch_add(&g_right, 1);
    at_arena_destroy(b);
  }
  at_status_free(st);
  at_arena_destroy(a);
}

// Every way in turn, at least three times, with a good compile after each and
// another thread that compiles beside all of them: those never fail and always
// give the same bytes.
static void one_compile_ends(void **state) {
  at_thread *beside;
  ck_ok(at_thread_start("beside", AT_THREAD_STACK, compile_beside, NULL,
                        &beside));
  for (int round = 0; round < 3 || !atomic_load(&g_right); round++)
    for (size_t i = 0; i < AT_LEN(ways); i++) {
      at_arena *a = at_arena_create();
      at_cg_output out;
      at_status st = compile_one(ways[i].emit, a, &out);
      if (at_status_code(st) != ways[i].code ||
          strncmp(at_status_message(st), ways[i].text, strlen(ways[i].text)))
        fail_msg("way %zu: %d %s", i, at_status_code(st),
                 at_status_message(st));
      at_status_free(st);
      ck_ok(compile_one(store_one, a, &out));
      at_arena_destroy(a);
    }
  atomic_store(&g_stop, true);
  at_thread_join(beside);
  assert_int_equal(g_wrong, 0);
}

// The flag of the caller ends the compile between two steps; RESOURCE_EXHAUSTED
// where the thread ends before it has begun.
static void interrupted(void **state) {
  static _Atomic bool asked = true;
  at_arena *a = at_arena_create();
  at_cg_target t = {.cpu_features = 0, .threads = 2, .opt_level = 2};
  at_cg *cg;
  ck_ok(at_cg_create(&t, &cg));
  at_cg_function f = {
      .emit = store_one, .kind = AT_XK_CORE_INDEX, .num_params = 3};
  uint32_t kernel;
  at_cg_output out;
  ck_ok(at_cg_external(cg, &f, &kernel));
  ck_ok(at_cg_finish(cg, a, &out));
  at_interrupt_watch(&asked);
  at_code code = at_code_take(at_cg_finish(cg, a, &out));
  at_interrupt_watch(NULL);
  assert_true(code == AT_CANCELLED || code == AT_RESOURCE_EXHAUSTED);
  at_cg_destroy(cg);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_compile_ends),
                                     cmocka_unit_test(interrupted)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
