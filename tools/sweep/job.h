// A program at work beside this one: its words, its share of the cores, and a
// file for what it prints.
//
// It is in a process group of its own, so that Ctrl-C at a terminal reaches it
// through Stop alone, and is sent SIGTERM should this process die.
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
    std::string output;              // a path; what is there is replaced
    std::vector<int> cpus;           // empty: all
    bool launcher = false;           // of ranks: mpirun
  };
  static absl::StatusOr<Job> Start(const Options& options);

  // The exit code once it has ended; of one that a signal ended, 128 and the
  // signal's number. For the process and thread that started it.
  std::optional<int> Ended();

  // Asks it to stop: of a launcher the ranks, which it would give too little
  // time.
  void Stop(int signal) const;

 private:
  Job(pid_t pid, bool launcher) : pid_(pid), launcher_(launcher) {}
  pid_t pid_;
  bool launcher_;
};

}  // namespace delink::sweep
