# What every target of the project has in common, and the two functions that
# make them.
#
#   delink_library(NAME SOURCES... DEPS TARGETS... [COLD])
#       a static library delink_NAME, alias delink::NAME. COLD: no loop of it is
#       worth the optimiser's best, without which it compiles a third faster
#   delink_test(NAME SOURCES... DEPS TARGETS... [LABELS L...] [TIMEOUT SECONDS]
#               [SHARDS N] [COST SECONDS] [PROCESSORS N] [ENVIRONMENT E...])
#       a GoogleTest program NAME, run by ctest under that name: one for what a
#       folder has of a set of labels (docs/testing.md). SHARDS: run in so many
#       parts NAME.1, NAME.2, ...; COST: what takes long is begun first
#   delink_gpu_test(NAME SOURCES... DEPS TARGETS... [TIMEOUT SECONDS])
#       a delink_test that needs a GPU and skips without one; part of the bundle
#       (tools/bundle.sh). In a build without CUDA it only says SKIPPED
#   delink_skipped_test(NAME WHY)
#       a test that this build cannot have
#   delink_mpi_test(NAME RANKS... SRCS SOURCES... DEPS TARGETS...
#                   [LABELS L...] [TIMEOUT SECONDS])
#       a GoogleTest program NAME whose ranks all run every test (see
#       tests/testing/mpi_main.h), run under mpirun as NAME_2, NAME_4, ... for
#       each number in RANKS; nothing without DELINK_MPIRUN

include(GNUInstallDirs)

# What an installed Delink has of targets: delink::AS
# (cmake/DelinkInstall.cmake).
function(delink_export target as)
  if(DELINK_INSTALL)
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${as})
    install(TARGETS ${target} EXPORT delink
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/delink)
  endif()
endfunction()

add_library(delink_options INTERFACE)
target_include_directories(delink_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/delink>)
target_compile_features(delink_options INTERFACE cxx_std_20)
set(warnings
  -Wall -Wextra -Wno-missing-field-initializers -Wno-unused-parameter)
target_compile_options(delink_options INTERFACE
  "$<BUILD_INTERFACE:${warnings}>")
# Where values of an enum are told apart one is forgotten that is added later:
# its word in recipes, say (recipes/schema/section.h).
target_compile_options(delink_options INTERFACE
  "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Werror=switch>>")
# GCC collects garbage from 128 MiB of it on; later is a tenth faster.
target_compile_options(delink_options INTERFACE
  "$<BUILD_INTERFACE:$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=1000000>>")
