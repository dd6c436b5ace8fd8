// A source shared by ranks that are threads of one process. Each rank has all
// values.
#pragma once

#include <cstdint>
#include <functional>

#include "framework/base/mutex.h"
#include "framework/module/layout.h"
#include "framework/module/value_end.h"

namespace delink {

// Thread-safe if the source's Read is.
class SharedValues final : public ValueSource {
 public:
  // The arguments outlive this. `layout`: of the written values, each of which
  // is written once. `progress` may be empty; it is called by one thread at a
  // time, with values done and in all.
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
