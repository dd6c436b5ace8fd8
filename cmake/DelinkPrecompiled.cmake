# Precompiled headers: what most sources include of libraries is read once for
# all libraries and once for all tests, about two fifths of what it takes to
# compile one. Sources still include what they use (tools/lint/includes.py).
#
#   DELINK_PRECOMPILED_HEADERS  ON or OFF
#   delink_precompiled(TARGET OF)
#       for a library (OF library) or a test program (OF test) whose compiler
#       options are those that all of them have

option(DELINK_PRECOMPILED_HEADERS "read libraries' headers once" OFF)

# ccache compiles again only what is new, in any checkout and build folder. It
# knows sources by their paths in the checkout, and precompiled headers by their
# text (precompile.sh), also if CMake has just written the file that lists them.
find_program(CCACHE_PROGRAM ccache)
set(DELINK_CCACHE)
if(CCACHE_PROGRAM)
  set(DELINK_CCACHE ${CMAKE_COMMAND} -E env
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    ${CCACHE_PROGRAM})
  if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${DELINK_CCACHE})
  endif()
endif()

set(precompiled_library
  <algorithm> <cstdint> <functional> <map> <memory> <optional> <string> <utility>
  <vector> <absl/status/statusor.h> <absl/strings/str_cat.h>
  <absl/strings/str_format.h>)
set(precompiled_test ${precompiled_library}
  <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp>)

if(DELINK_PRECOMPILED_HEADERS)
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/precompiled.cc
    CONTENT "int main() {}\n")
  # One is made as libraries are and one as programs are: -fPIC and -fPIE.
  add_library(delink_precompiled_library OBJECT
    ${CMAKE_BINARY_DIR}/precompiled.cc)
  target_link_libraries(delink_precompiled_library PRIVATE delink_options)
  target_precompile_headers(delink_precompiled_library
    PRIVATE ${precompiled_library})
  if(DELINK_TESTS)
    add_executable(delink_precompiled_test ${CMAKE_BINARY_DIR}/precompiled.cc)
    target_compile_options(delink_precompiled_test
      PRIVATE ${DELINK_TEST_OPTIONS})
    target_link_libraries(delink_precompiled_test
      PRIVATE delink_options GTest::gmock GTest::gtest)
    target_precompile_headers(delink_precompiled_test
      PRIVATE ${precompiled_test})
  endif()
  if(CCACHE_PROGRAM)
    foreach(of IN ITEMS library test)
      if(TARGET delink_precompiled_${of})
        set_target_properties(delink_precompiled_${of} PROPERTIES
          CXX_COMPILER_LAUNCHER
          "${PROJECT_SOURCE_DIR}/cmake/precompile.sh;${CMAKE_CXX_COMPILER_LAUNCHER}")
      endif()
    endforeach()
  endif()
endif()

function(delink_precompiled target of)
  if(DELINK_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} REUSE_FROM delink_precompiled_${of})
  endif()
endfunction()
