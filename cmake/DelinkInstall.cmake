# What `cmake --install BUILD --prefix P` puts where:
#   bin/delink                 the program
#   share/delink/recipes       recipes to begin with
#   share/man, and where bash, zsh and fish look for completions
#   include/delink             all headers; users write #include "layers/ops/..."
#   lib/delink                 the libraries, static
#   lib/cmake/delink           for find_package(delink [COMPONENTS testing])
# Users link delink::delink, which is everything, and for tests of gradients
# delink::gradcheck (component testing, in a build with DELINK_TESTS).
if(NOT DELINK_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)

add_library(delink_everything INTERFACE)
add_library(delink::delink ALIAS delink_everything)
target_link_libraries(delink_everything INTERFACE delink::main delink::modules)
delink_export(delink_everything delink delink)

install(TARGETS delink RUNTIME)
install(FILES LICENSE TYPE DOC)
install(DIRECTORY recipes/ DESTINATION ${CMAKE_INSTALL_DATADIR}/delink/recipes
  FILES_MATCHING PATTERN "*.toml"
  PATTERN run EXCLUDE PATTERN schema EXCLUDE PATTERN models EXCLUDE
  PATTERN plan EXCLUDE PATTERN bench EXCLUDE
  PATTERN report EXCLUDE)
# What the program prints of itself.
function(delink_install_printed words file destination)
  set(printed ${PROJECT_BINARY_DIR}/printed/${file})
  install(CODE "
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/printed)
    execute_process(COMMAND $<TARGET_FILE:delink> ${words}
      OUTPUT_FILE ${printed} COMMAND_ERROR_IS_FATAL ANY)")
  install(FILES ${printed} DESTINATION ${destination})
endfunction()
delink_install_printed("man" delink.1 ${CMAKE_INSTALL_MANDIR}/man1)
delink_install_printed("completion bash" delink
  ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
delink_install_printed("completion zsh" _delink
  ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
delink_install_printed("completion fish" delink.fish
  ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

install(DIRECTORY framework layers parallel data recipes
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/delink
  FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")
install(FILES tools/main.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/delink/tools)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/delink)
install(EXPORT delink NAMESPACE delink:: FILE delinkTargets.cmake
  DESTINATION ${package})
if(DELINK_TESTS)
  install(DIRECTORY tests/testing
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/delink/tests
    FILES_MATCHING PATTERN "*.h")
  install(EXPORT delink_testing NAMESPACE delink::
    FILE delinkTestingTargets.cmake DESTINATION ${package})
endif()

# What this build stands on, the user's must find again.
set(DELINK_WITH_MPI OFF)
if(DELINK_MPI AND MPI_FOUND)
  set(DELINK_WITH_MPI ON)
endif()
configure_package_config_file(cmake/delinkConfig.cmake.in
  ${PROJECT_BINARY_DIR}/delinkConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/delinkConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/delinkConfig.cmake
  ${PROJECT_BINARY_DIR}/delinkConfigVersion.cmake
  cmake/DelinkDependencies.cmake cmake/DelinkFindCuda.cmake
  DESTINATION ${package})
