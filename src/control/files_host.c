// Checkpoints on a host: the stream says which arrays, threads for files write
// and read their shards. A save has the arrays as they are when the stream
// comes to it; what a restore makes may be used before it is read.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "control/host_internal.h"
#include "control/tile_file.h"

enum { kThreads = 4, kStack = 256 << 10, kPath = 8192 };

typedef struct work work;

// What the controller has asked for; it is over when all its work is.
typedef struct filing {
  host *host;
  uint64_t operation;
  uint8_t *body;  // of the message
  size_t bytes;
  _Atomic uint32_t left;
  pthread_mutex_t lock;
  at_status why;     // the first error
  at_strbuf result;  // at_msg_saved, or what is told of a checkpoint
  work *reads;       // RESTORE, until the manifest is there
  at_arena *arena;   // the manifest's
  at_manifest manifest;
} filing;

// A shard.
struct work {
  work *next;
  filing *filing;
  at_buffer *buffer;  // referenced and held
  uint32_t array;
  at_cut cut;  // in the filing's body
  int64_t tile[AT_MESSAGE_RANK];
};

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory on a host of the pod");
}

// No work of it is under way.
static void free_filing(filing *f) {
  at_strbuf_free(&f->result);
  at_arena_destroy(f->arena);
  at_status_free(f->why);
  pthread_mutex_destroy(&f->lock);
  free(f->body);
  free(f);
}

// Consumes st.
static void one_less(filing *f, at_status st) {
  if (st.err) {
    pthread_mutex_lock(&f->lock);
    f->why = at_status_join(f->why, st);
    pthread_mutex_unlock(&f->lock);
  }
  if (atomic_fetch_sub(&f->left, 1) != 1) return;
  if (!f->why.err) f->why = at_strbuf_status(&f->result);
  at_host_acted(f->host, f->operation, f->why,
                (at_bytes){(const uint8_t *)f->result.ptr, f->result.len});
  free_filing(f);
}

// NULL: there is no memory, and that is said.
static filing *begin(host *h, uint64_t operation, at_bytes body) {
  filing *f = calloc(1, sizeof *f);
  if (f) f->body = malloc(body.len);
  at_status st = f && f->body ? AT_OK : no_memory();
  if (!st.err && !h->files) st = at_sched_create(kThreads, kStack, &h->files);
  if (st.err) {
    at_host_acted(h, operation, st, (at_bytes){0});
    at_status_free(st);
    if (f) free(f->body);
    free(f);
    return NULL;
  }
  memcpy(f->body, body.ptr, body.len);
  f->bytes = body.len;
  f->host = h;
  f->operation = operation;
  atomic_init(&f->left, 1);
  pthread_mutex_init(&f->lock, NULL);
  return f;
}

static at_cuts cuts_of(const filing *f) {
  return at_cuts_of((at_bytes){f->body, f->bytes});
}

// Holds the buffer, so that dropping or donating the array does not change what
// is written. NULL: no memory, or the array is gone.
static work *make_work(filing *f, at_buffer *b, uint32_t array,
                       const at_cut *cut, const int64_t *tile) {
  work *w = malloc(sizeof *w);
  if (!w) return NULL;
  if (!at_buffer_hold(b)) return free(w), NULL;
  *w = (work){
      .filing = f, .buffer = at_buffer_retain(b), .array = array, .cut = *cut};
  memcpy(w->tile, tile, cut->dims.rank * sizeof *tile);
  atomic_fetch_add(&f->left, 1);
  return w;
}

// Consumes st.
static void end_work(work *w, at_status st) {
  filing *f = w->filing;
  at_buffer_unhold(w->buffer);
  at_buffer_release(w->buffer);
  free(w);
  one_less(f, st);
}

// ---- Saving
// To path/folder/array/tile, with sums of its blocks behind `saved`. The folder
// is made durable too. An empty tile has no file.
static at_status write_tile(const work *w, at_msg_saved *saved) {
  char path[kPath];
  at_cuts all = cuts_of(w->filing);
  at_strbuf name = {0};
  at_manifest_tile(w->cut.dims.rank, w->tile, &name);
  at_status st = at_strbuf_status(&name);
  if (st.err) return st;
  snprintf(path, sizeof path, "%.*s/%.*s%s%.*s/%s", (int)all.path.len,
           all.path.ptr, (int)all.folder.len, all.folder.ptr,
           all.folder.len ? "/" : "", (int)w->cut.name.len, w->cut.name.ptr,
           name.ptr);
  at_strbuf_free(&name);
  const at_bytes data = {at_buffer_data_held(w->buffer),
                         at_buffer_bytes(w->buffer)};
  if (!data.len) return AT_OK;
  AT_TRY(at_file_write(path, data, (uint64_t *)(saved + 1)));
  *strrchr(path, '/') = 0;
  return at_folder_sync(path);
}

