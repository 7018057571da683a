target_include_directories(${lib} SYSTEM ${scope} ${LLVM_INCLUDE_DIRS})
target_link_directories(${lib} ${scope} ${LLVM_LIBRARY_DIRS})
