#include "layers/kernels/cuda/cublaslt/functions.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "layers/kernels/cuda/open_library.h"

namespace delink::cuda {

absl::StatusOr<CublasLt> OpenCublasLt() {
  DELINK_ASSIGN_OR_RETURN(
      const SharedLibrary library,
      OpenCudaLibrary(absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR)));
  CublasLt lt{};
  absl::Status status;
  const auto find = [&](const char* symbol, auto* function) {
    if (status.ok()) status = library.Find(symbol, function);
  };
  find("cublasLtGetStatusString", &lt.status_string);
  find("cublasLtGetVersion", &lt.version);
  find("cublasLtCreate", &lt.create);
  find("cublasLtDestroy", &lt.destroy);
  find("cublasLtMatmulDescCreate", &lt.desc_create);
  find("cublasLtMatmulDescDestroy", &lt.desc_destroy);
  find("cublasLtMatmulDescSetAttribute", &lt.desc_set);
  find("cublasLtMatrixLayoutCreate", &lt.layout_create);
  find("cublasLtMatrixLayoutDestroy", &lt.layout_destroy);
  find("cublasLtMatmulPreferenceCreate", &lt.preference_create);
  find("cublasLtMatmulPreferenceDestroy", &lt.preference_destroy);
  find("cublasLtMatmulPreferenceSetAttribute", &lt.preference_set);
  find("cublasLtMatmulAlgoGetHeuristic", &lt.heuristic);
  find("cublasLtMatmulAlgoCheck", &lt.check);
  find("cublasLtMatmul", &lt.matmul);
  if (!status.ok()) return status;
  return lt;
}

}  // namespace delink::cuda
