// One process at a time works in a folder: whoever holds the lock on the file
// `lock` in it. The system gives the lock up when its holder dies, however it
// dies; a file that was left by one is taken over.
//
// Between machines it holds where their file system's locks do: NFS (version 4,
// or 3 with its lock service; a client that is gone keeps its lock until the
// server's lease runs out, a minute or two), Lustre mounted with `flock`, GPFS,
// CephFS. NFS mounted with `nolock` or `local_lock` tells apart the processes
// of each machine alone. A file system without locks is warned of, and gone on
// with.
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
  // Makes the folder where there is none. AlreadyExists, which names the
  // process, where another one holds the lock.
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(
      const std::string& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  // Removes the file, and a folder that Take made and that is empty.
  ~FolderLock();

  // The folder, with the file in it, has been renamed.
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
