#include "control/message.h"

#include <string.h>

#include "abi/dtype.h"
#include "base/sha256.h"
#include "control/cut.h"

// HMAC-SHA256 of the client's number under the controller's secret: hosts check
// it without asking the controller, and a client cannot make another one's.
void at_control_key(const uint8_t secret[AT_CONTROL_SECRET], uint64_t client,
                    uint8_t out[AT_CONTROL_KEY]) {
  at_hmac h;
  at_hmac_start(&h, (at_bytes){secret, AT_CONTROL_SECRET});
  at_hmac_add(&h, (at_bytes){(const uint8_t *)&client, sizeof client});
  at_hmac_end(&h, out);
}

// Cut at AT_MESSAGE_TEXT bytes, whatever character that may split.
at_bytes at_message_text(at_status why) {
  const char *text = at_status_message(why);
  return (at_bytes){(const uint8_t *)text,
                    AT_MIN(strlen(text), (size_t)AT_MESSAGE_TEXT)};
}

// The text is not trusted to be short, nor its code to be one that exists.
at_status at_message_error(uint64_t code, at_bytes text) {
  return AT_FAIL(
      code && code <= AT_UNAUTHENTICATED ? (at_code)code : AT_UNKNOWN, "%.*s",
      (int)AT_MIN(text.len, (size_t)AT_MESSAGE_TEXT), (const char *)text.ptr);
}

// The kind and the length are all that can be said of it.
static at_status malformed(uint32_t kind, at_bytes body) {
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "a malformed message of kind %u and %zu bytes", kind,
                 body.len);
}

// Is `body` its struct and `count` pieces of `each` behind it?
static bool is_list(at_bytes body, size_t head, uint64_t count, size_t each) {
  return body.len == at_add(head, at_mul((size_t)count, each));
}

// Dimensions come off the wire and index memory: none is negative.
static bool good_dims(const int64_t *dims, uint32_t rank) {
  for (uint32_t i = 0; i < rank; i++)
    if (dims[i] < 0) return false;
  return true;
}

// A memory kind, a dtype and a rank that exist.
static bool good_type(uint32_t kind, uint32_t dtype, uint32_t rank) {
  return kind < 3 && dtype < AT_DTYPE_COUNT && rank <= AT_MESSAGE_RANK;
}

// has_data: the bytes that follow are exactly those of the dense array.
static bool good_create(at_bytes body) {
  const at_msg_create *m = (const void *)body.ptr;
  if (body.len < sizeof *m || !m->array || m->has_data > 1 ||
      !good_type(m->kind, m->dtype, m->rank))
    return false;
  size_t head = sizeof *m + m->rank * sizeof(int64_t);
  if (body.len < head || !good_dims((const int64_t *)(m + 1), m->rank))
    return false;
  size_t bytes = at_dtype_bytes((at_dtype)m->dtype);
  for (uint32_t i = 0; i < m->rank; i++)
    bytes = at_mul(bytes, (size_t)((const int64_t *)(m + 1))[i]);
  return m->has_data ? body.len - head == bytes : body.len == head;
}

// 1 to AT_MESSAGE_CHIPS shards, none more or less than follow.
static bool good_group(at_bytes body) {
  const at_msg_group *m = (const void *)body.ptr;
  return body.len >= sizeof *m && m->array && m->count &&
         m->count <= AT_MESSAGE_CHIPS &&
         is_list(body, sizeof *m, m->count, sizeof(at_msg_shard));
}

// Whether the shard has that shape is found out where it lies.
static bool good_copy(at_bytes body) {
  const at_msg_copy *m = (const void *)body.ptr;
  return body.len >= sizeof *m && m->array && m->from.array &&
         good_type(m->kind, m->dtype, m->rank) &&
         is_list(body, sizeof *m, m->rank, sizeof(int64_t)) &&
         good_dims((const int64_t *)(m + 1), m->rank);
}

