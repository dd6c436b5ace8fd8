// Pinned memory of the host, from which and to which a CUDA device copies while
// nobody waits.
#pragma once

#include <cstdint>

#include "framework/device/backend.h"

namespace delink::cuda {

// Of the current device, for all of them; not initialised, with an address of
// its own also where `bytes` is 0. Null where the driver grants none. Its
// deleter is for a thread whose current device there is.
//
// Much of it is taken in huge pages, which all cores touch before it is pinned:
// the driver's own pages, one after the other by one core, take half a second a
// GiB, and are small ones for whoever updates what is in them.
HostMemory PinHost(int64_t bytes);

}  // namespace delink::cuda
