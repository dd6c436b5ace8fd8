// The terminal that a person reads standard error on.
#pragma once

namespace delink {

// Standard error itself; or where it is a pipe that mpirun reads, the terminal
// to which mpirun passes on what it reads. None for a file, for a pipe to
// anything else, and where TERM is "dumb", which cannot overwrite a line.
class Terminal {
 public:
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Otherwise there is none.
  explicit operator bool() const { return fd_ >= 0; }
  // Columns, as many as there are now; 80 where it does not say.
  int width() const;

 private:
  int fd_ = -1;
};

}  // namespace delink
