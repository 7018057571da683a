# What the vector unit of a TPU core issues per cycle, as bytes inside the library.
at_embed(at_tpu at_tpu_unit_files ${CMAKE_SOURCE_DIR}/data/tpu/vector_unit.json)
# Which part of docs/refusals.md is about which refusal.
at_embed(at_tpu at_tpu_refusal_files ${CMAKE_SOURCE_DIR}/tools/refusals.json)
