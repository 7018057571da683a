// A client's virtual devices: numbers behind those of the pod's chips, which
// the client makes when it is opened, and which stand for chips once a slice
// has them. The controller says for which.
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "control/client_internal.h"

// In at_client.slices from before it is asked for, so that the answer finds it.
struct far_slice {
  far_slice *next;
  uint64_t number;
  bool answered, placed;
  at_status why;           // it was refused
  uint32_t wanted, count;  // count: that it has
  uint32_t devices[];
};

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a slice");
}

// Tables for chips and spare devices; chips stand for themselves. Frees nothing
// on failure: at_spares_close does.
at_status at_spares_open(at_client *c, const uint32_t *host_of,
                         uint32_t num_spares) {
  uint32_t n = c->num_chips + num_spares;
  c->num_spares = num_spares;
  c->host_of = calloc(n + 1, sizeof *c->host_of);
  c->place = calloc(n + 1, sizeof *c->place);
  c->lost_before = calloc(n + 1, sizeof *c->lost_before);
  if (!c->host_of || !c->place || !c->lost_before) return no_memory();
  for (uint32_t i = 0; i < n; i++) {
    if (i < c->num_chips && host_of[i] >= c->num_hosts)
      return AT_FAIL(AT_INVALID_ARGUMENT, "the controller has odd chips");
    atomic_init(&c->host_of[i], i < c->num_chips ? host_of[i] : 0);
    atomic_init(&c->place[i], i < c->num_chips ? i : UINT32_MAX);
  }
  return AT_OK;
}

void at_spares_close(at_client *c) {
  for (far_slice *s; (s = c->slices);) {
    c->slices = s->next;
    at_status_free(s->why);
    free(s);
  }
  free(c->host_of);
  free(c->place);
  free(c->lost_before);
}

// One atomic load: it is asked for every shard of a launch.
at_status at_far_chip(const at_client *c, uint32_t device, uint32_t *out) {
  *out = atomic_load_explicit(&c->place[device], memory_order_relaxed);
  if (AT_LIKELY(*out != UINT32_MAX)) return AT_OK;
  return AT_FAIL(AT_FAILED_PRECONDITION,
                 "device %u stands for no chip of the pod: its slice is closed",
                 device);
}

at_status at_far_shard(const at_client *c, const at_proxy_shard *s,
                       at_msg_shard *out) {
  *out = (at_msg_shard){.array = s->array, .shard = s->shard};
  return at_far_chip(c, s->chip, &out->chip);
}

// ---- Under the lock
// NULL: it was closed.
static far_slice *find(const at_client *c, uint64_t number) {
  far_slice *s = c->slices;
  while (s && s->number != number) s = s->next;
  return s;
}

// Nothing, if it is in the list no more.
static void unlink_slice(at_client *c, const far_slice *s) {
  far_slice **at = &c->slices;
  while (*at && *at != s) at = &(*at)->next;
  if (*at) *at = s->next;
}

// No slice has the device.
static bool is_free(const at_client *c, uint32_t device) {
  for (const far_slice *s = c->slices; s; s = s->next)
    for (uint32_t d = 0; d < s->count; d++)
      if (s->devices[d] == device) return false;
  return true;
}

// For a slice on that chip, of its kind.
static at_status take_devices(const at_client *c, far_slice *s, uint32_t chip) {
  const at_hw *hw = at_topology_place(&c->topology, chip).hw;
  uint32_t n = 0, left = 0;
  for (uint32_t i = 0; i < c->num_spares; i++) {
    uint32_t like = at_topology_spare(&c->topology, c->num_spares, i);
    if (at_topology_place(&c->topology, like).hw != hw ||
        !is_free(c, c->num_chips + i))
      continue;
    left++;
    if (n < s->wanted) s->devices[n++] = c->num_chips + i;
  }
  if (n == s->wanted) return s->count = n, AT_OK;
  return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                 "a slice of %u devices, but of this client's spare device "
                 "numbers for %s %u are free\nhint: close slices that are no "
                 "longer needed, or set ATOLL_POD_SPARES (now %u) before JAX "
                 "makes its client",
                 s->wanted, hw->name, left, c->num_spares);
}

// Programs list their virtual devices; those of the pod's own chips do not
// move.
static bool uses(const far_program *p, uint32_t device) {
  for (uint32_t i = 0; i < p->num_spares; i++)
    if (p->spares[i] == device) return true;
  return false;
}

// The device stands for another chip, or none: what was there before is gone,
// and programs are loaded once more.
static void put(at_client *c, uint32_t device, uint32_t place) {
  atomic_store(&c->lost_before[device], atomic_load(&c->next_name));
  if (place != UINT32_MAX)
    atomic_store(&c->host_of[device],
                 atomic_load(&c->host_of[at_message_chip(place)]));
  atomic_store(&c->place[device], place);
  size_t at = 0;
  for (at_table_slot *x; (x = at_table_next(&c->programs, &at));) {
    far_program *p = x->value;
    p->stale |= uses(p, device);
  }
}

