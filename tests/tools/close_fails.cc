// Loaded before libc: close() of a file whose path contains what the
// environment variable DELINK_CLOSE_FAILS holds closes it and says EIO.
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

extern "C" int close(int file) {
  std::array<char, 64> link;
  std::array<char, PATH_MAX> path;
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", file);
  const ssize_t size = readlink(link.data(), path.data(), path.size());
  const long closed = syscall(SYS_close, file);
  const char* const failing = std::getenv("DELINK_CLOSE_FAILS");
  if (failing == nullptr || size <= 0) return static_cast<int>(closed);
  const std::string_view name(path.data(), static_cast<size_t>(size));
  if (name.find(failing) == std::string_view::npos) {
    return static_cast<int>(closed);
  }
  errno = EIO;
  return -1;
}
