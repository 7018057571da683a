# data/hw/*.json as bytes inside the library, so that no path must be found at run
# time. Runs again when a description changes.
file(GLOB hw_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/data/hw/*.json)
set(hw_text "// Generated from data/hw/*.json.\n#include \"device/device_internal.h\"\n")
set(hw_rows "")
set(hw_count 0)
foreach(hw_file ${hw_files})
  file(READ ${hw_file} hw_hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hw_hex "${hw_hex}")
  string(APPEND hw_text "static const uint8_t hw${hw_count}[] = {${hw_hex}};\n")
  string(APPEND hw_rows "    {hw${hw_count}, sizeof hw${hw_count}},\n")
  math(EXPR hw_count "${hw_count} + 1")
endforeach()
string(APPEND hw_text "const at_bytes at_hw_files[] = {\n${hw_rows}};\n"
       "const size_t at_hw_num_files = ${hw_count};\n")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/gen/hw_data.c CONTENT "${hw_text}" @ONLY)
set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${hw_files})
target_sources(at_device PRIVATE ${CMAKE_BINARY_DIR}/gen/hw_data.c)
