#include "framework/device/huge_pages.h"

#include <sys/mman.h>

#include <cstdlib>

namespace delink {

HostMemory AllocateHugePages(int64_t bytes) {
  const auto size = static_cast<size_t>(AlignUp(bytes, kHugePage));
  void* const memory = std::aligned_alloc(kHugePage, size);
  if (memory != nullptr) (void)madvise(memory, size, MADV_HUGEPAGE);  // a hint
  return {memory, std::free};
}

}  // namespace delink
