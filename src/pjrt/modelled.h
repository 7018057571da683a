// What a chip of the target would do, beside what ran here
// (ATOLL_PROFILE=chip).
#ifndef ATOLL_PJRT_MODELLED_H_
#define ATOLL_PJRT_MODELLED_H_

#include "pjrt/pjrt_internal.h"
#include "profile/profile.h"

// Appends to the XSpace of p a plane "/device:CUSTOM:v5e model:<chip>" for each
// chip: every launch begins when it did here and takes what `atoll estimate`
// says. Programs that cannot be estimated are left out, with a warning. `chip`:
// the name of the programs' chip, whose topology ATOLL_TARGET may say.
// RESOURCE_EXHAUSTED. p and the programs are borrowed.
at_status at_pjrt_modelled(const at_profile *p,
                           at_pjrt_program *const *programs, size_t count,
                           const char *chip, at_strbuf *out);

#endif
