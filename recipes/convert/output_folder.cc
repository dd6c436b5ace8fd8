#include "recipes/convert/output_folder.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr char kLock[] = "lock";  // FolderLock's

absl::Status IsThere(const std::string& out, const char* what = "name") {
  return absl::AlreadyExistsError(
      absl::StrCat(out, ": already exists; choose another ", what));
}

// Checks that OUT.tmp is missing, empty or interrupted work.
absl::Status CheckLeft(const std::string& path) {
  if (!PathExists(path)) return absl::OkStatus();
  const auto names = ListDirectory(path);
  if (names.ok()) {
    const auto has = [&](const char* name) {
      return std::ranges::find(*names, name) != names->end();
    };
    const size_t others = names->size() - (has(kLock) ? 1 : 0);
    if (others == 0 || (has(kLock) && has(OutputFolder::kOrigin))) {
      return absl::OkStatus();
    }
  }
  return absl::AlreadyExistsError(
      absl::StrCat(path,
                   ": exists, but is not an interrupted conversion; remove it, "
                   "or choose another name"));
}

// Removes everything except the lock. The origin is last, so that it is known
// until then.
absl::Status Empty(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          ListDirectory(path));
  for (const std::string& name : names) {
    if (name == kLock || name == OutputFolder::kOrigin) continue;
    DELINK_RETURN_IF_ERROR(RemoveAll(JoinPath(path, name)));
  }
  return RemoveAll(JoinPath(path, OutputFolder::kOrigin));
}

}  // namespace

absl::Status CheckIsNew(const std::string& out, const char* what) {
  return PathExists(out) ? IsThere(out, what) : absl::OkStatus();
}

absl::StatusOr<OutputFolder> OutputFolder::Begin(const std::string& out,
                                                 const std::string& origin) {
  if (PathExists(out)) return IsThere(out);
  // "out/" is called "out".
  const size_t end = out.find_last_not_of('/');
  const std::string name = out.substr(0, end == out.npos ? 0 : end + 1);
  const std::string path = absl::StrCat(name, ".tmp");
  DELINK_RETURN_IF_ERROR(CheckLeft(path));
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<FolderLock> lock,
                          FolderLock::Take(path));
  // Again: another process may have finished meanwhile.
  if (PathExists(name)) {
    lock.reset();
    ::rmdir(path.c_str());  // made by the lock
    return IsThere(out);
  }
  DELINK_RETURN_IF_ERROR(CheckLeft(path));
  const absl::StatusOr<std::string> begun = ReadFile(JoinPath(path, kOrigin));
  if (!begun.ok() || *begun != origin) {
    DELINK_RETURN_IF_ERROR(Empty(path));
    DELINK_RETURN_IF_ERROR(
        WriteFileAtomically(JoinPath(path, kOrigin), origin));
  }
  return OutputFolder(name, path, std::move(lock));
}

// Releases the lock last, so that the next process to take it finds OUT.
absl::Status OutputFolder::Publish() {
  DELINK_RETURN_IF_ERROR(SyncDirectory(path_));
  if (PathExists(out_)) return IsThere(out_);
  DELINK_RETURN_IF_ERROR(Rename(path_, out_));
  lock_->Moved(out_);
  lock_.reset();
  return absl::OkStatus();
}

absl::Status OutputFolder::PublishFile(const std::string& name) {
  if (PathExists(out_)) return IsThere(out_);
  DELINK_RETURN_IF_ERROR(Rename(JoinPath(path_, name), out_));
  Discard();
  return absl::OkStatus();
}

void OutputFolder::Discard() {
  if (absl::Status status = Empty(path_); !status.ok()) {
    DELINK_LOG(kWarning) << std::string(status.message());
  }
  lock_.reset();
  // If the folder existed before, the lock does not remove it.
  ::rmdir(path_.c_str());
}

}  // namespace delink
