// Device descriptions and topologies: of the live client, or of a target that
// is only named ("v5e:2x2"), for compiling ahead of time.
#include <stdio.h>
#include <stdlib.h>

#include "pjrt/pjrt_internal.h"

// What serialisation writes for each chip, after the line TOPOLOGY_MAGIC.
#define TOPOLOGY_MAGIC "atoll topology 2\n"
typedef struct chip_record {
  uint32_t id, slice_index, core_on_chip, num_cores, process, pad;
  int64_t coords[3];
  uint64_t hbm_bytes, vmem_bytes, smem_bytes;
  char kind[64], target[32];
} chip_record;

// The texts are those of JAX's TPU devices, as programs parse them. The names
// point into d, which must not move.
static void description_set(PJRT_DeviceDescription *d, const chip_record *r) {
  snprintf(d->kind, sizeof d->kind, "%.*s", (int)sizeof r->kind - 1, r->kind);
  snprintf(d->target, sizeof d->target, "%.*s", (int)sizeof r->target - 1,
           r->target);
  d->info = (at_chip_info){.id = r->id,
                           .slice_index = r->slice_index,
                           .core_on_chip = r->core_on_chip,
                           .num_cores = r->num_cores,
                           .host = r->process,
                           .coords = {r->coords[0], r->coords[1], r->coords[2]},
                           .kind = d->kind,
                           .target = d->target,
                           .hbm_bytes = r->hbm_bytes,
                           .vmem_bytes = r->vmem_bytes,
                           .smem_bytes = r->smem_bytes};
  snprintf(d->debug_string, sizeof d->debug_string,
           "TPU_%u(process=%u,(%lld,%lld,%lld,%u),%s on Atoll)", r->id,
           r->process, (long long)r->coords[0], (long long)r->coords[1],
           (long long)r->coords[2], r->core_on_chip, d->kind);
  snprintf(d->to_string, sizeof d->to_string,
           "TpuDevice(id=%u, process_index=%u, coords=(%lld,%lld,%lld), "
           "core_on_chip=%u)",
           r->id, r->process, (long long)r->coords[0], (long long)r->coords[1],
           (long long)r->coords[2], r->core_on_chip);
  at_pjrt_named_ints(&d->attributes[0], "coords", d->info.coords, 3);
  at_pjrt_named_int(&d->attributes[1], "core_on_chip", r->core_on_chip);
  at_pjrt_named_int(&d->attributes[2], "num_cores", r->num_cores);
  at_pjrt_named_int(&d->attributes[3], "slice_index", r->slice_index);
  d->num_attributes = 4;
}

// From records, be they a runtime's or a serialised topology's. Spare ones get
// a description, with the attribute `virtual`, but are no part of what is
// serialised.
static at_status topology_make(const chip_record *records, uint32_t n,
                               uint32_t spares,
                               PJRT_TopologyDescription **out) {
  PJRT_TopologyDescription *t = calloc(1, sizeof *t);
  if (!t) goto no_memory;
  t->num_devices = n;
  t->devices = calloc(n + spares + 1, sizeof *t->devices);
  t->device_pointers = calloc(n ? n : 1, sizeof(void *));
  if (!t->devices || !t->device_pointers) goto no_memory;
  at_strbuf_addz(&t->serialized, TOPOLOGY_MAGIC);
  for (uint32_t i = 0; i < n; i++) {
    description_set(&t->devices[i], &records[i]);
    t->device_pointers[i] = &t->devices[i];
    for (int d = 0; d < 3; d++)
      if (records[i].coords[d] + 1 > t->shape[d])
        t->shape[d] = records[i].coords[d] + 1;
    at_strbuf_add(&t->serialized,
                  (at_str){(const char *)&records[i], sizeof *records});
  }
  for (uint32_t i = n; i < n + spares; i++) {
    PJRT_DeviceDescription *d = &t->devices[i];
    description_set(d, &records[i]);
    at_pjrt_named_int(&d->attributes[d->num_attributes++], "virtual", 1);
  }
  if (t->serialized.failed) goto no_memory;
  t->fingerprint = at_hash(AT_HASH_SEED, t->serialized.ptr, t->serialized.len);
  at_pjrt_named_str(&t->attributes[0], "target", n ? t->devices[0].target : "");
  at_pjrt_named_ints(&t->attributes[1], "topology", t->shape, 3);
  *out = t;
  return AT_OK;
no_memory:
  at_pjrt_topology_destroy(t);
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory for a topology");
}

