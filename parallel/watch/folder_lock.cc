#include "parallel/watch/folder_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "parallel/launch/launcher.h"
#include "parallel/watch/ofd_lock.h"

namespace delink {
namespace {

// Each try that fails is another process coming or going.
constexpr int kTries = 100;

constexpr char kLock[] = "lock";

std::string LockPath(const std::string& folder) {
  return JoinPath(folder, kLock);
}

// Whether `path`, from the folder on, still leads to this open file: the
// previous holder of the lock may have removed it.
bool IsStillAt(int file, int folder, const char* path) {
  struct stat open, there;
  return ::fstat(file, &open) == 0 && ::fstatat(folder, path, &there, 0) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

std::string ReadHolder(int file) {
  std::array<char, 256> text;
  const ssize_t got = ::pread(file, text.data(), text.size(), 0);
  std::string who(text.data(), got > 0 ? static_cast<size_t>(got) : 0);
  who.resize(std::min(who.find('\n'), who.size()));
  return who.empty() ? "it has just started" : who;
}

// Only people read this, so a failed write is ignored.
void WriteHolder(int file) {
  const std::string who = absl::StrCat(
      "process ", static_cast<int64_t>(::getpid()), " on ", HostName(), "\n");
  if (::ftruncate(file, 0) != 0) return;
  [[maybe_unused]] const ssize_t written =
      ::pwrite(file, who.data(), who.size(), 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FolderLock>> FolderLock::Take(
    const std::string& folder) {
  const std::string path = LockPath(folder);
  bool made = false;
  for (int i = 0; i < kTries; ++i) {
    made = made || !PathExists(folder);
    DELINK_RETURN_IF_ERROR(MakeDirectories(folder));
    const int opened =
        ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0 && errno == ENOENT) continue;  // the folder has gone
    if (opened < 0) return FileError(errno, folder, "open");
    const absl::Cleanup close_folder = [opened] { ::close(opened); };
    const int file = ::openat(opened, kLock,
                              O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0 && errno == ENOENT) continue;
    if (file < 0) return FileError(errno, path, "create");
    const int error = TryLockWhole(file);
    if (error == EAGAIN || error == EACCES) {
      const std::string who = ReadHolder(file);
      ::close(file);
      return FolderInUse(folder, who);
    }
    if (error == 0 && !IsStillAt(file, AT_FDCWD, path.c_str())) {
      // If the folder was renamed meanwhile, leave no lock file in it.
      if (IsStillAt(file, opened, kLock)) ::unlinkat(opened, kLock, 0);
      ::close(file);
      continue;
    }
    if (error != 0) {
      DELINK_LOG(kWarning) << path
                           << ": cannot be locked: " << std::strerror(error)
                           << "; make sure that no other run uses this folder";
    }
    WriteHolder(file);
    return std::unique_ptr<FolderLock>(new FolderLock(folder, file, made));
  }
  return FolderInUse(folder, "other runs keep taking and leaving it");
}

FolderLock::~FolderLock() {
  ::unlink(LockPath(folder_).c_str());
  if (made_) ::rmdir(folder_.c_str());
  ::close(file_);
}

absl::Status FolderInUse(std::string_view folder, std::string_view who) {
  return absl::AlreadyExistsError(absl::StrCat(
      std::string(folder), ": another run is at work in this folder (",
      std::string(who), "); wait for its end, or name another folder"));
}

}  // namespace delink
