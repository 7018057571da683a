// Messages that fit, and each way in which they may not.
#include "control/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "abi/dtype.h"
#include "control/cut.h"

// Does the check accept the message? It says nothing but INVALID_ARGUMENT else.
static bool good(uint32_t kind, const void *p, size_t n) {
  // Exactly as long, so that a sanitizer sees what is read behind it.
  uint8_t *copy = malloc(n ? n : 1);
  if (n) memcpy(copy, p, n);
  at_code code = at_code_take(at_message_check(kind, (at_bytes){copy, n}));
  free(copy);
  assert_true(!code || code == AT_INVALID_ARGUMENT);
  return !code;
}

// No shorter and no longer one is good.
static void exact(uint32_t kind, const void *p, size_t n) {
  uint8_t longer[600] = {0};
  assert_true(n + 9 <= sizeof longer);
  memcpy(longer, p, n);
  assert_true(good(kind, p, n));
  for (size_t i = 0; i < n; i++) assert_false(good(kind, longer, i));
  for (size_t i = n + 1; i < n + 9; i++) assert_false(good(kind, longer, i));
}
#define EXACT(kind, m) exact(kind, &(m), sizeof(m))
#define BAD(kind, m, change)                \
  do {                                      \
    __typeof__(m) copy_ = (m), *x = &copy_; \
    change;                                 \
    assert_false(good(kind, x, sizeof *x)); \
  } while (0)

// dims, dtype and the bytes that follow have to agree; an empty array of huge
// dimensions is good.
static void creates(void **state) {
  struct {
    at_msg_create m;
    int64_t dims[2];
    float data[6];
  } c = {{7, 1, 0, AT_F32, 2, 1}, {2, 3}, {0}};
  EXACT(AT_MSG_CREATE, c);
  BAD(AT_MSG_CREATE, c, x->m.array = 0);
  BAD(AT_MSG_CREATE, c, x->m.kind = 3);
  BAD(AT_MSG_CREATE, c, x->m.dtype = AT_DTYPE_COUNT);
  BAD(AT_MSG_CREATE, c, x->m.rank = 65);
  BAD(AT_MSG_CREATE, c, x->m.rank = UINT32_MAX);
  BAD(AT_MSG_CREATE, c, x->m.has_data = 2);
  BAD(AT_MSG_CREATE, c, x->m.has_data = 0);
  BAD(AT_MSG_CREATE, c, x->dims[0] = -2);
  BAD(AT_MSG_CREATE, c, x->dims[1] = 4);
  BAD(AT_MSG_CREATE, c, x->dims[0] = INT64_MAX);
  BAD(AT_MSG_CREATE, c, x->dims[0] = 1ll << 62);
  struct {
    at_msg_create m;
    int64_t dims[2];
  } empty = {{7, 1, 0, AT_F32, 2, 1}, {INT64_MAX, 0}};
  EXACT(AT_MSG_CREATE, empty);
}

// Counts are bounded before they are multiplied.
static void launches(void **state) {
  struct {
    at_msg_launch m;
    at_msg_arg args[2];
    at_msg_channel channel;
  } l = {{.program = 1,
          .outputs = 5,
          .number = 3,
          .num_args = 2,
          .num_outputs = 4,
          .num_channels = 1},
         {{1, 0, 0}, {2, 0, 0}},
         {.id = 1}};
  EXACT(AT_MSG_LAUNCH, l);
  BAD(AT_MSG_LAUNCH, l, x->m.program = 0);
  BAD(AT_MSG_LAUNCH, l, x->m.outputs = 0);
  BAD(AT_MSG_LAUNCH, l, x->m.outputs = UINT64_MAX - 3);
  BAD(AT_MSG_LAUNCH, l, x->m.num_outputs = UINT32_MAX);
  BAD(AT_MSG_LAUNCH, l, x->m.num_args = UINT32_MAX);
  BAD(AT_MSG_LAUNCH, l, x->m.num_channels = UINT32_MAX);
  BAD(AT_MSG_LAUNCH, l, x->m.number = 0);  // its callbacks need one
}

