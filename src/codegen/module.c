// From jobs to an object file: LLVM's start, its failures, the module, its
// functions, the passes and the output. All of LLVM is called from inside a
// guarded call (base/guard.h).
#include "codegen/module.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "base/guard.h"
#include "base/interrupt.h"
#include "codegen/tier.h"

// ---- LLVM's ways to end the process
// Each leaves the guarded call of this thread instead (base/guard.h). On a
// thread without one, somebody else uses this LLVM: they get what it does by
// default.
typedef void (*fatal_handler)(void *user, const char *reason, bool crash);
// The C interface has no name for it.
void install_bad_alloc_handler(fatal_handler f, void *user) __asm__(
    "_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_");

// Comes back only where no guarded call is running; LLVM then ends the process.
static void on_fatal(const char *reason) {
  at_guard_leave(AT_INTERNAL, reason ? reason : "unknown");
  fprintf(stderr, "LLVM ERROR: %s\n", reason ? reason : "unknown");
}

static _Atomic(uint64_t) modules_made;
uint64_t at_cg_modules_made(void) { return modules_made; }
static _Atomic(uint64_t) instructions_made;
uint64_t at_cg_instructions_made(void) { return instructions_made; }
static _Atomic(uint64_t) instructions_quick;
uint64_t at_cg_instructions_quick(void) { return instructions_quick; }
static _Atomic(uint64_t) instructions_most;
// Reading starts anew.
uint64_t at_cg_instructions_most(void) {
  return atomic_exchange(&instructions_most, 0);
}

at_status at_cg_build(at_digest *out) {
  return at_digest_build((const void *)(uintptr_t)LLVMCreateTargetMachine, out);
}

// LLVM must not go on after it: it has no way to.
static void on_no_memory(void *user, const char *reason, bool crash) {
  at_guard_leave(AT_RESOURCE_EXHAUSTED, "out of host memory");
  fprintf(stderr, "LLVM ERROR: out of memory\n");
  abort();
}

// Diagnostics of severity "error" end the process, too, where nobody takes
// them.
static void on_diagnostic(LLVMDiagnosticInfoRef d, void *user) {
  if (LLVMGetDiagInfoSeverity(d) != LLVMDSError) return;
  char *text = LLVMGetDiagInfoDescription(d), why[512];
  snprintf(why, sizeof why, "%s", text);
  LLVMDisposeMessage(text);
  at_guard_leave(AT_INTERNAL, why);
}

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static bool started;

// Inside a guarded call that `starting` protects: what fails is tried again by
// the next compile.
static at_status start_llvm(void *unused) {
  at_guard_trust((const void *)LLVMContextCreate);
  LLVMInstallFatalErrorHandler(on_fatal);
  install_bad_alloc_handler(on_no_memory, NULL);
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  started = true;
  return AT_OK;
}

// Once for the process; threads that come meanwhile wait.
static at_status ensure_started(void) {
  pthread_mutex_lock(&starting);
  at_status st =
      started ? AT_OK : at_guard_run("LLVM cannot start", start_llvm, NULL);
  pthread_mutex_unlock(&starting);
  return st;
}

// ---- one module
typedef struct at_maker {
  const at_unit *u;
  at_unit_form form;
  char **out;
  size_t *out_len;
  at_arena *arena;  // of the module
  LLVMContextRef ctx;
  LLVMModuleRef module;
  LLVMTargetMachineRef machine;
  at_em *em;
} at_maker;

// A string attribute of a function.
static void set_attr(at_maker *b, LLVMValueRef f, const char *key,
                     const char *value) {
  LLVMAddAttributeAtIndex(
      f, LLVMAttributeFunctionIndex,
      LLVMCreateStringAttribute(b->ctx, key, (unsigned)strlen(key), value,
                                (unsigned)strlen(value)));
}

