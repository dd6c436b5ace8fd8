// Most accesses of kernels are of memory that was written before the last
// barrier and is read, or written, as it should be: they are told here, inline,
// and all others go to CheckAccess. What these functions leave in cells is what
// it would leave.
#pragma once

#include "tests/testing/simt/shadow.h"

namespace delink::simt {

inline constexpr Record kOneLane = 0x1F;

constexpr bool SameWarp(Record a, Record b) {
  return ((a ^ b) & kThread & ~kOneLane) == 0;
}

inline bool OrderedInBlock(Record record) {
  if (record < g_now.barrier) return true;
  if ((record & kManyWarps) != 0) return false;
  const bool many = (record & kManyLanes) != 0;
  if (((record ^ g_now.self) & kThread) == 0 && !many) return true;
  if (!SameWarp(record, g_now.self)) return false;
  if (record < g_now.warp) return true;
  if (g_now.lanes == nullptr) return false;
  // Barriers of some lanes: where several lanes are meant it is enough that
  // this one has waited since, which accuses nobody wrongly.
  return record < g_now.lanes[(many ? g_now.self : record) & kOneLane];
}

// What an access leaves: itself, and that others were there too if they were
// not ordered before it.
template <bool kShared>
inline Record Merge(Record old, Record self) {
  if constexpr (kShared) {
    if (old < g_now.block) return self;
  } else {
    if (old < g_now.kernel) return self;
    if (old < g_now.block) {
      return old < g_now.acquired ? self : self | kManyBlocks;
    }
    self |= old & kManyBlocks;
  }
  if (OrderedInBlock(old)) return self;
  return self | (old & kBytes) | (old & (kManyLanes | kManyWarps)) |
         (SameWarp(old, self) ? kManyLanes : kManyWarps);
}

// Whether a record of this kernel, or one before it, is ordered before the
// running thread for one of the simplest reasons.
template <bool kShared>
inline bool IsBefore(Record record) {
  if (kShared) return OrderedInBlock(record);
  return record < g_now.known ||
         (record >= g_now.block && (record & kManyBlocks) == 0 &&
          OrderedInBlock(record));
}

template <bool kShared>
inline bool FastRead(Cell& cell) {
  const Record write = cell.write, read = cell.read;
  const bool written = kShared ? write >= g_now.block : write != 0;
  if (!written || !IsBefore<kShared>(write)) return false;
  const Record self = g_now.self | kBytes;
  if (read == self) return true;
  // One of many since the barrier: what comes later must wait for the next.
  constexpr Record kMany = kManyWarps | kBytes;
  if (read >= g_now.barrier && (read & kMany) == kMany) return true;
  cell.read = Merge<kShared>(read, self);
  return true;
}

template <bool kShared>
inline bool FastWrite(Cell& cell) {
  const Record write = cell.write;
  const bool allocated = kShared || write != 0;
  if (!allocated || !IsBefore<kShared>(write) ||
      !IsBefore<kShared>(cell.read)) {
    return false;
  }
  cell.write = g_now.self | kBytes;
  return true;
}

template <int kSize, Access kAccess, bool kShared>
inline bool FastCells(Cell* cells) {
  for (int i = 0; i < kSize / 2; ++i) {
    const bool done = kAccess == Access::kRead ? FastRead<kShared>(cells[i])
                                               : FastWrite<kShared>(cells[i]);
    if (!done) return false;
  }
  return true;
}

// False: CheckAccess must look at it, and may look at all of it.
template <int kSize, Access kAccess>
inline bool FastCheck(uintptr_t address) {
  static_assert(kSize % 2 == 0 && kAccess != Access::kAtomic);
  const Layout& layout = g_layout;
  if (address % 2 != 0) return false;
  const uintptr_t in_arena = address - layout.arena_begin;
  if (in_arena < layout.arena_bytes) {
    return FastCells<kSize, kAccess, false>(layout.arena_cells + in_arena / 2);
  }
  const uintptr_t in_image = address - layout.image_begin;
  if (in_image >= layout.image_bytes) return false;
  if (address + kSize > g_now.dynamic_end && address < layout.dynamic_end) {
    return false;  // past the end of dynamic shared memory
  }
  return FastCells<kSize, kAccess, true>(layout.image_cells + in_image / 2);
}

}  // namespace delink::simt
