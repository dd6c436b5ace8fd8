// The functions of cuBLASLt that we use, opened at run time, with the types of
// its own header.
#pragma once

#include <cublasLt.h>

#include "absl/status/statusor.h"

namespace delink::cuda {

struct CublasLt {
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoCheck) check;
  decltype(&cublasLtMatmul) matmul;
};

// NotFound says where it was looked for and how to fix that.
absl::StatusOr<CublasLt> OpenCublasLt();

}  // namespace delink::cuda
