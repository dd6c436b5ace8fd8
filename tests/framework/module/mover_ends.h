// Ends of moves whose values are functions of a tensor's name and the number of
// a value: what arrives can be told, wherever it came from.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/module/value_end.h"

namespace delink::testing {

// A whole number that f32 has exactly, also twice it.
double ValueOf(const std::string& tensor, int64_t number);

// By whose name values are: of a link, those of what it is to.
inline const std::string& OwnerOf(const LogicalTensor& tensor) {
  return tensor.link.empty() ? tensor.name : tensor.link;
}

struct EndOptions {
  StateExtent grid = StateExtent::kElements;  // of what is no vector
  bool sharded = false;
  DType type = DType::kF32;
  int64_t grain = 1;    // of a sink
  bool copies = false;  // a sink that copies what is on its rank
};

// The values of one plane that a rank has.
class TestEnd {
 public:
  TestEnd(const Layout& layout, int rank, const EndOptions& options)
      : layout_(layout), rank_(rank), options_(options) {}

  // What reads or writes say from now on, and do nothing.
  void Fail(absl::Status status) { status_ = std::move(status); }

  StateExtent GridOf(const LogicalTensor& tensor) const {
    return tensor.shape.rank() < 2 ? StateExtent::kElements : options_.grid;
  }
  Shape ShapeOf(const LogicalTensor& tensor) const {
    return StateShape(tensor.shape, GridOf(tensor));
  }

 protected:
  Descriptor Places(const LogicalTensor& tensor) const {
    return DescriptorOf(layout_, tensor, GridOf(tensor), options_.sharded);
  }
  // Those of the parameter that an extent, which must be of this rank, is of;
  // NaN is what is not here.
  std::vector<double>& ValuesOf(const LogicalTensor& tensor,
                                const Extent& extent);

  const Layout& layout_;
  const int rank_;
  const EndOptions options_;
  absl::Status status_;
  // By slab and parameter.
  std::map<std::pair<int, size_t>, std::vector<double>> values_;
};

class TestSource : public ValueSource, public TestEnd {
 public:
  using TestEnd::TestEnd;

  DType type(const Field&) const override { return options_.type; }
  Descriptor Has(const Field&, const LogicalTensor& tensor) const override {
    return Places(tensor);
  }
  Descriptor Owners(const Field&, const LogicalTensor& tensor) const override {
    return OwnersOf(layout_, tensor, GridOf(tensor));
  }
  absl::Status Read(const Field& field, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override;

  // As they lie here, row by row.
  template <typename T>
  void CopyOut(const LogicalTensor& tensor, const Extent& extent, T* out);

 private:
  const std::vector<double>& Filled(const LogicalTensor& tensor,
                                    const Extent& extent);
};

// Each value may come once.
class TestSink : public ValueSink, public TestEnd {
 public:
  using TestEnd::TestEnd;

  // Values that came by Write, and the most at once; and by Copy.
  int64_t written() const { return written_; }
  int64_t greatest() const { return greatest_; }
  int64_t copied() const { return copied_; }

  DType type(const Field&) const override { return options_.type; }
  Descriptor Wants(const Field&, const LogicalTensor& tensor) const override {
    return Places(tensor);
  }
  int64_t grain(const Field&, const LogicalTensor&) const override {
    return options_.grain;
  }
  // Adds to each value the greatest of its block.
  void AsKept(const Field& field, const LogicalTensor& tensor,
              const Extent& extent, void* values) const override;
  absl::Status Write(const Field& field, const LogicalTensor& tensor,
                     const Extent& extent, const void* values) override;
  bool Copy(ValueSource& source, const Field& field, const LogicalTensor& from,
            const Extent& extent, const LogicalTensor& to,
            const Extent& target) override;

  // What AsKept makes of value `number` of `source` in the place of `tensor`.
  double Kept(const std::string& source, const LogicalTensor& tensor,
              int64_t number) const;

  // That all of `tensor` came that this rank wants, value(number) each.
  void Check(const LogicalTensor& tensor,
             const std::function<double(int64_t)>& value);
  // After Check of all tensors: how many values came that nobody wants.
  int64_t besides() const { return written_ + copied_ - checked_; }

 private:
  template <typename T>
  void Keep(const LogicalTensor& tensor, const Extent& extent, T* values) const;
  template <typename T>
  void CopyIn(const LogicalTensor& tensor, const Extent& extent,
              const T* values);
  void CheckGrain(const LogicalTensor& tensor, const Extent& extent) const;

  int64_t written_ = 0, greatest_ = 0, copied_ = 0, checked_ = 0;
};

}  // namespace delink::testing
