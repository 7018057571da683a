// `atoll run`: hands a Python program to Python, or compiles and runs a program
// by itself.
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/finding.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/npz.h"
#include "compile/compile.h"
#include "exec/exec.h"

static bool ends_with(const char *s, const char *tail) {
  size_t n = strlen(s), k = strlen(tail);
  return n >= k && !strcmp(s + n - k, tail);
}

// ---- Python programs
extern const at_bytes at_cli_python_files[];  // interpret.py

// python -c CODE script arguments...: with ATOLL_CHECK=interpret our code comes
// first and runs the script.
static at_status with_interpreter(int argc, char ***argv) {
  at_bytes code = at_cli_python_files[0];
  char **longer = calloc((size_t)argc + 3, sizeof *longer);
  char *text = strndup((const char *)code.ptr, code.len);
  if (!longer || !text)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for arguments");
  longer[1] = "-c";
  longer[2] = text;
  memcpy(longer + 3, *argv + 1, (size_t)(argc - 1) * sizeof *longer);
  *argv = longer;  // until the process is another program
  return AT_OK;
}

// Becomes Python. Without JAX_PLATFORMS JAX finds Atoll by the library's path
// and keeps its CPU client.
static at_status run_python(int argc, char **argv) {
  char folder[3072], library[3200];
  AT_TRY(at_cli_own_folder(folder, sizeof folder));
  snprintf(library, sizeof library, "%s/libatoll.so", folder);
  if (access(library, R_OK))
    return AT_FAIL(AT_NOT_FOUND, "no libatoll.so beside this program (%s)",
                   library);
  setenv("TPU_LIBRARY_PATH", library, 1);
  unsetenv("JAX_PLATFORMS");
  if (at_config_has(AT_WORD_CHECK_INTERPRET))
    AT_TRY(with_interpreter(argc, &argv));
  char own[3200];
  argv[0] = (char *)at_cli_python(own, sizeof own);
  return at_cli_become_python(argv, "jax");
}

// ---- MLIR programs
// A program that `atoll run` runs by itself, on the first chip.
typedef struct session {
  at_arena *arena;
  at_runtime *runtime;
  at_loaded *program;
  at_buffer **args, **results;
  uint32_t num_args, num_results;
  const char *out_path;
  long repeat;
  bool json;
} session;

// Borrowed from the executable.
static at_dims dims_of(const session *s, const at_xtype *t) {
  uint64_t n;
  const int64_t *dims = at_loaded_section(s->program, AT_XS_DIMS, &n);
  return (at_dims){dims + t->dims, t->rank};
}

// The type of argument or result i.
static const at_xtype *io_type(const session *s, at_xsection which,
                               uint32_t i) {
  uint64_t n;
  const at_xio *io = at_loaded_section(s->program, which, &n);
  const at_xtype *types = at_loaded_section(s->program, AT_XS_TYPES, &n);
  return types + io[i].type;
}

// Zeros where nothing is given.
static at_status make_argument(session *s, uint32_t i, const at_npy *given) {
  const at_xtype *t = io_type(s, AT_XS_INPUTS, i);
  at_dims dims = dims_of(s, t);
  const void *data =
      given ? given->data : at_arena_alloc(s->arena, t->bytes, 64);
  if (!data) return AT_NO_MEMORY("arguments");
  if (given) AT_TRY(at_npy_fits(given, i, (at_dtype)t->dtype, dims));
  at_host_array host = {(at_dtype)t->dtype, dims, NULL, data};
  at_event *done;
  AT_TRY(at_buffer_from_host(at_runtime_chip(s->runtime, 0), AT_MEM_DEVICE,
                             &host, AT_HOST_IMMUTABLE_UNTIL_TRANSFER,
                             &s->args[i], &done));
  at_status st = at_event_wait(done);
  at_event_release(done);
  return st;
}

// INVALID_ARGUMENT: the archive has another number of arrays.
static at_status make_arguments(session *s, const char *npz) {
  at_npy *arrays = NULL;
  uint32_t count = 0;
  if (npz) {
    at_bytes file;
    AT_TRY(at_cli_read_file(npz, &file));
    at_status st = at_npz_read(file, s->arena, &arrays, &count);
    free((void *)file.ptr);
    AT_TRY(st);
    if (count != s->num_args)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "%s has %u arrays; the program takes %u", npz, count,
                     s->num_args);
  }
  for (uint32_t i = 0; i < s->num_args; i++)
    AT_TRY(make_argument(s, i, arrays ? &arrays[i] : NULL));
  return AT_OK;
}

