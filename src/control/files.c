// Checkpoints at the controller: all hosts save their parts, then one of them
// writes the manifest, or takes away what there is.
#include <stdlib.h>
#include <string.h>

#include "control/controller_internal.h"
#include "control/cut.h"

// A save, until its manifest is written.
typedef struct saving {
  size_t bytes;
  uint8_t body[];
} saving;

static at_status no_memory(void) {
  return AT_FAIL(
      AT_RESOURCE_EXHAUSTED,
      "the pod's controller has no memory, or too much to do at once");
}

// ---- Saving
// The host that was told to commit has answered, or nobody could be told: the
// client hears the first error. Frees the save.
static void committed(operation *x) {
  at_client_refuse(x->asker, x->tag, x->why);
  x->why = AT_OK;
  free(x->what);
  at_operation_free(x);
}

// UINT32_MAX: none of them is there any more.
static uint32_t first_there(const at_controller *c, const host_set *hosts) {
  for (uint32_t i = 0; i < hosts->count; i++)
    if (!at_peer_is_away(c->hosts[hosts->hosts[i]])) return hosts->hosts[i];
  return UINT32_MAX;
}

// All hosts have saved their parts, or one has failed or is lost. One of them
// writes the manifest, or removes the files; the operation goes on with that
// host alone.
static void saved(operation *x) {
  at_controller *c = x->controller;
  const saving *s = x->what;
  uint32_t host = first_there(c, x->hosts);
  if (host == UINT32_MAX || c->closes) {
    if (!x->why.err)
      x->why = AT_FAIL(AT_UNAVAILABLE,
                       "no host of the pod is there to write the manifest");
    return committed(x);
  }
  // What the hosts have said goes along, unless one has failed: then the files
  // are removed.
  const at_msg_commit m = {.operation = x->number,
                           .save_bytes = s->bytes,
                           .saved_bytes = x->why.err ? 0 : x->results.len,
                           .abandon = x->why.err != NULL};
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            {s->body, s->bytes},
                            {(const uint8_t *)x->results.ptr, m.saved_bytes}};
  host_set *one = at_hosts_intern(c, &host, 1);
  if (!one) {
    x->why = at_status_join(x->why, no_memory());
    return committed(x);
  }
  at_hosts_tell(c, one, 0, AT_MSG_COMMIT, parts, 3);
  at_strbuf_free(&x->results);
  x->over = committed;
  at_operation_again(x, &host, 1);
}

// Somebody saves to that path, or to one around or below it.
static bool is_busy(const at_controller *c, at_str path) {
  for (const operation *x = c->operations; x; x = x->next) {
    if (x->over != saved && x->over != committed) continue;
    const saving *s = x->what;
    at_str other = at_cuts_of((at_bytes){s->body, s->bytes}).path;
    size_t n = AT_MIN(path.len, other.len);
    if (memcmp(path.ptr, other.ptr, n)) continue;
    at_str longer = path.len > n ? path : other;
    if (longer.len == n || longer.ptr[n] == '/') return true;
  }
  return false;
}

// DATA_LOSS: a host of these has been lost in the current epoch.
static at_status check_there(at_controller *c, host_set *hosts) {
  uint32_t refused = 0;
  if (!at_hosts_still_there(c, hosts, c->epoch, &refused)) return no_memory();
  return refused
             ? AT_FAIL(AT_DATA_LOSS, "host %u of the pod is lost", refused - 1)
             : AT_OK;
}

// The names of a SAVE's arrays; the caller frees *out.
static at_status arrays_of(at_cuts all, uint64_t **out) {
  *out = malloc((all.m->num_arrays + 1) * sizeof **out);
  if (!*out) return no_memory();
  at_cut cut;
  for (uint32_t i = 0; at_cuts_next(&all, &cut); i++) (*out)[i] = cut.m->array;
  return AT_OK;
}

// The number of the operation goes into the message.
static void tell_files(operation *x, const peer *p, uint32_t kind,
                       at_bytes body) {
  at_msg_files m = *(const at_msg_files *)(const void *)body.ptr;
  m.operation = x->number;
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            at_message_tail(body, sizeof m)};
  at_hosts_tell(x->controller, x->hosts, p->client, kind, parts, 2);
}

