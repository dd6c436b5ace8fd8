// Moves the values of a checkpoint into safetensors files, tensor by tensor,
// each by one of some threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/mutex.h"
#include "framework/module/layout.h"
#include "framework/safetensors/writer.h"
#include "recipes/convert/export_plan.h"

namespace delink {

class Movement {
 public:
  // All outlive this. `writer`: of the plan's tensors.
  Movement(std::string checkpoint, const Layout& layout, const ExportPlan& plan,
           safetensors::Writer& writer);

  // Once. What is in files that were there already is passed over. `progress`
  // may be empty; this thread calls it.
  absl::Status Go(int threads,
                  const std::function<void(int64_t, int64_t)>& progress);

 private:
  bool IsDone(const LogicalTensor& tensor) const;
  absl::Status Work();
  const LogicalTensor* Next();
  void Finish(const absl::Status& status);
  void Watch(const std::function<void(int64_t, int64_t)>& progress);

  const std::string checkpoint_;
  const Layout& layout_;
  const ExportPlan& plan_;
  safetensors::Writer& writer_;
  int64_t all_ = 0;  // values
  std::atomic<int64_t> done_ = 0;
  Mutex mutex_;
  std::condition_variable finished_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;  // in the plan's moves
  int working_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // the first failure
};

}  // namespace delink
