# The Python that compares kernels with interpret mode, as bytes.
at_embed(${lib} at_cli_python_files ${dir}/interpret.py)

# libatoll.so: the plug-in, which exports one symbol, and the command's code.
function(at_plugin name)
  add_library(${name} SHARED ${dir}/plugin_main.c)
  target_link_libraries(${name} PRIVATE ${lib})
  set_target_properties(${name} PROPERTIES
    OUTPUT_NAME atoll LINK_DEPENDS ${dir}/atoll.map)
  target_link_options(${name} PRIVATE
    -Wl,--version-script=${dir}/atoll.map -Wl,--gc-sections -Wl,-z,now)
  if(NOT AT_SANITIZE)
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
endfunction()
at_plugin(atoll)
set_target_properties(atoll PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

# The same for machines without LLVM and OpenBLAS: portable/libatoll.so, made by name.
if(AT_PORTABLE_FOUND)
  at_plugin(atoll_portable)
  target_sources(atoll_portable PRIVATE ${dir}/portable_main.c)
  target_link_options(atoll_portable PRIVATE -fuse-ld=lld -static-libgcc -Wl,-s)
  set_target_properties(atoll_portable PROPERTIES EXCLUDE_FROM_ALL ON
    AT_PORTABLE ON SKIP_BUILD_RPATH ON
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/portable)
endif()

# The `atoll` command, which finds the library beside it.
add_executable(atoll_cli ${dir}/cli_main.c)
target_link_libraries(atoll_cli PRIVATE atoll)
# The other linker exports marks of the program's end, as libLLVM has such.
target_link_options(atoll_cli PRIVATE -fuse-ld=lld)
target_include_directories(atoll_cli PRIVATE
  $<TARGET_PROPERTY:at_pjrt,INTERFACE_INCLUDE_DIRECTORIES>)
set_target_properties(atoll_cli PROPERTIES OUTPUT_NAME atoll
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
  BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON)
# `ninja atoll` names this file; the libraries come along.
add_dependencies(atoll_cli at_pjrt_abi atoll_tiles)
