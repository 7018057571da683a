# The fitted model of TPU kernels and the performance tables, as bytes inside the
# library.
at_embed(at_cost at_tpu_model_files ${CMAKE_SOURCE_DIR}/data/tpu/kernel_model.json)
file(GLOB perf_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/data/perf/*.perf)
at_embed(at_cost at_cost_perf_files ${perf_files})
