// Moves the values of a checkpoint into safetensors files, tensor by tensor,
// each by one of some threads.
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

  // The tensors of ours that it moves: others are in files that were there
  // already.
  static std::vector<const LogicalTensor*> Missing(
      const ExportPlan& plan, const safetensors::Writer& writer);

  // Once. What is in files that were there already is passed over. `progress`
  // may be empty; this thread calls it.
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
  // What nobody has taken on: of which tensor, from which row on.
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t row_ ABSL_GUARDED_BY(mutex_) = 0;
  int working_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // the first failure
};

}  // namespace delink
