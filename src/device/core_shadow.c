#include "device/core_internal.h"
struct shadow {
  int x;
};
void core_shadow_init(core_state *c) {}
void core_shadow_step(core_state *c) {}
void core_shadow_window(core_state *c, uint32_t ref) {}
void core_shadow_write_back(core_state *c, uint32_t ref) {}
void core_shadow_finish(core_state *c) {}
void core_shadow_signal(core_state *from, core_state *to, const sem *s) {}
void core_shadow_copy(core_state *c, core_state *to, const at_core_dma *d,
                      void *dst) {}
void core_shadow_wait(core_state *c, const sem *s) {}
void at_core_access(at_core *core, const at_core_view *v, int32_t kind,
                    int32_t loc) {}
