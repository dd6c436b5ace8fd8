# Everything the project stands on. docs/dependencies.md says why each. An
# installed Delink finds the same with it (delinkConfig.cmake).
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(ZLIB REQUIRED)
find_package(zstd REQUIRED)
if(DELINK_TESTS)
  find_package(GTest REQUIRED)
endif()
if(DELINK_OPENMP)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
if(DELINK_ONEDNN)
  # oneDNN's own CMake package insists on OpenCL, which nothing here uses.
  find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
  find_library(DNNL_LIBRARY dnnl REQUIRED)
  add_library(delink_onednn INTERFACE IMPORTED)
  target_include_directories(delink_onednn INTERFACE
    ${DNNL_INCLUDE_DIR})
  target_link_libraries(delink_onednn INTERFACE ${DNNL_LIBRARY})
endif()
if(DELINK_MPI)
  find_package(MPI COMPONENTS C)
endif()

# SentencePiece ships no CMake package.
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h REQUIRED)
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
find_library(SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train REQUIRED)
add_library(delink_sentencepiece INTERFACE IMPORTED)
target_include_directories(delink_sentencepiece INTERFACE
  ${SENTENCEPIECE_INCLUDE_DIR})
target_link_libraries(delink_sentencepiece INTERFACE
  ${SENTENCEPIECE_LIBRARY} ${SENTENCEPIECE_TRAIN_LIBRARY})
