// The environment knobs, from one table (config.def). A value is the override
// of at_config_set, else the environment's, else the default. Thread-safe as
// long as nobody calls setenv meanwhile.
#ifndef ATOLL_BASE_CONFIG_H_
#define ATOLL_BASE_CONFIG_H_

#include "base/status.h"
#include "base/strbuf.h"

typedef enum at_config {
#define AT_CONFIG(Id, ...) AT_CONFIG_##Id,
#include "base/config.def"
#undef AT_CONFIG
  AT_CONFIG_COUNT
} at_config;

typedef enum at_config_type {
  AT_CONFIG_TEXT,
  AT_CONFIG_FLAG,
  AT_CONFIG_UINT
} at_config_type;

typedef struct at_config_info {
  const char *name, *fallback, *help;
  at_config_type type;
} at_config_info;
const at_config_info *at_config_info_of(at_config id);

// Never NULL; borrowed until the next at_config_set of the same knob.
const char *at_config_text(at_config id);
// A value that does not parse counts as the default (at_config_check names it).
bool at_config_flag(at_config id);
uint64_t at_config_uint(at_config id);
// Overrides the environment; NULL takes the override back. At most 255 bytes,
// INVALID_ARGUMENT otherwise or when the value does not parse. Not thread-safe.
at_status at_config_set(at_config id, const char *value);
// INVALID_ARGUMENT names the first variable whose value does not parse, or the
// first ATOLL_ variable of the environment that no row has.
at_status at_config_check(void);
// The table as a Markdown page: docs/config.md.
void at_config_doc(at_strbuf *out);

#endif
