// A source that is whole on each of some ranks, which are threads of one
// process.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/module/layout.h"
#include "framework/module/value_end.h"

namespace delink {

// Thread-safe where the source's Read is.
//
// Ranks read in turns, a few at a time: whoever has what it writes goes on to
// digest it while the next ones read and write, and what they write is digested
// while the cache still has it. A turn is for speed alone: where nobody reads
// for some time, for one that has its turn has failed, the next one begins.
class SharedValues final : public ValueSource {
 public:
  // All outlive this; `layout`: as the values are written, each by its owner.
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
  void AwaitTurn(size_t rank);

  ValueSource& values_;
  const std::function<void(int64_t, int64_t)>& progress_;
  const int ranks_;
  Mutex mutex_;
  std::condition_variable turns_;
  // By rank: values that it has not read; whether it has begun.
  std::vector<int64_t> left_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> begun_ ABSL_GUARDED_BY(mutex_);
  int reading_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t all_ = 0;
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace delink
