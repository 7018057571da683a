# What rooms link to beside themselves: at_llvm, at_blas, at_zlib. A target with the
# property AT_PORTABLE gets archives of them and of the C++ runtime, so that it runs
# where none of them is installed; other targets get the shared libraries.
# AT_PORTABLE_FOUND: the archives are there.
set(AT_PORTABLE_FOUND ON)

# Sets `out` to the path of an archive of the system or of the compiler.
function(at_archive out name)
  find_library(AT_ARCHIVE_${name} lib${name}.a ${ARGN})
  set(path ${AT_ARCHIVE_${name}})
  if(NOT path)
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=lib${name}.a
      OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  if(NOT IS_ABSOLUTE "${path}")
    message(STATUS "No lib${name}.a: no portable libatoll.so (dist.sh)")
    set(AT_PORTABLE_FOUND OFF PARENT_SCOPE)
  endif()
  set(${out} ${path} PARENT_SCOPE)
endfunction()
at_archive(AT_CXX_A stdc++)
at_archive(AT_EH_A gcc_eh)
at_archive(AT_ZLIB_A z)
at_archive(AT_ZSTD_A zstd)
at_archive(AT_BLAS_A openblas
  PATHS /usr/lib/x86_64-linux-gnu/openblas-serial NO_DEFAULT_PATH)

# As paths: by their names in CMake they bring shared libraries along, one of which (z3)
# is not called.
execute_process(
  COMMAND ${LLVM_TOOLS_BINARY_DIR}/llvm-config --link-static --libfiles passes x86codegen x86desc x86info
  OUTPUT_VARIABLE AT_LLVM_A OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(AT_LLVM_A UNIX_COMMAND "${AT_LLVM_A}")
list(APPEND AT_LLVM_A ${AT_CXX_A} ${AT_EH_A} ${AT_ZSTD_A} ${AT_ZLIB_A})

function(at_either name shared)
  add_library(${name} INTERFACE)
  set(portable "$<BOOL:$<TARGET_PROPERTY:AT_PORTABLE>>")
  target_link_libraries(${name} INTERFACE
    "$<$<NOT:${portable}>:${shared}>" "$<${portable}:${ARGN}>")
endfunction()
at_either(at_llvm LLVM-19 ${AT_LLVM_A})
at_either(at_blas openblas ${AT_BLAS_A})
at_either(at_zlib z ${AT_ZLIB_A})
