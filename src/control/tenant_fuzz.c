// What any client may say to a host, by the stream and by its session: a host
// with four chips does it, refuses it or waits for more; once the client is
// gone nothing of it is left, in tables or in the chips' memory. A byte chooses
// what is said; names and chips are few, so that they meet.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/fuzz_input.h"
#include "control/host_internal.h"
#include "control/pod_test_util.h"

enum { kMost = 1 << 11, kChips = 4, kNames = 12 };

static uint64_t number(input *in) { return number_of(in, kNames); }
static uint32_t chip(input *in) {
  uint8_t b = take(in);
  return b < 0xfa ? b % kChips : (uint32_t)number(in);
}
static at_msg_shard shard(input *in) {
  return (at_msg_shard){number(in), take(in) % 5, chip(in)};
}

// ---- The host
static host the;
static at_bytes programs[4];

// Once for the process: a host without controller and pod.
static void begin(void) {
  setenv("ATOLL_LOG", "off", 1);
  the.end = &the.first;
  must(!at_outbox_create(&the.answers).err);
  at_outbox_stop(the.answers);  // nobody hears them
  pthread_mutex_init(&the.queue_lock, NULL);
  pthread_mutex_init(&the.lock, NULL);
  pthread_mutex_init(&the.samples_lock, NULL);
  the.count = 1;
  must(!at_runtime_create(
            &(at_runtime_options){.target = "v5e:2x2", .threads = 2},
            &the.runtime)
            .err);
  must(!at_island_create(NULL, &the.island).err);
  programs[0] = pod_copies(1, AT_F32, 6, 2, true);
  programs[1] = pod_rotates(4, 6);
  programs[2] = pod_calls(1, 6);
  programs[3] = pod_copies(4, AT_F32, 6, 1, false);
}

// Bytes of HBM in use on all chips of the host.
static uint64_t in_use(void) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < kChips; i++)
    sum += at_chip_memory_stats(at_runtime_chip(the.runtime, i)).in_use;
  return sum;
}

// ---- The stream
static _Alignas(16) uint8_t room[1 << 17];

// One message of the stream, if it is well formed.
static void stream(uint32_t kind, uint64_t client, uint32_t n) {
  uint8_t *body = malloc(n + 1);
  memcpy(body, room, n);
  const job j = {
      .kind = kind, .client = client, .head = {.bytes = n}, .body = body};
  if (!at_code_take(at_message_check(kind, (at_bytes){body, n})))
    at_stream_do(&the, &j);
  free(body);
}

// Mostly of 6 floats, now and then of a size or type that cannot be.
static uint32_t fill_create(input *in) {
  at_msg_create *m = (void *)room;
  uint8_t how = take(in);
  *m = (at_msg_create){.array = number(in),
                       .chip = chip(in),
                       .kind = how % 3,
                       .dtype = how < 0xc0 ? AT_F32 : how % AT_DTYPE_COUNT,
                       .rank = 1,
                       .has_data = how >> 4 & 1};
  int64_t *dims = (void *)(m + 1);
  dims[0] = how % 32 == 31 ? (int64_t)number(in) : how % 16 ? 6 : take(in);
  if (dims[0] < 0 || dims[0] > 4096) dims[0] &= 0xfffffffffffll;
  size_t bytes = m->has_data ? (size_t)(dims[0] & 4095) *
                                   at_dtype_bytes((at_dtype)m->dtype)
                             : 0;
  if (m->has_data) dims[0] &= 4095;
  memset(dims + 1, how, bytes);
  return (uint32_t)(sizeof *m + sizeof *dims + bytes);
}

