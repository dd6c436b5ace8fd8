// One rank's file of a checkpoint, as the sink of a move. Private to the
// checkpoint code.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/checkpoint/file_plan.h"
#include "framework/hdf5/hdf5.h"
#include "framework/module/value_end.h"

namespace delink::checkpoint {

class RankFile : public ValueSink {
 public:
  // The plan must outlive the file. `type`: of values, kF32 or kF64.
  static absl::StatusOr<RankFile> Create(const std::string& path,
                                         const FilePlan& plan, int rank,
                                         DType type);

  // Makes room for what the rank owns of a field of a logical slab; what comes
  // next is of that, and whatever was before is complete. The order of calls
  // is that of the bytes in the file.
  absl::Status Begin(const Field& field, int slab);
  absl::Status Close();

  DType type(const Field&) const override { return type_; }
  // Every value is written by the rank that owns it.
  Descriptor Wants(const Field& field,
                   const LogicalTensor& tensor) const override;
  absl::Status Write(const Field& field, const LogicalTensor& tensor,
                     const Extent& extent, const void* values) override;

 private:
  RankFile(hdf5::File file, const FilePlan& plan, int rank, DType type)
      : file_(std::move(file)), plan_(&plan), rank_(rank), type_(type) {}
  struct Open {
    OwnedPart part;
    hdf5::Dataset dataset;
  };
  absl::Status FillPadding(Open& open) const;

  hdf5::File file_;
  const FilePlan* plan_;
  int rank_;
  DType type_;
  std::map<int, Open> open_;  // by local slab
};

}  // namespace delink::checkpoint
