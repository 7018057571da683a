// Shared by the text and the page.
#ifndef ATOLL_ESTIMATE_REPORT_INTERNAL_H_
#define ATOLL_ESTIMATE_REPORT_INTERNAL_H_

#include "base/json.h"
#include "estimate/estimate.h"

// Figures with a unit that suits them: "12.3 us", "1.5 GiB", "3.2 TFLOP". A
// buffer that cannot grow is marked as failed.
void at_est_time(at_strbuf *b, double seconds);
// Powers of 1,024.
void at_est_bytes(at_strbuf *b, double bytes);
// Powers of 1,000.
void at_est_flops_text(at_strbuf *b, double flops);
// Kernels by what they take in all; free() it. NULL: no memory, and *out
// failed.
const at_estimate_op **at_est_sorted(const at_estimate *e, at_strbuf *out);

// Embeddings, their stages and advice: nothing where a program has none.
void at_est_embeddings_text(const at_estimate *e, at_strbuf *out);
// The members "embeddings" and "advice" of the object at hand.
void at_est_embeddings_json(const at_estimate *e, at_json_writer *w);

#endif
