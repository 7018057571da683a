#include "pod/network.h"

#include <stdio.h>
#include <unistd.h>

#include "base/config.h"
#include "base/digest.h"
#include "pod/tls.h"

// local: the other end is on this machine.
bool at_network_wants_tls(bool local) {
  const at_word who = at_config_word(AT_CONFIG_POD_NETWORK);
  return who == AT_WORD_POD_NETWORK_TLS ||
         (who == AT_WORD_POD_NETWORK_AUTO && !local);
}

// because: the first words of the message.
at_status at_network_need_tls(const char *because) {
  at_status st = at_tls_ready();
  if (!st.err) return AT_OK;
  at_status out = AT_FAIL(
      AT_FAILED_PRECONDITION,
      "%s, but what processes say to each other cannot be encrypted: %s\nhint: "
      "install OpenSSL 3 (libssl3), or set ATOLL_POD_NETWORK=trusted in every "
      "process, where nobody else listens on the network between them",
      because, at_status_message(st));
  return at_status_free(st), out;
}

// False: this system does not tell where it is.
bool at_network_place(char out[AT_PLACE_TEXT + 1]) {
  char text[256] = {0};
  at_digest d = at_digest_start(0);
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
  bool known = f && fgets(text, sizeof text, f);
  if (known) at_digest_add_str(&d, at_str_of(text));
  if (f) fclose(f);
  ssize_t n = readlink("/proc/self/ns/net", text, sizeof text);
  if (n > 0) at_digest_add_str(&d, (at_str){text, (size_t)n});
  snprintf(out, AT_PLACE_TEXT + 1, "%016llx%016llx", (unsigned long long)d.h[0],
           (unsigned long long)d.h[1]);
  return known && n > 0;
}
