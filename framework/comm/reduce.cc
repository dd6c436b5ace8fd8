#include "framework/comm/reduce.h"

#include <algorithm>
#include <array>

#include "framework/base/check.h"
#include "framework/tensor/bfloat16.h"

namespace delink::comm {
namespace {

template <typename T, typename Op>
void ReduceTyped(std::span<const void* const> sources, void* out, int64_t count,
                 Op op) {
  // The accumulator stays in the first-level cache, and lets `out` be a source.
  constexpr int64_t kBlock = 1024;
  std::array<Wide<T>, kBlock> sum;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    std::copy_n(static_cast<const T*>(sources[0]) + begin, n, sum.data());
    for (const void* source : sources.subspan(1)) {
      const T* x = static_cast<const T*>(source) + begin;
      for (int64_t i = 0; i < n; ++i) sum[i] = op(sum[i], x[i]);
    }
    std::transform(sum.data(), sum.data() + n, static_cast<T*>(out) + begin,
                   [](Wide<T> value) { return static_cast<T>(value); });
  }
}

template <typename T>
void ReduceAs(std::span<const void* const> sources, void* out, int64_t count,
              ReduceOp op) {
  using W = Wide<T>;
  switch (op) {
    case ReduceOp::kSum:
      return ReduceTyped<T>(sources, out, count,
                            [](W a, W b) { return a + b; });
    case ReduceOp::kMax:
      return ReduceTyped<T>(sources, out, count,
                            [](W a, W b) { return std::max(a, b); });
    case ReduceOp::kMin:
      return ReduceTyped<T>(sources, out, count,
                            [](W a, W b) { return std::min(a, b); });
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
    case DType::kBF16:
      return ReduceAs<BFloat16>(sources, out, count, op);
    default:
      DELINK_CHECK(false) << "no reduction of " << ToString(dtype);
  }
}

}  // namespace delink::comm