// Places only; the body's size has been checked against the counts.
at_resharding at_message_resharding(const at_msg_reshard *m) {
  at_resharding r = {.from = (const void *)(m + 1)};
  const int64_t *dims = (const void *)(r.from + m->num_from);
  r.from_dims = (at_dims){dims, m->rank};
  r.to_dims = (at_dims){dims + m->rank, m->rank};
  r.chips = (const void *)(dims + 2 * (size_t)m->rank);
  r.boxes = (const uint8_t *)r.chips + at_message_chips_bytes(m->num_to);
  return r;
}

// Does the array of that shape have a size that a size_t can hold?
static bool has_size(at_dtype t, at_dims d) {
  size_t bytes = at_dtype_bytes(t);
  for (uint32_t i = 0; i < d.rank; i++) {
    if (d.ptr[i] < 0) return false;
    bytes = at_mul(bytes, (size_t)d.ptr[i]);
  }
  return bytes < SIZE_MAX;
}

// A box lies within a shard on either side. `like` names an earlier box, or
// itself, that brings the same box of the same shard and is its own `like`:
// chains would make hosts wait for a box that is not sent.
static bool good_box(const at_msg_reshard *m, const at_resharding *r,
                     uint32_t i) {
  const at_msg_box *b = at_message_box(m, r, i);
  const int64_t *x = (const void *)(b + 1);
  if (b->from >= m->num_from || b->to >= m->num_to || b->like > i) return false;
  for (uint32_t k = 0; k < m->rank; k++) {
    int64_t from = x[k], to = x[m->rank + k], n = x[2 * m->rank + k];
    if (from < 0 || to < 0 || n < 0 || from > r->from_dims.ptr[k] ||
        n > r->from_dims.ptr[k] - from || to > r->to_dims.ptr[k] ||
        n > r->to_dims.ptr[k] - to)
      return false;
  }
  const at_msg_box *like = at_message_box(m, r, b->like);
  const int64_t *y = (const void *)(like + 1);
  size_t bytes = m->rank * sizeof *x;
  return like->like == b->like && like->from == b->from &&
         !memcmp(x, y, bytes) &&
         !memcmp(x + 2 * (size_t)m->rank, y + 2 * (size_t)m->rank, bytes);
}

// The counts bound the size before anything behind the head is read.
static bool good_reshard(at_bytes body) {
  const at_msg_reshard *m = (const void *)body.ptr;
  if (body.len < sizeof *m || !m->array || !m->num_from || !m->num_to ||
      m->num_from > AT_MESSAGE_CHIPS || m->num_to > AT_MESSAGE_CHIPS ||
      !good_type(m->kind, m->dtype, m->rank))
    return false;
  size_t head = sizeof *m + m->num_from * sizeof(at_msg_shard) +
                2 * m->rank * sizeof(int64_t) +
                at_message_chips_bytes(m->num_to);
  size_t each = sizeof(at_msg_box) + 3 * m->rank * sizeof(int64_t);
  if (!is_list(body, head, m->num_boxes, each)) return false;
  at_resharding r = at_message_resharding(m);
  if (!has_size((at_dtype)m->dtype, r.from_dims) ||
      !has_size((at_dtype)m->dtype, r.to_dims))
    return false;
  for (uint32_t i = 0; i < m->num_from; i++)
    if (!r.from[i].array) return false;
  for (uint32_t i = 0; i < m->num_boxes; i++)
    if (!good_box(m, &r, i)) return false;
  return true;
}

// Any number of names, also of arrays that are not there.
static bool good_drop(at_bytes body) {
  const at_msg_drop *m = (const void *)body.ptr;
  return body.len >= sizeof *m &&
         is_list(body, sizeof *m, m->count, sizeof(uint64_t));
}

// The executable itself is checked by who loads it.
static bool good_load(at_bytes body) {
  const at_msg_load *m = (const void *)body.ptr;
  return body.len >= sizeof *m && m->program && m->num_chips &&
         m->num_chips <= AT_MESSAGE_CHIPS &&
         body.len > sizeof *m + at_message_chips_bytes(m->num_chips);
}

