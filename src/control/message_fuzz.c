// What says whether a message fits: of one that does, all that its users read
// is there. The first byte chooses the kind.
#include <stdlib.h>
#include <string.h>

#include "abi/dtype.h"
#include "control/cut.h"
#include "control/fuzz_input.h"
#include "control/message.h"

static const uint32_t kKinds[] = {AT_MSG_CREATE,
                                  AT_MSG_GROUP,
                                  AT_MSG_COPY,
                                  AT_MSG_DROP,
                                  AT_MSG_LOAD,
                                  AT_MSG_UNLOAD,
                                  AT_MSG_LAUNCH,
                                  AT_MSG_LEFT,
                                  AT_MSG_GRAPH,
                                  AT_MSG_RUN,
                                  AT_MSG_FORGET,
                                  AT_MSG_IAM,
                                  AT_MSG_WRITE,
                                  AT_MSG_DATA,
                                  AT_MSG_REFUSE,
                                  AT_MSG_READ,
                                  AT_MSG_WATCH,
                                  AT_MSG_STATS,
                                  AT_MSG_TOOK,
                                  AT_MSG_GIVE,
                                  AT_MSG_BYTES,
                                  AT_MSG_DONE,
                                  AT_MSG_FAILED,
                                  AT_MSG_STATS_ARE,
                                  AT_MSG_SENT,
                                  AT_MSG_ASKS,
                                  AT_MSG_WELCOME,
                                  AT_MSG_HOST_LOST,
                                  AT_MSG_HOST_BACK,
                                  AT_MSG_HOST_DRAINS,
                                  AT_MSG_HOST,
                                  AT_MSG_FORM,
                                  AT_MSG_FORMED,
                                  AT_MSG_MISSES,
                                  AT_MSG_DID,
                                  AT_MSG_STATUS,
                                  AT_MSG_STATUS_IS,
                                  AT_MSG_STOP,
                                  AT_MSG_ORDERED,
                                  AT_MSG_DRAIN,
                                  AT_MSG_REST,
                                  AT_MSG_RESTED,
                                  AT_MSG_LOOK,
                                  AT_MSG_LOOKS,
                                  AT_MSG_RESHARD,
                                  AT_MSG_KEEP,
                                  AT_MSG_FETCH,
                                  AT_MSG_DISCARD,
                                  AT_MSG_OBJECTS,
                                  AT_MSG_SAVE,
                                  AT_MSG_RESTORE,
                                  AT_MSG_PEEK,
                                  AT_MSG_COMMIT,
                                  AT_MSG_ANSWER,
                                  AT_MSG_ACTED,
                                  AT_MSG_ERASE,
                                  AT_MSG_SLICE,
                                  AT_MSG_UNSLICE,
                                  AT_MSG_HEARD,
                                  AT_MSG_SLICED,
                                  AT_MSG_RECORD,
                                  AT_MSG_RECORDED,
                                  AT_MSG_TRACE,
                                  AT_MSG_SPANS,
                                  AT_MSG_TRACED,
                                  0,
                                  12345,
                                  AT_MSG_CLOCK,
                                  AT_MSG_SIMULATED};

static volatile uint8_t sink;
// Reads every byte, so that a sanitizer sees those that are not there.
static void touch(const void *p, size_t n) {
  for (size_t i = 0; i < n; i++) sink ^= ((const uint8_t *)p)[i];
}

// An at_message_name_fn: the place can be read and written.
static bool name_is_there(void *arg, uint64_t *name, bool makes,
                          uint32_t count) {
  touch(name, sizeof *name);
  must(*name || !makes);
  *name = *name ^ 1;
  *name = *name ^ 1;
  return true;
}