static uint32_t fill_launch(input *in) {
  at_msg_launch *m = (void *)room;
  *m = (at_msg_launch){.program = number(in) % 5,
                       .outputs = number(in),
                       .number = take(in) % 3,
                       .num_args = take(in) % 3,
                       .num_outputs = take(in) % 3,
                       .num_channels = take(in) % 3};
  at_msg_arg *args = (void *)(m + 1);
  for (uint32_t i = 0; i < m->num_args; i++)
    args[i] = (at_msg_arg){number(in), take(in) % 3, take(in) % 4};
  at_msg_channel *x = (void *)(args + m->num_args);
  for (uint32_t i = 0; i < m->num_channels; i++)
    x[i] = (at_msg_channel){.id = 7 + i,
                            .device = take(in) % 5,
                            .sends = take(in) % 2,
                            .receives = i};
  return (uint32_t)((uint8_t *)(x + m->num_channels) - room);
}

// One of four programs, or one of them with a bit changed.
static uint32_t fill_load(input *in) {
  at_msg_load *m = (void *)room;
  uint32_t which = take(in) % 5, first = chip(in);
  uint64_t n = which == 1 || which == 3 ? 4 : 1;
  *m = (at_msg_load){.program = 1 + number(in) % 4, .num_chips = n};
  uint32_t *chips = (void *)(m + 1);
  memset(chips, 0, 4 * sizeof *chips);
  for (uint64_t i = 0; i < n; i++)
    chips[i] = n == 1 ? first : ((uint32_t)i + first) % 4;
  uint8_t *to = (uint8_t *)(m + 1) + at_message_chips_bytes(n);
  at_bytes x = which < 4 ? programs[which] : programs[0];
  memcpy(to, x.ptr, x.len);
  if (which == 4) to[take(in) * 16 % x.len] ^= 1;
  return (uint32_t)(to + x.len - room);
}

// A message of that kind in `room`; how long it is.
static uint32_t fill(input *in, uint32_t kind) {
  uint64_t *list = (void *)room;
  switch (kind) {
    case AT_MSG_CREATE:
      return fill_create(in);
    case AT_MSG_LAUNCH:
      return fill_launch(in);
    case AT_MSG_LOAD:
      return fill_load(in);
    case AT_MSG_GROUP: {
      at_msg_group *m = (void *)room;
      *m = (at_msg_group){number(in), 1 + take(in) % 4};
      for (uint64_t i = 0; i < m->count; i++)
        ((at_msg_shard *)(m + 1))[i] = shard(in);
      return (uint32_t)(sizeof *m + m->count * sizeof(at_msg_shard));
    }
    case AT_MSG_COPY: {
      at_msg_copy *m = (void *)room;
      *m = (at_msg_copy){shard(in), number(in), chip(in), take(in) % 3,
                         AT_F32,    0,          1};
      *(int64_t *)(m + 1) = 6;
      return sizeof *m + sizeof(int64_t);
    }
    case AT_MSG_DROP:
      list[0] = take(in) % 5;
      for (uint64_t i = 0; i < list[0]; i++) list[1 + i] = number(in);
      return (uint32_t)(8 + list[0] * 8);
    case AT_MSG_SAVE:
    case AT_MSG_RESTORE:
      return fill_files(in, kind == AT_MSG_SAVE, kNames, chip, room);
    case AT_MSG_KEEP: {
      at_msg_keep *m = (void *)room;
      *m = (at_msg_keep){.object = 1 + take(in) % 3u,
                         .num_arrays = 1 + take(in) % 3u,
                         .flags = take(in) % 2,
                         .name_bytes = 1};
      list = (uint64_t *)(m + 1);
      for (uint32_t i = 0; i < m->num_arrays; i++) list[i] = number(in);
      *(uint8_t *)(list + m->num_arrays) = '.';
      return (uint32_t)(sizeof *m + m->num_arrays * sizeof *list + 1);
    }
    case AT_MSG_FETCH:
    case AT_MSG_DISCARD:
      *(at_msg_named *)(void *)room =
          (at_msg_named){.object = 1 + take(in) % 3u,
                         .first = number(in),
                         .flags = take(in) % 2};
      return sizeof(at_msg_named);
    default:
      list[0] = number(in);
      return 8;
  }
}

