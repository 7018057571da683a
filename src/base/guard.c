// A guarded call runs on a stack of its own below a frame in assembly. It is
// left in one of two ways: by unwinding, where somebody still runs
// (at_guard_leave, a C++ exception), or by a long jump out of the handler of a
// fatal signal, where nothing can be trusted to run.
#include "base/guard.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unwind.h>

#include "base/span.h"

// Its own stack: no access | reserve, no access yet | stack.
typedef struct stack {
  uint8_t *map;
  size_t bytes;
} stack;
enum {
  // Bytes. The wall is never opened; the reserve below the stack is opened in
  // steps when code that cannot be left has run out of stack.
  kPage = 4096,
  kWall = 64 << 10,
  kReserve = 512 << 10,
  kStep = 32 << 10,  // of the reserve, opened at once
};

// A guarded call of this thread; it lives on the stack of at_guard_run.
typedef struct guard {
  struct guard *outer;
  stack stack;
  uintptr_t low;  // where it stood when it was left
  const char *what;
  sigjmp_buf here;
  at_code code;
  char why[512];
} guard;

static _Thread_local guard *t_guard;

// ---- Stacks
static bool stack_try(size_t bytes, stack *out) {
  out->bytes = bytes + kWall + kReserve;
  out->map =
      mmap(NULL, out->bytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (out->map == MAP_FAILED) return false;
  if (!mprotect(out->map, kWall + kReserve, PROT_NONE)) return true;
  munmap(out->map, out->bytes);
  return false;
}

// Few calls need all of it: where the process has little left, an eighth will
// do.
static at_status stack_map(const char *what, stack *out) {
  if (stack_try(AT_GUARD_STACK, out) || stack_try(AT_GUARD_STACK / 8, out))
    return AT_OK;
  return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                 "%s: no memory for a stack of %zu KiB\n"
                 "hint: the process has reached its limit of memory "
                 "(`ulimit -v`, cgroup)",
                 what, out->bytes >> 10);
}

// The call was left at `low`: what lies above may be in lists of libraries.
static void stack_abandon(const stack *s, uintptr_t low) {
  uintptr_t begin = (uintptr_t)s->map;
  uintptr_t keep = (low - kWall) & ~(uintptr_t)(kPage - 1);
  if (low > begin + kWall && low < begin + s->bytes && keep > begin)
    munmap(s->map, keep - begin);
}

// Whether the fault is in the parts that have no access.
static bool stack_overflowed(const stack *s, const void *address) {
  const uint8_t *p = address;
  return s->map && p >= s->map && p < s->map + kWall + kReserve;
}

// Opens a part of the reserve, so that the call can go on for a moment.
static bool stack_open_reserve(const stack *s, const void *address) {
  uint8_t *reserve = s->map + kWall, *end = reserve + kReserve;
  uint8_t *page = (uint8_t *)((uintptr_t)address & ~(uintptr_t)(kPage - 1));
  if (page < reserve + kStep) return false;
  return !mprotect(page - kStep, (size_t)(end - (page - kStep)),
                   PROT_READ | PROT_WRITE);
}

// ---- Exceptions
// A guarded call is left by unwinding: C and C++ libraries then undo what they
// have under way (pthread_once, std::call_once). The frame of at_guard_call_
// ends it. Our own exception has no memory behind it.
static const uint64_t kOurs = 0x41544f4c4c000000;  // "ATOLL"
static _Thread_local struct _Unwind_Exception t_exception;

__attribute__((visibility("hidden"))) at_status at_guard_call_(
    at_status (*fn)(void *), void *arg, void *stack);
__attribute__((visibility("hidden"))) extern const char at_guard_landing_[];

// The status of a call that was left.
static at_status left(const guard *g) {
  return AT_FAIL(g->code, "%s: %s", g->what, g->why);
}

// What breaks after the system refused memory broke for that: errno still says
// so.
static void blame_memory(guard *g) {
  static const char also[] = " (the process is out of memory)";
  if (g->code != AT_INTERNAL || errno != ENOMEM) return;
  g->code = AT_RESOURCE_EXHAUSTED;
  size_t n = AT_MIN(strlen(g->why), sizeof g->why - sizeof also);
  memcpy(g->why + n, also, sizeof also);
}

// Called by the assembly below with the exception that ended the call.
__attribute__((visibility("hidden"), used)) at_status at_guard_caught_(
    struct _Unwind_Exception *e) {
  guard *g = t_guard;
  if (e->exception_class == kOurs) return left(g);
  // The C++ ABI keeps the type 80 bytes before; a type's second word is its
  // name.
  const char *name = "of another language";
  if (!memcmp((const char *)&e->exception_class, "\0++C", 4))
    name = (*(const char *const **)((const char *)e - 80))[1];
  bool memory = !strcmp(name, "St9bad_alloc");
  g->code = memory ? AT_RESOURCE_EXHAUSTED : AT_INTERNAL;
  snprintf(g->why, sizeof g->why,
           memory ? "out of host memory" : "exception %s", name);
  blame_memory(g);
  if (e->exception_cleanup)
    e->exception_cleanup(_URC_FOREIGN_EXCEPTION_CAUGHT, e);
  return left(g);
}

