// The terminal on which a person reads standard error.
#pragma once

namespace delink {

// Standard error itself or, if it is a pipe that mpirun reads, the terminal to
// which mpirun forwards it. None for a file, for another pipe, or if TERM is
// "dumb", which cannot overwrite a line.
class Terminal {
 public:
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Whether there is a terminal.
  explicit operator bool() const { return fd_ >= 0; }
  // The current number of columns; 80 if unknown.
  int width() const;

 private:
  int fd_ = -1;
};

}  // namespace delink
