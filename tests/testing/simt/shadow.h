// What is known of each two bytes that kernels can touch: who wrote and who
// read them last, and when. From it every access of a kernel is checked.
//
// Time is a counter that goes on whenever threads wait for one another: at each
// kernel, each block and each completed barrier. An access is ordered before
// another one if a barrier that both threads took part in, or the order of the
// streams, lies between; two accesses that are not ordered, one of them a write
// and not both atomic, race.
#pragma once

#include <cstdint>

namespace delink::simt {

// A record of an access: the time, shifted left by 16, and below it
//   bits 0..9    thread of the block
//   bits 10..11  which of the two bytes
//   bit 12       atomic
//   bit 13..15   not this thread alone, but also others that were not ordered:
//                of its warp, of its block, of other blocks
// Zero: nothing was recorded.
using Record = uint64_t;
struct Cell {
  Record write;
  Record read;
};

inline constexpr int kTimeShift = 16;
inline constexpr Record kThread = 0x3FF;
inline constexpr Record kBytes = 0xC00;
inline constexpr Record kAtomic = 0x1000;
inline constexpr Record kManyLanes = 0x2000;
inline constexpr Record kManyWarps = 0x4000;
inline constexpr Record kManyBlocks = 0x8000;

// Where memory and its cells are. Static shared memory is the program's own
// data; everything else that kernels may touch is in the arena or on the
// stacks.
struct Layout {
  uintptr_t stacks_begin, stacks_bytes;
  uintptr_t arena_begin, arena_bytes;
  uintptr_t pinned_begin;
  Cell* arena_cells;
  uintptr_t image_begin, image_bytes;
  Cell* image_cells;
  uintptr_t dynamic_begin, dynamic_end;  // dynamic shared memory, in the image
  uintptr_t constants_begin, constants_bytes;  // threadIdx and so on, likewise
};

// The thread that runs now. Times are shifted as in a Record.
struct Now {
  Record self;     // what it leaves in cells: time and thread
  Record known;    // everything before this time is ordered before the kernel
  Record kernel;   // when the kernel began
  Record block;    // when its block began
  Record barrier;  // the block's last barrier
  Record warp;     // the warp's last full barrier
  const Record* lanes;    // the last barrier with each other lane of the warp
  Record acquired;        // what other blocks released before this time is seen
  uintptr_t dynamic_end;  // of the kernel's dynamic shared memory
  bool report_uninitialised;
};

extern Layout g_layout;
extern Now g_now;
// Whether this thread of the host runs a kernel's code now. Not the emulation's
// own on behalf of it: that may share inline functions of libraries with code
// whose accesses are looked at.
extern thread_local bool t_in_kernel __attribute__((tls_model("initial-exec")));

enum class Access { kRead, kWrite, kAtomic };

// Makes the cells; `dynamic` is a static array for dynamic shared memory.
void InitShadow(uintptr_t arena_begin, uintptr_t arena_end,
                uintptr_t pinned_begin, const void* dynamic,
                int64_t dynamic_bytes);
// Memory that has been freed.
void ForgetShadow(uintptr_t begin, int64_t bytes);

// Checks and records an access of the running kernel.
void CheckAccess(uintptr_t address, int64_t bytes, Access access,
                 const void* pc);
// The same of a copy or a fill between kernels. A read may be of memory that
// was never written.
void CheckCopyRead(uintptr_t address, int64_t bytes);
void CheckCopyWrite(uintptr_t address, int64_t bytes);
// What was not written at `from` counts as not written at `to` either.
void CopyWritten(uintptr_t to, uintptr_t from, int64_t bytes);

}  // namespace delink::simt
