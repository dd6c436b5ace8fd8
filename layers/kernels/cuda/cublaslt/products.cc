#include "layers/kernels/cuda/cublaslt/products.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/device/cuda/check.h"

namespace delink::cuda {
namespace {

constexpr int kProposals = 4;        // of which the first that runs is used
constexpr int kTimedProposals = 16;  // of which the fastest is used
constexpr int kRounds = 3, kRuns = 5;
constexpr int kFusesFrom = 9;  // major of a device's capability

cudaDataType_t TypeOf(DType dtype) {
  return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
}

cublasOperation_t OperationOf(bool transpose) {
  return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
}

cudaDeviceProp CurrentDevice() {
  int device = 0;
  cudaDeviceProp properties;
  DELINK_CUDA_CHECK(cudaGetDevice(&device));
  DELINK_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties;
}

bool HasAux(Epilogue epilogue) {
  return epilogue == Epilogue::kGelu || epilogue == Epilogue::kGeluBackward;
}

cublasLtEpilogue_t EpilogueOf(const MatmulProblem& p) {
  switch (p.epilogue) {
    case Epilogue::kNone:
      return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kGelu:
      return p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                    : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::kGeluBackward:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::kBiasGrad:
      return CUBLASLT_EPILOGUE_BGRADB;  // cuBLASLt's B is our A
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// Whether cuBLASLt has no algorithm. Its documentation does not list all types
// of an epilogue, so an invalid value also counts as none.
bool Refused(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ||
         status == CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace

// In cuBLASLt's order: its A is our B.
struct Products::Pointers {
  const void* a;
  const void* b;
  void* c;
  const void* bias;  // or the bias's gradient
  void* aux;
};

struct Products::Plan {
  explicit Plan(const CublasLt& library) : lt(library) {}
  ~Plan() {
    for (const cublasLtMatrixLayout_t layout : {a, b, c}) {
      if (layout != nullptr) lt.layout_destroy(layout);
    }
    if (desc != nullptr) lt.desc_destroy(desc);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const CublasLt& lt;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  bool bias = false, aux = false;  // it has the pointers
  float beta = 0;
  int64_t workspace = 0;  // bytes
  bool found = false;     // an algorithm
  cublasLtMatmulAlgo_t algorithm = {};
  std::vector<cublasLtMatmulAlgo_t> others;  // to be tried after it
};

Products::Products(const CublasLt& library, const Options& options)
    : library_(library), timed_(options.timed) {
  const cudaDeviceProp device = CurrentDevice();
  fused_ = options.fused.value_or(device.major >= kFusesFrom
                                      ? std::set{Epilogue::kGelu,
                                                 Epilogue::kGeluBackward,
                                                 Epilogue::kBiasGrad}
                                      : std::set<Epilogue>());
  Check(library_.create(&handle_), "cublasLtCreate");
  if (!timed_) return;
  choices_.emplace(options.folder,
                   MatmulChoices::Origin{
                       .device = device.name,
                       .library = static_cast<int64_t>(library_.version())});
}

Products::~Products() {
  plans_.clear();
  const cublasStatus_t status = library_.destroy(handle_);
  if (status != CUBLAS_STATUS_SUCCESS) {
    DELINK_LOG(kWarning) << "cublasLtDestroy: "
                         << library_.status_string(status);
  }
}

void Products::Check(cublasStatus_t status, const char* call) const {
  DELINK_CHECK(status == CUBLAS_STATUS_SUCCESS)
      << call << ": " << library_.status_string(status);
}

void Products::CheckRun(cublasStatus_t status, const MatmulProblem& p) const {
  DELINK_CHECK(status == CUBLAS_STATUS_SUCCESS)
      << "cublasLtMatmul: " << library_.status_string(status) << ", of "
      << ToString(p);
}

template <typename Value>
void Products::SetDesc(const Plan& plan,
                       cublasLtMatmulDescAttributes_t attribute,
                       const Value& value) const {
  Check(library_.desc_set(plan.desc, attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
}

void Products::SetEpilogue(const MatmulProblem& p, Plan& plan) const {
  const cublasLtEpilogue_t epilogue = EpilogueOf(p);
  if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) return;
  SetDesc(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  plan.aux = HasAux(p.epilogue);
  if (plan.aux) SetDesc(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.ldc);
  plan.bias = p.bias || p.epilogue == Epilogue::kBiasGrad;
  if (plan.bias) {
    SetDesc(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
            TypeOf(p.bias ? p.dtype : p.c_dtype));
  }
}

void Products::SetPointers(const Pointers& at, const Plan& plan) const {
  if (plan.bias) SetDesc(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias);
  if (plan.aux) {
    SetDesc(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at.aux);
  }
}

std::unique_ptr<Products::Plan> Products::MakePlan(
    const MatmulProblem& p) const {
  auto plan = std::make_unique<Plan>(library_);
  // Our stored rows are cuBLASLt's columns.
  const auto layout = [&](DType dtype, int64_t rows, int64_t columns,
                          int64_t ld) {
    cublasLtMatrixLayout_t made = nullptr;
    Check(library_.layout_create(&made, TypeOf(dtype),
                                 static_cast<uint64_t>(columns),
                                 static_cast<uint64_t>(rows), ld),
          "cublasLtMatrixLayoutCreate");
    return made;
  };
  Check(library_.desc_create(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  SetDesc(*plan, CUBLASLT_MATMUL_DESC_TRANSA, OperationOf(p.transpose_b));
  SetDesc(*plan, CUBLASLT_MATMUL_DESC_TRANSB, OperationOf(p.transpose_a));
  SetEpilogue(p, *plan);
  plan->beta = p.accumulate ? 1 : 0;
  plan->a = p.transpose_b ? layout(p.dtype, p.n, p.k, p.ldb)
                          : layout(p.dtype, p.k, p.n, p.ldb);
  plan->b = p.transpose_a ? layout(p.dtype, p.k, p.m, p.lda)
                          : layout(p.dtype, p.m, p.k, p.lda);
  plan->c = layout(p.c_dtype, p.m, p.n, p.ldc);
  return plan;
}

// cuBLASLt's proposals, the best first; empty if it has none.
Products::Proposals Products::Propose(const MatmulProblem& p, int64_t workspace,
                                      const Plan& plan) const {
  cublasLtMatmulPreference_t preference = nullptr;
  Check(library_.preference_create(&preference),
        "cublasLtMatmulPreferenceCreate");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute,
                       const auto& value) {
    Check(library_.preference_set(preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<uint64_t>(workspace));
  // Parts of split sums stay f32, and are added up in a fixed order.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE |
                            CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
      static_cast<uint32_t>(p.align_b));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      static_cast<uint32_t>(p.align_a));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      static_cast<uint32_t>(p.align_c));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
      static_cast<uint32_t>(p.align_c));
  Proposals results(timed_ ? kTimedProposals : kProposals);
  int count = 0;
  const cublasStatus_t status = library_.heuristic(
      handle_, plan.desc, plan.a, plan.b, plan.c, plan.c, preference,
      static_cast<int>(results.size()), results.data(), &count);
  library_.preference_destroy(preference);
  if (Refused(status)) return {};
  Check(status, "cublasLtMatmulAlgoGetHeuristic");
  results.resize(static_cast<size_t>(count));
  std::erase_if(results, [&](const cublasLtMatmulHeuristicResult_t& result) {
    return result.state != CUBLAS_STATUS_SUCCESS ||
           static_cast<int64_t>(result.workspaceSize) > workspace;
  });
  return results;
}

cublasStatus_t Products::Run(const StreamInfo& stream, const Pointers& at,
                             const Plan& plan) const {
  const float alpha = 1;
  return library_.matmul(handle_, plan.desc, &alpha, at.a, plan.a, at.b, plan.b,
                         &plan.beta, at.c, plan.c, at.c, plan.c,
                         &plan.algorithm, stream.scratch,
                         static_cast<size_t>(plan.workspace), stream.handle);
}

// Seconds of one run of the plan's algorithm; nothing if it does not run.
std::optional<double> Products::Time(const StreamInfo& stream,
                                     const Pointers& at,
                                     const Plan& plan) const {
  if (Run(stream, at, plan) != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  cudaEvent_t begin = nullptr, end = nullptr;
  DELINK_CUDA_CHECK(cudaEventCreate(&begin));
  DELINK_CUDA_CHECK(cudaEventCreate(&end));
  float best = std::numeric_limits<float>::infinity();  // milliseconds
  for (int round = 0; round < kRounds; ++round) {
    DELINK_CUDA_CHECK(cudaEventRecord(begin, stream.handle));
    for (int run = 0; run < kRuns; ++run) {
      Check(Run(stream, at, plan), "cublasLtMatmul");
    }
    DELINK_CUDA_CHECK(cudaEventRecord(end, stream.handle));
    DELINK_CUDA_CHECK(cudaEventSynchronize(end));
    float took = 0;
    DELINK_CUDA_CHECK(cudaEventElapsedTime(&took, begin, end));
    best = std::min(best, took);
  }
  DELINK_CUDA_CHECK(cudaEventDestroy(begin));
  DELINK_CUDA_CHECK(cudaEventDestroy(end));
  return 1e-3 * static_cast<double>(best) / kRuns;
}

// Times the proposals on the operands, with a separate C, since the product may
// add to the real one. Nothing if there is no memory for it, or if none runs.
std::optional<MatmulChoice> Products::ChooseTimed(const StreamInfo& stream,
                                                  const MatmulProblem& p,
                                                  const Pointers& at,
                                                  const Proposals& proposals,
                                                  Plan& plan) const {
  const auto bytes = static_cast<size_t>(p.m * p.ldc * SizeOf(p.c_dtype));
  Pointers spare = at;
  if (cudaMalloc(&spare.c, bytes) != cudaSuccess) {
    cudaGetLastError();  // clears the error
    DELINK_LOG(kWarning) << "not enough memory (" << bytes
                         << " bytes) to time a matrix product: cuBLASLt's "
                            "first proposal is taken";
    return std::nullopt;
  }
  DELINK_CUDA_CHECK(cudaMemsetAsync(spare.c, 0, bytes, stream.handle));
  const std::optional<Fastest> fastest =
      FindFastest(static_cast<int>(proposals.size()), [&](int i) {
        plan.algorithm = At(proposals, i).algo;
        return Time(stream, spare, plan);
      });
  DELINK_CUDA_CHECK(cudaStreamSynchronize(stream.handle));
  DELINK_CUDA_CHECK(cudaFree(spare.c));
  if (!fastest) return std::nullopt;
  MatmulChoice choice{.seconds = fastest->seconds, .place = fastest->place};
  static_assert(sizeof(choice.algorithm) == sizeof(plan.algorithm.data));
  std::ranges::copy(At(proposals, fastest->place).algo.data,
                    choice.algorithm.begin());
  return choice;
}

// If the algorithm works for the plan, gives it to the plan and returns true.
bool Products::Accept(const MatmulChoice& choice, int64_t workspace,
                      Plan& plan) const {
  std::ranges::copy(choice.algorithm, plan.algorithm.data);
  cublasLtMatmulHeuristicResult_t result = {};
  plan.found =
      library_.check(handle_, plan.desc, plan.a, plan.b, plan.c, plan.c,
                     &plan.algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
      static_cast<int64_t>(result.workspaceSize) <= workspace;
  return plan.found;
}

void Products::Choose(const StreamInfo& stream, const MatmulProblem& p,
                      const Pointers& at, Plan& plan) {
  const int64_t workspace = plan.workspace;
  if (timed_) {
    const MatmulChoice* const kept = choices_->Find(ToString(p));
    if (kept != nullptr && Accept(*kept, workspace, plan)) return;
  }
  const auto proposals = Propose(p, workspace, plan);
  if (timed_ && !proposals.empty()) {
    const auto choice = ChooseTimed(stream, p, at, proposals, plan);
    if (choice &&
        Accept(choices_->Keep(ToString(p), *choice), workspace, plan)) {
      return;
    }
  }
  if (proposals.empty()) return;
  plan.algorithm = proposals.front().algo;
  plan.found = true;
  for (size_t i = 1; i < proposals.size(); ++i) {
    plan.others.push_back(proposals[i].algo);
  }
}

// A new plan's first run may show that an algorithm does not run after all; it
// then tries the next one. False if none is left.
bool Products::RunFirst(const StreamInfo& stream, const MatmulProblem& p,
                        const Pointers& at, Plan& plan) const {
  if (!plan.found) return false;
  size_t tried = 0;
  for (;;) {
    const cublasStatus_t status = Run(stream, at, plan);
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    if (!Refused(status)) CheckRun(status, p);
    if (tried == plan.others.size()) break;
    plan.algorithm = plan.others[tried++];
  }
  plan.found = false;
  return false;
}

bool Products::Multiply(Stream& stream, const MatmulArgs& args, DType dtype,
                        const Beside& beside) {
  const StreamInfo& info = InfoOf(stream);
  const MatmulProblem problem =
      ProblemOf(args, dtype, beside.epilogue, beside.operand);
  const bool sums = beside.epilogue == Epilogue::kBiasGrad;
  const Pointers at{.a = args.b,
                    .b = args.a,
                    .c = args.c,
                    .bias = sums ? beside.operand : args.bias,
                    .aux = beside.operand};
  // A plan's pointers are set anew for each call.
  const MutexLock lock(mutex_);
  std::unique_ptr<Plan>& plan = plans_[problem];
  const bool made = plan == nullptr;
  if (made) {
    plan = MakePlan(problem);
    plan->workspace = info.scratch_bytes - (sums ? kSumsBytes : 0);
  }
  SetPointers(at, *plan);
  if (made) Choose(info, problem, at, *plan);
  if (made && RunFirst(info, problem, at, *plan)) return true;
  if (plan->found) {
    CheckRun(Run(info, at, *plan), problem);
    return true;
  }
  if (made && beside.epilogue == Epilogue::kNone) {
    DELINK_LOG(kWarning) << "cuBLASLt has no algorithm for a product ("
                         << ToString(problem) << "): our own is slow";
  }
  return false;
}

bool Products::Multiply(Stream& stream, const MatmulArgs& args, DType dtype) {
  return Multiply(stream, args, dtype, Beside{});
}

}  // namespace delink::cuda
