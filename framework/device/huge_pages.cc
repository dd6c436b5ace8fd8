#include "framework/device/huge_pages.h"

#include <sys/mman.h>

#include <cstdlib>

namespace delink {

HostMemory AllocateHugePages(int64_t bytes) {
  return {AllocateInHugePages(AlignUp(bytes, kHugePage)), std::free};
}

void* AllocateInHugePages(int64_t bytes) {
  const auto alignment =
      static_cast<size_t>(bytes < kHugePage ? kAlignment : kHugePage);
  // The rest of the last huge page is for others: malloc may have touched it.
  void* memory = nullptr;
  const auto size = static_cast<size_t>(AlignUp(bytes));
  if (posix_memalign(&memory, alignment, size) != 0) return nullptr;
  const auto whole = static_cast<size_t>(bytes / kHugePage * kHugePage);
  if (whole > 0) (void)madvise(memory, whole, MADV_HUGEPAGE);  // a hint
  return memory;
}

bool UseHugePagesFromRestart() {
  constexpr char kTunables[] = "GLIBC_TUNABLES";
  if (std::getenv(kTunables) != nullptr) return false;
  setenv(kTunables, "glibc.malloc.hugetlb=1", /*overwrite=*/0);
  return true;
}

}  // namespace delink