// Range kernels: (buffers, begin, end). Comparators: i1 (pointers). Other
// rooms' functions: as many pointers as they said.
static LLVMTypeRef signature(at_maker *b, const at_job *j) {
  LLVMTypeRef ptr = LLVMPointerTypeInContext(b->ctx, 0);
  LLVMTypeRef i64 = LLVMInt64TypeInContext(b->ctx);
  LLVMTypeRef params[AT_CG_MAX_PARAMS] = {ptr, i64, i64};
  if (j->kind == AT_JOB_EXTERNAL) {
    for (uint32_t i = 0; i < j->external.num_params; i++) params[i] = ptr;
    return LLVMFunctionType(LLVMVoidTypeInContext(b->ctx), params,
                            j->external.num_params, false);
  }
  if (j->kind == AT_JOB_COMPARATOR)
    return LLVMFunctionType(LLVMInt1TypeInContext(b->ctx), params, 1, false);
  return LLVMFunctionType(LLVMVoidTypeInContext(b->ctx), params, 3, false);
}

// One job as a function of the module. The emitter starts anew for each, but
// for what the module shares: literals, outlined ops, the counter of names. Its
// arena is emptied, so nothing of the last function may be kept.
static at_status add_function(at_maker *b, const at_job *j) {
  at_em *e = b->em;
  at_map globals = e->globals, outlined = e->outlined;
  at_arena *fn_arena = e->arena;
  at_arena_reset(fn_arena);
  uint32_t next = e->next_global;
  memset(e, 0, sizeof *e);
  *e = (at_em){.arena = fn_arena,
               .ctx = b->ctx,
               .module = b->module,
               .globals = globals,
               .outlined = outlined,
               .next_global = next,
               .lanes = 1,
               .cpu = b->u->target->cpu_features,
               .wide_index = j->wide_index,
               .quick = j->quick,
               .prefix = "at"};
  LLVMTypeRef ft = signature(b, j);
  e->fn = LLVMAddFunction(b->module, j->symbol, ft);
  set_attr(b, e->fn, "target-cpu", "x86-64");
  set_attr(b, e->fn, "target-features", at_cpu_llvm_features(e->cpu));
  set_attr(b, e->fn, "tune-cpu",
           e->cpu & AT_CPU_AVX512 ? "icelake-server" : "haswell");
  bool wide = (e->cpu & AT_CPU_AVX512) != 0;
  set_attr(b, e->fn, "prefer-vector-width", wide ? "512" : "256");
  set_attr(b, e->fn, "min-legal-vector-width", wide ? "512" : "256");
  set_attr(b, e->fn, "no-jump-tables", "true");
  unsigned nounwind = LLVMGetEnumAttributeKindForName("nounwind", 8);
  LLVMAddAttributeAtIndex(e->fn, LLVMAttributeFunctionIndex,
                          LLVMCreateEnumAttribute(b->ctx, nounwind, 0));
  if (j->quick) at_tier_mark(b->ctx, e->fn);
  if (j->kind == AT_JOB_COMPARATOR) {
    unsigned z = LLVMGetEnumAttributeKindForName("zeroext", 7);
    LLVMAddAttributeAtIndex(e->fn, LLVMAttributeReturnIndex,
                            LLVMCreateEnumAttribute(b->ctx, z, 0));
  }
  e->entry = LLVMAppendBasicBlockInContext(b->ctx, e->fn, "entry");
  LLVMBasicBlockRef start =
      LLVMAppendBasicBlockInContext(b->ctx, e->fn, "start");
  e->b = LLVMCreateBuilderInContext(b->ctx);
  LLVMPositionBuilderAtEnd(e->b, e->entry);
  LLVMPositionBuilderAtEnd(e->b, start);
  e->math = (at_math){
      .ctx = b->ctx, .module = b->module, .b = e->b, .cpu_features = e->cpu};
  at_status st = at_job_emit(e, j);
  LLVMPositionBuilderAtEnd(e->b, e->entry);
  LLVMBuildBr(e->b, start);
  LLVMDisposeBuilder(e->b);
  return st;
}

static const char *const triple = "x86_64-unknown-linux-gnu";

// NULL: LLVM was built without x86-64.
static LLVMTargetMachineRef machine_of(at_maker *b, LLVMCodeGenOptLevel level) {
  LLVMTargetRef target = NULL;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(triple, &target, &message)) {
    LLVMDisposeMessage(message);
    return NULL;
  }
  return LLVMCreateTargetMachine(
      target, triple, "x86-64",
      at_cpu_llvm_features(b->u->target->cpu_features), level, LLVMRelocPIC,
      LLVMCodeModelSmall);
}