// Results of the run before are released first, so that repeating needs memory
// once.
static at_status launch(session *s) {
  for (uint32_t i = 0; i < s->num_results; i++)
    if (s->results[i]) at_buffer_release(s->results[i]), s->results[i] = NULL;
  bool *keep;
  AT_TRY_ALLOC(keep, at_new(s->arena, bool, s->num_args + 1));
  memset(keep, 1, s->num_args);  // the arguments serve every repetition
  at_launch l = {.chip = at_runtime_chip(s->runtime, 0),
                 .args = s->args,
                 .num_args = s->num_args,
                 .not_donatable = keep};
  at_event *done;
  AT_TRY(at_loaded_execute(s->program, &l, s->results, &done));
  at_status st = at_event_wait(done);
  at_event_release(done);
  return st;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The result's type as HLO has it.
static void print_type(at_strbuf *b, const session *s, uint32_t i) {
  const at_xtype *t = io_type(s, AT_XS_OUTPUTS, i);
  at_dims d = dims_of(s, t);
  at_strbuf_addf(b, "%s[", at_dtype_of((at_dtype)t->dtype)->text);
  for (uint32_t k = 0; k < d.rank; k++)
    at_strbuf_addf(b, "%s%lld", k ? "," : "", (long long)d.ptr[k]);
  at_strbuf_addc(b, ']');
}

// The first elements of a result, for eyes.
static void print_head(at_strbuf *b, at_dtype t, const uint8_t *p,
                       size_t bytes) {
  uint32_t elem = at_dtype_bytes(t);
  size_t n = elem ? bytes / elem : 0;
  for (size_t i = 0; i < n && i < 8; i++, p += elem) {
    if (i) at_strbuf_addz(b, ", ");
    float f;
    double d;
    int64_t v = 0;
    uint32_t half;
    switch (t) {
      case AT_F32:
        memcpy(&f, p, 4), at_strbuf_addf(b, "%.9g", (double)f);
        break;
      case AT_F64:
        memcpy(&d, p, 8), at_strbuf_addf(b, "%.17g", d);
        break;
      case AT_BF16:
        half = (uint32_t)p[1] << 24 | (uint32_t)p[0] << 16;
        memcpy(&f, &half, 4), at_strbuf_addf(b, "%g", (double)f);
        break;
      default:
        memcpy(&v, p, AT_MIN(elem, 8));
        if (at_is_int(t) || t == AT_PRED) {
          int shift = 64 - 8 * (int)elem;
          if (at_is_signed_int(t)) v = (int64_t)((uint64_t)v << shift) >> shift;
          at_strbuf_addf(b, "%lld", (long long)v);
        } else {
          at_strbuf_addf(b, "0x%llx", (unsigned long long)v);
        }
    }
  }
  if (n > 8) at_strbuf_addz(b, ", ...");
}

// Times and results: all of them by type, in text also by their first elements,
// and to --out as a whole.
static at_status report(session *s, double compile_ms, double run_ms) {
  at_strbuf b = {0};
  at_json_writer w = {&b, false};
  at_npy *arrays;
  AT_TRY_ALLOC(arrays, at_new(s->arena, at_npy, s->num_results + 1));
  if (s->json) {
    at_json_begin_object(&w);
    at_json_key(&w, AT_STR("compile_ms")), at_json_num(&w, compile_ms);
    at_json_key(&w, AT_STR("run_ms")), at_json_num(&w, run_ms);
    at_json_key(&w, AT_STR("results")), at_json_begin_array(&w);
  } else {
    at_strbuf_addf(&b, "compiled in %.1f ms, ran in %.3f ms\n", compile_ms,
                   run_ms);
  }
  for (uint32_t i = 0; i < s->num_results; i++) {
    at_buffer *r = s->results[i];
    at_npy *x = &arrays[i];
    *x = (at_npy){at_arena_printf(s->arena, "out%u", i), at_buffer_dtype(r),
                  at_buffer_dims(r), at_buffer_data(r), at_buffer_bytes(r)};
    at_strbuf type = {0};
    print_type(&type, s, i);
    if (s->json) {
      at_json_str(&w, at_strbuf_str(&type));
    } else {
      at_strbuf_addf(&b, "result %u: %s = ", i, type.ptr ? type.ptr : "");
      print_head(&b, x->dtype, x->data, x->bytes);
      at_strbuf_addc(&b, '\n');
    }
    b.failed |= type.failed;
    at_strbuf_free(&type);
  }
  if (s->json)
    at_json_end_array(&w), at_json_end_object(&w), at_strbuf_addc(&b, '\n');
  at_status st = at_strbuf_status(&b);
  if (at_ok(st)) fwrite(b.ptr, 1, b.len, stdout);
  at_strbuf_free(&b);
  AT_TRY(st);
  return s->out_path ? at_npz_write(s->out_path, arrays, s->num_results)
                     : AT_OK;
}

// Compiles, loads and runs. The time that is told is the median; the first run
// counts, too.
static at_status run_program(session *s, const char *path, const char *npz) {
  at_bytes program, executable;
  AT_TRY(at_cli_read_file(path, &program));
  // Compiling is timed with the disk cache as it is: a program that is known
  // comes from there.
  uint64_t start = at_clock_ns();
  at_compile_options options = {0};
  at_status st = at_compile(program, &options, &executable);
  free((void *)program.ptr);
  AT_TRY(st);
  double compile_ms = (double)(at_clock_ns() - start) / 1e6;
  st = at_loaded_create(s->runtime, executable, &s->program);
  free((void *)executable.ptr);
  AT_TRY(st);
  uint64_t n;
  at_loaded_section(s->program, AT_XS_INPUTS, &n);
  s->num_args = (uint32_t)n;
  at_loaded_section(s->program, AT_XS_OUTPUTS, &n);
  s->num_results = (uint32_t)n;
  AT_TRY_ALLOC(s->args, at_new(s->arena, at_buffer *, s->num_args + 1));
  AT_TRY_ALLOC(s->results, at_new(s->arena, at_buffer *, s->num_results + 1));
  AT_TRY(make_arguments(s, npz));
  double *times;
  AT_TRY_ALLOC(times, at_new(s->arena, double, (size_t)s->repeat));
  // Each run takes the same arguments, which are not donated.
  for (long i = 0; i < s->repeat; i++) {
    start = at_clock_ns();
    AT_TRY(launch(s));
    times[i] = (double)(at_clock_ns() - start) / 1e6;
  }
  // Of an even number the upper one of the middle two.
  qsort(times, (size_t)s->repeat, sizeof *times, by_value);
  return report(s, compile_ms, times[s->repeat / 2]);
}

// Also of one that was not finished.
static void close_session(session *s) {
  for (uint32_t i = 0; s->args && i < s->num_args; i++)
    if (s->args[i]) at_buffer_release(s->args[i]);
  for (uint32_t i = 0; s->results && i < s->num_results; i++)
    if (s->results[i]) at_buffer_release(s->results[i]);
  if (s->program) at_loaded_release(s->program);
  if (s->runtime) at_runtime_destroy(s->runtime);
  at_arena_destroy(s->arena);
}

// A name that ends in .py is Python's; all that follows is the program's own.
at_status at_cli_run(int argc, char **argv) {
  if (argc > 1 && ends_with(argv[1], ".py")) return run_python(argc, argv);
  session s = {.repeat = 1};
  const char *repeat = NULL;
  s.json = at_cli_option(&argc, argv, "--json", NULL);
  at_cli_option(&argc, argv, "--out=", &s.out_path);
  if (at_cli_option(&argc, argv, "--repeat=", &repeat)) s.repeat = atol(repeat);
  AT_TRY(at_cli_no_more_options(argc, argv, "run"));
  if (s.repeat < 1 || s.repeat > 1000000)
    return AT_FAIL(AT_INVALID_ARGUMENT, "--repeat=%s is not in 1..1000000",
                   repeat);
  if (argc < 2 || argc > 3)
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "one program, and at most one .npz, is needed\nhint: atoll run --help");
  AT_TRY_ALLOC(s.arena, at_arena_create());
  at_runtime_options options = {0};
  at_status st = at_custom_register(AT_STR(AT_NAN_TARGET), AT_CUSTOM_OWN,
                                    (void *)(uintptr_t)at_nan_call, 0);
  if (at_ok(st)) st = at_runtime_create(&options, &s.runtime);
  if (at_ok(st)) st = run_program(&s, argv[1], argc > 2 ? argv[2] : NULL);
  close_session(&s);
  if (at_status_code(st) == AT_RESOURCE_EXHAUSTED)
    at_finding_note(st, "memory");
  return st;
}
