// A Pallas kernel on a named chip: what the compiler would refuse, and what it
// would take.
#ifndef ATOLL_TPU_TPU_H_
#define ATOLL_TPU_TPU_H_

#include "tpu/rules.h"
#include "tpu/timing.h"
#include "tpu/view.h"

#endif
