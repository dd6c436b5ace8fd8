// A source that is whole on each of some ranks, which are threads of one
// process.
#pragma once

#include <cstdint>
#include <functional>

#include "framework/base/mutex.h"
#include "framework/module/layout.h"
#include "framework/module/value_end.h"

namespace delink {

// Thread-safe where the source's Read is.
class SharedValues final : public ValueSource {
 public:
  // All outlive this; `layout`: as the values are written, each once.
  // `progress` may be empty; it is told of values, by one thread at a time.
  SharedValues(ValueSource& values, const Layout& layout,
               const std::function<void(int64_t, int64_t)>& progress);

  DType type(const Field& field) const override { return values_.type(field); }
  Descriptor Has(const Field& field,
                 const LogicalTensor& tensor) const override;
  Descriptor Owners(const Field& field,
                    const LogicalTensor& tensor) const override {
    return values_.Owners(field, tensor);
  }
  absl::Status Read(const Field& field, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override;

 private:
  ValueSource& values_;
  const std::function<void(int64_t, int64_t)>& progress_;
  const int ranks_;
  Mutex mutex_;
  int64_t all_ = 0;
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace delink
