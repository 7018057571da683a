// A compiled program with what PJRT asks about it, computed once; its
// compiling.
#include <stdio.h>
#include <stdlib.h>

#include "pjrt/pjrt_internal.h"

#define NO_MEMORY() AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory")

// With a zero behind the bytes, for clients that take them for a string.
at_pjrt_blob *at_pjrt_blob_copy(const void *p, size_t n) {
  at_pjrt_blob *b = malloc(sizeof *b + n + 1);
  if (!b) return NULL;
  b->size = n;
  if (n) memcpy(b->bytes, p, n);
  b->bytes[n] = 0;
  return b;
}

// ---- Reading the executable's block

// Section `s`, or NULL; checked against the block's end.
static const void *section(at_bytes block, at_xsection s, size_t element,
                           uint64_t *out_count) {
  const at_xheader *h = (const at_xheader *)block.ptr;
  at_xspan span = h->sections[s];
  *out_count = 0;
  if (span.count == 0 || span.offset > block.len || span.offset % 64 ||
      at_mul(span.count, element) > block.len - span.offset)
    return NULL;
  *out_count = span.count;
  return block.ptr + span.offset;
}

// "" when the offset is behind the table, or no zero follows.
static const char *string(at_bytes block, uint32_t offset) {
  uint64_t n;
  const char *s = section(block, AT_XS_STRINGS, 1, &n);
  if (!s || offset >= n || !memchr(s + offset, 0, n - offset)) return "";
  return s + offset;
}

const char *at_pjrt_program_string(const at_pjrt_program *p, uint32_t offset) {
  return string(p->executable, offset);
}

// INVALID_ARGUMENT: no executable, of another version, or cut short. The rest
// of the block is checked section by section when it is read.
static at_status check_header(at_bytes block) {
  const at_xheader *h = (const at_xheader *)block.ptr;
  if (block.len < sizeof *h || h->magic != AT_EXECUTABLE_MAGIC)
    return AT_FAIL(AT_INVALID_ARGUMENT, "not an executable of this plug-in");
  if (h->version != AT_EXECUTABLE_VERSION)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "the executable has version %u, this plug-in runs version "
                   "%d\nhint: compile the program again",
                   h->version, AT_EXECUTABLE_VERSION);
  if (h->total_bytes > block.len)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "the executable is cut short: %zu of %llu bytes", block.len,
                   (unsigned long long)h->total_bytes);
  return AT_OK;
}

// *dims borrows from the block. INVALID_ARGUMENT: the index, or what it leads
// to, lies outside.
static at_status type_of(at_bytes block, uint32_t index, at_dtype *dtype,
                         at_dims *dims) {
  uint64_t num_types, num_dims;
  const at_xtype *types =
      section(block, AT_XS_TYPES, sizeof *types, &num_types);
  const int64_t *all = section(block, AT_XS_DIMS, sizeof *all, &num_dims);
  if (!types || index >= num_types || types[index].dtype >= AT_DTYPE_COUNT ||
      types[index].dims > num_dims ||
      types[index].rank > num_dims - types[index].dims ||
      types[index].rank > AT_PJRT_MAX_RANK)
    return AT_FAIL(AT_INVALID_ARGUMENT, "the executable has a bad type index");
  *dtype = (at_dtype)types[index].dtype;
  *dims = (at_dims){all ? all + types[index].dims : NULL, types[index].rank};
  return AT_OK;
}

// What of the program's arguments and results is the host's.
static at_status count_host_bytes(at_pjrt_program *p, const at_xio *io,
                                  uint32_t n, bool outputs) {
  uint64_t num_types;
  const at_xtype *types =
      section(p->executable, AT_XS_TYPES, sizeof *types, &num_types);
  const char *device = at_memory_kind_name(AT_MEM_DEVICE);
  for (uint32_t i = 0; i < n; i++) {
    if (!types || io[i].type >= num_types)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "the executable has a bad type index");
    const char *kind = outputs ? p->output_kinds[i] : p->input_kinds[i];
    if (strcmp(kind, device) == 0) continue;
    size_t *host = outputs ? &p->host_output_bytes : &p->host_input_bytes;
    *host = at_add(*host, types[io[i].type].bytes);
  }
  return AT_OK;
}

