// Calls that would end the process end with a status, time after time, while
// other threads do the same; and what is not theirs stays the host's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/guard.h"
#include "base/span.h"
#include "base/thread.h"
#include "base/verify.h"

// What a guarded call leaves behind is lost: that is the contract.
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }

static at_status succeed(void *arg) { return AT_OK; }
static at_status fail_itself(void *arg) {
  return AT_FAIL(AT_NOT_FOUND, "nothing there");
}
static at_status leave(void *arg) {
  at_guard_leave(AT_INTERNAL, "Cannot select");
  return AT_OK;
}

static void (*g_throw)(void);
static at_status throw_bad_alloc(void *arg) {
  g_throw();
  return AT_OK;
}

static int throw_in_sort(const void *a, const void *b) {
  g_throw();
  return 0;
}
static at_status throw_below_c(void *arg) {
  int v[8] = {3, 1, 2};
  qsort(v, 8, sizeof *v, throw_in_sort);
  return AT_OK;
}

static at_status nested(void *arg) {
  at_status st = at_guard_run("inner", leave, NULL);
  if (at_status_code(st) != AT_INTERNAL) return st;
  at_status_free(st);
  at_guard_leave(AT_CANCELLED, "outer");
  return AT_OK;
}

static at_status do_abort(void *arg) { abort(); }
static at_status break_promise(void *arg) {
  AT_ASSERT(arg != NULL);
  return AT_OK;
}
static at_status break_law(void *arg) {
  AT_VERIFY_OK(AT_FAIL(AT_INTERNAL, "two values in the same bytes"));
  return AT_OK;
}
static at_status check_without_memory(void *arg) {
  AT_VERIFY_OK(AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to check with"));
  return AT_OK;
}
static bool is_refused(void) {
  void *volatile p = mmap(NULL, (size_t)1 << 60, PROT_READ,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED;
}
static at_status leave_without_memory(void *arg) {
  if (is_refused()) at_guard_leave(AT_INTERNAL, "no code");
  return AT_OK;
}
static at_status abort_without_memory(void *arg) {
  if (is_refused()) abort();
  return AT_OK;
}
static at_status read_null(void *arg) {
  *(volatile int *)arg = 1;
  return AT_OK;
}
static at_status call_null(void *arg) {
  void (*volatile f)(void) = (void (*)(void))arg;
  f();
  return AT_OK;
}
static at_status trap(void *arg) { __builtin_trap(); }

__attribute__((noinline)) static int deep(volatile int *p) {
  volatile int here[64] = {*p};
  return here[0] ? deep(here) + here[1] : 0;
}
static at_status overflow(void *arg) {
  volatile int one = 1;
  return deep(&one) ? AT_OK : AT_OK;
}
// Most of the stack is used by malloc's callers and by libc's own frames.
static int deep_in_libc(const void *a, const void *b) {
  char *p = malloc(100);
  int v[64] = {0};
  free(p);
  qsort(v, 64, sizeof *v, deep_in_libc);
  return v[1];
}
static at_status overflow_in_libc(void *arg) {
  return deep_in_libc(0, 0) ? AT_OK : AT_OK;
}

// A way in which a call ends, and the code and words that it gives.
typedef struct way {
  const char *name;
  at_status (*fn)(void *);
  at_code code;
  const char *text;
  bool plain;  // sanitizers see it first
} way;
// All that guard.h lists.
static const way ways[] = {
    {"returns", succeed, AT_OK_CODE, "", false},
    {"its own status", fail_itself, AT_NOT_FOUND, "nothing there", false},
    {"left", leave, AT_INTERNAL, "test: Cannot select", false},
    {"bad_alloc", throw_bad_alloc, AT_RESOURCE_EXHAUSTED,
     "test: out of host memory", true},
    {"bad_alloc below C", throw_below_c, AT_RESOURCE_EXHAUSTED,
     "test: out of host memory", true},
    {"nested", nested, AT_CANCELLED, "test: outer", false},
    {"left without memory", leave_without_memory, AT_RESOURCE_EXHAUSTED,
     "test: no code (the process is out of memory)", false},
    {"abort without memory", abort_without_memory, AT_RESOURCE_EXHAUSTED,
     "test: abort() (the process is out of memory)", true},
    {"abort", do_abort, AT_INTERNAL, "test: abort()", true},
    {"assert", break_promise, AT_INTERNAL, "test: abort()", true},
    {"verify", break_law, AT_INTERNAL, "test: abort()", true},
    {"verify without memory", check_without_memory, AT_OK_CODE, "", false},
    {"store to NULL", read_null, AT_INTERNAL, "test: Segmentation fault", true},
    {"call of NULL", call_null, AT_INTERNAL, "test: Segmentation fault", true},
    {"trap", trap, AT_INTERNAL, "test: Illegal instruction", true},
    {"stack", overflow, AT_RESOURCE_EXHAUSTED,
     "test: out of stack: too deeply nested", true},
    {"stack in libc", overflow_in_libc, AT_RESOURCE_EXHAUSTED,
     "test: out of stack: too deeply nested", true},
};

static _Atomic int g_wrong;

// Each in turn, several times, on several threads.
static void run_ways(void *arg) {
  for (int round = 0; round < 5; round++)
    for (size_t i = 0; i < AT_LEN(ways); i++) {
      const way *w = &ways[i];
#ifdef AT_HOST_SEES_FAULTS
      if (w->plain) continue;
#endif
      at_status st = at_guard_run("test", w->fn, NULL);
      if (at_status_code(st) != w->code ||
          strcmp(at_status_message(st), w->text)) {
        print_error("%s: %d %s\n", w->name, at_status_code(st),
                    at_status_message(st));
        atomic_fetch_add(&g_wrong, 1);
      }
      at_status_free(st);
      free(malloc(1000));  // no lock of the heap stayed behind
    }
}

// And the process goes on.
static void every_way_ends_with_a_status(void **state) {
  at_thread *t[4];
  for (size_t i = 0; i < AT_LEN(t); i++)
    assert_int_equal(
        at_code_take(at_thread_start("ways", 256 << 10, run_ways, NULL, &t[i])),
        0);
  for (size_t i = 0; i < AT_LEN(t); i++) at_thread_join(t[i]);
  assert_int_equal(g_wrong, 0);
}

// Outside of a guarded call nothing happens.
static void nobody_to_leave(void **state) {
  at_guard_leave(AT_INTERNAL, "no guarded call");  // returns
}

#ifndef AT_HOST_SEES_FAULTS
static char *g_page;
static _Atomic int g_mended, g_caught;
static void mend(int sig, siginfo_t *info, void *context) {
  atomic_fetch_add(&g_mended, 1);
  mprotect(g_page, 4096, PROT_READ | PROT_WRITE);
}

static void touch(void *arg) {
  for (int i = 0; i < 200; i++) {
    mprotect(g_page, 4096, PROT_NONE);
    *(volatile char *)g_page = 1;
  }
}

// Beside a guarded call that goes on until the host's faults are over.
static at_status wait_for(void *arg) {
  at_thread *t;
  at_status st = at_thread_start("host", 256 << 10, touch, NULL, &t);
  if (!st.err) at_thread_join(t);
  return st;
}

// Its handler mends the page and the access goes on.
static void faults_of_the_host_are_the_hosts(void **state) {
  g_page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct sigaction mine = {.sa_sigaction = mend, .sa_flags = SA_SIGINFO},
                   before, now;
  sigaction(SIGSEGV, &mine, &before);
  assert_int_equal(at_code_take(at_guard_run("test", wait_for, NULL)), 0);
  assert_int_equal(g_mended, 200);
  sigaction(SIGSEGV, &before, &now);
  assert_true(now.sa_sigaction == mend);
  munmap(g_page, 4096);
}

// A handler that the host sets during the call stays, and hands on to ours.
static struct sigaction g_under;
static void above(int sig, siginfo_t *info, void *context) {
  atomic_fetch_add(&g_caught, 1);
  if ((g_under.sa_flags & SA_SIGINFO) && g_under.sa_sigaction)
    g_under.sa_sigaction(sig, info, context);
  else
    _exit(99);
}
static at_status set_and_fault(void *arg) {
  struct sigaction mine = {.sa_sigaction = above,
                           .sa_flags = SA_SIGINFO | SA_NODEFER};
  if (arg) sigaction(SIGSEGV, &mine, &g_under);
  return read_null(NULL);
}

static void handlers_of_the_host_stay(void **state) {
  struct sigaction before, now;
  sigaction(SIGSEGV, NULL, &before);
  for (int round = 0; round < 3; round++)
    assert_int_equal(
        at_code_take(at_guard_run("test", set_and_fault, round ? NULL : state)),
        AT_INTERNAL);
  sigaction(SIGSEGV, NULL, &now);
  assert_true(now.sa_sigaction == above);
  assert_int_equal(g_caught, 3);
  sigaction(SIGSEGV, &g_under, NULL);  // as who set it takes it back
  assert_int_equal(at_code_take(at_guard_run("test", read_null, NULL)),
                   AT_INTERNAL);
  sigaction(SIGSEGV, NULL, &now);
  assert_true(now.sa_handler == before.sa_handler);
}
#endif

int main(void) {
  setenv("ATOLL_VERIFY", "1", 1);
  void *cxx = dlopen("libstdc++.so.6", RTLD_NOW);
  void *p = cxx ? dlsym(cxx, "_ZSt17__throw_bad_allocv") : NULL;
  memcpy(&g_throw, &p, sizeof p);
  if (!p) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_way_ends_with_a_status),
      cmocka_unit_test(nobody_to_leave),
#ifndef AT_HOST_SEES_FAULTS
      cmocka_unit_test(faults_of_the_host_are_the_hosts),
      cmocka_unit_test(handlers_of_the_host_stay),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
