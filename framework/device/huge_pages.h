// Memory of the host in huge pages, where the system has them.
#pragma once

#include <cstdint>

#include "framework/device/backend.h"

namespace delink {

inline constexpr int64_t kHugePage = int64_t{2} << 20;

// Whole huge pages of addresses, for `bytes` at least, of which only those that
// are touched take memory; where the system has no huge pages, small ones
// serve. Not initialised. Null where there are not so many addresses.
HostMemory AllocateHugePages(int64_t bytes);

}  // namespace delink
