# The part of Atoll that input pipelines load: no LLVM, no PJRT.
if(sources)
  add_library(atoll_input SHARED ${dir}/input_main.c)
  target_link_libraries(atoll_input PRIVATE ${lib})
  set_target_properties(atoll_input PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} LINK_DEPENDS ${dir}/input.map)
  target_link_options(atoll_input PRIVATE
    -Wl,--version-script=${dir}/input.map -Wl,--gc-sections)
endif()