// Names of arrays are not 0.
static bool good_shard(at_bytes body, size_t bytes) {
  return body.len == bytes &&
         ((const at_msg_shard *)(const void *)body.ptr)->array;
}

// The range lies within the array; written so that nothing overflows.
static bool good_write(at_bytes body) {
  const at_msg_write *m = (const void *)body.ptr;
  return good_shard(body, sizeof *m) && m->offset <= m->total &&
         m->bytes <= m->total - m->offset;
}

// Names of results must not wrap around, and callbacks need a number by which
// the host can speak of the launch.
static bool good_launch(at_bytes body) {
  const at_msg_launch *m = (const void *)body.ptr;
  return body.len >= sizeof *m && m->program &&
         m->refused <= AT_MESSAGE_CHIPS && (m->outputs || !m->num_outputs) &&
         m->num_outputs <= AT_MESSAGE_OUTPUTS &&
         m->outputs <= UINT64_MAX - m->num_outputs &&
         (m->number || !m->num_channels) &&
         body.len ==
             at_add(sizeof *m,
                    at_add(at_mul(m->num_args, sizeof(at_msg_arg)),
                           at_mul(m->num_channels, sizeof(at_msg_channel))));
}

// Kinds that a graph may contain.
static bool is_step(uint32_t kind) {
  return kind == AT_MSG_LAUNCH || kind == AT_MSG_COPY || kind == AT_MSG_GROUP ||
         kind == AT_MSG_RESHARD || kind == AT_MSG_DROP;
}

// How many inputs and made arrays a graph says that it has.
typedef struct limits {
  uint32_t inputs, made;
} limits;

// An at_message_name_fn: a step makes only MADE names, reads INPUT, MADE or
// constant ones, all within the graph's numbers.
static bool in_limits(void *arg, uint64_t *name, bool makes, uint32_t count) {
  const limits *l = arg;
  uint64_t k = *name & ~(AT_MSG_INPUT | AT_MSG_MADE);
  if (*name & AT_MSG_INPUT)
    return !makes && !(*name & AT_MSG_MADE) && k < l->inputs;
  if (*name & AT_MSG_MADE) return k < l->made && count <= l->made - k;
  return !makes && *name;
}

static bool is_good(uint32_t kind, at_bytes b);
// Every step is checked like a message of its own, so a host can run a graph
// without looking at it again. kept: ascending, so that it can be searched.
static bool good_graph(at_bytes body) {
  const at_msg_graph *m = (const void *)body.ptr;
  if (body.len < sizeof *m || !m->graph || m->num_kept > m->num_made ||
      body.len - sizeof *m < m->num_kept * sizeof(uint64_t))
    return false;
  const uint64_t *kept = (const void *)(m + 1);
  for (uint32_t i = 0; i < m->num_kept; i++)
    if (kept[i] >= m->num_made || (i && kept[i] <= kept[i - 1])) return false;
  limits l = {m->num_inputs, m->num_made};
  size_t at = sizeof *m + m->num_kept * sizeof *kept;
  for (uint32_t i = 0; i < m->num_steps; i++) {
    const at_msg_step *s = (const void *)(body.ptr + at);
    if (body.len - at < sizeof *s || s->bytes > body.len - at - sizeof *s ||
        body.len - at < at_message_step_bytes(s->bytes) || !is_step(s->kind) ||
        !is_good(s->kind, (at_bytes){(const uint8_t *)(s + 1), s->bytes}) ||
        !at_message_names(s->kind, (void *)(s + 1), in_limits, &l))
      return false;
    at += at_message_step_bytes(s->bytes);
  }
  return at == body.len;
}

