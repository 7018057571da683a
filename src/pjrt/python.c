// Ctrl-C while Python waits for a compile. Python's handler of signals only
// notes the signal; what it means is decided when the main thread is back in
// the interpreter. Code that takes long is to ask (PyErr_CheckSignals): then
// the user's own handlers run, and an exception (KeyboardInterrupt) means that
// it should stop.
//
// Clients may also compile on threads of theirs, as jaxlib does since 0.9: its
// main thread asks the interpreter itself, and leaves the compile alone.
// jaxlib's own end then crashes where a compile is still under way, so before
// it comes the compiles are told to end (at_pjrt_watch_end), and those that
// its threads begin or finish later fail (at_pjrt_python_ends).
//
// And what JAX was told of its job (at_pjrt_python_job), and what it is not to
// list (at_pjrt_python_hides_spares).
//
// The interpreter is found at run time: a client that is no Python has none,
// and nothing here does anything.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pjrt/pjrt_internal.h"

typedef struct python {
  int (*is_initialized)(void);
  int (*ensure)(void);  // takes the interpreter's lock
  void (*release)(int);
  int (*check_signals)(void);
  void (*fetch)(void **type, void **value, void **trace);
  void (*restore)(void *type, void *value, void *trace);
  int (*add_pending)(int (*fn)(void *), void *arg);
  void (*set_interrupt)(void);
  void *(*this_thread)(void);  // NULL: not one of Python's
  void *(*import)(const char *name);
  void *(*loaded)(void *name);  // a module that has been imported, or NULL
  void *(*get)(void *object, const char *name);
  long (*to_long)(void *object);
  void *(*new_function)(void *definition, void *self, void *module);
  void *(*call_method)(void *object, const char *name, const char *format, ...);
  void *(*build)(const char *format, ...);
  void (*drop)(void *object);
  void (*clear)(void);
  void *(*save)(void);  // gives the interpreter's lock away for a while
  void (*resume)(void *state);
} python;

static python g_python;
static int (*g_is_finalizing)(void);  // NULL: cannot be asked
static bool g_found;
static pthread_once_t g_once = PTHREAD_ONCE_INIT;

// Looks every function up once. g_found is false where one is missing: then
// this process is taken for one without Python.
static void find_python(void) {
  const struct {
    const char *name;
    void *to;
  } names[] = {{"Py_IsInitialized", &g_python.is_initialized},
               {"PyGILState_Ensure", &g_python.ensure},
               {"PyGILState_Release", &g_python.release},
               {"PyErr_CheckSignals", &g_python.check_signals},
               {"PyErr_Fetch", &g_python.fetch},
               {"PyErr_Restore", &g_python.restore},
               {"Py_AddPendingCall", &g_python.add_pending},
               {"PyErr_SetInterrupt", &g_python.set_interrupt},
               {"PyGILState_GetThisThreadState", &g_python.this_thread},
               {"PyImport_ImportModule", &g_python.import},
               {"PyImport_GetModule", &g_python.loaded},
               {"PyObject_GetAttrString", &g_python.get},
               {"PyLong_AsLong", &g_python.to_long},
               {"PyCFunction_NewEx", &g_python.new_function},
               {"PyObject_CallMethod", &g_python.call_method},
               {"Py_BuildValue", &g_python.build},
               {"Py_DecRef", &g_python.drop},
               {"PyErr_Clear", &g_python.clear},
               {"PyEval_SaveThread", &g_python.save},
               {"PyEval_RestoreThread", &g_python.resume}};
  g_found = true;
  for (size_t i = 0; i < AT_LEN(names); i++) {
    void *p = dlsym(RTLD_DEFAULT, names[i].name);
    memcpy(names[i].to, &p, sizeof p);
    g_found &= p != NULL;
  }
  // The second: before Python 3.13.
  void *p = dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
  if (!p) p = dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
  memcpy(&g_is_finalizing, &p, sizeof p);
}

// False, too, where the interpreter is too old to be asked.
bool at_pjrt_python_ends(void) {
  pthread_once(&g_once, find_python);
  return g_is_finalizing && g_is_finalizing();
}