// Fills types and dimensions of the results; the dimensions of all are one
// list.
static at_status read_outputs(at_pjrt_program *p, const at_xio *io) {
  size_t total = 0;
  at_dtype dtype;
  at_dims dims;
  for (uint32_t i = 0; i < p->num_outputs; i++) {
    AT_TRY(type_of(p->executable, io[i].type, &dtype, &dims));
    total += dims.rank;
  }
  p->output_dims = calloc(total + 1, sizeof *p->output_dims);
  if (!p->output_dims) return NO_MEMORY();
  const size_t room = total;
  total = 0;
  for (uint32_t i = 0; i < p->num_outputs; i++) {
    AT_TRY(type_of(p->executable, io[i].type, &dtype, &dims));
    p->output_types[i] = at_pjrt_type(dtype);
    p->output_ranks[i] = dims.rank;
    AT_ASSERT(dims.rank <= room - total);
    if (dims.rank)
      memcpy(p->output_dims + total, dims.ptr, dims.rank * sizeof *dims.ptr);
    total += dims.rank;
    p->layouts[p->num_inputs + i].rank = dims.rank;
  }
  return AT_OK;
}

// Memory kinds by name, as clients want them; one that is not said is the
// device's.
static void read_kinds(at_bytes block, const at_xio *io, uint32_t n,
                       const char **kinds, size_t *kind_sizes) {
  for (uint32_t i = 0; i < n; i++) {
    kinds[i] = io[i].memory_kind ? string(block, io[i].memory_kind)
                                 : at_memory_kind_name(AT_MEM_DEVICE);
    kind_sizes[i] = strlen(kinds[i]);
  }
}

// Programs of one partition have none, which clients are told by NULL.
static at_status fill_shardings(at_pjrt_program *p, const at_xio *in,
                                const at_xio *out) {
  if (p->header->num_partitions == 1) return AT_OK;
  size_t n = (size_t)p->num_inputs + p->num_outputs;
  p->shardings = calloc(n + 1, sizeof *p->shardings);
  p->sharding_sizes = calloc(n + 1, sizeof *p->sharding_sizes);
  if (!p->shardings || !p->sharding_sizes) return NO_MEMORY();
  AT_TRY(at_pjrt_shardings_fill(p, in, p->num_inputs, p->shardings,
                                p->sharding_sizes));
  return at_pjrt_shardings_fill(p, out, p->num_outputs,
                                p->shardings + p->num_inputs,
                                p->sharding_sizes + p->num_inputs);
}

// Everything that clients may ask for is made here, once, so that questions
// take no lock and cannot fail. On failure program_free frees what there is.
static at_status program_fill(at_pjrt_program *p) {
  AT_TRY(check_header(p->executable));
  p->header = (const at_xheader *)p->executable.ptr;
  snprintf(p->fingerprint, sizeof p->fingerprint, "%016llx%016llx",
           (unsigned long long)p->header->fingerprint[0],
           (unsigned long long)p->header->fingerprint[1]);
  uint64_t ni, no, np;
  const at_xio *in = section(p->executable, AT_XS_INPUTS, sizeof *in, &ni);
  const at_xio *out = section(p->executable, AT_XS_OUTPUTS, sizeof *out, &no);
  const at_xproperty *props =
      section(p->executable, AT_XS_PROPERTIES, sizeof *props, &np);
  if (ni + no > 1 << 24)
    return AT_FAIL(AT_INVALID_ARGUMENT, "the executable has %llu arguments",
                   (unsigned long long)ni);
  p->num_inputs = (uint32_t)ni;
  p->num_outputs = (uint32_t)no;
  p->num_properties = (uint32_t)np;
  p->output_types = calloc(no + 1, sizeof *p->output_types);
  p->output_ranks = calloc(no + 1, sizeof *p->output_ranks);
  p->output_kinds = calloc(ni + no + 1, sizeof(char *));
  p->output_kind_sizes = calloc(ni + no + 1, sizeof(size_t));
  p->properties = calloc(np + 1, sizeof *p->properties);
  p->layouts = calloc(ni + no + 1, sizeof *p->layouts);
  p->layout_pointers = calloc(ni + no + 1, sizeof(void *));
  if (!p->output_types || !p->output_ranks || !p->output_kinds ||
      !p->output_kind_sizes || !p->properties || !p->layouts ||
      !p->layout_pointers)
    return NO_MEMORY();
  p->input_kinds = p->output_kinds + no;
  p->input_kind_sizes = p->output_kind_sizes + no;
  read_kinds(p->executable, in, p->num_inputs, p->input_kinds,
             p->input_kind_sizes);
  read_kinds(p->executable, out, p->num_outputs, p->output_kinds,
             p->output_kind_sizes);
  for (uint64_t i = 0; i < ni + no; i++) p->layout_pointers[i] = &p->layouts[i];
  for (uint32_t i = 0; i < p->num_inputs; i++) {
    at_dtype dtype;
    at_dims dims;
    AT_TRY(type_of(p->executable, in[i].type, &dtype, &dims));
    p->layouts[i].rank = dims.rank;
    p->layouts[i].text =
        at_pjrt_layout_keep(string(p->executable, in[i].layout));
  }
  for (uint32_t i = 0; i < p->num_outputs; i++)
    p->layouts[ni + i].text =
        at_pjrt_layout_keep(string(p->executable, out[i].layout));
  for (uint64_t i = 0; i < np; i++)
    at_pjrt_named_float(&p->properties[i], string(p->executable, props[i].name),
                        (float)props[i].value);
  const at_xheader *h = p->header;
  p->device_bytes = h->hbm_argument_bytes + h->hbm_output_bytes -
                    h->hbm_alias_bytes + h->hbm_temp_bytes + h->sparse_bytes;
  AT_TRY(count_host_bytes(p, in, p->num_inputs, false));
  AT_TRY(count_host_bytes(p, out, p->num_outputs, true));
  AT_TRY(fill_shardings(p, in, out));
  return read_outputs(p, out);
}

