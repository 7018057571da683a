// For tests of code: what the generator wrote, linked and loaded into the
// test's process. Generated code that calls functions by name finds those that
// the test exports.
//
// Threads: the test's own, as cmocka's checks are.
#ifndef ATOLL_CODEGEN_CHECK_LINK_H_
#define ATOLL_CODEGEN_CHECK_LINK_H_

// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/strbuf.h"
#include "codegen/codegen.h"

// For functions of the test that generated code calls by name.
// Tests are built with hidden symbols, as the product is; these are seen by
// dlopen'ed code.
#define CK_EXPORT __attribute__((visibility("default")))

// Fails the test with the status' text unless it is OK.
// Does not consume the status: the test has ended where there was one.
void ck_ok(at_status st);

// Objects as one shared library, through the system's linker, which must be in
// PATH. dlclose it. The files are gone when it returns.
// The caller owns the handle. Fails the test where an object names a function
// that neither libm nor the test has.
void *ck_link(const at_cg_output *out);

// The function of a kernel, by its number; its type follows from
// at_xkernel.kind. Lives as long as the library.
// Borrowed. Fails the test if the symbol is not there: the generator's list of
// kernels and its objects disagree.
void *ck_symbol(void *library, const at_cg_output *out, uint32_t kernel);

#endif
