# Finds what a build with CUDA stands on: CUDA::cudart_static and
# CUDAToolkit_... by CMake's own module, and headers, each empty where there is
# none: DELINK_CUDA_INCLUDE_DIR, DELINK_CUBLAS_INCLUDE_DIR,
# DELINK_CUDNN_INCLUDE_DIR, DELINK_CUDNN_FRONTEND_INCLUDE_DIR,
# DELINK_NVTX_INCLUDE_DIR (only beside the runtime's). An installed
# Delink finds its runtime with it (delinkConfig.cmake).

# Where tools/bootstrap.sh puts what it brings.
if(DEFINED ENV{XDG_CACHE_HOME})
  set(DELINK_BOOTSTRAPPED "$ENV{XDG_CACHE_HOME}/delink/cuda-13")
else()
  set(DELINK_BOOTSTRAPPED "$ENV{HOME}/.cache/delink/cuda-13")
endif()

# A toolkit that nobody names and that is not in PATH may be there.
if(NOT CUDAToolkit_ROOT AND NOT DEFINED ENV{CUDAToolkit_ROOT}
    AND NOT DEFINED ENV{CUDA_PATH} AND EXISTS ${DELINK_BOOTSTRAPPED}/bin/nvcc)
  find_program(DELINK_NVCC_IN_PATH nvcc)
  mark_as_advanced(DELINK_NVCC_IN_PATH)
  if(NOT DELINK_NVCC_IN_PATH)
    set(CUDAToolkit_ROOT ${DELINK_BOOTSTRAPPED})
  endif()
endif()
find_package(CUDAToolkit 13 QUIET)

# A header of the toolkit that was found, of one that was named, or of what
# tools/bootstrap.sh has brought; never one that lies about.
function(delink_find_cuda_header variable header)
  set(folders ${CUDAToolkit_INCLUDE_DIRS})
  foreach(root IN ITEMS "${CUDAToolkit_ROOT}" "$ENV{CUDAToolkit_ROOT}"
      "${DELINK_BOOTSTRAPPED}")
    if(root)
      list(APPEND folders ${root}/include)
    endif()
  endforeach()
  find_path(${variable} ${header} NO_DEFAULT_PATH PATHS ${folders})
  mark_as_advanced(${variable})
  if(NOT ${variable})
    set(${variable} "" PARENT_SCOPE)
  endif()
endfunction()
delink_find_cuda_header(DELINK_CUDA_INCLUDE_DIR cuda_runtime_api.h)
delink_find_cuda_header(DELINK_CUBLAS_INCLUDE_DIR cublasLt.h)
delink_find_cuda_header(DELINK_CUDNN_INCLUDE_DIR cudnn.h)
delink_find_cuda_header(DELINK_CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h)
delink_find_cuda_header(DELINK_NVTX_INCLUDE_DIR nvtx3/nvToolsExtCudaRt.h)
# A root that was named may be one of an earlier CUDA.
if(DELINK_CUDA_INCLUDE_DIR)
  file(STRINGS ${DELINK_CUDA_INCLUDE_DIR}/cuda_runtime_api.h version
    REGEX "#define CUDART_VERSION +13")
  if(NOT version)
    set(DELINK_CUDA_INCLUDE_DIR "")
  endif()
endif()
if(NOT DELINK_CUDA_INCLUDE_DIR)
  set(DELINK_NVTX_INCLUDE_DIR "")
endif()

add_library(delink_cuda_headers INTERFACE IMPORTED)
target_include_directories(delink_cuda_headers INTERFACE
  ${DELINK_CUDA_INCLUDE_DIR})
