#include "framework/comm/reduce.h"

#include <algorithm>
#include <array>

#include "framework/base/check.h"

namespace delink::comm {
namespace {

template <typename T, typename Op>
void ReduceTyped(std::span<const void* const> sources, void* out, int64_t count,
                 Op op) {
  // The accumulator stays in the first-level cache, and lets `out` be a source.
  constexpr int64_t kBlock = 1024;
  std::array<T, kBlock> sum;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    std::copy_n(static_cast<const T*>(sources[0]) + begin, n, sum.data());
    for (const void* source : sources.subspan(1)) {
      const T* x = static_cast<const T*>(source) + begin;
      for (int64_t i = 0; i < n; ++i) sum[i] = op(sum[i], x[i]);
    }
    std::copy_n(sum.data(), n, static_cast<T*>(out) + begin);
  }
}

template <typename T>
void ReduceAs(std::span<const void* const> sources, void* out, int64_t count,
              ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ReduceTyped<T>(sources, out, count,
                            [](T a, T b) { return a + b; });
    case ReduceOp::kMax:
      return ReduceTyped<T>(sources, out, count,
                            [](T a, T b) { return std::max(a, b); });
    case ReduceOp::kMin:
      return ReduceTyped<T>(sources, out, count,
                            [](T a, T b) { return std::min(a, b); });
  }
}

}  // namespace

void Reduce(std::span<const void* const> sources, void* out, int64_t count,
            DType dtype, ReduceOp op) {
  DELINK_CHECK(!sources.empty());
  switch (dtype) {
    case DType::kF32:
      return ReduceAs<float>(sources, out, count, op);
    case DType::kF64:
      return ReduceAs<double>(sources, out, count, op);
    case DType::kI32:
      return ReduceAs<int32_t>(sources, out, count, op);
    case DType::kI64:
      return ReduceAs<int64_t>(sources, out, count, op);
    default:
      DELINK_CHECK(false) << "no reduction of " << ToString(dtype);
  }
}

}  // namespace delink::comm
