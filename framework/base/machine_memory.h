// How much memory this machine has.
#pragma once

#include <cstdint>

namespace delink {

// Bytes, also what others use.
int64_t MachineMemory();

}  // namespace delink
