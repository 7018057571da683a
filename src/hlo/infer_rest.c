// Rules that take the declared result types.
#include "hlo/hlo_internal.h"

at_status at_infer_given(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_bitcast_convert(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_broadcast_in_dim(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_concatenate(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_pad(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_reshape(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_slice(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_transpose(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_dynamic_slice(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_dynamic_update_slice(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_gather(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_scatter(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_select_and_scatter(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_dot_general(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_ragged_dot(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_convolution(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_reduce(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_reduce_window(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_scan(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_map(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_sort(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_top_k(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_batch_norm_training(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_batch_norm_grad(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_fft(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_triangular_solve(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
at_status at_infer_while(at_module *m, at_node *n) {
  (void)m;
  return n->types ? AT_OK : AT_BAD(n, "needs its result types");
}
