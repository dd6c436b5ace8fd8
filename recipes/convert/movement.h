// Moves the values of a checkpoint into safetensors files with several threads,
// each of which takes the next piece of a tensor.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/mutex.h"
#include "framework/module/layout.h"
#include "framework/module/value_end.h"
#include "framework/safetensors/writer.h"
#include "recipes/convert/export_plan.h"

namespace delink {

class Movement {
 public:
  // All outlive this. `values`: for one rank; its Read is thread-safe.
  // `writer`: of the plan's tensors.
  Movement(ValueSource& values, const ExportPlan& plan,
           safetensors::Writer& writer);

  // The tensors of ours to move. The others are in files that exist already.
  static std::vector<const LogicalTensor*> Missing(
      const ExportPlan& plan, const safetensors::Writer& writer);

  // Call once. Skips what existing files hold. `progress` may be empty; this
  // thread calls it.
  absl::Status Go(int threads,
                  const std::function<void(int64_t, int64_t)>& progress);

 private:
  struct Part {
    const LogicalTensor* tensor = nullptr;
    Rect rect;
  };

  absl::Status Work();
  std::optional<Part> Next();
  void Finish(const absl::Status& status);
  void Watch(const std::function<void(int64_t, int64_t)>& progress);

  ValueSource& values_;
  const ExportPlan& plan_;
  safetensors::Writer& writer_;
  const std::vector<const LogicalTensor*> missing_;
  int64_t all_ = 0;  // values
  std::atomic<int64_t> done_ = 0;
  Mutex mutex_;
  std::condition_variable finished_;
  // The next piece to take: its tensor, and its first row.
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t row_ ABSL_GUARDED_BY(mutex_) = 0;
  int working_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // the first failure
};

}  // namespace delink