// Of clients and hosts: ranges, texts, transfers.
static void bytes_and_questions(void **state) {
  at_msg_write w = {{1, 0, 0}, 4, 4, 8};
  EXACT(AT_MSG_WRITE, w);
  BAD(AT_MSG_WRITE, w, x->shard.array = 0);
  BAD(AT_MSG_WRITE, w, x->offset = 5);
  BAD(AT_MSG_WRITE, w, x->offset = UINT64_MAX);
  BAD(AT_MSG_WRITE, w, x->bytes = UINT64_MAX - 3);
  at_msg_read r = {{1, 0, 0}, 0, 0};
  EXACT(AT_MSG_READ, r);
  BAD(AT_MSG_READ, r, x->shard.array = 0);
  at_msg_watch a = {{1, 0, 0}};
  EXACT(AT_MSG_WATCH, a);
  BAD(AT_MSG_WATCH, a, x->shard.array = 0);
  at_msg_refuse no = {{1, 0, 0}, 3};
  assert_true(good(AT_MSG_REFUSE, &no, sizeof no));
  BAD(AT_MSG_REFUSE, no, x->shard.array = 0);
  static uint8_t text[AT_MESSAGE_TEXT + 100];
  memcpy(text, &no, sizeof no);
  assert_true(good(AT_MSG_REFUSE, text, sizeof no + AT_MESSAGE_TEXT));
  assert_false(good(AT_MSG_REFUSE, text, sizeof no + AT_MESSAGE_TEXT + 1));
  at_msg_iam me = {.client = 3};
  EXACT(AT_MSG_IAM, me);
  at_msg_stats s = {0};
  EXACT(AT_MSG_STATS, s);
  struct {
    at_msg_transfer m;
    uint8_t data[8];
  } sent = {{.bytes = 8, .total = 8}, {0}};
  EXACT(AT_MSG_SENT, sent);
  EXACT(AT_MSG_ASKS, sent.m);
  BAD(AT_MSG_ASKS, sent.m, x->bytes = UINT64_MAX);
}

// Counts that wrap around when multiplied by an element's size are bad.
static void lists(void **state) {
  struct {
    at_msg_group m;
    at_msg_shard shards[2];
  } g = {{9, 2}, {{1, 0, 0}, {1, 1, 1}}};
  EXACT(AT_MSG_GROUP, g);
  BAD(AT_MSG_GROUP, g, x->m.array = 0);
  BAD(AT_MSG_GROUP, g, x->m.count = 0);
  BAD(AT_MSG_GROUP, g, x->m.count = UINT64_MAX);
  BAD(AT_MSG_GROUP, g, x->m.count = 2 + (1ull << 60));
  struct {
    at_msg_drop m;
    uint64_t names[3];
  } d = {{3}, {1, 2, 0}};
  EXACT(AT_MSG_DROP, d);
  BAD(AT_MSG_DROP, d, x->m.count = 3 + (1ull << 61));
  struct {
    at_msg_copy m;
    int64_t dims[1];
  } c = {{{1, 0, 0}, 2, 0, 0, AT_S4, 0, 1}, {5}};
  EXACT(AT_MSG_COPY, c);
  BAD(AT_MSG_COPY, c, x->m.array = 0);
  BAD(AT_MSG_COPY, c, x->m.from.array = 0);
  BAD(AT_MSG_COPY, c, x->m.rank = 2);
  BAD(AT_MSG_COPY, c, x->dims[0] = -1);
  struct {
    at_msg_load m;
    uint32_t chips[4];  // three, and what fills up
    uint8_t executable[8];
  } l = {{.program = 1, .num_chips = 3}, {0, 1, 2, 0}, {1}};
  assert_true(good(AT_MSG_LOAD, &l, sizeof l));
  assert_false(good(AT_MSG_LOAD, &l, sizeof l - sizeof l.executable));
  BAD(AT_MSG_LOAD, l, x->m.program = 0);
  BAD(AT_MSG_LOAD, l, x->m.num_chips = 0);
  BAD(AT_MSG_LOAD, l, x->m.num_chips = UINT32_MAX / 4 + 2);
  struct {
    at_msg_run m;
    uint64_t inputs[2];
  } r = {{1, 5, 2, 0}, {1, 2}};
  EXACT(AT_MSG_RUN, r);
  BAD(AT_MSG_RUN, r, x->m.first = 0);
  BAD(AT_MSG_RUN, r, x->m.first = AT_MSG_MADE);
}

