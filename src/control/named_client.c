// What a client asks of the controller: named objects and checkpoints.
#include "control/named.h"

#include <stdlib.h>

#include "control/client_internal.h"
#include "control/cut.h"
#include "control/files.h"

struct at_asked {
  at_event *done;
  at_strbuf reply;
};

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a question to the pod");
}

// A question whose answer is collected in *out. On failure nothing is left.
static at_status begin(at_client *c, uint64_t *tag, at_asked **out) {
  at_asked *a = calloc(1, sizeof *a);
  if (a) a->done = at_event_create();
  if (!a || !a->done) return free(a), no_memory();
  at_status st = at_question_begin(c, &a->reply, at_event_retain(a->done), tag);
  if (st.err) {
    at_event_release(a->done);
    free(a);
    return st;
  }
  *out = a;
  return AT_OK;
}

// The question was not sent: nobody will answer it.
static void forget(at_client *c, uint64_t tag, at_asked *a) {
  at_question_forget(c, tag);
  at_event_release(a->done);
  free(a);
}

// Sends the question of that tag; on success *out is a, otherwise a is freed.
static at_status send(at_client *c, uint32_t kind, uint64_t tag,
                      const at_bytes *parts, uint32_t n, at_asked *a,
                      at_asked **out) {
  at_status st = at_client_say(c, kind, parts, n);
  if (st.err)
    forget(c, tag, a);
  else
    *out = a;
  return st;
}

static at_bytes bytes_of(at_str s) {
  return (at_bytes){(const uint8_t *)s.ptr, s.len};
}

// INVALID_ARGUMENT; `what`: a name, or a label.
static at_status check_name(at_str name, const char *what) {
  if (at_message_name_is_good(bytes_of(name))) return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "a %s is 1 to %u bytes without control characters", what,
                 (unsigned)AT_MESSAGE_NAME);
}

// Everything is checked here as well as by the controller, so that a mistake is
// an error of the call and does not cost the whole client.
at_status at_named_keep_ask(at_client *c, const at_named_keep *k,
                            at_asked **out) {
  AT_TRY(check_name(k->name, "name"));
  if (k->label.len) AT_TRY(check_name(k->label, "label"));
  if (!k->num_arrays || k->num_arrays > AT_MESSAGE_OBJECT)
    return AT_FAIL(AT_INVALID_ARGUMENT, "an object has 1 to %u arrays, not %u",
                   (unsigned)AT_MESSAGE_OBJECT, k->num_arrays);
  if (k->about.len > AT_MESSAGE_ABOUT)
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "what is said about an object has %zu bytes; %u are the most",
        k->about.len, (unsigned)AT_MESSAGE_ABOUT);
  at_asked *a;
  at_msg_keep m = {.bytes = k->bytes,
                   .num_arrays = k->num_arrays,
                   .flags = k->moves ? AT_MSG_KEEP_MOVES : 0,
                   .name_bytes = (uint32_t)k->name.len,
                   .label_bytes = (uint32_t)k->label.len,
                   .about_bytes = (uint32_t)k->about.len};
  AT_TRY(begin(c, &m.tag, &a));
  const at_bytes parts[] = {
      {(const uint8_t *)&m, sizeof m},
      {(const uint8_t *)k->arrays, k->num_arrays * sizeof *k->arrays},
      bytes_of(k->name),
      bytes_of(k->label),
      k->about};
  return send(c, AT_MSG_KEEP, m.tag, parts, AT_LEN(parts), a, out);
}

// FETCH, DISCARD or OBJECTS. m: without tag and length.
static at_status ask_named(at_client *c, uint32_t kind, at_str name,
                           at_msg_named m, at_asked **out) {
  at_asked *a;
  if (kind != AT_MSG_OBJECTS) AT_TRY(check_name(name, "name"));
  m.name_bytes = (uint32_t)name.len;
  AT_TRY(begin(c, &m.tag, &a));
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m}, bytes_of(name)};
  return send(c, kind, m.tag, parts, AT_LEN(parts), a, out);
}

at_status at_named_fetch_ask(at_client *c, at_str name, bool takes,
                             uint64_t *first, at_asked **out) {
  // Nobody knows yet how many there are; names cost nothing.
  *first = c->face.names(c, AT_MESSAGE_OBJECT);
  return ask_named(
      c, AT_MSG_FETCH, name,
      (at_msg_named){.first = *first, .flags = takes ? AT_MSG_FETCH_TAKES : 0},
      out);
}

