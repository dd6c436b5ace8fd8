# What every target of the project has in common, and the two functions that
# make them.
#
#   delink_library(NAME SOURCES... DEPS TARGETS...)
#       a static library delink_NAME, alias delink::NAME
#   delink_test(NAME SOURCES... DEPS TARGETS... [LABELS L...] [TIMEOUT SECONDS])
#       a GoogleTest program NAME, run by ctest under that name

add_library(delink_options INTERFACE)
target_include_directories(delink_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(delink_options INTERFACE
  -Wall -Wextra -Wno-missing-field-initializers -Wno-unused-parameter)
if(DELINK_SANITIZE)
  target_compile_options(delink_options INTERFACE
    -fsanitize=${DELINK_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(delink_options INTERFACE -fsanitize=${DELINK_SANITIZE})
endif()

function(delink_library name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  add_library(delink_${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  add_library(delink::${name} ALIAS delink_${name})
  target_link_libraries(delink_${name} PUBLIC delink_options ${ARG_DEPS})
endfunction()

function(delink_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE delink_options ${ARG_DEPS}
    GTest::gmock GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT}
    LABELS "${ARG_LABELS}")
endfunction()
