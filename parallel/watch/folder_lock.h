// Only one process at a time works in a folder: the one that holds the lock on
// the folder's file `lock`. The system releases the lock when its holder dies,
// however it dies. A file that a dead process left is taken over.
//
// It works between machines if the file system's locks do: NFS (version 4, or 3
// with its lock service; a lost client keeps its lock until the server's lease
// ends, a minute or two), Lustre mounted with `flock`, GPFS, CephFS. NFS
// mounted with `nolock` or `local_lock` only excludes processes of the same
// machine. On a file system without locks it warns and continues.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink {

class FolderLock {
 public:
  // Makes the folder if it does not exist. AlreadyExists: another process holds
  // the lock; the error says which.
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(
      const std::string& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  // Removes the file, and the folder if Take made it and it is empty.
  ~FolderLock();

  // Tells the lock that the folder, with the file in it, was renamed.
  void Moved(const std::string& folder) { folder_ = folder; }

 private:
  FolderLock(std::string folder, int file, bool made)
      : folder_(std::move(folder)), file_(file), made_(made) {}

  std::string folder_;
  const int file_;
  const bool made_;
};

// The error of a folder where `who`, "process 5 on host", is at work.
absl::Status FolderInUse(std::string_view folder, std::string_view who);

}  // namespace delink
