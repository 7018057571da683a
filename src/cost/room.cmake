# The fitted model of TPU kernels, as bytes inside the library.
at_embed(at_cost at_tpu_model_files ${CMAKE_SOURCE_DIR}/data/tpu/kernel_model.json)
