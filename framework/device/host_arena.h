// One reservation of host memory for what does not live on the device: made
// once, pinned where copies want that, and handed out front to back.
//
// Pinning takes time (a twentieth of a second a GiB) and pinned blocks cannot
// be swapped, so there is one block, of the bytes that were planned, in which
// nothing is rounded but the beginning of a piece, to kAlignment. From a size
// on it begins and ends where a huge page does, and the system is advised to
// back it with such.
//
// The device's ledger `pinned` has the block where it is pinned; the arena's
// own has every piece by name, pinned or not.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/device/backend.h"
#include "framework/device/ledger.h"

namespace delink {

class HostArena {
 public:
  // Of `bytes`, for copies from and to `device`, which it must not outlive; not
  // initialised. For a GPU it is pinned; where the driver refuses that, other
  // memory takes its place and a line of the log says so, and what to set. For
  // the CPU it is ordinary memory. ResourceExhausted: more than the machine
  // has.
  static absl::StatusOr<std::unique_ptr<HostArena>> Create(Device& device,
                                                           int64_t bytes);

  // `bytes` for `what` (ledger.h), at a multiple of kAlignment, until Clear.
  // Pieces of AlignUp(bytes) one after the other always fit; a piece of no
  // bytes takes one. ResourceExhausted with what was asked for and what there
  // is.
  absl::StatusOr<void*> Take(int64_t bytes, std::string_view what);
  // All pieces are given back; whoever had them and their copies are done.
  void Clear();

  bool pinned() const { return pinned_; }
  int64_t bytes() const { return bytes_; }
  // Of these, to the end of the last piece.
  int64_t used() const;
  // Pieces, in the bytes that were asked for.
  const MemoryLedger& ledger() const { return ledger_; }

 private:
  HostArena(HostMemory memory, int64_t bytes, bool pinned)
      : memory_(std::move(memory)), bytes_(bytes), pinned_(pinned) {}

  const HostMemory memory_;
  const int64_t bytes_;
  const bool pinned_;
  MemoryLedger ledger_;
  mutable Mutex mutex_;
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<const void*> pieces_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace delink