// Without the three blocks, which are the caller's until at_pjrt_program_create
// has succeeded.
static void program_free(at_pjrt_program *p) {
  at_pjrt_options_free(&p->parsed);
  free(p->output_types);
  free(p->output_dims);
  free(p->output_ranks);
  free(p->output_kinds);
  free(p->output_kind_sizes);
  for (size_t i = 0; p->shardings && i < (size_t)p->num_inputs + p->num_outputs;
       i++)
    free((void *)p->shardings[i]);
  free(p->shardings);
  free(p->sharding_sizes);
  free(p->properties);
  free(p->layouts);
  free(p->layout_pointers);
  free(p);
}

at_status at_pjrt_program_create(at_bytes executable, at_bytes options,
                                 at_bytes source, at_pjrt_program **out) {
  at_pjrt_program *p = calloc(1, sizeof *p);
  if (!p) return NO_MEMORY();
  atomic_init(&p->references, 1);
  p->executable = executable;
  p->options = options;
  p->source = source;
  at_status st = at_pjrt_options_parse(options, &p->parsed);
  if (at_ok(st)) st = program_fill(p);
  if (!at_ok(st)) {
    program_free(p);
    return st;
  }
  *out = p;
  return AT_OK;
}

at_pjrt_program *at_pjrt_program_retain(at_pjrt_program *p) {
  atomic_fetch_add_explicit(&p->references, 1, memory_order_relaxed);
  return p;
}

// The release is no relaxed one: who frees must see what others have written.
void at_pjrt_program_release(at_pjrt_program *p) {
  if (!p || atomic_fetch_sub(&p->references, 1) != 1) return;
  free((void *)p->executable.ptr);
  free((void *)p->options.ptr);
  free((void *)p->source.ptr);
  free((void *)p->rewritten.ptr);
  free(atomic_load(&p->shown));
  program_free(p);
}

// ---- Compiling

// 64 bytes: what sections of an executable are aligned to.
at_status at_pjrt_bytes_copy(at_bytes b, at_bytes *out) {
  uint8_t *p = aligned_alloc(64, at_align_up(b.len + 1, 64));
  if (!p) return NO_MEMORY();
  if (b.len) memcpy(p, b.ptr, b.len);
  *out = (at_bytes){p, b.len};
  return AT_OK;
}

// The format that `import` or `hloproto` reads. INVALID_ARGUMENT: another one,
// or no program.
static at_status check_program(const PJRT_Program *p, at_program_format *out) {
  if (!p) return AT_FAIL(AT_INVALID_ARGUMENT, "program is NULL");
  if (p->struct_size < PJRT_Program_STRUCT_SIZE)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "PJRT_Program: struct_size is %zu, expected at least %d",
                   p->struct_size, PJRT_Program_STRUCT_SIZE);
  at_str format = {p->format, p->format ? p->format_size : 0};
  if (!p->code || !p->code_size)
    return AT_FAIL(AT_INVALID_ARGUMENT, "the program is empty");
  if (at_str_is(format, "hlo"))
    *out = AT_PROGRAM_HLO;
  else if (at_str_is(format, "hlo_with_config"))
    *out = AT_PROGRAM_HLO_WITH_CONFIG;
  else if (at_str_is(format, "mlir"))
    *out = AT_PROGRAM_ANY;
  else
    return AT_FAIL(AT_INVALID_ARGUMENT, "unknown program format \"%.*s\"",
                   (int)AT_MIN(format.len, 64u), format.ptr ? format.ptr : "");
  return AT_OK;
}