at_status at_pjrt_topology_create(at_runtime *rt, uint32_t spares,
                                  PJRT_TopologyDescription **out) {
  uint32_t n = at_runtime_num_chips(rt);
  chip_record *records = calloc(n ? n : 1, sizeof *records);
  if (!records)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory for a topology");
  for (uint32_t i = 0; i < n; i++) {
    const at_chip_info *c = at_chip_info_of(at_runtime_chip(rt, i));
    chip_record *r = &records[i];
    r->id = c->id;
    r->slice_index = c->slice_index;
    r->core_on_chip = c->core_on_chip;
    r->num_cores = c->num_cores;
    r->process = c->host;
    memcpy(r->coords, c->coords, sizeof r->coords);
    r->hbm_bytes = c->hbm_bytes;
    r->vmem_bytes = c->vmem_bytes;
    r->smem_bytes = c->smem_bytes;
    snprintf(r->kind, sizeof r->kind, "%s", c->kind ? c->kind : "");
    snprintf(r->target, sizeof r->target, "%s", c->target ? c->target : "");
  }
  at_status st = topology_make(records, n - spares, spares, out);
  free(records);
  return st;
}

void at_pjrt_topology_destroy(PJRT_TopologyDescription *t) {
  if (!t) return;
  at_strbuf_free(&t->serialized);
  free(t->devices);
  free(t->device_pointers);
  free(t);
}

// The name is a target ("v5e:2x2"), by default ATOLL_TARGET. A runtime is made
// to describe it, and ended again.
AT_API(TopologyDescription_Create) {
  AT_ARGS(PJRT_TopologyDescription_Create_Args);
  if (a->topology_name_size && !a->topology_name)
    return AT_PFAIL(AT_INVALID_ARGUMENT, "topology_name is NULL");
  char *target = NULL;
  if (a->topology_name_size) {
    target = strndup(a->topology_name, a->topology_name_size);
    if (!target) return AT_PFAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  }
  at_runtime_options o = {.target = target, .threads = 1};
  at_runtime *rt = NULL;
  at_status st = at_runtime_create(&o, &rt);
  if (at_ok(st)) {
    st = at_pjrt_topology_create(rt, 0, &a->topology);
    at_runtime_destroy(rt);
  }
  free(target);
  return at_pjrt_error(st);
}

// INVALID_ARGUMENT: not what Serialize has written. The records' numbers are
// taken as they are.
AT_API(TopologyDescription_Deserialize) {
  AT_ARGS(PJRT_TopologyDescription_Deserialize_Args);
  AT_HANDLE(a->serialized_topology);
  const size_t magic = sizeof TOPOLOGY_MAGIC - 1;
  size_t n = a->serialized_topology_size;
  if (n < magic || memcmp(a->serialized_topology, TOPOLOGY_MAGIC, magic) != 0)
    return AT_PFAIL(AT_INVALID_ARGUMENT, "not a topology of this plug-in");
  n -= magic;
  if (n % sizeof(chip_record) || n / sizeof(chip_record) > 1 << 20)
    return AT_PFAIL(AT_INVALID_ARGUMENT, "a topology of %zu bytes is cut short",
                    n);
  chip_record *records = malloc(n ? n : 1);
  if (!records) return AT_PFAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  memcpy(records, a->serialized_topology + magic, n);
  at_status st =
      topology_make(records, (uint32_t)(n / sizeof *records), 0, &a->topology);
  free(records);
  return at_pjrt_error(st);
}

