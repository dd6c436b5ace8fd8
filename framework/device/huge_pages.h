// Host memory in huge pages, if the system has them.
#pragma once

#include <cstdint>

#include "framework/device/backend.h"

namespace delink {

inline constexpr int64_t kHugePage = int64_t{2} << 20;

// Reserves whole huge pages for at least `bytes`; a page takes memory once it
// is touched. If the system has no huge pages, they are small ones. Not
// initialised. Null if there is not enough address space.
HostMemory AllocateHugePages(int64_t bytes);

// At least `bytes`, aligned to kAlignment; the whole huge pages in them are
// huge. Not initialised; std::free frees it. Null if there is not enough
// address space.
void* AllocateInHugePages(int64_t bytes);

// Makes malloc use huge pages. glibc reads the environment before main, so this
// sets a variable for the process's restart. False: the environment sets
// GLIBC_TUNABLES already, and nothing is changed.
bool UseHugePagesFromRestart();

}  // namespace delink
