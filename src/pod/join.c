#include "pod/join.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "pod/network.h"
#include "pod/token.h"

enum {
  kMs = 1000000,
  kKeyBytes = 64,
  kGlanceMs = 100  // at a key that may not be there
};

// Of pods that this process has joined by a store, or could have, were it one
// that comes back. Every process joins its pods in the same order.
static _Atomic uint32_t rounds;

// Of the environment, or of the store (`told`).
typedef struct plan {
  const at_pod_said *said;
  uint32_t count, me, epoch;
  uint32_t round;  // of the store: how many pods this process has joined before
  bool told;
  int listener;  // told: bound; else -1
  uint64_t until_ns;
  at_strbuf addresses;  // told
  at_addresses list;
  at_token token;
  bool of_user;  // the token is one of all this user's pods
  bool local;
  bool one_user;
  bool tls;
} plan;

// ---- Who
static at_status contradicts(const plan *p, uint32_t addresses) {
  return AT_FAIL(
      AT_FAILED_PRECONDITION,
      "jax.distributed.initialize says %u processes, but TPU_PROCESS_ADDRESSES "
      "has %u address%s: this process would be in %s\nhint: leave out "
      "TPU_PROCESS_ADDRESSES, the processes find each other through JAX",
      p->said->count, addresses, addresses == 1 ? "" : "es",
      addresses == 1 ? "a pod of its own" : "another pod");
}

// count 0 or 1: this process is alone. So it is where nobody says how many
// there are: jaxlib hands a store to every client, also where there is no job.
static at_status settle_who(plan *p) {
  const at_pod_said *said = p->said;
  p->list = (at_addresses){at_config_text(AT_CONFIG_PROCESSES),
                           "TPU_PROCESS_ADDRESSES"};
  uint32_t n = at_address_count(p->list.text);
  uint64_t me = at_config_uint(AT_CONFIG_PROCESS);
  p->told = !n && said->count > 1;
  p->count = p->told ? said->count : n;
  p->me = p->told ? said->me : (uint32_t)me;
  if (said->count > 1 && n && n != said->count) return contradicts(p, n);
  if (said->count > 1 && n && me != said->me)
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "this is process %u for jax.distributed.initialize, but "
                   "process %llu by CLOUD_TPU_TASK_ID",
                   said->me, (unsigned long long)me);
  if (p->told && !said->store)
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "the client says %u processes, but hands over no key-value "
                   "store through which they could find each other\nhint: set "
                   "TPU_PROCESS_ADDRESSES and CLOUD_TPU_TASK_ID",
                   said->count);
  return AT_OK;
}

// ---- The network
static at_status is_local(const at_addresses *list, uint32_t i, bool *out) {
  struct addrinfo *all;
  AT_TRY(at_address_resolve(list, i, &all));
  *out = at_address_is_local(all);
  freeaddrinfo(all);
  return AT_OK;
}

// NULL: whatever fits the processes' places.
static const char *medium(void) {
  switch (at_config_word(AT_CONFIG_POD_WIRE)) {
    case AT_WORD_POD_WIRE_TCP:
      return "tcp";
    case AT_WORD_POD_WIRE_UCX:
      return "ucx";
    default:
      return NULL;
  }
}

// Beyond this machine others may listen.
static at_status check_privacy(uint32_t process) {
  char because[80];
  if (!at_network_wants_tls(false)) return AT_OK;
  snprintf(because, sizeof because,
           "the address of process %u is not of this machine", process);
  return at_network_need_tls(because);
}

// ---- The store
// Keys of the store are made of the round, so that pods that are joined later
// do not meet the first one's values.
static void key_of(const plan *p, const char *what, uint32_t i,
                   char out[kKeyBytes]) {
  snprintf(out, kKeyBytes, "atoll/pod/%u/%s/%u", p->round, what, i);
}

// Waits until the key is there or the pod's time is over.
static at_status store_get(const plan *p, const char *what, uint32_t i,
                           uint64_t most_ms, at_strbuf *out) {
  char key[kKeyBytes];
  key_of(p, what, i, key);
  uint64_t now = at_clock_ns();
  uint64_t left = p->until_ns > now ? (p->until_ns - now) / kMs : 0;
  left = AT_MIN(left, most_ms);
  at_status st = p->said->store->get(p->said->store->arg, key, left, out);
  if (!st.err) return at_strbuf_status(out);
  return at_status_prefix(st, "process %u has not given its %s", i, what);
}

// Under the pod's and this process's own key.
static at_status store_put(const plan *p, const char *what, uint32_t i,
                           at_str value) {
  char key[kKeyBytes];
  key_of(p, what, i, key);
  at_status st = p->said->store->put(p->said->store->arg, key, value);
  return st.err ? at_status_prefix(st, "process %u cannot give its %s", i, what)
                : st;
}

