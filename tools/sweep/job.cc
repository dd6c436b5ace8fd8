#include "tools/sweep/job.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "absl/strings/numbers.h"
#include "framework/base/file.h"

namespace delink::sweep {
namespace {

constexpr int kCannotStart = 127;

// In the child, between fork and exec: system calls only.
[[noreturn]] void Become(char* const* argv, int output, const cpu_set_t* cpus,
                         pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kCannotStart);
  if (cpus != nullptr) sched_setaffinity(0, sizeof(*cpus), cpus);
  dup2(output, 1);
  dup2(output, 2);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, 0);
  execvp(argv[0], argv);
  constexpr char kSaid[] = "error: the program cannot be started\n";
  (void)!write(2, kSaid, sizeof(kSaid) - 1);
  _exit(kCannotStart);
}

// The processes that `parent` started.
std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc", error)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    std::ifstream in(entry.path() / "status");
    for (std::string line; std::getline(in, line);) {
      int of = 0;
      if (!line.starts_with("PPid:")) continue;
      if (absl::SimpleAtoi(line.substr(5), &of) && of == parent) {
        children.push_back(pid);
      }
      break;
    }
  }
  return children;
}

}  // namespace

absl::StatusOr<Job> Job::Start(const Options& options) {
  const int output = open(options.output.c_str(),
                          O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (output < 0) return FileError(errno, options.output, "create");
  std::vector<char*> argv;
  for (const std::string& word : options.words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : options.cpus) CPU_SET(cpu, &cpus);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    Become(argv.data(), output, options.cpus.empty() ? nullptr : &cpus, parent);
  }
  const int error = errno;
  close(output);
  if (pid < 0) return FileError(error, options.words.front(), "start");
  // Done in the parent and in the child, since either may run first.
  setpgid(pid, pid);
  return Job(pid, options.launcher);
}

std::optional<int> Job::Ended() {
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Job::Stop(int signal) const {
  const std::vector<pid_t> ranks =
      launcher_ ? ChildrenOf(pid_) : std::vector<pid_t>();
  for (const pid_t rank : ranks) kill(rank, signal);
  if (ranks.empty()) kill(pid_, signal);
}

}  // namespace delink::sweep
