# What `cmake --install BUILD --prefix P` puts where:
#   bin/delink                 the program
#   share/doc/delink           README, changes, docs, licenses, an example
#   share/delink/recipes       recipes to begin with
#   share/delink/machines      machines to plan for
#   share/delink/testing       what users' tests of gradients are built with
#   share/man, and where bash, zsh and fish look for completions
#   include/delink             all headers; users write #include "layers/ops/..."
#   lib/delink                 the libraries, static
#   lib/cmake/delink           for find_package(delink [COMPONENTS testing])
# Users link delink::delink, which is everything, and for tests of gradients
# delink::gradcheck (component testing): it stands on GoogleTest, so it is built
# in their build, with theirs.
if(NOT DELINK_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)

add_library(delink_everything INTERFACE)
add_library(delink::delink ALIAS delink_everything)
target_link_libraries(delink_everything INTERFACE delink::main delink::modules)
delink_export(delink_everything delink)

install(TARGETS delink RUNTIME)

# Documents are as far from each other as in the tree: links between them hold.
install(FILES LICENSE README.md CHANGELOG.md TYPE DOC)
install(DIRECTORY docs TYPE DOC)
install(FILES framework/checkpoint/format.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/framework/checkpoint)
foreach(folder offload parallel)
  install(FILES ${folder}/README.md
    DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()
install(FILES recipes/models/gpt.cc
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/recipes/models)
install(DIRECTORY tests/examples/own_model
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/tests/examples)

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

# Looked for when they are installed: install(DIRECTORY) would make folders of
# which it takes no file.
set(include ${CMAKE_INSTALL_INCLUDEDIR}/delink)
install(CODE "
  foreach(folder recipes machines)
    file(GLOB files \"${PROJECT_SOURCE_DIR}/\${folder}/*.toml\")
    file(INSTALL \${files} TYPE FILE DESTINATION
      \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/delink/\${folder}\")
  endforeach()
  foreach(top framework layers offload parallel data recipes)
    file(GLOB_RECURSE headers RELATIVE \"${PROJECT_SOURCE_DIR}\"
      \"${PROJECT_SOURCE_DIR}/\${top}/*.h\" \"${PROJECT_SOURCE_DIR}/\${top}/*.cuh\")
    foreach(header IN LISTS headers)
      cmake_path(GET header PARENT_PATH folder)
      file(INSTALL \"${PROJECT_SOURCE_DIR}/\${header}\" TYPE FILE
        DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${include}/\${folder}\")
    endforeach()
  endforeach()")
install(FILES tools/main.h DESTINATION ${include}/tools)

set(testing cut_layer gradcheck model_runner numbers visit_runner)
list(TRANSFORM testing PREPEND tests/testing/)
list(TRANSFORM testing APPEND .h OUTPUT_VARIABLE headers)
list(TRANSFORM testing APPEND .cc OUTPUT_VARIABLE sources)
list(APPEND headers tests/testing/noted_group.h)
install(FILES ${headers} DESTINATION ${include}/tests/testing)
set(DELINK_TESTING_SOURCES ${CMAKE_INSTALL_DATADIR}/delink/testing)
install(FILES ${sources} DESTINATION ${DELINK_TESTING_SOURCES})

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/delink)
install(EXPORT delink NAMESPACE delink:: FILE delinkTargets.cmake
  DESTINATION ${package})

# What this build stands on, the user's must find again.
set(DELINK_WITH_MPI OFF)
if(DELINK_MPI AND MPI_FOUND)
  set(DELINK_WITH_MPI ON)
endif()
set(DELINK_WITH_URING OFF)
if(TARGET delink_liburing)
  set(DELINK_WITH_URING ON)
endif()
configure_package_config_file(cmake/delinkConfig.cmake.in
  ${PROJECT_BINARY_DIR}/delinkConfig.cmake INSTALL_DESTINATION ${package}
  PATH_VARS DELINK_TESTING_SOURCES)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/delinkConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/delinkConfig.cmake
  ${PROJECT_BINARY_DIR}/delinkConfigVersion.cmake
  cmake/DelinkDependencies.cmake cmake/DelinkFindCuda.cmake
  DESTINATION ${package})