__attribute__((visibility("hidden"))) _Unwind_Reason_Code at_guard_personality_(
    int version, _Unwind_Action actions, uint64_t class,
    struct _Unwind_Exception *e, struct _Unwind_Context *context) {
  if (version != 1 || (actions & _UA_FORCE_UNWIND)) return _URC_CONTINUE_UNWIND;
  if (actions & _UA_SEARCH_PHASE) {
    t_guard->low = (uintptr_t)__builtin_frame_address(0);
    return _URC_HANDLER_FOUND;
  }
  if (!(actions & _UA_HANDLER_FRAME)) return _URC_CONTINUE_UNWIND;
  _Unwind_SetGR(context, 0, (uintptr_t)e);  // rax
  _Unwind_SetIP(context, (uintptr_t)at_guard_landing_);
  return _URC_INSTALL_CONTEXT;
}
__attribute__((visibility("hidden"), used))
const void *const at_guard_personality_ref_ =
    (const void *)at_guard_personality_;

__asm__(
    ".text\n"
    ".p2align 4\n"
    ".hidden at_guard_call_\n"
    ".globl at_guard_call_\n"
    ".type at_guard_call_,@function\n"
    "at_guard_call_:\n"
    "  .cfi_startproc\n"
    "  .cfi_personality 0x9b, at_guard_personality_ref_\n"
    "  pushq %rbp\n"
    "  .cfi_def_cfa_offset 16\n"
    "  .cfi_offset %rbp, -16\n"
    "  movq %rsp, %rbp\n"
    "  .cfi_def_cfa_register %rbp\n"
    "  movq %rdi, %rax\n"
    "  movq %rsi, %rdi\n"
    "  testq %rdx, %rdx\n"
    "  cmovneq %rdx, %rsp\n"
    "  callq *%rax\n"
    "  movq %rbp, %rsp\n"
    "  popq %rbp\n"
    "  .cfi_remember_state\n"
    "  .cfi_def_cfa %rsp, 8\n"
    "  ret\n"
    "  .cfi_restore_state\n"
    ".hidden at_guard_landing_\n"
    ".globl at_guard_landing_\n"
    "at_guard_landing_:\n"
    "  movq %rbp, %rsp\n"
    "  movq %rax, %rdi\n"
    "  callq at_guard_caught_\n"
    "  popq %rbp\n"
    "  .cfi_def_cfa %rsp, 8\n"
    "  ret\n"
    "  .cfi_endproc\n"
    ".size at_guard_call_, .-at_guard_call_\n");

// By unwinding, so that libraries undo what they have under way; where a frame
// has no unwind tables, by a long jump.
void at_guard_leave(at_code code, const char *why) {
  guard *g = t_guard;
  if (!g) return;
  g->code = code;
  snprintf(g->why, sizeof g->why, "%s", why);
  blame_memory(g);
  t_exception = (struct _Unwind_Exception){.exception_class = kOurs};
  g->low = (uintptr_t)__builtin_frame_address(0);
  _Unwind_RaiseException(&t_exception);
  siglongjmp(g->here, 1);  // somebody on the way cannot be unwound
}

// ---- Libraries that may be left anywhere
typedef struct range {
  uintptr_t begin, end;
} range;
// Libraries that at_guard_trust may name, ours included.
enum { kRanges = 8 };
static range g_trusted[kRanges];
static _Atomic int g_num_trusted;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;

// For dl_iterate_phdr: the loaded segment that holds r->begin.
static int find_library(struct dl_phdr_info *info, size_t size, void *arg) {
  range *r = arg;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    uintptr_t begin = info->dlpi_addr + p->p_vaddr, end = begin + p->p_memsz;
    if (p->p_type != PT_LOAD || r->begin < begin || r->begin >= end) continue;
    *r = (range){begin, end};
    return 1;
  }
  return 0;
}

// Called from signal handlers: no lock, and ranges only ever come.
static bool is_trusted(uintptr_t at) {
  if (at < 4096) return true;  // a call of NULL
  int n = atomic_load_explicit(&g_num_trusted, memory_order_acquire);
  for (int i = 0; i < n; i++)
    if (at >= g_trusted[i].begin && at < g_trusted[i].end) return true;
  return false;
}

// Nothing happens where the table is full or no object holds the address: the
// fault is then the host's.
static void trust_locked(const void *address) {
  range r = {(uintptr_t)address, 0};
  int n = atomic_load_explicit(&g_num_trusted, memory_order_relaxed);
  if (is_trusted(r.begin) || n == kRanges || !dl_iterate_phdr(find_library, &r))
    return;
  g_trusted[n] = r;
  atomic_store_explicit(&g_num_trusted, n + 1, memory_order_release);
}

// Ranges stay for the life of the process.
void at_guard_trust(const void *address) {
  pthread_mutex_lock(&g_lock);
  trust_locked(address);
  pthread_mutex_unlock(&g_lock);
}

// ---- Signals
static const int kSignals[] = {SIGSEGV, SIGBUS,  SIGILL,
                               SIGFPE,  SIGTRAP, SIGABRT};
