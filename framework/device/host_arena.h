// One reservation of host memory for host-resident data: made once, pinned if
// the device is a GPU, and handed out front to back.
//
// Pinning takes time (a twentieth of a second a GiB) and pinned blocks cannot
// be swapped, so there is one block with the planned bytes, in which only the
// beginning of a piece is rounded, to kAlignment. A large block begins and ends
// at the borders of huge pages, and the system is advised to use such pages.
//
// If the block is pinned, it is in the device's ledger `pinned`. The arena's
// own ledger has every piece by name, pinned or not.
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
  // An arena of `bytes` for copies from and to `device`, which it must not
  // outlive; not initialised. For a GPU it is pinned. If the driver refuses, it
  // is other memory, and a line of the log says so, and what to set. For the
  // CPU it is ordinary memory. ResourceExhausted: `bytes` exceeds the machine's
  // memory.
  static absl::StatusOr<std::unique_ptr<HostArena>> Create(Device& device,
                                                           int64_t bytes);

  // `bytes` for `what` (ledger.h), at a multiple of kAlignment, until Clear.
  // Pieces of AlignUp(bytes) one after the other always fit; a piece of no
  // bytes takes one. ResourceExhausted names the size asked for and the size
  // left.
  absl::StatusOr<void*> Take(int64_t bytes, std::string_view what);
  // Takes all pieces back. Nobody may use them any more, copies included.
  void Clear();

  bool pinned() const { return pinned_; }
  int64_t bytes() const { return bytes_; }
  // Bytes up to the end of the last piece.
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
