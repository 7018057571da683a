#include "control/cut.h"

#include <string.h>

#include "abi/dtype.h"

static size_t padded(size_t n) { return at_align_up(n, 8); }

// ---- One part
// Without padding. m->rank and the counts have been bounded, so the sum does
// not overflow.
static size_t part_bytes(const at_msg_cut *m) {
  return sizeof *m + m->rank * sizeof(int64_t) +
         m->num_axes * sizeof(uint32_t) + m->num_used * sizeof(at_msg_use) +
         (size_t)m->num_runs * sizeof(at_msg_chips) + m->name_bytes;
}

// The number of shards, and of tiles along each dimension. False: an axis of
// size 0, one that is used twice, or too many shards.
static bool cut_axes(at_cut *c) {
  const at_msg_cut *m = c->m;
  uint64_t shards = 1, used = 0;
  for (uint32_t a = 0; a < m->num_axes; a++) {
    shards = at_mul(shards, c->axes[a]);
    if (!c->axes[a] || shards > AT_MESSAGE_CHIPS) return false;
  }
  c->num_shards = (uint32_t)shards;
  for (uint32_t d = 0; d < m->rank; d++) c->tiles[d] = 1;
  for (uint32_t i = 0; i < m->num_used; i++) {
    at_msg_use u = c->used[i];
    if (u.dim >= m->rank || u.axis >= m->num_axes || (used >> u.axis & 1))
      return false;
    used |= 1ull << u.axis;
    c->tiles[u.dim] *= c->axes[u.axis];
  }
  return true;
}

// A RESTORE has as many chips as shards, all of them numbers that a pod can
// have.
static bool has_chips(const at_cut *c) {
  uint64_t chips = 0;
  for (uint32_t i = 0; i < c->m->num_runs; i++) {
    at_msg_chips r = c->runs[i];
    int64_t last = (int64_t)r.first + (int64_t)r.step * ((int64_t)r.count - 1);
    if (!r.count || r.count > AT_MESSAGE_CHIPS || r.first >= AT_MESSAGE_CHIPS ||
        last < 0 || last >= AT_MESSAGE_CHIPS)
      return false;
    chips += r.count;
  }
  return chips == c->num_shards;
}

// The tiles divide every dimension, and the array's bytes do not overflow.
static bool has_size(const at_cut *c) {
  size_t bytes = at_dtype_bytes((at_dtype)c->m->dtype);
  for (uint32_t d = 0; d < c->dims.rank; d++) {
    if (c->dims.ptr[d] < 0 || c->dims.ptr[d] % c->tiles[d]) return false;
    bytes = at_mul(bytes, (size_t)c->dims.ptr[d]);
  }
  return bytes < SIZE_MAX / 2;
}

// Counts are bounded before they are multiplied; then the whole part must lie
// in the body, and only then is any list looked at.
bool at_cut_read(at_bytes body, size_t *out_bytes, at_cut *out) {
  const at_msg_cut *m = (const void *)body.ptr;
  if (body.len < sizeof *m || m->kind >= 3 || !m->dtype ||
      m->dtype >= AT_TOKEN || m->rank > AT_MESSAGE_RANK ||
      m->num_axes > AT_MESSAGE_AXES || m->num_used > AT_MESSAGE_AXES ||
      m->num_runs > AT_MESSAGE_CHIPS || m->name_bytes > AT_MESSAGE_NAME ||
      padded(part_bytes(m)) > body.len)
    return false;
  *out = (at_cut){.m = m, .dims = {(const int64_t *)(m + 1), m->rank}};
  out->axes = (const uint32_t *)(out->dims.ptr + m->rank);
  out->used = (const at_msg_use *)(out->axes + m->num_axes);
  out->runs = (const at_msg_chips *)(out->used + m->num_used);
  out->name = (at_str){(const char *)(out->runs + m->num_runs), m->name_bytes};
  *out_bytes = padded(part_bytes(m));
  return cut_axes(out) && has_size(out) &&
         at_message_file_is_good(
             (at_bytes){(const uint8_t *)out->name.ptr, out->name.len});
}

// Coordinates of the shard in the mesh, last axis fastest; the axes of one
// dimension are joined to the tile's index with the first one major.
bool at_cut_tile(const at_cut *c, uint32_t shard, int64_t *tile) {
  uint32_t at[AT_MESSAGE_AXES], rest = shard;
  uint64_t used = 0;
  for (uint32_t a = c->m->num_axes; a-- > 0;) {
    at[a] = rest % c->axes[a];
    rest /= c->axes[a];
  }
  for (uint32_t d = 0; d < c->dims.rank; d++) tile[d] = 0;
  for (uint32_t i = 0; i < c->m->num_used; i++) {
    at_msg_use u = c->used[i];
    tile[u.dim] = tile[u.dim] * c->axes[u.axis] + at[u.axis];
    used |= 1ull << u.axis;
  }
  for (uint32_t d = 0; d < c->dims.rank; d++)
    AT_ASSERT(tile[d] >= 0 && tile[d] < c->tiles[d]);
  for (uint32_t a = 0; a < c->m->num_axes; a++)
    if (at[a] && !(used >> a & 1)) return false;
  return true;
}

