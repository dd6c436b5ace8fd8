// A folder that is OUT.tmp while it is written, and OUT once it is whole: so
// nothing that was half written is ever called OUT.
//
// Work that was cut short is gone on with by who wants the very same: a file in
// it says what it is made of. It is told from a folder that somebody has called
// OUT.tmp by its lock, which no folder that is whole has.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/watch/folder_lock.h"

namespace delink {

class OutputFolder {
 public:
  // What the file is called that says it, in OUT as well.
  static constexpr char kOrigin[] = "delink.json";

  // `origin`: its text. Where OUT.tmp is of another origin it is begun afresh.
  // AlreadyExists: OUT is there, or OUT.tmp and another process is at work in
  // it, or it is nothing that was cut short.
  static absl::StatusOr<OutputFolder> Begin(const std::string& out,
                                            const std::string& origin);

  // OUT.tmp.
  const std::string& path() const { return path_; }

  // Makes it OUT. All in it is synced. AlreadyExists: somebody else has made
  // OUT meanwhile.
  absl::Status Publish();
  // Makes one file of it OUT, and removes the rest.
  absl::Status PublishFile(const std::string& name);
  // Removes it, as far as that goes.
  void Discard();

 private:
  OutputFolder(std::string out, std::string path,
               std::unique_ptr<FolderLock> lock)
      : out_(std::move(out)), path_(std::move(path)), lock_(std::move(lock)) {}

  std::string out_, path_;
  std::unique_ptr<FolderLock> lock_;
};

}  // namespace delink
