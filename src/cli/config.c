// `atoll config`: the knobs, what holds now, and what they take.
#include "base/config.h"

#include <stdlib.h>

#include "cli/cli.h"

// Each knob: what holds, whether that is the default, what it is for, and what
// it takes.
at_status at_cli_config(int argc, char **argv) {
  bool json = at_cli_option(&argc, argv, "--json", NULL);
  AT_TRY(at_cli_no_more_options(argc, argv, "config"));
  at_strbuf b = {0};
  if (json) at_config_json(&b);
  for (int i = 0; i < AT_CONFIG_COUNT && !json; i++) {
    const at_config_info *row = at_config_info_of((at_config)i);
    const char *given = getenv(row->name);
    at_strbuf_addf(&b, "%s=%s%s\n    %s\n    takes ", row->name,
                   at_config_text((at_config)i),
                   given && *given ? "" : "  (the default)", row->help);
    at_config_allowed((at_config)i, &b);
    at_strbuf_addz(&b, "\n");
  }
  at_status st = at_strbuf_status(&b);
  if (at_ok(st)) fputs(b.ptr, stdout);
  at_strbuf_free(&b);
  return st;
}
