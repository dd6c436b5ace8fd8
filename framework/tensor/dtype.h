// Element types: a run-time value in host code, template arguments in kernels.
#pragma once

#include <cstdint>

namespace delink {

enum class DType : uint8_t { kF32, kF64, kBF16, kI32, kI64, kU8 };

constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kBF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

constexpr const char* ToString(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kU8:
      return "u8";
  }
  return "?";
}

// The type of statistics (means, log-sum-exps, sums) kept beside `dtype`.
constexpr DType StatisticsOf(DType dtype) {
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

}  // namespace delink
