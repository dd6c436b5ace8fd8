#include "framework/device/huge_pages.h"

#include <sys/mman.h>

#include <cstdlib>

namespace delink {

HostMemory AllocateHugePages(int64_t bytes) {
  return {AllocateInHugePages(AlignUp(bytes, kHugePage)), std::free};
}

void* AllocateInHugePages(int64_t bytes) {
  const bool huge = bytes >= kHugePage;
  const int64_t alignment = huge ? kHugePage : kAlignment;
  void* const memory =
      std::aligned_alloc(static_cast<size_t>(alignment),
                         static_cast<size_t>(AlignUp(bytes, alignment)));
  if (memory == nullptr || !huge) return memory;
  const int64_t whole = bytes / kHugePage * kHugePage;
  (void)madvise(memory, static_cast<size_t>(whole), MADV_HUGEPAGE);  // a hint
  return memory;
}

bool UseHugePagesFromRestart() {
  constexpr char kTunables[] = "GLIBC_TUNABLES";
  if (std::getenv(kTunables) != nullptr) return false;
  setenv(kTunables, "glibc.malloc.hugetlb=1", /*overwrite=*/0);
  return true;
}

}  // namespace delink