// The order of the calls is that of the body, what is made last; passes rely on
// it.
bool at_message_names(uint32_t kind, void *body, at_message_name_fn each,
                      void *arg) {
  if (kind == AT_MSG_LAUNCH) {
    at_msg_launch *m = body;
    at_msg_arg *args = (at_msg_arg *)(m + 1);
    for (uint32_t i = 0; i < m->num_args; i++)
      if (!each(arg, &args[i].array, false, 1)) return false;
    return !m->num_outputs || each(arg, &m->outputs, true, m->num_outputs);
  }
  if (kind == AT_MSG_COPY) {
    at_msg_copy *m = body;
    return each(arg, &m->from.array, false, 1) && each(arg, &m->array, true, 1);
  }
  if (kind == AT_MSG_GROUP) {
    at_msg_group *m = body;
    at_msg_shard *s = (at_msg_shard *)(m + 1);
    for (uint64_t i = 0; i < m->count; i++)
      if (!each(arg, &s[i].array, false, 1)) return false;
    return each(arg, &m->array, true, 1);
  }
  if (kind == AT_MSG_RESHARD) {
    at_msg_reshard *m = body;
    at_msg_shard *s = (at_msg_shard *)(m + 1);
    for (uint32_t i = 0; i < m->num_from; i++)
      if (!each(arg, &s[i].array, false, 1)) return false;
    return each(arg, &m->array, true, 1);
  }
  if (kind == AT_MSG_DROP) {
    at_msg_drop *m = body;
    for (uint64_t i = 0; i < m->count; i++)
      if (!each(arg, (uint64_t *)(m + 1) + i, false, 1)) return false;
  }
  return true;
}

// ---- Named objects
// Names are shown to people and written into logs.
bool at_message_name_is_good(at_bytes name) {
  bool good = name.len && name.len <= AT_MESSAGE_NAME;
  for (size_t i = 0; good && i < name.len; i++)
    good = name.ptr[i] >= 0x20 && name.ptr[i] != 0x7f;
  return good;
}

// The name becomes a path below a folder: it must not leave that.
bool at_message_file_is_good(at_bytes name) {
  if (!at_message_name_is_good(name)) return false;
  for (size_t begin = 0, end; begin <= name.len; begin = end + 1) {
    const uint8_t *part = name.ptr + begin;
    end = begin;
    while (end < name.len && name.ptr[end] != '/') end++;
    size_t n = end - begin;
    if (!n || (n == 1 && part[0] == '.') ||
        (n == 2 && part[0] == '.' && part[1] == '.'))
      return false;
  }
  return true;
}

// The SAVE inside is checked again, as the host acts on it alone.
static bool good_commit(at_bytes body) {
  const at_msg_commit *m = (const void *)body.ptr;
  return body.len >= sizeof *m && m->abandon <= 1 && m->save_bytes % 8 == 0 &&
         body.len == at_add(sizeof *m, at_add(m->save_bytes, m->saved_bytes)) &&
         at_cuts_are_good(AT_MSG_SAVE,
                          (at_bytes){body.ptr + sizeof *m, m->save_bytes});
}

// Counts bound the sizes before the texts are looked at.
static bool good_keep(at_bytes body) {
  const at_msg_keep *m = (const void *)body.ptr;
  if (body.len < sizeof *m || !m->num_arrays ||
      m->num_arrays > AT_MESSAGE_OBJECT || m->flags > AT_MSG_KEEP_MOVES ||
      m->label_bytes > AT_MESSAGE_NAME || m->about_bytes > AT_MESSAGE_ABOUT)
    return false;
  size_t head = sizeof *m + m->num_arrays * sizeof(uint64_t);
  if (body.len !=
      head + (size_t)m->name_bytes + m->label_bytes + m->about_bytes)
    return false;
  at_bytes name = {body.ptr + head, m->name_bytes};
  at_bytes label = {name.ptr + name.len, m->label_bytes};
  return at_message_name_is_good(name) &&
         (!label.len || at_message_name_is_good(label));
}

// From a client it bears a name, from the controller a number. first: names of
// arrays stay below those that graphs use.
static bool good_named(uint32_t kind, at_bytes body) {
  const at_msg_named *m = (const void *)body.ptr;
  if (body.len < sizeof *m || m->flags > AT_MSG_FETCH_TAKES ||
      m->name_bytes != body.len - sizeof *m ||
      m->first > AT_MSG_MADE - AT_MESSAGE_OBJECT)
    return false;
  if (kind == AT_MSG_FETCH && !m->first) return false;
  // To hosts it goes by its number.
  return kind == AT_MSG_OBJECTS || m->object
             ? !m->name_bytes
             : at_message_name_is_good(at_message_tail(body, sizeof *m));
}

