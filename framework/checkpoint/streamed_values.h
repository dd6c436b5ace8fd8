// The parameters of a checkpoint as the source of a move by which each is read
// once: straight from the writers' files, past the system's cache, by several
// threads at a time, and where it has not been done before digested on the way,
// so that verifying does not take reading it all once more.
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

// The checkpoint that FindCheckpoint looks at first, all of it verified but for
// the values themselves: who takes them by StreamedValues does that. On any
// failure FindCheckpoint has more to say. NotFound, too: what early builds
// wrote can be verified as a whole alone.
absl::StatusOr<std::string> FindUnreadCheckpoint(const std::string& path);

// Read is thread-safe.
class StreamedValues final : public ValueSource {
 public:
  // For one rank. `tensors`, of `layout`, are going to be read, each value
  // once; in the order of the files that costs least. `verified`: whether the
  // checkpoint is; else Finish does that.
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

  // Once all tensors are read: reads what else there is, by so many threads,
  // and compares the digests. DataLoss: values are not those that were written.
  absl::Status Finish(int threads);

 private:
  struct File {
    RandomAccessFile file;
    std::string digest;                 // that it should have
    std::map<int64_t, int64_t> values;  // that are going to be read
    std::unique_ptr<RunningDigest> running = nullptr;
  };
  // Values [begin, end) of a tensor.
  struct Piece {
    int64_t begin = 0, end = 0;
    File* file = nullptr;
    int64_t place = 0;  // the byte where they begin
    bool first = true;  // whether nobody else brings them to the digest
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
