// `atoll version`: what a report of a bug should say.
#include <stdlib.h>

#include "base/config.h"
#include "base/cpu.h"
#include "base/json.h"
#include "cli/cli.h"

// The highest value of ATOLL_CPU that holds here.
static const char *cpu_level(void) {
  uint64_t f = at_cpu_features();
  if (f & AT_CPU_AMX_BF16) return "amx";
  if (f & AT_CPU_AVX512_BF16) return "avx512_bf16";
  if (f & AT_CPU_AVX512) return "avx512";
  return f & AT_CPU_AVX2 ? "x86-64-v3" : "below x86-64-v3";
}

// What the environment says of a knob; NULL: nothing.
static const char *given(at_config id) {
  const char *v = getenv(at_config_info_of(id)->name);
  return v && *v ? v : NULL;
}

// Members are part of what users' tools read.
static void put_json(at_strbuf *b) {
  at_json_writer w = {b, false};
  at_json_begin_object(&w);
  at_json_key(&w, AT_STR("version")), at_json_str(&w, AT_STR(AT_VERSION));
  at_json_key(&w, AT_STR("target"));
  at_json_str(&w, at_str_of(at_config_text(AT_CONFIG_TARGET)));
  at_json_key(&w, AT_STR("cpu")), at_json_str(&w, at_str_of(cpu_level()));
  at_json_key(&w, AT_STR("cores")), at_json_uint(&w, at_cpu_count());
  at_json_key(&w, AT_STR("knobs")), at_json_begin_object(&w);
  for (int i = 0; i < AT_CONFIG_COUNT; i++)
    if (given((at_config)i)) {
      at_json_key(&w, at_str_of(at_config_info_of((at_config)i)->name));
      at_json_str(&w, at_str_of(given((at_config)i)));
    }
  at_json_end_object(&w), at_json_end_object(&w), at_strbuf_addc(b, '\n');
}

// Works with bad knobs, too: a report of them needs it.
at_status at_cli_version(int argc, char **argv) {
  bool json = at_cli_option(&argc, argv, "--json", NULL);
  AT_TRY(at_cli_no_more_options(argc, argv, "version"));
  at_strbuf b = {0};
  if (json) {
    put_json(&b);
  } else {
    at_strbuf_addf(&b, "atoll %s\ntarget %s\ncpu %s, %u cores\n", AT_VERSION,
                   at_config_text(AT_CONFIG_TARGET), cpu_level(),
                   at_cpu_count());
    for (int i = 0; i < AT_CONFIG_COUNT; i++)
      if (given((at_config)i))
        at_strbuf_addf(&b, "%s=%s\n", at_config_info_of((at_config)i)->name,
                       given((at_config)i));
  }
  at_status st = at_strbuf_status(&b);
  if (at_ok(st)) fputs(b.ptr, stdout);
  at_strbuf_free(&b);
  return st;
}
