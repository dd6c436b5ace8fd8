// Signals that a run answers: SIGINT and SIGTERM ask it to stop, SIGUSR1 asks
// for a checkpoint. A handler can reach nothing but variables of the process,
// so these are the process's.
#pragma once

#include <cstdint>
#include <string>

namespace delink {

// Catches the three signals while at least one of these lives; before and after
// they do what they did. A second SIGINT or SIGTERM ends the process at once.
// The first to live forgets what was caught before it.
class SignalCatcher {
 public:
  SignalCatcher();
  ~SignalCatcher();
  SignalCatcher(const SignalCatcher&) = delete;
  SignalCatcher& operator=(const SignalCatcher&) = delete;
};

// From here on a write that cannot be made, to a pipe that nobody reads any
// more (SIGPIPE) or beyond the limit of a file's size (SIGXFSZ), fails, in
// place of ending this process or those that it starts.
void LetWritesFail();

// Ends the process as SIGPIPE does where nobody has let writes fail.
[[noreturn]] void EndOfBrokenPipe();

// The SIGINT or SIGTERM that was caught; 0 for none.
int StopSignal();

// How often SIGUSR1 was caught.
int64_t SaveRequests();

// "SIGTERM".
std::string SignalName(int signal);

}  // namespace delink