const char *at_pjrt_topology_chip(const PJRT_TopologyDescription *t) {
  return t->num_devices ? t->devices[0].kind : "";
}

AT_API(TopologyDescription_Destroy) {
  AT_ARGS(PJRT_TopologyDescription_Destroy_Args);
  at_pjrt_topology_destroy(a->topology);
  return NULL;
}

AT_API(TopologyDescription_PlatformName) {
  AT_ARGS(PJRT_TopologyDescription_PlatformName_Args);
  AT_HANDLE(a->topology);
  a->platform_name = at_pjrt_platform_name;
  a->platform_name_size = strlen(at_pjrt_platform_name);
  return NULL;
}

AT_API(TopologyDescription_PlatformVersion) {
  AT_ARGS(PJRT_TopologyDescription_PlatformVersion_Args);
  AT_HANDLE(a->topology);
  a->platform_version = at_pjrt_platform_version();
  a->platform_version_size = strlen(a->platform_version);
  return NULL;
}

AT_API(TopologyDescription_GetDeviceDescriptions) {
  AT_ARGS(PJRT_TopologyDescription_GetDeviceDescriptions_Args);
  AT_HANDLE(a->topology);
  a->descriptions = a->topology->device_pointers;
  a->num_descriptions = a->topology->num_devices;
  return NULL;
}

// Records of all devices, in this machine's byte order.
AT_API(TopologyDescription_Serialize) {
  AT_ARGS(PJRT_TopologyDescription_Serialize_Args);
  AT_HANDLE(a->topology);
  at_pjrt_blob *b = at_pjrt_blob_copy(a->topology->serialized.ptr,
                                      a->topology->serialized.len);
  if (!b) return AT_PFAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  a->serialized_bytes = b->bytes;
  a->serialized_bytes_size = b->size;
  a->serialized_topology = (PJRT_SerializedTopology *)b;
  a->serialized_topology_deleter = (void (*)(PJRT_SerializedTopology *))free;
  return NULL;
}

AT_API(TopologyDescription_Attributes) {
  AT_ARGS(PJRT_TopologyDescription_Attributes_Args);
  AT_HANDLE(a->topology);
  a->attributes = a->topology->attributes;
  a->num_attributes = AT_LEN(a->topology->attributes);
  return NULL;
}

// A hash of what Serialize writes: equal topologies have equal ones.
AT_API(TopologyDescription_Fingerprint) {
  AT_ARGS(PJRT_TopologyDescription_Fingerprint_Args);
  AT_HANDLE(a->topology);
  a->fingerprint = a->topology->fingerprint;
  return NULL;
}

// Kinds are numbered as at_memory_kind.
AT_API(TopologyDescription_GetMemorySpaceKindIds) {
  AT_ARGS(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args);
  AT_HANDLE(a->topology);
  static const int32_t ids[AT_MEM_KINDS] = {AT_MEM_DEVICE, AT_MEM_PINNED_HOST,
                                            AT_MEM_UNPINNED_HOST};
  a->memory_space_kind_ids = ids;
  a->num_memory_space_kind_ids = AT_MEM_KINDS;
  return NULL;
}

static void free_shape(const char *p) { free((void *)p); }

// The shape with its layout there, which is dense row-major in every memory.
// The bytes are the caller's.
AT_API(TopologyDescription_MakeCanonicalShapeForMemorySpace) {
  AT_ARGS(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args);
  AT_HANDLE(a->topology);
  if (a->memory_space_kind_id < 0 || a->memory_space_kind_id >= AT_MEM_KINDS)
    return AT_PFAIL(AT_INVALID_ARGUMENT, "no memory space kind %d",
                    a->memory_space_kind_id);
  at_pjrt_shape shape;
  AT_PTRY(
      at_pjrt_shape_check(a->element_type, a->dims, a->num_dims, NULL, &shape));
  at_strbuf out = {0};
  at_pjrt_shape_write(shape.dtype, shape.dims, &out);
  AT_PTRY(at_strbuf_status(&out));
  a->serialized_shape = out.ptr;
  a->serialized_shape_size = out.len;
  a->serialized_shape_deleter = free_shape;
  return NULL;
}