static void walk(uint32_t kind, at_bytes b);
// Steps fill the body exactly.
static void walk_graph(at_bytes b) {
  const at_msg_graph *m = (const void *)b.ptr;
  const uint64_t *kept = (const void *)(m + 1);
  const uint8_t *at = (const uint8_t *)(kept + m->num_kept);
  touch(kept, m->num_kept * sizeof *kept);
  for (uint32_t i = 0; i < m->num_steps; i++) {
    const at_msg_step *s = (const void *)at;
    walk(s->kind, (at_bytes){(const uint8_t *)(s + 1), s->bytes});
    at += at_message_step_bytes(s->bytes);
  }
  must(at == b.ptr + b.len);
}

// Names of results do not wrap, and only who wants to hear has channels.
static void walk_launch(const at_msg_launch *m) {
  const at_msg_arg *args = (const void *)(m + 1);
  touch(args, m->num_args * sizeof *args);
  touch(args + m->num_args, m->num_channels * sizeof(at_msg_channel));
  for (uint32_t o = 0; o < m->num_outputs; o++) must(m->outputs + o != 0);
  must(m->number || !m->num_channels);
}

// The bytes that it says follow do follow.
static void walk_create(const at_msg_create *m) {
  const int64_t *dims = (const void *)(m + 1);
  size_t bytes = at_dtype_bytes((at_dtype)m->dtype);
  for (uint32_t i = 0; i < m->rank; i++) bytes *= (size_t)dims[i];
  if (m->has_data) touch(dims + m->rank, bytes);
}

static void walk_text(at_bytes b, size_t head) {
  must(b.len - head <= AT_MESSAGE_TEXT);
  touch(b.ptr + head, b.len - head);
}

// Boxes lie within the shards that they name.
static void walk_reshard(const at_msg_reshard *m) {
  at_resharding r = at_message_resharding(m);
  touch(r.from, m->num_from * sizeof *r.from);
  touch(r.chips, m->num_to * sizeof *r.chips);
  for (uint32_t i = 0; i < m->num_boxes; i++) {
    const at_msg_box *b = at_message_box(m, &r, i);
    const int64_t *x = (const void *)(b + 1);
    must(b->from < m->num_from && b->to < m->num_to && b->like <= i);
    for (uint32_t k = 0; k < m->rank; k++) {
      must(x[k] + x[2 * m->rank + k] <= r.from_dims.ptr[k]);
      must(x[m->rank + k] + x[2 * m->rank + k] <= r.to_dims.ptr[k]);
    }
  }
}

// Lists behind messages of the stream lie inside the body.
static void walk_lists(uint32_t kind, const void *body) {
  if (kind == AT_MSG_GROUP) {
    const at_msg_group *m = body;
    touch(m + 1, m->count * sizeof(at_msg_shard));
  } else if (kind == AT_MSG_COPY) {
    const at_msg_copy *m = body;
    touch(m + 1, m->rank * sizeof(int64_t));
  } else if (kind == AT_MSG_RESHARD) {
    walk_reshard(body);
  } else if (kind == AT_MSG_DROP) {
    const at_msg_drop *m = body;
    touch(m + 1, m->count * sizeof(uint64_t));
  } else if (kind == AT_MSG_RUN) {
    const at_msg_run *m = body;
    must(m->first && m->first < AT_MSG_MADE);
    touch(m + 1, m->num_inputs * sizeof(uint64_t));
  }
}

// Chips, then at least a byte of executable.
static void walk_load(at_bytes b) {
  const at_msg_load *m = (const void *)b.ptr;
  touch(m + 1, m->num_chips * sizeof(uint32_t));
  size_t head = sizeof *m + at_message_chips_bytes(m->num_chips);
  must(b.len > head);
  touch(b.ptr + head, b.len - head);
}

// A slice has devices, an answer chips or a reason.
static void walk_slices(uint32_t kind, at_bytes b) {
  if (kind == AT_MSG_SLICE) {
    const at_msg_slice *m = (const void *)b.ptr;
    must(m->slice && m->count && m->count <= AT_MESSAGE_SLICE);
    must(strlen(m->kind) < AT_MESSAGE_KIND);
  } else if (kind == AT_MSG_SLICED) {
    const at_msg_sliced *m = (const void *)b.ptr;
    must(!m->code == !!m->count);
    if (m->code) return walk_text(b, sizeof *m);
    touch(m + 1, m->count * sizeof(uint32_t));
  }
}

