// `atoll doctor`: what this machine offers, what of it Atoll uses, and whether
// JAX will find it.
#include <stdlib.h>
#include <unistd.h>

#include "base/config.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/size_text.h"
#include "cli/cli.h"

// One finding: what was looked at, what was found, and what it means.
typedef struct finding {
  const char *topic;
  char value[160];
  const char *meaning;
  bool good;
} finding;
typedef struct findings {
  finding list[32];
  size_t count;
} findings;

// One finding more; the text is cut to fit, and findings beyond the list are
// dropped.
__attribute__((format(printf, 5, 6))) static void add(findings *f,
                                                      const char *topic,
                                                      bool good,
                                                      const char *meaning,
                                                      const char *fmt, ...) {
  if (f->count == AT_LEN(f->list)) return;
  finding *x = &f->list[f->count++];
  x->topic = topic;
  x->good = good;
  x->meaning = meaning;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(x->value, sizeof x->value, fmt, ap);
  va_end(ap);
}

// The first line of a small file, without its newline; "" when unreadable.
static void first_line(const char *path, char *out, size_t size) {
  FILE *f = fopen(path, "r");
  out[0] = 0;
  if (!f) return;
  if (fgets(out, (int)size, f)) out[strcspn(out, "\n")] = 0;
  fclose(f);
}

// Features that kernels use. Only the baseline is necessary: what else is
// missing costs speed.
static void look_at_cpu(findings *f) {
  uint64_t cpu = at_cpu_features();
  static const struct {
    uint64_t bit;
    const char *there, *absent;
  } rows[] = {
      {AT_CPU_AVX2, "the baseline is there",
       "Atoll needs AVX2 and FMA: it does not run here"},
      {AT_CPU_AVX512, "512-bit loops and matrix products are used",
       "256-bit loops are used: about half the arithmetic speed"},
      {AT_CPU_AVX512_BF16, "bf16 conversion and matrix products in hardware",
       "bf16 is rounded with integer operations and multiplied as f32"},
      {AT_CPU_AMX_BF16, "bf16 matrix products run on AMX tiles",
       "no AMX tiles: bf16 matrix products run at f32 speed, with avx512_bf16 "
       "at twice it"},
      {AT_CPU_AMX_INT8, "8-bit matrix products run on AMX tiles",
       "8-bit matrix products use vectors: of 16-bit numbers with avx512_vnni, "
       "else of 32"}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    bool there = (cpu & rows[i].bit) != 0;
    add(f, at_cpu_feature_name(rows[i].bit), there || i >= 2,
        there ? rows[i].there : rows[i].absent, "%s", there ? "yes" : "no");
  }
  add(f, "cores", true,
      "threads that run kernels, unless ATOLL_THREADS says otherwise", "%u",
      at_cpu_count());
  for (int level = 1; level <= 3; level++) {
    static const char *const names[] = {"", "L1 data cache", "L2 cache",
                                        "L3 cache"};
    char size[AT_SIZE_TEXT];
    add(f, names[level], true, "block sizes follow it", "%s",
        at_size_text((double)at_cpu_cache_bytes(level), size));
  }
}

// Memory that there is, and whether the kernel gives huge pages.
static void look_at_memory(findings *f) {
  long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  double bytes = (double)pages * (double)size;
  char text[AT_SIZE_TEXT];
  add(f, "memory", bytes > 0x1p32,
      "programs over it are refused before they start", "%s",
      at_size_text(bytes, text));
  char huge[128];
  first_line("/sys/kernel/mm/transparent_hugepage/enabled", huge, sizeof huge);
  bool off = !*huge || strstr(huge, "[never]");
  add(f, "huge pages", !off,
      off ? "large arrays cost more TLB misses; echo madvise > "
            "/sys/kernel/mm/transparent_hugepage/enabled helps"
          : "large arrays live in 2 MiB pages",
      "%s", *huge ? huge : "not offered");
}

// What decides whether JAX finds Atoll.
static void look_at_setup(findings *f) {
  add(f, "version", true, "of this command and its library", "%s", AT_VERSION);
  add(f, "target", true, "the chip and topology that JAX sees (ATOLL_TARGET)",
      "%s", at_config_text(AT_CONFIG_TARGET));
  char folder[3072], library[3200];
  at_status st = at_cli_own_folder(folder, sizeof folder);
  bool there = false;
  if (at_ok(st)) {
    snprintf(library, sizeof library, "%s/libatoll.so", folder);
    there = access(library, R_OK) == 0;
  }
  at_status_free(st);
  add(f, "libatoll.so", there,
      there ? "beside this command; `atoll run train.py` uses it"
            : "not beside this command: build the target atoll",
      "%s", there ? "found" : "missing");
  const char *platforms = getenv("JAX_PLATFORMS"),
             *path = getenv("TPU_LIBRARY_PATH");
  bool lone = platforms && *platforms && !strstr(platforms, "cpu");
  add(f, "JAX_PLATFORMS", !lone,
      lone ? "without cpu in it JAX's host callbacks fail: add ,cpu or unset it"
           : "JAX will find the CPU client that its callbacks need",
      "%s", platforms && *platforms ? platforms : "unset");
  add(f, "TPU_LIBRARY_PATH", true,
      "plain `python train.py` runs on Atoll when this names libatoll.so", "%s",
      path && *path ? path : "unset");
}

// An array of findings, for tools.
static at_status print_json(const findings *f) {
  at_strbuf b = {0};
  at_json_writer w = {&b, false};
  at_json_begin_array(&w);
  for (size_t i = 0; i < f->count; i++) {
    at_json_begin_object(&w);
    at_json_key(&w, AT_STR("topic")),
        at_json_str(&w, at_str_of(f->list[i].topic));
    at_json_key(&w, AT_STR("value")),
        at_json_str(&w, at_str_of(f->list[i].value));
    at_json_key(&w, AT_STR("good")), at_json_bool(&w, f->list[i].good);
    at_json_key(&w, AT_STR("meaning")),
        at_json_str(&w, at_str_of(f->list[i].meaning));
    at_json_end_object(&w);
  }
  at_json_end_array(&w);
  at_status st = at_strbuf_status(&b);
  if (at_ok(st)) puts(b.ptr);
  at_strbuf_free(&b);
  return st;
}

// Nothing that it finds makes it fail: it is for reading.
at_status at_cli_doctor(int argc, char **argv) {
  bool json = at_cli_option(&argc, argv, "--json", NULL);
  bool measure = at_cli_option(&argc, argv, "--measure", NULL);
  bool cpu = at_cli_option(&argc, argv, "--cpu-time", NULL);
  AT_TRY(at_cli_no_more_options(argc, argv, "doctor"));
  if (measure) return at_cli_measure_host(cpu);
  findings f = {0};
  look_at_setup(&f);
  look_at_cpu(&f);
  look_at_memory(&f);
  if (json) return print_json(&f);
  for (size_t i = 0; i < f.count; i++)
    printf("%s%s%s %-18s %-24s %s\n",
           f.list[i].good ? "" : at_cli_style_of(stdout, AT_STYLE_WARNING),
           f.list[i].good ? "  " : "! ",
           f.list[i].good ? "" : at_cli_style_of(stdout, AT_STYLE_PLAIN),
           f.list[i].topic, f.list[i].value, f.list[i].meaning);
  return AT_OK;
}