// Boxes inside the shards, and `like` that is the same box.
static void reshardings(void **state) {
  struct {
    at_msg_reshard m;
    at_msg_shard from[2];
    int64_t dims[2];
    uint32_t chips[2];
    struct {
      at_msg_box b;
      int64_t places[3];
    } boxes[2];
  } r = {{9, 2, 1, 2, 1, AT_F32, 0, 0},
         {{1, 0, 0}, {1, 1, 1}},
         {2, 4},
         {3, 0},
         {{{0, 0, 0, 0}, {0, 0, 2}}, {{1, 0, 1, 0}, {0, 2, 2}}}};
  EXACT(AT_MSG_RESHARD, r);
  BAD(AT_MSG_RESHARD, r, x->m.array = 0);
  BAD(AT_MSG_RESHARD, r, x->m.num_from = 0);
  BAD(AT_MSG_RESHARD, r, x->m.num_to = UINT32_MAX);
  BAD(AT_MSG_RESHARD, r, x->m.num_boxes = UINT32_MAX);
  BAD(AT_MSG_RESHARD, r, x->m.rank = 2);
  BAD(AT_MSG_RESHARD, r, x->m.dtype = AT_DTYPE_COUNT);
  BAD(AT_MSG_RESHARD, r, x->from[1].array = 0);
  BAD(AT_MSG_RESHARD, r, x->dims[0] = -1);
  BAD(AT_MSG_RESHARD, r, x->dims[1] = INT64_MAX);
  BAD(AT_MSG_RESHARD, r, x->boxes[1].b.from = 2);
  BAD(AT_MSG_RESHARD, r, x->boxes[1].b.to = 1);
  BAD(AT_MSG_RESHARD, r, x->boxes[0].b.like = 1);
  BAD(AT_MSG_RESHARD, r, x->boxes[1].b.like = 0);  // of another shard
  BAD(AT_MSG_RESHARD, r, x->boxes[1].places[0] = 1);
  BAD(AT_MSG_RESHARD, r, x->boxes[1].places[1] = 3);
  BAD(AT_MSG_RESHARD, r, x->boxes[1].places[1] = -1);
  BAD(AT_MSG_RESHARD, r, x->boxes[1].places[2] = INT64_MAX);
}

// What controller and hosts say to each other.
static void who_takes_part(void **state) {
  struct {
    at_msg_welcome m;
    uint32_t host_of[2];
    char texts[8];
  } w = {
      {.num_hosts = 1, .num_chips = 2, .target_bytes = 3, .addresses_bytes = 5},
      {0, 0},
      ""};
  EXACT(AT_MSG_WELCOME, w);
  BAD(AT_MSG_WELCOME, w, x->m.num_hosts = 0);
  BAD(AT_MSG_WELCOME, w, x->m.num_hosts = UINT32_MAX);
  BAD(AT_MSG_WELCOME, w, x->m.num_chips = UINT32_MAX);
  BAD(AT_MSG_WELCOME, w, x->m.num_listed = 3);
  BAD(AT_MSG_WELCOME, w, x->m.target_bytes = UINT64_MAX - 4);
  struct {
    at_msg_host m;
    char texts[8];
  } h = {{.session_bytes = 3, .pod_bytes = 5}, ""};
  EXACT(AT_MSG_HOST, h);
  BAD(AT_MSG_HOST, h, x->m.session_bytes = UINT64_MAX - 4);
  struct {
    at_msg_form m;
    char texts[8];
  } f = {{.me = 1,
          .count = 2,
          .places = 2,
          .target_bytes = 3,
          .addresses_bytes = 5},
         ""};
  EXACT(AT_MSG_FORM, f);
  BAD(AT_MSG_FORM, f, x->m.me = 2);
  BAD(AT_MSG_FORM, f, x->m.places = 1);
  assert_true(good(AT_MSG_LEFT, NULL, 0));
  assert_false(good(AT_MSG_LEFT, "x", 1));
  assert_false(good(0, NULL, 0));
  assert_false(good(UINT32_MAX, NULL, 0));
}

