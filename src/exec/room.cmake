# Kernels that the tests put into hand-made executables: plain objects, as codegen
# would emit them, without any sanitizer.
set(exec_kernels ${CMAKE_BINARY_DIR}/gen/exec_kernels.o)
add_custom_command(OUTPUT ${exec_kernels}
  COMMAND ${CMAKE_C_COMPILER} -std=c17 -O2 -fPIC -ffreestanding
          -fno-stack-protector -c ${CMAKE_SOURCE_DIR}/src/exec/exec_kernels_main.c
          -o ${exec_kernels}
  DEPENDS ${CMAKE_SOURCE_DIR}/src/exec/exec_kernels_main.c VERBATIM)
file(GLOB exec_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/exec/*_test.c)
set_source_files_properties(${exec_tests} PROPERTIES
  OBJECT_DEPENDS ${exec_kernels}
  COMPILE_DEFINITIONS AT_EXEC_KERNELS="${exec_kernels}")