// A graph of one to three of these.
static uint32_t fill_graph(input *in) {
  static const uint32_t kinds[] = {AT_MSG_LAUNCH, AT_MSG_COPY, AT_MSG_GROUP,
                                   AT_MSG_DROP};
  static _Alignas(16) uint8_t all[1 << 12];
  at_msg_graph *m = (void *)all;
  *m = (at_msg_graph){1 + number(in) % 3, take(in) % 3, take(in) % 4, 0,
                      1 + take(in) % 3};
  uint8_t *at = (uint8_t *)(m + 1);
  for (uint32_t i = 0; i < m->num_steps; i++) {
    at_msg_step *s = (void *)at;
    s->kind = kinds[take(in) % 4];
    s->bytes = fill(in, s->kind);
    memcpy(s + 1, room, s->bytes);
    // Names of what is made, and of inputs.
    if (s->kind == AT_MSG_LAUNCH)
      ((at_msg_launch *)(void *)(s + 1))->outputs = AT_MSG_MADE;
    if (s->kind == AT_MSG_COPY)
      ((at_msg_copy *)(void *)(s + 1))->array = AT_MSG_MADE | 1;
    if (s->kind == AT_MSG_GROUP)
      ((at_msg_group *)(void *)(s + 1))->array = AT_MSG_MADE | 2;
    at += at_message_step_bytes(s->bytes);
  }
  memcpy(room, all, (size_t)(at - all));
  return (uint32_t)(at - all);
}

// A message of the stream, a graph or its run.
static void say_stream(input *in, uint64_t client) {
  static const uint32_t kinds[] = {
      AT_MSG_CREATE, AT_MSG_CREATE,  AT_MSG_CREATE, AT_MSG_CREATE,
      AT_MSG_GROUP,  AT_MSG_COPY,    AT_MSG_COPY,   AT_MSG_DROP,
      AT_MSG_DROP,   AT_MSG_LOAD,    AT_MSG_LOAD,   AT_MSG_LOAD,
      AT_MSG_LAUNCH, AT_MSG_LAUNCH,  AT_MSG_LAUNCH, AT_MSG_UNLOAD,
      AT_MSG_GRAPH,  AT_MSG_RUN,     AT_MSG_FORGET, AT_MSG_KEEP,
      AT_MSG_FETCH,  AT_MSG_DISCARD, AT_MSG_SAVE,   AT_MSG_RESTORE};
  uint32_t kind = kinds[take(in) % AT_LEN(kinds)], n;
  if (kind == AT_MSG_GRAPH) {
    n = fill_graph(in);
  } else if (kind == AT_MSG_RUN) {
    at_msg_run *m = (void *)room;
    *m = (at_msg_run){1 + number(in) % 3, number(in), take(in) % 3, 0};
    for (uint32_t i = 0; i < m->num_inputs; i++)
      ((uint64_t *)(m + 1))[i] = number(in);
    n = (uint32_t)(sizeof *m + m->num_inputs * sizeof(uint64_t));
  } else {
    n = fill(in, kind);
  }
  stream(kind, client, n);
}

// ---- The session
// As a wire would: asks for a place, fills it, and says that it is whole or has
// ended early.
static void deliver(visitor *v, const at_wire_head *head, const void *bytes,
                    bool whole) {
  void *body = head->bytes ? at_visitor_sink.place(v, 1, head) : NULL;
  must(body || !head->bytes);
  if (head->bytes) memcpy(body, bytes, head->bytes);
  if (whole)
    at_visitor_sink.message(v, 1, head, body);
  else
    at_visitor_sink.abandon(v, 1, head, body);
}

