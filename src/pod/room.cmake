if(TARGET at_pod)
  target_include_directories(at_pod SYSTEM PRIVATE ${AT_OPENSSL_INCLUDE})
  # Seals of messages are computed in vectors of the project's baseline.
  set_source_files_properties(${dir}/seal.c PROPERTIES COMPILE_OPTIONS "-march=x86-64-v3;-O3")
endif()
# UCX is loaded at run time; its headers are enough to build with it.
find_path(AT_UCX_INCLUDE ucp/api/ucp.h)
if(TARGET at_pod AND AT_UCX_INCLUDE)
  set_source_files_properties(${dir}/wire_ucx_none.c PROPERTIES HEADER_FILE_ONLY ON)
  set_source_files_properties(${dir}/ucx.c ${dir}/wire_ucx.c PROPERTIES
    INCLUDE_DIRECTORIES ${AT_UCX_INCLUDE})
elseif(TARGET at_pod)
  message(STATUS "The wire is built without UCX: no headers of it (libucx-dev)")
  set_source_files_properties(${dir}/ucx.c ${dir}/wire_ucx.c PROPERTIES HEADER_FILE_ONLY ON)
endif()
