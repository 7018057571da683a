// Named objects of a pod, for the Python package (atoll.objects): what it asks
// of control/named.h, with JAX's own buffers.
#include <stdio.h>
#include <stdlib.h>

#include "control/files.h"
#include "control/named.h"
#include "pjrt/pjrt_internal.h"

static int said(at_status st, char *why, size_t why_bytes) {
  if (st.err) snprintf(why, why_bytes, "%s", at_status_message(st));
  return at_code_take(st);
}

// UNIMPLEMENTED, with how to get one: there is no pod.
static at_status find_pod(at_client **out) {
  *out = at_pjrt_pod_now();
  return *out ? AT_OK
              : AT_FAIL(AT_UNIMPLEMENTED,
                        "there is no pod\nhint: `atoll pod up` makes one, "
                        "ATOLL_POD names it, and jax.devices() are its chips");
}

// Bytes of all shards of all arrays, for the accounts of who keeps what.
static uint64_t count_bytes(PJRT_Buffer *const *shards, const uint32_t *counts,
                            uint32_t n) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < n; shards += counts[i++])
    for (uint32_t k = 0; k < counts[i]; k++)
      bytes += at_buffer_bytes(shards[k]->buffer);
  return bytes;
}

// Names the arrays and gives them to the pod; waits for its answer. `moves`:
// the caller's buffers are of no use afterwards.
static at_status keep_arrays(const char *name, const char *label,
                             at_bytes about, PJRT_Buffer *const *shards,
                             const uint32_t *counts, uint32_t n, bool moves) {
  at_client *pod;
  AT_TRY(find_pod(&pod));
  uint64_t *names = malloc((n + 1) * sizeof *names);
  if (!names) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  at_asked *asked = NULL;
  at_status st = at_pjrt_name_arrays(shards, counts, n, names);
  const at_named_keep k = {
      .name = at_str_of(name),
      .label = at_str_of(label),
      .about = about,
      .arrays = names,
      .num_arrays = n,
      .moves = moves,
      .bytes = st.err ? 0 : count_bytes(shards, counts, n)};
  if (!st.err) st = at_named_keep_ask(pod, &k, &asked);
  if (!st.err) st = at_asked_wait(asked, NULL);
  free(names);
  return st;
}

// At the edge to Python: as keep_arrays, with a code and a text.
static int keep(const char *name, const char *label, at_bytes about,
                PJRT_Buffer *const *shards, const uint32_t *counts, uint32_t n,
                bool moves, char *why, size_t why_bytes) {
  return said(keep_arrays(name, label, about, shards, counts, n, moves), why,
              why_bytes);
}

// The answer begins with a at_msg_fetched; what the keeper said of the object
// follows and is left in *text.
static at_status fetch_arrays(const char *name, bool takes, at_strbuf *text,
                              uint64_t *first, uint32_t *count) {
  at_client *pod;
  at_asked *asked;
  AT_TRY(find_pod(&pod));
  AT_TRY(at_named_fetch_ask(pod, at_str_of(name), takes, first, &asked));
  AT_TRY(at_asked_wait(asked, text));
  AT_TRY(at_strbuf_status(text));
  at_msg_fetched m;
  if (text->len < sizeof m)
    return AT_FAIL(AT_INTERNAL, "the controller says too little");
  memcpy(&m, text->ptr, sizeof m);
  *count = (uint32_t)m.num_arrays;
  memmove(text->ptr, text->ptr + sizeof m, text->len - sizeof m + 1);
  text->len -= sizeof m;
  return AT_OK;
}

// The text is the caller's from here on, also on failure: free_text frees it.
static int hand_over(at_status st, at_strbuf *text, char **out_text,
                     size_t *out_bytes, char *why, size_t why_bytes) {
  *out_text = text->ptr;
  *out_bytes = text->len;
  return said(st, why, why_bytes);
}

// As fetch_arrays; the arrays then come by `made` and `adopt`, or are given
// back by `drop`.
static int fetch(const char *name, bool takes, char **out_text,
                 size_t *out_bytes, uint64_t *first, uint32_t *count, char *why,
                 size_t why_bytes) {
  at_strbuf text = {0};
  at_status st = fetch_arrays(name, takes, &text, first, count);
  return hand_over(st, &text, out_text, out_bytes, why, why_bytes);
}

