#include "tools/bench/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "tools/bench/timing.h"

namespace delink::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPiece = 2 << 20;
constexpr size_t kPage = 4096;

// A file that is already unlinked, so it disappears even if the process dies.
// Its name is only for messages.
class ScratchFile {
 public:
  ScratchFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {
    unlink(path_.c_str());
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() { close(descriptor_); }
  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }

 private:
  std::string path_;
  int descriptor_;
};

absl::StatusOr<std::unique_ptr<ScratchFile>> Create(const std::string& folder) {
  std::string path = JoinPath(folder, ".delink-bench-XXXXXX");
  const int descriptor = mkstemp(path.data());
  if (descriptor < 0) {
    const absl::Status status = FileError(errno, path, "create");
    return absl::InvalidArgumentError(
        absl::StrCat(status.message(), "; name another folder by --scratch"));
  }
  return std::make_unique<ScratchFile>(std::move(path), descriptor);
}

// Turns the page cache off for an open file. Some file systems do not support
// it, and some only say so at the first write.
bool GoDirect(int descriptor, const void* page) {
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags < 0 || fcntl(descriptor, F_SETFL, flags | O_DIRECT) != 0) {
    return false;
  }
  if (pwrite(descriptor, page, kPage, 0) == static_cast<ssize_t>(kPage)) {
    return true;
  }
  fcntl(descriptor, F_SETFL, flags);
  return false;
}

// `move` is write(2) or read(2) of n bytes at the file's current position.
template <typename Move>
absl::Status InPieces(const ScratchFile& file, int64_t bytes, const char* what,
                      const Move& move) {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t moved = move(std::min(kPiece, bytes - done));
    if (moved > 0) {
      done += moved;
    } else if (moved == 0 || errno != EINTR) {
      return FileError(moved == 0 ? EIO : errno, file.path(), what);
    }
  }
  return absl::OkStatus();
}

std::string TemporaryFolder() {
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path(error);
  return error ? "." : path.string();
}

}  // namespace

absl::StatusOr<DiskSpeed> MeasureDisk(const std::string& where, int64_t bytes) {
  const std::string folder = where.empty() ? TemporaryFolder() : where;
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ScratchFile> file,
                          Create(folder));
  const int fd = file->descriptor();
  const std::unique_ptr<void, void (*)(void*)> piece(
      std::aligned_alloc(kPage, kPiece), std::free);
  std::memset(piece.get(), 0x5a, kPiece);
  DiskSpeed speed{
      .folder = folder, .direct = GoDirect(fd, piece.get()), .bytes = bytes};

  Clock::time_point start = Clock::now();
  DELINK_RETURN_IF_ERROR(InPieces(*file, bytes, "write", [&](int64_t n) {
    return write(fd, piece.get(), static_cast<size_t>(n));
  }));
  if (fsync(fd) != 0) return FileError(errno, file->path(), "sync");
  speed.write = static_cast<double>(bytes) / Since(start);

  // If this fails, reads are from the cache; `direct` is then false.
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  if (lseek(fd, 0, SEEK_SET) != 0)
    return FileError(errno, file->path(), "seek");
  start = Clock::now();
  DELINK_RETURN_IF_ERROR(InPieces(*file, bytes, "read", [&](int64_t n) {
    return read(fd, piece.get(), static_cast<size_t>(n));
  }));
  speed.read = static_cast<double>(bytes) / Since(start);
  return speed;
}

}  // namespace delink::bench
