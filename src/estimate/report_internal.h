// Shared by the text and the page.
#ifndef ATOLL_ESTIMATE_REPORT_INTERNAL_H_
#define ATOLL_ESTIMATE_REPORT_INTERNAL_H_

#include "estimate/estimate.h"

void at_est_time(at_strbuf *b, double seconds);
void at_est_bytes(at_strbuf *b, double bytes);
void at_est_flops_text(at_strbuf *b, double flops);
// Kernels by what they take in all; free() it. NULL: no memory, and *out
// failed.
const at_estimate_op **at_est_sorted(const at_estimate *e, at_strbuf *out);

#endif