// The program at a stage; *out: owned, NULL where it has no such form.
static void show(const at_pjrt_program *p, at_stage stage, at_pjrt_blob **out) {
  at_strbuf b = {0};
  size_t n = (size_t)p->num_inputs + p->num_outputs;
  at_str *shardings = p->shardings ? calloc(n + 1, sizeof *shardings) : NULL;
  for (size_t i = 0; shardings && i < n; i++)
    shardings[i] = (at_str){p->shardings[i], p->sharding_sizes[i]};
  at_compile_options o = {
      .request = p->options,
      .rewritten = p->rewritten,
      .dump_dir = "",
      .param_shardings = shardings,
      .result_shardings = shardings ? shardings + p->num_inputs : NULL};
  at_status st = at_compile_dump(p->source, &o, stage, &b);
  if (at_ok(st)) st = at_strbuf_status(&b);
  *out = at_code_take(st) ? NULL : at_pjrt_blob_copy(b.ptr, b.len);
  at_strbuf_free(&b);
  free(shardings);
}

at_str at_pjrt_program_text(at_pjrt_program *p, const char **format) {
  at_str source = {(const char *)p->source.ptr, p->source.len};
  *format = "mlir";
  if (!source.len) return source;
  // Lookups that quantise are shown with their tables' types.
  bool quantised = memmem(source.ptr, source.len, "quantization_config", 19);
  at_pjrt_blob *blob = atomic_load(&p->shown);
  if (!blob) {
    show(p, quantised ? AT_STAGE_STABLEHLO : AT_STAGE_XLA, &blob);
    if (!blob) return source;  // an op without a form there
    at_pjrt_blob *was = NULL;
    if (!atomic_compare_exchange_strong(&p->shown, &was, blob)) {
      free(blob);  // another thread was faster
      blob = was;
    }
  }
  if (!quantised) *format = "hlo_with_config";
  return (at_str){(const char *)blob->bytes, blob->size};
}

// Options are read twice: once to fail early, and again for the program that
// keeps them.
at_status at_pjrt_compile(const PJRT_Program *program, at_bytes options,
                          const PJRT_TopologyDescription *t,
                          at_pjrt_program **out) {
  at_program_format format;
  AT_TRY(check_program(program, &format));
  if (options.len && !options.ptr)
    return AT_FAIL(AT_INVALID_ARGUMENT, "compile_options is NULL");
  at_bytes source = {(const uint8_t *)program->code, program->code_size};
  at_bytes executable = {0}, options_copy = {0}, source_copy = {0};
  at_compile_options o = {
      .format = format, .request = options, .interrupted = at_pjrt_interrupted};
  // Before the work of compiling: options that are wrong are the cheaper error.
  at_pjrt_options parsed;
  AT_TRY(at_pjrt_options_parse(options, &parsed));
  at_pjrt_options_free(&parsed);
  at_status st;
  AT_TRY_GOTO(st, at_pjrt_bytes_copy(options, &options_copy), fail);
  AT_TRY_GOTO(st, at_pjrt_bytes_copy(source, &source_copy), fail);
  AT_TRY_GOTO(st, at_pjrt_rewrite(source, &o, &o.rewritten), fail);
  AT_TRY_GOTO(st, at_compile(source, &o, &executable), fail);
  AT_TRY_GOTO(st, at_pjrt_pod_predict(source, executable), fail);
  AT_TRY_GOTO(
      st, at_pjrt_program_create(executable, options_copy, source_copy, out),
      fail);
  (*out)->rewritten = o.rewritten;
  snprintf((*out)->chip, sizeof(*out)->chip, "%s", at_pjrt_topology_chip(t));
  return AT_OK;
fail:
  free((void *)executable.ptr);
  free((void *)options_copy.ptr);
  free((void *)source_copy.ptr);
  free((void *)o.rewritten.ptr);
  return st;
}