// Tables and texts of who takes part.
static void walk_members(uint32_t kind, at_bytes b) {
  if (kind == AT_MSG_WELCOME) {
    const at_msg_welcome *m = (const void *)b.ptr;
    const uint8_t *texts =
        (const uint8_t *)(m + 1) + at_message_chips_bytes(m->num_chips);
    touch(m + 1, m->num_chips * sizeof(uint32_t));
    touch(texts, m->target_bytes + m->addresses_bytes);
  } else if (kind == AT_MSG_HOST) {
    const at_msg_host *m = (const void *)b.ptr;
    touch(m + 1, m->session_bytes + m->pod_bytes);
  } else if (kind == AT_MSG_FORM) {
    const at_msg_form *m = (const void *)b.ptr;
    must(m->me < m->count);
    touch(m + 1, m->target_bytes + m->addresses_bytes);
  }
}

// Lists without gaps, names that end.
static void walk_looks(at_bytes b) {
  const at_msg_looks *m = (const void *)b.ptr;
  const at_look_program *p = at_look_programs(m);
  touch(at_look_chips(m), m->num_chips * sizeof(at_look_chip));
  touch(at_look_tenants(m), m->num_tenants * sizeof(at_look_tenant));
  for (uint32_t i = 0; i < m->num_programs; i++)
    must(strlen(p[i].name) < AT_LOOK_NAME);
  for (uint32_t i = 0; i < m->num_runs; i++)
    must(strlen(at_look_runs(m)[i].name) < AT_LOOK_NAME);
  must((const uint8_t *)(at_look_runs(m) + m->num_runs) == b.ptr + b.len);
}

// Names of arrays, then texts.
static void walk_keep(at_bytes b) {
  const at_msg_keep *m = (const void *)b.ptr;
  const uint64_t *arrays = (const void *)(m + 1);
  touch(arrays, m->num_arrays * sizeof *arrays);
  const uint8_t *texts = (const uint8_t *)(arrays + m->num_arrays);
  must(m->num_arrays && m->name_bytes && m->name_bytes <= AT_MESSAGE_NAME);
  touch(texts, (size_t)m->name_bytes + m->label_bytes + m->about_bytes);
}

static void walk_named(uint32_t kind, at_bytes b) {
  const at_msg_named *m = (const void *)b.ptr;
  touch(m + 1, m->name_bytes);
  must(kind != AT_MSG_FETCH || m->first);
  must(m->first + AT_MESSAGE_OBJECT <= AT_MSG_MADE);
}

// Every tile has exactly one original among the shards.
static void walk_files(uint32_t kind, at_bytes b) {
  at_cuts all = at_cuts_of(b);
  at_cut cut;
  int64_t tile[AT_MESSAGE_RANK];
  uint32_t n = 0;
  touch(all.path.ptr, all.path.len);
  touch(all.about.ptr, all.about.len);
  must(all.path.len && all.path.ptr[0] == '/');
  for (; at_cuts_next(&all, &cut); n++) {
    uint64_t tiles = at_cut_num_tiles(&cut), whole = 0;
    must(tiles <= cut.num_shards && cut.num_shards <= AT_MESSAGE_CHIPS);
    must(at_cut_tile_bytes(&cut) < SIZE_MAX / 2);
    for (uint32_t s = 0; s < AT_MIN(cut.num_shards, 4096u); s++) {
      if (kind == AT_MSG_RESTORE) must(at_cut_chip(&cut, s) < AT_MESSAGE_CHIPS);
      whole += at_cut_tile(&cut, s, tile);
      for (uint32_t d = 0; d < cut.dims.rank; d++)
        must(tile[d] >= 0 && tile[d] < cut.tiles[d]);
    }
    if (cut.num_shards <= 4096) must(whole == tiles);
  }
  must(n == all.m->num_arrays);
}