// A WRITE with its bytes in pieces, a question, an answer to a callback, or
// anything.
static void say_session(input *in, visitor *v) {
  static uint64_t tags;
  static const uint8_t data[8192] = {1};
  const uint8_t what = take(in);
  at_wire_head head = {.tag = what & 0x80 ? take(in) % 8u : ++tags + 100};
  switch (what % 8) {
    case 0:
    case 1:
    case 2: {
      at_msg_write m = {shard(in), 0, 0, 24};
      m.bytes = what & 0x40 ? 24 : 12;
      m.offset = what & 0x20 && m.bytes == 12 ? 12 : 0;
      if (what & 0x10 && take(in) % 4 == 0) m.total = number(in);
      head.kind = AT_MSG_WRITE;
      head.bytes = sizeof m;
      deliver(v, &head, &m, true);
      if (take(in) % 16 == 0) return;  // its bytes never come
      head.kind = AT_MSG_DATA;
      head.bytes = AT_MIN(m.bytes, sizeof data);
      return deliver(v, &head, data, take(in) % 16);
    }
    case 3: {
      at_msg_read m = {shard(in), take(in) % 30, take(in) % 30};
      head.kind = AT_MSG_READ;
      head.bytes = sizeof m;
      return deliver(v, &head, &m, true);
    }
    case 4: {
      at_msg_watch m = {shard(in)};
      head.kind = AT_MSG_WATCH;
      head.bytes = sizeof m;
      return deliver(v, &head, &m, true);
    }
    case 5: {
      at_msg_refuse m = {shard(in), take(in)};
      head.kind = AT_MSG_REFUSE;
      head.bytes = sizeof m;
      return deliver(v, &head, &m, true);
    }
    case 6: {
      struct {
        at_msg_took m;
        uint8_t bytes[24];
      } m = {{take(in) % 3 ? 0 : take(in)}, {0}};
      head.kind = what & 0x10 ? AT_MSG_TOOK : AT_MSG_GIVE;
      head.tag = 1 + take(in) % 6u;
      head.bytes = what & 0x10 ? sizeof m.m : sizeof m;
      return deliver(v, &head, &m, true);
    }
    default: {  // anything
      uint32_t n = take(in) % 80u;
      for (uint32_t i = 0; i < n; i++) room[i] = take(in);
      head.kind = 32 + take(in) % 12u;
      head.bytes = n;
      return deliver(v, &head, room, true);
    }
  }
}

// A session that introduces itself; who is second does not become the client.
static visitor *come(uint64_t client) {
  visitor *v = calloc(1, sizeof *v);
  v->host = &the;
  v->next = the.visitors;
  the.visitors = v;
  at_msg_iam m = {.client = client};
  at_control_key(the.secret, client, m.key);
  const at_wire_head head = {sizeof m, 0, AT_MSG_IAM, AT_WIRE_BULK};
  deliver(v, &head, &m, true);
  return v;
}

// The session ends, with or without a word of the wire's, and its jobs are
// dropped.
static void go(visitor *v, bool says) {
  if (says) at_visitor_sink.lost(v, 1, AT_OK);
  at_visitor_free(v);
  while (the.first) {
    job *j = the.first;
    the.first = j->next;
    free(j);
  }
  the.end = &the.first;
}

// Messages of the stream and of a visitor, in the order that the input says.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint64_t clients;
  if (!the.runtime) begin();
  input in = {data, data + AT_MIN(size, (size_t)kMost)};
  uint64_t client = ++clients;
  uint8_t order = take(&in);
  visitor *v = come(client), *other = order & 4 ? come(client) : NULL;
  while (in.at < in.end) {
    uint8_t what = take(&in);
    if (v && what == 0xff) {
      go(v, order & 1);
      v = NULL;
    } else if (v && what % 2) {
      say_session(&in, v);
    } else {
      say_stream(&in, client);
    }
  }
  if (v && order & 2) go(v, order & 1);
  if (other) go(other, false);
  stream(AT_MSG_LEFT, client, 0);
  if (v && !(order & 2)) go(v, order & 1);
  at_named_close(&the);
  // What runs ends: nobody answers it any more.
  for (int i = 0; (the.tenants || in_use()) && i < 100000; i++) usleep(50);
  must(!the.tenants && !the.visitors);
  must(!in_use());
  return 0;
}