// A head of that size, and an error's text or an address behind it.
static bool good_text(at_bytes body, size_t head) {
  return body.len >= head && body.len - head <= AT_MESSAGE_TEXT;
}

// A kind ends, and a shape is one.
static bool good_slice(at_bytes body) {
  const at_msg_slice *m = (const void *)body.ptr;
  if (body.len != sizeof *m || !m->slice || !m->count ||
      m->count > AT_MESSAGE_SLICE || m->policy >= AT_SLICE_POLICIES ||
      m->kind[AT_MESSAGE_KIND - 1])
    return false;
  uint64_t n = 1;
  for (int d = 0; d < 3; d++) {
    if (m->shape[d] > AT_MESSAGE_SLICE) return false;
    n *= m->shape[d];
  }
  return n ? n == m->count : !m->shape[0] && !m->shape[1] && !m->shape[2];
}

// A refusal with its text, or the chips of all devices.
static bool good_sliced(at_bytes body) {
  const at_msg_sliced *m = (const void *)body.ptr;
  if (body.len < sizeof *m || !m->slice) return false;
  if (m->code) return !m->count && good_text(body, sizeof *m);
  return m->count && m->count <= AT_MESSAGE_SLICE &&
         body.len == sizeof *m + at_message_chips_bytes(m->count);
}

// From the controller, which clients do not trust with sizes either.
static bool good_welcome(at_bytes body) {
  const at_msg_welcome *m = (const void *)body.ptr;
  return body.len >= sizeof *m && m->num_hosts &&
         m->num_hosts <= AT_MESSAGE_CHIPS && m->num_chips <= AT_MESSAGE_CHIPS &&
         m->num_listed <= m->num_chips &&
         body.len == at_add(sizeof *m + at_message_chips_bytes(m->num_chips),
                            at_add(m->target_bytes, m->addresses_bytes));
}

// Two addresses behind the head.
static bool good_host(at_bytes body) {
  const at_msg_host *m = (const void *)body.ptr;
  return body.len >= sizeof *m &&
         body.len == at_add(sizeof *m, at_add(m->session_bytes, m->pod_bytes));
}

// `me` is one of the hosts, and there are places for all.
static bool good_form(at_bytes body) {
  const at_msg_form *m = (const void *)body.ptr;
  return body.len >= sizeof *m && m->count && m->me < m->count &&
         m->count <= m->places &&
         body.len ==
             at_add(sizeof *m, at_add(m->target_bytes, m->addresses_bytes));
}

// Names end within their fields, as they are printed.
static bool good_looks(at_bytes body) {
  const at_msg_looks *m = (const void *)body.ptr;
  if (body.len < sizeof *m || m->num_chips > AT_LOOK_CHIPS ||
      m->num_tenants > AT_LOOK_TENANTS || m->num_programs > AT_LOOK_PROGRAMS ||
      m->num_runs > AT_LOOK_RUNS ||
      body.len != sizeof *m + m->num_chips * sizeof(at_look_chip) +
                      m->num_tenants * sizeof(at_look_tenant) +
                      m->num_programs * sizeof(at_look_program) +
                      m->num_runs * sizeof(at_look_run))
    return false;
  const at_look_program *p = at_look_programs(m);
  for (uint32_t i = 0; i < m->num_programs; i++)
    if (!memchr(p[i].name, 0, sizeof p[i].name)) return false;
  const at_look_run *r = at_look_runs(m);
  for (uint32_t i = 0; i < m->num_runs; i++)
    if (!memchr(r[i].name, 0, sizeof r[i].name)) return false;
  return true;
}

