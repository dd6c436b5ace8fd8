// The parameters of a checkpoint as the source of a move that reads each value
// once. They are read straight from the writers' files, past the system's cache
// and by several threads. If the checkpoint is not verified yet, they are
// digested on the way, so that verifying needs no second read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/random_access_file.h"
#include "framework/base/running_digest.h"
#include "framework/checkpoint/checkpoint_values.h"
#include "framework/module/value_end.h"

namespace delink {

// The checkpoint that FindCheckpoint tries first, verified except for its
// values: StreamedValues verifies these. On any failure call FindCheckpoint,
// which says more. NotFound also means that an early build wrote the
// checkpoint, which can only be verified as a whole.
absl::StatusOr<std::string> FindUnreadCheckpoint(const std::string& path);

// Read is thread-safe.
class StreamedValues final : public ValueSource {
 public:
  // For one rank. `tensors`, of `layout`, are going to be read, each value
  // once; reading in the order of the files is fastest. `verified`: whether the
  // checkpoint is verified; if not, Finish does it.
  static absl::StatusOr<std::unique_ptr<StreamedValues>> Open(
      const std::string& path, const Layout& layout,
      std::span<const LogicalTensor* const> tensors, bool verified);

  // kParameters alone.
  DType type(const Field&) const override { return DType::kF32; }
  Descriptor Has(const Field& field,
                 const LogicalTensor& tensor) const override;
  Descriptor Owners(const Field& field,
                    const LogicalTensor& tensor) const override {
    return Has(field, tensor);
  }
  absl::Status Read(const Field& field, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override;

  // Call it once all tensors are read: reads the rest of the files with
  // `threads` threads, and compares the digests. DataLoss: a digest differs.
  absl::Status Finish(int threads);

 private:
  struct File {
    RandomAccessFile file;
    std::string digest;                 // expected
    std::map<int64_t, int64_t> values;  // going to be read: begin, end
    std::unique_ptr<RunningDigest> running = nullptr;
  };
  // Values [begin, end) of a tensor.
  struct Piece {
    int64_t begin = 0, end = 0;
    File* file = nullptr;
    int64_t place = 0;  // the byte where they begin
    bool first = true;  // whether this piece adds them to the digest
  };

  StreamedValues() = default;
  absl::Status AddTensor(const std::string& path, CheckpointValues& values,
                         const LogicalTensor& tensor);
  absl::StatusOr<File*> FileOf(const std::string& path,
                               const std::string& name);
  absl::StatusOr<int64_t> PlaceOf(const std::string& path,
                                  const hdf5::Piece& piece);
  absl::Status BeginDigests(const std::string& path);
  static absl::Status FinishFile(File& file);
  static absl::Status ReadRange(std::span<const Piece> pieces, int64_t begin,
                                int64_t count, float* to);

  std::map<std::string, File> files_;  // by name
  std::map<std::string, std::vector<Piece>> tensors_;
  // While it is opened: by file and dataset.
  std::map<std::string, hdf5::File> open_;
  std::map<std::pair<std::string, std::string>, int64_t> places_;
};

}  // namespace delink
