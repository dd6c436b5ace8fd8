#include "offload/tiers/tier_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/format_bytes.h"
#include "framework/base/status_macros.h"

namespace delink::offload {
namespace {

// A descriptor, or -1 and errno.
int OpenUnnamed(const std::string& folder) {
  // O_EXCL: it can never be given a name.
  const int fd = open(folder.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC,
                      S_IRUSR | S_IWUSR);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  // The file system has only named files.
  std::string path = JoinPath(folder, ".delink-disk-XXXXXX");
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

absl::Status NoRoom(int error, const std::string& folder, int64_t bytes,
                    int64_t free) {
  return absl::ResourceExhaustedError(absl::StrCat(
      folder, ": cannot reserve ", FormatBytes(bytes),
      " for the disk tier: ", std::strerror(error), ": ", FormatBytes(free),
      " free, ", FormatBytes(bytes - free),
      " missing; free space there, or choose a path on another disk"));
}

}  // namespace

absl::StatusOr<TierFile> TierFile::Create(const std::string& folder,
                                          int64_t bytes, bool direct) {
  const int descriptor = OpenUnnamed(folder);
  if (descriptor < 0) {
    return FileError(errno, folder, "create a file of the disk tier");
  }
  TierFile file(folder, descriptor);
  DELINK_RETURN_IF_ERROR(file.Reserve(bytes));
  file.direct_ = direct && file.GoDirect();
  return file;
}

TierFile::~TierFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status TierFile::Reserve(int64_t bytes) const {
  struct statvfs disk;
  if (fstatvfs(descriptor_, &disk) == 0) {
    // First, so that other programs are not left without space meanwhile.
    const auto free = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
    if (disk.f_blocks > 0 && free < bytes)
      return NoRoom(ENOSPC, folder_, bytes, free);
  }
  if (fallocate(descriptor_, 0, 0, bytes) == 0) return absl::OkStatus();
  if (errno == EOPNOTSUPP && ftruncate(descriptor_, bytes) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  struct stat info;
  if ((error == ENOSPC || error == EDQUOT) && fstat(descriptor_, &info) == 0) {
    constexpr int64_t kUnit = 512;  // of st_blocks
    return NoRoom(error, folder_, bytes, info.st_blocks * kUnit);
  }
  return FileError(
      error, folder_,
      absl::StrCat("reserve ", FormatBytes(bytes), " for the disk tier"));
}

// Some file systems say that they do not support it only when they are written
// to.
bool TierFile::GoDirect() const {
  const int flags = fcntl(descriptor_, F_GETFL);
  if (flags < 0 || fcntl(descriptor_, F_SETFL, flags | O_DIRECT) != 0) {
    return false;
  }
  const std::unique_ptr<void, decltype(&std::free)> block(
      std::aligned_alloc(kDiskBlock, kDiskBlock), std::free);
  if (pread(descriptor_, block.get(), kDiskBlock, 0) == kDiskBlock) return true;
  fcntl(descriptor_, F_SETFL, flags);
  return false;
}

}  // namespace delink::offload