// A list of spans that make sense: known kinds, no negative length, names that
// end.
static bool good_spans(at_bytes body, size_t head, uint32_t count) {
  if (count > AT_RECORD_SPANS ||
      !is_list(body, head, count, sizeof(at_profile_span)))
    return false;
  const at_profile_span *s = (const void *)(body.ptr + head);
  for (uint32_t i = 0; i < count; i++)
    if (!s[i].kind || s[i].kind >= AT_SPAN_KINDS ||
        s[i].end_ns < s[i].start_ns || !memchr(s[i].name, 0, AT_SPAN_NAME))
      return false;
  return true;
}

static bool good_recorded(at_bytes body) {
  const at_msg_recorded *m = (const void *)body.ptr;
  return body.len >= sizeof *m && good_spans(body, sizeof *m, m->count);
}

// A name ends inside its field, so that it can be printed.
static bool good_spans_of(at_bytes body) {
  const at_msg_spans *m = (const void *)body.ptr;
  return body.len >= sizeof *m && memchr(m->name, 0, sizeof m->name) &&
         good_spans(body, sizeof *m, m->count);
}

// A kind that is not in the list is malformed. Add every new kind here: the
// compiler complains of one that is missing.
static bool is_good(uint32_t kind, at_bytes b) {
  switch ((at_message_kind)kind) {
    case AT_MSG_CREATE:
      return good_create(b);
    case AT_MSG_GROUP:
      return good_group(b);
    case AT_MSG_COPY:
      return good_copy(b);
    case AT_MSG_RESHARD:
      return good_reshard(b);
    case AT_MSG_DROP:
      return good_drop(b);
    case AT_MSG_LOAD:
      return good_load(b);
    case AT_MSG_UNLOAD:
      return b.len == sizeof(at_msg_unload);
    case AT_MSG_LAUNCH:
      return good_launch(b);
    case AT_MSG_GRAPH:
      return good_graph(b);
    case AT_MSG_RUN:
      return b.len >= sizeof(at_msg_run) &&
             ((const at_msg_run *)(const void *)b.ptr)->refused <=
                 AT_MESSAGE_CHIPS &&
             ((const at_msg_run *)(const void *)b.ptr)->first &&
             ((const at_msg_run *)(const void *)b.ptr)->first < AT_MSG_MADE &&
             is_list(b, sizeof(at_msg_run),
                     ((const at_msg_run *)(const void *)b.ptr)->num_inputs,
                     sizeof(uint64_t));
    case AT_MSG_FORGET:
      return b.len == sizeof(at_msg_forget);
    case AT_MSG_KEEP:
      return good_keep(b);
    case AT_MSG_FETCH:
    case AT_MSG_DISCARD:
    case AT_MSG_OBJECTS:
      return good_named((uint32_t)kind, b);
    case AT_MSG_SAVE:
    case AT_MSG_RESTORE:
    case AT_MSG_PEEK:
      return at_cuts_are_good(kind, b);
    case AT_MSG_COMMIT:
      return good_commit(b);
    case AT_MSG_ANSWER:
    case AT_MSG_ACTED:
      return b.len >= sizeof(at_msg_answer);
    case AT_MSG_ERASE:
      return at_message_name_is_good(b);
    case AT_MSG_SLICE:
      return good_slice(b);
    case AT_MSG_UNSLICE:
      return b.len == sizeof(at_msg_unslice);
    case AT_MSG_HEARD:
      return b.len == sizeof(at_msg_heard);
    case AT_MSG_SLICED:
      return good_sliced(b);
    case AT_MSG_IAM:
      return b.len == sizeof(at_msg_iam);
    case AT_MSG_WRITE:
      return good_write(b);
    case AT_MSG_READ:
      return good_shard(b, sizeof(at_msg_read));
    case AT_MSG_MISSES:
      return b.len == sizeof(at_msg_misses);
    case AT_MSG_DID:
      return b.len == sizeof(at_msg_did);
    case AT_MSG_WATCH:
      return good_shard(b, sizeof(at_msg_watch));
    case AT_MSG_STATS:
      return b.len == sizeof(at_msg_stats);
    case AT_MSG_CLOCK:
      return b.len == sizeof(at_msg_clock);
    case AT_MSG_SIMULATED:
      return b.len == sizeof(at_msg_simulated);
    case AT_MSG_STATS_ARE:
      return b.len == sizeof(at_msg_stats_are);
    case AT_MSG_REFUSE:
      return good_text(b, sizeof(at_msg_refuse)) && good_shard(b, b.len);
    case AT_MSG_FAILED:
      return good_text(b, sizeof(at_msg_failed));
    case AT_MSG_TOOK:
      return good_text(b, sizeof(at_msg_took));
    case AT_MSG_FORMED:
      return good_text(b, sizeof(at_msg_formed));
    case AT_MSG_HOST_BACK:
      return good_text(b, sizeof(at_msg_host_back));
    case AT_MSG_HOST_LOST:
      return good_text(b, sizeof(at_msg_host_lost));
    case AT_MSG_GIVE:
      return b.len >= sizeof(at_msg_took);
    case AT_MSG_SENT:
      return b.len >= sizeof(at_msg_transfer) &&
             b.len - sizeof(at_msg_transfer) ==
                 ((const at_msg_transfer *)(const void *)b.ptr)->bytes;
    case AT_MSG_ASKS:  // the client makes room for so many bytes, and one
      return b.len == sizeof(at_msg_transfer) &&
             ((const at_msg_transfer *)(const void *)b.ptr)->bytes <= INT64_MAX;
    case AT_MSG_WELCOME:
      return good_welcome(b);
    case AT_MSG_HOST:
      return good_host(b);
    case AT_MSG_FORM:
      return good_form(b);
    // Flags are 0 or 1, so that nobody has to ask what another value means.
    case AT_MSG_HOST_DRAINS:
      return b.len == sizeof(at_msg_host_drains) &&
             ((const at_msg_host_drains *)(const void *)b.ptr)->drains < 2;
    case AT_MSG_DRAIN:
      return b.len == sizeof(at_msg_drain) &&
             ((const at_msg_drain *)(const void *)b.ptr)->how <= AT_DRAIN_FORCE;
    case AT_MSG_STATUS:
      return !b.len || b.len == sizeof(at_msg_status);
    case AT_MSG_LOOK:
      return b.len == sizeof(at_msg_look);
    case AT_MSG_LOOKS:
      return good_looks(b);
    case AT_MSG_RECORD:
      return b.len == sizeof(at_msg_record);
    case AT_MSG_RECORDED:
      return good_recorded(b);
    case AT_MSG_TRACE:
      return b.len == sizeof(at_msg_trace);
    case AT_MSG_SPANS:
      return good_spans_of(b);
    case AT_MSG_DONE:
      return b.len % sizeof(uint64_t) == 0 &&
             b.len < AT_MESSAGE_ENDS * sizeof(uint64_t);
    case AT_MSG_TRACED:
    case AT_MSG_REST:
    case AT_MSG_RESTED:
    case AT_MSG_LEFT:
    case AT_MSG_STOP:
    case AT_MSG_BREAK:
    case AT_MSG_ORDERED:
      return !b.len;
    case AT_MSG_DATA:
    case AT_MSG_BYTES:
    case AT_MSG_STATUS_IS:
      return true;
  }
  return false;
}

at_status at_message_check(uint32_t kind, at_bytes body) {
  return is_good(kind, body) ? AT_OK : malformed(kind, body);
}

// An at_message_name_fn: an input or a made array gets the run's name.
static bool set_name(void *arg, uint64_t *name, bool makes, uint32_t count) {
  const at_msg_run *m = arg;
  const uint64_t *inputs = (const void *)(m + 1);
  uint64_t k = *name & ~(AT_MSG_INPUT | AT_MSG_MADE);
  if (*name & AT_MSG_INPUT) *name = inputs[k];
  if (*name & AT_MSG_MADE) *name = m->first + k;
  return true;
}

void at_message_name_run(uint32_t kind, void *body, const at_msg_run *m) {
  at_message_names(kind, body, set_name, (void *)(uintptr_t)m);
}