// ---- The place of one that comes back
// Of the last pod that a process of this number has joined.
static at_status find_round(plan *p, at_strbuf *out) {
  AT_TRY(store_get(p, "address", p->me, UINT64_MAX, out));
  for (;;) {
    at_strbuf later = {0};
    p->round++;
    at_status st = store_get(p, "address", p->me, kGlanceMs, &later);
    if (st.err) {
      at_status_free(st);
      at_strbuf_free(&later);
      atomic_store(&rounds, p->round--);
      return AT_OK;
    }
    at_strbuf_free(out);
    *out = later;
  }
}

// The others know the address that this process had.
static at_status take_own_place(plan *p, const char *place) {
  at_strbuf text = {0};
  at_status st = find_round(p, &text);
  char *blank = st.err || !text.ptr ? NULL : strchr(text.ptr, ' ');
  if (!st.err && !blank)
    st = AT_FAIL(AT_INVALID_ARGUMENT, "process %u gave the address `%.100s`",
                 p->me, text.ptr ? text.ptr : "");
  if (!st.err && strcmp(blank + 1, place))
    st = AT_FAIL(AT_FAILED_PRECONDITION,
                 "process %u was on another machine, or in another network, "
                 "before\nhint: start it there again, or all of the job anew",
                 p->me);
  if (!st.err) {
    *blank = 0;
    const at_addresses own = {text.ptr, "the client's key-value store"};
    at_log(AT_LOG_INFO, "process %u comes back, at %s", p->me, text.ptr);
    st = at_address_bind(&own, 0, &p->listener);
  }
  at_strbuf_free(&text);
  return st;
}

// Binds this process's address and gives it to the others: "host:port place".
static at_status give_address(plan *p) {
  const at_addresses mine = {at_config_text(AT_CONFIG_POD_ADDRESS),
                             "ATOLL_POD_ADDRESS"};
  const char *colon = strrchr(mine.text, ':');
  char place[AT_PLACE_TEXT + 1];
  uint32_t port = 0;
  at_strbuf text = {0};
  bool local;
  AT_TRY(is_local(&mine, 0, &local));
  if (!local)
    AT_TRY(check_privacy(p->me));  // here, not where others are missed
  (void)at_network_place(place);
  at_status st = at_address_bind(&mine, 0, &p->listener);
  if (!st.err) st = at_address_port(p->listener, &port);
  at_strbuf_addf(&text, "%.*s:%u %s", (int)(colon - mine.text), mine.text, port,
                 place);
  if (!st.err) st = at_strbuf_status(&text);
  if (!st.err) st = store_put(p, "address", p->me, at_strbuf_str(&text));
  at_strbuf_free(&text);
  if (at_status_code(st) != AT_ALREADY_EXISTS) return st;
  at_status_free(st);
  close(p->listener);
  p->listener = -1;
  return take_own_place(p, place);
}

// Appends a process's address; an address of the loopback device is good only
// within its machine and network.
static at_status take_address(plan *p, uint32_t i, const char *place) {
  at_strbuf text = {0};
  struct addrinfo *all = NULL;
  at_status st = store_get(p, "address", i, UINT64_MAX, &text);
  char *blank = st.err || !text.ptr ? NULL : strchr(text.ptr, ' ');
  if (!st.err && (!blank || strchr(text.ptr, ',')))
    st = AT_FAIL(AT_INVALID_ARGUMENT, "process %u gave the address `%.100s`", i,
                 text.ptr ? text.ptr : "");
  if (!st.err) {
    *blank = 0;
    at_strbuf_addf(&p->addresses, "%s%s", i ? "," : "", text.ptr);
    const at_addresses one = {text.ptr, "the client's key-value store"};
    st = at_address_resolve(&one, 0, &all);
  }
  if (!st.err && at_address_is_local(all) && strcmp(blank + 1, place))
    st = AT_FAIL(AT_FAILED_PRECONDITION,
                 "process %u is on another machine, or in another network, and "
                 "listens on its own only (%s)\nhint: set ATOLL_POD_ADDRESS in "
                 "every process to an address at which the others reach it",
                 i, text.ptr);
  if (all) freeaddrinfo(all);
  at_strbuf_free(&text);
  return st;
}

// Waits for every process to give its own.
static at_status take_addresses(plan *p) {
  char place[AT_PLACE_TEXT + 1];
  (void)at_network_place(place);
  for (uint32_t i = 0; i < p->count; i++) AT_TRY(take_address(p, i, place));
  AT_TRY(at_strbuf_status(&p->addresses));
  p->list = (at_addresses){p->addresses.ptr, "the client's key-value store"};
  return AT_OK;
}

// ---- The token
// Process 0 makes it and puts it into the store; the others read it there.
static at_status share_token(plan *p) {
  char text[AT_TOKEN_TEXT + 1];
  if (!p->me) {
    AT_TRY(at_token_make(&p->token));
    at_token_write(&p->token, text);
    at_status st = store_put(p, "token", 0, (at_str){text, AT_TOKEN_TEXT});
    if (at_status_code(st) != AT_ALREADY_EXISTS) return st;
    at_status_free(st);  // it comes back
  }
  at_strbuf got = {0};
  at_status st = store_get(p, "token", 0, UINT64_MAX, &got);
  if (!st.err) st = at_token_parse(at_strbuf_str(&got), &p->token);
  at_strbuf_free(&got);
  return st;
}

