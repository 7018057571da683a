#include "control/token.h"

#include "base/config.h"
#include "pod/token.h"

// A file that is named goes before the user's own.
at_status at_control_token(const char *user_file, at_token *out,
                           bool *of_user) {
  const char *file = at_config_text(AT_CONFIG_POD_TOKEN_FILE);
  if (of_user) *of_user = !*file;
  return *file ? at_token_read(file, "ATOLL_POD_TOKEN_FILE", out)
               : at_token_of_user(user_file, out);
}
