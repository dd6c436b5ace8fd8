#include "framework/device/host_arena.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/format_bytes.h"
#include "framework/base/log.h"
#include "framework/base/machine_memory.h"
#include "framework/device/huge_pages.h"

namespace delink {
namespace {

constexpr char kName[] = "offloading";  // in the device's ledger

std::string LockLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "not known";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return absl::StrCat(limit.rlim_cur / 1024, " KiB");
}

int64_t PinnedBlocks(const Device& device) {
  for (const MemoryLedger::Entry& entry : device.ledgers().pinned.entries()) {
    if (entry.kind == kName) return entry.blocks;
  }
  return 0;
}

// Null if the device grants none.
HostMemory Pinned(Device& device, int64_t bytes) {
  const int64_t before = PinnedBlocks(device);
  HostMemory memory = device.AllocateHost(bytes, kName);
  if (PinnedBlocks(device) > before) return memory;
  DELINK_LOG(kWarning) << FormatBytes(bytes)
                       << " of host memory for offloading are not pinned, "
                          "since "
                       << device.name()
                       << " refuses them: copies are slower and overlap "
                          "nothing; raise the limit of locked memory, now "
                       << LockLimit()
                       << " (ulimit -l unlimited; for a container --ulimit "
                          "memlock=-1), or offload less";
  return nullptr;
}

absl::Status TooLarge(int64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("out of memory of the host: asked for ", bytes,
                   " bytes for offloading, but the machine has ",
                   MachineMemory(), "; offload less"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostArena>> HostArena::Create(Device& device,
                                                             int64_t bytes) {
  DELINK_CHECK_GE(bytes, 0);
  DELINK_CHECK(!IsMeta(device.kind())) << "what is planned takes no memory";
  if (bytes > MachineMemory()) return TooLarge(bytes);
  const int64_t size = std::max<int64_t>(bytes, 1);
  HostMemory memory;
  if (IsCuda(device.kind())) memory = Pinned(device, size);
  const bool pinned = memory != nullptr;
  if (!pinned) memory = AllocateHugePages(size);
  if (memory == nullptr) return TooLarge(bytes);
  DELINK_CHECK_EQ(reinterpret_cast<uintptr_t>(memory.get()) % kAlignment, 0u);
  return std::unique_ptr<HostArena>(
      new HostArena(std::move(memory), bytes, pinned));
}

absl::StatusOr<void*> HostArena::Take(int64_t bytes, std::string_view what) {
  DELINK_CHECK_GE(bytes, 0);
  const MutexLock lock(mutex_);
  const int64_t begin = AlignUp(used_);
  // Every piece has a distinct address.
  const int64_t size = std::max<int64_t>(bytes, 1);
  if (begin > bytes_ || size > bytes_ - begin) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the host memory for offloading is too small: asked for ", bytes,
        " bytes for ", absl::string_view(what.data(), what.size()), " with ",
        std::max<int64_t>(bytes_ - begin, 0), " of ", bytes_,
        " left; in use: ", ledger_.ToString()));
  }
  void* const piece = static_cast<char*>(memory_.get()) + begin;
  ledger_.Take(piece, bytes, what);
  pieces_.push_back(piece);
  used_ = begin + size;
  return piece;
}

void HostArena::Clear() {
  const MutexLock lock(mutex_);
  for (const void* piece : pieces_) ledger_.Give(piece);
  pieces_.clear();
  used_ = 0;
}

int64_t HostArena::used() const {
  const MutexLock lock(mutex_);
  return used_;
}

}  // namespace delink