// Names that do not end are bad: they are printed.
static void seen_by_people(void **state) {
  at_msg_drain d = {.host = 7, .how = AT_DRAIN_FORCE};
  EXACT(AT_MSG_DRAIN, d);
  BAD(AT_MSG_DRAIN, d, x->how = 3);
  at_msg_host_drains h = {.host = 7, .drains = 1};
  EXACT(AT_MSG_HOST_DRAINS, h);
  BAD(AT_MSG_HOST_DRAINS, h, x->drains = 2);
  at_msg_heard heard = {.number = 1};
  EXACT(AT_MSG_HEARD, heard);
  at_msg_look l = {.number = 1};
  EXACT(AT_MSG_LOOK, l);
  at_msg_status s = {.watch_ms = 1};
  assert_true(good(AT_MSG_STATUS, NULL, 0));
  assert_true(good(AT_MSG_STATUS, &s, sizeof s));
  assert_false(good(AT_MSG_STATUS, &s, sizeof s - 1));
  assert_true(good(AT_MSG_REST, NULL, 0) && good(AT_MSG_RESTED, NULL, 0));
  assert_false(good(AT_MSG_REST, &s, 1) || good(AT_MSG_RESTED, &s, 1));
  struct {
    at_msg_looks m;
    at_look_chip chips[2];
    at_look_tenant tenant;
    at_look_program program;
    at_look_run runs[2];
  } k = {.m = {1, 2, 2, 1, 1, 2}, .program.name = "a program"};
  EXACT(AT_MSG_LOOKS, k);
  BAD(AT_MSG_LOOKS, k, x->m.num_chips = 1);
  BAD(AT_MSG_LOOKS, k, x->m.num_runs = UINT32_MAX);
  BAD(AT_MSG_LOOKS, k, x->m.num_tenants = AT_LOOK_TENANTS + 1);
  BAD(AT_MSG_LOOKS, k, memset(x->program.name, 'x', sizeof x->program.name));
  BAD(AT_MSG_LOOKS, k, memset(x->runs[1].name, 'x', sizeof x->runs[1].name));
}

// Spans have kinds that there are, times in order, and names that end.
static void traces(void **state) {
  at_msg_record r = {.number = 1, .on = 1};
  EXACT(AT_MSG_RECORD, r);
  at_msg_trace t = {.on = 1};
  EXACT(AT_MSG_TRACE, t);
  struct {
    at_msg_recorded m;
    at_profile_span spans[2];
  } d = {{.number = 1, .count = 2},
         {{.kind = AT_SPAN_RUN, .start_ns = 1, .end_ns = 2},
          {.kind = AT_SPAN_LAUNCH}}};
  EXACT(AT_MSG_RECORDED, d);
  BAD(AT_MSG_RECORDED, d, x->m.count = 1);
  BAD(AT_MSG_RECORDED, d, x->m.count = UINT32_MAX);
  BAD(AT_MSG_RECORDED, d, x->spans[1].kind = 0);
  BAD(AT_MSG_RECORDED, d, x->spans[1].kind = AT_SPAN_KINDS);
  BAD(AT_MSG_RECORDED, d, x->spans[0].end_ns = 0);
  BAD(AT_MSG_RECORDED, d, memset(x->spans[1].name, 'x', AT_SPAN_NAME));
  struct {
    at_msg_spans m;
    at_profile_span span;
  } s = {{.kind = 1, .count = 1, .name = "a program"},
         {.kind = AT_SPAN_RUN, .start_ns = 1, .end_ns = 2}};
  EXACT(AT_MSG_SPANS, s);
  BAD(AT_MSG_SPANS, s, memset(x->m.name, 'x', AT_SPANS_NAME));
  BAD(AT_MSG_SPANS, s, x->span.kind = AT_SPAN_KINDS);
}

// A shape has exactly `count` devices or is left open.
static void slices(void **state) {
  at_msg_slice s = {.slice = 1, .count = 8, .shape = {2, 4, 1}, .kind = "v5e"};
  EXACT(AT_MSG_SLICE, s);
  BAD(AT_MSG_SLICE, s, x->slice = 0);
  BAD(AT_MSG_SLICE, s, x->count = 0);
  BAD(AT_MSG_SLICE, s, x->count = 9);
  BAD(AT_MSG_SLICE, s, x->count = AT_MESSAGE_SLICE + 1);
  BAD(AT_MSG_SLICE, s, x->shape[1] = 0);
  BAD(AT_MSG_SLICE, s, x->shape[0] = UINT32_MAX);
  BAD(AT_MSG_SLICE, s, x->policy = AT_SLICE_POLICIES);
  BAD(AT_MSG_SLICE, s, memset(x->kind, 'x', sizeof x->kind));
  memset(s.shape, 0, sizeof s.shape);
  EXACT(AT_MSG_SLICE, s);
  at_msg_unslice u = {1};
  EXACT(AT_MSG_UNSLICE, u);
  struct {
    at_msg_sliced m;
    uint32_t chips[4];  // three, and what fills up
  } w = {{.slice = 1, .count = 3}, {0}};
  EXACT(AT_MSG_SLICED, w);
  BAD(AT_MSG_SLICED, w, x->m.slice = 0);
  BAD(AT_MSG_SLICED, w, x->m.count = 0);
  BAD(AT_MSG_SLICED, w, x->m.count = 5);
  BAD(AT_MSG_SLICED, w, x->m.count = UINT32_MAX);
  BAD(AT_MSG_SLICED, w, x->m.code = 3);
  at_msg_sliced no = {.slice = 1, .code = 3};
  assert_true(good(AT_MSG_SLICED, &no, sizeof no));
}