static struct sigaction g_host[AT_LEN(kSignals)];
static bool g_set[AT_LEN(kSignals)];
static int g_running;  // guarded calls; under g_lock

// To the handler that was there before; or ends the process as it would have.
static void hand_on(int sig, siginfo_t *info, void *context) {
  static _Thread_local bool again;
  struct sigaction *h = NULL;
  for (size_t i = 0; i < AT_LEN(kSignals); i++)
    if (kSignals[i] == sig) h = &g_host[i];
  bool none = again || (!(h->sa_flags & SA_SIGINFO) &&
                        (h->sa_handler == SIG_DFL || h->sa_handler == SIG_IGN));
  if (none) {
    signal(sig, SIG_DFL);
    if (info->si_code <= 0) raise(sig);  // sent, not caused: it will not recur
    return;
  }
  again = true;
  if (h->sa_flags & SA_SIGINFO)
    h->sa_sigaction(sig, info, context);
  else
    h->sa_handler(sig);
  again = false;
}

// From a signal handler, which runs on the thread's signal stack.
static void leave_by(guard *g, int sig, bool overflow, uintptr_t low) {
  g->low = low;
  g->code = overflow ? AT_RESOURCE_EXHAUSTED : AT_INTERNAL;
  if (overflow)
    snprintf(g->why, sizeof g->why, "out of stack: too deeply nested");
  else
    snprintf(g->why, sizeof g->why, "%s",
             sig == SIGABRT ? "abort()" : strsignal(sig));
  blame_memory(g);
  siglongjmp(g->here, 1);
}

// A fault is ours where a guarded call runs on this thread and the instruction
// is of a library that may be left. All else goes to the host.
static void on_signal(int sig, siginfo_t *info, void *context) {
  const ucontext_t *u = context;
  guard *g = t_guard;
  uintptr_t low = (uintptr_t)u->uc_mcontext.gregs[REG_RSP];
  bool sent = info->si_code <= 0;
  if (g && sig == SIGABRT && info->si_code == SI_TKILL)
    leave_by(g, sig, false, low);
  if (g && !sent) {
    bool overflow =
        sig == SIGSEGV && stack_overflowed(&g->stack, info->si_addr);
    if (is_trusted((uintptr_t)u->uc_mcontext.gregs[REG_RIP]))
      leave_by(g, sig, overflow, low);
    // Somewhere else, with a lock perhaps: let it come back first.
    if (overflow && stack_open_reserve(&g->stack, info->si_addr)) return;
  }
  hand_on(sig, info, context);
}

// Whether the handler that is set now is on_signal.
static bool is_ours(const struct sigaction *a) {
  return (a->sa_flags & SA_SIGINFO) && a->sa_sigaction == on_signal;
}

// The first guarded call of the process sets the handlers.
static void enter(void) {
  pthread_mutex_lock(&g_lock);
  trust_locked((const void *)at_guard_call_);
#ifndef AT_HOST_SEES_FAULTS
  struct sigaction ours = {.sa_sigaction = on_signal,
                           .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  for (size_t i = 0; i < AT_LEN(kSignals) && !g_running; i++) {
    // Set still: a handler of the host lies over ours and hands on to it.
    if (g_set[i]) continue;
    g_set[i] = !sigaction(kSignals[i], NULL, &g_host[i]) &&
               !sigaction(kSignals[i], &ours, NULL);
  }
#endif
  g_running++;
  pthread_mutex_unlock(&g_lock);
}

// The last one puts the host's back, unless somebody has set others over ours.
static void exit_guard(void) {
  pthread_mutex_lock(&g_lock);
  g_running--;
  for (size_t i = 0; i < AT_LEN(kSignals) && !g_running; i++) {
    struct sigaction now;
    if (!g_set[i] || sigaction(kSignals[i], NULL, &now) || !is_ours(&now))
      continue;
    g_set[i] = sigaction(kSignals[i], &g_host[i], NULL) != 0;
  }
  pthread_mutex_unlock(&g_lock);
}

// errno is cleared for the call, since it tells whether memory was refused, and
// restored behind it. The frame that sigsetjmp returns to is this one, so what
// changes after it is volatile.
at_status at_guard_run(const char *what, at_status (*fn)(void *), void *arg) {
  guard g = {.outer = t_guard, .what = what};
  volatile at_status st = AT_OK;
  void *top = NULL;
#ifdef AT_HOST_SEES_FAULTS
  bool switches = false;  // sanitizers are not told of it
#else
  bool switches = true;
#endif
  if (switches) {
    AT_TRY(stack_map(what, &g.stack));
    top = g.stack.map + g.stack.bytes;
  }
  enter();
  int had = errno;
  errno = 0;
  if (!sigsetjmp(g.here, 0)) {
    t_guard = &g;
    st.err = at_guard_call_(fn, arg, top).err;
  } else {
    st.err = left(&g).err;
  }
  errno = had;
  t_guard = g.outer;
  exit_guard();
  if (g.low)
    stack_abandon(&g.stack, g.low);
  else if (top)
    munmap(g.stack.map, g.stack.bytes);
  return (at_status){st.err};
}