// A client says dtype and shape in SAVE; they have to be the array's.
static at_status check_shape(const work *w) {
  if (at_buffer_dtype(w->buffer) == (at_dtype)w->cut.m->dtype &&
      at_buffer_bytes(w->buffer) == at_cut_tile_bytes(&w->cut))
    return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT, "array %.*s is not what was said of it",
                 (int)w->cut.name.len, w->cut.name.ptr);
}

// Waits until the array is defined, writes it and appends what is to be said of
// it. On a thread for files.
static at_status save_tile(const work *w) {
  filing *f = w->filing;
  AT_TRY(at_event_wait(at_buffer_ready(w->buffer)));
  AT_TRY(check_shape(w));
  uint32_t sums = at_manifest_sums(at_buffer_bytes(w->buffer));
  size_t bytes = sizeof(at_msg_saved) + sums * sizeof(uint64_t);
  at_msg_saved *saved = malloc(bytes);
  if (!saved) return no_memory();
  *saved = (at_msg_saved){.array = w->array, .num_sums = sums};
  for (uint32_t d = 0; d < w->cut.dims.rank; d++)
    saved->tile =
        saved->tile * (uint64_t)w->cut.tiles[d] + (uint64_t)w->tile[d];
  at_status st = at_buffer_pin(w->buffer);
  if (!st.err) {
    st = write_tile(w, saved);
    at_buffer_unpin(w->buffer);
  }
  if (!st.err) {
    pthread_mutex_lock(&f->lock);
    at_strbuf_add(&f->result, (at_str){(const char *)saved, bytes});
    pthread_mutex_unlock(&f->lock);
  }
  free(saved);
  return st;
}

// A task of the host's threads for files: one tile.
static void save_main(void *arg) {
  work *w = arg;
  end_work(w, save_tile(w));
}

// Copies of a tile are written once, by whoever has the first.
static void save_array(filing *f, uint32_t number, const at_cut *cut,
                       const array *a) {
  for (uint32_t i = 0; i < a->count; i++) {
    int64_t tile[AT_MESSAGE_RANK];
    at_buffer *b = a->here[i].buffer;
    if (a->here[i].shard >= cut->num_shards ||
        !at_cut_tile(cut, a->here[i].shard, tile))
      continue;
    at_status st = b || !a->why.err ? AT_OK : at_status_clone(a->why);
    work *w = b ? make_work(f, b, number, cut, tile) : NULL;
    if (w) st = at_sched_spawn(f->host->files, save_main, w);
    if (w && st.err) {
      end_work(w, st);
    } else if (!w) {
      atomic_fetch_add(&f->left, 1);
      one_less(f, st.err ? st
                         : AT_FAIL(AT_INVALID_ARGUMENT,
                                   "array %.*s has been deleted or donated",
                                   (int)cut->name.len, cut->name.ptr));
    }
  }
}

// Arrays that the stream has dropped are not saved; their tiles then lack,
// which the commit sees. One user of the filing is this call, so that it cannot
// end while tiles are still being added.
void at_files_save(tenant *t, at_bytes body) {
  filing *f = begin(
      t->host, ((const at_msg_files *)(const void *)body.ptr)->operation, body);
  // The controller has heard why.
  if (!f) return;
  at_cuts all = cuts_of(f);
  at_cut cut;
  for (uint32_t i = 0; at_cuts_next(&all, &cut); i++) {
    const array *a = at_tenant_array(t, cut.m->array);
    if (a) save_array(f, i, &cut, a);
  }
  one_less(f, AT_OK);
}

// On a thread for files: the manifest, or removing what was written.
static void commit_main(void *arg) {
  filing *f = arg;
  const at_msg_commit *m = (const void *)f->body;
  at_status st = AT_OK;
  if (m->abandon)
    at_save_abandon(m);
  else
    st = at_save_commit(m);
  one_less(f, st);
}

// One task, since it writes one file.
void at_files_commit(host *h, at_bytes body) {
  filing *f = begin(
      h, ((const at_msg_commit *)(const void *)body.ptr)->operation, body);
  at_status st = f ? at_sched_spawn(h->files, commit_main, f) : AT_OK;
  if (st.err) one_less(f, st);
}