void at_named_drop(at_client *c, uint64_t first, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) at_client_drop(c, first + i);
}

at_status at_named_discard_ask(at_client *c, at_str name, at_asked **out) {
  return ask_named(c, AT_MSG_DISCARD, name, (at_msg_named){0}, out);
}

at_status at_named_list_ask(at_client *c, at_asked **out) {
  return ask_named(c, AT_MSG_OBJECTS, AT_STR(""), (at_msg_named){0}, out);
}

// On failure nothing is appended. a is freed in any case.
at_status at_asked_wait(at_asked *a, at_strbuf *out) {
  at_status st = at_event_wait(a->done);
  if (!st.err) st = at_strbuf_status(&a->reply);
  if (!st.err && out) at_strbuf_add(out, at_strbuf_str(&a->reply));
  at_event_release(a->done);
  at_strbuf_free(&a->reply);
  free(a);
  return st;
}

// ---- Checkpoints
// The whole message; its tag is put in before it goes.
static at_status files_body(const at_files_ask *f, uint64_t first,
                            at_strbuf *out) {
  static const char zeros[8] = {0};
  at_msg_files m = {.first = first,
                    .num_arrays = f->num_arrays,
                    .path_bytes = (uint32_t)AT_MIN(f->path.len, UINT32_MAX),
                    .folder_bytes = (uint32_t)AT_MIN(f->folder.len, UINT32_MAX),
                    .about_bytes = (uint32_t)AT_MIN(f->about.len, UINT32_MAX)};
  at_strbuf_add(out, (at_str){(const char *)&m, sizeof m});
  at_strbuf_add(out, f->path);
  at_strbuf_add(out, f->folder);
  at_strbuf_add(out, (at_str){(const char *)f->about.ptr, f->about.len});
  at_strbuf_add(out, (at_str){zeros, at_align_up(out->len, 8) - out->len});
  size_t head = out->len;
  at_strbuf_add(out, (at_str){(const char *)f->cuts.ptr, f->cuts.len});
  AT_TRY(at_strbuf_status(out));
  at_bytes rest = {(const uint8_t *)out->ptr + head, f->cuts.len};
  for (uint32_t i = 0; f->arrays && i < f->num_arrays; i++) {
    at_cut cut;
    size_t bytes;
    if (!at_cut_read(rest, &bytes, &cut)) break;  // the check finds it
    ((at_msg_cut *)(uintptr_t)cut.m)->array = f->arrays[i];
    rest = (at_bytes){rest.ptr + bytes, rest.len - bytes};
  }
  return AT_OK;
}

// The body is checked before it is sent: what the controller would end the
// client for is an error of this call.
static at_status ask_files(at_client *c, uint32_t kind, const at_files_ask *f,
                           uint64_t first, at_asked **out) {
  at_strbuf body = {0};
  at_asked *a = NULL;
  uint64_t tag;
  at_status st = files_body(f, first, &body);
  const at_bytes part = {(const uint8_t *)body.ptr, body.len};
  if (!st.err && !at_cuts_are_good(kind, part))
    st = AT_FAIL(
        AT_INVALID_ARGUMENT,
        "the folder %.*s, or an array that is to be saved there or restored, "
        "cannot be\nhint: the path is absolute and without `..`, names of "
        "arrays have at most %u bytes, and shards have one size",
        (int)AT_MIN(f->path.len, (size_t)AT_MESSAGE_PATH), f->path.ptr,
        (unsigned)AT_MESSAGE_NAME);
  if (!st.err) st = begin(c, &tag, &a);
  if (!st.err) {
    ((at_msg_files *)(void *)body.ptr)->tag = tag;
    st = send(c, kind, tag, &part, 1, a, out);
  }
  at_strbuf_free(&body);
  return st;
}

// f's parts are copied into the message.
at_status at_files_save_ask(at_client *c, const at_files_ask *f,
                            at_asked **out) {
  return ask_files(c, AT_MSG_SAVE, f, 0, out);
}

// Names are given out before anybody knows how many arrays there are.
at_status at_files_restore_ask(at_client *c, const at_files_ask *f,
                               uint64_t *first, at_asked **out) {
  *first = c->face.names(c, AT_MESSAGE_OBJECT);
  return ask_files(c, AT_MSG_RESTORE, f, *first, out);
}

at_status at_files_peek_ask(at_client *c, at_str path, at_asked **out) {
  return ask_files(c, AT_MSG_PEEK, &(at_files_ask){.path = path}, 0, out);
}
