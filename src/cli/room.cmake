# The Python that compares kernels with interpret mode, as bytes.
at_embed(${lib} at_cli_python_files ${dir}/interpret.py)
# The `atoll` command, beside libatoll.so.
add_executable(atoll_cli ${dir}/cli_main.c)
target_link_libraries(atoll_cli PRIVATE ${lib})
set_target_properties(atoll_cli PROPERTIES OUTPUT_NAME atoll
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
# `ninja atoll` names this file; the library comes along.
add_dependencies(atoll_cli atoll atoll_tiles)
