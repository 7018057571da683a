// Host callbacks of a launch: JAX's send and receive callbacks as exec's host
// channels, and the stream through which a receive callback hands over its
// data.
#include <pthread.h>
#include <stdlib.h>

#include "pjrt/pjrt_internal.h"

#define NO_MEMORY() AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory")

// The way by which a receive callback hands over bytes, in chunks, until
// `total` of them are there. The lock is for callbacks that add from several
// threads.
struct PJRT_CopyToDeviceStream {
  void *vtable;
  pthread_mutex_t lock;
  char *dst;
  size_t total, current;
  at_event *done;  // one reference; NULL once fired
};

// A channel's callbacks: one of the two, or both where a send and a receive
// have one id.
typedef struct endpoint {
  PJRT_SendCallbackInfo send;
  PJRT_RecvCallbackInfo recv;
} endpoint;

// The deleter of a chunk that channel_send copied.
static void free_data(void *data, void *arg) {
  (void)arg;
  free(data);
}

// JAX says INTERNAL of a callback that raises, which whoever watches a job
// takes for the loss of a device.
static at_status of_callback(at_status st) {
  if (at_status_code(st) != AT_INTERNAL) return st;
  at_status other = AT_FAIL(AT_UNKNOWN, "%s", at_status_message(st));
  at_status_free(st);
  return other;
}

// The client keeps a chunk beyond the call and frees it by its deleter, so it
// gets its own copy.
static at_status channel_send(void *user, const void *data, size_t bytes,
                              size_t total, bool done) {
  const endpoint *e = user;
  if (!e->send.send_callback)
    return AT_FAIL(AT_INVALID_ARGUMENT, "the channel has no send callback");
  void *copy = malloc(bytes ? bytes : 1);
  if (!copy) return NO_MEMORY();
  if (bytes) memcpy(copy, data, bytes);
  PJRT_Chunk chunk = {copy, bytes, free_data, NULL};
  return of_callback(at_pjrt_error_take(e->send.send_callback(
      &chunk, &at_pjrt_callback_error, total, done, e->send.user_arg)));
}

// Asks the callback for `bytes` bytes at dst; `done` fires when the stream has
// got them all, or is destroyed before.
static at_status channel_recv(void *user, void *dst, size_t bytes,
                              at_event *done) {
  const endpoint *e = user;
  if (!e->recv.recv_callback)
    return AT_FAIL(AT_INVALID_ARGUMENT, "the channel has no receive callback");
  PJRT_CopyToDeviceStream *s = calloc(1, sizeof *s);
  if (!s) return NO_MEMORY();
  pthread_mutex_init(&s->lock, NULL);
  s->dst = dst;
  s->total = bytes;
  s->done = at_event_retain(done);
  e->recv.recv_callback(s, e->recv.user_arg);  // owns the stream from here
  return AT_OK;
}

// Fires the event once; a second call only frees its status. Under the lock, or
// when nobody else has the stream.
static void stream_finish(PJRT_CopyToDeviceStream *s, at_status st) {
  at_event *done = s->done;
  s->done = NULL;
  if (!done) {
    at_status_free(st);
    return;
  }
  at_event_fire(done, st);
  at_event_release(done);
}

// A stream that ends short of its bytes fails the launch with INVALID_ARGUMENT.
AT_API(CopyToDeviceStream_Destroy) {
  AT_ARGS(PJRT_CopyToDeviceStream_Destroy_Args);
  PJRT_CopyToDeviceStream *s = a->stream;
  if (!s) return NULL;
  if (s->done)
    stream_finish(s, s->current == s->total
                         ? AT_OK
                         : AT_FAIL(AT_INVALID_ARGUMENT,
                                   "a host callback returned %zu of %zu bytes",
                                   s->current, s->total));
  pthread_mutex_destroy(&s->lock);
  free(s);
  return NULL;
}

// INVALID_ARGUMENT: more bytes than are wanted; nothing of the chunk is taken
// then. The chunk's last byte finishes the stream.
static at_status stream_add(PJRT_CopyToDeviceStream *s, const PJRT_Chunk *c) {
  if (c->size && !c->data)
    return AT_FAIL(AT_INVALID_ARGUMENT, "the chunk's data is NULL");
  pthread_mutex_lock(&s->lock);
  at_status st = AT_OK;
  if (c->size > s->total - s->current) {
    st = AT_FAIL(AT_INVALID_ARGUMENT,
                 "adding a chunk of %zu bytes would overflow the buffer of %zu "
                 "bytes (%zu already transferred)",
                 c->size, s->total, s->current);
  } else {
    if (c->size) memcpy(s->dst + s->current, c->data, c->size);
    s->current += c->size;
    if (s->current == s->total) stream_finish(s, AT_OK);
  }
  pthread_mutex_unlock(&s->lock);
  return st;
}