// Between functions and steps: CANCELLED, if the caller was interrupted.
static at_status go_on(void) {
  return at_interrupted() ? AT_FAIL(AT_CANCELLED, "interrupted") : AT_OK;
}

// The machine, the context, the module, and all its functions.
static at_status fill(at_maker *b) {
  const at_cg_target *t = b->u->target;
  LLVMCodeGenOptLevel level = t->opt_level == 0   ? LLVMCodeGenLevelNone
                              : t->opt_level == 1 ? LLVMCodeGenLevelLess
                              : t->opt_level == 2 ? LLVMCodeGenLevelDefault
                                                  : LLVMCodeGenLevelAggressive;
  b->machine = machine_of(b, level);
  if (!b->machine) return AT_FAIL(AT_INTERNAL, "LLVM has no target %s", triple);
  b->ctx = LLVMContextCreate();
  LLVMContextSetDiscardValueNames(b->ctx, true);
  LLVMContextSetDiagnosticHandler(b->ctx, on_diagnostic, NULL);
  char name[32];
  snprintf(name, sizeof name, "atoll.%u", b->u->index);
  b->module = LLVMModuleCreateWithNameInContext(name, b->ctx);
  atomic_fetch_add(&modules_made, 1);
  LLVMSetTarget(b->module, triple);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(b->machine);
  LLVMSetModuleDataLayout(b->module, layout);
  LLVMDisposeTargetData(layout);
  b->em->globals = b->em->outlined = at_map_in(b->arena);
  for (uint32_t i = 0; i < b->u->num_jobs; i++) {
    AT_TRY(go_on());
    AT_TRY(add_function(b, b->u->jobs[i]));
  }
  return go_on();
}

// INTERNAL with the verifier's words: a defect here, not of the program.
static at_status check(at_maker *b) {
  char *message = NULL;
  if (LLVMVerifyModule(b->module, LLVMReturnStatusAction, &message)) {
    at_status st =
        AT_FAIL(AT_INTERNAL, "generated code is not valid: %s", message);
    LLVMDisposeMessage(message);
    return st;
  }
  LLVMDisposeMessage(message);
  return AT_OK;
}

// One function of this size is mostly addresses and calls (unrolled transfers):
// LLVM's slower steps cost seconds on it and gain nothing.
enum { HUGE_FUNCTION = 30000 };

static uint64_t instructions_of(LLVMValueRef f) {
  uint64_t n = 0;
  for (LLVMBasicBlockRef k = LLVMGetFirstBasicBlock(f); k;
       k = LLVMGetNextBasicBlock(k))
    for (LLVMValueRef i = LLVMGetFirstInstruction(k); i;
         i = LLVMGetNextInstruction(i))
      n++;
  return n;
}

// Counts the module's instructions for at_cg_instructions_made on the way.
static bool is_huge(at_maker *b) {
  uint64_t sum = 0, quick = 0, most = 0;
  for (LLVMValueRef f = LLVMGetFirstFunction(b->module); f;
       f = LLVMGetNextFunction(f)) {
    uint64_t n = instructions_of(f);
    sum += n;
    if (at_tier_is_marked(f)) quick += n;
    most = AT_MAX(most, n);
  }
  atomic_fetch_add(&instructions_made, sum);
  atomic_fetch_add(&instructions_quick, quick);
  uint64_t before = instructions_most;
  while (before < most &&
         !atomic_compare_exchange_weak(&instructions_most, &before, most)) {
  }
  return most > HUGE_FUNCTION;
}