AT_API(DeviceDescription_Id) {
  AT_ARGS(PJRT_DeviceDescription_Id_Args);
  AT_HANDLE(a->device_description);
  a->id = (int32_t)a->device_description->info.id;
  return NULL;
}

AT_API(DeviceDescription_ProcessIndex) {
  AT_ARGS(PJRT_DeviceDescription_ProcessIndex_Args);
  AT_HANDLE(a->device_description);
  a->process_index = (int)a->device_description->info.host;
  return NULL;
}

AT_API(DeviceDescription_Attributes) {
  AT_ARGS(PJRT_DeviceDescription_Attributes_Args);
  AT_HANDLE(a->device_description);
  a->attributes = a->device_description->attributes;
  a->num_attributes = a->device_description->num_attributes;
  return NULL;
}

AT_API(DeviceDescription_Kind) {
  AT_ARGS(PJRT_DeviceDescription_Kind_Args);
  AT_HANDLE(a->device_description);
  a->device_kind = a->device_description->kind;
  a->device_kind_size = strlen(a->device_kind);
  return NULL;
}

AT_API(DeviceDescription_DebugString) {
  AT_ARGS(PJRT_DeviceDescription_DebugString_Args);
  AT_HANDLE(a->device_description);
  a->debug_string = a->device_description->debug_string;
  a->debug_string_size = strlen(a->debug_string);
  return NULL;
}

AT_API(DeviceDescription_ToString) {
  AT_ARGS(PJRT_DeviceDescription_ToString_Args);
  AT_HANDLE(a->device_description);
  a->to_string = a->device_description->to_string;
  a->to_string_size = strlen(a->to_string);
  return NULL;
}

// ---- The memory-descriptions extension

static PJRT_MemoryDescription memory_descriptions[AT_MEM_KINDS] = {
    {.kind = AT_MEM_DEVICE},
    {.kind = AT_MEM_PINNED_HOST},
    {.kind = AT_MEM_UNPINNED_HOST}};
static PJRT_MemoryDescription *const memory_description_pointers[AT_MEM_KINDS] =
    {&memory_descriptions[0], &memory_descriptions[1], &memory_descriptions[2]};

// Every device has the same kinds of memory, so all share static descriptions.
static PJRT_Error *memory_descriptions_of(
    PJRT_DeviceDescription_MemoryDescriptions_Args *a) {
  AT_ARGS(PJRT_DeviceDescription_MemoryDescriptions_Args);
  AT_HANDLE(a->device_description);
  a->memory_descriptions = memory_description_pointers;
  a->num_memory_descriptions = AT_MEM_KINDS;
  a->default_memory_index = AT_MEM_DEVICE;
  return NULL;
}

static PJRT_Error *memory_description_kind(
    PJRT_MemoryDescription_Kind_Args *a) {
  AT_ARGS(PJRT_MemoryDescription_Kind_Args);
  AT_HANDLE(a->memory_description);
  a->kind = at_memory_kind_name(a->memory_description->kind);
  a->kind_size = strlen(a->kind);
  a->kind_id = a->memory_description->kind;
  return NULL;
}

PJRT_MemoryDescriptions_Extension at_pjrt_memory_extension = {
    .base = {.struct_size = PJRT_MemoryDescriptions_Extension_STRUCT_SIZE,
             .type = PJRT_Extension_Type_MemoryDescriptions},
    .PJRT_DeviceDescription_MemoryDescriptions = memory_descriptions_of,
    .PJRT_MemoryDescription_Kind = memory_description_kind,
};