// NOT_FOUND and the like come from the controller.
static int discard(const char *name, char *why, size_t why_bytes) {
  at_client *pod;
  at_asked *asked;
  at_status st = find_pod(&pod);
  if (!st.err) st = at_named_discard_ask(pod, at_str_of(name), &asked);
  if (!st.err) st = at_asked_wait(asked, NULL);
  return said(st, why, why_bytes);
}

// A text of all objects, one a line, from the controller.
static int list(char **out_text, size_t *out_bytes, char *why,
                size_t why_bytes) {
  at_client *pod;
  at_asked *asked;
  at_strbuf text = {0};
  at_status st = find_pod(&pod);
  if (!st.err) st = at_named_list_ask(pod, &asked);
  if (!st.err) st = at_asked_wait(asked, &text);
  return hand_over(st, &text, out_text, out_bytes, why, why_bytes);
}

static void free_text(char *text) { free(text); }

// Numbers of element types are Atoll's, not PJRT's.
static uint32_t dtype(const char *text) {
  for (uint32_t t = AT_INVALID + 1; t < AT_DTYPE_COUNT; t++)
    if (!strcmp(at_dtype_of((at_dtype)t)->text, text)) return t;
  return 0;
}

// Buffers for arrays that a fetch or a restore has named.
static int made(uint64_t first, const at_pjrt_made *all, uint32_t n, char *why,
                size_t why_bytes) {
  PJRT_Client *c = at_pjrt_pod_client();
  return said(c ? at_pjrt_made_begin(c, all, n, first)
                : AT_FAIL(AT_UNIMPLEMENTED, "there is no pod"),
              why, why_bytes);
}

// Arrays that the package cannot use after all.
static void drop(uint64_t first, uint32_t count) {
  at_client *pod = at_pjrt_pod_now();
  if (pod) at_named_drop(pod, first, count);
}

// ---- Checkpoints
// The names are borrowed by the question only until it is sent.
static at_status save_arrays(at_files_ask *f, PJRT_Buffer *const *shards,
                             const uint32_t *counts, at_asked **out) {
  at_client *pod;
  AT_TRY(find_pod(&pod));
  uint64_t *names = malloc((f->num_arrays + 1) * sizeof *names);
  if (!names) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  at_status st = at_pjrt_name_arrays(shards, counts, f->num_arrays, names);
  f->arrays = names;
  if (!st.err) st = at_files_save_ask(pod, f, out);
  free(names);
  return st;
}

// *out is to be waited for by `wait`, or is NULL after a failure. Writing goes
// on meanwhile.
static int save(const char *path, const char *folder, at_bytes about,
                at_bytes cuts, PJRT_Buffer *const *shards,
                const uint32_t *counts, uint32_t n, void **out, char *why,
                size_t why_bytes) {
  at_asked *asked = NULL;
  at_files_ask f = {.path = at_str_of(path),
                    .folder = at_str_of(folder),
                    .about = about,
                    .cuts = cuts,
                    .num_arrays = n};
  at_status st = save_arrays(&f, shards, counts, &asked);
  *out = asked;
  return said(st, why, why_bytes);
}

// The arrays' names begin at *first at once; they are there when `wait` says
// so.
static int restore(const char *path, at_bytes cuts, uint32_t n, uint64_t *first,
                   void **out, char *why, size_t why_bytes) {
  at_client *pod;
  at_asked *asked = NULL;
  const at_files_ask f = {
      .path = at_str_of(path), .cuts = cuts, .num_arrays = n};
  at_status st = find_pod(&pod);
  if (!st.err) st = at_files_restore_ask(pod, &f, first, &asked);
  *out = asked;
  return said(st, why, why_bytes);
}

// What a checkpoint has, without its arrays; *out as restore's.
static int peek(const char *path, void **out, char *why, size_t why_bytes) {
  at_client *pod;
  at_asked *asked = NULL;
  at_status st = find_pod(&pod);
  if (!st.err) st = at_files_peek_ask(pod, at_str_of(path), &asked);
  *out = asked;
  return said(st, why, why_bytes);
}

// Consumes `asked`.
static int wait_for(void *asked, char **out_text, size_t *out_bytes, char *why,
                    size_t why_bytes) {
  at_strbuf text = {0};
  at_status st = at_asked_wait(asked, &text);
  return hand_over(st, &text, out_text, out_bytes, why, why_bytes);
}

const at_pjrt_named_calls at_pjrt_named = {
    keep, fetch, discard, list, free_text, dtype, made, at_pjrt_made_adopt,
    drop, save,  restore, peek, wait_for};
