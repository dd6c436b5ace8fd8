// `delink plan --trace-out`: simulated steps in the format of a real trace
// (recipes/record/trace_file.h). Two steps of each stage follow each other;
// `plan --trace` reads them back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/step/time/step_time.h"
#include "framework/step/time/trace.h"

namespace delink {

class SimulatedTrace {
 public:
  // Overwrites `path`. InvalidArgument: it cannot be written.
  static absl::StatusOr<std::unique_ptr<SimulatedTrace>> Create(
      const std::string& path);

  // Two steps, the first of number `step`. `entries`: by pipeline stage.
  void Add(const std::vector<Column>& columns, const JointTimes& times,
           const std::vector<const std::vector<Trace::Entry>*>& entries,
           int64_t step);
  absl::Status Finish();

 private:
  explicit SimulatedTrace(std::string path);

  const std::string path_;
  std::ofstream file_;
  double begin_ = 0;  // of the next stage, in seconds
  bool any_ = false;
};

}  // namespace delink
