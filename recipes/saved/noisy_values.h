// A source of values that adds Gaussian noise to some parameters: each element
// gets its own, a function of (seed, logical name, index) alone. The noise of a
// parameter has its standard deviation times a factor.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "framework/module/value_end.h"

namespace delink {

class NoisyValues final : public ValueSource {
 public:
  // Values are f32, and extents are rows or a part of one row. `before` must
  // outlive this.
  NoisyValues(ValueSource& before, double factor, uint64_t seed)
      : before_(before), factor_(factor), seed_(seed) {}

  // From now on the parameter has noise. Reads its first `count` values, whose
  // standard deviation counts. The source must have it whole.
  absl::Status Add(const LogicalTensor& tensor, int64_t count);

  DType type(const Field& field) const override { return before_.type(field); }
  Descriptor Has(const Field& field,
                 const LogicalTensor& tensor) const override {
    return before_.Has(field, tensor);
  }
  Descriptor Owners(const Field& field,
                    const LogicalTensor& tensor) const override {
    return before_.Owners(field, tensor);
  }
  absl::Status Read(const Field& field, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override;

 private:
  ValueSource& before_;
  double factor_;
  uint64_t seed_;
  std::map<std::string, double> noise_;  // by tensor: the standard deviation
};

}  // namespace delink
