// Signals that a run answers: SIGINT and SIGTERM ask it to stop, SIGUSR1 asks
// for a checkpoint. A handler reaches only global variables, so there is one
// state per process.
#pragma once

#include <cstdint>
#include <string>

namespace delink {

// Catches the three signals while at least one SignalCatcher lives; before and
// after, the signals have their previous effect. A second SIGINT or SIGTERM
// ends the process at once. The first SignalCatcher forgets signals caught
// before.
class SignalCatcher {
 public:
  SignalCatcher();
  ~SignalCatcher();
  SignalCatcher(const SignalCatcher&) = delete;
  SignalCatcher& operator=(const SignalCatcher&) = delete;
};

// From here on an impossible write fails instead of ending this process or
// those that it starts: to a pipe without readers (SIGPIPE) or beyond the limit
// of a file's size (SIGXFSZ).
void LetWritesFail();

// Ends the process as SIGPIPE does without LetWritesFail.
[[noreturn]] void EndOfBrokenPipe();

// The SIGINT or SIGTERM that was caught; 0 for none.
int StopSignal();

// How often SIGUSR1 was caught.
int64_t SaveRequests();

// "SIGTERM".
std::string SignalName(int signal);

}  // namespace delink
