// Finds where a text can be cut without changing its tokens, and caches the
// tokens of words: natural text repeats a few thousand words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "framework/base/mutex.h"

namespace delink {

// The places that no piece of a vocabulary crosses, so that both sides can be
// encoded separately.
struct WordCuts {
  bool before_spaces = false;  // the first of each run of spaces
  bool around_newlines = false;

  bool any() const { return before_spaces || around_newlines; }
  // Where the word that begins at `begin` (< text.size()) ends.
  size_t End(std::string_view text, size_t begin) const;
};

// `pieces`: the bytes that each piece of text stands for.
WordCuts FindWordCuts(std::span<const std::string> pieces);

// Not thread-safe. Holds about ten megabytes at most.
class WordCache {
 public:
  // Longer words are rare and seldom repeat.
  static constexpr size_t kLongest = 48;  // bytes

  // Appends the ids of `word`; false if they are not cached.
  bool Append(std::string_view word, std::vector<int32_t>* ids) const;
  void Add(std::string_view word, std::span<const int32_t> ids);

 private:
  struct Range {
    size_t begin = 0, end = 0;  // in ids_
  };
  absl::flat_hash_map<std::string, Range> words_;
  std::vector<int32_t> ids_;
};

// A pool of items, such as caches. Each working thread takes one. Thread-safe.
template <typename Item>
class IdlePool {
 public:
  std::unique_ptr<Item> Take() {
    const MutexLock lock(mutex_);
    if (idle_.empty()) return std::make_unique<Item>();
    std::unique_ptr<Item> item = std::move(idle_.back());
    idle_.pop_back();
    return item;
  }
  void GiveBack(std::unique_ptr<Item> item) {
    const MutexLock lock(mutex_);
    idle_.push_back(std::move(item));
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Item>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace delink