// The exception of the user's handler, until the interpreter can raise it.
// Under the interpreter's lock.
static struct { void *type, *value, *trace; } g_raised;

// Runs in the interpreter: raises the exception that at_pjrt_interrupted has
// put aside.
static int raise_again(void *unused) {
  if (!g_raised.type) return 0;
  g_python.restore(g_raised.type, g_raised.value, g_raised.trace);
  g_raised.type = NULL;
  return -1;
}

// May this thread take the interpreter's lock without being new to it?
static bool on_python_thread(void) {
  pthread_once(&g_once, find_python);
  return g_found && g_python.is_initialized() && g_python.this_thread();
}

// Asked every now and then while the compiler works. True also once the
// interpreter is ending.
bool at_pjrt_interrupted(void) {
  if (at_pjrt_python_ends()) return true;
  // Handlers run on the main thread alone.
  if (syscall(SYS_gettid) != getpid() || !on_python_thread()) return false;
  int lock = g_python.ensure();
  bool stop = g_python.check_signals() != 0;
  if (stop) {
    // The caller raises an error of its own when it returns; the exception
    // follows as soon as the interpreter runs again.
    g_python.fetch(&g_raised.type, &g_raised.value, &g_raised.trace);
    if (g_python.add_pending(raise_again, NULL)) g_python.set_interrupt();
  }
  g_python.release(lock);
  return stop;
}

// Callbacks that are still to run need the interpreter: a thread that comes for
// it when it is gone is ended by it, and C++ takes that for an error of its
// own.
static void *on_end(void *self, void *args) {
  at_compile_leave_all();
  while (at_pjrt_clients_busy()) {
    void *state = g_python.save();
    usleep(2000);
    g_python.resume(state);
    if (g_python.check_signals()) return NULL;
  }
  return g_python.build("");
}

// Registers on_end with atexit, once in the life of the process.
void at_pjrt_watch_end(void) {
  static _Atomic bool watched;
  static const struct {
    const char *name;
    void *(*call)(void *self, void *args);
    int flags;
    const char *doc;
  } definition = {"atoll_end", on_end, 4 /* METH_NOARGS */, NULL};
  if (!on_python_thread() || atomic_exchange(&watched, true)) return;
  int lock = g_python.ensure();
  void *module = g_python.import("atexit");
  void *f = g_python.new_function((void *)&definition, NULL, NULL);
  void *done =
      module && f ? g_python.call_method(module, "register", "O", f) : NULL;
  if (!done) g_python.clear();
  g_python.drop(done);
  g_python.drop(f);
  g_python.drop(module);
  g_python.release(lock);
}

bool at_pjrt_python_hides_spares(void) {
  if (!on_python_thread()) return false;
  int lock = g_python.ensure();
  void *module = g_python.import("atoll._virtual");
  void *done =
      module ? g_python.call_method(module, "hide_spares", NULL) : NULL;
  if (!done) g_python.clear();
  bool hidden = done != NULL;
  g_python.drop(done);
  g_python.drop(module);
  g_python.release(lock);
  return hidden;
}

// Of an attribute; -1: there is none, or it is no such number.
static long number_of(void *object, const char *name) {
  void *v = object ? g_python.get(object, name) : NULL;
  long n = v ? g_python.to_long(v) : -1;
  g_python.drop(v);
  return n;
}

// JAX's own TPU client is made without the options node_id and num_nodes that
// clients of other plug-ins get; what they would say is in this object.
void at_pjrt_python_job(uint32_t *count, uint32_t *me) {
  if (!on_python_thread()) return;
  int lock = g_python.ensure();
  void *name = g_python.build("s", "jax._src.distributed");
  void *module = name ? g_python.loaded(name) : NULL;
  void *state = module ? g_python.get(module, "global_state") : NULL;
  long n = number_of(state, "num_processes"),
       i = number_of(state, "process_id");
  g_python.clear();
  if (n > 0 && n <= UINT32_MAX && i >= 0 && i < n) {
    *count = (uint32_t)n;
    *me = (uint32_t)i;
  }
  g_python.drop(state);
  g_python.drop(module);
  g_python.drop(name);
  g_python.release(lock);
}
