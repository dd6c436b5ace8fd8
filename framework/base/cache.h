// Large files that are written once and not read again soon, on their way
// through the system's cache: where they go to the disk as they are written and
// leave the cache behind them, the same few pages serve for all of them, and
// nothing is left to wait for at the end. Hints alone: what cannot be done is
// not, and no bytes change.
#pragma once

#include <cstdint>
#include <string>

namespace delink {

// For a file that is written from the front. Not thread-safe.
class WriteBehind {
 public:
  // Of so many bytes at a time.
  explicit WriteBehind(int64_t at_once = int64_t{8} << 20)
      : at_once_(at_once) {}

  // What is before `end` is written to `descriptor`, and will not be read: it
  // is to go to the disk, and what is more than four times as much before it to
  // leave the cache. `end` grows from call to call.
  void Done(int descriptor, int64_t end);

 private:
  const int64_t at_once_;
  int64_t begun_ = 0;  // on its way to the disk
};

// The same of all of a file that is written and synced.
void LetCacheGoOf(const std::string& path);

}  // namespace delink
