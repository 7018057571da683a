# data/hw/*.json as bytes inside the library.
file(GLOB hw_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/data/hw/*.json)
at_embed(at_machine at_machine_files ${hw_files})
