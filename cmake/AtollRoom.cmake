# at_room(name [DEPS rooms...] [LIBS libraries...])
#
# One folder src/<name> is one room and one static library at_<name>. Every
# foo_test.c becomes a cmocka test (label unit); the room's foo_test_util.c are a
# library that its tests, and those of rooms above it, share. Every foo_fuzz.c is
# a fuzz target:
# with AT_FUZZ a libFuzzer binary, otherwise a program that replays the corpus in
# test/corpora/<foo> (label fuzz-replay). A room may bring extra steps in
# src/<name>/room.cmake. The table of rooms is written for the include lint.
set_property(GLOBAL PROPERTY AT_ROOM_TABLE "")
find_library(AT_CMOCKA cmocka REQUIRED)

function(at_room name)
  cmake_parse_arguments(R "" "" "DEPS;LIBS" ${ARGN})
  set_property(GLOBAL APPEND_STRING PROPERTY AT_ROOM_TABLE "${name}: ${R_DEPS}\n")
  set(dir ${CMAKE_SOURCE_DIR}/src/${name})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${dir}/*.c)
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "_(test|test_util|fuzz|main)\\.c$")
  set(lib at_${name})
  if(sources)
    add_library(${lib} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(${lib} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${lib} ${scope} ${CMAKE_SOURCE_DIR}/src)
  foreach(dep ${R_DEPS})
    target_link_libraries(${lib} ${scope} at_${dep})
  endforeach()
  target_link_libraries(${lib} ${scope} ${R_LIBS})
  include(${dir}/room.cmake OPTIONAL)

  set(helpers ${all})
  list(FILTER helpers INCLUDE REGEX "_test_util\\.c$")
  if(helpers)
    add_library(${lib}_test_util STATIC EXCLUDE_FROM_ALL ${helpers})
  endif()
  set(shared)
  foreach(room ${name} ${R_DEPS})
    if(TARGET at_${room}_test_util)
      list(APPEND shared at_${room}_test_util)
    endif()
  endforeach()
  if(helpers)
    # As a test that uses it is linked: with the helpers of rooms below.
    list(REMOVE_ITEM shared ${lib}_test_util)
    target_link_libraries(${lib}_test_util PUBLIC ${shared} ${lib} ${AT_CMOCKA})
    set(shared ${lib}_test_util)
  endif()

  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.c$")
  foreach(src ${tests})
    get_filename_component(stem ${src} NAME_WE)
    add_executable(${stem} ${src})
    target_link_libraries(${stem} PRIVATE ${shared} ${lib} ${AT_CMOCKA})
    # Generated code that a test loads calls functions of the test's own.
    set_target_properties(${stem} PROPERTIES ENABLE_EXPORTS ON)
    add_test(NAME ${name}/${stem} COMMAND ${stem})
    set_tests_properties(${name}/${stem} PROPERTIES LABELS unit TIMEOUT 300
      ENVIRONMENT "AT_SOURCE_DIR=${CMAKE_SOURCE_DIR};ATOLL_VERIFY=1")
  endforeach()

  set(fuzzers ${all})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.c$")
  foreach(src ${fuzzers})
    get_filename_component(stem ${src} NAME_WE)
    if(AT_FUZZ)
      add_executable(${stem} ${src})
      target_compile_options(${stem} PRIVATE -fsanitize=fuzzer)
      target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
    else()
      add_executable(${stem} ${src} ${CMAKE_SOURCE_DIR}/test/fuzz_replay.c)
      add_test(NAME fuzz/${stem}
        COMMAND ${stem} ${CMAKE_SOURCE_DIR}/test/corpora/${stem})
      set_tests_properties(fuzz/${stem} PROPERTIES LABELS fuzz-replay TIMEOUT 300)
    endif()
    target_link_libraries(${stem} PRIVATE ${shared} ${lib})
  endforeach()
endfunction()

function(at_rooms_done)
  get_property(table GLOBAL PROPERTY AT_ROOM_TABLE)
  file(WRITE ${CMAKE_BINARY_DIR}/rooms.txt "${table}")
endfunction()