// The pass pipeline by the kind of the unit's functions, which are all of one
// sort: least, nests, quick, or all steps. No pass may change floating-point
// results: none is told fast-math.
static at_status optimise(at_maker *b) {
  bool huge = is_huge(b), plain = huge || b->u->jobs[0]->plain;
  if (b->u->target->opt_level == 0) return AT_OK;
  if (plain) {
    LLVMDisposeTargetMachine(b->machine);
    b->machine = machine_of(b, LLVMCodeGenLevelNone);
  }
  LLVMPassBuilderOptionsRef o = LLVMCreatePassBuilderOptions();
  // Loops that threads share are functions (task.c). Those of an unrolled
  // kernel are equal and become one first.
  const char *passes =
      plain ? "mergefunc,function(sroa,early-cse)"
      : b->u->jobs[0]->kind == AT_JOB_NEST && !b->u->jobs[0]->quick
          // Loops around small buffers: these become registers, what does not
          // change goes out of the loop, short inner loops are unrolled.
          ? "function(sroa,early-cse<memssa>,simplifycfg,"
            "instcombine<no-verify-fixpoint>,"
            "loop-mssa(loop-rotate,licm),loop(indvars,loop-unroll-full),"
            "sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,"
            "loop-mssa(licm),simplifycfg)"
          : b->u->jobs[0]->quick
                ? "mergefunc,function(sroa,early-cse,"
                  "instcombine<no-verify-fixpoint>,simplifycfg)"
                : "mergefunc,function(sroa,early-cse,simplifycfg,"
                  "instcombine<no-verify-fixpoint>,loop-mssa(licm),early-cse,"
                  "simplifycfg)";
  LLVMErrorRef err = LLVMRunPasses(b->module, passes, b->machine, o);
  LLVMDisposePassBuilderOptions(o);
  if (!err) return AT_OK;
  char *m = LLVMGetErrorMessage(err);
  at_status st = AT_FAIL(AT_INTERNAL, "LLVM passes: %s", m);
  LLVMDisposeErrorMessage(m);
  return st;
}

// Builds, verifies where asked, optimises and prints. *out is malloc's, as the
// arenas end with the module.
static at_status produce(at_maker *b) {
  at_unit_form form = b->form;
  char **out = b->out;
  size_t *len = b->out_len;
  AT_TRY(fill(b));
  if (b->u->target->verify) AT_TRY(check(b));
  AT_TRY(optimise(b));
  at_tier_apply(b->ctx, b->module);
  AT_TRY(go_on());
  if (form == AT_UNIT_IR) {
    char *text = LLVMPrintModuleToString(b->module);
    *len = strlen(text);
    *out = strdup(text);
    LLVMDisposeMessage(text);
    return *out ? AT_OK : AT_NO_MEMORY("LLVM text");
  }
  char *message = NULL;
  LLVMMemoryBufferRef buffer = NULL;
  LLVMCodeGenFileType type =
      form == AT_UNIT_OBJECT ? LLVMObjectFile : LLVMAssemblyFile;
  if (LLVMTargetMachineEmitToMemoryBuffer(b->machine, b->module, type, &message,
                                          &buffer)) {
    at_status st = AT_FAIL(AT_INTERNAL, "LLVM emitted no code: %s", message);
    LLVMDisposeMessage(message);
    return st;
  }
  *len = LLVMGetBufferSize(buffer);
  *out = malloc(*len + 1);
  if (*out) memcpy(*out, LLVMGetBufferStart(buffer), *len);
  LLVMDisposeMemoryBuffer(buffer);
  return *out ? AT_OK : AT_NO_MEMORY("object code");
}

// What calls LLVM, from the first context to the last free.
static at_status make(void *arg) {
  at_maker *b = arg;
  at_status st = produce(b);
  if (b->module) LLVMDisposeModule(b->module);
  if (b->ctx) LLVMContextDispose(b->ctx);
  if (b->machine) LLVMDisposeTargetMachine(b->machine);
  return st;
}

// Arenas are made outside of the guarded call, so that they are freed even when
// LLVM's part is left.
at_status at_unit_compile(const at_unit *u, at_unit_form form, char **out,
                          size_t *out_len) {
  *out = NULL;
  AT_TRY(ensure_started());
  at_maker b = {.u = u,
                .form = form,
                .out = out,
                .out_len = out_len,
                .arena = at_arena_create()};
  at_arena *fn_arena = at_arena_create();
  b.em = calloc(1, sizeof *b.em);
  at_status st;
  if (b.arena && fn_arena && b.em) {
    b.em->arena = fn_arena;
    // A call that is left leaks LLVM's context: it may be half torn.
    st = at_guard_run("LLVM cannot compile a kernel", make, &b);
  } else {
    st = AT_NO_MEMORY("code generation");
  }
  if (st.err) {
    free(*out);
    *out = NULL;
  }
  free(b.em);
  at_arena_destroy(fn_arena);
  at_arena_destroy(b.arena);
  return st;
}
