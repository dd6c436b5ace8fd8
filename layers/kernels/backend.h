// For backends: makes from the list of kernels (kernels.h) the declarations of
// what a backend's namespace must define, and its table for a type T.
#pragma once

#include "layers/kernels/kernels.h"

#define DELINK_DECLARE_KERNEL(entry, Function) \
  template <typename T>                        \
  void Function(Stream&, const Function##Args&);
#define DELINK_DECLARE_SCRATCH(entry, Function) \
  template <typename T>                         \
  int64_t Function##Scratch(const Function##Args&, int threads);

#define DELINK_KERNEL_OF_T(entry, Function) .entry = Function<T>,
#define DELINK_SCRATCH_OF_T(entry, Function) .entry = Function##Scratch<T>,
#define DELINK_TABLE_OF_T                     \
  {                                           \
    DELINK_KERNELS(DELINK_KERNEL_OF_T)        \
    DELINK_SCRATCH_BYTES(DELINK_SCRATCH_OF_T) \
  }
