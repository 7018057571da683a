// The end of a save: what makes files a checkpoint.
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "control/tile_file.h"

enum { kPath = 8192, kDepth = 32 };

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a manifest");
}

// ---- What hosts have saved
// The manifest without sums: what the SAVE says of each array. Lives in the
// arena and in the message.
static at_status make_arrays(at_cuts all, at_arena *arena, at_manifest *out) {
  uint32_t n = all.m->num_arrays;
  at_manifest_array *arrays = at_new(arena, at_manifest_array, n);
  if (!arrays) return no_memory();
  at_cut c;
  for (uint32_t i = 0; i < n && at_cuts_next(&all, &c); i++) {
    int64_t *tiles =
        at_arena_copy(arena, c.tiles, (c.dims.rank + 1) * sizeof *tiles, 8);
    const uint64_t **sums =
        at_new(arena, const uint64_t *, at_cut_num_tiles(&c));
    if (!tiles || !sums) return no_memory();
    arrays[i] =
        (at_manifest_array){.name = c.name,
                            .dtype = (at_dtype)c.m->dtype,
                            .dims = c.dims,
                            .tiles = tiles,
                            .num_tiles = at_cut_num_tiles(&c),
                            .tile_bytes = at_cut_tile_bytes(&c),
                            .num_sums = at_manifest_sums(at_cut_tile_bytes(&c)),
                            .sums = sums};
  }
  *out = (at_manifest){.folder = all.folder,
                       .about = {(const char *)all.about.ptr, all.about.len},
                       .num_arrays = n,
                       .arrays = arrays};
  return AT_OK;
}

// Puts the sums that hosts have sent into the manifest. Each tile exactly once;
// a tile twice, or of no array, is INTERNAL, a missing one DATA_LOSS.
static at_status take_saved(const at_manifest *m, at_bytes saved) {
  while (saved.len) {
    const at_msg_saved *s = (const void *)saved.ptr;
    size_t bytes = saved.len < sizeof *s
                       ? SIZE_MAX
                       : sizeof *s + (size_t)s->num_sums * sizeof(uint64_t);
    const at_manifest_array *a = bytes <= saved.len && s->array < m->num_arrays
                                     ? &m->arrays[s->array]
                                     : NULL;
    if (!a || s->tile >= a->num_tiles || s->num_sums != a->num_sums ||
        a->sums[s->tile])
      return AT_FAIL(AT_INTERNAL, "hosts have saved what nobody asked for");
    ((const uint64_t **)a->sums)[s->tile] = (const uint64_t *)(s + 1);
    saved = (at_bytes){saved.ptr + bytes, saved.len - bytes};
  }
  for (uint32_t i = 0; i < m->num_arrays; i++)
    for (uint64_t t = 0; t < m->arrays[i].num_tiles; t++)
      if (!m->arrays[i].sums[t])
        return AT_FAIL(AT_DATA_LOSS,
                       "no host has tile %llu of %.*s: it was lost with the "
                       "process that had it",
                       (unsigned long long)t, (int)m->arrays[i].name.len,
                       m->arrays[i].name.ptr);
  return AT_OK;
}

// ---- Files
// Shape of a tile; zarr wants at least 1.
static void put_chunks(at_json_writer *w, const at_manifest_array *a) {
  at_json_key(w, AT_STR("chunks"));
  at_json_begin_array(w);
  for (uint32_t d = 0; d < a->dims.rank; d++)
    at_json_int(w, AT_MAX(a->dims.ptr[d] / a->tiles[d], (int64_t)1));
  at_json_end_array(w);
}

// As zarr (version 2) has it: tiles are chunks without compression.
static at_status write_zarray(at_str path, const at_manifest *m,
                              const at_manifest_array *a) {
  char file[kPath];
  at_strbuf text = {0};
  at_json_writer w = {.out = &text};
  const char *type = at_manifest_zarr_type(a->dtype);
  if (!type) return AT_OK;
  at_json_begin_object(&w);
  put_chunks(&w, a);
  at_json_key(&w, AT_STR("compressor"));
  at_json_null(&w);
  at_json_key(&w, AT_STR("dimension_separator"));
  at_json_str(&w, AT_STR("."));
  at_json_key(&w, AT_STR("dtype"));
  at_json_str(&w, at_str_of(type));
  at_json_key(&w, AT_STR("fill_value"));
  at_json_null(&w);
  at_json_key(&w, AT_STR("filters"));
  at_json_null(&w);
  at_json_key(&w, AT_STR("order"));
  at_json_str(&w, AT_STR("C"));
  at_json_put_ints(&w, "shape", a->dims.ptr, a->dims.rank);
  at_json_key(&w, AT_STR("zarr_format"));
  at_json_int(&w, 2);
  at_json_end_object(&w);
  snprintf(file, sizeof file, "%.*s/%.*s%s%.*s/.zarray", (int)path.len,
           path.ptr, (int)m->folder.len, m->folder.ptr,
           m->folder.len ? "/" : "", (int)a->name.len, a->name.ptr);
  at_status st = at_strbuf_status(&text);
  if (!st.err)
    st = at_file_write(file, (at_bytes){(const uint8_t *)text.ptr, text.len},
                       NULL);
  at_strbuf_free(&text);
  file[strlen(file) - strlen("/.zarray")] = 0;
  return st.err ? st : at_folder_sync(file);
}

