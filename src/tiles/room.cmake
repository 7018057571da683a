# The library by itself, for Python (atoll.tiles).
add_library(atoll_tiles SHARED ${dir}/face_main.c)
target_link_libraries(atoll_tiles PRIVATE ${lib})
set_target_properties(atoll_tiles PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} AT_PORTABLE ${AT_PORTABLE_FOUND})
target_link_options(atoll_tiles PRIVATE -Wl,--exclude-libs,ALL -Wl,--gc-sections)
