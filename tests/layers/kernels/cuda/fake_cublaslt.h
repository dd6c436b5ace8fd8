// cuBLASLt as its documentation has it, on the emulated device: column-major
// products in double, in the stream's order. It takes what we ask of it apart
// and checks it, so that the mapping from row-major products, and the choice
// among algorithms, are tested where there is no cuBLASLt.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "layers/kernels/cuda/cublaslt/functions.h"

namespace delink::testing {

// What the fake is to do and what it was asked: one for the process, since
// cuBLASLt's functions are plain ones.
struct FakeCublasLt {
  int algorithms = 3;  // that it proposes
  // What it says where it has none, or one does not run.
  cublasStatus_t refusal = CUBLAS_STATUS_NOT_SUPPORTED;
  std::vector<double> seconds;       // that each takes at least
  std::set<int> do_not_run;          // refused when run
  std::set<int> want_workspace;      // more than there is
  std::set<int> not_of_this_device;  // what the check of an algorithm says

  int proposals_asked = 0;
  std::vector<int> run;  // algorithms, in order
  uint32_t reduction_schemes = 0;
  uint32_t alignments[4] = {};  // least, of A, B, C, D
  int live = 0;                 // handles, descriptors, layouts, preferences

  static FakeCublasLt& Instance();
  // The functions of a fresh one.
  static cuda::CublasLt Fresh();
};

}  // namespace delink::testing
