// Which products the TPU compiler makes a multiplication and a sum. Each row is
// what libtpu 0.0.52 made of it for v5e, in f32 and some in bf16.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cost/tpu.h"

// b: batch, k: summed; "" for none.
typedef struct row {
  const char *l, *r, *lb, *rb, *lk, *rk, *out;
  bool sum;
} row;

static const row rows[] = {
    // one matrix, one vector
    {"4096,4096", "4096", "", "", "1", "0", "4096", true},
    {"16384,8", "16384", "", "", "0", "0", "8", true},
    {"1,4096", "4096,4096", "", "", "1", "0", "1,4096", true},
    {"1024,8", "8,1", "", "", "1", "0", "1024,1", true},
    {"1,1024,1024", "1,1024", "0", "0", "2", "1", "1,1024", true},
    // vectors
    {"1024,1024", "1024,1024", "0", "0", "1", "1", "1024", true},
    {"1024", "1024", "", "", "0", "0", "", true},
    // nothing to sum
    {"1024,1", "1,1024", "", "", "1", "0", "1024,1024", true},
    {"16,1024", "16,1024", "0", "0", "", "", "16,1024,1024", true},
    // batches of matrices, by vectors
    {"16,1024,1024", "16,1024", "0", "0", "2", "1", "16,1024", false},
    {"16,1024,1024", "16,1024", "0", "0", "1", "1", "16,1024", false},
    {"8,64,128", "8,128", "0", "0", "2", "1", "8,64", false},
    {"8,56,128", "8,128", "0", "0", "2", "1", "8,56", true},
    {"8,128,64", "8,64", "0", "0", "2", "1", "8,128", false},
    {"8,128,48", "8,48", "0", "0", "2", "1", "8,128", true},
    {"2,8192,8", "2,8", "0", "0", "2", "1", "2,8192", true},
    {"2,8,8192", "2,8192", "0", "0", "2", "1", "2,8", true},
    // by rows and columns
    {"16,1024,1024", "16,1024,1", "0", "0", "2", "1", "16,1024,1", true},
    {"16,1,1024", "16,1024,1024", "0", "0", "2", "1", "16,1,1024", true},
    {"8,4,1,128", "8,4,1024,128", "0,1", "0,1", "3", "3", "8,4,1,1024", true},
    // several sums
    {"64,1024,128", "1024,128", "", "", "1,2", "0,1", "64", false},
    {"64,16,128", "16,128", "", "", "1,2", "0,1", "64", false},
    {"64,64,16", "64,16", "", "", "1,2", "0,1", "64", false},
    {"64,8,16", "8,16", "", "", "1,2", "0,1", "64", true},
    {"8,64,64", "64,64", "", "", "1,2", "0,1", "8", true},
    // matrices
    {"256,512", "512,256", "", "", "1", "0", "256,256", false},
    {"4,256,512", "4,512,2", "0", "0", "2", "1", "4,256,2", false}};

// Builds the product from the row and asks.
static bool is_sum(const row *w) {
  char text[1024];
  at_arena *a = at_arena_create();
  at_module *m;
  snprintf(text, sizeof text,
           "hlo module \"m\" entry=\"main\" {\nfunc \"main\" (%%0: f32[%s], "
           "%%1: f32[%s]) -> (f32[%s]) {\n"
           "  %%2 = dot_general %%0, %%1 {lhs_batching_dimensions=[%s], "
           "rhs_batching_dimensions=[%s], lhs_contracting_dimensions=[%s], "
           "rhs_contracting_dimensions=[%s]} : f32[%s]\n  return %%2\n}\n}\n",
           w->l, w->r, w->out, w->lb, w->rb, w->lk, w->rk, w->out);
  at_status st = at_hlo_parse(at_str_of(text), a, &m);
  if (!at_ok(st)) fail_msg("%s: %s", text, at_status_message(st));
  bool sum = at_tpu_is_sum_of_products(m->entry->results[0].node);
  assert_false(at_tpu_is_sum_of_products(m->entry->params[0]));
  at_arena_destroy(a);
  return sum;
}

static void products_are_as_the_compiler_makes_them(void **state) {
  (void)state;
  for (size_t i = 0; i < AT_LEN(rows); i++)
    if (is_sum(&rows[i]) != rows[i].sum)
      fail_msg("%s by %s: %s", rows[i].l, rows[i].r,
               rows[i].sum ? "a sum" : "a product");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_are_as_the_compiler_makes_them)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