// Walks the runs of chips; there are few, as meshes are regular.
uint32_t at_cut_chip(const at_cut *c, uint32_t shard) {
  uint32_t i = 0;
  AT_ASSERT(shard < c->num_shards);
  while (shard >= c->runs[i].count) shard -= c->runs[i++].count;
  AT_ASSERT(i < c->m->num_runs);
  return (uint32_t)((int64_t)c->runs[i].first +
                    (int64_t)c->runs[i].step * shard);
}

// Products cannot wrap: has_size has looked.
uint64_t at_cut_num_tiles(const at_cut *c) {
  uint64_t n = 1;
  for (uint32_t d = 0; d < c->dims.rank; d++) n *= (uint64_t)c->tiles[d];
  return n;
}

// Tiles divide dimensions exactly.
size_t at_cut_tile_bytes(const at_cut *c) {
  size_t bytes = at_dtype_bytes((at_dtype)c->m->dtype);
  for (uint32_t d = 0; d < c->dims.rank; d++)
    bytes *= (size_t)(c->dims.ptr[d] / c->tiles[d]);
  return bytes;
}

// ---- All parts
at_cuts at_cuts_of(at_bytes body) {
  at_cuts all = {.m = (const void *)body.ptr};
  const at_msg_files *m = all.m;
  const char *texts = (const char *)(m + 1);
  size_t head = padded(sizeof *m + m->path_bytes + m->folder_bytes +
                       (size_t)m->about_bytes);
  all.path = (at_str){texts, m->path_bytes};
  all.folder = (at_str){texts + m->path_bytes, m->folder_bytes};
  all.about = (at_bytes){
      (const uint8_t *)texts + m->path_bytes + m->folder_bytes, m->about_bytes};
  all.rest = (at_bytes){body.ptr + head, body.len - head};
  return all;
}

// Reads the part anew each time, which costs less than to keep them all.
bool at_cuts_next(at_cuts *all, at_cut *out) {
  size_t bytes;
  if (!all->rest.len || !at_cut_read(all->rest, &bytes, out)) return false;
  all->rest = (at_bytes){all->rest.ptr + bytes, all->rest.len - bytes};
  return true;
}

// Absolute, and does not climb.
static bool good_path(at_str path) {
  at_bytes below = {(const uint8_t *)path.ptr + 1, path.len - 1};
  if (path.len < 2 || path.len > AT_MESSAGE_PATH || path.ptr[0] != '/')
    return false;
  for (size_t i = 0; i < below.len; i++)
    if (below.ptr[i] < 0x20 || below.ptr[i] == 0x7f) return false;
  return !(below.len >= 2 && !memcmp(below.ptr, "..", 2) &&
           (below.len == 2 || below.ptr[2] == '/')) &&
         !memmem(path.ptr, path.len, "/../", 4) &&
         !(path.len >= 3 && !memcmp(path.ptr + path.len - 3, "/..", 3));
}

// The tail must be used up exactly. For RESTORE names count from `first`, and
// may not run into those of graphs.
bool at_cuts_are_good(uint32_t kind, at_bytes body) {
  const at_msg_files *m = (const void *)body.ptr;
  if (body.len < sizeof *m || m->num_arrays > AT_MESSAGE_OBJECT ||
      m->path_bytes > AT_MESSAGE_PATH || m->folder_bytes > AT_MESSAGE_NAME ||
      m->about_bytes > AT_MESSAGE_ABOUT ||
      body.len < padded(sizeof *m + m->path_bytes + m->folder_bytes +
                        (size_t)m->about_bytes))
    return false;
  // From here on sizes of the head are known to fit.
  at_cuts all = at_cuts_of(body);
  at_bytes folder = {(const uint8_t *)all.folder.ptr, all.folder.len};
  if (!good_path(all.path) || (folder.len && !at_message_file_is_good(folder)))
    return false;
  // A PEEK names a checkpoint and no arrays.
  if (kind == AT_MSG_PEEK) return !m->num_arrays && !all.rest.len;
  if (!m->num_arrays ||
      (kind == AT_MSG_RESTORE &&
       (!m->first || m->first > AT_MSG_MADE - AT_MESSAGE_OBJECT)))
    return false;
  at_cut c;
  for (uint32_t i = 0; i < m->num_arrays; i++)
    if (!at_cuts_next(&all, &c) ||
        (kind == AT_MSG_SAVE ? !c.m->array || c.m->num_runs : !has_chips(&c)))
      return false;
  return !all.rest.len;
}