delink_export(delink_options options)
if(DELINK_SANITIZE)
  # Without those checks that cost most to compile and find least: a null pointer
  # that is used faults, and the address sanitizer knows sizes better. Code that
  # need not go on after what was found takes a fifth less to compile.
  target_compile_options(delink_options INTERFACE
    -fsanitize=${DELINK_SANITIZE} -fno-sanitize=null,object-size,vptr
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(delink_options INTERFACE -fsanitize=${DELINK_SANITIZE})
endif()

# A test's own code is run about as often as it is compiled: it goes without the
# optimiser's best, which what it tests has as ever. Without any it compiles a
# tenth faster, but simulators and references then take three times as long.
if(DELINK_SANITIZE)
  set(DELINK_TEST_OPTIONS -O0)
else()
  set(DELINK_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)
endif()

include(DelinkPrecompiled)

# What the sanitizer presets build: the test programs with that label.
add_custom_target(tests_asan)
add_custom_target(tests_tsan)

function(delink_label_test name)
  foreach(label IN LISTS ARGN)
    if(TARGET tests_${label})
      add_dependencies(tests_${label} ${name})
    endif()
  endforeach()
endfunction()

function(delink_library name)
  cmake_parse_arguments(ARG "COLD" "" "DEPS" ${ARGN})
  add_library(delink_${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  if(ARG_COLD)
    target_compile_options(delink_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  add_library(delink::${name} ALIAS delink_${name})
  target_link_libraries(delink_${name} PUBLIC delink_options ${ARG_DEPS})
  delink_precompiled(delink_${name} library)
  # Of the tests' libraries users get the sources (cmake/DelinkInstall.cmake).
  if(NOT CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/tests(/|$)")
    delink_export(delink_${name} ${name})
  endif()
endfunction()

# Gives a library OpenMP, or has the compiler pass over its pragmas.
function(delink_use_openmp target)
  if(DELINK_OPENMP)
    target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX)
    # They are made without it.
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  else()
    target_compile_options(${target} PRIVATE -Wno-unknown-pragmas)
  endif()
endfunction()

function(delink_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;SHARDS;COST;PROCESSORS"
    "DEPS;LABELS;ENVIRONMENT" ${ARGN})
  set(limit 300)
  if(DELINK_SANITIZE)
    set(limit 900)  # for what hangs, not for what takes long
  endif()
  foreach(default "TIMEOUT ${limit}" "SHARDS 1" "COST 0" "PROCESSORS 1")
    separate_arguments(default)
    list(GET default 0 option)
    if(NOT ARG_${option})
      list(GET default 1 ARG_${option})
    endif()
  endforeach()
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_compile_options(${name} PRIVATE ${DELINK_TEST_OPTIONS})
  target_link_libraries(${name} PRIVATE delink_options ${ARG_DEPS}
    GTest::gmock GTest::gtest GTest::gtest_main)
  delink_precompiled(${name} test)
  if(delink::simt IN_LIST ARG_DEPS)
    set_property(TARGET ${name} PROPERTY DELINK_ON_SIMT ON)
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    set(test ${name})
    set(environment ${ARG_ENVIRONMENT})
    if(ARG_SHARDS GREATER 1)
      set(test ${name}.${shard})
      math(EXPR index "${shard} - 1")
      list(APPEND environment
        GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${index})
    endif()
    add_test(NAME ${test} COMMAND ${name})
    set_tests_properties(${test} PROPERTIES TIMEOUT ${ARG_TIMEOUT}
      LABELS "${ARG_LABELS}" COST ${ARG_COST} PROCESSORS ${ARG_PROCESSORS}
      ENVIRONMENT "${environment}")
  endforeach()
  delink_label_test(${name} ${ARG_LABELS})
endfunction()

function(delink_skipped_test name why)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "SKIPPED: ${why}")
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^SKIPPED: ")
endfunction()

function(delink_gpu_test name)
  if(NOT DELINK_WITH_CUDA)
    delink_skipped_test(${name} "this build has no CUDA")
    return()
  endif()
  delink_test(${name} ${ARGN} LABELS gpu)
  target_link_libraries(${name} PRIVATE delink_cuda_headers CUDA::cudart_static)
  set_property(TEST ${name} PROPERTY RESOURCE_LOCK gpu)
  set_property(GLOBAL APPEND PROPERTY DELINK_GPU_TESTS ${name})
endfunction()

# What Debian's Open MPI needs: as root, on few cores, in a container.
set(DELINK_MPI_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_rmaps_base_oversubscribe=1
  OMPI_MCA_mpi_yield_when_idle=1
  OMPI_MCA_btl_vader_single_copy_mechanism=none)

function(delink_mpi_test name)
  if(NOT DELINK_MPIRUN)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SRCS})
  target_compile_options(${name} PRIVATE ${DELINK_TEST_OPTIONS})
  target_link_libraries(${name} PRIVATE delink_options delink_mpi_main
    ${ARG_DEPS} GTest::gmock GTest::gtest)
  delink_precompiled(${name} test)
  delink_label_test(${name} ${ARG_LABELS})
  foreach(ranks IN LISTS ARG_UNPARSED_ARGUMENTS)
    add_test(NAME ${name}_${ranks} COMMAND ${DELINK_MPIRUN}
      ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}_${ranks} PROPERTIES
      TIMEOUT ${ARG_TIMEOUT} PROCESSORS 2 LABELS "mpi;${ARG_LABELS}"
      ENVIRONMENT "${DELINK_MPI_ENVIRONMENT}")
  endforeach()
endfunction()
