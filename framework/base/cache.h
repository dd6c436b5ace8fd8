// Hints to the system's cache for large files that are written once and not
// read again soon. Their pages go to the disk while the file is written and
// then leave the cache, so that a few pages serve the whole file and the final
// sync waits for little. A hint that fails is ignored; no bytes change.
#pragma once

#include <cstdint>
#include <string>

namespace delink {

// For a file that is written from the front. Not thread-safe.
class WriteBehind {
 public:
  // Gives hints for at least `at_once` bytes at a time.
  explicit WriteBehind(int64_t at_once = int64_t{8} << 20)
      : at_once_(at_once) {}

  // Says that all bytes before `end` are written to `descriptor` and will not
  // be read. They go to the disk; those more than 4 * at_once before `end`
  // leave the cache. `end` grows from call to call.
  void Done(int descriptor, int64_t end);

 private:
  const int64_t at_once_;
  int64_t begun_ = 0;  // on its way to the disk
};

// Lets a whole file that is written and synced leave the cache.
void LetCacheGoOf(const std::string& path);

}  // namespace delink
