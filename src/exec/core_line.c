// A kernel whose devices belong to several hosts: each host runs it on its own
// (core_group.c), and what kernels do to devices of others goes over a line
// (at_hosts_lines), to the host that has the device.
#include "exec/exec_internal.h"

// Calls of the line, handed on to the group.
static void heard(void *arg, at_bytes message) {
  at_core_group_hear(((at_core_line *)arg)->group, message);
}
static void left(void *arg) {
  at_core_group_leave(((at_core_line *)arg)->group);
}
static void failed(void *arg, at_status why) {
  at_core_group_fail(((at_core_line *)arg)->group, why);
}
// What this host waits for, for messages of deadlocks.
static void print(void *arg, at_strbuf *out) {
  const at_core_line *l = arg;
  const at_loaded *p = l->task->loaded;
  at_strbuf_addf(out, "kernel %s of %s: ", l->op->cores->name,
                 at_loaded_string(p, p->header->name));
  at_core_group_print(l->group, out);
}

// ---- What the device room calls
static at_status begin(void *arg) {
  at_core_line *l = arg;
  const at_far *f = l->task->loaded->far;
  const at_hosts_line_calls calls = {l, heard, left, failed, print};
  return l->lines->open(l->lines->arg, &l->tag, f->others, f->num_others,
                        &calls, &l->line);
}

// To the host of `device`, which is another one.
static at_status send(void *arg, int32_t device, const at_bytes *parts,
                      uint32_t num_parts) {
  at_core_line *l = arg;
  const at_runtime *rt = l->task->loaded->runtime;
  at_far *f = l->task->loaded->far;
  uint64_t bytes = 0;
  AT_ENSURE(device >= 0 && (uint32_t)device < f->num_devices &&
            f->host_of[device] != rt->hosts->me);
  for (uint32_t i = 0; i < num_parts; i++) bytes += parts[i].len;
  atomic_fetch_add(&f->sent, bytes);
  return l->lines->send(l->line, f->host_of[device], parts, num_parts, false);
}

static void waits(void *arg, bool on) {
  const at_core_line *l = arg;
  l->lines->waits(l->line, on);
}

// This host sends nothing more: all others are told.
static at_status end(void *arg) {
  const at_core_line *l = arg;
  const at_far *f = l->task->loaded->far;
  for (uint32_t i = 0; i < f->num_others; i++)
    AT_TRY(l->lines->send(l->line, f->others[i], NULL, 0, true));
  return AT_OK;
}

// ---- One run
void at_core_line_init(at_core_line *l, at_task *t, const at_op *op) {
  *l = (at_core_line){.face = {.arg = l,
                               .processes = t->loaded->far->num_others,
                               .begin = begin,
                               .send = send,
                               .waits = waits,
                               .end = end},
                      .task = t,
                      .op = op,
                      .tag = at_far_next_turn(t, op),
                      .lines = t->loaded->runtime->hosts->lines};
}

// May be called twice.
void at_core_line_close(at_core_line *l) {
  if (l->line) l->lines->close(l->lines->arg, l->line);
  l->line = NULL;
}
