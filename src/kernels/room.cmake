# The baseline of the project is x86-64-v3; wider paths carry target attributes and
# are chosen at run time. Loop vectorisation of the plain C loops needs -O3.
if(TARGET at_kernels)
  get_target_property(at_kernels_type at_kernels TYPE)
  if(NOT at_kernels_type STREQUAL "INTERFACE_LIBRARY")
    target_compile_options(at_kernels PRIVATE -march=x86-64-v3 -O3)
    # With checks of undefined behaviour in their unrolled loops these files take
    # the compiler minutes each; addresses are checked in them.
    if(AT_SANITIZE MATCHES undefined)
      set_source_files_properties(${dir}/gemm_thin.c ${dir}/fft_kernels.c PROPERTIES
        COMPILE_OPTIONS -fno-sanitize=undefined)
    endif()
  endif()
endif()
if(EXISTS ${CMAKE_SOURCE_DIR}/bench/kernels_bench.c)
  add_executable(kernels_bench EXCLUDE_FROM_ALL
    ${CMAKE_SOURCE_DIR}/bench/kernels_bench.c)
  target_link_libraries(kernels_bench PRIVATE at_kernels)
endif()
