// One rank's file of a checkpoint, as the sink of a move. Private to the
// checkpoint code.
//
// HDF5 creates the file with space for all values. The values are then written
// to their places without HDF5, because it allows only one thread of a process
// and computes no digest.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/digested_file.h"
#include "framework/checkpoint/file_plan.h"
#include "framework/module/value_end.h"

namespace delink::checkpoint {

class RankFile : public ValueSink {
 public:
  // The plan must outlive the file. `type`: of values, kF32 or kF64. The file
  // holds the plan's fields in order, each slab by slab. Values that are
  // written in this order are digested on the way.
  static absl::StatusOr<RankFile> Create(const std::string& path,
                                         const FilePlan& plan, int rank,
                                         DType type);

  // The frame of the file (frame.h).
  const std::string& frame() const { return frame_; }

  // Syncs and closes the file and returns its digest. Every value must be
  // written (a check).
  absl::StatusOr<std::string> Close();

  DType type(const Field&) const override { return type_; }
  // Every value is written by the rank that owns it.
  Descriptor Wants(const Field& field,
                   const LogicalTensor& tensor) const override;
  absl::Status Write(const Field& field, const LogicalTensor& tensor,
                     const Extent& extent, const void* values) override;

 private:
  struct Dataset {
    OwnedPart part;
    int64_t place = 0;  // the byte where it begins
  };
  // By the state, empty for parameters, and the local slab.
  using Datasets = std::map<std::pair<std::string, int>, Dataset>;

  RankFile(const FilePlan& plan, DType type, Datasets datasets,
           std::string frame, std::unique_ptr<DigestedFile> file)
      : plan_(&plan),
        type_(type),
        datasets_(std::move(datasets)),
        frame_(std::move(frame)),
        file_(std::move(file)) {}
  static absl::StatusOr<Datasets> MakeRoom(const std::string& path,
                                           const FilePlan& plan, int rank,
                                           DType type);
  absl::Status KeepOthers(int64_t bytes);

  const FilePlan* plan_;
  DType type_;
  Datasets datasets_;
  std::string frame_;
  std::unique_ptr<DigestedFile> file_;
};

}  // namespace delink::checkpoint