// Under another name first, then renamed: a reader sees the old checkpoint or
// the new one, never a part.
static at_status write_manifest(at_str path, const at_manifest *m,
                                uint64_t operation) {
  char folder[kPath], file[kPath + 32], temporary[kPath + 64];
  at_strbuf text = {0};
  snprintf(folder, sizeof folder, "%.*s", (int)path.len, path.ptr);
  snprintf(file, sizeof file, "%s/" AT_MANIFEST_FILE, folder);
  snprintf(temporary, sizeof temporary, "%s.%llu-%d", file,
           (unsigned long long)operation, (int)getpid());
  at_manifest_print(m, &text);
  at_status st = at_strbuf_status(&text);
  if (!st.err && text.len > AT_MANIFEST_BYTES)
    st = AT_FAIL(AT_INVALID_ARGUMENT,
                 "the manifest of %s would have %zu bytes: save less at a time",
                 folder, text.len);
  if (!st.err)
    st = at_file_write(temporary,
                       (at_bytes){(const uint8_t *)text.ptr, text.len}, NULL);
  if (!st.err && rename(temporary, file))
    st = at_file_failed("writing", file, errno);
  if (st.err) (void)unlink(temporary);
  at_strbuf_free(&text);
  return st.err ? st : at_folder_sync(folder);
}

// ---- What is not needed any more
// nftw's call. A file that cannot be removed is logged, and the others go.
static int remove_one(const char *path, const struct stat *s, int kind,
                      struct FTW *at) {
  if (remove(path))
    at_log(AT_LOG_WARNING, "removing %s: %s", path, strerror(errno));
  return 0;
}

// Follows no links. `name` has been checked: it does not climb.
static void remove_folder(at_str path, const char *name) {
  char folder[kPath];
  snprintf(folder, sizeof folder, "%.*s/%s", (int)path.len, path.ptr, name);
  (void)nftw(folder, remove_one, kDepth, FTW_DEPTH | FTW_PHYS);
}

// Only folders named data-*, which saves before this one have made, and only
// when this one is such a folder.
static void remove_others(at_str path, at_str folder) {
  char at[kPath];
  static const char kSaves[] = "data-";
  if (folder.len < sizeof kSaves || memcmp(folder.ptr, kSaves, 5)) return;
  snprintf(at, sizeof at, "%.*s", (int)path.len, path.ptr);
  DIR *d = opendir(at);
  for (const struct dirent *e; d && (e = readdir(d));)
    if (!strncmp(e->d_name, kSaves, 5) &&
        !at_str_eq(folder, at_str_of(e->d_name)))
      remove_folder(path, e->d_name);
  if (d) closedir(d);
}

// Order matters: all files are on the disk, then the manifest, then the former
// save goes. A failure removes what this save has written.
at_status at_save_commit(const at_msg_commit *m) {
  at_cuts all = at_cuts_of((at_bytes){(const uint8_t *)(m + 1), m->save_bytes});
  at_bytes saved = {(const uint8_t *)(m + 1) + m->save_bytes, m->saved_bytes};
  at_arena *arena = at_arena_create();
  at_manifest manifest;
  at_status st = arena ? make_arrays(all, arena, &manifest) : no_memory();
  if (!st.err) st = take_saved(&manifest, saved);
  for (uint32_t i = 0; !st.err && i < manifest.num_arrays; i++)
    st = write_zarray(all.path, &manifest, &manifest.arrays[i]);
  if (!st.err) st = write_manifest(all.path, &manifest, m->operation);
  if (!st.err) remove_others(all.path, all.folder);
  at_arena_destroy(arena);
  if (st.err) at_save_abandon(m);
  return st;
}

// Where the save went straight into the path, whoever named that removes it.
void at_save_abandon(const at_msg_commit *m) {
  at_cuts all = at_cuts_of((at_bytes){(const uint8_t *)(m + 1), m->save_bytes});
  char name[AT_MESSAGE_NAME + 1];
  if (!all.folder.len) return;  // whose folder it is removes it
  snprintf(name, sizeof name, "%.*s", (int)all.folder.len, all.folder.ptr);
  remove_folder(all.path, name);
}
