// An account of memory by name: the bytes taken now, and the most so far.
//
// A name says what the memory is and, after " of ", for which part: "weights of
// blocks/3/attention", "slots". The words before " of " are its kind; sums are
// by kind. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "framework/base/mutex.h"

namespace delink {

class MemoryLedger {
 public:
  struct Entry {
    std::string kind;
    int64_t blocks = 0;
    int64_t bytes = 0;
    int64_t highest = 0;  // bytes
  };

  // `key` identifies the block: its address, or any address not used otherwise.
  void Take(const void* key, int64_t bytes, std::string_view name);
  // As Take; but if more than `limit` bytes would then be taken, takes nothing
  // and returns false.
  bool TakeWithin(int64_t limit, const void* key, int64_t bytes,
                  std::string_view name);
  void Give(const void* key);

  int64_t bytes() const;
  // The most that was taken at one time; not the sum of the kinds' highest.
  int64_t highest() const;
  // Blocks taken so far, including those given back.
  int64_t takes() const;
  // All kinds ever taken, in the order of their first block.
  std::vector<Entry> entries() const;
  // "weights 12.3 MiB in 4, slots 2.0 GiB": what is taken now, in how many
  // blocks.
  std::string ToString() const;

 private:
  struct Block {
    size_t kind;
    int64_t bytes;
  };
  mutable Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t, std::less<>> kinds_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<const void*, Block> blocks_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t highest_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t takes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace delink
