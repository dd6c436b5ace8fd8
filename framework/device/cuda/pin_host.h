// Pinned memory of the host, which a CUDA device copies from and to while
// nobody waits.
#pragma once

#include <cstdint>

#include "framework/device/backend.h"

namespace delink::cuda {

// Pinned through the current device, for all devices; not initialised. The
// address is unique even if `bytes` is 0. Null if the driver grants none. The
// thread that deletes it must have a current device.
//
// Large blocks are made of huge pages, which all cores touch before pinning.
// The driver's own pages are touched by one core, which takes half a second a
// GiB, and are small, which slows updates in them.
HostMemory PinHost(int64_t bytes);

}  // namespace delink::cuda