// The chunk is consumed, also on failure. Its transfer is complete when this
// returns, so the event has fired.
AT_API(CopyToDeviceStream_AddChunk) {
  AT_ARGS(PJRT_CopyToDeviceStream_AddChunk_Args);
  AT_HANDLE(a->stream);
  AT_HANDLE(a->chunk);
  at_status st = stream_add(a->stream, a->chunk);
  if (a->chunk->deleter)
    a->chunk->deleter(a->chunk->data, a->chunk->deleter_arg);
  return at_pjrt_error(at_pjrt_event_fired(st, &a->transfer_complete));
}

// How many bytes the callback has to bring.
AT_API(CopyToDeviceStream_TotalBytes) {
  AT_ARGS(PJRT_CopyToDeviceStream_TotalBytes_Args);
  AT_HANDLE(a->stream);
  a->total_bytes = (int64_t)a->stream->total;
  return NULL;
}

// Chunks may have any size.
AT_API(CopyToDeviceStream_GranuleSize) {
  AT_ARGS(PJRT_CopyToDeviceStream_GranuleSize_Args);
  AT_HANDLE(a->stream);
  a->granule_size_in_bytes = 1;
  return NULL;
}

// How many of them it has brought.
AT_API(CopyToDeviceStream_CurrentBytes) {
  AT_ARGS(PJRT_CopyToDeviceStream_CurrentBytes_Args);
  AT_HANDLE(a->stream);
  pthread_mutex_lock(&a->stream->lock);
  a->current_bytes = (int64_t)a->stream->current;
  pthread_mutex_unlock(&a->stream->lock);
  return NULL;
}

// One channel for each id that either list names.
at_status at_pjrt_channels_create(const PJRT_ExecuteOptions *o, size_t device,
                                  at_pjrt_channels *out) {
  *out = (at_pjrt_channels){0};
  size_t sends = o->num_send_ops, recvs = o->num_recv_ops;
  if (AT_LIKELY(sends + recvs == 0)) return AT_OK;
  if ((sends && (!o->send_callbacks || !o->send_callbacks[device])) ||
      (recvs && (!o->recv_callbacks || !o->recv_callbacks[device])) ||
      sends > UINT16_MAX || recvs > UINT16_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "send_callbacks or recv_callbacks is NULL or too long");
  size_t n = sends + recvs;
  char *block = calloc(n, sizeof(at_host_channel) + sizeof(endpoint));
  if (!block) return NO_MEMORY();
  at_host_channel *channels = (at_host_channel *)block;
  endpoint *ends = (endpoint *)(channels + n);
  uint32_t count = 0;
  for (size_t i = 0; i < n; i++) {
    int64_t id = i < sends ? o->send_callbacks[device][i].channel_id
                           : o->recv_callbacks[device][i - sends].channel_id;
    uint32_t at = 0;
    while (at < count && channels[at].channel_id != id) at++;
    AT_ASSERT(at < n);
    if (at == count) {
      channels[at] = (at_host_channel){.channel_id = id, .user = &ends[at]};
      count++;
    }
    if (i < sends) {
      ends[at].send = o->send_callbacks[device][i];
      channels[at].send = channel_send;
    } else {
      ends[at].recv = o->recv_callbacks[device][i - sends];
      channels[at].recv = channel_recv;
    }
  }
  *out = (at_pjrt_channels){channels, count, block};
  return AT_OK;
}

// An at_event callback: a launch has ended, with or without an error, and its
// channels are not called any more.
static void free_block(at_status s, void *arg) {
  at_status_free(s);
  free(arg);
}

// The launch may call the channels until `done` fires, so their memory goes
// with that event.
void at_pjrt_channels_release(at_pjrt_channels *c, at_event *done) {
  if (!c->block) return;
  if (done) {
    at_status st = at_event_on(done, free_block, c->block);
    if (!at_ok(st)) {
      // No memory to be told: wait instead.
      at_status_free(st);
      at_status_free(at_event_wait(done));
      free(c->block);
    }
  } else {
    free(c->block);
  }
  *c = (at_pjrt_channels){0};
}
