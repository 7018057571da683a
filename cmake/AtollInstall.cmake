# cmake --install: the libraries for C with their headers and pkg-config files; the
# plug-in and the command in lib/atoll, and the command's name in bin.
include(GNUInstallDirs)
set(AT_LIBEXEC ${CMAKE_INSTALL_LIBDIR}/atoll)

install(TARGETS atoll_tiles atoll_input LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES src/tiles/atoll_tiles.h src/spinput/atoll_input.h
  ${CMAKE_BINARY_DIR}/gen/pjrt/pjrt_abi.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(name tiles input)
  set(AT_PC_NAME atoll_${name})
  configure_file(cmake/atoll.pc.in ${CMAKE_BINARY_DIR}/atoll_${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/atoll_${name}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
install(TARGETS atoll LIBRARY DESTINATION ${AT_LIBEXEC})
install(TARGETS atoll_cli RUNTIME DESTINATION ${AT_LIBEXEC})
foreach(name tiles input)
  install(CODE "file(CREATE_LINK ../libatoll_${name}.so
    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${AT_LIBEXEC}/libatoll_${name}.so\" SYMBOLIC)")
endforeach()
install(CODE "
  set(bin \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
  file(MAKE_DIRECTORY \"\${bin}\")
  file(RELATIVE_PATH to \"\${bin}\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${AT_LIBEXEC}/atoll\")
  file(CREATE_LINK \"\${to}\" \"\${bin}/atoll\" SYMBOLIC)")
# Manual pages and completion scripts are what the command prints.
install(CODE "
  set(command $<TARGET_FILE:atoll_cli>)
  set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
  file(MAKE_DIRECTORY \"\${share}/man/man1\")
  execute_process(COMMAND \${command} man --out=\${share}/man/man1 COMMAND_ERROR_IS_FATAL ANY)
  foreach(pair bash:bash-completion/completions/atoll zsh:zsh/site-functions/_atoll
          fish:fish/vendor_completions.d/atoll.fish)
    string(REPLACE : \";\" pair \"\${pair}\")
    list(GET pair 0 shell)
    list(GET pair 1 file)
    execute_process(COMMAND \${command} completion \${shell} OUTPUT_VARIABLE text
                    COMMAND_ERROR_IS_FATAL ANY)
    file(WRITE \"\${share}/\${file}\" \"\${text}\")
  endforeach()")
