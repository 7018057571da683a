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

file(GLOB_RECURSE at_talk CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}
  ${CMAKE_SOURCE_DIR}/src/abi/* ${CMAKE_SOURCE_DIR}/src/exec/*.[ch]
  ${CMAKE_SOURCE_DIR}/src/pod/*.[ch] ${CMAKE_SOURCE_DIR}/src/control/*.[ch])
list(FILTER at_talk EXCLUDE REGEX "_(test|fuzz)\\.c$|test_util\\.h$")
list(TRANSFORM at_talk PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE at_talk_paths)
set(at_pod_build ${CMAKE_BINARY_DIR}/gen/pod_build.c)
add_custom_command(OUTPUT ${at_pod_build}
  COMMAND ${CMAKE_COMMAND} -DOUT=${at_pod_build} -DROOT=${CMAKE_SOURCE_DIR} "-DFILES=${at_talk}"
          -P ${CMAKE_SOURCE_DIR}/cmake/AtollSources.cmake
  DEPENDS ${at_talk_paths} ${CMAKE_SOURCE_DIR}/cmake/AtollSources.cmake VERBATIM)
target_sources(at_pod PRIVATE ${at_pod_build})
