// How much memory this machine has.
#pragma once

#include <cstdint>

namespace delink {

// In bytes, including memory in use.
int64_t MachineMemory();

}  // namespace delink
