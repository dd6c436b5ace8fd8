# CUDA: whether this build has the backend, and how device code is compiled.
#
#   DELINK_CUDA                AUTO (where a CUDA 13 toolkit is found), ON, OFF
#   DELINK_CUDA_ARCHITECTURES  AUTO (this machine's GPUs), ALL, or as
#                              CMAKE_CUDA_ARCHITECTURES, which it becomes
#   CUDAToolkit_ROOT           where the toolkit is, also from the environment
#
# A toolkit is looked for as CMake always does, then where tools/bootstrap.sh
# --cuda puts one. What it says to the rest:
#
#   DELINK_WITH_CUDA           the real backend is built
#   DELINK_WITH_CUDNN          ... with attention by cuDNN
#   DELINK_CUDA_INCLUDE_DIR    the runtime's headers; empty where none are.
#                              Also without the backend: the emulated device of
#                              the tests needs no more
#   delink_cuda_headers        the same as a target
#   delink_cuda_sources(LIBRARY FILES...)
#       what the library delink_LIBRARY has of the backend: .cu for nvcc, and
#       .cc that call the runtime. The emulated device is made of the same
#       files: the global property DELINK_CUDA_SOURCES has those of all
#       libraries, CUDA or not
#   delink_use_cuda(LIBRARY)
#       for what only real devices have: further sources of the library call the
#       runtime, which is linked statically
#
# cuBLASLt, cuDNN and NCCL are opened when the program runs: one build serves
# machines with and without them, and with and without a driver.

set(DELINK_CUDA AUTO CACHE STRING
  "the CUDA backend: AUTO (where a toolkit is found), ON or OFF")
set_property(CACHE DELINK_CUDA PROPERTY STRINGS AUTO ON OFF)
set(DELINK_CUDA_ARCHITECTURES AUTO CACHE STRING
  "GPUs that device code is compiled for: AUTO, ALL or a list")
include(DelinkFindCuda)

# What CMake is told. PTX of the last one lets later GPUs compile for themselves,
# and of the only one, where there is no GPU to see, any.
function(delink_cuda_architectures result)
  set(list ${DELINK_CUDA_ARCHITECTURES})
  if(list STREQUAL "ALL")
    set(list 80-real 90a-real 100)
  elseif(list STREQUAL "AUTO")
    execute_process(
      COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE said ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" list "${said}")
    list(TRANSFORM list REPLACE "\\." "")
    list(FILTER list EXCLUDE REGEX "^[1-7].$")
    list(REMOVE_DUPLICATES list)
    list(TRANSFORM list REPLACE "^90$" "90a")
    list(TRANSFORM list APPEND "-real")
    if(NOT list)
      set(list 80)
    endif()
  endif()
  set(${result} ${list} PARENT_SCOPE)
endfunction()

# What a build with CUDA lacks here; empty when it lacks nothing.
function(delink_cuda_lacks result)
  set(lacks)
  if(NOT EXISTS "${CUDAToolkit_NVCC_EXECUTABLE}")
    set(lacks "nvcc of a CUDA 13 toolkit")
  elseif(NOT TARGET CUDA::cudart_static)
    set(lacks "libcudart_static.a")
  elseif(NOT DELINK_CUDA_INCLUDE_DIR)
    set(lacks "cuda_runtime_api.h of CUDA 13")
  elseif(NOT DELINK_CUBLAS_INCLUDE_DIR)
    set(lacks "cublasLt.h")
  endif()
  set(${result} "${lacks}" PARENT_SCOPE)
endfunction()

set(DELINK_WITH_CUDA OFF)
if(DELINK_CUDA)
  delink_cuda_lacks(lacks)
  if(NOT lacks)
    set(DELINK_WITH_CUDA ON)
  elseif(DELINK_CUDA STREQUAL "AUTO")
    message(STATUS "No CUDA backend: no ${lacks} (tools/bootstrap.sh --cuda)")
  else()
    message(FATAL_ERROR "DELINK_CUDA=${DELINK_CUDA}, but there is no ${lacks}. "
      "Name a toolkit by CUDAToolkit_ROOT, let tools/bootstrap.sh --cuda bring "
      "one, or build with DELINK_CUDA=OFF.")
  endif()
endif()

set(DELINK_WITH_CUDNN OFF)
if(DELINK_WITH_CUDA)
  if(DELINK_CUDNN_INCLUDE_DIR AND DELINK_CUDNN_FRONTEND_INCLUDE_DIR)
    set(DELINK_WITH_CUDNN ON)
  else()
    message(STATUS "CUDA without cuDNN's attention: no cudnn.h or no "
      "cudnn_frontend.h (tools/bootstrap.sh --cuda)")
  endif()
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE} CACHE FILEPATH
    "nvcc")
  # Beside clang it is the g++ in PATH: clang warns of CUDA's own headers.
  if(NOT CMAKE_CUDA_HOST_COMPILER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  endif()
  delink_cuda_architectures(CMAKE_CUDA_ARCHITECTURES)
  enable_language(CUDA)
  # CMake 3.25 does not know that this nvcc has C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  # ccache reads no response files of nvcc's.
  set(CMAKE_CUDA_USE_RESPONSE_FILE_FOR_INCLUDES OFF)
  # Where the programs of the build folder look for the libraries they open.
  list(APPEND CMAKE_BUILD_RPATH ${CUDAToolkit_LIBRARY_DIR}
    ${DELINK_BOOTSTRAPPED}/lib)
  message(STATUS "CUDA ${CUDAToolkit_VERSION} for "
    "${CMAKE_CUDA_ARCHITECTURES}: ${CUDAToolkit_NVCC_EXECUTABLE}")
endif()

function(delink_use_cuda library)
  target_include_directories(delink_${library} SYSTEM
    PRIVATE ${DELINK_CUDA_INCLUDE_DIR})
  target_link_libraries(delink_${library} PRIVATE CUDA::cudart_static)
endfunction()

function(delink_cuda_sources library)
  set(device_code)
  foreach(file IN LISTS ARGN)
    set(path ${CMAKE_CURRENT_SOURCE_DIR}/${file})
    set_property(GLOBAL APPEND PROPERTY DELINK_CUDA_SOURCES ${path})
    # A program on the emulated device has its own in their place.
    set_source_files_properties(${path} PROPERTIES
      SKIP_UNITY_BUILD_INCLUSION ON)
    if(file MATCHES "\\.cu$")
      list(APPEND device_code ${path})
    elseif(DELINK_WITH_CUDA)
      target_sources(delink_${library} PRIVATE ${path})
    endif()
  endforeach()
  if(NOT DELINK_WITH_CUDA)
    return()
  endif()
  delink_use_cuda(${library})
  if(device_code)
    delink_device_code(${library} ${device_code})
  endif()
endfunction()

function(delink_device_code library)
  set(objects delink_${library}_cuda)
  add_library(${objects} OBJECT ${ARGN})
  target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${objects} PRIVATE
    --expt-relaxed-constexpr -Werror=all-warnings -Xptxas=-v ${warnings})
  # The compiler's resource report stays beside each object, for the tests.
  set_target_properties(${objects} PROPERTIES CUDA_COMPILER_LAUNCHER
    "${PROJECT_SOURCE_DIR}/cmake/ptxas_report.sh;${DELINK_CCACHE}")
  set_property(GLOBAL APPEND PROPERTY DELINK_CUDA_OBJECTS ${objects})
  target_sources(delink_${library} PRIVATE $<TARGET_OBJECTS:${objects}>)
endfunction()
