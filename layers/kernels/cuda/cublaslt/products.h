// Matrix products with cuBLASLt; each device has one object.
//
// cuBLASLt's matrices are column-major, and a row-major matrix read as a
// column-major one is its transpose. So cuBLASLt computes
// C^T = op(B)^T op(A)^T. The bias has one number for each column of C, that is
// for each row of C^T, as cuBLASLt's epilogue expects.
//
// Epilogues can compute GELU with tanh, if `pre` (cuBLASLt's aux) can be read
// by 16 bytes; its derivative; and the gradient of a bias together with that of
// a weight, in f32. Only the library knows whether it has an algorithm for a
// given problem.
//
// Arithmetic is f32 (no TF32), split sums included. An output is rounded once;
// some of cuBLASLt's kernels also round it before they add something to it.
// The algorithm is the first that cuBLASLt proposes. With `timed` it is the
// fastest of several, which are timed when a problem first occurs; the choice
// is kept (matmul_choices.h). The same call gives the same bits.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/device/cuda/stream.h"
#include "layers/kernels/cuda/cublaslt/functions.h"
#include "layers/kernels/cuda/matmul_choices.h"

namespace delink::cuda {

class Products final : public Resident {
 public:
  struct Options {
    bool timed = false;
    std::string folder;  // of the choices' file; empty: they are not kept
    // Epilogues to use. If not set: all on devices of capability 9 and later.
    // On earlier ones cuBLASLt's kernels with GELU in bf16 are slower than two
    // separate kernels.
    std::optional<std::set<Epilogue>> fused = {};
  };

  // For the current device.
  Products(const CublasLt& library, const Options& options);
  ~Products() override;

  // Enqueues the product on the stream and returns true, or returns false if
  // cuBLASLt has no algorithm for it. No dimension may be 0. Thread-safe.
  bool Multiply(Stream& stream, const MatmulArgs& args, DType dtype);
  // The same with an epilogue. Returns false also if there is no epilogue for
  // it, or if `fused` excludes it.
  bool Multiply(Stream& stream, const MatmulGeluArgs& args, DType dtype);
  bool Multiply(Stream& stream, const MatmulGeluBackwardArgs& args,
                DType dtype);
  bool Multiply(Stream& stream, const MatmulBiasGradArgs& args, DType dtype);

 private:
  struct Plan;
  struct Pointers;
  // The end of the stream's scratch, for an epilogue's sums; the product itself
  // does not use it.
  static constexpr int64_t kSumsBytes = int64_t{1} << 20;

  // The operand of an epilogue: `pre`, or the memory for the sums, which
  // overwrite it.
  struct Beside {
    Epilogue epilogue = Epilogue::kNone;
    void* operand = nullptr;
  };
  using Proposals = std::vector<cublasLtMatmulHeuristicResult_t>;

  bool Multiply(Stream& stream, const MatmulArgs& args, DType dtype,
                const Beside& beside);
  std::unique_ptr<Plan> MakePlan(const MatmulProblem& problem) const;
  void SetEpilogue(const MatmulProblem& problem, Plan& plan) const;
  void SetPointers(const Pointers& at, const Plan& plan) const;
  template <typename Value>
  void SetDesc(const Plan& plan, cublasLtMatmulDescAttributes_t attribute,
               const Value& value) const;
  Proposals Propose(const MatmulProblem& problem, int64_t workspace,
                    const Plan& plan) const;
  void Choose(const StreamInfo& stream, const MatmulProblem& problem,
              const Pointers& at, Plan& plan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<MatmulChoice> ChooseTimed(const StreamInfo& stream,
                                          const MatmulProblem& problem,
                                          const Pointers& at,
                                          const Proposals& proposals,
                                          Plan& plan) const;
  bool Accept(const MatmulChoice& choice, int64_t workspace, Plan& plan) const;
  std::optional<double> Time(const StreamInfo& stream, const Pointers& at,
                             const Plan& plan) const;
  cublasStatus_t Run(const StreamInfo& stream, const Pointers& at,
                     const Plan& plan) const;
  bool RunFirst(const StreamInfo& stream, const MatmulProblem& problem,
                const Pointers& at, Plan& plan) const;
  void Check(cublasStatus_t status, const char* call) const;
  void CheckRun(cublasStatus_t status, const MatmulProblem& problem) const;

  const CublasLt library_;
  const bool timed_;
  std::set<Epilogue> fused_;
  cublasLtHandle_t handle_ = nullptr;
  Mutex mutex_;
  std::optional<MatmulChoices> choices_ ABSL_GUARDED_BY(mutex_);
  std::map<MatmulProblem, std::unique_ptr<Plan>> plans_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace delink::cuda
