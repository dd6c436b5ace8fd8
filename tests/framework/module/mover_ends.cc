#include "tests/framework/module/mover_ends.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "tests/framework/module/random_layouts.h"

namespace delink::testing {

double ValueOf(const std::string& tensor, int64_t number) {
  uint64_t x = std::hash<std::string>()(tensor) + static_cast<uint64_t>(number);
  x *= 0x9E3779B97F4A7C15;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9;
  return static_cast<double>(x >> 44);
}

std::vector<double>& TestEnd::ValuesOf(const LogicalTensor& tensor,
                                       const Extent& extent) {
  DELINK_CHECK_EQ(extent.rank, rank_);
  std::vector<double>& values = values_[{extent.slab, extent.param}];
  values.resize(static_cast<size_t>(tensor.shape.elements()),
                std::numeric_limits<double>::quiet_NaN());
  return values;
}

absl::Status TestSource::Read(const Field&, const LogicalTensor& tensor,
                              const Extent& extent, void* values) {
  if (!status_.ok()) return status_;
  if (options_.type == DType::kF64) {
    CopyOut(tensor, extent, static_cast<double*>(values));
  } else {
    CopyOut(tensor, extent, static_cast<float*>(values));
  }
  return absl::OkStatus();
}

template <typename T>
void TestSource::CopyOut(const LogicalTensor& tensor, const Extent& extent,
                         T* out) {
  const std::vector<double>& here = Filled(tensor, extent);
  ForEachElement(extent, [&](int64_t, int64_t, int64_t offset) {
    *out++ = static_cast<T>(At(here, offset));
  });
}

const std::vector<double>& TestSource::Filled(const LogicalTensor& tensor,
                                              const Extent& extent) {
  const bool fresh = !values_.contains({extent.slab, extent.param});
  std::vector<double>& values = ValuesOf(tensor, extent);
  if (!fresh) return values;
  const int64_t columns = WholeOf(ShapeOf(tensor)).columns;
  for (const Extent& place : Places(tensor)) {
    if (place.rank != rank_ || place.slab != extent.slab) continue;
    ForEachElement(place, [&](int64_t row, int64_t column, int64_t offset) {
      At(values, offset) = ValueOf(OwnerOf(tensor), row * columns + column);
    });
  }
  return values;
}

void TestSink::AsKept(const Field&, const LogicalTensor& tensor,
                      const Extent& extent, void* values) const {
  if (options_.type == DType::kF64) {
    Keep(tensor, extent, static_cast<double*>(values));
  } else {
    Keep(tensor, extent, static_cast<float*>(values));
  }
}

template <typename T>
void TestSink::Keep(const LogicalTensor& tensor, const Extent& extent,
                    T* values) const {
  const int64_t count = extent.rect.elements();
  for (int64_t i = 0; i < count;) {
    const int64_t at = tensor.offset + extent.offset + i;
    const int64_t end = i + options_.grain - at % options_.grain;
    T* const last = values + std::min(end, count);
    const T greatest = *std::max_element(values + i, last);
    std::for_each(values + i, last, [&](T& value) { value += greatest; });
    i = end;
  }
}

double TestSink::Kept(const std::string& source, const LogicalTensor& tensor,
                      int64_t number) const {
  const int64_t before = (tensor.offset + number) % options_.grain;
  const int64_t begin = std::max<int64_t>(0, number - before);
  const int64_t end =
      std::min(number - before + options_.grain, tensor.shape.elements());
  double greatest = 0;
  for (int64_t i = begin; i < end; ++i) {
    greatest = std::max(greatest, ValueOf(source, i));
  }
  return ValueOf(source, number) + greatest;
}

absl::Status TestSink::Write(const Field&, const LogicalTensor& tensor,
                             const Extent& extent, const void* values) {
  if (!status_.ok()) return status_;
  written_ += extent.rect.elements();
  greatest_ = std::max(greatest_, extent.rect.elements());
  if (options_.type == DType::kF64) {
    CopyIn(tensor, extent, static_cast<const double*>(values));
  } else {
    CopyIn(tensor, extent, static_cast<const float*>(values));
  }
  return absl::OkStatus();
}

bool TestSink::Copy(ValueSource& source, const Field&,
                    const LogicalTensor& from, const Extent& extent,
                    const LogicalTensor& to, const Extent& target) {
  if (!options_.copies) return false;
  std::vector<double> values(static_cast<size_t>(extent.rect.elements()));
  dynamic_cast<TestSource&>(source).CopyOut(from, extent, values.data());
  CopyIn(to, target, values.data());
  copied_ += target.rect.elements();
  return true;
}

template <typename T>
void TestSink::CopyIn(const LogicalTensor& tensor, const Extent& extent,
                      const T* values) {
  if (options_.grain > 1) CheckGrain(tensor, extent);
  std::vector<double>& here = ValuesOf(tensor, extent);
  ForEachElement(extent, [&](int64_t, int64_t, int64_t offset) {
    DELINK_CHECK(std::isnan(At(here, offset))) << "a value came twice";
    At(here, offset) = static_cast<double>(*values++);
  });
}

void TestSink::CheckGrain(const LogicalTensor& tensor,
                          const Extent& extent) const {
  DELINK_CHECK_EQ(extent.rect.columns, 1);
  for (const int64_t end : {extent.offset, extent.offset + extent.rect.rows}) {
    DELINK_CHECK(end == 0 || end == tensor.shape.elements() ||
                 (tensor.offset + end) % options_.grain == 0);
  }
}

void TestSink::Check(const LogicalTensor& tensor,
                     const std::function<double(int64_t)>& value) {
  const int64_t columns = WholeOf(ShapeOf(tensor)).columns;
  int64_t wrong = 0;
  for (const Extent& place : Places(tensor)) {
    if (place.rank != rank_) continue;
    const std::vector<double>& here = ValuesOf(tensor, place);
    ForEachElement(place, [&](int64_t row, int64_t column, int64_t offset) {
      const double expected = value(row * columns + column);
      if (At(here, offset) != expected) ++wrong;
    });
    checked_ += place.rect.elements();
  }
  EXPECT_EQ(wrong, 0) << "values of " << tensor.name << " on " << rank_;
}

}  // namespace delink::testing
