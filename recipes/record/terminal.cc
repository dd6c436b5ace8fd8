#include "recipes/record/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "parallel/launch/launcher.h"

namespace delink {
namespace {

namespace fs = std::filesystem;

// Whether `process` has our standard error open; for a pipe, its other end.
bool HasOurStandardError(const std::string& process) {
  std::error_code error;
  const fs::path ours = fs::read_symlink("/proc/self/fd/2", error);
  if (error || !ours.native().starts_with("pipe:")) return false;
  for (fs::directory_iterator at(process + "/fd", error), end;
       !error && at != end; at.increment(error)) {
    std::error_code gone;
    if (fs::read_symlink(at->path(), gone) == ours) return true;
  }
  return false;
}

// A descriptor of the launcher's terminal; -1 for none.
int OpenLaunchersTerminal() {
  const pid_t launcher = FindLauncher();
  if (launcher <= 1) return -1;
  const std::string process = absl::StrCat("/proc/", launcher);
  if (!HasOurStandardError(process)) return -1;
  const int fd =
      open((process + "/fd/2").c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (fd < 0 || isatty(fd) == 1) return fd;
  close(fd);
  return -1;
}

}  // namespace

Terminal::Terminal() {
  if (ProcessEnvironment("TERM") == "dumb") return;
  fd_ =
      isatty(STDERR_FILENO) == 1 ? dup(STDERR_FILENO) : OpenLaunchersTerminal();
}

Terminal::~Terminal() {
  if (fd_ >= 0) close(fd_);
}

int Terminal::width() const {
  constexpr int kUsual = 80;
  winsize size{};
  const bool known = ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsual;
}

}  // namespace delink
