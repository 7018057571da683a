// The environment knobs, from one table (config.def). A value is the override
// of at_config_set, else the environment's, else the default; an empty one is
// the default.
//
// The law: a value that the table does not allow is an error, which names the
// knob, the value and what is allowed; a variable ATOLL_... that the table does
// not have is a warning, which names the nearest. at_config_check says both.
// Whoever begins something that knobs decide calls it first, so that the
// readers below need no status.
//
// Thread-safe as long as nobody calls setenv meanwhile, but for at_config_set.
#ifndef ATOLL_BASE_CONFIG_H_
#define ATOLL_BASE_CONFIG_H_

#include "base/status.h"
#include "base/strbuf.h"

// One number per knob, in the table's order.
typedef enum at_config {
#define AT_CONFIG(Id, ...) AT_CONFIG_##Id,
#define AT_CONFIG_WORD(...)
#include "base/config.def"
#undef AT_CONFIG
#undef AT_CONFIG_WORD
  AT_CONFIG_COUNT
} at_config;

// Every word of every knob: AT_WORD_NUMERICS_TPU. Those of a knob follow each
// other in the table's order.
typedef enum at_word {
#define AT_CONFIG(...)
#define AT_CONFIG_WORD(Knob, Id, ...) AT_WORD_##Knob##_##Id,
#include "base/config.def"
#undef AT_CONFIG
#undef AT_CONFIG_WORD
  AT_WORD_COUNT
} at_word;

// What values a knob allows; at_config_allowed says it in words.
typedef enum at_config_kind {
  AT_CONFIG_FLAG,
  AT_CONFIG_WORD,
  AT_CONFIG_WORDS,
  AT_CONFIG_COUNT_OF,
  AT_CONFIG_SIZE,
  AT_CONFIG_FOLDER,
  AT_CONFIG_SCRATCH,
  AT_CONFIG_FILE,
  AT_CONFIG_ADDRESSES,
  AT_CONFIG_ADDRESS,
  AT_CONFIG_TARGET_TEXT
} at_config_kind;

// A row of the table.
typedef struct at_config_info {
  const char *name, *fallback, *help;
  const char *good, *bad;  // examples by '|', for the test of every knob
  at_config_kind kind;
  uint64_t least, most;  // of a COUNT_OF or a SIZE
  const char *unit;      // what a COUNT_OF counts
} at_config_info;
// The knob's row; static, never NULL.
const at_config_info *at_config_info_of(at_config id);

// Never NULL; borrowed until the next at_config_set of the same knob.
const char *at_config_text(at_config id);
// The readers by kind. A value that is not allowed counts as the default.
bool at_config_flag(at_config id);
uint64_t at_config_uint(at_config id);  // of a COUNT_OF or a SIZE (bytes)
// The word that a WORD knob holds, in either case; that of the default where
// the value is not allowed.
at_word at_config_word(at_config id);
// True if WORDS has the word, or `all` stands for it.
bool at_config_has(at_word word);
// True if WORDS has any of the words from `first` to `last`.
bool at_config_has_any(at_word first, at_word last);

// Overrides the environment; NULL takes the override back. INVALID_ARGUMENT
// when the knob's kind does not allow the value; files and folders are looked
// at by at_config_check. Not thread-safe.
at_status at_config_set(at_config id, const char *value);
// INVALID_ARGUMENT names the first knob whose value is not allowed. Makes the
// folders that are named. Logs each unknown ATOLL_ variable once per process.
// The name of the chip of a target is not looked at: base knows none.
at_status at_config_check(void);

// Appends what the knob allows: "a whole number of threads, 0 to 4096".
void at_config_allowed(at_config id, at_strbuf *out);
// The table as a Markdown page: docs/config.md.
void at_config_doc(at_strbuf *out);
// The table as JSON, with the values that hold now.
void at_config_json(at_strbuf *out);

#endif
