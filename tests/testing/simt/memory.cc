#include "tests/testing/simt/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "tests/testing/simt/report.h"
#include "tests/testing/simt/shadow.h"

namespace delink::simt {
namespace {

constexpr int64_t kRedZone = 256;
constexpr int64_t kPage = 4096;
// How much of a new allocation is filled with what no program wants to read;
// all of a big one would take longer than what runs on it, and each page makes
// every change of protection longer.
constexpr int64_t kFilled = int64_t{1} << 16;

uintptr_t RoundUp(uintptr_t value, int64_t to) {
  const auto unit = static_cast<uintptr_t>(to);
  return (value + unit - 1) / unit * unit;
}

void Protect(uintptr_t begin, uintptr_t end, int protection) {
  if (begin == end) return;
  if (mprotect(reinterpret_cast<void*>(begin), end - begin, protection) != 0) {
    Report("mprotect refused to change the emulated device's memory");
  }
}

}  // namespace

Memory::Memory() {
  void* const base = mmap(nullptr, kDeviceBytes + kPinnedBytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    Report("no addresses for the emulated device (ulimit -v?)");
  }
  arena_.begin = reinterpret_cast<uintptr_t>(base);
  arena_.end = arena_.begin + kDeviceBytes + kPinnedBytes;
  pinned_begin_ = arena_.begin + kDeviceBytes;
  next_device_ = arena_.begin + kRedZone;
  next_pinned_ = pinned_begin_ + kRedZone;
  Protect(pinned_begin_, arena_.end, PROT_READ | PROT_WRITE);
}

bool Memory::InPart(uintptr_t address, bool pinned) const {
  const uintptr_t begin = pinned ? pinned_begin_ : arena_.begin;
  const uintptr_t end = pinned ? arena_.end : pinned_begin_;
  return address >= begin && address < end;
}
bool Memory::IsPinned(const void* address) const {
  return InPart(reinterpret_cast<uintptr_t>(address), true);
}
bool Memory::IsDevice(const void* address) const {
  return InPart(reinterpret_cast<uintptr_t>(address), false);
}

void* Memory::Allocate(int64_t bytes, bool pinned, int64_t limit) {
  if (!pinned && bytes > limit - bytes_in_use_) return nullptr;
  uintptr_t& next = pinned ? next_pinned_ : next_device_;
  const uintptr_t part_end = pinned ? arena_.end : pinned_begin_;
  if (static_cast<uintptr_t>(bytes) > part_end - next - 2 * kRedZone) {
    return nullptr;
  }
  const uintptr_t begin = next;
  next = RoundUp(begin + static_cast<uintptr_t>(bytes) + kRedZone, kRedZone);
  live_.emplace(begin, bytes);
  if (!pinned) bytes_in_use_ += bytes;
  const bool was_open = open_;
  if (!pinned && !was_open) Open();
  std::memset(reinterpret_cast<void*>(begin), 0xFF,
              static_cast<size_t>(std::min(bytes, kFilled)));
  if (!pinned && !was_open) Close();
  return reinterpret_cast<void*>(begin);
}

bool Memory::Free(void* address, bool pinned) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(address);
  const auto found = live_.find(begin);
  if (found == live_.end() || !InPart(begin, pinned)) return false;
  const int64_t bytes = found->second;
  live_.erase(found);
  freed_.emplace(begin, bytes);
  last_ = {};
  if (!pinned) bytes_in_use_ -= bytes;
  ForgetShadow(begin, bytes);
  // Pages without anything that is live go back to the system, whose every
  // change of protection walks the others; addresses are not used again.
  const auto after = live_.upper_bound(begin);
  uintptr_t first = begin / kPage * kPage;
  uintptr_t end = RoundUp(begin + static_cast<uintptr_t>(bytes), kPage);
  if (after != live_.begin()) {
    const auto [other, size] = *std::prev(after);
    first =
        std::max(first, RoundUp(other + static_cast<uintptr_t>(size), kPage));
  }
  if (after != live_.end()) end = std::min(end, after->first / kPage * kPage);
  if (first < end) {
    madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
  }
  return true;
}

bool Memory::IsLive(uintptr_t address, int64_t bytes) {
  const uintptr_t end = address + static_cast<uintptr_t>(bytes);
  if (address >= last_.begin && end <= last_.end) return true;
  auto found = live_.upper_bound(address);
  if (found == live_.begin()) return false;
  --found;
  const uintptr_t found_end =
      found->first + static_cast<uintptr_t>(found->second);
  if (end > found_end) return false;
  last_ = {found->first, found_end};
  return true;
}

std::string Memory::Describe(uintptr_t address) const {
  const auto freed = freed_.upper_bound(address);
  if (freed != freed_.begin()) {
    const auto [begin, bytes] = *std::prev(freed);
    if (address < begin + static_cast<uintptr_t>(bytes)) {
      return "in an allocation of " + std::to_string(bytes) + " bytes at " +
             Hex(begin) + " that has been freed";
    }
  }
  const auto next = live_.upper_bound(address);
  if (next != live_.begin()) {
    const auto [begin, bytes] = *std::prev(next);
    const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
    const std::string name = "the allocation of " + std::to_string(bytes) +
                             " bytes at " + Hex(begin);
    if (address < end) {
      return std::to_string(address - begin) + " bytes into " + name;
    }
    if (next == live_.end() || address - end <= next->first - address) {
      return std::to_string(address - end) + " bytes past the end of " + name;
    }
  }
  if (next != live_.end() && InPart(address, InPart(next->first, true))) {
    return std::to_string(next->first - address) +
           " bytes in front of the allocation of " +
           std::to_string(next->second) + " bytes at " + Hex(next->first);
  }
  return "in no allocation of the device";
}

// All below the first that is live is closed for good.
void Memory::Open() {
  open_ = true;
  const bool none = live_.empty() || live_.begin()->first >= pinned_begin_;
  const uintptr_t first = none ? next_device_ : live_.begin()->first;
  opened_ = {first / kPage * kPage, RoundUp(next_device_, kPage)};
  Protect(opened_.begin, opened_.end, PROT_READ | PROT_WRITE);
}
void Memory::Close() {
  open_ = false;
  Protect(opened_.begin, opened_.end, PROT_NONE);
}

}  // namespace delink::simt
