// A view of device memory: address, element type, shape. Dense and row-major.
// It does not own the memory and has no arithmetic.
#pragma once

#include <cstdint>

#include "framework/base/check.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"

namespace delink {

class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, DType dtype, const Shape& shape)
      : data_(data), shape_(shape), dtype_(dtype) {}

  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int axis) const { return shape_[axis]; }
  int64_t elements() const { return shape_.elements(); }
  int64_t bytes() const { return elements() * SizeOf(dtype_); }
  bool defined() const { return data_ != nullptr; }

  // The same elements with other extents.
  Tensor Reshape(const Shape& shape) const {
    DELINK_CHECK_EQ(shape.elements(), elements());
    return {data_, dtype_, shape};
  }

 private:
  void* data_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::kF32;
};

}  // namespace delink