// By client and by every byte of the secret.
static void keys_differ(void **state) {
  uint8_t secret[AT_CONTROL_SECRET] = {1}, a[AT_CONTROL_KEY], b[AT_CONTROL_KEY];
  at_control_key(secret, 1, a);
  at_control_key(secret, 2, b);
  assert_memory_not_equal(a, b, sizeof a);
  at_control_key(secret, 1, b);
  assert_memory_equal(a, b, sizeof a);
  secret[31] = 1;
  at_control_key(secret, 1, b);
  assert_memory_not_equal(a, b, sizeof a);
}

typedef struct files {
  at_msg_files m;
  char path[8];
  at_msg_cut cut;
  int64_t dims[2];
  uint32_t axes[3];
  at_msg_use used[2];
  at_msg_chips chips[2];
  char name[4];
} files;

// A RESTORE, or a SAVE, of one array over 24 devices.
static files good_files(bool saves) {
  files f = {.m = {.first = 1, .num_arrays = 1, .path_bytes = 8},
             .path = "/tmp/abc",
             .cut = {.dtype = AT_F32,
                     .rank = 2,
                     .num_axes = 3,
                     .num_used = 2,
                     .num_runs = 2,
                     .name_bytes = 4},
             .dims = {8, 6},
             .axes = {2, 3, 4},
             .used = {{0, 2}, {0, 0}},
             .chips = {{0, 12, 1}, {23, 12, -1}},
             .name = "a/.b"};
  if (saves) {  // no chips: the name comes at once
    f.cut.array = 3;
    f.cut.num_runs = 0;
    memcpy(f.chips, f.name, sizeof f.name);
  }
  return f;
}

// What is bad, then where each shard's tile is.
static void files_are_cut(void **state) {
  files r = good_files(false), w = good_files(true);
  const size_t n = sizeof w - sizeof w.name - sizeof w.chips + 4;
  EXACT(AT_MSG_RESTORE, r);
  exact(AT_MSG_SAVE, &w, (n + 7) / 8 * 8);
  BAD(AT_MSG_RESTORE, r, x->m.first = 0);
  BAD(AT_MSG_RESTORE, r, x->m.num_arrays = 2);
  BAD(AT_MSG_RESTORE, r, x->m.path_bytes = UINT32_MAX);
  BAD(AT_MSG_RESTORE, r, x->m.folder_bytes = 8);
  BAD(AT_MSG_RESTORE, r, x->path[0] = 't');
  BAD(AT_MSG_RESTORE, r, memcpy(x->path, "/tmp/../", 8));
  BAD(AT_MSG_RESTORE, r, memcpy(x->path, "/tmp//..", 8));
  BAD(AT_MSG_RESTORE, r, memcpy(x->path, "/../tmpp", 8));
  BAD(AT_MSG_RESTORE, r, x->cut.kind = 3);
  BAD(AT_MSG_RESTORE, r, x->cut.dtype = AT_TOKEN);
  BAD(AT_MSG_RESTORE, r, x->cut.rank = 65);
  BAD(AT_MSG_RESTORE, r, x->cut.num_axes = 65);
  BAD(AT_MSG_RESTORE, r, x->cut.num_runs = UINT32_MAX);
  BAD(AT_MSG_RESTORE, r, x->dims[0] = 9);
  BAD(AT_MSG_RESTORE, r, x->dims[0] = -8);
  BAD(AT_MSG_RESTORE, r, x->dims[1] = 1ll << 60);
  BAD(AT_MSG_RESTORE, r, x->axes[0] = 0);
  BAD(AT_MSG_RESTORE, r, x->axes[0] = 1 << 16);
  BAD(AT_MSG_RESTORE, r, x->used[1].axis = 2);
  BAD(AT_MSG_RESTORE, r, x->used[1].dim = 2);
  BAD(AT_MSG_RESTORE, r, x->chips[0].count = 11);
  BAD(AT_MSG_RESTORE, r, x->chips[0].first = 1 << 16);
  BAD(AT_MSG_RESTORE, r, x->chips[1].first = 5);  // below 0
  BAD(AT_MSG_RESTORE, r, memcpy(x->name, "../b", 4));
  BAD(AT_MSG_RESTORE, r, memcpy(x->name, "a//b", 4));
  BAD(AT_MSG_RESTORE, r, memcpy(x->name, "/abc", 4));
  BAD(AT_MSG_RESTORE, r, memcpy(x->name, "abc/", 4));
  BAD(AT_MSG_SAVE, r, x->cut.array = 3);  // saves say no chips
  // Axis 2, then axis 0, cut dimension 0; axis 1 has copies.
  size_t bytes;
  at_cut c;
  int64_t tile[2];
  assert_true(at_cut_read(
      (at_bytes){(const uint8_t *)&r.cut, sizeof r - offsetof(files, cut)},
      &bytes, &c));
  assert_int_equal(at_cut_num_tiles(&c), 8);
  assert_int_equal(at_cut_tile_bytes(&c), 1 * 6 * 4);
  for (uint32_t s = 0; s < 24; s++) {
    uint32_t a = s / 12, b = s / 4 % 3, d = s % 4;
    assert_int_equal(at_cut_tile(&c, s, tile), b == 0);
    assert_int_equal(tile[0], d * 2 + a);
    assert_int_equal(tile[1], 0);
    assert_int_equal(at_cut_chip(&c, s), s < 12 ? s : 35 - s);
  }
}