// Spans fill the rest exactly.
static void walk_spans(at_bytes b, size_t head, uint32_t count) {
  const at_profile_span *s = (const void *)(b.ptr + head);
  for (uint32_t i = 0; i < count; i++) {
    must(s[i].kind && s[i].kind < AT_SPAN_KINDS &&
         s[i].start_ns <= s[i].end_ns);
    must(strlen(s[i].name) < AT_SPAN_NAME);
  }
  must((const uint8_t *)(s + count) == b.ptr + b.len);
}

// Does with a good message what its users do.
static void walk(uint32_t kind, at_bytes b) {
  touch(b.ptr, b.len);
  must(at_message_names(kind, (void *)b.ptr, name_is_there, NULL));
  switch (kind) {
    case AT_MSG_CREATE:
      return walk_create((const void *)b.ptr);
    case AT_MSG_LAUNCH:
      return walk_launch((const void *)b.ptr);
    case AT_MSG_LOAD:
      return walk_load(b);
    case AT_MSG_GRAPH:
      return walk_graph(b);
    case AT_MSG_LOOKS:
      return walk_looks(b);
    case AT_MSG_KEEP:
      return walk_keep(b);
    case AT_MSG_FETCH:
    case AT_MSG_DISCARD:
    case AT_MSG_OBJECTS:
      return walk_named(kind, b);
    case AT_MSG_SAVE:
    case AT_MSG_RESTORE:
    case AT_MSG_PEEK:
      return walk_files(kind, b);
    case AT_MSG_COMMIT: {
      const at_msg_commit *m = (const void *)b.ptr;
      walk_files(AT_MSG_SAVE,
                 (at_bytes){(const uint8_t *)(m + 1), m->save_bytes});
      return touch((const uint8_t *)(m + 1) + m->save_bytes, m->saved_bytes);
    }
    case AT_MSG_ANSWER:
    case AT_MSG_ACTED:
      return must(b.len >= sizeof(at_msg_answer));
    case AT_MSG_RECORDED:
      return walk_spans(b, sizeof(at_msg_recorded),
                        ((const at_msg_recorded *)(const void *)b.ptr)->count);
    case AT_MSG_SPANS:
      must(strlen(((const at_msg_spans *)(const void *)b.ptr)->name) <
           AT_SPANS_NAME);
      return walk_spans(b, sizeof(at_msg_spans),
                        ((const at_msg_spans *)(const void *)b.ptr)->count);
    case AT_MSG_WRITE:
    case AT_MSG_READ:
    case AT_MSG_WATCH:
      return must(((const at_msg_shard *)(const void *)b.ptr)->array);
    case AT_MSG_REFUSE:
      must(((const at_msg_shard *)(const void *)b.ptr)->array);
      return walk_text(b, sizeof(at_msg_refuse));
    case AT_MSG_FAILED:
    case AT_MSG_TOOK:
    case AT_MSG_FORMED:
    case AT_MSG_HOST_LOST:
    case AT_MSG_HOST_BACK:
      return walk_text(b, 8);
    default:
      walk_lists(kind, b.ptr);
      walk_members(kind, b);
      walk_slices(kind, b);
  }
}

// The first byte chooses the kind, the rest is the body.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  const uint32_t kind = kKinds[data[0] % AT_LEN(kKinds)];
  // Aligned, and no longer than it says.
  uint8_t *exact = size > 1 ? malloc(size - 1) : NULL;
  if (exact) memcpy(exact, data + 1, size - 1);
  const at_bytes b = {exact, size - 1};
  at_status st = at_message_check(kind, b);
  must(!st.err || at_status_code(st) == AT_INVALID_ARGUMENT);
  if (!st.err && b.len) walk(kind, b);
  at_status_free(st);
  free(exact);
  return 0;
}
