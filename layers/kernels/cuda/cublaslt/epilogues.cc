// Products with cuBLASLt's epilogues.
#include <cstdint>

#include "layers/kernels/cuda/cublaslt/products.h"
#include "layers/kernels/cuda/cuda.h"

namespace delink::cuda {
namespace {

// Whether GELU's epilogues have this form and can read or write `pre`.
template <typename Args>
bool HasEpilogue(const Args& args) {
  constexpr int64_t kMultiple = 8;      // elements between rows
  constexpr uintptr_t kAlignment = 16;  // bytes
  return args.form == GeluForm::kTanh && args.product.ldc % kMultiple == 0 &&
         reinterpret_cast<uintptr_t>(args.pre) % kAlignment == 0;
}

}  // namespace

bool Products::Multiply(Stream& stream, const MatmulGeluArgs& args,
                        DType dtype) {
  return fused_.contains(Epilogue::kGelu) && HasEpilogue(args) &&
         Multiply(stream, args.product, dtype,
                  {.epilogue = Epilogue::kGelu, .operand = args.pre});
}

bool Products::Multiply(Stream& stream, const MatmulGeluBackwardArgs& args,
                        DType dtype) {
  return fused_.contains(Epilogue::kGeluBackward) && HasEpilogue(args) &&
         Multiply(stream, args.product, dtype,
                  {.epilogue = Epilogue::kGeluBackward,
                   .operand = const_cast<void*>(args.pre)});
}

// cuBLASLt can only write the sums. If they must be added to db, they first go
// to the end of the stream's scratch.
bool Products::Multiply(Stream& stream, const MatmulBiasGradArgs& args,
                        DType dtype) {
  const MatmulArgs& product = args.product;
  if (!fused_.contains(Epilogue::kBiasGrad) ||
      product.m * int64_t{sizeof(float)} > kSumsBytes) {
    return false;
  }
  const StreamInfo& info = InfoOf(stream);
  void* const sums = product.accumulate ? static_cast<char*>(info.scratch) +
                                              info.scratch_bytes - kSumsBytes
                                        : args.db;
  if (!Multiply(stream, product, dtype,
                {.epilogue = Epilogue::kBiasGrad, .operand = sums})) {
    return false;
  }
  if (product.accumulate) {
    Accumulate<float>(stream, {.count = product.m, .x = sums, .y = args.db});
  }
  return true;
}

}  // namespace delink::cuda
