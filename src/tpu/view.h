// A kernel's code and memory as the compiler lays them out, about: bundles and
// vector registers of each source line, and where everything lies in VMEM.
//
// Bundles are counted once for each operation, however often it runs. Registers
// are an estimate from the order of the source: a value that the next operation
// takes register by register holds a few, one that is needed later all of its.
//
// Memory: results live in the arena that is given. Threads: any.
#ifndef ATOLL_TPU_VIEW_H_
#define ATOLL_TPU_VIEW_H_

#include "tpu/timing.h"

enum { AT_MOSAIC_REGISTERS = 64 };  // vector registers of a core

// A line of the source, all calls of it together.
typedef struct at_mosaic_line {
  const char *file;  // "": not known
  uint32_t line;
  double bundles;    // what its operations fill
  double registers;  // most that are alive while it runs
  double spills;     // of them, beyond those that there are
} at_mosaic_line;

// A range of VMEM, in bytes.
typedef struct at_mosaic_region {
  const char *what;  // "compiler", "input", "output", "scratch"
  uint32_t index;    // of the window or scratch
  int64_t address, bytes;
  uint32_t buffers;
} at_mosaic_region;

typedef struct at_mosaic_view {
  const at_mosaic_line *lines;  // by file and line
  uint32_t num_lines;
  const at_mosaic_region *regions;  // by address; without scopes in the body
  uint32_t num_regions;
  double bundles;    // of all lines
  double registers;  // most
} at_mosaic_view;

// Of one program of a kernel. FAILED_PRECONDITION: no TPU.
at_status at_mosaic_view_of(const at_mosaic_kernel *k, uint32_t program,
                            const at_machine *machine, at_arena *a,
                            at_mosaic_view *out);
// For people: a table of lines by file and line, and the map by address.
void at_mosaic_view_text(const at_mosaic_view *v, at_strbuf *out);
// Members of an object that is open: "lines", "vmem".
void at_mosaic_view_json(const at_mosaic_view *v, at_json_writer *w);

#endif
