if(TARGET at_pod)
  target_include_directories(at_pod SYSTEM PRIVATE ${AT_OPENSSL_INCLUDE})
  # Seals of messages are computed in vectors of the project's baseline.
  set_source_files_properties(${dir}/seal.c PROPERTIES COMPILE_OPTIONS "-march=x86-64-v3;-O3")
endif()
