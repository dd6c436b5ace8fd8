#include "framework/base/machine_memory.h"

#include <unistd.h>

namespace delink {

int64_t MachineMemory() {
  return sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

}  // namespace delink
