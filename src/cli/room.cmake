# The Python that compares kernels with interpret mode, as bytes.
at_embed(${lib} at_cli_python_files ${dir}/interpret.py)

# libatoll.so: the plug-in, which exports one symbol, and the command's code.
add_library(atoll SHARED ${dir}/plugin_main.c)
target_link_libraries(atoll PRIVATE ${lib})
set_target_properties(atoll PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
  LINK_DEPENDS ${dir}/atoll.map)
target_link_options(atoll PRIVATE
  -Wl,--version-script=${dir}/atoll.map -Wl,--gc-sections -Wl,-z,now)
if(NOT AT_SANITIZE)
  target_link_options(atoll PRIVATE -Wl,-z,defs)
endif()

# The `atoll` command, which loads the library beside it.
add_executable(atoll_cli ${dir}/cli_main.c)
target_include_directories(atoll_cli PRIVATE
  $<TARGET_PROPERTY:at_pjrt,INTERFACE_INCLUDE_DIRECTORIES>)
set_target_properties(atoll_cli PROPERTIES OUTPUT_NAME atoll
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
# `ninja atoll` names this file; the libraries come along.
add_dependencies(atoll_cli at_pjrt_abi atoll atoll_tiles)