// What the client cannot say is returned and ends it; what cannot be done is
// answered.
static at_status saves(peer *p, at_bytes body) {
  at_controller *c = p->controller;
  at_cuts all = at_cuts_of(body);
  uint64_t *arrays, tag = all.m->tag;
  host_set *hosts;
  // The hosts are those that have any of the arrays; each saves what it has.
  at_status st = arrays_of(all, &arrays);
  if (st.err) return at_client_refuse(p, tag, st), AT_OK;
  st = at_arrays_hosts(p, arrays, all.m->num_arrays, &hosts);
  free(arrays);
  if (st.err) return st;
  if (is_busy(c, all.path))
    st = AT_FAIL(AT_FAILED_PRECONDITION, "%.*s is being saved to",
                 (int)all.path.len, all.path.ptr);
  if (!st.err) st = check_there(c, hosts);
  // The message is kept: the manifest is written from it.
  saving *s = st.err ? NULL : malloc(sizeof *s + body.len);
  operation *x = s ? at_operation_begin(p, tag, hosts, saved, s) : NULL;
  if (!st.err && !x) st = no_memory();
  if (st.err) return free(s), at_client_refuse(p, tag, st), AT_OK;
  s->bytes = body.len;
  memcpy(s->body, body.ptr, body.len);
  tell_files(x, p, AT_MSG_SAVE, body);
  return AT_OK;
}

// ---- Restoring
// Also of a PEEK: the answer brings what hosts have said.
static void restored(operation *x) {
  at_client_answer(x->asker, x->tag, x->why,
                   (at_bytes){(const uint8_t *)x->results.ptr, x->results.len},
                   (at_bytes){0});
  x->why = AT_OK;
  at_operation_free(x);
}

// Marks the hosts of all chips. INVALID_ARGUMENT: a chip that the pod does not
// have.
static at_status hosts_of_cuts(const at_controller *c, at_cuts all, bool *has) {
  at_cut cut;
  while (at_cuts_next(&all, &cut))
    for (uint32_t s = 0; s < cut.num_shards; s++) {
      uint32_t chip = at_cut_chip(&cut, s);
      if (chip >= c->num_chips)
        return AT_FAIL(AT_INVALID_ARGUMENT, "there is no chip %u", chip);
      has[c->host_of[chip]] = true;
    }
  return AT_OK;
}

// All arrays are named on all hosts that have one of them.
static at_status restores(peer *p, at_bytes body) {
  at_controller *c = p->controller;
  at_cuts all = at_cuts_of(body);
  bool has[AT_SESSION_MOST] = {0};
  uint32_t hosts[AT_SESSION_MOST], count = 0;
  AT_TRY(hosts_of_cuts(c, all, has));
  for (uint32_t h = 0; h < c->num_hosts; h++)
    // Ascending, as sets of hosts are.
    if (has[h]) hosts[count++] = h;
  host_set *set = at_hosts_intern(c, hosts, count);
  at_status st = set ? check_there(c, set) : no_memory();
  operation *x =
      st.err ? NULL : at_operation_begin(p, all.m->tag, set, restored, NULL);
  if (!st.err && !x) st = no_memory();
  if (st.err) return at_client_refuse(p, all.m->tag, st), AT_OK;
  tell_files(x, p, AT_MSG_RESTORE, body);
  for (uint32_t i = 0; i < all.m->num_arrays; i++)
    // The names are the client's from here on, whatever comes of the files.
    AT_TRY(at_client_adds(p, all.m->first + i, set));
  return AT_OK;
}

// Any host says what a checkpoint has.
static void peeks(peer *p, at_bytes body) {
  at_controller *c = p->controller;
  const at_msg_files *m = (const void *)body.ptr;
  host_set *one = NULL;
  for (uint32_t h = 0; h < c->num_hosts && !one; h++)
    if (c->hosts[h] && !at_peer_is_away(c->hosts[h]) && c->hosts[h]->formed)
      one = at_hosts_intern(c, &h, 1);
  operation *x =
      one ? at_operation_begin(p, m->tag, one, restored, NULL) : NULL;
  if (x)
    tell_files(x, p, AT_MSG_PEEK, body);
  else
    at_client_refuse(p, m->tag,
                     AT_FAIL(AT_UNAVAILABLE, "no host of the pod is there"));
}

bool at_files_is(uint32_t kind) {
  return kind == AT_MSG_SAVE || kind == AT_MSG_RESTORE || kind == AT_MSG_PEEK;
}

// What kind it is decides who answers; all three answer the client once.
at_status at_files_says(peer *p, uint32_t kind, at_bytes body) {
  if (kind == AT_MSG_SAVE) return saves(p, body);
  if (kind == AT_MSG_RESTORE) return restores(p, body);
  return peeks(p, body), AT_OK;
}
