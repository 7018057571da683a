# The header of the PJRT C API is written into the build folder from the Python
# package pypjrt.
if(NOT AT_PYTHON AND EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  set(AT_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python)
endif()
if(NOT AT_PYTHON)
  if(NOT Python3_EXECUTABLE)
    find_package(Python3 COMPONENTS Interpreter REQUIRED)
  endif()
  set(AT_PYTHON ${Python3_EXECUTABLE})
endif()
set(AT_PJRT_GEN ${CMAKE_BINARY_DIR}/gen)
set(AT_PJRT_ABI ${AT_PJRT_GEN}/pjrt/pjrt_abi.h)
execute_process(
  COMMAND ${AT_PYTHON} -c "import pypjrt._abi.pjrt_0_114"
  RESULT_VARIABLE AT_PYPJRT_MISSING OUTPUT_QUIET ERROR_QUIET)
if(AT_PYPJRT_MISSING)
  message(WARNING
    "${AT_PYTHON} has no package pypjrt, from which the PJRT header is made: libatoll.so will not build.\n"
    "hint: pip install pypjrt==0.1.1, or pass -DAT_PYTHON=<an interpreter with it>")
endif()
add_custom_command(
  OUTPUT ${AT_PJRT_ABI}
  COMMAND ${AT_PYTHON} ${CMAKE_SOURCE_DIR}/tools/gen_pjrt_abi.py ${AT_PJRT_ABI}
  COMMAND ${CMAKE_COMMAND} -E touch ${AT_PJRT_ABI}
  DEPENDS ${CMAKE_SOURCE_DIR}/tools/gen_pjrt_abi.py
  COMMENT "Writing pjrt/pjrt_abi.h" VERBATIM)
add_custom_target(at_pjrt_abi DEPENDS ${AT_PJRT_ABI})
if(sources)
  add_dependencies(${lib} at_pjrt_abi)
  target_include_directories(${lib} PUBLIC ${AT_PJRT_GEN})
endif()
