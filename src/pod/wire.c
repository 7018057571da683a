#include "pod/wire.h"

#include "pod/wire_stream.h"

static const struct {
  const char *name;
  at_status (*open)(const at_wire_options *o, at_wire **out);
} kMedia[] = {{"shm", at_wire_shm_open},
              {"tcp", at_wire_tcp_open},
              {"ucx", at_wire_ucx_open},
              {"net", at_wire_net_open}};

// Fills in defaults.
static at_status check_options(at_wire_options *o) {
  if (!o->beat_ms) o->beat_ms = 250;
  if (!o->stuck_ms) o->stuck_ms = 1500;
  if (!o->tell_ms) o->tell_ms = 10000;
  if (!o->max_bytes) o->max_bytes = 1ull << 30;
  if (!o->window_bytes) o->window_bytes = 256ull << 20;
  if (!o->window_messages) o->window_messages = 4096;
  if (!o->spin_ns) o->spin_ns = 200000;
  if (o->spin_ns == AT_WIRE_NO_SPIN) o->spin_ns = 0;
  if (!o->count || o->count > AT_WIRE_MEMBERS || o->me >= o->count)
    return AT_FAIL(AT_INVALID_ARGUMENT, "process %u of %u; at most %d", o->me,
                   o->count, AT_WIRE_MEMBERS);
  if (!o->links && (!o->group || !*o->group))
    return AT_FAIL(AT_INVALID_ARGUMENT, "a group needs a name");
  if (o->stuck_ms <= o->beat_ms)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "processes count as stuck after %u ms, but give signs of "
                   "life every %u ms",
                   o->stuck_ms, o->beat_ms);
  const at_wire_sink *k = &o->sink;
  if (!k->place || !k->message || !k->abandon || !k->lost)
    return AT_FAIL(AT_INVALID_ARGUMENT, "a sink lacks a function");
  return AT_OK;
}

// medium: a row of kMedia. The links of the options are the wire's, also on
// failure where the medium takes them.
at_status at_wire_open(const char *medium, const at_wire_options *options,
                       at_wire **out) {
  at_wire_options o = *options;
  AT_TRY(check_options(&o));
  for (size_t i = 0; i < AT_LEN(kMedia); i++)
    if (!strcmp(medium, kMedia[i].name)) return kMedia[i].open(&o, out);
  return AT_FAIL(AT_INVALID_ARGUMENT, "no medium %s: shm, tcp, ucx or net",
                 medium);
}

// Checks what every medium would have to check.
at_status at_wire_send(at_wire *w, uint32_t to, at_wire_lane lane,
                       const at_wire_out *messages, uint32_t count,
                       const at_wire_wait *wait, uint32_t *out_sent) {
  if (to < w->count && to != w->me && (unsigned)lane < AT_WIRE_LANES)
    return w->vtable->send(w, to, lane, messages, count, wait, out_sent);
  if (out_sent) *out_sent = 0;
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "process %u of %u cannot send to process %u in lane %d", w->me,
                 w->count, to, (int)lane);
}

// OK: it is there.
at_status at_wire_member(at_wire *w, uint32_t member) {
  if (member >= w->count)
    return AT_FAIL(AT_INVALID_ARGUMENT, "process %u of %u", member, w->count);
  return member == w->me ? AT_OK : w->vtable->member(w, member);
}

// NULL: nothing.
void at_wire_close(at_wire *w) {
  if (w) w->vtable->close(w);
}
