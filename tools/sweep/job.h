// A child process, with its arguments, its share of the cores, and a file for
// its output.
//
// It has its own process group, so Ctrl-C at a terminal reaches it only through
// Stop. If this process dies, it is sent SIGTERM.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace delink::sweep {

class Job {
 public:
  struct Options {
    std::vector<std::string> words;  // the program first, looked for in PATH
    std::string output;              // a path; an existing file is replaced
    std::vector<int> cpus;           // empty: all
    bool launcher = false;           // it launches ranks: mpirun
  };
  static absl::StatusOr<Job> Start(const Options& options);

  // The exit code once it has ended; if a signal ended it, 128 plus the
  // signal's number. Call it in the process and thread that started the job.
  std::optional<int> Ended();

  // Sends the signal to it; with a launcher to the ranks, since the launcher
  // would give them too little time.
  void Stop(int signal) const;

 private:
  Job(pid_t pid, bool launcher) : pid_(pid), launcher_(launcher) {}
  pid_t pid_;
  bool launcher_;
};

}  // namespace delink::sweep
