# What the vector unit of a TPU core issues per cycle, as bytes inside the library.
at_embed(at_tpu at_tpu_unit_files ${CMAKE_SOURCE_DIR}/data/tpu/vector_unit.json)
