#include "recipes/convert/output_folder.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr char kLock[] = "lock";  // FolderLock's

// The origin of what is in OUT.tmp; empty where nothing is.
absl::StatusOr<std::string> OriginOf(const std::string& path) {
  const std::string origin = JoinPath(path, OutputFolder::kOrigin);
  if (!PathExists(path)) return std::string();
  if (PathExists(origin)) return ReadFile(origin);
  const auto names = ListDirectory(path);
  if (names.ok() &&
      (names->empty() || *names == std::vector<std::string>{kLock})) {
    return std::string();
  }
  return absl::AlreadyExistsError(
      absl::StrCat(path,
                   ": is there, but no conversion has left it; remove it, or "
                   "name another folder"));
}

// All but the lock.
absl::Status Empty(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          ListDirectory(path));
  for (const std::string& name : names) {
    if (name == kLock) continue;
    DELINK_RETURN_IF_ERROR(RemoveAll(JoinPath(path, name)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OutputFolder> OutputFolder::Begin(const std::string& out,
                                                 const std::string& origin) {
  if (PathExists(out)) {
    return absl::AlreadyExistsError(
        absl::StrCat(out, ": is there already; name a folder that is not"));
  }
  // "out/" is called "out".
  const size_t end = out.find_last_not_of('/');
  const std::string name = out.substr(0, end == out.npos ? 0 : end + 1);
  const std::string path = absl::StrCat(name, ".tmp");
  DELINK_RETURN_IF_ERROR(OriginOf(path).status());
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<FolderLock> lock,
                          FolderLock::Take(path));
  // Read again: whoever was at work may have been done meanwhile.
  DELINK_ASSIGN_OR_RETURN(const std::string begun, OriginOf(path));
  if (begun != origin) {
    DELINK_RETURN_IF_ERROR(Empty(path));
    DELINK_RETURN_IF_ERROR(
        WriteFileAtomically(JoinPath(path, kOrigin), origin));
  }
  return OutputFolder(name, path, std::move(lock));
}

absl::Status OutputFolder::Publish() {
  DELINK_RETURN_IF_ERROR(SyncDirectory(path_));
  lock_.reset();
  return Rename(path_, out_);
}

void OutputFolder::Discard() {
  lock_.reset();
  if (absl::Status status = RemoveAll(path_); !status.ok()) {
    DELINK_LOG(kWarning) << std::string(status.message());
  }
}

}  // namespace delink
