# Loops over rows are plain C: vectors of the project's baseline need its flags.
if(TARGET at_sparsecore)
  target_compile_options(at_sparsecore PRIVATE -march=x86-64-v3 -O3)
endif()
