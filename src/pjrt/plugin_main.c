// The one exported symbol of libatoll.so.
#include "pjrt/pjrt.h"

__attribute__((visibility("default"))) const struct PJRT_Api *GetPjrtApi(void);

const struct PJRT_Api *GetPjrtApi(void) { return at_pjrt_api(); }