// ---- Restoring
// The array is defined in any case, with the error if the file is damaged.
static void read_main(void *arg) {
  work *w = arg;
  filing *f = w->filing;
  at_cuts all = cuts_of(f);
  at_status st = at_tile_read(all.path, &f->manifest, &w->cut, w->tile,
                              at_buffer_data_held(w->buffer));
  at_buffer_define(w->buffer, st.err ? at_status_clone(st) : AT_OK);
  end_work(w, st);
}

// Consumes st: why it cannot be read.
static void start_reads(filing *f, at_status st) {
  for (work *w; (w = f->reads);) {
    f->reads = w->next;
    at_status one = st.err ? at_status_clone(st)
                           : at_sched_spawn(f->host->files, read_main, w);
    if (!one.err) continue;
    at_buffer_define(w->buffer, at_status_clone(one));
    end_work(w, one);
  }
  one_less(f, st);
}

// Reads the manifest, then starts a task for each tile that this host needs.
static void restore_main(void *arg) {
  filing *f = arg;
  start_reads(f, at_manifest_read(cuts_of(f).path, &f->arena, &f->manifest));
}

// A shard that is to be read; or one with an error.
static at_status make_shard(filing *f, uint32_t number, const at_cut *cut,
                            uint32_t shard, at_chip *c, piece *out) {
  int64_t dims[AT_MESSAGE_RANK], tile[AT_MESSAGE_RANK];
  for (uint32_t d = 0; d < cut->dims.rank; d++)
    dims[d] = cut->dims.ptr[d] / cut->tiles[d];
  at_cut_tile(cut, shard, tile);
  const at_dims small = {dims, cut->dims.rank};
  const at_memory_kind kind = (at_memory_kind)cut->m->kind;
  const at_dtype type = (at_dtype)cut->m->dtype;
  *out = (piece){.shard = shard};
  at_status st = at_buffer_create(c, kind, type, small, &out->buffer);
  work *w = st.err ? NULL : make_work(f, out->buffer, number, cut, tile);
  if (w) {
    w->next = f->reads;
    f->reads = w;
    return AT_OK;
  }
  if (!st.err) {
    st = no_memory();
    at_buffer_define(out->buffer, at_status_clone(st));
  }
  return st;
}

// This host's shards of one array. NULL: no memory.
static array *restore_array(filing *f, uint64_t name, uint32_t number,
                            const at_cut *cut) {
  host *h = f->host;
  uint32_t first, own = at_runtime_own_chips(h->runtime, &first), n = 0;
  for (uint32_t s = 0; s < cut->num_shards; s++)
    n += at_cut_chip(cut, s) - first < own;
  array *a = at_array_make(name, n);
  if (!a) return NULL;
  n = 0;
  for (uint32_t s = 0; s < cut->num_shards; s++) {
    uint32_t chip = at_cut_chip(cut, s);
    if (chip - first >= own) continue;
    at_status st = make_shard(f, number, cut, s,
                              at_runtime_chip(h->runtime, chip), &a->here[n++]);
    if (!st.err) continue;
    atomic_fetch_add(&f->left, 1);
    one_less(f, at_status_clone(st));
    at_status_free(a->why);
    a->why = st;
  }
  return a;
}

// Names are entered even where nothing can be read: launches that use them must
// find their error.
void at_files_restore(tenant *t, at_bytes body) {
  const at_msg_files *m = (const void *)body.ptr;
  filing *f = begin(t->host, m->operation, body);
  at_cuts all = at_cuts_of(f ? (at_bytes){f->body, f->bytes} : body);
  at_cut cut;
  for (uint32_t i = 0; at_cuts_next(&all, &cut); i++) {
    array *a = f ? restore_array(f, m->first + i, i, &cut)
                 : at_array_make(m->first + i, 0);
    if (a && !f) a->why = no_memory();
    at_stream_enter(t, a);
  }
  at_status st = f ? at_sched_spawn(t->host->files, restore_main, f) : AT_OK;
  if (st.err) start_reads(f, st);
}

// ---- Looking
static void peek_main(void *arg) {
  filing *f = arg;
  at_status st = at_manifest_read(cuts_of(f).path, &f->arena, &f->manifest);
  if (!st.err) at_manifest_summary(&f->manifest, &f->result);
  one_less(f, st);
}

// Any host can: the folder is the same for all.
void at_files_peek(host *h, at_bytes body) {
  filing *f =
      begin(h, ((const at_msg_files *)(const void *)body.ptr)->operation, body);
  at_status st = f ? at_sched_spawn(h->files, peek_main, f) : AT_OK;
  if (st.err) one_less(f, st);
}

// Waits for what is being written.
void at_files_close(host *h) {
  if (h->files) at_sched_destroy(h->files);
  h->files = NULL;
}