// By name from clients, by number to hosts.
static void named_objects(void **state) {
  struct {
    at_msg_keep m;
    uint64_t arrays[2];
    char texts[8];
  } k = {{.num_arrays = 2, .name_bytes = 3, .label_bytes = 1, .about_bytes = 4},
         {1, 2},
         "abclmore"};
  EXACT(AT_MSG_KEEP, k);
  BAD(AT_MSG_KEEP, k, x->m.num_arrays = 0);
  BAD(AT_MSG_KEEP, k, x->m.num_arrays = UINT32_MAX);
  BAD(AT_MSG_KEEP, k, x->m.flags = 2);
  BAD(AT_MSG_KEEP, k, x->m.name_bytes = 0);
  BAD(AT_MSG_KEEP, k, x->m.label_bytes = UINT32_MAX);
  BAD(AT_MSG_KEEP, k, x->m.about_bytes = UINT32_MAX);
  BAD(AT_MSG_KEEP, k, x->texts[1] = 0);
  BAD(AT_MSG_KEEP, k, x->texts[3] = '\n');
  struct {
    at_msg_named m;
    char name[8];
  } f = {{.first = 1, .name_bytes = 8}, "an array"};
  EXACT(AT_MSG_FETCH, f);
  EXACT(AT_MSG_DISCARD, f);
  BAD(AT_MSG_FETCH, f, x->m.first = 0);
  BAD(AT_MSG_FETCH, f, x->m.first = AT_MSG_MADE - 1);
  BAD(AT_MSG_FETCH, f, x->m.flags = 2);
  BAD(AT_MSG_FETCH, f, x->name[7] = 0x7f);
  at_msg_named to_host = {.object = 3, .first = 1};
  EXACT(AT_MSG_FETCH, to_host);
  BAD(AT_MSG_FETCH, to_host, x->object = 0);  // neither a name nor a number
  at_msg_named all = {.tag = 3};
  EXACT(AT_MSG_OBJECTS, all);
  assert_true(good(AT_MSG_ERASE, "x", 1));
  assert_false(good(AT_MSG_ERASE, NULL, 0));
  uint64_t code = 0;
  assert_true(good(AT_MSG_ACTED, &code, 8));
  assert_false(good(AT_MSG_ANSWER, &code, 7));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(creates),
      cmocka_unit_test(launches),
      cmocka_unit_test(bytes_and_questions),
      cmocka_unit_test(lists),
      cmocka_unit_test(reshardings),
      cmocka_unit_test(named_objects),
      cmocka_unit_test(files_are_cut),
      cmocka_unit_test(who_takes_part),
      cmocka_unit_test(seen_by_people),
      cmocka_unit_test(slices),
      cmocka_unit_test(traces),
      cmocka_unit_test(keys_differ),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
