// The serialised form of a compiled program: a header, then the executable, its
// options, its source and what that was rewritten to.
#include <stdio.h>
#include <stdlib.h>

#include "compile/compile.h"
#include "pjrt/pjrt_internal.h"

#define MAGIC 0x4c41495245535441ull  // "ATSERIAL"
enum { FORMAT = 2 };

// In this machine's byte order: what is serialised is native code anyway.
typedef struct serial_header {
  uint64_t magic;
  uint32_t format, header_bytes;
  at_digest build;
  char chip[64];  // that it was compiled for
  // Bytes of each block, in this order.
  uint64_t executable, options, source, rewritten;
  at_digest checksum;  // of the header without it, then of the blocks
} serial_header;

// Over the header with its checksum zeroed, then over the blocks.
static at_digest checksum_of(const serial_header *h, at_bytes body) {
  serial_header plain = *h;
  plain.checksum = (at_digest){{0}};
  at_digest d = at_digest_start(MAGIC);
  at_digest_add(&d, (at_bytes){(const uint8_t *)&plain, sizeof plain});
  at_digest_add(&d, body);
  return d;
}

// One block: its deleter is free. The build's digest goes along, as another
// build's runtime may read executables otherwise.
AT_API(Executable_Serialize) {
  AT_ARGS(PJRT_Executable_Serialize_Args);
  AT_HANDLE(a->executable);
  const at_pjrt_program *p = a->executable->program;
  serial_header h = {.magic = MAGIC,
                     .format = FORMAT,
                     .header_bytes = sizeof h,
                     .executable = p->executable.len,
                     .options = p->options.len,
                     .source = p->source.len,
                     .rewritten = p->rewritten.len};
  memcpy(h.chip, p->chip, sizeof h.chip);
  AT_PTRY(at_compile_build(&h.build));
  size_t body =
      p->executable.len + p->options.len + p->source.len + p->rewritten.len;
  at_pjrt_blob *b = malloc(sizeof *b + sizeof h + body);
  if (!b) return AT_PFAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  b->size = sizeof h + body;
  char *to = b->bytes + sizeof h, *at = to;
  const at_bytes blocks[] = {p->executable, p->options, p->source,
                             p->rewritten};
  for (size_t i = 0; i < AT_LEN(blocks); at += blocks[i++].len)
    if (blocks[i].len) memcpy(at, blocks[i].ptr, blocks[i].len);
  h.checksum = checksum_of(&h, (at_bytes){(const uint8_t *)to, body});
  memcpy(b->bytes, &h, sizeof h);
  a->serialized_bytes = b->bytes;
  a->serialized_bytes_size = b->size;
  a->serialized_executable = (PJRT_SerializedExecutable *)b;
  a->serialized_executable_deleter =
      (void (*)(PJRT_SerializedExecutable *))free;
  return NULL;
}

#define HINT "\nhint: compile the program again, or serialise it here"

// Is it whole, and one that this library runs on these chips?
static at_status check(const serial_header *h, at_bytes body,
                       const char *chip) {
  at_digest build;
  if (h->magic != MAGIC)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "not an executable that this plug-in serialised");
  if (h->format != FORMAT || h->header_bytes != sizeof *h)
    return AT_FAIL(
        AT_FAILED_PRECONDITION,
        "the serialised executable has format %u, this library reads "
        "format %d" HINT,
        h->format, FORMAT);
  size_t blocks = at_add(at_add(h->executable, h->options),
                         at_add(h->source, h->rewritten));
  if (blocks != body.len || !at_digest_eq(h->checksum, checksum_of(h, body)) ||
      h->chip[63])
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "the serialised executable is damaged: its checksum is wrong");
  AT_TRY(at_compile_build(&build));
  if (!at_digest_eq(h->build, build))
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "the serialised executable is of another build of Atoll "
                   "(%016llx, this is %016llx)" HINT,
                   (unsigned long long)h->build.h[0],
                   (unsigned long long)build.h[0]);
  if (chip && strcmp(h->chip, chip))
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "the serialised executable is for %s, the devices here are "
                   "%s" HINT,
                   h->chip, chip);
  return AT_OK;
}

// The blocks are copied, aligned as the runtime needs them; the caller's bytes
// may go.
at_status at_pjrt_program_read(at_bytes in, at_bytes options_override,
                               const char *chip, at_pjrt_program **out) {
  serial_header h;
  if (in.len < sizeof h)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "not an executable that this plug-in serialised");
  memcpy(&h, in.ptr, sizeof h);
  at_bytes body = {in.ptr + sizeof h, in.len - sizeof h};
  AT_TRY(check(&h, body, chip));
  at_bytes options = {body.ptr + h.executable, h.options};
  at_bytes source = {options.ptr + h.options, h.source};
  at_bytes rewritten = {source.ptr + h.source, h.rewritten};
  if (options_override.len) options = options_override;
  at_bytes x = {0}, o = {0}, s = {0}, r = {0};
  at_status st;
  AT_TRY_GOTO(st, at_pjrt_bytes_copy((at_bytes){body.ptr, h.executable}, &x),
              fail);
  AT_TRY_GOTO(st, at_pjrt_bytes_copy(options, &o), fail);
  AT_TRY_GOTO(st, at_pjrt_bytes_copy(source, &s), fail);
  AT_TRY_GOTO(st, at_pjrt_bytes_copy(rewritten, &r), fail);
  AT_TRY_GOTO(st, at_pjrt_program_create(x, o, s, out), fail);
  (*out)->rewritten = r;
  memcpy((*out)->chip, h.chip, sizeof h.chip);
  return AT_OK;
fail:
  free((void *)x.ptr);
  free((void *)o.ptr);
  free((void *)s.ptr);
  free((void *)r.ptr);
  return st;
}
