// What config.c and config_check.c share: values by kind.
//
// Threads: as config.h. Nothing here keeps memory.
#ifndef ATOLL_BASE_CONFIG_INTERNAL_H_
#define ATOLL_BASE_CONFIG_INTERNAL_H_

#include "base/config.h"
#include "base/nearest.h"

typedef struct at_word_range {
  uint32_t first, count;
} at_word_range;
// The indices of a knob's words in the table of all words; count is 0 for kinds
// without words.
at_word_range at_config_words_of(at_config id);
// The spelling of a word of the table, lower case; static.
const char *at_config_word_name(uint32_t word);

// False when the knob has no such word.
bool at_config_find_word(at_config id, at_str v, uint32_t *out);
// The next of a list by commas; takes it from *rest. False at the end.
bool at_config_next_word(at_str *rest, at_str *out);
// 1, on, true, yes; 0, off, false, no; in any case. False when it is none of
// them, and *out is not written.
bool at_config_parse_flag(const char *v, bool *out);
// False when it is no number, or not in the row's range.
bool at_config_parse_number(const at_config_info *row, const char *v,
                            uint64_t *out);

// INVALID_ARGUMENT says why the knob cannot have that value. With `places`
// folders are made and files looked at.
at_status at_config_check_value(at_config id, const char *v, bool places);

#endif
