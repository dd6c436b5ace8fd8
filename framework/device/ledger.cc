#include "framework/device/ledger.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/format_bytes.h"

namespace delink {

void MemoryLedger::Take(const void* key, int64_t bytes, std::string_view name) {
  TakeWithin(std::numeric_limits<int64_t>::max(), key, bytes, name);
}

bool MemoryLedger::TakeWithin(int64_t limit, const void* key, int64_t bytes,
                              std::string_view name) {
  const std::string_view kind = name.substr(0, name.find(" of "));
  const MutexLock lock(mutex_);
  if (bytes > limit - bytes_) return false;
  auto found = kinds_.find(kind);
  if (found == kinds_.end()) {
    found = kinds_.emplace(std::string(kind), entries_.size()).first;
    entries_.push_back({.kind = std::string(kind)});
  }
  DELINK_CHECK(blocks_.emplace(key, Block{found->second, bytes}).second)
      << std::string(name) << " is taken twice";
  Entry& entry = entries_[found->second];
  ++entry.blocks;
  entry.bytes += bytes;
  entry.highest = std::max(entry.highest, entry.bytes);
  bytes_ += bytes;
  highest_ = std::max(highest_, bytes_);
  ++takes_;
  return true;
}

void MemoryLedger::Give(const void* key) {
  const MutexLock lock(mutex_);
  const auto found = blocks_.find(key);
  DELINK_CHECK(found != blocks_.end()) << "memory that was not taken";
  Entry& entry = entries_[found->second.kind];
  --entry.blocks;
  entry.bytes -= found->second.bytes;
  bytes_ -= found->second.bytes;
  blocks_.erase(found);
}

int64_t MemoryLedger::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}
int64_t MemoryLedger::highest() const {
  const MutexLock lock(mutex_);
  return highest_;
}
int64_t MemoryLedger::takes() const {
  const MutexLock lock(mutex_);
  return takes_;
}
std::vector<MemoryLedger::Entry> MemoryLedger::entries() const {
  const MutexLock lock(mutex_);
  return entries_;
}

std::string MemoryLedger::ToString() const {
  std::string text;
  for (const Entry& entry : entries()) {
    if (entry.bytes == 0) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", entry.kind, " ",
                    FormatBytes(entry.bytes));
    if (entry.blocks > 1) absl::StrAppend(&text, " in ", entry.blocks);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace delink
