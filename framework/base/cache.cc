#include "framework/base/cache.h"

#include <fcntl.h>
#include <unistd.h>

namespace delink {

void WriteBehind::Done(int descriptor, int64_t end) {
  if (end - begun_ < at_once_) return;
  ::sync_file_range(descriptor, begun_, end - begun_, SYNC_FILE_RANGE_WRITE);
  begun_ = end;
  // Pages that are not on the disk yet stay until the next call.
  const int64_t behind = end - 4 * at_once_;
  if (behind > 0) ::posix_fadvise(descriptor, 0, behind, POSIX_FADV_DONTNEED);
}

void LetCacheGoOf(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

}  // namespace delink
