# Seals of messages are computed in vectors of the project's baseline.
if(TARGET at_pod)
  set_source_files_properties(${dir}/seal.c PROPERTIES COMPILE_OPTIONS "-march=x86-64-v3;-O3")
endif()
