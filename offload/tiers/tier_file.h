// A file of the disk tier: one process's alone, without a name, so that nothing
// of it remains when the process ends, however it ends.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace delink::offload {

// Offsets, sizes and memory of transfers are multiples of it, as O_DIRECT asks.
inline constexpr int64_t kDiskBlock = 4096;

// Move-only.
class TierFile {
 public:
  // In an existing folder. `bytes` of the disk are reserved if the file system
  // can do that. ResourceExhausted says how many of them there are; other
  // errors are those of FileError. `direct`: bypass the page cache if the file
  // system supports it.
  static absl::StatusOr<TierFile> Create(const std::string& folder,
                                         int64_t bytes, bool direct);

  TierFile(TierFile&& other) noexcept
      : folder_(std::move(other.folder_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        direct_(other.direct_) {}
  TierFile& operator=(TierFile&&) = delete;
  ~TierFile();

  const std::string& folder() const { return folder_; }
  int descriptor() const { return descriptor_; }
  bool direct() const { return direct_; }

 private:
  TierFile(std::string folder, int descriptor)
      : folder_(std::move(folder)), descriptor_(descriptor) {}

  absl::Status Reserve(int64_t bytes) const;
  bool GoDirect() const;

  std::string folder_;
  int descriptor_;
  bool direct_ = false;
};

}  // namespace delink::offload