// A file goes before the store, the store before the user's own token.
static at_status settle_token(plan *p) {
  const char *file = at_config_text(AT_CONFIG_POD_TOKEN_FILE);
  if (*file) return at_token_read(file, "ATOLL_POD_TOKEN_FILE", &p->token);
  // A store of one process is not shared with the others.
  if (p->said->store && p->said->count != 1) return share_token(p);
  p->of_user = true;
  return at_token_of_user(p->said->user_token, &p->token);
}

// ---- All together
static void tell_who_reads(const plan *p) {
  if (!p->tls)
    at_log_once(AT_LOG_WARNING,
                "the processes of the pod talk over a network that is trusted "
                "(ATOLL_POD_NETWORK): who listens there reads all data");
  else if (!*at_config_text(AT_CONFIG_POD_TOKEN_FILE))
    at_log_once(AT_LOG_WARNING,
                "the token of the pod came through JAX's coordinator, which "
                "checks nobody and encrypts nothing: who reaches it, or "
                "listens to it, can pose as a process of the pod "
                "(ATOLL_POD_TOKEN_FILE: a secret of your own)");
}

// Between machines there has to be a token of the job, and TLS or trust.
static at_status check_remote(plan *p, uint32_t process) {
  AT_TRY(check_privacy(process));
  if (p->of_user)
    return AT_FAIL(
        AT_FAILED_PRECONDITION,
        "the address of process %u is not of this machine, and there is no "
        "token by which processes of several machines know each other\nhint: "
        "call jax.distributed.initialize, or set ATOLL_POD_TOKEN_FILE to a "
        "file with the same secret for each",
        process);
  p->tls = at_network_wants_tls(false);
  tell_who_reads(p);
  return AT_OK;
}

// Local: all addresses are of this machine.
static at_status check_network(plan *p) {
  uint32_t remote = 0;
  p->local = true;
  for (uint32_t i = 0; i < p->count && p->local; i++) {
    if (!at_address_is_there(p->list.text, i)) continue;
    remote = i;
    AT_TRY(is_local(&p->list, i, &p->local));
  }
  if (!p->local) return check_remote(p, remote);
  p->tls = medium() && at_network_wants_tls(true);
  return p->tls ? at_network_need_tls("ATOLL_POD_NETWORK is tls") : AT_OK;
}

// Each step may wait for the others, all within p->until_ns.
static at_status settle(plan *p) {
  if (p->said->store) p->round = atomic_fetch_add(&rounds, 1);
  if (p->told) AT_TRY(give_address(p));
  AT_TRY(settle_token(p));
  if (p->told) AT_TRY(take_addresses(p));
  return check_network(p);
}

// Takes the listener.
static at_status open_pod(const plan *p, at_pod_hosts **out) {
  const at_pod_job job = {
      .addresses = p->list,
      .me = p->me,
      .listener = p->listener,
      .local = p->local,
      .medium = medium(),
      .share = at_config_word(AT_CONFIG_POD_WIRE) == AT_WORD_POD_WIRE_AUTO,
      .tls = p->tls,
      .token = p->token,
      .job = p->said->job,
      .epoch = p->epoch,
      .one_user = p->one_user,
      .returns = p->said->returns,
      .timeout_s = p->said->timeout_s,
      .interrupted = p->said->interrupted};
  return at_pod_hosts_open(&job, out);
}

// *out NULL with OK: this process is alone.
at_status at_pod_join(const at_pod_said *said, at_pod_hosts **out) {
  plan p = {.said = said,
            .listener = -1,
            .until_ns = at_clock_ns() + said->timeout_s * 1000000000ull};
  *out = NULL;
  AT_TRY(settle_who(&p));
  if (p.count < 2) return AT_OK;
  at_status st = settle(&p);
  if (st.err) {
    if (p.listener >= 0) close(p.listener);
  } else {
    st = open_pod(&p, out);
  }
  at_strbuf_free(&p.addresses);
  return st;
}

// A controller has said who takes part, so nothing has to be found out but the
// network.
at_status at_pod_join_roll(const at_pod_roll *r, at_pod_hosts **out) {
  const at_pod_said said = {.count = r->count,
                            .me = r->me,
                            .job = r->job,
                            .timeout_s = r->timeout_s,
                            .interrupted = r->interrupted};
  plan p = {.said = &said,
            .count = r->count,
            .me = r->me,
            .epoch = r->epoch,
            .one_user = r->one_user,
            .listener = r->listener,
            .list = {r->addresses, "the controller of the pod"},
            .token = r->token,
            .of_user = r->of_user};
  at_status st = check_network(&p);
  if (!st.err) return open_pod(&p, out);
  close(p.listener);
  return st;
}
