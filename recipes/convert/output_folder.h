// A folder that is called OUT.tmp while it is written, and OUT once it is
// complete. So OUT is never half written.
//
// Interrupted work continues if the next command wants exactly the same; a file
// in the folder says what it is made from. A lock file tells OUT.tmp from a
// user's folder of that name. A complete folder has no lock file.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/watch/folder_lock.h"

namespace delink {

// AlreadyExists: there is something at `out`; choose another `what` ("folder").
absl::Status CheckIsNew(const std::string& out, const char* what);

class OutputFolder {
 public:
  // The name of that file, in OUT as well.
  static constexpr char kOrigin[] = "delink.json";

  // `origin`: the text of that file. If OUT.tmp has another origin, it is
  // started afresh. AlreadyExists: OUT exists; another process is writing
  // OUT.tmp; or OUT.tmp is not interrupted work.
  static absl::StatusOr<OutputFolder> Begin(const std::string& out,
                                            const std::string& origin);

  // OUT.tmp.
  const std::string& path() const { return path_; }

  // Renames it to OUT. Its files must be synced. AlreadyExists: OUT was created
  // meanwhile.
  absl::Status Publish();
  // Renames one of its files to OUT and removes the rest.
  absl::Status PublishFile(const std::string& name);
  // Removes it, as far as possible.
  void Discard();

 private:
  OutputFolder(std::string out, std::string path,
               std::unique_ptr<FolderLock> lock)
      : out_(std::move(out)), path_(std::move(path)), lock_(std::move(lock)) {}

  std::string out_, path_;
  std::unique_ptr<FolderLock> lock_;
};

}  // namespace delink
