// The disk tier: memory of slabs in files, written and read past the page cache
// while other work goes on.
//
// Contract
// - Space. Offsets count from 0 over all files together. The space is cut into
//   pieces, which the files take in turn, so all disks work on a slab at once.
// - Files have no name and belong to this object alone. Nothing remains of them
//   when the process ends, killed or not.
// - Alignment. Offsets, bytes and memory are multiples of kDiskBlock.
// - Asynchrony. Read and Write return at once. The memory belongs to the
//   transfer until its Pending is complete. Transfers that overlap must not be
//   under way together; their order is the caller's. Each file has `depth`
//   requests under way in each direction; others wait for their turn. Threads
//   of the tier compute checksums.
// - Checksums. Each piece of a Write has a checksum in memory (XXH64), which a
//   Read compares. A region can be read once it is written, in the same pieces:
//   whole, or parts that begin and end where pieces do.
// - Errors. A Status names the folder, the place in its file, the bytes and the
//   slab. DataLoss: a file has become shorter, or has other bytes than were
//   written. InvalidArgument: a region is not aligned or not in the tier.
//   FailedPrecondition: the region has not been written. Others are the
//   system's (FileError). A transfer that failed has moved some bytes or none;
//   the tier can still be used.
// - Threads. Thread-safe; a Pending belongs to one thread at a time.
// - Lifetime. The tier outlives its Pendings, and the registered memory the
//   tier.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/comm/communicator.h"
#include "offload/tiers/disk_queue.h"
#include "offload/tiers/tier_file.h"

namespace delink::offload {

struct DiskTierOptions {
  std::vector<std::string> folders;  // of the files, one file each
  int64_t bytes = 0;                 // of the tier; rounded up to whole pieces
  int64_t piece = 1 << 20;           // a multiple of kDiskBlock, below 1 GiB
  int depth = 8;
  // Memory that most transfers use: io_uring registers it. May be empty.
  std::vector<std::span<char>> buffers;
  // False: without io_uring, or through the page cache, even if the system has
  // them.
  bool uring = true, direct = true;
  // Tests put faults between the tier and the system: called for each file.
  std::function<std::unique_ptr<DiskQueue>(int descriptor,
                                           std::unique_ptr<DiskQueue>)>
      wrap;
};

struct DiskRegion {
  int64_t offset = 0;  // in the tier
  int64_t bytes = 0;
  void* memory = nullptr;
  std::string slab;  // for messages
};

class DiskTier {
 public:
  // Makes the files and logs one line: where they are and which backend moves
  // their bytes, and why. Errors are those of TierFile::Create.
  static absl::StatusOr<std::unique_ptr<DiskTier>> Create(
      const DiskTierOptions& options);
  ~DiskTier();
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  std::unique_ptr<Pending> Read(const DiskRegion& region) {
    return Start(false, region);
  }
  std::unique_ptr<Pending> Write(const DiskRegion& region) {
    return Start(true, region);
  }

  int64_t bytes() const { return bytes_; }
  // "by io_uring", or "by pread and pwrite, because ...".
  const std::string& backend() const { return backend_; }
  // Whether all files bypass the page cache.
  bool direct() const { return direct_; }

 private:
  class Transfer;
  class Piece;
  struct File;
  // A piece that was written.
  struct Written {
    int64_t bytes = 0;
    uint64_t checksum = 0;
  };

  explicit DiskTier(const DiskTierOptions& options);
  absl::Status OpenFiles(const DiskTierOptions& options);
  void OpenQueues(const DiskTierOptions& options);
  absl::Status OpenUring(const DiskTierOptions& options);

  std::unique_ptr<Pending> Start(bool write, const DiskRegion& region);
  absl::Status CheckRegion(bool write, const DiskRegion& region) const;
  void Cut(const DiskRegion& region, Transfer& transfer);
  // Gives pieces that are read the checksums that they must have.
  absl::Status FindChecksums(Transfer& transfer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(int64_t begin, int64_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // As many of the file's waiting pieces as its depth allows.
  void Submit(File& file, bool write);
  void Finish(Piece& piece, int64_t result);
  absl::StatusOr<Written> Check(const Piece& piece, int64_t result) const;

  const int64_t piece_;
  int64_t bytes_ = 0;
  int depth_;
  bool direct_ = true;
  std::string backend_;
  Mutex mutex_;
  std::map<int64_t, Written> written_ ABSL_GUARDED_BY(mutex_);  // by offset
  std::vector<std::unique_ptr<File>> files_;
};

}  // namespace delink::offload