// What the controller says is checked before tables are indexed by it.
static bool all_are_chips(const at_client *c, const uint32_t *chips,
                          uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (at_message_chip(chips[i]) >= c->num_chips) return false;
  return true;
}

// ---- The controller's answers
// The first SLICED of a slice answers whoever asked; later ones say that it has
// moved. Programs that use a moved device become stale.
at_status at_spares_heard(at_client *c, at_bytes body) {
  const at_msg_sliced *m = (const void *)body.ptr;
  const uint32_t *chips = (const void *)(m + 1);
  at_status st = AT_OK;
  pthread_mutex_lock(&c->lock);
  far_slice *s = find(c, m->slice);
  if (!s) {
    // it is closed, and the controller did not know yet
  } else if (m->code) {
    at_status_free(s->why);
    s->why = at_message_error(m->code, at_message_tail(body, sizeof *m));
  } else if (m->count != s->wanted || !all_are_chips(c, chips, m->count)) {
    st = AT_FAIL(AT_INVALID_ARGUMENT, "a slice on odd chips");
  } else {
    s->placed = true;
    if (!s->answered) s->why = take_devices(c, s, at_message_chip(chips[0]));
    for (uint32_t d = 0; d < s->count; d++)
      if (atomic_load(&c->place[s->devices[d]]) != chips[d])
        put(c, s->devices[d], chips[d]);
    if (s->answered) atomic_fetch_add(&c->replaced, 1);
  }
  if (s) s->answered = true;
  pthread_cond_broadcast(&c->news);
  pthread_mutex_unlock(&c->lock);
  return st;
}

// ---- Slices
// Waits for SLICED, or for the end of the pod. Takes s->why.
static at_status ask(at_client *c, const at_msg_slice *m, far_slice *s) {
  const at_bytes part = {(const uint8_t *)m, sizeof *m};
  AT_TRY(at_client_say(c, AT_MSG_SLICE, &part, 1));
  pthread_mutex_lock(&c->lock);
  while (!s->answered && !c->why.err) pthread_cond_wait(&c->news, &c->lock);
  at_status st = c->why.err ? at_status_clone(c->why) : s->why;
  if (!c->why.err) s->why = AT_OK;
  pthread_mutex_unlock(&c->lock);
  return st;
}

// It has chips, but no devices.
static void give_back(at_client *c, const far_slice *s) {
  const at_msg_unslice m = {s->number};
  const at_bytes part = {(const uint8_t *)&m, sizeof m};
  if (s->placed) at_status_free(at_client_say(c, AT_MSG_UNSLICE, &part, 1));
}

// Where the chips are there but no device numbers are left, the chips are given
// back.
at_status at_client_add_slice(at_client *c, at_msg_slice *wish,
                              uint32_t *out_devices) {
  uint32_t n = wish->count;
  if (!n || n > AT_MESSAGE_SLICE)
    return AT_FAIL(AT_INVALID_ARGUMENT, "a slice has 1 to %d devices, not %u",
                   AT_MESSAGE_SLICE, n);
  far_slice *s = calloc(1, sizeof *s + n * sizeof *s->devices);
  if (!s) return no_memory();
  s->wanted = n;
  s->number = wish->slice = atomic_fetch_add(&c->next_tag, 1);
  pthread_mutex_lock(&c->lock);
  s->next = c->slices;
  c->slices = s;
  pthread_mutex_unlock(&c->lock);
  at_status st = ask(c, wish, s);
  memcpy(out_devices, s->devices, n * sizeof *out_devices);
  if (!st.err) return st;
  give_back(c, s);
  pthread_mutex_lock(&c->lock);
  unlink_slice(c, s);
  pthread_mutex_unlock(&c->lock);
  at_status_free(s->why);
  free(s);
  return st;
}

// Devices stand for nothing from here on, before the controller hears of it.
void at_client_close_slice(at_client *c, uint64_t slice) {
  const at_msg_unslice m = {slice};
  const at_bytes part = {(const uint8_t *)&m, sizeof m};
  pthread_mutex_lock(&c->lock);
  far_slice *s = find(c, slice);
  for (uint32_t d = 0; s && d < s->count; d++)
    put(c, s->devices[d], UINT32_MAX);
  if (s) unlink_slice(c, s);
  pthread_mutex_unlock(&c->lock);
  if (!s) return;
  free(s);
  at_status_free(at_client_say(c, AT_MSG_UNSLICE, &part, 1));  // as with drops
}

// Two loads: a move in between gives the new host of the old chip, which the
// caller's next question corrects.
bool at_client_find_chip(const at_client *c, uint32_t device,
                         uint32_t *out_chip, uint32_t *out_host) {
  if (device >= c->num_chips + c->num_spares) return false;
  uint32_t place = atomic_load(&c->place[device]);
  if (place == UINT32_MAX) return false;
  *out_chip = at_message_chip(place);
  *out_host = atomic_load(&c->host_of[*out_chip]);
  return true;
}
